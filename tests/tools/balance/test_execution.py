"""Steps of a run, directories, files of plans and loads, and brokers that are down: all pure."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest

from pykbroker.tools.balance.directory_spread import BrokerDirectory, StoredReplica, directory_moves
from pykbroker.tools.balance.execution import ExecutionCaps, MoveState, PlacedPartition, next_step, state_of
from pykbroker.tools.balance.healing import GoneBrokers
from pykbroker.tools.balance.load_file import PartitionRates, read_loads, told_by
from pykbroker.tools.balance.plan_file import PlannedMove, read_plan
from pykbroker.tools.balance.seen import LoadResource

ALIVE = {1, 2, 3, 4}
MOVE = PlannedMove((1, 2), (3, 2))
HERE = PlacedPartition((1, 2), (1, 2), 1)
ON_ITS_WAY = PlacedPartition((3, 2, 1), (1, 2), 1, adding=(3,), removing=(1,))
THERE = PlacedPartition((3, 2), (3, 2), 2)


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        (None, MoveState.MISSING),
        (HERE, MoveState.WAITING),
        (replace(HERE, replicas=(2, 1)), MoveState.WAITING),
        (ON_ITS_WAY, MoveState.MOVING),
        (replace(ON_ITS_WAY, adding=(), removing=()), MoveState.MOVING),
        (THERE, MoveState.MOVED),
        (replace(HERE, replicas=(1, 4)), MoveState.CHANGED),
        (replace(ON_ITS_WAY, replicas=(4, 2, 1), adding=(4,)), MoveState.CHANGED),
    ],
)
def test_what_a_partition_is_at(seen: PlacedPartition | None, state: MoveState) -> None:
    assert state_of(MOVE, seen) is state


def test_what_a_step_asks_for() -> None:
    plan = {("t", number): MOVE for number in range(5)}
    seen = {("t", 0): HERE, ("t", 1): ON_ITS_WAY, ("t", 2): THERE, ("t", 3): replace(THERE, leader=3)}
    step = next_step(plan, seen, ALIVE, ExecutionCaps())
    assert step.start == {("t", 0): (3, 2)}
    assert (step.moving, step.elect, step.done) == ([("t", 1)], [("t", 2)], 1)
    assert step.changed == {("t", 4): "is gone"}
    assert not step.is_over
    over = next_step({("t", 3): MOVE}, seen, ALIVE, ExecutionCaps())
    assert over.is_over


def test_the_order_of_replicas_comes_first_and_is_not_capped_as_moves_are() -> None:
    plan = {("t", 0): MOVE, ("t", 1): PlannedMove((1, 2), (2, 1))}
    step = next_step(plan, dict.fromkeys(plan, HERE), ALIVE, ExecutionCaps(moves_per_broker=0))
    assert step.start == {("t", 1): (2, 1)}
    assert step.waiting == 1


def test_copies_wait_for_what_comes_before_them() -> None:
    plan = {("t", 0): MOVE, ("t", 1): PlannedMove((1, 2), (2, 1)), ("t", 2): MOVE}
    seen = {("t", 0): HERE, ("t", 1): HERE, ("t", 2): ON_ITS_WAY}
    step = next_step(plan, seen, ALIVE, ExecutionCaps(), may_copy=False)
    assert step.start == {("t", 1): (2, 1)}
    assert (step.moving, step.waiting, step.is_over) == ([("t", 2)], 1, False)


def test_a_broker_that_is_gone() -> None:
    plan = {("t", number): MOVE for number in range(2)}
    step = next_step(plan, {("t", 0): HERE, ("t", 1): ON_ITS_WAY}, {1, 2, 4}, ExecutionCaps())
    assert step.call_back == {("t", 1): "broker 3 is gone"}
    assert step.held == {("t", 0): "broker 3 is gone"}
    # A broker that is to be emptied may be down.
    step = next_step({("t", 0): MOVE}, {("t", 0): replace(HERE, isr=(2,), leader=2)}, {2, 3, 4}, ExecutionCaps())
    assert step.start == {("t", 0): (3, 2)}


def test_partitions_below_their_min_isr() -> None:
    below = replace(HERE, isr=(1,), min_isr=2)
    plan = {("t", 0): MOVE, ("t", 1): MOVE}
    step = next_step(plan, {("t", 0): below, ("t", 1): HERE}, ALIVE, ExecutionCaps())
    assert step.held == {("t", 0): "it has fewer replicas in sync than min.insync.replicas"}
    assert list(step.start) == [("t", 1)]
    # While a moving partition is below its min.insync.replicas, no other move begins.
    moving = replace(ON_ITS_WAY, isr=(2,), leader=2, min_isr=2)
    step = next_step(plan, {("t", 0): moving, ("t", 1): HERE}, ALIVE, ExecutionCaps())
    assert (step.moving, list(step.held)) == ([("t", 0)], [("t", 1)])
    fewer = next_step(
        {("t", 0): PlannedMove((1, 2), (3,))}, {("t", 0): replace(HERE, min_isr=2)}, ALIVE, ExecutionCaps()
    )
    assert fewer.held == {("t", 0): "it would have fewer replicas than min.insync.replicas"}
    assert next_step({("t", 0): MOVE}, {("t", 0): replace(HERE, leader=-1)}, ALIVE, ExecutionCaps()).held


@pytest.mark.parametrize("seed", range(30))
def test_a_run_in_a_cluster_that_was_never_there(seed: int) -> None:
    """Caps hold at each step, and the plan is completed."""
    random = Random(seed)
    brokers = list(range(1, 7))
    plan = {}
    for number in range(40):
        plan["t", number] = PlannedMove(tuple(random.sample(brokers, 2)), tuple(random.sample(brokers, 2)))
    seen = {place: PlacedPartition(each.now, each.now, each.now[0]) for place, each in plan.items()}
    caps = ExecutionCaps(moves=random.randint(1, 8), moves_per_broker=random.randint(1, 3))
    for _ in range(500):
        step = next_step(plan, seen, set(brokers), caps)
        if step.is_over:
            break
        assert not step.held
        copying = [place for place in (*step.moving, *step.start) if plan[place].added]
        assert len(copying) <= caps.moves
        busy = [broker for place in copying for broker in plan[place].added]
        assert max(map(busy.count, busy), default=0) <= caps.moves_per_broker
        for place, replicas in step.start.items():
            before = seen[place]
            added = tuple(sorted(set(replicas) - set(before.replicas)))
            removed = tuple(sorted(set(before.replicas) - set(replicas)))
            seen[place] = replace(before, replicas=(*replicas, *removed), adding=added, removing=removed)
        for place in random.sample(step.moving, (len(step.moving) + 1) // 2):
            target = plan[place].replicas
            leader = seen[place].leader if seen[place].leader in target else target[-1]
            seen[place] = PlacedPartition(target, target, leader)
        for place in step.elect:
            seen[place] = replace(seen[place], leader=seen[place].replicas[0])
    assert step.is_over
    assert {place: each.replicas for place, each in seen.items()} == {
        place: each.replicas for place, each in plan.items()
    }


def test_directories_of_a_broker_get_equally_full() -> None:
    replicas = tuple(StoredReplica("t", number, 1, 10 + number, (1, 2)) for number in range(10))
    full, empty = BrokerDirectory(1, "/a", replicas), BrokerDirectory(1, "/b", ())
    moves = directory_moves([full, empty], {("t", 9)})
    moved = sum(each.replica.size for each in moves)
    assert {each.path for each in moves} == {"/b"}
    assert abs(moved - 145 / 2) <= 145 * 0.05
    assert ("t", 9) not in {(each.replica.topic, each.replica.partition) for each in moves}
    assert len(directory_moves([full, empty], (), most_moves=1)) == 1
    assert directory_moves([replace(full, replicas=()), empty], ()) == []
    one = BrokerDirectory(1, "/a", replicas[:1])
    assert directory_moves([one, empty], ()) == []


def test_files_that_are_no_plan() -> None:
    whole = {"version": 1, "cluster_id": "c", "coverage": 0.95}
    row = {"topic": "t", "partition": 0, "now": [1, 2], "replicas": [3, 2], "log_dirs": ["/a", "any"]}
    found = read_plan(json.dumps({**whole, "partitions": [row]}))
    assert found.moves == {("t", 0): MOVE}
    assert found.directories == {("t", 0, 3): "/a"}
    for partitions, said in (
        ([row, row], "t-0 twice"),
        ([{**row, "replicas": [3, 3]}], "no list of different brokers"),
        ([{**row, "replicas": []}], "no list of different brokers"),
        ([{**row, "log_dirs": ["any"]}], "no list of different brokers"),
        ([{"topic": "t", "partition": 0, "replicas": [1]}], "without topic, partition, now or replicas"),
        ([7], "without topic, partition, now or replicas"),
        (None, "no list `partitions`"),
    ):
        with pytest.raises(ValueError, match=said):
            read_plan(json.dumps({**whole, "partitions": partitions}))
    with pytest.raises(ValueError, match="no JSON"):
        read_plan("{")


def test_files_of_loads() -> None:
    text = '{"topic": "t", "partition": 0, "bytes_in": 5, "size": 9, "other": 1}\n\n'
    assert read_loads(text) == {("t", 0): PartitionRates(5.0, size=9.0)}
    assert told_by(read_loads(text)) == frozenset()
    whole = '{"topic": "t", "partition": 1, "bytes_in": 5, "bytes_out": 0, "leader_cpu": 0.1, "follower_cpu": 0}\n'
    assert read_loads(whole) == {("t", 1): PartitionRates(5.0, 0.0, None, 0.1, 0.0)}
    assert told_by(read_loads(whole)) == {LoadResource.BYTES_OUT, LoadResource.CPU}
    assert told_by(read_loads(text + whole)) == frozenset()
    for line, said in (
        ('{"topic": "t", "partition": 0}', "line 1 of the loads: has no 'bytes_in'"),
        ('{"topic": "t", "partition": 0, "bytes_in": -1}', "bytes_in is no number from 0 on"),
        ('{"topic": "t", "partition": 0, "bytes_in": NaN}', "bytes_in is no number from 0 on"),
        (text + text, "line 3 of the loads: t-0 has a line before this one"),
        ("[", "line 1 of the loads"),
        ("", "the loads have no partition"),
    ):
        with pytest.raises(ValueError, match=said) as refused:
            read_loads(line)
        assert "\n" not in str(refused.value)


def test_brokers_that_are_gone_for_long() -> None:
    gone = GoneBrokers(30)
    assert gone.note([4], 100) == []
    assert gone.note([4, 3], 120) == []
    assert gone.note([4, 3], 130) == [4]
    assert gone.note([3], 140) == []
    assert gone.note([4, 3], 150) == [3]
    assert gone.since(4) == 150
