import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.testcontainers.containers.Network;
import org.testcontainers.kafka.ConfluentKafkaContainer;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

/** Testcontainers' modules as they are, with the image that the system property `image` names. */
@Timeout(240)
class StockModulesTest {
    private static final DockerImageName IMAGE = DockerImageName.parse(System.getProperty("image"));
    private static final Duration PATIENCE = Duration.ofSeconds(120);
    private static final List<String> VALUES = List.of("one", "two", "three");

    @Test
    void kafkaContainer() throws Exception {
        try (KafkaContainer kafka = new KafkaContainer(IMAGE.asCompatibleSubstituteFor("apache/kafka"))) {
            kafka.withStartupTimeout(PATIENCE).start();
            assertEquals(VALUES, throughTopic(kafka.getBootstrapServers()));
        }
    }

    /** A listener for other containers, under an alias of this one. */
    @Test
    void kafkaContainerWithListener() throws Exception {
        try (Network network = Network.newNetwork();
                KafkaContainer kafka = new KafkaContainer(IMAGE.asCompatibleSubstituteFor("apache/kafka"))) {
            kafka.withListener("broker:19092").withNetwork(network).withStartupTimeout(PATIENCE).start();
            assertEquals(VALUES, throughTopic(kafka.getBootstrapServers()));
            var asked = kafka.execInContainer(
                    "kafka-get-offsets", "--bootstrap-server", "broker:19092", "--topic", "orders");
            assertEquals("orders:0:3\n", asked.getStdout(), asked.getStderr());
        }
    }

    @Test
    void confluentKafkaContainer() throws Exception {
        try (ConfluentKafkaContainer kafka =
                new ConfluentKafkaContainer(IMAGE.asCompatibleSubstituteFor("confluentinc/cp-kafka"))) {
            kafka.withStartupTimeout(PATIENCE).start();
            assertEquals(VALUES, throughTopic(kafka.getBootstrapServers()));
        }
    }

    @Test
    @SuppressWarnings("deprecation")
    void legacyKafkaContainer() throws Exception {
        try (var kafka = new org.testcontainers.containers.KafkaContainer(
                IMAGE.asCompatibleSubstituteFor("confluentinc/cp-kafka"))) {
            kafka.withStartupTimeout(PATIENCE).start();
            assertEquals(VALUES, throughTopic(kafka.getBootstrapServers()));
        }
    }

    @Test
    @SuppressWarnings("deprecation")
    void legacyKafkaContainerWithKraft() throws Exception {
        try (var kafka = new org.testcontainers.containers.KafkaContainer(
                IMAGE.asCompatibleSubstituteFor("confluentinc/cp-kafka"))) {
            kafka.withKraft().withStartupTimeout(PATIENCE).start();
            assertEquals(VALUES, throughTopic(kafka.getBootstrapServers()));
        }
    }

    /** What a new group reads of a new topic into which the values were written. */
    private static List<String> throughTopic(String servers) throws Exception {
        Map<String, Object> producing = Map.of("bootstrap.servers", servers);
        try (var producer = new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer())) {
            for (String value : VALUES) {
                producer.send(new ProducerRecord<>("orders", value)).get();
            }
        }
        Map<String, Object> consuming =
                Map.of("bootstrap.servers", servers, "group.id", "readers", "auto.offset.reset", "earliest");
        List<String> found = new ArrayList<>();
        try (var consumer = new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders"));
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (found.size() < VALUES.size() && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    found.add(record.value());
                }
            }
        }
        return found;
    }
}
