// One producer and one member of a group that live on while their broker is put back to another state.
// Each line of the standard input is a value: it is written, and read again. The answer is "ok", or an exception.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class AliveClient {
    public static void main(String[] args) throws Exception {
        String topic = args[1];
        Map<String, Object> both = Map.of("bootstrap.servers", args[0]);
        try (KafkaProducer<String, String> producer =
                        new KafkaProducer<>(both, new StringSerializer(), new StringSerializer());
                KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                        Map.of(
                                "bootstrap.servers", args[0],
                                "group.id", "java",
                                "group.protocol", args[2],
                                "auto.offset.reset", "earliest"),
                        new StringDeserializer(),
                        new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
            for (String value = in.readLine(); value != null; value = in.readLine()) {
                try {
                    producer.send(new ProducerRecord<>(topic, value)).get();
                    readUntil(consumer, value);
                    System.out.println("ok");
                } catch (Exception error) {
                    System.out.println(error.toString().replace('\n', ' '));
                }
            }
        }
    }

    private static void readUntil(KafkaConsumer<String, String> consumer, String value) {
        while (true) {
            for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(50))) {
                if (each.value().equals(value)) {
                    return;
                }
            }
        }
    }
}
