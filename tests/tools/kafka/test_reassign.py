"""Moves of partitions: files, proposals, and their output."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest

from pykbroker.tools.cluster.reassign_plan import as_json, brokers_of, proposed, topics_to_move, wanted_moves
from pykbroker.tools.cluster.reassign_throttles import throttled
from pykbroker.tools.cluster.reassignments import OngoingMove
from pykbroker.tools.cluster.replicas_on_disk import ReplicaName, ReplicaPlace
from pykbroker.tools.kafka.reassign_partitions import directory_lines, moves_text, verified_lines


def test_a_file_is_read_as_it_is_written() -> None:
    text = as_json({("b", 0): (2, 1), ("a", 1): (3,)})
    assert text.startswith('{"version":1,"partitions":[{"topic":"a","partition":1,"replicas":[3],"log_dirs":["any"]},')
    assert wanted_moves(text) == ({("a", 1): [3], ("b", 0): [2, 1]}, {})
    text = as_json({("a", 1): (3, 2)}, {ReplicaName("a", 1, 2): "/d", ReplicaName("a", 1, 3): None})
    assert wanted_moves(text) == ({("a", 1): [3, 2]}, {("a", 1, 2): "/d"})


@pytest.mark.parametrize(
    ("partitions", "said"),
    [
        ([], "Partition reassignment list cannot be empty"),
        ([{"topic": "a", "partition": 0, "replicas": []}], "Partition replica list cannot be empty"),
        ([{"topic": "a", "partition": 0, "replicas": [1, 1]}], "a-0 contains multiple entries for 1"),
        ([{"topic": "a", "partition": 0, "replicas": [1]}] * 2, "contains duplicate topic partitions: a-0"),
        ([{"topic": "a", "partition": 0}], "Missing replicas field"),
        ([{"topic": "a", "partition": 0, "replicas": [1], "log_dirs": []}], "is different from size of log dirs list"),
    ],
)
def test_files_that_are_refused(partitions: list[object], said: str) -> None:
    with pytest.raises(ValueError) as caught:
        wanted_moves(json.dumps({"partitions": partitions}))
    assert said in str(caught.value)


def test_topics_and_brokers() -> None:
    assert topics_to_move('{"topics": [{"topic": "a"}, {"topic": "b"}], "version": 1}') == ["a", "b"]
    assert brokers_of("3,1") == [3, 1]
    with pytest.raises(ValueError, match=r"duplicate entries: \[a\]"):
        topics_to_move('{"topics": [{"topic": "a"}, {"topic": "a"}]}')
    with pytest.raises(ValueError, match=r"Broker list contains duplicate entries: \[1\]"):
        brokers_of("1,2,1")


def test_a_proposal_spreads_leaders_and_replicas() -> None:
    current = {("t", number): (9, 8) for number in range(12)}
    found = proposed(current, dict.fromkeys((1, 2, 3)), Random(5))
    assert all(len(set(replicas)) == 2 for replicas in found.values())
    assert Counter(replicas[0] for replicas in found.values()) == {1: 4, 2: 4, 3: 4}
    assert Counter(broker for replicas in found.values() for broker in replicas) == {1: 8, 2: 8, 3: 8}
    with pytest.raises(ValueError, match=r"^Replication factor: 2 larger than available brokers: 1$"):
        proposed(current, {1: None}, Random(5))


def test_a_proposal_looks_at_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    found = proposed({("t", number): (9, 8) for number in range(8)}, racks, Random(1))
    assert all({racks[broker] for broker in replicas} == {"a", "b"} for replicas in found.values())


def test_what_is_said_of_moves() -> None:
    move = OngoingMove((1, 2, 3), (3,), (1,))
    assert moves_text({}) == "No partition reassignments found."
    assert moves_text({("t", 0): move}) == (
        "Current partition reassignments:\nt-0: replicas: 1,2,3. adding: 3. removing: 1."
    )
    wanted = {("t", 0): [2, 3], ("t", 1): [1], ("t", 2): [2]}
    assert verified_lines(wanted, {("t", 0): (1, 2, 3), ("t", 1): (1,), ("t", 2): (1,)}, {("t", 0): move}) == [
        "Status of partition reassignment:",
        "Reassignment of partition t-0 is still in progress.",
        "Reassignment of partition t-1 is completed.",
        "There is no active reassignment of partition t-2, but replica set is 1 rather than 2.",
    ]


def test_what_is_said_of_moves_between_directories() -> None:
    wanted = {ReplicaName("t", number, 1): "/new" for number in range(5)}
    states = [ReplicaPlace(), ReplicaPlace("/new"), ReplicaPlace("/old"), ReplicaPlace("/old", "/new")]
    states.append(ReplicaPlace("/old", "/other"))
    assert directory_lines(wanted, dict(zip(wanted, states, strict=True))) == [
        "Partition t-0 is not found in any live log dir on broker 1. There is likely an offline log directory on the "
        "broker.",
        "Reassignment of replica t-1-1 completed successfully.",
        "Partition t-2 on broker 1 is not being moved from log dir /old to /new.",
        "Reassignment of replica t-3-1 is still in progress.",
        "Partition t-4 on broker 1 is being moved to log dir /other instead of /new.",
    ]


def test_throttles_are_for_what_a_partition_has_and_what_it_is_to_have() -> None:
    # Partition 1 is moving from 1 to 3, and its sources are those from before.
    under_way = {("t", 1): OngoingMove((1, 2, 3), (3,), (1,)), ("other", 0): OngoingMove((5, 4), (4,), (5,))}
    current = {("t", 0): (1, 2), ("t", 1): (1, 2, 3), ("t", 10): (2,)}
    wanted = {("t", 0): (2, 3), ("t", 1): (2, 4), ("t", 10): (2,)}
    assert throttled(under_way, wanted, current) == (
        {"t": "0:1,0:2,10:2,1:1,1:2", "other": "0:5"},
        {"t": "0:3,1:4", "other": "0:4"},
        [1, 2, 3, 4, 5],
    )
