// Apache Kafka's PartitionChangeBuilder, for one change after another. In its package, because what begins a reassignment
// is visible only there.

package org.apache.kafka.controller;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.metadata.Replicas;
import org.apache.kafka.metadata.placement.PartitionAssignment;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;
import pykbroker.Values;

public final class PartitionChanges {
    private PartitionChanges() {}

    // For each step the record in hex and the partition after it, or null where nothing changes.
    public static List<Object> apply(JsonNode steps) {
        List<Object> found = new ArrayList<>(steps.size());
        for (JsonNode step : steps) found.add(change(step));
        return found;
    }

    private static Map<String, Object> change(JsonNode step) {
        PartitionRegistration partition = partition(step.get("partition"));
        Set<Integer> acceptable = new HashSet<>(Values.ints(step.get("acceptable")));
        PartitionChangeBuilder builder = new PartitionChangeBuilder(
            partition,
            Uuid.fromString(step.get("topic_id").asText()),
            step.get("index").asInt(),
            acceptable::contains,
            MetadataVersion.fromFeatureLevel((short) step.get("metadata_version").asInt()),
            step.get("min_isr").asInt(),
            step.get("elr_enabled").asBoolean());
        builder.setDefaultDirProvider(PartitionChanges::defaultDirectory);
        builder.setElection(PartitionChangeBuilder.Election.valueOf(step.get("election").asText()));
        builder.setUncleanShutdownReplicas(Values.ints(step.get("unclean_shutdown")));
        if (step.has("isr")) builder.setTargetIsr(Values.ints(step.get("isr")));
        if (step.has("replicas")) builder.setTargetReplicas(Values.ints(step.get("replicas")));
        if (step.has("removing")) builder.setTargetRemoving(Values.ints(step.get("removing")));
        if (step.has("adding")) builder.setTargetAdding(Values.ints(step.get("adding")));
        if (step.has("recovery_state")) {
            builder.setTargetLeaderRecoveryState(LeaderRecoveryState.of((byte) step.get("recovery_state").asInt()));
        }
        if (step.has("directories")) {
            step.get("directories").properties().forEach(each -> builder.setDirectory(
                Integer.parseInt(each.getKey()), Uuid.fromString(each.getValue().asText())));
        }
        if (step.has("wanted")) begin(builder, partition, Values.ints(step.get("wanted")));
        Optional<ApiMessageAndVersion> record = builder.build();
        if (record.isEmpty()) return null;
        Map<String, Object> found = new HashMap<>();
        found.put("record", Values.hex(record.get()));
        found.put("after", fields(partition.merge((PartitionChangeRecord) record.get().message())));
        return found;
    }

    // As the replicas of a reassignment that an administrator asks for.
    private static void begin(PartitionChangeBuilder builder, PartitionRegistration partition, List<Integer> wanted) {
        PartitionReassignmentReplicas replicas = new PartitionReassignmentReplicas(
            new PartitionAssignment(Replicas.toList(partition.replicas), partition::directory),
            new PartitionAssignment(wanted, PartitionChanges::defaultDirectory));
        builder.setTargetReplicas(replicas.replicas());
        if (!replicas.removing().isEmpty()) builder.setTargetRemoving(replicas.removing());
        if (!replicas.adding().isEmpty()) builder.setTargetAdding(replicas.adding());
    }

    private static Uuid defaultDirectory(int broker) {
        return new Uuid(broker, 1L << 40);
    }

    private static PartitionRegistration partition(JsonNode fields) {
        return new PartitionRegistration.Builder()
            .setReplicas(Values.intArray(fields.get(0)))
            .setDirectories(Values.uuids(fields.get(1)))
            .setIsr(Values.intArray(fields.get(2)))
            .setElr(Values.intArray(fields.get(3)))
            .setLastKnownElr(Values.intArray(fields.get(4)))
            .setRemovingReplicas(Values.intArray(fields.get(5)))
            .setAddingReplicas(Values.intArray(fields.get(6)))
            .setLeader(fields.get(7).asInt())
            .setLeaderRecoveryState(LeaderRecoveryState.of((byte) fields.get(8).asInt()))
            .setLeaderEpoch(fields.get(9).asInt())
            .setPartitionEpoch(fields.get(10).asInt())
            .build();
    }

    // In the order of the fields of PartitionImage (pykbroker/metadata/image.py).
    public static List<Object> fields(PartitionRegistration partition) {
        return List.of(
            partition.replicas,
            Values.texts(List.of(partition.directories)),
            partition.isr,
            partition.elr,
            partition.lastKnownElr,
            partition.removingReplicas,
            partition.addingReplicas,
            partition.leader,
            partition.leaderRecoveryState.value(),
            partition.leaderEpoch,
            partition.partitionEpoch);
    }
}
