// Reads a JSON list of configurations from stdin and prints for each whether Apache Kafka's jars accept it:
// {"kind": "broker" | "topic" | "group" | "properties", ...} -> null, an error message, or the parsed properties.
// Compiled and run by test_config_checks.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.StringReader;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import kafka.server.KafkaConfig;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

public class CheckConfigs {
    private static Map<String, String> pairs(JsonNode node) {
        Map<String, String> pairs = new HashMap<>();
        node.properties().forEach(field -> pairs.put(field.getKey(), field.getValue().asText()));
        return pairs;
    }

    private static Properties properties(JsonNode node) {
        Properties properties = new Properties();
        properties.putAll(pairs(node));
        return properties;
    }

    private static Object check(JsonNode one) throws Exception {
        switch (one.get("kind").asText()) {
            case "broker":
                KafkaConfig.fromProps(properties(one.get("properties")), false);
                return null;
            case "topic": {
                KafkaConfig config = KafkaConfig.fromProps(properties(one.get("broker")), false);
                LogConfig.validate(pairs(one.get("existing")), pairs(one.get("properties")), config.extractLogConfigMap(),
                    config.remoteLogManagerConfig().isRemoteStorageSystemEnabled());
                return null;
            }
            case "group": {
                KafkaConfig config = KafkaConfig.fromProps(properties(one.get("broker")), false);
                GroupConfig.validate(pairs(one.get("properties")), config.groupCoordinatorConfig(), config.shareGroupConfig());
                return null;
            }
            case "dynamic":
                DynamicBrokerConfig.validateConfigs(new Properties(), properties(one.get("properties")), one.get("perBroker").asBoolean());
                return null;
            case "properties": {
                Properties parsed = new Properties();
                parsed.load(new StringReader(one.get("text").asText()));
                return new TreeMap<>(parsed);
            }
            default:
                throw new IllegalArgumentException(one.toString());
        }
    }

    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        List<Object> out = new ArrayList<>();
        for (JsonNode one : mapper.readTree(System.in)) {
            try {
                out.add(check(one));
            } catch (RuntimeException | ExceptionInInitializerError error) {
                out.add("refused: " + error.getMessage());
            }
        }
        System.out.println(mapper.writeValueAsString(out));
    }
}
