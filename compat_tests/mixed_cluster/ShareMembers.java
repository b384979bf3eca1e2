import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Members of share groups that consume until standard input ends, one group for each mode, and print what happens.
 *
 * Arguments: bootstrap servers, topic, then pairs of a mode and a group. The mode is "implicit" or "explicit". Lines:
 * the group, then D with value and delivery count for a delivery, and A or R with the value for a record whose
 * acceptance or release succeeded. Explicit members release each fifth value at its first delivery.
 */
public class ShareMembers {
    private static volatile boolean ended;

    public static void main(String[] args) throws Exception {
        List<Thread> members = new ArrayList<>();
        for (int i = 2; i < args.length; i += 2) {
            String mode = args[i];
            String group = args[i + 1];
            members.add(new Thread(() -> consume(args[0], args[1], mode, group)));
        }
        members.forEach(Thread::start);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        while (in.readLine() != null) {
        }
        ended = true;
        for (Thread member : members) {
            member.join();
        }
    }

    private static synchronized void say(String group, char event, String value, int count) {
        System.out.println(group + " " + event + " " + value + " " + count);
    }

    private static void consume(String bootstrap, String topic, String mode, String group) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("key.deserializer", StringDeserializer.class.getName());
        config.put("value.deserializer", StringDeserializer.class.getName());
        config.put("share.acknowledgement.mode", mode);
        boolean explicit = mode.equals("explicit");
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(config)) {
            consumer.subscribe(List.of(topic));
            while (!ended) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                List<String> released = new ArrayList<>();
                for (ConsumerRecord<String, String> record : records) {
                    short count = record.deliveryCount().orElse((short) -1);
                    say(group, 'D', record.value(), count);
                    if (explicit) {
                        boolean release = count == 1 && Integer.parseInt(record.value()) % 5 == 0;
                        consumer.acknowledge(record, release ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                        if (release) {
                            released.add(record.value());
                        }
                    }
                }
                Map<TopicIdPartition, Optional<KafkaException>> done = consumer.commitSync();
                boolean failed = done.values().stream().anyMatch(Optional::isPresent);
                if (!failed && !done.isEmpty()) {
                    for (ConsumerRecord<String, String> record : records) {
                        say(group, released.contains(record.value()) ? 'R' : 'A', record.value(), 0);
                    }
                }
            }
        }
    }
}
