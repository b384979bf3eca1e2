"""A follower whose leader's log was compacted moves between directories: its gaps are no loss."""

from __future__ import annotations

import logging

import pytest

from pykbroker.replica.partition import Partition
from pykbroker.storage import moves
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.stored.metadata import PartitionChangeRecord
from tests.replica.world import NOW_MS, World, batch, directory_id, topic, topic_id
from tests.storage.truncating import Told, followed

CONFIG = {"internal_segment_bytes": "300", "file_delete_delay_ms": "0"}
#: base offsets: a gap at the end of each segment
OFFSETS = tuple(range(0, 200, 10))


def base_offsets(log: PartitionLog) -> tuple[int, ...]:
    found: list[int] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        for _, header in iter_batches(log.read(offset, 1 << 20, log.log_end_offset).joined()):
            found.append(header.base_offset)
            offset = header.next_offset
    return tuple(found)


def gappy(world: World) -> Partition:
    """Return a replica that follows, with a gap before each batch."""
    partition, follower = followed(world, records=0, **CONFIG)
    told = Told()
    follower.note_gaps(told)
    world.loop.settle()
    assert told.codes == [ErrorCode.NONE]
    for offset in OFFSETS:
        sent = batch(b"%d" % offset + b"x" * 100)
        sent[0:8] = offset.to_bytes(8, "big")
        follower.append(sent, now_ms=NOW_MS)
    follower.agree(OFFSETS[-1], 0)
    assert len(partition.log.files.segments) > 5
    return partition


def move(world: World, partition: Partition) -> str:
    """Move it to the other directory. Returns the folder."""
    target = f"d{1 - int(partition.log.path[1])}"
    assert world.replicas.logs.moves.alter("t", 0, target) == ErrorCode.NONE
    for _ in range(200):
        world.loop.advance(0.1)
        if partition.log.path == f"{target}/t-0":
            return partition.log.path
    raise AssertionError("it never got there")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(moves, "LAST_BYTES", 500)
    monkeypatch.setattr(moves, "STRETCH_BYTES", 1000)
    made = World(directories=2)
    made.replicas.logs.moves.start()
    return made


def test_gaps_stay_known_where_the_replica_is_now(world: World, caplog: pytest.LogCaptureFixture) -> None:
    partition = gappy(world)
    with caplog.at_level(logging.WARNING):
        move(world, partition)
        assert base_offsets(partition.log) == OFFSETS
    assert "missing" not in caplog.text
    assert not partition.log.files.segments.is_gapless


@pytest.mark.slow
def test_a_kill_at_any_moment_of_the_move_costs_nothing(world: World) -> None:
    partition = gappy(world)
    disk = world.disk
    before = len(disk.calls)
    move(world, partition)
    for _ in range(20):
        world.loop.advance(1)
    calls = disk.calls
    assert len(calls) - before > 40
    replayed = MemoryDisk()
    for count, call in enumerate(calls, 1):
        replayed.repeat(call)
        if count >= before:
            for assigned in range(2):
                found = after_kill(replayed.power_loss(Survive.EVERYTHING), assigned)
                assert found == OFFSETS, f"{count - before} calls into the move, the last is {call}"


def after_kill(disk: MemoryDisk, assigned: int) -> tuple[int, ...]:
    again = World(disk=disk)
    again.publish(*topic("t", 1, (1, 2), 0, **CONFIG))
    again.publish(
        PartitionChangeRecord(
            partition_id=0, topic_id=topic_id("t"), leader=2, directories=[directory_id(assigned)] * 2
        )
    )
    again.replicas.start()
    again.loop.settle()
    return base_offsets(again.replicas.get("t", 0).log)
