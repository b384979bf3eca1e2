// Transactional producers with their defaults, each with many short transactions one after the other; what went wrong
// is counted by class. Run by transactions.py, which says what a task is and what must hold of the outcome.
//
// Arguments: bootstrap servers, topic, its partitions, producers, transactions of each (0: until the time is over),
// records of each transaction, seconds (0: no end but that of the transactions), prefix of the transactional ids.
// Prints one line of JSON.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringSerializer;

public final class ShortTransactions {
    private static final Map<String, Integer> ERRORS = new TreeMap<>();
    private static final Map<String, Integer> FATAL = new TreeMap<>();
    private static final List<String> COMMITTED = new ArrayList<>();
    private static final List<String> IN_DOUBT = new ArrayList<>();

    private final String bootstrap;
    private final String topic;
    private final int partitions;
    private final int transactions;
    private final int records;
    private final long until;
    private final String id;

    private ShortTransactions(String[] args, int number, long until) {
        this.bootstrap = args[0];
        this.topic = args[1];
        this.partitions = Integer.parseInt(args[2]);
        this.transactions = Integer.parseInt(args[4]);
        this.records = Integer.parseInt(args[5]);
        this.until = until;
        this.id = args[7] + "-" + number;
    }

    public static void main(String[] args) throws Exception {
        int producers = Integer.parseInt(args[3]);
        long began = System.nanoTime();
        long seconds = Long.parseLong(args[6]);
        long until = seconds == 0 ? Long.MAX_VALUE : began + seconds * 1_000_000_000L;
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < producers; number++) {
            ShortTransactions one = new ShortTransactions(args, number, until);
            threads.add(new Thread(one::run, one.id));
        }
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        Map<String, Object> outcome = new HashMap<>();
        outcome.put("committed", COMMITTED);
        outcome.put("in_doubt", IN_DOUBT);
        outcome.put("errors", ERRORS);
        outcome.put("fatal", FATAL);
        outcome.put("seconds", (System.nanoTime() - began) / 1e9);
        System.out.println(new ObjectMapper().writeValueAsString(outcome));
    }

    private static void count(Map<String, Integer> counts, Throwable error) {
        synchronized (ERRORS) {
            counts.merge(error.getClass().getSimpleName(), 1, Integer::sum);
        }
        if (Boolean.getBoolean("tell")) {
            System.err.println(System.currentTimeMillis() + " " + Thread.currentThread().getName() + " " + error);
        }
    }

    private void run() {
        int done = 0;
        while (wants(done)) {
            try (KafkaProducer<String, String> producer = producer()) {
                initialize(producer);
                while (wants(done)) {
                    done++;
                    transaction(producer, id + "-" + done);
                }
            } catch (KafkaException error) {
                // The end of this producer; the next one goes on.
                count(FATAL, error);
            }
        }
    }

    private boolean wants(int done) {
        return (transactions == 0 || done < transactions) && System.nanoTime() < until;
    }

    private KafkaProducer<String, String> producer() {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", id);
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    private static void initialize(KafkaProducer<String, String> producer) {
        while (true) {
            try {
                producer.initTransactions();
                return;
            } catch (TimeoutException error) {
                count(ERRORS, error);
            }
        }
    }

    private void transaction(KafkaProducer<String, String> producer, String name) {
        producer.beginTransaction();
        try {
            for (int number = 0; number < records; number++) {
                String value = name + "-" + number;
                producer.send(
                    new ProducerRecord<>(topic, number % partitions, null, value),
                    (metadata, error) -> {
                        if (error != null) {
                            count(ERRORS, error);
                        }
                    });
            }
            producer.flush();
            commit(producer);
            add(COMMITTED, name);
        } catch (KafkaException error) {
            count(ERRORS, error);
            abort(producer, name);
        }
    }

    private static void commit(KafkaProducer<String, String> producer) {
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException error) {
                count(ERRORS, error);
            }
        }
    }

    // What cannot be aborted may have been committed, and ends the producer.
    private static void abort(KafkaProducer<String, String> producer, String name) {
        while (true) {
            try {
                producer.abortTransaction();
                return;
            } catch (TimeoutException error) {
                count(ERRORS, error);
            } catch (KafkaException error) {
                add(IN_DOUBT, name);
                throw error;
            }
        }
    }

    private static void add(List<String> names, String name) {
        synchronized (ERRORS) {
            names.add(name);
        }
    }
}
