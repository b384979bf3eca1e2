import java.time.Duration;
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
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of share groups, for the rows of bench/sharing.py.
 *
 * Arguments: bootstrap servers, topic, number of records, mode, groups. The mode is "implicit", or "explicit", which
 * accepts each record and calls commitSync after each poll. For each group it prints the milliseconds from subscribe to
 * the first record, and the nanoseconds from then to the last record.
 */
public class ShareLoad {
    public static void main(String[] args) {
        for (int group = 4; group < args.length; group++) {
            consume(args[0], args[1], Integer.parseInt(args[2]), args[3].equals("explicit"), args[group]);
        }
    }

    private static void consume(String bootstrap, String topic, int wanted, boolean explicit, String group) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        config.put("share.acknowledgement.mode", explicit ? "explicit" : "implicit");
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(config)) {
            long begin = System.nanoTime();
            long first = 0;
            int seen = 0;
            consumer.subscribe(List.of(topic));
            while (seen < wanted) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(500));
                if (first == 0 && !records.isEmpty()) {
                    first = System.nanoTime();
                }
                seen += records.count();
                if (explicit && !records.isEmpty()) {
                    for (ConsumerRecord<byte[], byte[]> record : records) {
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                    }
                    Map<TopicIdPartition, Optional<KafkaException>> done = consumer.commitSync();
                    for (Optional<KafkaException> error : done.values()) {
                        if (error.isPresent()) {
                            throw error.get();
                        }
                    }
                }
            }
            System.out.println((first - begin) / 1_000_000 + " " + (System.nanoTime() - first) + " " + seen);
        }
    }
}
