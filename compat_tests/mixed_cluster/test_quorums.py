"""Quorums of both implementations: elections, commits, failovers and snapshots between them.

Voters 1 and 2 are of one kind and voter 3 of the other. They are only controllers; clients of the quorum use a broker
of pykbroker. kraft.version 0 is a static quorum, 1 a dynamic one (KIP-853).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from compat_tests.mixed_cluster.conftest import NewCluster
from compat_tests.mixed_cluster.images import log_differences, log_of, snapshot_differences, snapshots_of
from compat_tests.mixed_cluster.members import PATIENCE_S, Cluster, Kind, Member
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import Wire

pytestmark = pytest.mark.slow

VOTERS, BROKER = (1, 2, 3), 10
KEEPS_ALL = {"metadata.max.retention.bytes": str(1 << 30)}
OTHER: dict[Kind, Kind] = {"kafka": "pykbroker", "pykbroker": "kafka"}
SETTINGS = {
    # A snapshot every few records, and a log that begins at the last snapshot but one.
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "metadata.max.retention.bytes": "6000",
    "controller.quorum.election.timeout.ms": "1000",
}


LONG = pytest.mark.long(amount="one quorum, until everybody has sent a snapshot")
#: The kind of two voters, and kraft.version.
QUORUMS = [
    ("pykbroker", 0),
    pytest.param(("kafka", 0), marks=LONG),
    pytest.param(("pykbroker", 1), marks=LONG),
    ("kafka", 1),
]


@pytest.fixture(scope="module", params=QUORUMS, ids=str)
def cluster(request: pytest.FixtureRequest, new_cluster: NewCluster) -> Iterator[Cluster]:
    two, kraft_version = request.param
    members = {number: Member(two if number < 3 else OTHER[two], "controller") for number in VOTERS}
    members[BROKER] = Member("pykbroker", "broker")
    quorum = "dynamic" if kraft_version else "static"
    with new_cluster(
        members, own_tools=two == "pykbroker", quorum=quorum, settings=SETTINGS, own={BROKER: KEEPS_ALL}
    ) as made:
        made.start_all()
        made.serving(BROKER)
        yield made


class Topics:
    """Topics that show what the quorum has committed."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.names: list[str] = []

    def commit(self, count: int = 1) -> None:
        """Create topics through the broker, which forwards to the active controller."""
        for _ in range(count):
            name = f"t{len(self.names)}"
            wanted = CreatableTopic(name=name, num_partitions=2, replication_factor=1)

            def created(topic: CreatableTopic = wanted) -> bool:
                with Wire(self.cluster.address(BROKER), timeout=PATIENCE_S) as wire:
                    (answer,) = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000)).topics
                # The request may have succeeded although its answer was lost with its controller.
                return answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

            eventually(f"{name} is committed", created, seconds=PATIENCE_S)
            self.names.append(name)

    def are_there(self) -> None:
        """Wait until the broker has the topics, which it gets a moment after the client's answer."""

        def look() -> bool:
            with Wire(self.cluster.address(BROKER)) as wire:
                found = {topic.name: len(topic.partitions) for topic in wire.metadata().topics}
            return found == dict.fromkeys(self.names, 2)

        eventually("the broker knows every topic", look, seconds=PATIENCE_S)


@pytest.fixture(scope="module")
def topics(cluster: Cluster) -> Topics:
    return Topics(cluster)


def ends(cluster: Cluster, controller: int) -> dict[int, int]:
    """Return the offset that each voter has fetched, from the leader; the leader's own end by its own id."""
    with cluster.controller(controller) as wire:
        (part,) = wire.quorum().topics[0].partitions
    if part.error_code != ErrorCode.NONE or part.leader_id != controller:
        return {}
    return {voter.replica_id: voter.log_end_offset for voter in part.current_voters}


def caught_up(cluster: Cluster, controller: int) -> None:
    def look() -> bool:
        found = ends(cluster, controller)
        return set(found) == set(VOTERS) and min(found.values()) >= max(found.values()) - 4

    eventually("every voter has what the leader has", look, seconds=PATIENCE_S)


