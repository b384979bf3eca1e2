// Consume, transform, produce with the Java client: a copier as compat_tests/exactly_once/copiers/task.py describes it.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class CopyProgram {
    private static final Random RANDOM = new Random();

    public static void main(String[] args) throws Exception {
        JsonNode task = new ObjectMapper().readTree(args[0]);
        try (KafkaProducer<String, String> producer = producer(task);
                KafkaConsumer<String, String> consumer = consumer(task)) {
            producer.initTransactions();
            String source = task.get("source").asText();
            if (task.get("protocol").asText().equals("assign")) {
                List<TopicPartition> parts = new ArrayList<>();
                task.get("partitions").forEach(number -> parts.add(new TopicPartition(source, number.asInt())));
                consumer.assign(parts);
            } else {
                consumer.subscribe(List.of(source), new Says());
            }
            while (true) {
                ConsumerRecords<String, String> polled = consumer.poll(Duration.ofMillis(50));
                if (!polled.isEmpty()) {
                    copy(task, producer, consumer, polled);
                }
            }
        }
    }

    private static KafkaProducer<String, String> producer(JsonNode task) {
        Properties config = new Properties();
        config.put("bootstrap.servers", task.get("bootstrap").asText());
        config.put("transactional.id", task.get("transactional_id").asText());
        config.put("transaction.timeout.ms", task.get("transaction_timeout_ms").asText());
        config.put("reconnect.backoff.max.ms", "200");
        config.put("linger.ms", "0");
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(JsonNode task) {
        Properties config = new Properties();
        config.put("bootstrap.servers", task.get("bootstrap").asText());
        config.put("group.id", task.get("group").asText());
        config.put("isolation.level", "read_committed");
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        config.put("max.poll.records", task.get("at_most").asText());
        config.put("fetch.max.wait.ms", "50");
        config.put("reconnect.backoff.max.ms", "200");
        if (task.get("protocol").asText().equals("consumer")) {
            config.put("group.protocol", "consumer");
        } else {
            config.put("group.protocol", "classic");
            config.put("session.timeout.ms", task.get("session_timeout_ms").asText());
            config.put("heartbeat.interval.ms", "200");
        }
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    private static void copy(
            JsonNode task,
            KafkaProducer<String, String> producer,
            KafkaConsumer<String, String> consumer,
            ConsumerRecords<String, String> polled) {
        Map<TopicPartition, Long> first = new HashMap<>();
        Map<TopicPartition, OffsetAndMetadata> after = new HashMap<>();
        producer.beginTransaction();
        try {
            for (ConsumerRecord<String, String> record : polled) {
                TopicPartition part = new TopicPartition(record.topic(), record.partition());
                first.putIfAbsent(part, record.offset());
                after.put(part, new OffsetAndMetadata(record.offset() + 1));
                producer.send(new ProducerRecord<>(
                    task.get("target").asText(), record.partition(), null, record.value() + "!"));
            }
            producer.sendOffsetsToTransaction(after, consumer.groupMetadata());
            if (RANDOM.nextInt(4) != 0) {
                producer.commitTransaction();
                say("{\"did\": \"committed\", \"records\": " + polled.count() + "}");
                return;
            }
        } catch (ProducerFencedException | InvalidProducerEpochException fatal) {
            throw fatal;
        } catch (KafkaException error) {
            say("{\"did\": \"failed\", \"error\": \"" + error.getClass().getSimpleName() + "\"}");
        }
        producer.abortTransaction();
        say("{\"did\": \"aborted\"}");
        first.keySet().retainAll(consumer.assignment());
        first.forEach(consumer::seek);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static final class Says implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> parts) {
            say("{\"did\": \"assigned\", \"partitions\": ["
                + parts.stream().map(part -> String.valueOf(part.partition())).collect(Collectors.joining(", ")) + "]}");
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> parts) {}
    }
}
