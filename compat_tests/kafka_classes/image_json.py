"""An image as the JSON values of java/Images.java, and the records of a snapshot in a form that can be compared."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from compat_tests.kafka_classes.partition_walk import fields
from pykbroker.metadata.image import BrokerImage, ControllerImage, Endpoint, MetadataImage, QuotaEntity, VersionRange
from pykbroker.metadata.records import decode_record
from pykbroker_wire.primitives import uuid_to_str


def image_json(image: MetadataImage) -> dict[str, Any]:
    return {
        "offset": image.offset,
        "epoch": image.epoch,
        "timestamp_ms": image.timestamp_ms,
        "metadata_version": image.features.metadata_version,
        "finalized": dict(image.features.finalized),
        "brokers": {str(broker.id): _broker(broker) for broker in image.brokers.values()},
        "controllers": {str(each.id): _controller(each) for each in image.controllers.values()},
        "topics": {
            uuid_to_str(topic.id): [topic.name, {str(i): fields(each) for i, each in topic.partitions.items()}]
            for topic in image.topics.by_id.values()
        },
        "topic_names": {name: uuid_to_str(topic.id) for name, topic in image.topics.by_name.items()},
        "configs": {f"{kind} {name}": dict(values) for (kind, name), values in image.configs.by_resource.items()},
        "client_quotas": {_entity(entity): dict(quotas) for entity, quotas in image.client_quotas.items()},
        "producer_ids_next": image.producer_ids_next,
        "acls": {uuid_to_str(acl_id): list(acl) for acl_id, acl in image.acls.items()},
        "scram": {
            f"{mechanism} {name}": [
                _base64(keys.salt),
                _base64(keys.stored_key),
                _base64(keys.server_key),
                keys.iterations,
            ]
            for (mechanism, name), keys in image.scram.items()
        },
        "delegation_tokens": {
            token_id: [token.owner, token.requester, sorted(token.renewers), *token[3:]]
            for token_id, token in image.delegation_tokens.items()
        },
    }


def snapshot_json(values: Iterable[bytes]) -> list[str]:
    """Return the records of a snapshot, sorted, because Apache Kafka writes most of them in the order of a HashMap."""
    found = []
    for value in values:
        record = decode_record(value)
        known = {name: getattr(record, name) for name in record.__slots__}
        for name in ("end_points", "features"):
            if name in known:
                known[name] = sorted(known[name], key=lambda each: str(each.name))
        for name in ("log_dirs", "cordoned_log_dirs", "renewers"):
            if known.get(name):
                known[name] = sorted(known[name])
        if known.get("cordoned_log_dirs") == []:
            # Apache Kafka distinguishes an empty list from none, and reads both alike. We write none.
            known["cordoned_log_dirs"] = None
        if "entity" in known:
            known["entity"] = sorted(known["entity"], key=lambda each: str(each.entity_type))
        # The frame has the version, which is that of the metadata.version.
        found.append(f"{type(record).__name__} {value[:3].hex()} {known}")
    return sorted(found)


def kinds(values: Iterable[bytes]) -> list[str]:
    """Return the types of records in the order of a snapshot, those of a topic one after the other."""
    names = [type(decode_record(value)).__name__ for value in values]
    return list(dict.fromkeys(names))


def _broker(broker: BrokerImage) -> list[Any]:
    return [
        broker.epoch,
        uuid_to_str(broker.incarnation_id),
        _endpoints(broker.endpoints),
        "(none)" if broker.rack is None else broker.rack,
        broker.fenced,
        broker.in_controlled_shutdown,
        sorted(map(uuid_to_str, broker.directories)),
        sorted(map(uuid_to_str, broker.cordoned_directories)),
        _features(broker.features),
    ]


def _controller(controller: ControllerImage) -> list[Any]:
    return [
        uuid_to_str(controller.incarnation_id),
        _endpoints(controller.endpoints),
        _features(controller.features),
        controller.zk_migration_ready,
    ]


def _endpoints(endpoints: Mapping[str, Endpoint]) -> dict[str, Any]:
    return {name: [each.host, each.port, each.security_protocol] for name, each in endpoints.items()}


def _features(features: Mapping[str, VersionRange]) -> dict[str, Any]:
    return {name: [levels.min, levels.max] for name, levels in features.items()}


def _entity(entity: QuotaEntity) -> str:
    """Return the text that Java writes for a TreeMap."""
    return "{" + ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity) + "}"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
