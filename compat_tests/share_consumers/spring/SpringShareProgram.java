import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.springframework.kafka.core.DefaultShareConsumerFactory;
import org.springframework.kafka.listener.AcknowledgingShareConsumerAwareMessageListener;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.ShareKafkaMessageListenerContainer;

/**
 * Consumes with Spring Kafka's container of share consumers, with the arguments and the output of ShareProgram.java.
 *
 * The mode is "implicit", "explicit", "odd" or "reject". The container has two consumers. A consumer queues what its
 * listener acknowledges until it polls again. A container that is stopped before that poll drops the queue. So the
 * program stops it only when the broker has answered all acknowledgements.
 */
public class SpringShareProgram {
    public static void main(String[] args) throws InterruptedException {
        String mode = args[4];
        CountDownLatch unanswered = new CountDownLatch(Integer.parseInt(args[3]));
        Map<String, Object> config = Map.of(
                "bootstrap.servers", args[0],
                "group.id", args[2],
                "share.acknowledgement.mode", mode.equals("implicit") ? "implicit" : "explicit",
                "key.deserializer", StringDeserializer.class.getName(),
                "value.deserializer", StringDeserializer.class.getName());
        ContainerProperties properties = new ContainerProperties(args[1]);
        properties.setGroupId(args[2]);
        properties.setExplicitShareAcknowledgment(!mode.equals("implicit"));
        AcknowledgingShareConsumerAwareMessageListener<String, String> listener = (record, acknowledgment, consumer) -> {
            short count = record.deliveryCount().orElse((short) -1);
            synchronized (System.out) {
                System.out.println(record.partition() + " " + record.value() + " " + count);
            }
            if (acknowledgment != null) {
                boolean isOdd = Integer.parseInt(record.value()) % 2 == 1;
                if (mode.equals("odd") && count == 1 && isOdd) {
                    acknowledgment.release();
                } else if (mode.equals("reject") && isOdd) {
                    acknowledgment.reject();
                } else {
                    acknowledgment.acknowledge();
                }
            }
        };
        properties.setMessageListener(listener);
        ShareKafkaMessageListenerContainer<String, String> container =
                new ShareKafkaMessageListenerContainer<>(new CountingFactory(config, unanswered), properties);
        container.setConcurrency(2);
        container.start();
        boolean all = unanswered.await(50, TimeUnit.SECONDS);
        if (!all) {
            System.err.println(unanswered.getCount() + " acknowledgements have no answer");
        }
        container.stop();
        System.exit(all ? 0 : 1);
    }

    /** Makes consumers that count down for each acknowledgement that the broker has answered without an error. */
    private static class CountingFactory extends DefaultShareConsumerFactory<String, String> {
        private final CountDownLatch unanswered;

        CountingFactory(Map<String, Object> config, CountDownLatch unanswered) {
            super(config);
            this.unanswered = unanswered;
        }

        @Override
        public ShareConsumer<String, String> createShareConsumer(String groupId, String clientId) {
            ShareConsumer<String, String> consumer = super.createShareConsumer(groupId, clientId);
            consumer.setAcknowledgementCommitCallback((offsets, error) -> {
                if (error != null) {
                    System.err.println("The broker refuses acknowledgements of " + offsets + ": " + error);
                    return;
                }
                offsets.values().forEach(answered -> answered.forEach(offset -> unanswered.countDown()));
            });
            return consumer;
        }
    }
}
