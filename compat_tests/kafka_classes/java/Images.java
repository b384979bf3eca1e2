// Apache Kafka's MetadataBatchLoader, MetadataDelta and MetadataImage: batches of records in, images and snapshots out.

package pykbroker;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.token.delegation.TokenInformation;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.controller.PartitionChanges;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.loader.MetadataBatchLoader;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.metadata.BrokerRegistration;
import org.apache.kafka.metadata.ControllerRegistration;
import org.apache.kafka.metadata.ScramCredentialData;
import org.apache.kafka.metadata.VersionRange;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.server.common.ApiMessageAndVersion;

final class Images {
    private Images() {}

    // For each batch the images that it makes visible, and the records of a snapshot of the last one.
    static List<Object> apply(JsonNode batches) {
        List<Object> images = new ArrayList<>();
        MetadataImage[] last = {MetadataImage.EMPTY};
        MetadataBatchLoader loader = new MetadataBatchLoader(
            new LogContext(),
            Time.SYSTEM,
            (message, cause) -> {
                throw new IllegalStateException(message, cause);
            },
            (delta, image, manifest) -> {
                images.add(json(image));
                last[0] = image;
            },
            (type, name) -> true);
        List<Object> found = new ArrayList<>();
        for (JsonNode batch : batches) {
            images.clear();
            List<ApiMessageAndVersion> records = records(batch.get("records"));
            LeaderAndEpoch leader = LeaderAndEpoch.UNKNOWN;
            loader.loadBatch(
                Batch.data(batch.get("base").asLong(), batch.get("epoch").asInt(), batch.get("timestamp").asLong(), 1, records),
                leader);
            loader.maybeFlushBatches(leader, true);
            found.add(Map.of("images", List.copyOf(images), "snapshot", written(last[0])));
        }
        return found;
    }

    // The image after a snapshot has come on top of the image of `before`.
    static Map<String, Object> snapshot(JsonNode before, JsonNode after) {
        MetadataProvenance provenance = new MetadataProvenance(7L, 3, 5L, true);
        MetadataDelta first = new MetadataDelta.Builder().build();
        records(before).forEach(each -> first.replay(each.message()));
        MetadataDelta second = new MetadataDelta.Builder().setImage(first.apply(provenance)).build();
        records(after).forEach(each -> second.replay(each.message()));
        second.finishSnapshot();
        return json(second.apply(provenance));
    }

    private static List<ApiMessageAndVersion> records(JsonNode values) {
        List<ApiMessageAndVersion> found = new ArrayList<>(values.size());
        for (JsonNode value : values) found.add(Values.record(value.asText()));
        return found;
    }

    private static List<String> written(MetadataImage image) {
        if (image.features().metadataVersion().isEmpty()) return List.of();
        RecordListWriter writer = new RecordListWriter();
        image.write(writer, new ImageWriterOptions.Builder(image).setLossHandler(loss -> {}).build());
        return writer.records().stream().map(Values::hex).toList();
    }

