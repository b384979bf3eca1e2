"""Builds the next image from an image and the records after it, and records the differences.

`replay` is the only mutator of replicated metadata, in the controller and in brokers alike. Not responsible for
transactions of the metadata log (replay.py) nor for the source of records.

A record that contradicts the image (an unknown topic, a stale broker epoch) raises MetadataReplayError. Then the log
and the code disagree, and to go on would only spread the error.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from pykbroker.metadata import image as im
from pykbroker.metadata.features import KRAFT_VERSION
from pykbroker.metadata.image import (
    BrokerImage,
    ControllerImage,
    Endpoint,
    FeaturesImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
    TopicsImage,
    VersionRange,
)
from pykbroker.security.acl import Acl
from pykbroker.security.stored_keys import StoredKeys
from pykbroker_wire.stored.metadata import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)

NO_LEADER_CHANGE = -2
NO_RECOVERY_STATE_CHANGE = -1


class MetadataReplayError(Exception):
    """The metadata log has a record that cannot follow those before it."""


@dataclass(slots=True)
class TopicDelta:
    """One topic that is new or has changed partitions. `before` is None for a new topic."""

    name: str
    id: bytes
    before: TopicImage | None
    #: the new state of each partition that was added or changed
    partitions: dict[int, PartitionImage] = field(default_factory=dict)
    #: True if `partitions` has all partitions, so that none of `before` stays
    whole: bool = False

    @property
    def created(self) -> bool:
        return self.before is None

    def partition_before(self, index: int) -> PartitionImage | None:
        return None if self.before is None else self.before.partitions.get(index)

    def apply(self) -> TopicImage:
        if self.before is None or self.whole:
            return TopicImage(self.name, self.id, self.partitions)
        return TopicImage(self.name, self.id, {**self.before.partitions, **self.partitions})


@lru_cache(maxsize=4096)
def shared_image(image: PartitionImage) -> PartitionImage:
    """Return one object for equal partitions, because an object takes 0.5 KB. Most of 10,000 partitions on a few
    brokers are equal."""
    return image


def merge_partition(before: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """Return the partition after a change. A change of leader begins a new leader epoch, even if it names the same
    leader."""
    replicas = before.replicas if record.replicas is None else tuple(record.replicas)
    directories = before.directories if record.directories is None else tuple(record.directories)
    if len(directories) != len(replicas):
        directories = (im.DIRECTORY_MIGRATING,) * len(replicas)
    elected = record.leader != NO_LEADER_CHANGE
    recovery = record.leader_recovery_state
    return shared_image(
        PartitionImage(
            replicas,
            directories,
            before.isr if record.isr is None else tuple(record.isr),
            before.elr if record.eligible_leader_replicas is None else tuple(record.eligible_leader_replicas),
            before.last_known_elr if record.last_known_elr is None else tuple(record.last_known_elr),
            before.removing_replicas if record.removing_replicas is None else tuple(record.removing_replicas),
            before.adding_replicas if record.adding_replicas is None else tuple(record.adding_replicas),
            record.leader if elected else before.leader,
            before.leader_recovery_state if recovery == NO_RECOVERY_STATE_CHANGE else recovery,
            before.leader_epoch + 1 if elected else before.leader_epoch,
            before.partition_epoch + 1,
        )
    )


class MetadataDelta:
    """The changes since `image`. Each `*_changed` mapping has the same keys as the image's mapping, and None for
    entries that were removed."""

    def __init__(self, image: MetadataImage, *, whole: bool = False) -> None:
        """`whole`: True if the records will be those of a snapshot, which also name everything that `image` has
        already."""
        self.image = image
        self._whole = whole
        self.topics_changed: dict[bytes, TopicDelta] = {}
        #: topics of `image` that were deleted
        self.topics_deleted: dict[bytes, TopicImage] = {}
        self.brokers_changed: dict[int, BrokerImage | None] = {}
        self.controllers_changed: dict[int, ControllerImage | None] = {}
        #: (resource type, name) -> key -> new value, None if it was removed
        self.configs_changed: dict[tuple[int, str], dict[str, str | None]] = {}
        self.features_changed: dict[str, int | None] = {}
        self.client_quotas_changed: dict[im.QuotaEntity, dict[str, float | None]] = {}
        self.producer_ids_next: int | None = None
        self.acls_changed: dict[bytes, Acl | None] = {}
        self.scram_changed: dict[tuple[int, str], StoredKeys | None] = {}
        self.delegation_tokens_changed: dict[str, im.DelegationTokenImage | None] = {}
        self._names: dict[str, bytes | None] = {}

    @classmethod
    def of_everything(cls, image: MetadataImage) -> MetadataDelta:
        """Return the delta from the empty image to this one, for a publisher that is added late."""
        delta = cls(im.EMPTY_IMAGE)
        for topic in image.topics.by_id.values():
            delta.topics_changed[topic.id] = TopicDelta(topic.name, topic.id, None, dict(topic.partitions))
            delta._names[topic.name] = topic.id
        delta.brokers_changed.update(image.brokers)
        delta.controllers_changed.update(image.controllers)
        delta.configs_changed.update((resource, dict(values)) for resource, values in image.configs.by_resource.items())
        delta.features_changed.update(image.features.all())
        delta.client_quotas_changed.update((entity, dict(quotas)) for entity, quotas in image.client_quotas.items())
        if image.producer_ids_next >= 0:
            delta.producer_ids_next = image.producer_ids_next
        delta.acls_changed.update(image.acls)
        delta.scram_changed.update(image.scram)
        delta.delegation_tokens_changed.update(image.delegation_tokens)
        return delta

    @classmethod
    def between(cls, old: MetadataImage, new: MetadataImage) -> MetadataDelta:
        """Return the delta from the image `old` to `new`, for a publisher that has not seen the changes in between."""
        delta = cls.of_everything(new)
        delta.image = old
        for topic_id, topic in new.topics.by_id.items():
            before = old.topics.by_id.get(topic_id)
            if before is topic:
                del delta.topics_changed[topic_id]
            elif before is not None:
                delta.topics_changed[topic_id].before = before
                delta.topics_changed[topic_id].whole = True
        delta.replace_everything(kept=new.topics.by_id)
        return delta

    @property
    def empty(self) -> bool:
        """True if no record changed anything that an image holds."""
        return not (
            self.topics_changed
            or self.topics_deleted
            or self.brokers_changed
            or self.controllers_changed
            or self.configs_changed
            or self.features_changed
            or self.client_quotas_changed
            or self.producer_ids_next is not None
            or self.acls_changed
            or self.scram_changed
            or self.delegation_tokens_changed
        )

    def replay(self, record: Any) -> None:
        """Replay one record. An unknown type is a bug, because a newer metadata.version was accepted."""
        handler = _REPLAY.get(type(record))
        if handler is None:
            raise MetadataReplayError(f"no way to replay {type(record).__name__}")
        handler(self, record)

    def replace_everything(self, kept: Container[bytes] = ()) -> None:
        """Mark everything that the records did not set again as removed. Call it after `replay` of a whole snapshot
        onto a non-empty image. `kept`: ids of topics that stay as they are."""
        old = self.image
        for topic_id, topic in old.topics.by_id.items():
            if topic_id not in self.topics_changed and topic_id not in kept:
                self.topics_deleted[topic_id] = topic
        for broker_id in old.brokers:
            self.brokers_changed.setdefault(broker_id, None)
        for controller_id in old.controllers:
            self.controllers_changed.setdefault(controller_id, None)
        for resource, values in old.configs.by_resource.items():
            changed = self.configs_changed.setdefault(resource, {})
            for key in values:
                changed.setdefault(key, None)
        for feature in old.features.all():
            self.features_changed.setdefault(feature, None)
        for entity, quotas in old.client_quotas.items():
            changed_quotas = self.client_quotas_changed.setdefault(entity, {})
            for key in quotas:
                changed_quotas.setdefault(key, None)
        for acl_id in old.acls:
            self.acls_changed.setdefault(acl_id, None)
        for user in old.scram:
            self.scram_changed.setdefault(user, None)
        for token in old.delegation_tokens:
            self.delegation_tokens_changed.setdefault(token, None)
        if self.producer_ids_next is None and old.producer_ids_next >= 0:
            self.producer_ids_next = -1

    def apply(self, offset: int, epoch: int, timestamp_ms: int = -1) -> MetadataImage:
        """Return the image after all replayed records. It shares the unchanged parts with the old one."""
        old = self.image
        return MetadataImage(
            offset=offset,
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            features=self._apply_features(),
            brokers=_merged(old.brokers, self.brokers_changed),
            controllers=_merged(old.controllers, self.controllers_changed),
            topics=self._apply_topics(),
            configs=self._apply_configs(),
            client_quotas=_merged_maps(old.client_quotas, self.client_quotas_changed),
            producer_ids_next=old.producer_ids_next if self.producer_ids_next is None else self.producer_ids_next,
            acls=_merged(old.acls, self.acls_changed),
            scram=_merged(old.scram, self.scram_changed),
            delegation_tokens=_merged(old.delegation_tokens, self.delegation_tokens_changed),
        )

    # The state in the middle of replaying.

    def topic_id(self, name: str) -> bytes | None:
        if name in self._names:
            return self._names[name]
        topic = self.image.topics.by_name.get(name)
        return None if topic is None else topic.id

    def broker(self, broker_id: int) -> BrokerImage | None:
        if broker_id in self.brokers_changed:
            return self.brokers_changed[broker_id]
        return self.image.brokers.get(broker_id)

    # Applying.

    def _apply_topics(self) -> TopicsImage:
        old = self.image.topics
        if not self.topics_changed and not self.topics_deleted:
            return old
        by_id = dict(old.by_id)
        by_name = dict(old.by_name)
        for topic_id, topic in self.topics_deleted.items():
            del by_id[topic_id]
            del by_name[topic.name]
        for topic_id, change in self.topics_changed.items():
            by_id[topic_id] = by_name[change.name] = change.apply()
        return TopicsImage(by_name, by_id)

    def _apply_configs(self) -> im.ConfigsImage:
        if not self.configs_changed:
            return self.image.configs
        return im.ConfigsImage(_merged_maps(self.image.configs.by_resource, self.configs_changed))

    def _apply_features(self) -> FeaturesImage:
        if not self.features_changed:
            return self.image.features
        changes = dict(self.features_changed)
        old = self.image.features
        metadata_version = changes.pop("metadata.version", old.metadata_version)
        return FeaturesImage(metadata_version or 0, _merged(old.finalized, changes))

    # Replaying, one method per record type.

    def _topic(self, record: TopicRecord) -> None:
        before = None
        if self._whole:
            before = self.image.topics.by_id.get(record.topic_id)
        elif self.topic_id(record.name) is not None:
            raise MetadataReplayError(f"topic {record.name} exists already")
        self._names[record.name] = record.topic_id
        self.topics_changed[record.topic_id] = TopicDelta(record.name, record.topic_id, before, whole=self._whole)

    def _topic_delta(self, topic_id: bytes) -> TopicDelta:
        change = self.topics_changed.get(topic_id)
        if change is None:
            before = self.image.topics.by_id.get(topic_id)
            if before is None or topic_id in self.topics_deleted:
                raise MetadataReplayError(f"no topic with id {topic_id.hex()}")
            change = self.topics_changed[topic_id] = TopicDelta(before.name, topic_id, before)
        return change

    def _partition(self, record: PartitionRecord) -> None:
        replicas = tuple(record.replicas)
        directories = tuple(record.directories)
        if len(directories) != len(replicas):
            directories = (im.DIRECTORY_MIGRATING,) * len(replicas)
        image = PartitionImage(
            replicas,
            directories,
            tuple(record.isr),
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
            tuple(record.removing_replicas),
            tuple(record.adding_replicas),
            record.leader,
            record.leader_recovery_state,
            record.leader_epoch,
            record.partition_epoch,
        )
        self._topic_delta(record.topic_id).partitions[record.partition_id] = shared_image(image)

    def _partition_change(self, record: PartitionChangeRecord) -> None:
        change = self._topic_delta(record.topic_id)
        before = change.partitions.get(record.partition_id) or change.partition_before(record.partition_id)
        if before is None:
            raise MetadataReplayError(f"no partition {change.name}-{record.partition_id}")
        change.partitions[record.partition_id] = merge_partition(before, record)

    def _clear_elr(self, record: ClearElrRecord) -> None:
        if record.topic_name:
            topic_id = self.topic_id(record.topic_name)
            if topic_id is None:
                raise MetadataReplayError(f"no topic {record.topic_name}")
            ids = [topic_id]
        else:
            ids = [i for i in self.image.topics.by_id if i not in self.topics_deleted and i not in self.topics_changed]
            ids.extend(self.topics_changed)
        for topic_id in ids:
            change = self.topics_changed.get(topic_id)
            before = self.image.topics.by_id.get(topic_id)
            partitions = dict(before.partitions) if before is not None else {}
            if change is not None:
                partitions.update(change.partitions)
            for index, partition in partitions.items():
                if partition.elr or partition.last_known_elr:
                    cleared = partition._replace(
                        elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
                    )
                    self._topic_delta(topic_id).partitions[index] = cleared

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic_id = record.topic_id
        change = self.topics_changed.pop(topic_id, None)
        before = self.image.topics.by_id.get(topic_id)
        if topic_id in self.topics_deleted or (change is None and before is None):
            raise MetadataReplayError(f"no topic with id {topic_id.hex()}")
        if before is not None:
            self.topics_deleted[topic_id] = before
        name = change.name if change is not None else before.name if before is not None else ""
        self._names[name] = None
        # Kafka's controller removes a topic's configuration together with the topic.
        resource = (im.ConfigResource.TOPIC, name)
        values = self.image.configs.by_resource.get(resource)
        if values:
            self.configs_changed[resource] = dict.fromkeys(values, None)
        else:
            self.configs_changed.pop(resource, None)

    def _config(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        self.configs_changed.setdefault(resource, {})[record.name] = record.value

    def _feature_level(self, record: FeatureLevelRecord) -> None:
        if record.name == KRAFT_VERSION:
            # Older releases of Apache Kafka wrote this level here too. The level that counts is in the quorum's control
            # records (KAFKA-18979).
            return
        self.features_changed[record.name] = record.feature_level or None

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        self.brokers_changed[record.broker_id] = BrokerImage(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints={e.name: Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points},
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(sorted(record.log_dirs)),
            features={f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in record.features},
            cordoned_directories=tuple(sorted(record.cordoned_log_dirs or ())),
            is_migrating_zk_broker=record.is_migrating_zk_broker,
        )

    def _known_broker(self, broker_id: int, epoch: int) -> BrokerImage:
        broker = self.broker(broker_id)
        if broker is None:
            raise MetadataReplayError(f"broker {broker_id} is not registered")
        if broker.epoch != epoch:
            raise MetadataReplayError(f"broker {broker_id} has epoch {broker.epoch}, not {epoch}")
        return broker

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._known_broker(record.broker_id, record.broker_epoch)
        self.brokers_changed[record.broker_id] = None

    def _fence_broker(self, record: FenceBrokerRecord) -> None:
        self.brokers_changed[record.id] = replace(self._known_broker(record.id, record.epoch), fenced=True)

    def _unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        self.brokers_changed[record.id] = replace(self._known_broker(record.id, record.epoch), fenced=False)

    def _broker_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._known_broker(record.broker_id, record.broker_epoch)
        changes: dict[str, Any] = {}
        if record.fenced:
            # 1 fences, -1 unfences.
            changes["fenced"] = record.fenced == 1
        if record.in_controlled_shutdown:
            changes["in_controlled_shutdown"] = True
        if record.log_dirs:
            changes["directories"] = tuple(sorted(record.log_dirs))
        if record.cordoned_log_dirs is not None:
            changes["cordoned_directories"] = tuple(sorted(record.cordoned_log_dirs))
        self.brokers_changed[record.broker_id] = replace(broker, **changes)

    def _register_controller(self, record: RegisterControllerRecord) -> None:
        self.controllers_changed[record.controller_id] = ControllerImage(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints={e.name: Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points},
            features={f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in record.features},
            zk_migration_ready=record.zk_migration_ready,
        )

    def _client_quota(self, record: ClientQuotaRecord) -> None:
        entity = tuple(sorted((e.entity_type, e.entity_name) for e in record.entity))
        self.client_quotas_changed.setdefault(entity, {})[record.key] = None if record.remove else record.value

    def _producer_ids(self, record: ProducerIdsRecord) -> None:
        self.producer_ids_next = record.next_producer_id

    def _acl(self, record: AccessControlEntryRecord) -> None:
        self.acls_changed[record.id] = Acl(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )

    def _remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        if self.acls_changed.get(record.id) is None and record.id not in self.image.acls:
            raise MetadataReplayError(f"no ACL with id {record.id.hex()}")
        self.acls_changed[record.id] = None

    def _scram(self, record: UserScramCredentialRecord) -> None:
        self.scram_changed[record.mechanism, record.name] = StoredKeys(
            record.salt, record.stored_key, record.server_key, record.iterations
        )

    def _remove_scram(self, record: RemoveUserScramCredentialRecord) -> None:
        self.scram_changed[record.mechanism, record.name] = None

    def _delegation_token(self, record: DelegationTokenRecord) -> None:
        self.delegation_tokens_changed[record.token_id] = im.DelegationTokenImage(
            record.owner,
            record.requester,
            tuple(record.renewers),
            record.issue_timestamp,
            record.max_timestamp,
            record.expiration_timestamp,
        )

    def _remove_delegation_token(self, record: RemoveDelegationTokenRecord) -> None:
        self.delegation_tokens_changed[record.token_id] = None

    def _nothing(self, record: Any) -> None:
        """Ignore records that change nothing in an image."""


def _merged(old: Mapping[Any, Any], changes: Mapping[Any, Any]) -> Mapping[Any, Any]:
    if not changes:
        return old
    new = dict(old)
    for key, value in changes.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = value
    return new


def _merged_maps(old: Mapping[Any, Mapping[str, Any]], changes: Mapping[Any, Mapping[str, Any]]) -> Mapping[Any, Any]:
    if not changes:
        return old
    new = dict(old)
    for key, change in changes.items():
        inner = _merged(old.get(key, {}), change)
        if inner:
            new[key] = inner
        else:
            new.pop(key, None)
    return new


_REPLAY: dict[type, Callable[[MetadataDelta, Any], None]] = {
    RegisterBrokerRecord: MetadataDelta._register_broker,
    UnregisterBrokerRecord: MetadataDelta._unregister_broker,
    TopicRecord: MetadataDelta._topic,
    PartitionRecord: MetadataDelta._partition,
    ConfigRecord: MetadataDelta._config,
    PartitionChangeRecord: MetadataDelta._partition_change,
    FenceBrokerRecord: MetadataDelta._fence_broker,
    UnfenceBrokerRecord: MetadataDelta._unfence_broker,
    RemoveTopicRecord: MetadataDelta._remove_topic,
    DelegationTokenRecord: MetadataDelta._delegation_token,
    UserScramCredentialRecord: MetadataDelta._scram,
    FeatureLevelRecord: MetadataDelta._feature_level,
    ClientQuotaRecord: MetadataDelta._client_quota,
    ProducerIdsRecord: MetadataDelta._producer_ids,
    BrokerRegistrationChangeRecord: MetadataDelta._broker_registration_change,
    AccessControlEntryRecord: MetadataDelta._acl,
    RemoveAccessControlEntryRecord: MetadataDelta._remove_acl,
    NoOpRecord: MetadataDelta._nothing,
    ZkMigrationStateRecord: MetadataDelta._nothing,
    RemoveUserScramCredentialRecord: MetadataDelta._remove_scram,
    # replay.py handles these. They change nothing in an image themselves.
    BeginTransactionRecord: MetadataDelta._nothing,
    EndTransactionRecord: MetadataDelta._nothing,
    AbortTransactionRecord: MetadataDelta._nothing,
    RemoveDelegationTokenRecord: MetadataDelta._remove_delegation_token,
    RegisterControllerRecord: MetadataDelta._register_controller,
    ClearElrRecord: MetadataDelta._clear_elr,
}
