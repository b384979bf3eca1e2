"""A snapshot that arrives damaged replaces nothing: the log stays as it was, and the follower asks again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from pykbroker_log.disk import read_file
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_raft.metadata_storage import DIRECTORY
from pykbroker_wire.messages.fetch_snapshot import FetchSnapshotResponse
from tests.in_memory_peers import InMemoryPeers
from tests.quorum.test_observers import Shared, observer, serve
from tests.quorum.world import InlineRuntime, Listener, driver, format_one, run, until

FOLDER = f"other/{DIRECTORY}"


def flipped(data: bytes) -> bytes:
    """Flip one bit in the middle, in a record."""
    changed = bytearray(data)
    changed[len(changed) // 2] ^= 0x10
    return bytes(changed)


def cut(data: bytes) -> bytes:
    """Replace the end by zeros, as after a power loss."""
    return data[: len(data) - 20] + bytes(20)


def of_nothing(data: bytes) -> bytes:
    return bytes(len(data))


def logs(disk: MemoryDisk) -> dict[str, bytes]:
    return {name: read_file(disk, f"{FOLDER}/{name}") for name in disk.list(FOLDER) if name.endswith((".log", "point"))}


@pytest.mark.parametrize("damage", [flipped, cut, of_nothing])
def test_a_damaged_snapshot_changes_nothing_and_comes_again(
    damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def test() -> None:
        runtime = InlineRuntime()
        assert isinstance(runtime.disk, MemoryDisk)
        format_one(runtime.disk, "meta")
        peers = InMemoryPeers(runtime)
        leader = driver(runtime)
        await leader.start()
        whole = serve(runtime, leader)
        peers.nodes["controller", 9093] = whole
        leader.append([b"first"])
        # The follower has a log of its own, and is away while the leader replaces its beginning by a snapshot.
        follower, listener = observer(runtime, Shared(peers), "other", fetch_timeout_ms=40), Listener()
        follower.register(listener)
        await follower.start()
        await until(lambda: listener.values == [b"first"])
        await follower.stop()
        last = leader.append([b"x%d" % index for index in range(30)])
        await until(lambda: leader.high_watermark == last + 1)
        await leader.write_snapshot(last, 1, [b"state-of-%d" % index for index in range(20)])
        leader.storage.log.delete_records_before(last + 1)
        leader.node.log_start_moved(last + 1)
        before = logs(runtime.disk)
        damaged = 0

        def hostile(request: Any) -> Any:
            answer = whole(request)
            if isinstance(answer, FetchSnapshotResponse):
                nonlocal damaged
                damaged += 1
                partition = answer.topics[0].partitions[0]
                data = partition.unaligned_records
                assert isinstance(data, bytes | memoryview)
                partition.unaligned_records = damage(bytes(data))
            return answer

        peers.nodes["controller", 9093] = hostile
        follower, listener = observer(runtime, Shared(peers), "other", fetch_timeout_ms=40), Listener()
        follower.register(listener)
        await follower.start()
        await until(lambda: damaged >= 2)
        await asyncio.sleep(0)
        assert follower.failed is None
        assert logs(runtime.disk) == before
        assert listener.values in ([], [b"first"])
        said = [record.getMessage() for record in caplog.records if "arrived damaged" in record.getMessage()]
        assert len(said) == 1
        assert f"snapshot {last + 1}-1 of leader 1" in said[0]
        # It was damaged on its way, and not in the leader's file.
        peers.nodes["controller", 9093] = whole
        await until(lambda: len(listener.values) == 20)
        assert listener.values[0] == b"state-of-0"
        assert follower.log_end_offset == leader.log_end_offset
        await follower.stop()
        await leader.stop()

    run(test)
