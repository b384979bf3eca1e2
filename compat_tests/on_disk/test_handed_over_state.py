"""The state of a node that is in no topic: who it is, how it voted, how it stopped, and the metadata of its cluster.

Apache Kafka, pykbroker and Apache Kafka again have one directory in turn. After each stay the files are read here and
compared, field by field, with those that the stay before has left.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from compat_tests.mixed_cluster.images import (
    FOLDER,
    Batch,
    contents,
    image_of_log,
    log_of,
    snapshot_differences,
    snapshots_of,
)
from compat_tests.on_disk.estate import Asker
from compat_tests.on_disk.home import Home, Owner
from compat_tests.on_disk.life import Idempotent, with_asker
from compat_tests.topics import Topics
from pykbroker.metadata.image import BrokerImage, MetadataImage
from pykbroker_log.names import CLEAN_SHUTDOWN
from pykbroker_raft import checkpoint
from pykbroker_raft.voters import VoterSet
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.primitives import uuid_to_str
from pykbroker_wire.stored.metadata import (
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
)
from testkit import needs
from testkit.clients import wait_until
from testkit.oracle.kafka import kafka_libs

OWNERS: tuple[Owner, ...] = ("kafka", "pykbroker", "kafka")
NODE_ID = 1
#: Each owner makes snapshots of its own.
CONFIG = {"metadata.log.max.record.bytes.between.snapshots": "3000", "offsets.topic.num.partitions": "1"}
BLOCK = 1_000


@dataclass
class Stay:
    """The files that an owner has left after a controlled shutdown, and the producer id that it has given."""

    owner: Owner
    producer_id: int
    #: the lines of meta.properties, and the fields of the file of a clean shutdown, of each log directory
    meta: list[dict[str, str]]
    clean_shutdown: list[dict[str, Any]]
    quorum_state: dict[str, Any]
    log: list[Batch]
    snapshots: dict[int, Path]

    @property
    def end(self) -> int:
        """The offset after the last record of metadata."""
        return max(batch.base_offset + len(batch.records) for batch in self.log)

    @property
    def image(self) -> MetadataImage:
        return image_of_log(self.log, self.end)

    @property
    def broker(self) -> BrokerImage:
        return self.image.brokers[NODE_ID]

    def since(self, offset: int, kind: type[Any]) -> list[tuple[int, Any]]:
        """Return the records of a kind from an offset on, with their offsets."""
        found = [(batch.base_offset + i, record) for batch in self.log for i, record in enumerate(batch.records)]
        return [(at, record) for at, record in found if at >= offset and isinstance(record, kind)]

    def voters(self) -> set[tuple[int, VoterSet | None]]:
        """Return kraft.version and the voters of each snapshot that this owner has left."""
        found = [checkpoint.decode(path.read_bytes(), with_values=False) for path in self.snapshots.values()]
        return {(each.kraft_version, each.voters) for each in found}


def _look(home: Home, owner: Owner, producer_id: int) -> Stay:
    data = home.log_dirs[0]
    meta = [(path / "meta.properties").read_text().splitlines() for path in home.log_dirs]
    return Stay(
        owner,
        producer_id,
        [dict(line.split("=", 1) for line in lines if not line.startswith("#")) for lines in meta],
        [json.loads((path / CLEAN_SHUTDOWN).read_bytes()) for path in home.log_dirs],
        json.loads((data / FOLDER / "quorum-state").read_bytes()),
        log_of(data),
        snapshots_of(data),
    )


def _live(home: Home, number: int) -> int:
    """Change the metadata until there is a snapshot of this owner. Return the producer id that it has given."""
    known = set(snapshots_of(home.log_dirs[0]))
    topics = Topics(home.bootstrap)
    for each in range(6):
        topics.create(name=f"t{number}-{each}", partitions=4, config={"retention.ms": str(10**9 + each)})

    def write(asker: Asker) -> int:
        producer = Idempotent(asker, f"t{number}-0")
        assert producer.send(asker) is ErrorCode.NONE
        given: int = producer.producer_id
        return given

    producer_id: int = with_asker(home, write)
    wait_until(lambda: set(snapshots_of(home.log_dirs[0])) - known, "a snapshot of this owner")
    return producer_id


@pytest.mark.slow
@pytest.mark.parametrize(
    "kraft_version", [1, pytest.param(0, marks=pytest.mark.long(amount="two handovers of a static quorum"))]
)
def test_state_that_is_in_no_topic_keeps_its_meaning_in_both_hands(kraft_version: int) -> None:
    needs.java()
    kafka_libs()
    with Home(CONFIG, log_dirs=("one", "two")) as home:
        if kraft_version:
            home.format("kafka")
        else:
            # Static voters: the tool must not write a first voter.
            home.configure({**CONFIG, "controller.quorum.voters": f"{NODE_ID}@localhost:{home.port + 1}"})
            home.format("pykbroker")
        stays = []
        for number, owner in enumerate(OWNERS):
            home.start(owner)
            producer_id = _live(home, number)
            # A crash from now on is none of the clean stop before.
            assert not any((path / CLEAN_SHUTDOWN).exists() for path in home.log_dirs), owner
            home.stop()
            stays.append(_look(home, owner, producer_id))
        for stay in stays:
            _agrees_with_itself(stay)
            _has_its_voters(stay, kraft_version)
        for before, after in pairwise(stays):
            _is_the_same_node(before, after)
            _is_a_new_incarnation(before, after)
            _gives_new_producer_ids(before, after)
            _has_the_same_metadata(before, after)


def _agrees_with_itself(stay: Stay) -> None:
    assert [fields["version"] for fields in stay.meta] == ["1", "1"]
    assert len({fields["directory.id"] for fields in stay.meta}) == 2
    # The next registration shows with this epoch that no acknowledged record can be lost (KIP-966).
    assert stay.clean_shutdown == [{"version": 0, "brokerEpoch": stay.broker.epoch}] * 2
    assert sorted(fields["directory.id"] for fields in stay.meta) == sorted(map(uuid_to_str, stay.broker.directories))
    for path in stay.snapshots.values():
        assert snapshot_differences(path, stay.log) == [], f"{path.name} after {stay.owner}"


def _has_its_voters(stay: Stay, kraft_version: int) -> None:
    """A static voter is in quorum-state. Another one is in each snapshot, by its directory."""
    ((found, voters),) = stay.voters()
    assert found == stay.quorum_state["data_version"] == kraft_version
    if not kraft_version:
        assert voters is None
        assert stay.quorum_state["currentVoters"] == [{"voterId": NODE_ID}]
        return
    assert voters is not None
    (voter,) = voters.voters
    assert (voter.key.id, uuid_to_str(voter.key.directory_id)) == (NODE_ID, stay.meta[0]["directory.id"])


def _is_the_same_node(before: Stay, after: Stay) -> None:
    assert after.meta == before.meta
    assert after.voters() == before.voters()
    # Each start is an election in an epoch of its own; the node votes for itself, and wins.
    epoch = "leaderEpoch"
    assert after.quorum_state[epoch] > before.quorum_state[epoch]
    assert after.quorum_state | {epoch: 0} == before.quorum_state | {epoch: 0}
    assert max(batch.epoch for batch in after.log) == after.quorum_state[epoch]


def _is_a_new_incarnation(before: Stay, after: Stay) -> None:
    ((at, registration),) = after.since(before.end, RegisterBrokerRecord)
    assert registration.broker_epoch == after.broker.epoch == at - _records_before(after, at)
    assert after.broker.epoch > before.broker.epoch
    assert after.broker.incarnation_id != before.broker.incarnation_id
    # The new owner has sent the epoch of the clean stop. Otherwise the controller takes its replicas out of the
    # eligible ones, and they are in sync only later.
    changes = [record for _, record in after.since(before.end, PartitionChangeRecord)]
    assert changes
    assert not [change for change in changes if change.eligible_leader_replicas == [] and not change.isr]


def _records_before(stay: Stay, at: int) -> int:
    """Return the number of records before one in its batch. A broker's epoch is the offset where its batch begins."""
    (base,) = [b.base_offset for b in stay.log if b.base_offset <= at < b.base_offset + len(b.records)]
    return at - base


