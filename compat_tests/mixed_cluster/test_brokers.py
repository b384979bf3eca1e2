"""Brokers of both kinds under a controller of each kind: they register, follow and lead each other's partitions.

Node 1 is Apache Kafka, node 2 pykbroker, and the controller is a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from compat_tests.mixed_cluster.conftest import NewCluster
from compat_tests.mixed_cluster.images import image_of_log, log_differences, log_of, snapshot_differences, snapshots_of
from compat_tests.mixed_cluster.members import Cluster, Member
from pykbroker.metadata.features import BOOTSTRAP_LEVELS, KRAFT_VERSION
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from pykbroker_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pykbroker_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pykbroker_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.record import iter_records
from testkit.nodes.load import ONCE, Load
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import Wire, batch

pytestmark = pytest.mark.slow

CONTROLLER, KAFKA, OURS = 10, 1, 2
BROKERS = (KAFKA, OURS)
OTHER = {KAFKA: OURS, OURS: KAFKA}
QUIET = {"log_level": 0, "acks": "all", "enable.idempotence": True}
SETTINGS = {
    # A snapshot of the metadata every few records, on each member.
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "auto.leader.rebalance.enable": "false",
    "log.initial.task.delay.ms": "500",
}


@pytest.fixture(scope="module", params=["kafka", "pykbroker"], ids=["under Kafka", "under pykbroker"])
def cluster(request: pytest.FixtureRequest, new_cluster: NewCluster) -> Iterator[Cluster]:
    members = {
        CONTROLLER: Member(request.param, "controller"),
        KAFKA: Member("kafka", "broker"),
        OURS: Member("pykbroker", "broker"),
    }
    with new_cluster(members, own_tools=request.param == "kafka", settings=SETTINGS) as made:
        made.start_all()
        made.serving(*BROKERS)
        yield made


def values_of(data: bytes) -> list[bytes]:
    return [
        bytes(record.value or b"")
        for at, header in iter_batches(data)
        if not header.is_control
        for record in iter_records(data, at, header)
    ]


def markers_of(data: bytes) -> int:
    return sum(header.is_control for _, header in iter_batches(data))


def new_leader(cluster: Cluster, topic: str, number: int) -> None:
    eventually(f"node {number} leads {topic}", lambda: cluster.partitions(topic)[0].leader_id == number)


def test_both_are_members_at_the_default_features(cluster: Cluster) -> None:
    """A feature that is not served here (streams.version) is finalised, and keeps no broker out."""
    finalised = {}
    for number, wire in cluster.wires():
        answer = wire.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
        finalised[number] = {f.name: f.max_version_level for f in answer.finalized_features}
    assert finalised == {number: {**BOOTSTRAP_LEVELS, KRAFT_VERSION: 1} for number in BROKERS}


@pytest.mark.parametrize("leader", BROKERS, ids=["Kafka leads", "pykbroker leads"])
def test_replicas_hold_the_same_bytes(cluster: Cluster, leader: int) -> None:
    topic = cluster.create(f"bytes-{leader}", (leader, OTHER[leader]))
    written = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({**QUIET, "bootstrap.servers": cluster.bootstrap, "compression.type": codec})
        written += [b"%s-%d-" % (codec.encode(), number) * 40 for number in range(200)]
        for value in written[-200:]:
            producer.produce(topic, value, partition=0)
        assert producer.flush(60) == 0
    client = Producer({**QUIET, "bootstrap.servers": cluster.bootstrap, "transactional.id": topic})
    client.init_transactions(60)
    for commit in (True, False):
        client.begin_transaction()
        for number in range(20):
            written.append(b"transaction-%d-%d" % (commit, number))
            client.produce(topic, written[-1], partition=0)
        assert client.flush(60) == 0
        client.commit_transaction(60) if commit else client.abort_transaction(60)
    # The answer to the end of a transaction comes before the last marker is written.
    eventually("both markers are in the log", lambda: markers_of(cluster.same_logs(topic)) == 2)
    assert values_of(cluster.same_logs(topic)) == written


@pytest.mark.parametrize("leader", BROKERS, ids=["Kafka leads", "pykbroker leads"])
def test_topics_change_on_both(cluster: Cluster, leader: int) -> None:
    """The low watermark reaches the follower, new partitions appear on both, and deleted ones are deleted on both."""
    topic = cluster.create(f"changes-{leader}", (leader, OTHER[leader]))
    with Wire(cluster.address(leader)) as wire:
        for number in range(5):
            assert wire.produce(topic, batch(b"%d" % number)).error_code == ErrorCode.NONE
        cut = DeleteRecordsPartition(partition_index=0, offset=3)
        deleting = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[cut])], timeout_ms=30_000)
        (answer,) = wire.call(deleting).topics[0].partitions
        assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 3)
        # The follower has answered with its own start: the low watermark is the least of all replicas.
        found = wire.fetch(topic, 3, max_wait_ms=0)
        assert (found.log_start_offset, values_of(found.records)) == (3, [b"3", b"4"])
    with Wire(cluster.address(OTHER[leader])) as wire:
        growing = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=3, assignments=None)], timeout_ms=30_000
        )
        (grown,) = wire.call(growing).results
        assert grown.error_code == ErrorCode.NONE, grown
        cluster.in_sync(topic)
        assert len(cluster.partitions(topic)) == 3
        (gone,) = wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=30_000)).responses
        assert gone.error_code == ErrorCode.NONE, gone
    eventually(
        "neither has a replica left",
        lambda: not [path for number in BROKERS for path in cluster.replicas(number) if path.name.startswith(topic)],
    )


#: Records that a leader appends alone. A busy leader of Apache Kafka may answer a waiting fetch when it has a second
#: one.
ALONE = [b"alone-%d" % number for number in range(20)]


class Numbers:
    """An idempotent producer with one batch for each of its sequence numbers."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def send(self, wire: Wire, sequence: int, value: bytes, *, acks: int = -1) -> int:
        """Return the offset that the leader answers."""
        made = batch(value, producer_id=77_000, producer_epoch=0, base_sequence=sequence)
        answer = wire.produce(self._topic, made, acks=acks)
        assert answer.error_code == ErrorCode.NONE, (sequence, value)
        offset: int = answer.base_offset
        return offset


