import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Rules and a subject as hex on each line in; the name, "invalid" or "none" on each line out. */
public class MappedNames {
    public static void main(String[] args) throws Exception {
        HexFormat hex = HexFormat.of();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(" ", -1);
            String rules = new String(hex.parseHex(parts[0]), StandardCharsets.UTF_8);
            String subject = new String(hex.parseHex(parts[1]), StandardCharsets.UTF_8);
            SslPrincipalMapper mapper;
            try {
                mapper = SslPrincipalMapper.fromRules(rules);
            } catch (IllegalArgumentException e) {
                System.out.println("invalid");
                continue;
            }
            try {
                String name = mapper.getName(subject);
                System.out.println("=" + hex.formatHex(name.getBytes(StandardCharsets.UTF_8)));
            } catch (SslPrincipalMapper.NoMatchingRule e) {
                System.out.println("none");
            } catch (RuntimeException e) {
                System.out.println("fails");
            }
        }
    }
}
