// Prints what Apache Kafka's jars say about their configuration keys, as one JSON object on stdout.
// Compiled and run by test_config_table.py; uses only public members of the jars.

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

public class DumpConfigs {
    private static boolean flag(Object validator, String name) throws ReflectiveOperationException {
        Field field = validator.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.getBoolean(validator);
    }

    private static Map<String, Object> keys(Map<String, ConfigDef.ConfigKey> keys) throws ReflectiveOperationException {
        Map<String, Object> all = new TreeMap<>();
        for (ConfigDef.ConfigKey key : keys.values()) {
            Map<String, Object> one = new TreeMap<>();
            one.put("type", key.type().name());
            one.put("required", !key.hasDefault());
            Object value = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type()) : null;
            if (key.hasDefault() && key.type() == ConfigDef.Type.PASSWORD && key.defaultValue != null) {
                value = ((org.apache.kafka.common.config.types.Password) key.defaultValue).value();
            }
            one.put("default", value);
            one.put("validator", key.validator == null ? null : key.validator.toString().replaceAll("@[0-9a-f]+$", ""));
            one.put("validatorClass", key.validator == null ? null : key.validator.getClass().getName());
            if (key.validator instanceof ConfigDef.ValidList) {
                one.put("emptyAllowed", flag(key.validator, "isEmptyAllowed"));
                one.put("nullAllowed", flag(key.validator, "isNullAllowed"));
            }
            one.put("importance", key.importance.name());
            one.put("internal", key.internalConfig);
            one.put("alternative", key.alternativeString);
            all.put(key.name, one);
        }
        return all;
    }

    public static void main(String[] args) throws Exception {
        Map<String, Object> out = new TreeMap<>();
        out.put("broker", keys(KafkaConfig.configDef().configKeys()));
        out.put("topic", keys(LogConfig.configKeys()));
        out.put("group", keys(GroupConfig.CONFIG_DEF.configKeys()));
        out.put("groupNames", new ArrayList<>(GroupConfig.configNames()));
        out.put("dynamicOnly", keys(DynamicConfig.Broker.configKeys()));
        out.put("nonDynamic", new ArrayList<>(new java.util.TreeSet<>(DynamicConfig.Broker.nonDynamicProps())));
        out.put("updateModes", DynamicBrokerConfig.dynamicConfigUpdateModes());
        Map<String, Object> synonyms = new TreeMap<>();
        for (Map.Entry<String, List<ConfigSynonym>> entry : ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.entrySet()) {
            List<List<String>> names = new ArrayList<>();
            for (ConfigSynonym synonym : entry.getValue()) {
                names.add(List.of(synonym.name(), synonym.converter().apply("1")));
            }
            synonyms.put(entry.getKey(), names);
        }
        out.put("topicSynonyms", synonyms);
        Map<String, String> groupSynonyms = new TreeMap<>();
        for (String name : GroupConfig.configNames()) {
            groupSynonyms.put(name, GroupConfig.brokerSynonym(name).orElse(null));
        }
        out.put("groupSynonyms", groupSynonyms);
        Map<String, List<String>> brokerSynonyms = new TreeMap<>();
        for (String name : KafkaConfig.configDef().names()) {
            List<String> names = DynamicBrokerConfig.brokerConfigSynonyms(name, false);
            if (names.size() > 1) {
                brokerSynonyms.put(name, names);
            }
        }
        out.put("brokerSynonyms", brokerSynonyms);
        System.out.println(new ObjectMapper().enable(SerializationFeature.INDENT_OUTPUT).writeValueAsString(out));
    }
}
