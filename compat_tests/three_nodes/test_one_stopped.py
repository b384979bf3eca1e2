"""The output of the tools while node 3 is stopped, when it is taken out of the metadata, and when it is back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.differential.compare import Script
from compat_tests.differential.scripts import ONE_STOPPED
from compat_tests.mixed_cluster.members import Cluster
from compat_tests.three_nodes.clusters import Both, fill
from pykbroker_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import BROKER, TOPIC, Wire

pytestmark = pytest.mark.slow

#: topic -> the replicas of its partitions, and its min.insync.replicas
TOPICS = {
    "alone": ("3,1", 1),
    "one-is-enough": ("3:1:2,1:2:3", 1),
    "two-of-two": ("3:1,1:3", 2),
    "two-of-three": ("3:1:2,2:3:1", 2),
    "all-three": ("3:1:2", 3),
}
#: The topic whose newest records node 2 misses.
LOST = "lost"
#: The topic that node 1 leads, and that keeps node 3 as a replica while it is stopped.
MOVED = "moved-beside-a-stopped-node"
THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
SELECTIONS = ("under-replicated", "under-min-isr", "at-min-isr", "unavailable")


def described(both: Both, selection: str) -> str:
    names = "|".join(TOPICS)
    return both.same("TopicCommand", "--describe", "--topic", names, f"--{selection}-partitions")


@pytest.fixture(scope="module", autouse=True)
def stopped(both: Both) -> Iterator[None]:
    for topic, (replicas, least) in TOPICS.items():
        both.create(topic, replicas, "--config", f"min.insync.replicas={least}")
    both.create(MOVED, "1:3")
    both.each(lambda cluster: fill(cluster, "two-of-three", 0, 3))
    for selection in SELECTIONS:
        rows = described(both, selection).count("Partition: ")
        # Two partitions have one replica, two of two replicas require two, and one of three replicas requires three.
        assert rows == (5 if selection == "at-min-isr" else 0)
    both.each(_left_behind)
    both.each(_stopped)
    yield
    both.each(_back)


def _left_behind(cluster: Cluster) -> None:
    """Make node 2 miss records of a topic; it gets them too slowly to be in sync again."""
    cluster.create(LOST, (3, 2))
    with Wire(cluster.address(1)) as wire:
        with cluster.paused(2):
            eventually("node 2 is not in sync", lambda: cluster.partitions(LOST)[0].isr_nodes == [3])
            fill(cluster, LOST, 0, 50, 100_000)
            _throttle(cluster, 3, "1000")
        cluster.serving(1, 2, 3)
        others = {topic.name for topic in wire.metadata().topics} - {LOST}
    cluster.in_sync(*others)
    assert cluster.partitions(LOST)[0].isr_nodes == [3]


def _throttle(cluster: Cluster, number: int, rate: str | None) -> None:
    """Change the throttles. A broker's own configuration is changed at that broker."""
    with Wire(cluster.address(number)) as wire:
        for kind, name, values in (
            (TOPIC, LOST, dict.fromkeys(THROTTLED, None if rate is None else "*")),
            (BROKER, str(number), dict.fromkeys(RATES, rate)),
        ):
            answer = wire.alter(kind, name, values)
            assert not answer.error_code, answer


def _stopped(cluster: Cluster) -> None:
    if 3 in cluster.running:
        cluster.stop(3)
    cluster.serving(1, 2)


def _back(cluster: Cluster) -> None:
    if 3 not in cluster.running:
        cluster.start(3)
    _throttle(cluster, 3, None)
    cluster.in_sync(LOST, *TOPICS)


@pytest.mark.parametrize(
    ("selection", "rows"), [("under-replicated", 8), ("under-min-isr", 4), ("at-min-isr", 3), ("unavailable", 1)]
)
def test_topics_by_their_state(both: Both, selection: str, rows: int) -> None:
    assert described(both, selection).count("Partition: ") == rows


def test_topics(both: Both) -> None:
    said = both.same("TopicCommand", "--describe", "--topic", "|".join(TOPICS))
    assert "Leader: none	Replicas: 3	Isr: 	Elr: 3" in said


def test_elections(both: Both, tmp_path: Path) -> None:
    for kind in ("preferred", "unclean"):
        elect = ("LeaderElectionCommand", "--election-type", kind)
        for topic, partition in (("alone", "0"), ("one-is-enough", "0"), ("one-is-enough", "1"), ("all-three", "0")):
            both.same(*elect, "--topic", topic, "--partition", partition)
    refused = both.same("LeaderElectionCommand", "--election-type", "unclean", "--topic", "alone", "--partition", "0")
    assert "EligibleLeadersNotAvailableException" in refused


