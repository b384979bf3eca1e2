"""The bytes that a connection has written to its TLS layer and that are not encrypted yet, in their order.

Responsible for the bound on encrypted bytes in the transport below, for the share of one connection in a turn of the
loop, and for asking the connection above to pause. Not responsible for regions of files (region_pieces.py), nor for the
end of a connection (tls_layer.py).
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from pykbroker.tls.tls_stream import TlsStream, reason_of

#: The most bytes that OpenSSL encrypts in one call; TURN_BYTES is the most in one turn of the loop.
PIECE_BYTES: Final = 64 * 1024
TURN_BYTES: Final = 1 << 20
#: The transport below holds about this many encrypted bytes; the rest waits unencrypted.
ENCRYPTED_BYTES: Final = 256 * 1024


class PausedWriter(Protocol):
    """The connection above, as an asyncio protocol."""

    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class TlsWriter:
    """Call `attach` once, before the first `write`."""

    __slots__ = (
        "_below",
        "_below_is_full",
        "_emptied",
        "_failed",
        "_high",
        "_is_paused",
        "_is_scheduled",
        "_loop",
        "_queue",
        "_stream",
        "_waiting_bytes",
        "_writer",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stream: TlsStream,
        writer: PausedWriter,
        *,
        emptied: Callable[[], bool],
        failed: Callable[[str], None],
    ) -> None:
        """`emptied` is called when all bytes are encrypted, and returns True if the layer closes now. `failed` is
        called if OpenSSL cannot encrypt."""
        self._loop = loop
        self._stream = stream
        self._writer = writer
        self._emptied = emptied
        self._failed = failed
        self._below: asyncio.Transport | None = None
        self._queue: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._below_is_full = False
        self._is_scheduled = False
        self._high = ENCRYPTED_BYTES
        self._is_paused = False

    def attach(self, below: asyncio.Transport) -> None:
        self._below = below
        below.set_write_buffer_limits(high=ENCRYPTED_BYTES)

    @property
    def is_empty(self) -> bool:
        return not self._queue

    @property
    def unsent_bytes(self) -> int:
        """The bytes that wait here, and those in the transport below."""
        return self._waiting_bytes + (0 if self._below is None else self._below.get_write_buffer_size())

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Encrypt and send bytes. The caller must not change them, because some may wait here unencrypted."""
        view = memoryview(data)
        self._queue.append(view)
        self._waiting_bytes += len(view)
        if not self._is_scheduled:
            self.pump()
        self._maybe_pause()

    def set_limit(self, high: int | None) -> None:
        """Pause the connection above over `high` unsent bytes."""
        self._high = ENCRYPTED_BYTES if high is None else high
        if self._below is not None:
            self._below.set_write_buffer_limits(high=min(self._high, ENCRYPTED_BYTES))
            self._maybe_pause()

    def below_is_full(self) -> None:
        self._below_is_full = True
        self._maybe_pause()

    def below_has_room(self) -> None:
        self._below_is_full = False
        self.pump()

    def clear(self) -> None:
        """Drop the bytes that are not encrypted."""
        self._queue.clear()
        self._waiting_bytes = 0

    def pump(self) -> None:
        """Encrypt as much as the transport below takes."""
        below, stream, queue = self._below, self._stream, self._queue
        budget = TURN_BYTES
        while queue and not self._below_is_full:
            assert below is not None
            if budget <= 0:
                # Other connections have responses as well.
                self._is_scheduled = True
                self._loop.call_soon(self._pump_later)
                return
            view = queue[0]
            try:
                sent = stream.write(view[:PIECE_BYTES])
            except ssl.SSLError as error:
                self._failed(f"an answer cannot be encrypted: {reason_of(error)}")
                return
            if sent == len(view):
                queue.popleft()
            else:
                queue[0] = view[sent:]
            self._waiting_bytes -= sent
            budget -= sent
            below.write(stream.take_out())
        if not queue and self._emptied():
            return
        if self._is_paused and (self.unsent_bytes <= self._high // 4 or not (queue or self._below_is_full)):
            self._is_paused = False
            self._writer.resume_writing()

    def _pump_later(self) -> None:
        self._is_scheduled = False
        self.pump()

    def _maybe_pause(self) -> None:
        will_hear = self._below_is_full or bool(self._queue)
        if will_hear and not self._is_paused and self.unsent_bytes > self._high:
            self._is_paused = True
            self._writer.pause_writing()
