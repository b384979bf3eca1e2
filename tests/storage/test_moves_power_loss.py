"""Power is lost after each prefix of a recorded move between two log directories. The next start has everything that
was promised, in one directory, and goes on with the move.

Promised are records below the log's recovery point, wherever the log was then. Legal is any prefix of the records that
were ever appended. If only the process died, it must be all of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from pykbroker.storage import moves
from pykbroker.storage.log_handle import LogHandle
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.stored.metadata import PartitionChangeRecord
from testkit.logs.helpers import values
from tests.replica.world import NOW_MS, World, batch, directory_id, topic, topic_id

CONFIG = {"segment_bytes": "1048576", "internal_segment_bytes": "900", "file_delete_delay_ms": "0"}


class Moment(NamedTuple):
    calls: int
    records: tuple[bytes, ...]
    promised: int
    assigned: int
    is_cut: bool
    """Something was cut off just before, durably: older states cannot come back."""


class Recording:
    """A replica that is written to, flushed and checkpointed while it moves to the other directory and back."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(directories=2, assignments=self)
        self.world.disk.fsync_dir(".")
        self.replicas = self.world.replicas
        self.sent: list[bytes] = []
        self.promised = 0
        self.assigned = 0
        self.moments: list[Moment] = []
        self.replicas.logs.moves.start()
        self.partition = self.world.create("t", 1, (1,), 0, **CONFIG)
        self.assigned = int(self.partition.log.path[1])

    def opened(self, handle: LogHandle, log_dir: LogDir) -> None:
        """Do nothing, because a move back is found in the folders."""

    def assign(self, handle: LogHandle, log_dir: LogDir, told: Callable[[], None]) -> None:
        self.note()
        self.assigned = int(log_dir.path[1])
        self.note()
        self.world.loop.call_soon(told)

    def note(self, *, is_cut: bool = False) -> None:
        log = self.partition.log
        self.promised = max(self.promised, log.recovery_point)
        assert len(self.sent) == log.log_end_offset
        calls = len(self.world.disk.calls)
        self.moments.append(Moment(calls, tuple(self.sent), self.promised, self.assigned, is_cut))

    def append(self) -> None:
        sent = [b"%d.%d" % (len(self.moments), number) + b"x" * self.rng.randrange(200) for number in range(2)]
        self.partition.append(batch(*sent), required_acks=-1, now_ms=NOW_MS)
        self.sent += sent

    def actions(self) -> Sequence[Callable[[], None]]:
        return self.append, self.append, self.append, self.flush, self.checkpoint, self.retire

    def step(self) -> None:
        self.rng.choice(self.actions())()
        self.note()
        self.world.loop.turn()
        self.world.loop.advance(0.01)
        self.note()

    def flush(self) -> None:
        self.partition.log.flush()

    def checkpoint(self) -> None:
        for log_dir in self.world.log_dirs:
            log_dir.checkpoints.write_all()

    def retire(self) -> None:
        self.partition.log.retire(NOW_MS)

    def run(self) -> None:
        self.note()
        for _ in range(12):
            self.step()
        for _ in range(2):
            target = f"d{1 - int(self.partition.log.path[1])}"
            assert not self.replicas.logs.moves.alter("t", 0, target)
            for _ in range(30):
                self.step()
                if self.partition.log.path == f"{target}/t-0":
                    break
            assert self.partition.log.path == f"{target}/t-0", "it never got there"
            for _ in range(4):
                self.step()


class TruncatedRecording(Recording):
    """A recording of a follower, whose leader sometimes diverges."""

    def actions(self) -> Sequence[Callable[[], None]]:
        return *super().actions(), self.append, self.truncate

    def truncate(self) -> None:
        log = self.partition.log
        target = self.rng.randrange(log.log_start_offset, log.log_end_offset + 1)
        log.truncate_to(target)
        end = log.log_end_offset
        is_cut = end < len(self.sent)
        self.sent, self.promised = self.sent[:end], min(self.promised, end)
        self.note(is_cut=is_cut)


