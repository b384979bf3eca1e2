import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;

/** A name in DER as hex on each line in, what X500Principal.getName() makes of it on each line out, as hex of UTF-8. */
public class SubjectNames {
    public static void main(String[] args) throws Exception {
        HexFormat hex = HexFormat.of();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String name;
            try {
                name = new X500Principal(hex.parseHex(line)).getName();
            } catch (IllegalArgumentException e) {
                System.out.println("refused");
                continue;
            }
            System.out.println(hex.formatHex(name.getBytes(StandardCharsets.UTF_8)));
        }
    }
}
