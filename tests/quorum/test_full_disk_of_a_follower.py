"""A follower whose disk fills up while its log is cut or replaced by a snapshot waits for room, and goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from pykbroker.quorum.driver import QuorumDriver
from pykbroker.quorum.metadata_room import MetadataRoom
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_raft.metadata_storage import DIRECTORY, StorageConfig
from tests.in_memory_peers import InMemoryPeers
from tests.quorum.test_full_disk import fill
from tests.quorum.test_observers import Shared, observer, serve
from tests.quorum.world import InlineRuntime, Listener, driver, format_one, run, until

FOLDER = f"other/{DIRECTORY}"
RESERVE = 64 << 10
ROOM = 1 << 20
#: Larger than the reserve, and fetched in several pieces.
STATE = [b"%d " % index + bytes(10_000) for index in range(20)]


class Follower:
    """An observer in `other`, on a disk of its own, while `leader` has replaced the log by a snapshot."""

    def __init__(self, reserve_bytes: int) -> None:
        self.disk = MemoryDisk(record=False, capacity_bytes=ROOM)
        self.reserve_bytes = reserve_bytes
        self.peers = InMemoryPeers(InlineRuntime(self.disk))
        self.leader_runtime = InlineRuntime()
        self.leader = driver(self.leader_runtime)
        self.listener = Listener()

    async def lead(self) -> None:
        await self.leader.start()
        self.peers.nodes["controller", 9093] = serve(self.leader_runtime, self.leader)

    async def follow(self) -> QuorumDriver:
        self.listener = Listener()
        follower = observer(
            InlineRuntime(self.disk),
            Shared(self.peers),
            "other",
            fetch_timeout_ms=40,
            snapshot_max_bytes=50_000,
            storage=StorageConfig(reserve_bytes=self.reserve_bytes),
        )
        follower.register(self.listener)
        await follower.start()
        return follower

    async def fall_behind(self) -> None:
        """Make a log of some records, and stop while the leader replaces its beginning by a snapshot."""
        format_one(self.leader_runtime.disk, "meta")
        await self.lead()
        self.leader.append([b"first"])
        follower = await self.follow()
        await until(lambda: self.listener.values == [b"first"])
        await follower.stop()
        last = self.leader.append([b"x%d" % index for index in range(30)])
        await until(lambda: self.leader.high_watermark == last + 1)
        await self.leader.write_snapshot(last, 1, STATE)
        self.leader.storage.log.delete_records_before(last + 1)
        self.leader.node.log_start_moved(last + 1)

    async def diverge(self) -> None:
        """Make records that the leader has lost in a power loss, before they were committed."""
        format_one(self.leader_runtime.disk, "meta")
        await self.lead()
        self.leader.append([b"first"])
        follower = await self.follow()
        await until(lambda: self.listener.values == [b"first"])
        self.leader_runtime.hold()
        self.leader.append([b"lost"])
        await until(lambda: follower.log_end_offset == self.leader.log_end_offset)
        await follower.stop()
        assert isinstance(self.leader_runtime.disk, MemoryDisk)
        self.leader_runtime = InlineRuntime(self.leader_runtime.disk.power_loss(Survive.NOTHING))
        self.leader = driver(self.leader_runtime)
        await self.lead()


class Neighbour:
    """Writes to the same disk. From the follower's call `begin` on it takes all the room that there is, until the
    follower has looked for room twice."""

    def __init__(self, disk: MemoryDisk, begin: int) -> None:
        self.disk = disk
        self.begin = begin
        self.calls = 0
        self.is_writing = False
        self.waits = 0
        self.largest_part = 0
        disk.interfere = self.interfere

    def interfere(self, operation: str, path: str) -> None:
        if self.is_writing or operation not in ("pwritev", "create", "rename", "truncate"):
            return
        self.calls += 1
        if self.begin <= self.calls and self.waits < 2:
            self.is_writing = True
            fill(self.disk, "other")
            self.is_writing = False

    def wait(self, room: MetadataRoom, again: Callable[[], None]) -> None:
        """Replaces the wait of a second."""
        parts = [size for name, size in self.disk.scan(FOLDER) if name.endswith(".part")]
        self.largest_part = max(self.largest_part, *parts, 0)
        self.waits += 1
        if self.waits == 2:
            self.disk.unlink("other/ballast")
        InlineRuntime(self.disk).loop.call_soon(again)


@pytest.mark.slow
@pytest.mark.parametrize("reserve_bytes", [0, RESERVE])
@pytest.mark.parametrize("prepare", [Follower.fall_behind, Follower.diverge])
def test_a_disk_that_fills_up_at_any_write_ends_no_follower(
    monkeypatch: pytest.MonkeyPatch, prepare: Callable[[Follower], object], reserve_bytes: int
) -> None:
    waited: list[int] = []

    async def filled_at(call: int) -> bool:
        """Return True if there are this many calls."""
        world = Follower(reserve_bytes)
        await prepare(world)  # type: ignore[misc]
        follower = await world.follow()
        neighbour = Neighbour(world.disk, call)
        monkeypatch.setattr(MetadataRoom, "wait", lambda room, again: neighbour.wait(room, again))
        await until(lambda: follower.failed is not None or follower.high_watermark == world.leader.high_watermark)
        world.disk.interfere = None
        assert follower.failed is None, f"the disk was full at the call {call}: {follower.failed}"
        assert follower.log_end_offset == world.leader.log_end_offset
        assert neighbour.largest_part == 0
        waited.append(neighbour.waits)
        await follower.stop()
        await world.leader.stop()
        return neighbour.calls >= call

    async def test() -> None:
        call = 1
        while await filled_at(call):
            call += 1
        assert call > 4

    run(test)
    assert 2 in waited


def test_a_snapshot_that_does_not_fit_is_one_line_and_leaves_the_room_to_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Before, it ended the node, and its pieces kept the room that was left."""
    caplog.set_level(logging.WARNING)

    async def test() -> None:
        world = Follower(RESERVE)
        await world.fall_behind()
        file = world.disk.open("other/ballast", create=True)
        file.pwritev([bytes(world.disk.usage("other")[1] - RESERVE - 100_000)], 0)
        file.close()
        looks = 0

        def wait(room: MetadataRoom, again: Callable[[], None]) -> None:
            nonlocal looks
            looks += 1
            if looks <= 3:
                names = world.disk.list(FOLDER)
                assert not [name for name in names if name.endswith(".part")]
                # Giving up the reserve would not help.
                assert "pykbroker.reserve" in names
            if looks == 3:
                world.disk.unlink("other/ballast")
            InlineRuntime(world.disk).loop.call_soon(again)

        monkeypatch.setattr(MetadataRoom, "wait", wait)
        follower = await world.follow()
        await until(lambda: world.listener.values == STATE)
        assert looks == 3
        assert follower.failed is None
        await follower.stop()
        await world.leader.stop()

    run(test)
    lines = [record.getMessage() for record in caplog.records if record.name.endswith("raft_lines")]
    assert [line.split("the metadata of this node ")[-1] for line in lines] == [
        "stands still until there is room",
        "goes on",
    ]
