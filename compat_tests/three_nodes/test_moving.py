"""kafka-reassign-partitions and kafka-leader-election on three nodes that all live."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from compat_tests.mixed_cluster.members import Cluster
from compat_tests.three_nodes.clusters import Both, fill
from testkit.nodes.nodes import eventually

pytestmark = pytest.mark.slow

REASSIGN = "reassign.ReassignPartitionsCommand"
TOPIC = "moved"
MOVES = [(TOPIC, 0, [3, 2]), (TOPIC, 1, [3, 1])]


def written(path: Path, moves: Sequence[tuple[str, int, list[int]]]) -> tuple[str, str]:
    """Write a plan, and return the words that name it."""
    partitions = [{"topic": topic, "partition": index, "replicas": replicas} for topic, index, replicas in moves]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return "--reassignment-json-file", str(path)


def has_moved(cluster: Cluster) -> None:
    cluster.all_say(
        f"{TOPIC} has moved",
        TOPIC,
        lambda found: all(
            found[index].replica_nodes == replicas and set(found[index].isr_nodes) == set(replicas)
            for _, index, replicas in MOVES
        ),
    )


def test_partitions_are_moved_called_back_and_moved_again(both: Both, tmp_path: Path) -> None:
    both.create(TOPIC, "1:2,2:3")
    for partition in (0, 1):
        # The first fetch, of 1 MB, is not held back.
        both.each(lambda cluster, partition=partition: fill(cluster, TOPIC, partition, 30, 100_000))  # type: ignore[misc]
    plan = written(tmp_path / "plan.json", MOVES)
    both.same(REASSIGN, "--list")
    both.same(REASSIGN, *plan, "--verify")
    assert "Successfully started" in both.same(REASSIGN, *plan, "--execute", "--throttle", "1000")
    listed = both.same(REASSIGN, "--list")
    assert f"{TOPIC}-0: replicas: 3,2,1. adding: 3. removing: 1." in listed
    described = both.same("TopicCommand", "--describe", "--topic", TOPIC)
    assert "Adding Replicas: 3" in described
    assert "leader.replication.throttled.replicas=0:1,0:2,1:2,1:3" in described
    assert "existing partition assignment" in both.same(REASSIGN, *plan, "--execute")
    assert "still in progress" in both.same(REASSIGN, *plan, "--verify")
    both.same(REASSIGN, *plan, "--execute", "--additional", "--throttle", "2000")
    assert "Successfully cancelled" in both.same(REASSIGN, *plan, "--cancel")
    both.same(REASSIGN, "--list")
    both.same("TopicCommand", "--describe", "--topic", TOPIC)
    both.same(REASSIGN, *plan, "--verify")
    both.same(REASSIGN, *plan, "--execute", "--throttle", "100000000")
    both.each(has_moved)
    assert "Clearing broker-level throttles" in both.same(REASSIGN, *plan, "--verify")
    both.same("TopicCommand", "--describe", "--topic", TOPIC)
    both.same(REASSIGN, *plan, "--cancel")
    both.each(lambda cluster: cluster.same_logs(TOPIC))


def test_a_proposal(both: Both, tmp_path: Path) -> None:
    """The tool draws the proposal at random, from the topics, brokers and racks of the cluster."""
    both.create("proposed", "1:2,2:3,3:1")
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "proposed"}]}))
    move = ("--topics-to-move-json-file", str(topics), "--broker-list")
    said = both.same(REASSIGN, *move, "1,2", "--generate")
    assert '{"topic":"proposed","partition":1,"replicas":[2,3]' in said
    assert "‹proposal›" in said
    both.same(REASSIGN, *move, "1", "--generate")
    both.same(REASSIGN, *move, "1,2,9", "--generate")
    for cluster in both.clusters:
        plan = tmp_path / "proposal.json"
        plan.write_text(both.run(cluster, REASSIGN, *move, "1,2", "--generate").out.rsplit("configuration\n", 1)[1])
        executed = both.run(cluster, REASSIGN, "--reassignment-json-file", str(plan), "--execute")
        assert "Successfully started" in executed.out

        def look(cluster: Cluster = cluster) -> bool:
            found = cluster.partitions("proposed").values()
            return all(set(each.replica_nodes) == set(each.isr_nodes) == {1, 2} for each in found)

        eventually("nodes 1 and 2 have all of it", look)
    both.same("TopicCommand", "--delete", "--topic", "proposed")


@pytest.mark.parametrize(
    "moves",
    [
        [(TOPIC, 0, [3, 9])],
        [(TOPIC, 7, [3, 1])],
        [("no-such-topic", 0, [3, 1])],
        [(TOPIC, 0, [3, 3])],
        [(TOPIC, 0, [])],
        [(TOPIC, 0, [1, 2]), (TOPIC, 0, [2, 3])],
    ],
    ids=[
        "unknown broker",
        "unknown partition",
        "unknown topic",
        "one broker twice",
        "no broker",
        "one partition twice",
    ],
)
def test_a_plan_that_is_refused(both: Both, tmp_path: Path, moves: list[tuple[str, int, list[int]]]) -> None:
    plan = written(tmp_path / "plan.json", moves)
    assert "ended with 1" in both.same(REASSIGN, *plan, "--execute")


def test_leaders_are_elected(both: Both, tmp_path: Path) -> None:
    both.create("elected", "1:2:3,1:2:3")
    # With another order of the same replicas another leader is preferred, and no leader is elected.
    both.same(REASSIGN, *written(tmp_path / "plan.json", [("elected", 0, [3, 2, 1])]), "--execute")
    both.each(
        lambda cluster: cluster.all_say(
            "the order has changed", "elected", lambda found: found[0].replica_nodes == [3, 2, 1]
        )
    )
    both.same("TopicCommand", "--describe", "--topic", "elected")
    preferred = ("--election-type", "preferred")
    one = ("--topic", "elected", "--partition", "0")
    assert "Successfully completed" in both.same("LeaderElectionCommand", *preferred, *one)
    both.each(lambda cluster: cluster.all_say("node 3 leads", "elected", lambda found: found[0].leader_id == 3))
    both.same("TopicCommand", "--describe", "--topic", "elected")
    for kind in ("preferred", "unclean"):
        assert "already elected" in both.same("LeaderElectionCommand", "--election-type", kind, *one)
        for unknown in (("elected", "9"), ("no-such-topic", "0")):
            words = ("--topic", unknown[0], "--partition", unknown[1])
            refused = both.same("LeaderElectionCommand", "--election-type", kind, *words)
            assert "UnknownTopicOrPartitionException" in refused
    named = tmp_path / "elections.json"
    named.write_text(json.dumps({"partitions": [{"topic": "elected", "partition": index} for index in (0, 1)]}))
    both.same("LeaderElectionCommand", *preferred, "--path-to-json-file", str(named))
