"""A fetch that waits is notified of changes of its partitions, once, and leaves nothing over."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.replica.deadlines import Deadlines
from pykbroker.replica.parked import Isolation, ParkedFetch
from pykbroker.replica.partition import Partition
from tests.coordinator.fakes import as_loop
from tests.replica.world import NOW_MS, World, batch


class Reader:
    """Returns a number of missing bytes until there are enough."""

    def __init__(self, missing: int = 1) -> None:
        self.missing = missing
        self.reads: list[bool] = []
        self.enough = False

    def __call__(self, final: bool) -> Any:
        self.reads.append(final)
        return "answer" if final or self.enough else self.missing


def park(
    world: World,
    partitions: list[Partition],
    reader: Reader,
    wait_seconds: float = 1.0,
    isolation: Isolation = Isolation.HIGH_WATERMARK,
) -> ParkedFetch:
    deadlines = Deadlines(as_loop(world.loop))
    return ParkedFetch(deadlines, lambda: partitions, reader.missing, wait_seconds, reader, isolation=isolation)


@pytest.fixture
def world() -> World:
    return World()


def test_bytes_that_arrive_answer_it(world: World) -> None:
    partition = world.create("t")
    reader = Reader()
    reader.enough = True
    parked = park(world, [partition], reader)
    partition.append(batch(b"x"), required_acks=1, now_ms=NOW_MS)
    assert not parked.future.done()
    world.loop.settle()
    assert parked.future.result() == "answer"
    assert reader.reads == [False]
    assert not partition.fetch_waiters


def test_too_few_bytes_are_not_read(world: World) -> None:
    partition = world.create("t")
    size = len(batch(b"x"))
    reader = Reader(3 * size)
    park(world, [partition], reader)
    for count in range(1, 7):
        partition.append(batch(b"x"), required_acks=1, now_ms=NOW_MS)
        world.loop.settle()
        assert len(reader.reads) == count // 3


def test_at_its_deadline_it_is_answered_with_what_there_is(world: World) -> None:
    partition = world.create("t")
    reader = Reader()
    parked = park(world, [partition], reader)
    world.loop.advance(0.9)
    assert not parked.future.done()
    world.loop.advance(0.2)
    assert reader.reads == [True]
    assert not partition.fetch_waiters


def test_cancelled_it_leaves_nothing_behind(world: World) -> None:
    partition = world.create("t")
    reader = Reader()
    parked = park(world, [partition], reader)
    parked.future.cancel()
    world.loop.settle()
    assert not partition.fetch_waiters
    # Its tick passes without it.
    world.loop.advance(2)
    assert not reader.reads
    assert not world.loop.sleeping()


def test_many_partitions_that_change_in_one_turn_are_one_read(world: World) -> None:
    """Before, it read all its partitions once for each that had changed: a thousand times a thousand."""
    world.create("t", 20)
    partitions = [world.replicas.get("t", index) for index in range(20)]
    reader = Reader()
    park(world, partitions, reader)
    for partition in partitions:
        partition.append(batch(b"x"), required_acks=1, now_ms=NOW_MS)
    world.loop.settle()
    assert len(reader.reads) == 1


@pytest.mark.parametrize("what", ["moves away", "new epoch", "deleted", "offline"])
def test_whatever_happens_to_a_partition_it_is_read_again(world: World, what: str) -> None:
    partition = world.create("t")
    reader = Reader(1_000_000)
    park(world, [partition], reader)
    match what:
        case "moves away":
            world.change(partition, leader=2)
        case "new epoch":
            world.change(partition, leader=1)
        case "deleted":
            world.delete("t")
        case "offline":
            partition.handle.take_offline()
    world.loop.settle()
    assert reader.reads == [False]


def test_bytes_count_when_the_replica_set_has_them_not_when_they_are_appended(world: World) -> None:
    """Records that were appended before it parked and committed after that did not wake it."""
    partition = world.create("t", replicas=(1, 2))
    partition.append(batch(b"x"), required_acks=1, now_ms=NOW_MS)
    partition.append(batch(b"y"), required_acks=1, now_ms=NOW_MS)
    reader = Reader(1_000_000)
    park(world, [partition], reader)
    for offset, reads in ((0, 0), (1, 1), (2, 2)):
        partition.note_fetched(2, offset)
        world.loop.settle()
        assert (partition.high_watermark, len(reader.reads)) == (offset, reads)


@pytest.mark.parametrize("isolation", list(Isolation))
def test_a_follower_is_woken_by_the_append_and_a_client_by_the_commit(world: World, isolation: Isolation) -> None:
    """An append that was not committed yet woke no fetch, not even a follower's."""
    partition = world.create("t", replicas=(1, 2))
    reader = Reader()
    reader.enough = True
    parked = park(world, [partition], reader, isolation=isolation)
    partition.append(batch(b"x"), required_acks=1, now_ms=NOW_MS)
    world.loop.settle()
    assert parked.future.done() is (isolation is Isolation.LOG_END)
    partition.note_fetched(2, 1)
    world.loop.settle()
    assert parked.future.result() == "answer"


def test_too_few_bytes_are_not_read_for_a_follower_either(world: World) -> None:
    partition = world.create("t", replicas=(1, 2))
    reader = Reader(2 * len(batch(b"x")))
    park(world, [partition], reader, isolation=Isolation.LOG_END)
    for count in (1, 2):
        partition.append(batch(b"x"), required_acks=1, now_ms=NOW_MS)
        world.loop.settle()
        assert len(reader.reads) == count // 2


def test_a_bug_in_one_read_keeps_no_other_fetch_waiting(world: World) -> None:
    partition = world.create("t")

    def broken(final: bool) -> Any:
        raise ZeroDivisionError

    first = ParkedFetch(Deadlines(as_loop(world.loop)), lambda: [partition], 1, 1.0, broken)
    reader = Reader()
    reader.enough = True
    second = park(world, [partition], reader)
    partition.append(batch(b"x"), required_acks=1, now_ms=NOW_MS)
    world.loop.settle()
    assert isinstance(first.future.exception(), ZeroDivisionError)
    assert second.future.result() == "answer"
