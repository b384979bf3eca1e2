// Word count with Kafka Streams and processing.guarantee=exactly_once_v2: bootstrap, input, output, directory.

import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

public final class WordCount {
    public static void main(String[] args) {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "count-" + args[1]);
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        config.put(StreamsConfig.STATE_DIR_CONFIG, args[3]);
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "100");
        config.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), "10000");
        config.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "2000");
        config.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), "300");
        config.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        config.put("reconnect.backoff.max.ms", "200");

        AtomicLong counted = new AtomicLong();
        StreamsBuilder builder = new StreamsBuilder();
        // A line's words go through a topic of their own to whoever counts them; the counts are kept in memory, so that
        // who takes over reads them from their changelog.
        builder.stream(args[1], Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> java.util.List.of(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()).withCachingDisabled())
            .toStream()
            .mapValues((word, count) -> word + "=" + count)
            .peek((word, count) -> {
                if (counted.incrementAndGet() % 20 == 0) {
                    say("{\"did\": \"counted\", \"records\": 20}");
                }
            })
            .to(args[2], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((now, before) -> say("{\"did\": \"state\", \"state\": \"" + now + "\"}"));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
        streams.start();
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
