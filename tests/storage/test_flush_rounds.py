"""flush.messages is a promise: no record is acknowledged or read before the fsync that covers it, and waiters share
it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from pykbroker.replica.commit import NEVER
from pykbroker.replica.partition import Partition
from pykbroker_log.memory_disk import Survive
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.stored.metadata import ConfigRecord
from tests.replica.world import NOW_MS, World, batch, topic

LOG = "/00000000000000000000.log"


class Threads:
    """Calls wait until the test runs them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting: list[tuple[asyncio.Future[Any], Callable[..., Any], tuple[object, ...]]] = []
        world.runtime.run_blocking = self._submit  # type: ignore[method-assign]

    def _submit(self, function: Callable[..., Any], *args: object) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._world.runtime.loop.create_future()
        self._waiting.append((future, function, args))
        return future

    def __len__(self) -> int:
        self._world.loop.settle()
        return len(self._waiting)

    def run(self) -> list[str]:
        """Run the calls that wait. Return the files that were fsynced."""
        self._world.loop.settle()
        before = len(self._world.disk.calls)
        waiting, self._waiting = self._waiting, []
        for future, function, args in waiting:
            try:
                future.set_result(function(*args))
            except Exception as error:  # noqa: BLE001  # any error of a call is its result
                future.set_exception(error)
        fsynced = [call.path for call in self._world.disk.calls[before:] if call.operation == "fsync"]
        self._world.loop.settle()
        return fsynced


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def threads(world: World) -> Threads:
    return Threads(world)


class Told:
    """The result of a waiter."""

    def __init__(self, partition: Partition, *, acks: int = -1, value: bytes = b"x", **fields: Any) -> None:
        self.code: ErrorCode | None = None
        info = partition.append(batch(value, **fields), required_acks=acks, now_ms=NOW_MS)
        self.offset = info.last_offset
        wait = partition.when_committed if acks == -1 else partition.when_flushed
        wait(info.last_offset + 1, self._tell)

    def _tell(self, code: ErrorCode) -> None:
        assert self.code is None
        self.code = code


def configure(world: World, name: str, messages: int) -> None:
    world.publish(ConfigRecord(resource_type=2, resource_name=name, name="flush.messages", value=str(messages)))


def codes(*told: Told) -> list[ErrorCode | None]:
    return [each.code for each in told]


@pytest.mark.parametrize("acks", [-1, 1])
def test_nothing_is_answered_or_read_before_its_fsync(world: World, threads: Threads, acks: int) -> None:
    partition = world.create("t", flush_messages="1")
    threads.run()
    first, second = Told(partition, acks=acks), Told(partition, acks=acks)
    assert (codes(first, second), partition.high_watermark) == ([None] * 2, 0)
    assert partition.read(0, 1000, read_committed=False, min_one=True).size == 0
    assert threads.run().count(f"d0/t-0{LOG}") == 1
    assert (codes(first, second), partition.high_watermark) == ([ErrorCode.NONE] * 2, 2)
    assert partition.owed_from == NEVER


def test_who_comes_during_a_round_waits_for_the_next(world: World, threads: Threads) -> None:
    partition = world.create("t", flush_messages="1")
    first = Told(partition)
    assert len(threads) == 1
    second, third = Told(partition), Told(partition)
    threads.run()
    assert codes(first, second, third) == [ErrorCode.NONE, None, None]
    assert partition.high_watermark == 1
    threads.run()
    assert codes(second, third) == [ErrorCode.NONE] * 2
    assert len(threads) == 0


def test_partitions_share_a_round_and_directories_do_not(threads: Threads) -> None:
    world = World(directories=2)
    threads = Threads(world)
    world.create("t", partitions=6, flush_messages="1")
    told = [Told(world.replicas.get("t", index)) for index in range(6)]
    assert len(threads) == 2
    threads.run()
    assert {each.code for each in told} == {ErrorCode.NONE}


def test_a_thousand_messages_are_flushed_once_and_the_others_answered_at_once(world: World, threads: Threads) -> None:
    partition = world.create("t", flush_messages="3")
    threads.run()
    for _ in range(3):
        start = partition.log.log_end_offset
        assert [Told(partition, acks=1).code for _ in range(2)] == [ErrorCode.NONE] * 2
        assert len(threads) == 0
        crossing = Told(partition)
        assert crossing.code is None
        # Records below the threshold stay readable, and later ones wait as well.
        behind = Told(partition, acks=1)
        assert (partition.high_watermark, behind.code) == (start + 2, None)
        threads.run()
        assert codes(crossing, behind) == [ErrorCode.NONE] * 2
        assert partition.high_watermark == start + 4
        partition.log.flush()


def test_acks_one_waits_for_its_flush_and_acks_all_for_the_replicas_too(world: World, threads: Threads) -> None:
    partition = world.create("t", replicas=(1, 2), flush_messages="1")
    one, every = Told(partition, acks=1), Told(partition, acks=-1)
    partition.note_fetched(2, 2)
    assert (codes(one, every), partition.high_watermark) == ([None] * 2, 0)
    threads.run()
    assert (codes(one, every), partition.high_watermark) == ([ErrorCode.NONE] * 2, 2)
    late = Told(partition, acks=-1)
    threads.run()
    assert late.code is None
    partition.note_fetched(2, 3)
    assert late.code is ErrorCode.NONE


