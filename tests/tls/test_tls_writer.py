"""The bytes that wait to be encrypted: their order, the share of one turn, and the pause of the connection above."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, cast

from pykbroker.tls.tls_stream import TlsStream
from pykbroker.tls.tls_writer import ENCRYPTED_BYTES, PIECE_BYTES, TURN_BYTES, TlsWriter
from tests.net.fakes import FakeLoop, FakeTransport


class Sealed:
    """A stream that encrypts nothing, so that a test sees what was written."""

    def __init__(self) -> None:
        self.out = b""
        self.is_broken = False

    def write(self, data: memoryview) -> int:
        if self.is_broken:
            raise ssl.SSLError("no more")
        self.out += data
        return len(data)

    def take_out(self) -> bytes:
        out, self.out = self.out, b""
        return out


class Below(FakeTransport):
    """A transport that keeps all bytes as unsent."""

    def get_write_buffer_size(self) -> int:
        return len(self.written)


class Above:
    def __init__(self) -> None:
        self.is_paused = False

    def pause_writing(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_writing(self) -> None:
        assert self.is_paused
        self.is_paused = False


class Writing:
    def __init__(self) -> None:
        self.loop, self.stream, self.below, self.above = FakeLoop(), Sealed(), Below(), Above()
        self.is_closing = False
        self.emptied = 0
        self.failures: list[str] = []
        self.writer = TlsWriter(
            cast(asyncio.AbstractEventLoop, self.loop),
            cast(TlsStream, self.stream),
            self.above,
            emptied=self._emptied,
            failed=self.failures.append,
        )
        self.writer.attach(cast(Any, self.below))

    def _emptied(self) -> bool:
        self.emptied += 1
        return self.is_closing


def test_one_turn_encrypts_a_part_and_the_next_turn_goes_on() -> None:
    one = Writing()
    data = bytes(range(256)) * (TURN_BYTES // 256) + b"the rest"
    one.writer.write(data)
    assert len(one.below.written) == TURN_BYTES
    assert not one.writer.is_empty
    assert one.emptied == 0
    one.writer.write(b", and more")
    one.loop.turn()
    assert bytes(one.below.written) == data + b", and more"
    assert one.writer.is_empty


def test_bytes_wait_unencrypted_while_the_transport_is_full() -> None:
    one = Writing()
    one.writer.below_is_full()
    one.writer.write(bytes(ENCRYPTED_BYTES + 1))
    assert one.below.written == b""
    assert one.above.is_paused
    one.writer.below_has_room()
    assert len(one.below.written) == ENCRYPTED_BYTES + 1
    assert not one.above.is_paused


def test_bytes_that_cannot_be_encrypted_are_reported_once() -> None:
    one = Writing()
    one.stream.is_broken = True
    one.writer.write(bytes(2 * PIECE_BYTES))
    (failure,) = one.failures
    assert failure.startswith("an answer cannot be encrypted: ")
    one.writer.clear()
    assert one.writer.is_empty
    assert one.writer.unsent_bytes == 0


def test_a_layer_that_closes_is_not_resumed() -> None:
    one = Writing()
    one.writer.below_is_full()
    one.writer.write(bytes(ENCRYPTED_BYTES + 1))
    one.is_closing = True
    one.writer.below_has_room()
    assert one.above.is_paused
