import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Base64;

/**
 * RE2/J, with which Apache Kafka resolves regular expressions, asked line by line: the pattern in base64 and names, all
 * apart by blanks. Answered by one 0 or 1 for each name, or by "!" and what is wrong with the pattern.
 */
public final class Patterns {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line.split(" ")));
            System.out.flush();
        }
    }

    private static String answer(String[] words) throws Exception {
        Pattern pattern;
        try {
            pattern = Pattern.compile(new String(Base64.getDecoder().decode(words[0]), "UTF-8"));
        } catch (PatternSyntaxException e) {
            return "!" + e.getDescription();
        }
        StringBuilder found = new StringBuilder();
        for (int i = 1; i < words.length; i++) found.append(pattern.matcher(words[i]).matches() ? '1' : '0');
        return found.toString();
    }
}
