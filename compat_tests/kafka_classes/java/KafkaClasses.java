// Classes of Apache Kafka that decide from values alone, asked by the tests of this folder. Reads a request per line from
// stdin, {"id": 1, "op": name, ...}, and answers it with {"id": 1, "result": ...} or {"id": 1, "error": text}.
// Compiled and run by ../kafka_classes.py.

package pykbroker;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.controller.PartitionChanges;

public final class KafkaClasses {
    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = mapper.readTree(line);
            Map<String, Object> answer;
            try {
                answer = Map.of("id", request.get("id").asInt(), "result", result(request));
            } catch (Exception failure) {
                failure.printStackTrace();
                answer = Map.of("id", request.get("id").asInt(), "error", failure.toString());
            }
            mapper.writeValue(new UnclosedStream(answers), answer);
            answers.println();
            answers.flush();
        }
    }

    private static Object result(JsonNode request) throws Exception {
        switch (request.get("op").asText()) {
            case "changes":
                return PartitionChanges.apply(request.get("steps"));
            case "places":
                return Placements.apply(request.get("clusters"));
            case "decisions":
                return Decisions.apply(request);
            case "images":
                return Images.apply(request.get("batches"));
            case "snapshot":
                return Images.snapshot(request.get("before"), request.get("records"));
            default:
                throw new IllegalArgumentException("unknown op " + request.get("op"));
        }
    }

    // Jackson closes what it has written to.
    private static final class UnclosedStream extends java.io.FilterOutputStream {
        UnclosedStream(PrintStream out) {
            super(out);
        }

        @Override
        public void write(byte[] bytes, int from, int length) throws java.io.IOException {
            out.write(bytes, from, length);
        }

        @Override
        public void close() {}
    }
}