def lead(cluster: Cluster, topics: Topics, wanted: int) -> None:
    """Get this voter elected: the previous leader is stopped, and the third voter lacks some committed records."""
    active = cluster.active()
    if active == wanted:
        return
    (third,) = set(VOTERS) - {active, wanted}
    caught_up(cluster, active)
    cluster.kill(active)
    if cluster.active(but=active) != wanted:
        topics.commit(2)
        cluster.kill(third)
        cluster.launch(active)
        cluster.led_by(wanted)
        cluster.start(third)
        cluster.ready(active)
    else:
        cluster.start(active)
    topics.commit()
    caught_up(cluster, wanted)


def wipe(cluster: Cluster, topics: Topics, number: int) -> None:
    """Restart a voter with an empty disk: it gets the missing records as a snapshot."""
    cluster.kill(number)
    shutil.rmtree(cluster.data(number))
    cluster.format_one(number)
    topics.commit(2)
    cluster.start(number)
    caught_up(cluster, cluster.active())


def of_kind(cluster: Cluster, kind: Kind) -> int:
    """Return a voter of a kind: the active controller if it is one."""
    active = cluster.active()
    found = [number for number in VOTERS if cluster.members[number].kind == kind]
    return active if active in found else found[0]


def test_failovers_both_ways(cluster: Cluster, topics: Topics) -> None:
    """From a killed voter of each kind to one of the other: committed records are there."""
    topics.commit(5)
    alone = VOTERS[2]
    lead(cluster, topics, alone)
    topics.are_there()
    cluster.kill(alone)
    assert cluster.led_by(*VOTERS[:2]) != alone
    topics.commit(3)
    topics.are_there()
    cluster.start(alone)
    caught_up(cluster, cluster.active())
    lead(cluster, topics, alone)
    topics.commit(3)
    topics.are_there()


def test_snapshots_both_ways(cluster: Cluster, topics: Topics) -> None:
    theirs, ours = of_kind(cluster, "kafka"), of_kind(cluster, "pykbroker")
    lead(cluster, topics, ours)
    begins_behind_a_snapshot(cluster, topics, ours)
    wipe(cluster, topics, theirs)
    begins_behind_a_snapshot(cluster, topics, theirs)
    # Its log begins at the end of the snapshot that it got, so that it has a snapshot to send itself.
    lead(cluster, topics, theirs)
    wipe(cluster, topics, ours)
    begins_behind_a_snapshot(cluster, topics, ours)
    topics.commit()
    topics.are_there()


def begins_behind_a_snapshot(cluster: Cluster, topics: Topics, number: int) -> None:
    eventually(f"the log of node {number} begins behind a snapshot", lambda: log_start(cluster, topics, number) > 0)


def log_start(cluster: Cluster, topics: Topics, number: int) -> int:
    """Return the beginning of a voter's log, from its snapshots: the first has the records that the log no longer has.
    Commits something so that the log advances."""
    topics.commit()
    log = log_of(cluster.data(number))
    # Empty between the snapshot and the first batch after it.
    start = log[0].base_offset if log else 0
    return start or min(snapshots_of(cluster.data(number)), default=0)


def test_every_log_and_snapshot_says_the_same(cluster: Cluster, topics: Topics) -> None:
    """The last test, with every process stopped."""
    topics.commit(8)
    caught_up(cluster, cluster.active())
    cluster.stop(BROKER)
    cluster.stop(*VOTERS)
    assert not cluster.complaints()
    logs = {number: log_of(cluster.data(number)) for number in cluster.members}
    shortest = min(log[-1].base_offset for log in logs.values())
    assert not log_differences(logs, shortest)
    whole = logs[BROKER]
    assert whole[0].base_offset == 0
    for number in VOTERS:
        snapshots = snapshots_of(cluster.data(number))
        assert snapshots, f"node {number} has made no snapshot"
        # The voters continued after the broker had stopped, and may have made a further one.
        for end, path in snapshots.items():
            assert end > whole[-1].base_offset or not snapshot_differences(path, whole), (number, path.name)
