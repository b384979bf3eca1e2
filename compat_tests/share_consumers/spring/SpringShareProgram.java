import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.springframework.kafka.core.DefaultShareConsumerFactory;
import org.springframework.kafka.listener.AcknowledgingShareConsumerAwareMessageListener;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.ShareKafkaMessageListenerContainer;

/**
 * Consumes with Spring Kafka's container of share consumers, with the arguments and the output of ShareProgram.java.
 *
 * The mode is "implicit", "explicit", "odd" or "reject". The container has two consumers.
 */
public class SpringShareProgram {
    public static void main(String[] args) throws InterruptedException {
        String mode = args[4];
        CountDownLatch wanted = new CountDownLatch(Integer.parseInt(args[3]));
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
            wanted.countDown();
        };
        properties.setMessageListener(listener);
        ShareKafkaMessageListenerContainer<String, String> container =
                new ShareKafkaMessageListenerContainer<>(new DefaultShareConsumerFactory<>(config), properties);
        container.setConcurrency(2);
        container.start();
        boolean all = wanted.await(60, TimeUnit.SECONDS);
        container.stop();
        System.exit(all ? 0 : 1);
    }
}