def test_a_repeated_batch_waits_for_the_flush_of_the_first(world: World, threads: Threads) -> None:
    partition = world.create("t", flush_messages="1")
    fields: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    first, again = Told(partition, acks=1, **fields), Told(partition, acks=1, **fields)
    assert (first.offset, again.offset) == (0, 0)
    assert again.code is None
    threads.run()
    assert codes(first, again) == [ErrorCode.NONE] * 2


def test_the_topic_configuration_acts_at_once(world: World, threads: Threads) -> None:
    partition = world.create("t")
    assert Told(partition).code is ErrorCode.NONE
    configure(world, "t", 1)
    owing = Told(partition)
    assert owing.code is None
    configure(world, "t", NEVER)
    # The promise is kept, and later records cannot overtake it.
    behind = Told(partition)
    assert (codes(owing, behind), partition.high_watermark) == ([None] * 2, 1)
    threads.run()
    assert (codes(owing, behind), partition.high_watermark) == ([ErrorCode.NONE] * 2, 3)
    assert Told(partition).code is ErrorCode.NONE
    assert len(threads) == 0


def test_what_a_killed_process_has_left_is_readable_and_not_yet_acknowledged(world: World) -> None:
    fields: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    records = topic("t", 1, (1,), flush_messages="1")
    Told(world.create("t"), **fields)
    again = World(disk=world.disk.power_loss(Survive.EVERYTHING))
    again.publish(*records)
    again.replicas.start()
    again.loop.settle()
    threads = Threads(again)
    partition = again.replicas.get("t", 0)
    assert (partition.log.log_end_offset, partition.high_watermark) == (1, 1)
    assert len(threads) == 1
    repeated = Told(partition, acks=1, **fields)
    assert (repeated.offset, repeated.code) == (0, None)
    threads.run()
    assert repeated.code is ErrorCode.NONE


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("acks", [-1, 1])
def test_a_failed_fsync_fails_all_who_wait_and_is_never_tried_again(
    world: World, threads: Threads, acks: int, code: int
) -> None:
    world.create("t", partitions=3, flush_messages="1")
    partitions = [world.replicas.get("t", index) for index in range(3)]
    threads.run()
    told = [Told(partition, acks=acks) for partition in partitions]
    world.disk.fail_next("fsync", code, path_contains="t-1" + LOG)
    assert len(threads) == 1
    late = Told(partitions[2], acks=acks)
    threads.run()
    assert {each.code for each in [*told, late]} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert [failure[0].path for failure in world.failures] == ["d0"]
    assert all(partition.offline for partition in partitions)
    for partition in partitions:
        with pytest.raises(KafkaError) as refused:
            partition.append(batch(b"x"), required_acks=acks, now_ms=NOW_MS)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert threads.run() == []


def test_a_directory_that_fails_leaves_the_other_alone() -> None:
    world = World(directories=2)
    threads = Threads(world)
    world.create("t", partitions=2, flush_messages="1")
    first, second = (world.replicas.get("t", index) for index in range(2))
    told = Told(first), Told(second)
    world.disk.fail_next("fsync", path_contains=first.log.path + LOG)
    threads.run()
    assert sorted(each.code.name for each in told if each.code is not None) == ["KAFKA_STORAGE_ERROR", "NONE"]


def test_a_partition_that_goes_away_tells_who_waits(world: World, threads: Threads) -> None:
    partition = world.create("t", flush_messages="1")
    deleted = Told(partition), Told(partition, acks=1)
    assert len(threads) == 1
    world.delete("t")
    assert [each.code for each in deleted] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    threads.run()
    assert not world.failures


def test_flushes_that_nobody_waits_for_do_not_hold_up_the_others(world: World, threads: Threads) -> None:
    """A gigabyte of a segment that ended may take seconds."""
    idle, promised = world.create("idle", flush_ms="0"), world.create("t", flush_messages="1")
    threads.run()
    Told(idle)
    upkeep = world.upkeep()
    upkeep._flush_due()
    assert len(threads) == 1
    told = Told(promised)
    assert len(threads) == 2
    threads._waiting.reverse()
    threads.run()
    assert told.code is ErrorCode.NONE
    assert idle.log.recovery_point == 1


def test_a_log_is_in_one_round_at_a_time(world: World, threads: Threads) -> None:
    partition = world.create("t", flush_messages="1", flush_ms="0")
    threads.run()
    world.replicas.logs.flusher.want(partition.log)
    assert len(threads) == 1
    told = Told(partition)
    assert len(threads) == 1
    threads.run()
    assert told.code is None
    threads.run()
    assert told.code is ErrorCode.NONE


def test_flushes_are_counted_under_kafkas_name(world: World, threads: Threads) -> None:
    partition = world.create("t", flush_messages="1")
    name = "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs"
    before = world.metrics.snapshot()[name]
    Told(partition)
    threads.run()
    assert world.metrics.snapshot()[name] == before + 1