    private static Map<String, Object> json(MetadataImage image) {
        Map<String, Object> found = new TreeMap<>();
        found.put("offset", image.provenance().lastContainedOffset());
        found.put("epoch", image.provenance().lastContainedEpoch());
        found.put("timestamp_ms", image.provenance().lastContainedLogTimeMs());
        found.put("metadata_version", image.features().metadataVersion().map(each -> each.featureLevel()).orElse((short) 0));
        found.put("finalized", image.features().finalizedVersions());
        Map<String, Object> brokers = new TreeMap<>();
        image.cluster().brokers().forEach((id, broker) -> brokers.put(id.toString(), broker(broker)));
        found.put("brokers", brokers);
        Map<String, Object> controllers = new TreeMap<>();
        image.cluster().controllers().forEach((id, each) -> controllers.put(id.toString(), controller(each)));
        found.put("controllers", controllers);
        Map<String, Object> topics = new TreeMap<>();
        image.topics().topicsById().forEach((id, topic) -> {
            Map<String, Object> partitions = new TreeMap<>();
            topic.partitions().forEach((index, each) -> partitions.put(index.toString(), PartitionChanges.fields(each)));
            topics.put(id.toString(), List.of(topic.name(), partitions));
        });
        found.put("topics", topics);
        Map<String, Object> names = new TreeMap<>();
        image.topics().topicsByName().forEach((name, topic) -> names.put(name, topic.id().toString()));
        found.put("topic_names", names);
        Map<String, Object> configs = new TreeMap<>();
        image.configs().resourceData().forEach((resource, values) -> configs.put(text(resource), values.data()));
        found.put("configs", configs);
        Map<String, Object> quotas = new TreeMap<>();
        image.clientQuotas().entities().forEach((entity, each) ->
            quotas.put(new TreeMap<>(entity.entries()).toString(), each.quotas()));
        found.put("client_quotas", quotas);
        found.put("producer_ids_next", image.producerIds().nextProducerId());
        Map<String, Object> acls = new TreeMap<>();
        image.acls().acls().forEach((id, acl) -> acls.put(id.toString(), acl(acl)));
        found.put("acls", acls);
        Map<String, Object> scram = new TreeMap<>();
        image.scram().mechanisms().forEach((mechanism, users) ->
            users.forEach((name, keys) -> scram.put(mechanism.type() + " " + name, keys(keys))));
        found.put("scram", scram);
        Map<String, Object> tokens = new TreeMap<>();
        image.delegationTokens().tokens().forEach((id, token) -> tokens.put(id, token(token.tokenInformation())));
        found.put("delegation_tokens", tokens);
        return found;
    }

    private static String text(ConfigResource resource) {
        return resource.type().id() + " " + resource.name();
    }

    private static Map<String, Object> endpoints(Map<String, Endpoint> listeners) {
        Map<String, Object> found = new TreeMap<>();
        listeners.forEach((name, each) -> found.put(name, List.of(each.host(), each.port(), each.securityProtocol().id)));
        return found;
    }

    private static Map<String, Object> features(Map<String, VersionRange> features) {
        Map<String, Object> found = new TreeMap<>();
        features.forEach((name, range) -> found.put(name, List.of(range.min(), range.max())));
        return found;
    }

    private static List<String> sorted(List<Uuid> directories) {
        return directories == null ? List.of() : Values.texts(directories).stream().sorted().toList();
    }

    private static List<Object> broker(BrokerRegistration broker) {
        return List.of(
            broker.epoch(),
            broker.incarnationId().toString(),
            endpoints(broker.listeners()),
            broker.rack().orElse("(none)"),
            broker.fenced(),
            broker.inControlledShutdown(),
            sorted(broker.directories()),
            sorted(broker.cordonedDirectories()),
            features(broker.supportedFeatures()));
    }

    private static List<Object> controller(ControllerRegistration controller) {
        return List.of(
            controller.incarnationId().toString(),
            endpoints(controller.listeners()),
            features(controller.supportedFeatures()),
            controller.zkMigrationReady());
    }

    private static List<Object> acl(StandardAcl acl) {
        return List.of(
            acl.resourceType().code(),
            acl.resourceName(),
            acl.patternType().code(),
            acl.principal(),
            acl.host(),
            acl.operation().code(),
            acl.permissionType().code());
    }

    private static List<Object> keys(ScramCredentialData keys) {
        Base64.Encoder base64 = Base64.getEncoder();
        return List.of(
            base64.encodeToString(keys.salt()),
            base64.encodeToString(keys.storedKey()),
            base64.encodeToString(keys.serverKey()),
            keys.iterations());
    }

    private static List<Object> token(TokenInformation token) {
        return List.of(
            token.ownerAsString(),
            token.tokenRequesterAsString(),
            token.renewers().stream().map(KafkaPrincipal::toString).sorted().toList(),
            token.issueTimestamp(),
            token.maxTimestamp(),
            token.expiryTimestamp());
    }
}
