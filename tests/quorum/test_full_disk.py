"""A leader whose disk is full steps down if another voter can write, and refuses changes if it is alone."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest

from pykbroker.quorum.driver import NotLeader, QuorumDriver
from pykbroker_log.log_config import StorageError
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_raft import metadata_storage
from pykbroker_raft.metadata_storage import StorageConfig, format_voters
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet
from tests.in_memory_peers import InMemoryPeers
from tests.quorum.test_observers import Shared, serve
from tests.quorum.world import InlineRuntime, Listener, driver, format_one, run, until

RESERVE = 1 << 20


def small_disk() -> MemoryDisk:
    return MemoryDisk(record=False, capacity_bytes=8 * RESERVE)


def fill(disk: MemoryDisk, log_dir: str) -> None:
    file = disk.open(f"{log_dir}/ballast", create=True)
    file.pwritev([bytes(disk.usage(log_dir)[1])], file.size())
    file.close()


def use_up(quorum: QuorumDriver, disk: MemoryDisk, log_dir: str) -> None:
    """Use up the disk's room, and the room of the reserve."""
    fill(disk, log_dir)
    quorum.append([b"in the room of the reserve"])
    assert quorum.is_short_of_room
    fill(disk, log_dir)


class Lines(logging.Handler):
    """Keeps texts. pytest keeps records, and with them failures, their frames and the objects in these."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f"{record.levelname} {record.getMessage()}")


@pytest.mark.slow
def test_a_snapshot_without_room_is_one_line_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    logger, lines = logging.getLogger("pykbroker.quorum.snapshot_writing"), Lines()
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "handlers", [lines])

    async def test() -> None:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        disk = small_disk()
        format_one(disk, "meta")
        quorum = driver(InlineRuntime(disk))
        await quorum.start()
        await until(lambda: quorum.high_watermark == 3)
        fill(disk, "meta")
        quorum.write_snapshot(2, 1, [b"too much"])  # as a metadata log that has grown asks for it
        await until(lambda: bool(lines.texts))
        gc.collect()
        assert complaints == []
        assert quorum.failed is None
        disk.unlink("meta/ballast")
        await quorum.write_snapshot(2, 1, [b"too much"])
        await quorum.stop()

    run(test)
    (line,) = lines.texts
    assert line.startswith("WARNING The snapshot 3-1 could not be written: ")


def test_alone_it_refuses_and_takes_changes_again() -> None:
    async def test() -> None:
        disk = small_disk()
        runtime = InlineRuntime(disk)
        format_one(disk, "meta")
        short: list[bool] = []
        quorum = driver(
            runtime, storage=StorageConfig(reserve_bytes=RESERVE), on_short_of_room=lambda: short.append(True)
        )
        listener = Listener()
        quorum.register(listener)
        await quorum.start()
        await until(lambda: quorum.is_leader)
        use_up(quorum, disk, "meta")
        end = quorum.log_end_offset
        for _ in range(3):
            with pytest.raises(StorageError) as refused:
                quorum.append([b"no"])
            assert refused.value.is_full
        assert short == [True]
        assert quorum.is_leader
        assert quorum.failed is None
        assert quorum.log_end_offset == end
        disk.unlink("meta/ballast")
        assert await quorum.restore_reserve()
        assert not quorum.is_short_of_room
        quorum.append([b"yes"])
        await until(lambda: listener.values[-1:] == [b"yes"])
        use_up(quorum, disk, "meta")
        assert short == [True, True]
        await quorum.stop()

    run(test)


@pytest.mark.parametrize("was_killed", [False, True])
def test_a_node_starts_on_a_full_disk_in_the_room_of_the_reserve(was_killed: bool) -> None:
    """The metadata log writes some of its files again when it is opened."""

    async def test() -> None:
        disk = small_disk()
        format_one(disk, "meta")
        short: list[bool] = []

        async def start() -> QuorumDriver:
            quorum = driver(
                InlineRuntime(disk),
                storage=StorageConfig(reserve_bytes=RESERVE),
                on_short_of_room=lambda: short.append(True),
            )
            await quorum.start()
            await until(lambda: quorum.is_leader and quorum.high_watermark == quorum.log_end_offset)
            return quorum

        quorum = await start()
        last = quorum.append([b"before"])
        await until(lambda: quorum.high_watermark == last + 1)
        if was_killed:
            disk = disk.power_loss(Survive.EVERYTHING)
        else:
            await quorum.stop()
        fill(disk, "meta")
        quorum = await start()
        assert short == [True]
        await quorum.stop()

    run(test)


def test_a_full_disk_holds_up_no_leader_that_has_written_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may begin a new segment then, but does not."""
    monkeypatch.setattr(metadata_storage, "_ROLL_BYTES", 0)

    async def test() -> None:
        disk = small_disk()
        format_one(disk, "meta")
        quorum = driver(InlineRuntime(disk))
        await quorum.start()
        await until(lambda: quorum.high_watermark == 3)

        def interfere(operation: str, path: str) -> None:
            if operation == "rename" and path.endswith(".checkpoint.part"):
                disk.interfere = None
                fill(disk, "meta")

        disk.interfere = interfere
        await quorum.write_snapshot(2, 1, [b"it fits"])
        await until(lambda: not quorum._inputs)
        assert disk.interfere is None
        assert quorum.failed is None
        disk.unlink("meta/ballast")
        quorum.append([b"yes"])
        await until(lambda: quorum.high_watermark == 4)
        await quorum.stop()

    run(test)


@pytest.mark.slow
def test_with_others_it_steps_down() -> None:
    async def test() -> None:
        ids = (1, 2, 3)
        voters = VoterSet.of(
            VoterNode(ReplicaKey(id, bytes([id]) * 16), (Endpoint("CONTROLLER", f"c{id}", 9093),)) for id in ids
        )
        disks = {id: small_disk() for id in ids}
        peers = InMemoryPeers(InlineRuntime())
        quorums: dict[int, QuorumDriver] = {}
        for id, disk in disks.items():
            disk.make_dirs("d")
            format_voters(disk, "d", voters, 1)
            runtime = InlineRuntime(disk)
            quorums[id] = driver(
                runtime,
                "d",
                peers=Shared(peers),
                storage=StorageConfig(reserve_bytes=RESERVE),
                node_id=id,
                directory_id=bytes([id]) * 16,
                endpoints=voters.endpoints(id),
                bootstrap=tuple((f"c{other}", 9093) for other in ids),
                election_timeout_ms=80,
                fetch_timeout_ms=300,
                election_backoff_max_ms=50,
                fetch_max_wait_ms=50,
            )
            peers.nodes[f"c{id}", 9093] = serve(runtime, quorums[id])
        for quorum in quorums.values():
            await quorum.start()

        def leaders() -> list[QuorumDriver]:
            return [quorum for quorum in quorums.values() if quorum.is_leader and quorum.high_watermark]

        await until(lambda: len(leaders()) == 1)
        full = leaders()[0]
        use_up(full, disks[full.node_id], "d")
        with pytest.raises(NotLeader, match="no room"):
            full.append([b"no"])
        await until(lambda: bool(leaders()) and full not in leaders())
        (other,) = leaders()
        other.append([b"yes"])
        await until(lambda: other.high_watermark == other.log_end_offset)
        # The full one stands still, and follows again when it has room.
        assert full.failed is None
        assert full.log_end_offset < other.log_end_offset
        disks[full.node_id].unlink("d/ballast")
        await until(lambda: full.high_watermark == other.log_end_offset)
        for quorum in quorums.values():
            await quorum.stop(timeout_ms=50)

    run(test)
