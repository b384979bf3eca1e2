"""Encodes an image as the records of a snapshot of the metadata log.

The order is Apache Kafka's (features, cluster, topics, configs, quotas, producer ids, ACLs, credentials, tokens),
because each reader replays from the front. Replaying the records onto the empty image gives an equal image.
"""

from __future__ import annotations

from collections.abc import Iterator

from pykbroker.metadata.image import BrokerImage, ControllerImage, MetadataImage, PartitionImage
from pykbroker.metadata.records import encode_record
from pykbroker.metadata.scram_record import scram_record
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from pykbroker_wire.stored.metadata.client_quota_record import EntityData
from pykbroker_wire.stored.metadata.register_broker_record import BrokerEndpoint, BrokerFeature
from pykbroker_wire.stored.metadata.register_controller_record import ControllerEndpoint, ControllerFeature

#: The first metadata.version whose records have log directories (KIP-858), cordoned directories, controllers, the ELR.
DIRECTORIES_FROM = 17
CORDONED_FROM = 30
CONTROLLERS_FROM = 15
ELR_FROM = 23


def partition_record(topic_id: bytes, index: int, partition: PartitionImage, metadata_version: int) -> PartitionRecord:
    elr_known = metadata_version >= ELR_FROM
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories) if metadata_version >= DIRECTORIES_FROM else [],
        eligible_leader_replicas=list(partition.elr) if elr_known and partition.elr else None,
        last_known_elr=list(partition.last_known_elr) if elr_known and partition.last_known_elr else None,
    )


def broker_record(broker: BrokerImage, metadata_version: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in broker.endpoints.values()
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
            for name, levels in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories) if metadata_version >= DIRECTORIES_FROM else [],
        cordoned_log_dirs=(
            list(broker.cordoned_directories)
            if metadata_version >= CORDONED_FROM and broker.cordoned_directories
            else None
        ),
    )


def controller_record(controller: ControllerImage) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[
            ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in controller.endpoints.values()
        ],
        features=[
            ControllerFeature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
            for name, levels in controller.features.items()
        ],
    )


def image_records(image: MetadataImage) -> Iterator[TopLevel]:
    """Yield records that replay to an equal image."""
    version = image.features.metadata_version
    if version:
        yield FeatureLevelRecord(name="metadata.version", feature_level=version)
    for name, level in image.features.finalized.items():
        yield FeatureLevelRecord(name=name, feature_level=level)
    for broker in image.brokers.values():
        yield broker_record(broker, version)
    if version >= CONTROLLERS_FROM:
        for controller in image.controllers.values():
            yield controller_record(controller)
    for topic in image.topics.by_id.values():
        yield TopicRecord(name=topic.name, topic_id=topic.id)
        for index, partition in topic.partitions.items():
            yield partition_record(topic.id, index, partition, version)
    for (resource_type, resource_name), values in image.configs.by_resource.items():
        for key, value in values.items():
            yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=key, value=value)
    for entity, quotas in image.client_quotas.items():
        for key, limit in quotas.items():
            yield ClientQuotaRecord(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                key=key,
                value=limit,
                remove=False,
            )
    if image.producer_ids_next >= 0:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.producer_ids_next)
    for acl_id, acl in image.acls.items():
        yield AccessControlEntryRecord(id=acl_id, **acl._asdict())
    for (mechanism, name), credential in image.scram.items():
        yield scram_record(name, mechanism, credential)
    for token_id, token in image.delegation_tokens.items():
        yield DelegationTokenRecord(
            owner=token.owner,
            requester=token.requester,
            renewers=list(token.renewers),
            issue_timestamp=token.issue_timestamp_ms,
            max_timestamp=token.max_timestamp_ms,
            expiration_timestamp=token.expiration_timestamp_ms,
            token_id=token_id,
        )


def snapshot_values(image: MetadataImage) -> Iterator[bytes]:
    """Yield `image_records` as framed values, in the versions of the image's metadata.version."""
    version = image.features.metadata_version
    for record in image_records(image):
        yield encode_record(record, version)
