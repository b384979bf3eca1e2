"""A quorum of one loses power after each call to its disk: committed records are there, and no epoch is led twice."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_raft import batches
from pykbroker_raft import metadata_storage as storage_module
from pykbroker_raft.metadata_storage import MetadataStorage, StorageConfig
from pykbroker_raft.raft_node import RaftNode
from pykbroker_raft.ready import Now
from pykbroker_raft.voters import NO_VOTERS
from tests.quorum.world import WALL_MS, InlineRuntime, Listener, driver, format_one, raft_config, run, until

STORAGE = StorageConfig(segment_bytes=600, max_retention_bytes=1500)


@dataclass(slots=True)
class Recorded:
    """The promises of the driver, each with the number of calls to the disk before it."""

    disk: MemoryDisk
    formatted: int = 0
    committed: list[tuple[int, bytes]] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    snapshots: list[tuple[int, int]] = field(default_factory=list)


def record() -> Recorded:
    """Record three lives of a quorum of one, with snapshots and cleaning. Each life ends without closing anything."""
    disk = MemoryDisk()
    recorded = Recorded(disk)

    async def life(runtime: InlineRuntime, number: int) -> None:
        quorum, listener = driver(runtime, storage=STORAGE), Listener()
        known = [value for _, value in recorded.committed]
        listener.on_commit = lambda: recorded.committed.extend(
            (len(disk.calls), value) for value in listener.values[len(recorded.committed) :]
        )
        quorum.register(listener)
        await quorum.start()
        recorded.epochs.append((len(disk.calls), quorum.epoch))
        await until(lambda: quorum.high_watermark == quorum.log_end_offset)
        assert listener.values == known
        for index in range(8):
            quorum.append([b"life-%d-%d-%d" % (number, index, part) for part in range(3)])
            if index % 3:
                await until(lambda: quorum.high_watermark == quorum.log_end_offset)
            if index == 4:
                offset = (quorum.high_watermark or 0) - 1
                await quorum.write_snapshot(offset, quorum.epoch, list(listener.values))
                recorded.snapshots.append((len(disk.calls), offset))
        await until(lambda: quorum.high_watermark == quorum.log_end_offset)
        # There is no clean stop, and the next life finds the disk as it is.
        quorum._stopped = True

    async def test() -> None:
        runtime = InlineRuntime(disk)
        format_one(disk, "meta")
        recorded.formatted = len(disk.calls)
        for number in range(3):
            await life(runtime, number)

    run(test)
    return recorded


def values_after_start(disk: MemoryDisk) -> tuple[RaftNode, list[bytes]]:
    storage = MetadataStorage.open(disk, "meta", STORAGE, WALL_MS)
    node = RaftNode(
        raft_config(),
        random.Random(1),
        storage.log_view(),
        storage.voter_history(NO_VOTERS),
        storage.read_election_state(),
    )
    values: list[bytes] = []
    start = storage.log.log_start_offset
    latest = storage.latest_snapshot
    if latest is not None:
        values = [value for batch in storage.load_snapshot(latest).values for value in batch]
        start = latest.offset
    for data in storage._scan(start, storage.log.log_end_offset):
        for batch in batches.intact(data):
            assert batch.base_offset >= start
            values += batches.values(data, batch)
    return node, values


@pytest.fixture(autouse=True)
def _roll_at_every_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_module, "_ROLL_BYTES", 1)


@pytest.mark.slow
@pytest.mark.parametrize("survive", [Survive.NOTHING, Survive.EVERYTHING, Survive.CHOSEN])
@pytest.mark.parametrize("torn", [False, True])
def test_every_prefix(survive: Survive, torn: bool) -> None:
    recorded = record()
    calls = recorded.disk.calls
    assert len(recorded.committed) == 72
    assert [epoch for _, epoch in recorded.epochs] == [1, 2, 3]
    chance = random.Random(f"{survive}{torn}")
    replayed = MemoryDisk()
    for count, call in enumerate(calls, start=1):
        replayed.repeat(call)
        if count < recorded.formatted:
            continue
        fields: dict[str, Any] = {"choose": chance.randrange} if survive is Survive.CHOSEN else {}
        node, values = values_after_start(replayed.power_loss(survive, torn=torn, **fields))
        promised = [value for at, value in recorded.committed if at <= count]
        assert values[: len(promised)] == promised, f"after call {count}: {call.operation} {call.path}"
        led = max((epoch for at, epoch in recorded.epochs if at <= count), default=0)
        node.start(Now(0, WALL_MS))
        assert node.is_leader
        assert node.epoch > led
        assert node.high_watermark is None