def _gives_new_producer_ids(before: Stay, after: Stay) -> None:
    blocks = after.since(before.end, ProducerIdsRecord)
    assert blocks
    following = before.image.producer_ids_next
    for _, block in blocks:
        assert (block.broker_id, block.broker_epoch) == (NODE_ID, after.broker.epoch)
        following += BLOCK
        assert block.next_producer_id == following
    assert after.image.producer_ids_next == following
    # Ids of the former owner's block that it did not give are lost, and none is given twice.
    assert before.producer_id < before.image.producer_ids_next <= after.producer_id < following


def _has_the_same_metadata(before: Stay, after: Stay) -> None:
    """The new owner has added metadata, and has changed only itself, and who leads since when."""
    held, now = contents(before.image), contents(after.image)
    own = {f"broker {NODE_ID}", f"controller {NODE_ID}", "producer ids "}
    partitions = {name for name in held if name.startswith("partition ")}
    assert {name: thing for name, thing in held.items() if name not in own | partitions} == {
        name: now.get(name) for name in held if name not in own | partitions
    }
    for name in partitions:
        assert _place(held[name]) == _place(now[name]), name
    assert _snapshot_is_kept(before, after)


def _place(partition: Any) -> tuple[object, ...]:
    return partition.replicas, partition.directories, partition.isr, partition.elr, partition.last_known_elr


def _snapshot_is_kept(before: Stay, after: Stay) -> bool:
    """Return True if the newest snapshot of the former owner is still there, beside one of the new owner."""
    return max(before.snapshots) in after.snapshots and max(after.snapshots) > max(before.snapshots)
