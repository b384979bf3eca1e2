// Apache Kafka's Java client behind the line protocol of compat_tests/remote.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class ClientProgram {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<Integer, GroupMember> MEMBERS = new ConcurrentHashMap<>();
    private static int lastMember = 0;

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            answer.set("id", request.get("id"));
            try {
                answer.set("result", handle(request));
            } catch (Exception error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                Errors known = Errors.forException(cause);
                cause.printStackTrace();
                answer.put("error", known == Errors.UNKNOWN_SERVER_ERROR ? cause.toString() : known.name());
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
        System.exit(0);
    }

    private static JsonNode handle(JsonNode request) throws Exception {
        switch (request.get("op").asText()) {
            case "produce":
                return produce(request);
            case "transact":
                return transact(request);
            case "consume":
                return consume(request);
            case "join":
                MEMBERS.put(++lastMember, new GroupMember(request));
                return JSON.getNodeFactory().numberNode(lastMember);
            case "partitions":
                return JSON.valueToTree(member(request).partitions());
            case "assignment":
                return JSON.valueToTree(member(request).assignment());
            case "records":
                return toJson(member(request).recordsFrom(request.get("from").asInt()));
            case "leave":
                member(request).leave();
                return JSON.nullNode();
            default:
                throw new IllegalArgumentException("unknown op " + request.get("op"));
        }
    }

    private static GroupMember member(JsonNode request) {
        return MEMBERS.get(request.get("member").asInt());
    }

    private static byte[] bytes(JsonNode node) {
        return node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    private static JsonNode produce(JsonNode request) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", request.get("bootstrap").asText());
        config.put("compression.type", request.get("compression").asText());
        config.put("enable.idempotence", request.get("idempotent").asText());
        config.put("acks", "all");
        config.put("linger.ms", "5");
        config.put("max.request.size", request.get("max_request_bytes").asText());
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        ArrayNode placed = JSON.createArrayNode();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            String topic = request.get("topic").asText();
            for (JsonNode row : request.get("records")) {
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                    topic, row.get(4).asInt(), row.get(3).asLong(), bytes(row.get(0)), bytes(row.get(1)));
                for (JsonNode header : row.get(2)) {
                    record.headers().add(header.get(0).asText(), bytes(header.get(1)));
                }
                sent.add(producer.send(record));
            }
            producer.flush();
            for (Future<RecordMetadata> one : sent) {
                RecordMetadata metadata = one.get(60, TimeUnit.SECONDS);
                placed.addArray().add(metadata.partition()).add(metadata.offset());
            }
        }
        return placed;
    }

    private static JsonNode transact(JsonNode request) {
        Properties config = new Properties();
        config.put("bootstrap.servers", request.get("bootstrap").asText());
        config.put("transactional.id", request.get("transactional_id").asText());
        config.put("linger.ms", "2");
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            for (JsonNode transaction : request.get("transactions")) {
                producer.beginTransaction();
                for (JsonNode row : transaction.get(1)) {
                    producer.send(new ProducerRecord<>(
                        request.get("topic").asText(), row.get(4).asInt(), row.get(3).asLong(), bytes(row.get(0)),
                        bytes(row.get(1))));
                }
                if (transaction.get(0).asBoolean()) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
        }
        return JSON.getNodeFactory().nullNode();
    }

    private static Properties consumerConfig(JsonNode request) {
        Properties config = new Properties();
        config.put("bootstrap.servers", request.get("bootstrap").asText());
        config.put("enable.auto.commit", "false");
        config.put("group.protocol", "classic");
        return config;
    }

    private static JsonNode consume(JsonNode request) {
        Properties config = consumerConfig(request);
        config.put("max.partition.fetch.bytes", String.valueOf(12 << 20));
        config.put("isolation.level", request.get("committed").asBoolean() ? "read_committed" : "read_uncommitted");
        List<ConsumerRecord<byte[], byte[]>> read = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> parts = new ArrayList<>();
            consumer.partitionsFor(request.get("topic").asText())
                .forEach(info -> parts.add(new TopicPartition(info.topic(), info.partition())));
            consumer.assign(parts);
            Map<TopicPartition, Long> ends = consumer.endOffsets(parts);
            Map<TopicPartition, Long> starts = new HashMap<>(consumer.beginningOffsets(parts));
            if (!request.get("from_time_ms").isNull()) {
                Map<TopicPartition, Long> times = new HashMap<>();
                parts.forEach(part -> times.put(part, request.get("from_time_ms").asLong()));
                for (Map.Entry<TopicPartition, OffsetAndTimestamp> found : consumer.offsetsForTimes(times).entrySet()) {
                    long end = ends.get(found.getKey());
                    starts.put(found.getKey(), found.getValue() == null ? end : found.getValue().offset());
                }
            }
            starts.forEach(consumer::seek);
            long deadline = System.currentTimeMillis() + 60_000;
            while (parts.stream().anyMatch(part -> consumer.position(part) < ends.get(part))) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("the partitions did not end");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    if (record.offset() < ends.get(new TopicPartition(record.topic(), record.partition()))) {
                        read.add(record);
                    }
                }
            }
        }
        return toJson(read);
    }

    private static JsonNode toJson(List<ConsumerRecord<byte[], byte[]>> records) {
        ArrayNode rows = JSON.createArrayNode();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            ArrayNode row = rows.addArray();
            row.add(text(record.key())).add(text(record.value()));
            ArrayNode headers = row.addArray();
            for (Header header : record.headers()) {
                headers.addArray().add(header.key()).add(text(header.value()));
            }
            row.add(record.timestamp()).add(record.partition()).add(record.offset());
        }
        return rows;
    }

    /** A group member that polls on a thread of its own; commits when partitions are taken away and when it leaves. */
    private static final class GroupMember implements ConsumerRebalanceListener {
        private final List<ConsumerRecord<byte[], byte[]>> read = new ArrayList<>();
        private final Set<TopicPartition> assigned = new HashSet<>();
        private final Consumer<byte[], byte[]> consumer;
        private final Thread thread;
        private volatile boolean leaving = false;
        private volatile RuntimeException failure = null;

        GroupMember(JsonNode request) {
            Properties config = consumerConfig(request);
            config.put("group.id", request.get("group").asText());
            config.put("auto.offset.reset", "earliest");
            config.put("metadata.max.age.ms", "1000");
            if (request.has("instance")) {
                config.put("group.instance.id", request.get("instance").asText());
            }
            if (request.path("protocol").asText().equals("consumer")) {
                config.put("group.protocol", "consumer");
                if (request.has("assignor")) {
                    config.put("group.remote.assignor", request.get("assignor").asText());
                }
            } else {
                config.put("heartbeat.interval.ms", "300");
                config.put("session.timeout.ms", request.get("session_timeout_ms").asText());
            }
            consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            if (request.has("pattern")) {
                consumer.subscribe(new SubscriptionPattern(request.get("pattern").asText()), this);
            } else {
                consumer.subscribe(List.of(request.get("topic").asText()), this);
            }
            thread = new Thread(this::run, "member");
            thread.setDaemon(true);
            thread.start();
        }

        private void run() {
            try (consumer) {
                while (!leaving) {
                    ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(100));
                    synchronized (this) {
                        polled.forEach(read::add);
                    }
                }
                consumer.commitSync();
            } catch (RuntimeException error) {
                failure = error;
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            try {
                consumer.commitSync(Duration.ofSeconds(5));
            } catch (TimeoutException error) {
                // Of a topic that was deleted nothing can be committed any more.
                error.printStackTrace();
            }
            synchronized (this) {
                assigned.removeAll(partitions);
            }
        }

        @Override
        public synchronized void onPartitionsLost(Collection<TopicPartition> partitions) {
            assigned.removeAll(partitions);
        }

        @Override
        public synchronized void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            assigned.addAll(partitions);
        }

        private void check() {
            if (failure != null) {
                throw failure;
            }
        }

        synchronized List<Integer> partitions() {
            check();
            return assigned.stream().map(TopicPartition::partition).sorted().toList();
        }

        synchronized List<List<Object>> assignment() {
            check();
            return assigned.stream().map(part -> List.<Object>of(part.topic(), part.partition())).toList();
        }

        synchronized List<ConsumerRecord<byte[], byte[]>> recordsFrom(int index) {
            check();
            return new ArrayList<>(read.subList(index, read.size()));
        }

        void leave() throws InterruptedException {
            leaving = true;
            thread.join(60_000);
            check();
        }
    }
}
