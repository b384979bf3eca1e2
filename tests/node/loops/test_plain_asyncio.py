"""A node on Python's own loop: the kernel sends files to its sockets as with uvloop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykbroker.config.load import development_profile, load
from pykbroker.net.connection import Connection
from pykbroker.node.node import Node
from pykbroker.node.start_options import StartOptions
from pykbroker.runtime import OsRuntime
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.records.batch import iter_batches
from testkit.nodes.wire import Wire, batch

MB = 1 << 20


class Served:
    """A node in a separate thread."""

    def __init__(self, data: Path) -> None:
        self.address = ""
        self._config = load(
            {
                **development_profile(str(data), 0),
                "message.max.bytes": str(12 * MB),
                "socket.request.max.bytes": "64000000",
            }
        )
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(30)
        assert self.address

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        runtime = OsRuntime(self.loop)
        node = Node(self._config, runtime, options=StartOptions(may_format=True))
        try:
            await node.start()
            self.address = node.bootstrap_servers
            self._ready.set()
            await self._stop.wait()
        finally:
            await node.stop()
            runtime.close()
            self._ready.set()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    node = Served(tmp_path_factory.mktemp("plain"))
    yield node
    node.close()


def pattern(size: int, seed: int) -> bytes:
    """Return bytes in which a misplaced piece is visible."""
    return b"".join(number.to_bytes(4, "big") for number in range(seed << 24, (seed << 24) + size // 4))


@pytest.fixture
def takes_regions(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return the flag of each new connection."""
    seen: list[bool] = []
    made = Connection.connection_made

    def noting(self: Connection, transport: asyncio.BaseTransport) -> None:
        made(self, transport)
        seen.append(self.takes_regions)
        assert type(transport).__module__.startswith("asyncio")

    monkeypatch.setattr(Connection, "connection_made", noting)
    return seen


@pytest.mark.slow
def test_large_messages_and_large_answers(served: Served, takes_regions: list[bool]) -> None:
    sizes = [100_000, 300_000, 10 * MB, 1]
    values = [pattern(size, index + 1) or b"x" for index, size in enumerate(sizes)]
    with Wire(served.address) as wire:
        wire.create("large", partitions=1)
        for number, value in enumerate(values):
            answer = wire.produce("large", batch(value))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number)
        # One response of more than 10 MB, without a cut.
        answer = wire.fetch("large", 0)
        assert len(answer.records) > 10 * MB
        assert wire.values("large") == values
    assert takes_regions == [True]


def test_many_partitions_in_one_answer(served: Served, takes_regions: list[bool]) -> None:
    with Wire(served.address) as wire:
        wire.create("many", partitions=30)
        sent = {index: batch(pattern(80_000, index)) for index in range(30)}
        for index, records in sent.items():
            assert wire.produce("many", records, partition=index).error_code == ErrorCode.NONE
        asked = [
            FetchPartition(partition=index, fetch_offset=0, current_leader_epoch=-1, partition_max_bytes=MB)
            for index in range(30)
        ]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=64 * MB,
            session_epoch=-1,
            topics=[FetchTopic(topic="many", partitions=asked)],
        )
        # Several responses in a row while the client does not read: the node waits for room.
        expected = [wire.send(request, 12) for _ in range(5)]
        for api_key, version in expected:
            found = wire.receive(api_key, version).responses[0].partitions
            assert [partition.partition_index for partition in found] == list(range(30))
            for partition in found:
                original = sent[partition.partition_index]
                # Compare everything except the bytes that the broker sets, like the leader epoch before the checksum.
                assert bytes(partition.records)[16:] == original[16:]
                assert [header.base_offset for _, header in iter_batches(partition.records)] == [0]
    assert takes_regions == [True]


@pytest.mark.slow
def test_an_answer_outlives_its_topic(served: Served, takes_regions: list[bool]) -> None:
    """It waits for its client while the segment that it was read from is deleted."""
    value = pattern(4 * MB, 9)
    with Wire(served.address, receive_buffer=4096) as slow, Wire(served.address) as wire:
        wire.create("doomed", file_delete_delay_ms=0)
        assert wire.produce("doomed", batch(value)).error_code == ErrorCode.NONE
        expected = slow.send(slow.fetch_request("doomed"), 12)
        assert wire.values("doomed") == [value]
        deleted = wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="doomed")], timeout_ms=10_000))
        assert deleted.responses[0].error_code == ErrorCode.NONE
        records = slow.receive(*expected).responses[0].partitions[0].records
        assert bytes(records)[-len(value) - 1 : -1] == value
    assert takes_regions == [True, True]
