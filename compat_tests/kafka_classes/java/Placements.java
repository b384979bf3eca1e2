// Apache Kafka's StripedReplicaPlacer, whose draws come from a java.util.Random with the seed of the request.

package pykbroker;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.metadata.placement.ClusterDescriber;
import org.apache.kafka.metadata.placement.PlacementSpec;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.metadata.placement.UsableBroker;

final class Placements {
    private Placements() {}

    // For each cluster the replicas of each partition, or null where the replication factor is refused.
    static List<Object> apply(JsonNode clusters) {
        List<Object> found = new ArrayList<>();
        for (JsonNode cluster : clusters) found.add(place(cluster));
        return found;
    }

    private static List<List<Integer>> place(JsonNode cluster) {
        List<UsableBroker> brokers = new ArrayList<>();
        for (JsonNode broker : cluster.get("brokers")) {
            Optional<String> rack = broker.get(1).isNull() ? Optional.empty() : Optional.of(broker.get(1).asText());
            brokers.add(new UsableBroker(broker.get(0).asInt(), rack, broker.get(2).asBoolean()));
        }
        PlacementSpec wanted =
            new PlacementSpec(0, cluster.get("partitions").asInt(), (short) cluster.get("factor").asInt());
        try {
            return new StripedReplicaPlacer(new Random(cluster.get("seed").asLong()))
                .place(wanted, new Brokers(brokers))
                .assignments().stream().map(each -> each.replicas()).toList();
        } catch (InvalidReplicationFactorException refused) {
            return null;
        }
    }

    private record Brokers(List<UsableBroker> brokers) implements ClusterDescriber {
        @Override
        public Iterator<UsableBroker> usableBrokers() {
            return brokers.iterator();
        }

        @Override
        public Uuid defaultDir(int brokerId) {
            return new Uuid(brokerId, 1L << 40);
        }
    }
}
