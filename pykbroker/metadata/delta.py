"""Builds the next image from an image and the records after it, and records the differences.

`replay` is the only mutator of replicated metadata, in the controller and in brokers alike. Not responsible for
transactions of the metadata log (replay.py) nor for the source of records.

A record that contradicts the image (an unknown topic, a stale broker epoch) raises MetadataReplayError. Then the log
and the code disagree, and to go on would only spread the error.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from pykbroker.metadata import image as im
from pykbroker.metadata.cluster_delta import CLUSTER_RECORDS, ClusterDelta
from pykbroker.metadata.features import KRAFT_VERSION
from pykbroker.metadata.image import (
    FeaturesImage,
    MetadataImage,
)
from pykbroker.metadata.replay_error import MetadataReplayError
from pykbroker.metadata.topics_delta import TOPIC_RECORDS, TopicsDelta
from pykbroker.security.acl import Acl
from pykbroker.security.stored_keys import StoredKeys
from pykbroker_wire.stored.metadata import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)


class MetadataDelta:
    """The changes since `image`. Each `*_changed` mapping has the same keys as the image's mapping, and None for
    entries that were removed."""

    def __init__(self, image: MetadataImage, *, whole: bool = False) -> None:
        """`whole`: True if the records will be those of a snapshot, which also name everything that `image` has
        already."""
        self.image = image
        self.topics = TopicsDelta(image.topics, whole=whole)
        self.cluster = ClusterDelta(image.brokers, image.controllers)
        #: (resource type, name) -> key -> new value, None if it was removed
        self.configs_changed: dict[tuple[int, str], dict[str, str | None]] = {}
        self.features_changed: dict[str, int | None] = {}
        self.client_quotas_changed: dict[im.QuotaEntity, dict[str, float | None]] = {}
        self.producer_ids_next: int | None = None
        self.acls_changed: dict[bytes, Acl | None] = {}
        self.scram_changed: dict[tuple[int, str], StoredKeys | None] = {}
        self.delegation_tokens_changed: dict[str, im.DelegationTokenImage | None] = {}

    @classmethod
    def of_everything(cls, image: MetadataImage) -> MetadataDelta:
        """Return the delta from the empty image to this one, for a publisher that is added late."""
        delta = cls(im.EMPTY_IMAGE)
        delta._set_everything(image)
        return delta

    @classmethod
    def between(cls, old: MetadataImage, new: MetadataImage) -> MetadataDelta:
        """Return the delta from the image `old` to `new`, for a publisher that has not seen the changes in between."""
        delta = cls(old)
        delta._set_everything(new)
        delta.replace_everything(kept=new.topics.by_id)
        return delta

    def _set_everything(self, new: MetadataImage) -> None:
        self.topics.set_all(new.topics)
        self.cluster.brokers_changed.update(new.brokers)
        self.cluster.controllers_changed.update(new.controllers)
        self.configs_changed.update((resource, dict(values)) for resource, values in new.configs.by_resource.items())
        self.features_changed.update(new.features.all())
        self.client_quotas_changed.update((entity, dict(quotas)) for entity, quotas in new.client_quotas.items())
        if new.producer_ids_next >= 0:
            self.producer_ids_next = new.producer_ids_next
        self.acls_changed.update(new.acls)
        self.scram_changed.update(new.scram)
        self.delegation_tokens_changed.update(new.delegation_tokens)

    @property
    def empty(self) -> bool:
        """True if no record changed anything that an image holds."""
        return not (
            self.topics
            or self.cluster
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
        kind = type(record)
        if (of_topics := TOPIC_RECORDS.get(kind)) is not None:
            of_topics(self.topics, record)
        elif (of_cluster := CLUSTER_RECORDS.get(kind)) is not None:
            of_cluster(self.cluster, record)
        elif (handler := _REPLAY.get(kind)) is not None:
            handler(self, record)
        else:
            raise MetadataReplayError(f"no way to replay {kind.__name__}")

    def replace_everything(self, kept: Container[bytes] = ()) -> None:
        """Mark everything that the records did not set again as removed. Call it after `replay` of a whole snapshot
        onto a non-empty image. `kept`: ids of topics that stay as they are."""
        old = self.image
        self.topics.delete_others(kept)
        for broker_id in old.brokers:
            self.cluster.brokers_changed.setdefault(broker_id, None)
        for controller_id in old.controllers:
            self.cluster.controllers_changed.setdefault(controller_id, None)
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
            brokers=_merged(old.brokers, self.cluster.brokers_changed),
            controllers=_merged(old.controllers, self.cluster.controllers_changed),
            topics=self.topics.apply(),
            configs=self._apply_configs(),
            client_quotas=_merged_maps(old.client_quotas, self.client_quotas_changed),
            producer_ids_next=old.producer_ids_next if self.producer_ids_next is None else self.producer_ids_next,
            acls=_merged(old.acls, self.acls_changed),
            scram=_merged(old.scram, self.scram_changed),
            delegation_tokens=_merged(old.delegation_tokens, self.delegation_tokens_changed),
        )

    # Applying.

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

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        name = self.topics.remove(record.topic_id)
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
    ConfigRecord: MetadataDelta._config,
    RemoveTopicRecord: MetadataDelta._remove_topic,
    DelegationTokenRecord: MetadataDelta._delegation_token,
    UserScramCredentialRecord: MetadataDelta._scram,
    FeatureLevelRecord: MetadataDelta._feature_level,
    ClientQuotaRecord: MetadataDelta._client_quota,
    ProducerIdsRecord: MetadataDelta._producer_ids,
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
}