def test_either_is_killed_and_comes_back(cluster: Cluster) -> None:
    """Clients continue with the other one. Records that only the killed leader had are truncated when it is back, and
    with them what it knew of their producer: it takes none of its next batches for a repetition."""
    topics = [cluster.create("load-1", (KAFKA, OURS)), cluster.create("load-2", (OURS, KAFKA))]
    with Load(cluster, topics, ONCE) as load:
        load.goes_on()
        for victim in BROKERS:
            other = OTHER[victim]
            cut = cluster.create(f"cut-{victim}", (victim, other))
            producer = Numbers(cut)
            with Wire(cluster.address(victim)) as wire:
                assert producer.send(wire, 0, b"kept") == 0
                with cluster.paused(other):
                    # One answer with the first of them may be on its way to the follower, which sends no further fetch.
                    for value in ALONE:
                        assert wire.produce(cut, batch(value), acks=1).error_code == ErrorCode.NONE
                    for sequence in (1, 2):
                        producer.send(wire, sequence, b"lost", acks=1)
                    cluster.kill(victim)
            load.goes_on()
            new_leader(cluster, cut, other)
            with Wire(cluster.address(other)) as wire:
                assert producer.send(wire, 0, b"kept") == 0
                later = producer.send(wire, 1, b"later")
                assert producer.send(wire, 1, b"later") == later
                kept = wire.values(cut)
            followed = len(kept) - 2
            assert kept == [b"kept", *ALONE[:followed], b"later"]
            assert followed < len(ALONE)
            cluster.start(victim)
            cluster.in_sync(*topics, cut)
            load.goes_on()
            assert values_of(cluster.same_logs(cut)) == kept
            cluster.move(cut, victim)
            with Wire(cluster.address(victim)) as wire:
                assert producer.send(wire, 1, b"later") == later
                assert producer.send(wire, 2, b"last") == producer.send(wire, 2, b"last") == later + 1
            assert values_of(cluster.same_logs(cut)) == [*kept, b"last"]
    load.judge()
    for topic in topics:
        cluster.same_logs(topic)


def test_a_controlled_shutdown_hands_over(cluster: Cluster) -> None:
    """Each asks the controller to move its leaderships before it stops, so clients get no visible failure."""
    topic = cluster.create("handed", (OURS, KAFKA), (KAFKA, OURS))
    with Load(cluster, [topic], ONCE) as load:
        load.goes_on()
        cluster.stop(OURS)
        assert set(cluster.leaders(topic).values()) == {KAFKA}
        load.goes_on()
        cluster.start(OURS)
        cluster.in_sync(topic)
        cluster.stop(KAFKA)
        assert set(cluster.leaders(topic).values()) == {OURS}
        load.goes_on()
        assert not cluster.complaints()
    load.judge()


def test_metadata_is_the_same_in_every_log_and_snapshot(cluster: Cluster) -> None:
    """The last test, with every process stopped: the files that each member keeps of the same records."""
    for number in (CONTROLLER, *BROKERS):
        if number in cluster.running:
            cluster.stop(number)
    assert not cluster.complaints()
    logs = {number: log_of(cluster.data(number)) for number in cluster.members}
    assert all(log[0].base_offset == 0 for log in logs.values())
    shortest = min(log[-1].base_offset for log in logs.values())
    assert shortest > 100
    assert not log_differences(logs, shortest)
    image = image_of_log(logs[CONTROLLER], logs[CONTROLLER][-1].base_offset + 1)
    for topic in image.topics.by_name.values():
        for part in topic.partitions.values():
            told = zip(part.replicas, part.directories, strict=True)
            assert all(directory in image.brokers[number].directories for number, directory in told), topic.name
    for number in cluster.members:
        snapshots = snapshots_of(cluster.data(number))
        assert snapshots, f"node {number} has made no snapshot"
        for path in snapshots.values():
            assert not snapshot_differences(path, logs[CONTROLLER]), (number, path.name)
