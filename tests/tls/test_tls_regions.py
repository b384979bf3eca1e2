"""Regions of files through TLS, in memory except for the socket. Whatever the client reads and when, whatever is cold,
and whenever keys change, it gets the bytes of its responses, or the beginning of them and an end."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker.net.sending import Sendable, SendQueue
from pykbroker.tls.tls_writer import PIECE_BYTES
from pykbroker_log.disk import Region
from testkit.certificates import client_context
from tests.tls.key_updates import ClientRecords, logging_keys
from tests.tls.test_tls_layer import Above, Below, Pair, server_context

CONTENTS = random.Random(5).randbytes(700_000)
#: A piece, the bytes after it, and TLS's overhead.
HELD_BYTES = PIECE_BYTES + 20_000


class OverSocket(Below):
    """`room`: about the number of bytes that the socket takes."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.own, self.other = socket.socketpair()
        self.own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
        for each in (self.own, self.other):
            each.setblocking(False)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.own if name == "socket" else super().get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        super().set_write_buffer_limits(high, low)
        self.write(b"")

    def flush(self) -> None:
        try:
            while self.written:
                del self.written[: self.own.send(self.written)]
        except BlockingIOError:
            return
        super().take()

    def take_some(self, count: int) -> bytes:
        self.flush()
        try:
            return self.other.recv(count)
        except BlockingIOError:
            return b""

    def take(self) -> bytes:
        taken = bytearray()
        while data := self.take_some(1 << 20):
            taken += data
        return bytes(taken)


class MemoryRegion:
    """`ends`: the position at which its file has been cut off. `is_cold`: the kernel's answers, one after the other."""

    def __init__(self, start: int, length: int, ends: int, is_cold: Iterator[bool]) -> None:
        self._start = start
        self._length = length
        self._ends = ends
        self._is_cold = is_cold
        self._warm = 0

    def __len__(self) -> int:
        return self._length

    def is_resident(self, position: int, length: int) -> bool:
        if next(self._is_cold):
            return False
        self._warm = position + length
        return True

    def load(self, position: int, length: int) -> None:
        self._warm = position + length

    def send(self, socket: int, position: int, length: int) -> int:
        raise AssertionError("nothing is encrypted there")

    def pread(self, size: int, position: int) -> bytes:
        assert position + size <= self._warm, "the loop would wait for the device"
        end = min(position + size, self._length, self._ends)
        return CONTENTS[self._start + position : self._start + end]

    def part(self, position: int, length: int) -> MemoryRegion:
        raise AssertionError("TLS sends regions as they are")


class Sending(Above):
    """The connection above the layer: its sender has responses for a client."""

    sender: SendQueue

    def resume_writing(self) -> None:
        super().resume_writing()
        self.sender.pump()


class World:
    def __init__(self, peer: ssl.SSLContext, own: ssl.SSLContext, room: int) -> None:
        self.above = Sending()
        self.below = OverSocket(room)
        self.pair = Pair(peer, own, self.above, self.below)
        self.pair.handshake()
        self.pair.feed(self.pair.send(b""))
        self.expected = bytearray()
        self.received = bytearray()
        self.failures: list[str] = []
        loop = cast(asyncio.AbstractEventLoop, self.pair.loop)
        self.sender = self.above.sender = SendQueue(
            self.pair.layer,
            self.pair.layer,
            loop,
            high=1 << 20,
            load=self._load,
            progressed=lambda: None,
            failed=self._failed,
        )

    def _load(self, region: Region, position: int, length: int) -> asyncio.Future[None]:
        future = self.pair.loop.create_future()

        def done() -> None:
            region.load(position, length)
            future.set_result(None)

        self.pair.loop.call_soon(done)
        return future

    def _failed(self, reason: str) -> None:
        self.failures.append(reason)
        self.pair.layer.abort()

    def answer(self, pieces: list[Sendable], contents: bytes) -> None:
        self.expected += contents
        self.sender.add(pieces)

    def take(self, count: int) -> bool:
        """Receive some bytes of TLS. Return True if there were any."""
        data = self.below.take_some(count)
        self.received += self.pair.peer_receives(data)
        return bool(data)

    def take_all(self) -> None:
        taken = True
        while taken or self.pair.loop.ready:
            self.pair.loop.turn()
            taken = self.take(1 << 20)

    def close(self) -> None:
        self.below.own.close()
        self.below.other.close()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys") / "keys"


@pytest.fixture(scope="module")
def make_world(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], World]:
    peer = logging_keys(client_context(tmp_path_factory.mktemp("client")), keys)
    own = server_context()

    def make(room: int) -> World:
        keys.write_text("")
        return World(peer, own, room)

    return make


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_the_client_gets_the_bytes_of_its_answers(
    make_world: Callable[[int], World], keys: Path, data: st.DataObject
) -> None:
    world = make_world(data.draw(st.sampled_from((4096, 150_000))))
    is_cold = iter(lambda: data.draw(st.booleans()), None)
    cipher = world.pair.peer.cipher()
    assert cipher is not None
    records = ClientRecords(cipher[0], keys.read_text())
    is_cut = False
    for step in data.draw(st.lists(st.sampled_from(("answer", "take", "take", "turn", "update")), max_size=12)):
        if step == "answer":
            pieces: list[Sendable] = []
            contents = bytearray()
            for size in data.draw(st.lists(st.integers(1, 300_000), min_size=1, max_size=4)):
                start = data.draw(st.integers(0, len(CONTENTS) - size))
                ends = size
                if size < 2000:
                    pieces.append(CONTENTS[start : start + size])
                else:
                    if not data.draw(st.integers(0, 20)):
                        ends, is_cut = data.draw(st.integers(0, size - 1)), True
                    pieces.append(MemoryRegion(start, size, ends, is_cold))
                contents += CONTENTS[start : start + size]
            if not world.failures:
                world.answer(pieces, bytes(contents))
        elif step == "take":
            world.take(data.draw(st.integers(1, 100_000)))
        elif step == "turn":
            world.pair.loop.turn()
        else:
            world.pair.feed(records.update(requested=True))
        assert world.pair.layer.get_write_buffer_size() <= HELD_BYTES
    world.take_all()
    if world.failures:
        assert is_cut
        assert len(world.failures) == 1
        assert "shorter than it was" in world.failures[0]
        assert world.expected.startswith(world.received)
    else:
        assert not is_cut
        assert world.received == world.expected
        assert not world.sender.is_waiting
        assert not world.above.paused
    assert not world.above.reasons
    world.close()


def test_a_load_that_ends_after_the_connection_changes_nothing(make_world: Callable[[int], World]) -> None:
    world = make_world(4096)
    size = 200_000
    world.answer([b"head", MemoryRegion(0, size, size, iter([True])), b"tail"], b"")
    assert world.sender.is_waiting
    world.pair.layer.connection_lost(None)
    world.sender.clear()
    world.pair.loop.turn()
    assert world.above.lost
    assert not world.failures
    world.close()
