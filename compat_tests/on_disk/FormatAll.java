// Reads a JSON list of command lines of kafka-storage from stdin, runs them one after another, and prints for each how
// it ended and what it said. One JVM for all of them. Compiled and run by formatting.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import kafka.tools.StorageTool;

public class FormatAll {
    private static Map<String, Object> run(String[] words) {
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        PrintStream out = new PrintStream(said, true);
        int status;
        try {
            status = StorageTool.execute(words, out);
        } catch (Exception failure) {
            // What `main` prints before it ends with 1.
            out.println(failure.getMessage());
            status = 1;
        }
        return Map.of("status", status, "said", said.toString());
    }

    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        List<Map<String, Object>> results = new ArrayList<>();
        for (JsonNode line : mapper.readTree(System.in)) {
            List<String> words = new ArrayList<>();
            line.forEach(word -> words.add(word.asText()));
            results.add(run(words.toArray(new String[0])));
        }
        System.out.println(mapper.writeValueAsString(results));
    }
}