def test_an_unclean_leader_is_elected_when_it_is_asked_for(both: Both) -> None:
    """Only node 2 lives. It has missed records and is not eligible, so these records are lost."""
    described = ("TopicCommand", "--describe", "--topic", LOST)
    assert "Leader: none	Replicas: 3,2	Isr: 	Elr: 3	LastKnownElr: 3" in both.same(*described)
    elect = ("LeaderElectionCommand", "--topic", LOST, "--partition", "0", "--election-type")
    assert "PreferredLeaderNotAvailableException" in both.same(*elect, "preferred")
    assert "Leader: none" in both.same(*described, "--unavailable-partitions")
    assert "Successfully completed" in both.same(*elect, "unclean")
    both.each(lambda cluster: cluster.all_say("node 2 leads", LOST, lambda found: found[0].leader_id == 2))
    assert "Leader: 2	Replicas: 3,2	Isr: 2	" in both.same(*described)


def test_offsets_and_directories(both: Both, tmp_path: Path) -> None:
    """The tool asks for a partition without a leader until it gives up."""
    patience = tmp_path / "client.properties"
    patience.write_text("default.api.timeout.ms=1000\nrequest.timeout.ms=900\nretry.backoff.ms=100\n")
    offsets = ("GetOffsetShell", "--command-config", str(patience), "--topic-partitions")
    assert "two-of-three:0:3" in both.same(*offsets, "two-of-three,one-is-enough")
    said = both.same(*offsets, "alone")
    assert "alone:1:0" in said
    assert "Skip getting offsets for topic-partition alone-0 due to error" in said
    log_dirs = both.same("LogDirsCommand", "--describe", "--topic-list", ",".join(TOPICS))
    assert "from brokers 1,2\n" in log_dirs
    assert "do not exist" in both.same("LogDirsCommand", "--describe", "--broker-list", "3")


def test_nodes_and_voters(both: Both) -> None:
    assert "fenced     broker" in both.same("ClusterTool", "list-endpoints", "--include-fenced-brokers")
    both.same("ClusterTool", "list-endpoints")
    both.same("ClusterTool", "list-endpoints", where="--bootstrap-controller {controllers}")
    both.same("MetadataQuorumCommand", "describe", "--status")
    both.same("MetadataQuorumCommand", "describe", "--replication")
    versions = both.same("BrokerApiVersionsCommand")
    assert versions.count(" rack: null isFenced: false) -> (") == 2
    both.same("FeatureCommand", "upgrade", "--feature", "group.version=1")


def test_a_move_to_a_stopped_broker(both: Both, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"version":1,"partitions":[{"topic":"alone","partition":1,"replicas":[3]}]}')
    reassign = ("reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(plan))
    both.same(*reassign, "--execute")
    both.same("reassign.ReassignPartitionsCommand", "--list")
    both.same(*reassign, "--verify", "--preserve-throttles")
    both.same("TopicCommand", "--describe", "--topic", "alone")
    both.same(*reassign, "--cancel", "--preserve-throttles")
    both.same("TopicCommand", "--describe", "--topic", "alone")


def test_a_move_ends_while_a_replica_that_stays_is_stopped(both: Both) -> None:
    """Node 2 takes the place of node 1. The tool does not accept a plan with a stopped node, but the API does."""

    def moved(cluster: Cluster) -> None:
        wanted = ReassignablePartition(partition_index=0, replicas=[3, 2])
        with Wire(cluster.address(1)) as wire:
            answer = wire.call(
                AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=MOVED, partitions=[wanted])])
            )
        assert [each.error_code for each in answer.responses[0].partitions] == [0], answer
        cluster.all_say("node 2 leads", MOVED, lambda found: found[0].leader_id == 2)

    both.each(moved)
    assert "No partition reassignments found" in both.same("reassign.ReassignPartitionsCommand", "--list")
    assert "Replicas: 3,2	Isr: 2	" in both.same("TopicCommand", "--describe", "--topic", MOVED)


@pytest.mark.parametrize("script", ONE_STOPPED, ids=lambda script: script.__name__)
def test_both_answer_alike(both: Both, script: Script) -> None:
    both.same_answers(script)


def test_it_is_unregistered_and_comes_back(both: Both) -> None:
    """This test is the last in the file. It does not unregister a broker that lives: a broker of Apache Kafka never
    registers again after that, and takes five minutes to stop. A broker of pykbroker registers again."""
    assert "no longer registered" in both.same("ClusterTool", "unregister", "--id", "3")
    assert "not currently registered" in both.same("ClusterTool", "unregister", "--id", "3")
    listed = both.same("ClusterTool", "list-endpoints", "--include-fenced-brokers")
    assert "‹port of broker 3›" not in listed
    everything = ("TopicCommand", "--describe", "--topic", "|".join(TOPICS))
    both.same(*everything)
    both.each(_back)
    both.same("ClusterTool", "list-endpoints", "--include-fenced-brokers")
    for selection in SELECTIONS:
        described(both, selection)
    both.same(*everything)
    for topic in ("one-is-enough", "two-of-two"):
        elected = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
        assert "Successfully completed" in both.same("LeaderElectionCommand", *elected)
    both.each(lambda cluster: cluster.in_sync(*TOPICS))
    both.same(*everything)
