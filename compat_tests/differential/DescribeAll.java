// Sets some dynamic configuration on a running Apache Kafka (or on us) and prints every DescribeConfigs answer as JSON.
// Usage: DescribeAll <bootstrap server> <broker id>. Alterations are in `main`; test_describe.py repeats them.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.ConfigResource;

public class DescribeAll {
    private static void set(Admin admin, ConfigResource.Type type, String name, String... pairs) throws Exception {
        Collection<AlterConfigOp> ops = new ArrayList<>();
        for (int i = 0; i < pairs.length; i += 2) {
            ops.add(new AlterConfigOp(new ConfigEntry(pairs[i], pairs[i + 1]), AlterConfigOp.OpType.SET));
        }
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(type, name), ops)).all().get();
    }

    private static void describe(Admin admin, Map<String, Object> out, String label, ConfigResource resource) throws Exception {
        Config config = admin.describeConfigs(List.of(resource), new DescribeConfigsOptions().includeSynonyms(true))
            .all().get().get(resource);
        Map<String, Object> entries = new TreeMap<>();
        for (ConfigEntry entry : config.entries()) {
            entries.put(entry.name(), Arrays.asList(
                entry.value(), entry.source().name(), entry.type().name(), entry.isReadOnly(), entry.isSensitive(),
                entry.synonyms().stream().map(s -> Arrays.asList(s.name(), s.value(), s.source().name()))
                    .collect(Collectors.toList())));
        }
        out.put(label, entries);
    }

    private static void describeAll(Admin admin, Map<String, Object> out, String stage, String broker) throws Exception {
        describe(admin, out, stage + " broker", new ConfigResource(ConfigResource.Type.BROKER, broker));
        describe(admin, out, stage + " cluster", new ConfigResource(ConfigResource.Type.BROKER, ""));
        describe(admin, out, stage + " topic", new ConfigResource(ConfigResource.Type.TOPIC, "plain"));
        describe(admin, out, stage + " topic with overrides", new ConfigResource(ConfigResource.Type.TOPIC, "special"));
        describe(admin, out, stage + " group", new ConfigResource(ConfigResource.Type.GROUP, "plain"));
        describe(admin, out, stage + " group with overrides", new ConfigResource(ConfigResource.Type.GROUP, "special"));
    }

    public static void main(String[] args) throws Exception {
        Map<String, Object> out = new LinkedHashMap<>();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            NewTopic special = new NewTopic("special", Optional.of(1), Optional.empty()).configs(Map.of(
                "retention.ms", "1000", "cleanup.policy", "compact,delete", "min.cleanable.dirty.ratio", "0.00001"));
            admin.createTopics(List.of(new NewTopic("plain", Optional.of(1), Optional.empty()), special)).all().get();
            set(admin, ConfigResource.Type.GROUP, "special",
                "consumer.session.timeout.ms", "50000", "share.auto.offset.reset", "earliest");
            Thread.sleep(1000);
            describeAll(admin, out, "static", args[1]);
            set(admin, ConfigResource.Type.BROKER, "",
                "log.retention.ms", "123456789", "message.max.bytes", "2000000", "log.cleaner.threads", "2",
                "leader.replication.throttled.rate", "1000", "foo.dynamic", "secret");
            set(admin, ConfigResource.Type.BROKER, args[1],
                "message.max.bytes", "3000000", "max.connections", "500",
                "listener.name.plaintext.max.connections", "400", "log.cleaner.min.cleanable.ratio", "0.125");
            Thread.sleep(1500);
            describeAll(admin, out, "dynamic", args[1]);
        }
        System.out.println(new ObjectMapper().writeValueAsString(out));
    }
}
