import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringDeserializer;
import java.util.Optional;

/**
 * Consumes as a member of a share group until it has seen so many records, and prints each with its delivery count.
 *
 * Arguments: bootstrap servers, topic, group, number of records, mode. The mode is "implicit"; "explicit" accepts
 * records one by one; "odd" releases odd values at their first delivery, and accepts all others; "reject" rejects odd
 * values, and accepts all others; "keep" acknowledges nothing.
 */
public class ShareProgram {
    public static void main(String[] args) {
        String mode = args[4];
        int wanted = Integer.parseInt(args[3]);
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("group.id", args[2]);
        config.put("key.deserializer", StringDeserializer.class.getName());
        config.put("value.deserializer", StringDeserializer.class.getName());
        config.put("share.acknowledgement.mode", mode.equals("implicit") ? "implicit" : "explicit");
        StringBuilder said = new StringBuilder();
        int seen = 0;
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(config)) {
            consumer.subscribe(List.of(args[1]));
            while (seen < wanted) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(500));
                for (ConsumerRecord<String, String> record : records) {
                    short count = record.deliveryCount().orElse((short) -1);
                    said.append(record.partition()).append(' ').append(record.value()).append(' ').append(count).append('\n');
                    seen++;
                    boolean odd = Integer.parseInt(record.value()) % 2 == 1;
                    if (mode.equals("reject")) {
                        consumer.acknowledge(record, odd ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT);
                    } else if (mode.equals("explicit") || mode.equals("odd")) {
                        boolean release = mode.equals("odd") && count == 1 && odd;
                        consumer.acknowledge(record, release ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                    }
                }
                if (!records.isEmpty() && !mode.equals("keep")) {
                    Map<TopicIdPartition, Optional<KafkaException>> done = consumer.commitSync();
                    for (Optional<KafkaException> error : done.values()) {
                        if (error.isPresent()) {
                            throw error.get();
                        }
                    }
                }
            }
        }
        System.out.print(said);
    }
}
