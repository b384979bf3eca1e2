"""Periodic upkeep of logs: the files that retention deletes, and the gauges of each log."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykbroker.replica.partition import Partition
from pykbroker.storage import upkeep
from pykbroker_log.disk import ColdRead
from pykbroker_log.jumps import Jumps
from pykbroker_log.log_config import StorageError
from pykbroker_log.memory_disk import MemoryFile
from pykbroker_log.offset_checkpoints import OffsetCheckpoints
from pykbroker_wire.records.batch import build_batch
from testkit.acting import acts
from tests.replica.world import NOW_MS, World, batch, topic

SMALL: dict[str, Any] = {"internal.segment.bytes": "100", "retention.bytes": "1"}
AGED: dict[str, Any] = {"internal.segment.bytes": "100", "retention.ms": "1000"}


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    running = world.upkeep()
    running.start()
    yield world
    running.stop()
    world.loop.settle()


def fill(partition: Partition) -> None:
    for _ in range(4):
        partition.append(batch(b"x" * 20), required_acks=1, now_ms=NOW_MS)
    assert len(partition.log.files.segments) == 4


def files(world: World, suffix: str, folder: str = "t-0") -> int:
    return sum(name.endswith(suffix) for name in world.disk.list(f"d0/{folder}"))


def test_names_go_as_soon_as_the_log_start_is_noted_and_files_after_the_delay(world: World) -> None:
    fill(world.create("t", **SMALL))
    # log.initial.task.delay.ms, then the checkpoint of the log start, long before its own interval.
    world.loop.advance(30)
    assert files(world, ".log") == 4
    world.loop.advance(3)
    assert (files(world, ".log"), files(world, ".log.deleted")) == (1, 3)
    world.loop.advance(57)
    assert files(world, ".log.deleted") == 3
    world.loop.advance(5)
    assert files(world, ".deleted") == 0


def test_retention_does_not_wait_for_the_ages_of_segments_that_are_not_in_memory(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(world.create("t", **AGED))
    world.log_dirs[0].close(clean=True)
    again = World(disk=world.disk)
    again.publish(*topic("t", 1, (1,), **AGED))
    again.replicas.start()
    log = again.replicas.get("t", 0).log
    log.set_high_watermark(log.log_end_offset)
    loads: list[asyncio.Future[None]] = []

    def run_blocking(function: Any, *arguments: Any) -> asyncio.Future[None]:
        loads.append(again.loop.create_future())
        loads[-1].add_done_callback(lambda done: function(*arguments))
        return loads[-1]

    monkeypatch.setattr(again.runtime, "run_blocking", run_blocking)
    again.disk.make_cold()
    upkeep.retire(again.replicas.logs, log, NOW_MS + 5_000)
    assert (len(loads), len(log.files.segments)) == (1, 4)
    loads[0].set_result(None)
    again.loop.settle()
    # One load was enough for all of them. The active segment has expired too, and was replaced.
    assert (len(loads), len(log.files.segments)) == (1, 1)
    assert log.log_start_offset == 4


def test_retention_that_meets_a_broken_disk_on_its_second_look_costs_the_directory(world: World) -> None:
    partition = world.create("t", **SMALL)
    fill(partition)

    def retire(now_ms: int, jumps: Jumps, *, wait: bool = True) -> int:
        if not wait and not failed:
            failed.append(True)
            raise ColdRead(world.disk.open("d0/t-0/00000000000000000000.log"), 0, 1)
        raise StorageError("d0", OSError(errno.EIO, "broken"))

    failed: list[bool] = []
    log = cast(Any, SimpleNamespace(retire=retire, name="t-0"))
    upkeep.retire(world.replicas.logs, log, NOW_MS)
    assert not world.failures
    world.loop.settle()
    assert [log_dir.path for log_dir, _ in world.failures] == ["d0"]


def test_a_full_disk_is_no_reason_to_keep_what_would_make_room(world: World) -> None:
    fill(world.create("t", **SMALL))
    world.disk.fail_next("pwritev", errno.ENOSPC, path_contains="log-start-offset", count=None)
    world.loop.advance(35)
    assert (files(world, ".log"), files(world, ".log.deleted")) == (1, 3)
    assert not world.failures
    world.loop.advance(65)
    assert files(world, ".deleted") == 0


def test_a_file_that_cannot_be_deleted_takes_its_directory_offline(world: World) -> None:
    fill(world.create("t", **SMALL))
    world.disk.fail_next("unlink", errno.EIO, path_contains=".log.deleted")
    world.loop.advance(35)
    assert not world.failures
    world.loop.advance(65)
    assert [log_dir.path for log_dir, _ in world.failures] == ["d0"]


def test_many_logs_are_looked_at_a_few_in_a_turn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "PER_TURN", 3)
    world.create("t", partitions=10, **SMALL)
    for index in range(10):
        fill(world.replicas.get("t", index))
    world.loop.advance(35)
    assert [files(world, ".log", f"t-{index}") for index in range(10)] == [1] * 10


def test_compacted_logs_are_the_cleaners(world: World) -> None:
    partition = world.create("t", **(SMALL | {"cleanup.policy": "compact,delete"}))
    for _ in range(4):
        keyed = bytearray(build_batch([(b"k", b"x" * 20, (), NOW_MS)]))
        partition.append(keyed, required_acks=1, now_ms=NOW_MS)
    world.loop.advance(35)
    assert partition.log.log_start_offset == 0


def test_every_log_has_its_numbers_as_long_as_it_is_there(world: World) -> None:
    partition = world.create("t", **SMALL)
    fill(partition)
    partition.delete_records_before(2)

    def numbers() -> dict[str, float]:
        prefix = "kafka.log:type=Log,name="
        found = world.metrics.snapshot().items()
        return {name.removeprefix(prefix): value for name, value in found if name.startswith(prefix)}

    tags = ",topic=t,partition=0"
    assert numbers() == {
        f"LogEndOffset{tags}": 4,
        f"LogStartOffset{tags}": 2,
        f"NumLogSegments{tags}": 4,
        f"Size{tags}": partition.log.size_bytes,
    }
    world.delete("t")
    assert numbers() == {}


@acts(broker=("pykbroker.write.back.bytes",))
@pytest.mark.parametrize(("bound", "asked"), [("1000", [(0, 1280)]), ("1400", []), ("0", [])])
def test_what_is_much_is_sent_to_the_device_early(
    monkeypatch: pytest.MonkeyPatch, bound: str, asked: list[tuple[int, int]]
) -> None:
    world = World()
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(MemoryFile, "write_back", lambda file, position, size: seen.append((position, size)))
    running = world.upkeep(pykbroker_write_back_bytes=bound)
    running.start()
    partition = world.create("t")
    for _ in range(4):
        partition.append(batch(b"x" * 250), required_acks=1, now_ms=NOW_MS)
    world.loop.advance(1)
    assert seen == asked
    world.loop.advance(1)
    assert seen == asked, "once"
    running.stop()
    world.loop.settle()


def test_a_log_that_is_written_to_goes_to_the_device_in_small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """One large portion would hold up appends in the meantime."""
    world = World()
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(MemoryFile, "write_back", lambda file, position, size: seen.append((position, size)))
    running = world.upkeep(pykbroker_write_back_bytes="1000")
    running.start()
    partition = world.create("t")

    def append() -> None:
        for _ in range(4):
            partition.append(batch(b"x" * 250), required_acks=1, now_ms=NOW_MS)

    append()
    world.loop.advance(0.2)
    assert seen == [(0, 1280)]
    for number in range(1, 4):
        append()
        world.loop.advance(0.02)
        assert seen[number:] == [(1280 * number, 1280)]
    world.loop.advance(1)
    append()
    world.loop.advance(0.04)
    assert len(seen) == 4, "it was left alone when nothing came any more"
    world.loop.advance(0.2)
    assert len(seen) == 5, "and is found again"
    append()
    world.delete("t")
    world.loop.advance(1)
    running.stop()
    world.loop.settle()


def test_a_checkpoint_is_written_at_the_next_time_when_it_could_not_be_prepared(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a recovery would begin at an ever older offset."""
    prepare = OffsetCheckpoints.prepare_recovery_points
    tries: list[bool] = []

    def fails_once(checkpoints: OffsetCheckpoints) -> Callable[[], None]:
        tries.append(True)
        if len(tries) == 1:
            raise RuntimeError("planted")
        return prepare(checkpoints)

    monkeypatch.setattr(OffsetCheckpoints, "prepare_recovery_points", fails_once)
    world.create("t")
    with pytest.raises(RuntimeError, match="planted"):
        world.loop.advance(200)
    world.loop.advance(200)
    assert len(tries) > 1
    assert world.disk.exists("d0/recovery-point-offset-checkpoint")