def start_again(disk: MemoryDisk, assigned: int) -> tuple[World, PartitionLog]:
    world = World(disk=disk)
    world.publish(*topic("t", 1, (1,), 0, **CONFIG))
    world.publish(PartitionChangeRecord(partition_id=0, topic_id=topic_id("t"), directories=[directory_id(assigned)]))
    world.replicas.start()
    world.loop.settle()
    world.replicas.logs.moves.start()
    return world, world.replicas.get("t", 0).log


def check(recording: Recording, calls: int, disk: MemoryDisk, survive: Survive, what: str) -> None:
    past = [moment for moment in recording.moments if moment.calls <= calls]
    if not past:
        return
    under_way = [moment for moment in recording.moments if moment.calls > calls][:1]
    since = max([index for index, moment in enumerate(past) if moment.is_cut], default=0)
    if survive is Survive.EVERYTHING:
        promised = min(len(moment.records) for moment in past[-1:] + under_way)
    else:
        promised = min(moment.promised for moment in past[-1:] + under_way)
    # The metadata is elsewhere: between two calls it may have the assignment, or not yet.
    for assigned in {moment.assigned for moment in past if moment.calls == past[-1].calls}:
        after = disk.power_loss(Survive.EVERYTHING)
        world, log = start_again(after, assigned)
        found = values(log)
        # A file system that reorders may lose the name of the first file and keep the second, as long as neither was
        # flushed (docs/architecture.md).
        first = log.log_start_offset
        assert first == 0 or (promised == 0 and survive is Survive.CHOSEN), f"{what}: it begins at {first}"
        end = first + len(found)
        assert any(found == dict(enumerate(moment.records[first:end], first)) for moment in past[since:] + under_way), (
            f"{what}: {found} was never there"
        )
        assert end >= promised, f"{what}: {end} records of {promised}"
        assert sum(log_dir.folders.holds("t", 0) for log_dir in world.log_dirs) == 1, what
        # The node goes on with the move, and with appends.
        partition = world.replicas.get("t", 0)
        partition.append(batch(b"after"), required_acks=-1, now_ms=NOW_MS)
        for _ in range(20):
            world.loop.advance(1)
        assert not world.replicas.logs.moves._moves, what
        assert list(values(partition.log).values()) == [*found.values(), b"after"], what
        assert not any("future" in name for log_dir in world.log_dirs for name in after.list(log_dir.path)), what
        assert not world.failures, what


def lose_power(make: type[Recording], seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(moves, "LAST_BYTES", rng.choice((1, 300, 1000)))
    monkeypatch.setattr(moves, "STRETCH_BYTES", rng.choice((300, 1000, 5000)))
    recording = make(seed)
    recording.run()
    calls = recording.world.disk.calls
    replayed = MemoryDisk()
    for count in range(len(calls) + 1):
        if count:
            replayed.repeat(calls[count - 1])
        survive = rng.choice((Survive.NOTHING, Survive.EVERYTHING, Survive.CHOSEN, Survive.CHOSEN))
        torn = survive is not Survive.EVERYTHING and rng.random() < 0.5
        after = replayed.power_loss(survive, torn=torn, choose=rng.randrange)
        last = (calls[count - 1].operation, calls[count - 1].path) if count else None
        check(recording, count, after, survive, f"seed {seed}, {count} calls, {survive.value}, last {last}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_every_prefix_of_a_move(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_power(Recording, seed, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 51])
def test_every_prefix_of_a_move_of_a_log_that_is_truncated(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_power(TruncatedRecording, seed, monkeypatch)


@pytest.mark.long(amount="58 moves, power lost after each call")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("make", [Recording, TruncatedRecording])
def test_every_prefix_of_many_moves(make: type[Recording], monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(2, 60):
        lose_power(make, seed, monkeypatch)
