"""The controller's answers about an ISR, and their effect on the leader."""

from __future__ import annotations

import logging

import pytest

from pykbroker.replica.isr_updates import PER_TURN
from pykbroker.replica.partition import Partition
from pykbroker_wire.errors import ErrorCode
from testkit.acting import acts
from tests.replica.world import NOW_MS, World, batch

MANAGER = "kafka.server:type=ReplicaManager,name="


class Led:
    """Partition 0 of t on brokers 1, 2 and 3. The ISR is 1 and 2, and 3 has caught up."""

    def __init__(self) -> None:
        self.world = World()
        self.partition = self.world.create("t", replicas=(1, 2, 3))
        self.world.register(1, 2, 3)
        self.world.change(self.partition, isr=[1, 2])
        self.append()
        self.partition.note_fetched(2, 1, broker_epoch=7)
        self.partition.note_fetched(3, 1, broker_epoch=7)

    def append(self) -> None:
        self.partition.append(batch(b"x"), required_acks=1, now_ms=NOW_MS)

    def isr(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the committed set and the maximal one."""
        leader = self.partition.leader
        assert leader is not None
        return leader.isr.committed, leader.isr.maximal

    def counts(self) -> tuple[float, float, float]:
        """Return the counts of expansions, shrinkings and failures."""
        found = self.world.metrics.snapshot()
        expands, shrinks = found[MANAGER + "IsrExpandsPerSec"], found[MANAGER + "IsrShrinksPerSec"]
        return expands, shrinks, found[MANAGER + "FailedIsrUpdatesPerSec"]


@pytest.fixture
def led() -> Led:
    return Led()


def test_the_controller_agrees(led: Led) -> None:
    assert led.world.asked_isr == [1, 2, 3]
    assert led.isr() == ((1, 2), (1, 2, 3))
    led.world.answer_isr()
    assert led.isr() == ((1, 2, 3), (1, 2, 3))
    assert led.counts() == (1, 0, 0)


def test_the_isr_that_shrank_commits_what_it_has(led: Led) -> None:
    led.world.answer_isr()
    led.append()
    led.partition.note_fetched(2, 2, broker_epoch=7)
    led.world.loop.advance(31)
    led.partition.note_fetched(2, 2, broker_epoch=7)
    led.partition.shrink_isr()
    assert led.world.asked_isr == [1, 2]
    assert led.partition.high_watermark == 1
    led.world.answer_isr()
    assert led.partition.high_watermark == 2
    assert led.counts() == (1, 1, 0)


def test_one_question_at_a_time(led: Led) -> None:
    led.partition.note_fetched(3, 1, broker_epoch=7)
    led.world.loop.advance(60)
    led.append()
    led.partition.shrink_isr()
    assert len(led.world.isr_requests) == 1


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_what_was_certainly_not_done_is_asked_again_with_the_next_fetch(led: Led, code: ErrorCode) -> None:
    led.world.answer_isr(code)
    assert led.isr() == ((1, 2), (1, 2))
    assert led.counts() == (0, 0, 1)
    led.partition.note_fetched(3, 1, broker_epoch=7)
    assert led.world.asked_isr == [1, 2, 3]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_what_may_have_been_done_stays_open_until_the_metadata_says(led: Led, code: ErrorCode) -> None:
    led.world.answer_isr(code)
    assert led.isr() == ((1, 2), (1, 2, 3))
    assert led.counts() == (0, 0, 1)
    led.append()
    led.partition.note_fetched(2, 2, broker_epoch=7)
    assert led.partition.high_watermark == 1
    led.world.change(led.partition, isr=[1, 2])
    assert led.isr() == ((1, 2), (1, 2))


def test_an_answer_after_the_metadata_is_ignored(led: Led) -> None:
    led.world.change(led.partition, isr=[1])
    led.world.answer_isr(isr=[1, 2, 3])
    assert led.isr() == ((1,), (1,))
    assert led.counts() == (0, 0, 0)


def test_the_metadata_may_be_before_the_answer(led: Led) -> None:
    """Then it did not count as an expansion."""
    led.world.change(led.partition, isr=[1, 2, 3])
    assert led.isr() == ((1, 2, 3), (1, 2, 3))
    assert led.counts() == (1, 0, 0)
    led.world.answer_isr()
    assert led.counts() == (1, 0, 0)


def test_an_answer_to_a_former_leader_is_ignored(led: Led) -> None:
    led.world.change(led.partition, leader=1)
    led.world.answer_isr()
    assert led.isr() == ((1, 2), (1, 2))
    led.partition.note_fetched(3, 1, broker_epoch=7)
    led.world.change(led.partition, leader=2)
    led.world.answer_isr()
    assert led.partition.leader is None
    assert led.counts() == (0, 0, 0)


@pytest.mark.parametrize("field", ["leader_epoch", "partition_epoch"])
def test_an_answer_about_another_epoch_decides_nothing(led: Led, field: str) -> None:
    led.world.answer_isr(ErrorCode.NONE, **{field: 5 if field == "leader_epoch" else 0})
    assert led.isr() == ((1, 2), (1, 2, 3))
    assert led.counts() == (0, 0, 1)


def test_metadata_from_before_the_answer_changes_nothing(led: Led) -> None:
    led.world.answer_isr(partition_epoch=9)
    led.world.change(led.partition, isr=[1])
    assert led.isr() == ((1, 2, 3), (1, 2, 3))


def test_what_is_logged(led: Led, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        led.world.answer_isr()
        led.append()
        led.world.loop.advance(31)
        led.partition.shrink_isr()
    assert [record.getMessage() for record in caplog.records] == [
        "Partition t-0: the ISR is [1, 2, 3] from partition epoch 2 on",
        "Partition t-0: asking to shrink the ISR from [1, 2, 3] to [1]. The log ends at offset 2. Out of sync: "
        "broker 2 (end offset 1), broker 3 (end offset 1)",
    ]


@pytest.mark.slow
@acts(broker=("replica.lag.time.max.ms",))
def test_every_half_of_the_lag_it_is_looked_who_has_fallen_behind_some_a_turn() -> None:
    world = World(config={"replica.lag.time.max.ms": "10000"})
    count = PER_TURN + 3
    world.create("t", count, replicas=(1, 2))
    partitions: list[Partition] = list(world.replicas)
    for partition in partitions:
        partition.append(batch(b"x"), required_acks=1, now_ms=NOW_MS)
    expiration = world.replicas.isr_expiration
    expiration.start()
    world.loop.advance(10)
    assert not world.isr_requests
    world.loop.advance(4.9)
    assert not world.isr_requests
    world.loop.advance(0.1)
    assert len(world.isr_requests) == count
    expiration.stop()
    assert not world.loop.sleeping()


def test_gauges_of_the_replicas(led: Led) -> None:
    def gauges() -> list[float]:
        found = led.world.metrics.snapshot()
        names = ("UnderReplicatedPartitions", "UnderMinIsrPartitionCount", "AtMinIsrPartitionCount")
        return [found[MANAGER + name] for name in names]

    other = led.world.create("u", replicas=(1, 2), min_insync_replicas="2")
    assert gauges() == [1, 0, 1]
    led.world.change(other, isr=[1])
    assert gauges() == [2, 1, 0]
    found = led.world.metrics.snapshot()
    partition = "kafka.cluster:type=Partition,name={},topic=u,partition=0"
    assert [found[partition.format(name)] for name in ("InSyncReplicasCount", "ReplicasCount", "UnderMinIsr")] == [
        1,
        2,
        1,
    ]
