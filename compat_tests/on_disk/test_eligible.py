"""Eligible leader replicas in the metadata log, compared with Apache Kafka's: changes of min.insync.replicas, the
feature switched off and on, a stop, a kill."""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.on_disk.estate import Asker
from compat_tests.on_disk.formatting import BOTH, properties_of
from compat_tests.on_disk.home import Home, Owner
from compat_tests.on_disk.life import with_asker
from pykbroker_log.checkpoints import decode_uuid
from pykbroker_wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pykbroker_wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker_wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.record import iter_records
from pykbroker_wire.stored import metadata as stored
from pykbroker_wire.stored_framing import decode_metadata_record
from testkit import needs
from testkit.oracle.kafka import kafka_libs

KEY = "min.insync.replicas"
TOPIC, BROKER = 2, 4
COMPARED = (
    stored.TopicRecord,
    stored.PartitionRecord,
    stored.PartitionChangeRecord,
    stored.ConfigRecord,
    stored.ClearElrRecord,
    stored.FeatureLevelRecord,
)
#: A killed node of Apache Kafka waits until its own last session is over.
QUICK = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


def _alter(asker: Asker, resource_type: int, name: str, value: str | None) -> tuple[int, str | None]:
    config = AlterableConfig(name=KEY, config_operation=0 if value is not None else 1, value=value)
    resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=[config])
    (found,) = asker.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses
    return found.error_code, found.error_message or None


def _set_level(asker: Asker, level: int, upgrade_type: int) -> tuple[int, str | None]:
    update = FeatureUpdateKey(
        feature="eligible.leader.replicas.version", max_version_level=level, upgrade_type=upgrade_type
    )
    found = asker.ask(UpdateFeaturesRequest(timeout_ms=20_000, feature_updates=[update]))
    return found.error_code, found.error_message or None


def _change(asker: Asker) -> list[tuple[int, str | None]]:
    """Make the changes; returns the answers."""
    configs = [CreatableTopicConfig(name=KEY, value="2")]
    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1, configs=configs)
    (made,) = asker.ask(CreateTopicsRequest(topics=[topic], timeout_ms=20_000)).topics
    return [
        (made.error_code, None),
        _alter(asker, TOPIC, "t", "3"),
        _alter(asker, TOPIC, "t", "3"),
        _alter(asker, TOPIC, "t", None),
        _alter(asker, BROKER, "", "2"),
        _alter(asker, BROKER, "", None),
        _alter(asker, BROKER, "1", "1"),
        _alter(asker, BROKER, "1", None),
        _set_level(asker, 0, 2),
        _alter(asker, BROKER, "1", "2"),
        _alter(asker, BROKER, "", None),
        _set_level(asker, 1, 1),
        _alter(asker, BROKER, "", "1"),
    ]


def _described(asker: Asker) -> list[tuple[Any, ...]]:
    """Return the partitions once they have a leader."""
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])

    def led() -> Any:
        (topic,) = asker.ask(request).topics
        parts = topic.partitions
        return parts if len(parts) == 2 and all(part.leader_id == 1 for part in parts) else None

    return [
        (part.partition_index, part.isr_nodes, part.eligible_leader_replicas, part.last_known_elr)
        for part in asker.until(led, "the partitions have a leader")
    ]


def _written(home: Home) -> list[str]:
    (folder,) = home.log_dirs
    data = (folder / "__cluster_metadata-0" / f"{0:020d}.log").read_bytes()
    ids = {decode_uuid(properties_of(folder)["directory.id"]): b"directory"}
    said: list[str] = []
    for position, header in iter_batches(data):
        for record in () if header.is_control else iter_records(data, position, header):
            assert record.value is not None
            decoded = decode_metadata_record(record.value)
            if isinstance(decoded, stored.TopicRecord):
                ids[decoded.topic_id] = b"topic"
            if isinstance(decoded, COMPARED):
                text = repr(decoded)
                for found, name in ids.items():
                    text = text.replace(repr(found), repr(name))
                said.append(text)
    return said


def _live(owner: Owner) -> dict[str, object]:
    with Home(QUICK) as home:
        home.format(owner)
        home.start(owner)
        found: dict[str, object] = {"answers": with_asker(home, _change)}
        home.stop()
        home.start(owner)
        found["after a stop"] = with_asker(home, _described)
        home.stop()
        found["written"] = _written(home)
        home.start(owner)
        with_asker(home, _described)
        home.kill()
        home.start(owner)
        found["after a kill"] = with_asker(home, _described)
        return found


@pytest.mark.slow
def test_eligible_replicas_are_written_as_apache_kafka_writes_them() -> None:
    needs.java()
    kafka_libs()
    theirs, ours = (_live(owner) for owner in BOTH)
    assert ours["answers"] == theirs["answers"]
    assert ours["written"] == theirs["written"]
    assert ours == theirs
