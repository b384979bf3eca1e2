"""Writes the responses of one connection to its socket, in order: bytes through the transport, regions of files through
an outlet. The outlet of a plain socket uses sendfile(2), which copies nothing. The outlet of TLS (tls/tls_layer.py)
reads the file and encrypts.

Responsible for the order, for the number of bytes that are sent in one turn of the loop, and for never waiting for a
device on the loop. Before a piece of a region is sent, the kernel is asked if the piece is in memory. If it is not, a
thread loads it first. Not responsible for flow control towards the client's requests (connection.py reads
`unsent_bytes`).

Invariants:
* While something is queued, the transport has only the few bytes that it got so that it reports when the socket has
  room. A client that does not read costs no more memory than these bytes.
* A piece that was just loaded is sent without asking the kernel again. If memory is so short that the piece is already
  evicted, the loop waits once for the device, and the fetch still makes progress. After a wait for the client, the
  piece counts as not in memory.
* When the socket is full, the transport gets some bytes. When it has sent them, the socket has room again.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from pykbroker_log.disk import Region

Sendable: TypeAlias = bytes | bytearray | memoryview | Region

_PLAIN = (bytes, bytearray, memoryview)
#: The size of a piece: one question to the kernel, and one call of sendfile(2), are for this many bytes.
PIECE_BYTES = 512 * 1024
#: The most bytes of one connection in one turn of the loop.
TURN_BYTES = 1 << 20
#: When the socket is full, the transport gets this many bytes of a region to wait with.
_WAIT_BYTES = 4096
#: Responses up to this many bytes are joined before they are written: one write is cheaper than many small ones.
JOIN_BYTES = 64 * 1024
# Tells the kernel that more bytes follow, so that the head of a response does not become a packet of its own.
_MORE: int = getattr(socket, "MSG_MORE", 0)

#: The text of the error if a part of a region is no longer in its file.
CUT_OFF = "the file is shorter than it was"

LoadRegion: TypeAlias = Callable[[Region, int, int], "asyncio.Future[None]"]


def has_region(pieces: Iterable[Sendable]) -> bool:
    return any(not isinstance(piece, _PLAIN) for piece in pieces)


def write_at_once(
    transport: asyncio.Transport, out: list[bytes | bytearray | memoryview], *, takes_regions: bool
) -> bool:
    """Write responses to the transport. Return False if they have regions, which need a SendQueue; then nothing is
    written."""
    if sum(map(len, out)) <= JOIN_BYTES:
        transport.write(b"".join(out))
    elif takes_regions and has_region(out):
        return False
    else:
        for buffer in out:
            transport.write(buffer)
    return True


class Outlet(Protocol):
    """Sends without the transport, which would keep bytes until the end of the loop's turn. An outlet is called only
    while the transport has nothing to send. It passes the bytes that the socket does not take to the transport."""

    def send(self, data: bytes, *, more: bool) -> None:
        """Send bytes. `more`: a region follows. Raises OSError."""
        ...

    def send_region(self, region: Region, position: int, length: int) -> int:
        """Send bytes of a region, which are in memory. Return how many of them the socket or the transport took. Raises
        OSError, also if the file no longer has the bytes."""
        ...

    def flush(self) -> None:
        """Send the bytes that the outlet still holds, because nothing follows in this turn of the loop. Raises
        OSError."""
        ...


class SocketOutlet:
    """The outlet of a plain socket."""

    __slots__ = ("_transport",)

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def send(self, data: bytes, *, more: bool) -> None:
        if not more:
            self._transport.write(data)
            return
        shared: socket.socket = self._transport.get_extra_info("socket")
        own = socket.socket(shared.family, shared.type, shared.proto, shared.fileno())
        try:
            sent = own.send(data, _MORE)
        except BlockingIOError:
            sent = 0
        finally:
            own.detach()
        if sent < len(data):
            self._transport.write(data[sent:])

    def send_region(self, region: Region, position: int, length: int) -> int:
        try:
            return region.send(self._transport.get_extra_info("socket").fileno(), position, length)
        except BlockingIOError:
            data = region.pread(min(_WAIT_BYTES, length), position)
            if not data:
                raise OSError(errno.EIO, CUT_OFF) from None
            self._transport.write(data)
            return len(data)

    def flush(self) -> None:
        pass


class SendQueue:
    """`load` brings a piece of a region into memory; `progressed` is called when fewer bytes wait, `failed` when the
    response that is being sent cannot be finished."""

    __slots__ = (
        "_busy",
        "_draining",
        "_failed",
        "_high",
        "_load",
        "_loop",
        "_outlet",
        "_position",
        "_progressed",
        "_queue",
        "_resident",
        "_transport",
        "unsent_bytes",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        outlet: Outlet,
        loop: asyncio.AbstractEventLoop,
        *,
        high: int,
        load: LoadRegion,
        progressed: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        self._transport = transport
        self._outlet = outlet
        self._loop = loop
        #: the bound of the transport's write buffer while this queue is empty, in bytes
        self._high = high
        self._load = load
        self._progressed = progressed
        self._failed = failed
        self._queue: deque[Sendable] = deque()
        #: the number of bytes of the first region that have been sent
        self._position = 0
        #: the number of bytes of the first region, from `_position` on, that are known to be in memory
        self._resident = 0
        #: True while a load or a turn of the loop is awaited
        self._busy = False
        self._draining = False
        #: the bytes in the queue, without those in the transport
        self.unsent_bytes = 0

    @property
    def is_waiting(self) -> bool:
        return bool(self._queue)

    def add(self, pieces: Iterable[Sendable]) -> None:
        for piece in pieces:
            if len(piece):
                self._queue.append(piece)
                self.unsent_bytes += len(piece)
        self.pump()

    def clear(self) -> None:
        """Drop the queue, because the connection is lost."""
        self._queue.clear()
        self.unsent_bytes = 0

    def pump(self) -> None:
        """Send the bytes that can be sent now."""
        if self._busy:
            return
        before = self.unsent_bytes
        try:
            self._send_some()
        except OSError as error:
            self.clear()
            self._failed(f"an answer could not be sent: {error}")
            return
        if self.unsent_bytes < before:
            self._progressed()

    def _send_some(self) -> None:
        queue, transport = self._queue, self._transport
        budget = TURN_BYTES
        while queue:
            if transport.is_closing():
                self.clear()
                return
            if transport.get_write_buffer_size():
                self._await_drain()
                break
            front = queue[0]
            if isinstance(front, _PLAIN):
                self._send_plain()
                continue
            if budget <= 0:
                # Other connections have responses as well.
                self._busy = True
                self._loop.call_soon(self._go_on)
                break
            sent = self._send_region(front, min(len(front) - self._position, PIECE_BYTES))
            if sent == 0:
                break
            budget -= sent
        self._outlet.flush()
        if self._draining and not queue:
            self._draining = False
            transport.set_write_buffer_limits(high=self._high)

    def _send_plain(self) -> None:
        run: list[bytes | bytearray | memoryview] = []
        size = 0
        while self._queue and isinstance(front := self._queue[0], _PLAIN):
            run.append(front)
            size += len(front)
            self._queue.popleft()
        self.unsent_bytes -= size
        if size > JOIN_BYTES:
            # These bytes are too many to join. The transport writes them.
            self._outlet.flush()
            for buffer in run:
                self._transport.write(buffer)
        else:
            self._outlet.send(b"".join(run), more=bool(self._queue))

    def _send_region(self, region: Region, length: int) -> int:
        """Send a part of a region and return its number of bytes, or 0 if the region must be loaded first."""
        position = self._position
        if self._resident:
            length = min(length, self._resident)
        elif region.is_resident(position, length):
            self._resident = length
        else:
            self._busy = True
            self._load(region, position, length).add_done_callback(lambda done: self._has_loaded(done, length))
            return 0
        sent = self._outlet.send_region(region, position, length)
        if self._transport.get_write_buffer_size():
            # A slow client may take so long that the rest is evicted from memory.
            self._resident = sent
        self._resident -= sent
        self.unsent_bytes -= sent
        self._position += sent
        if self._position == len(region):
            self._position = self._resident = 0
            self._queue.popleft()
        return sent

    def _await_drain(self) -> None:
        # With the limit 0, the transport reports when it is empty (`resume_writing`).
        if not self._draining:
            self._draining = True
            self._transport.set_write_buffer_limits(high=0)

    def _has_loaded(self, done: asyncio.Future[None], length: int) -> None:
        if done.cancelled():
            return
        # A read error on the thread is ignored here. The same read for the socket fails too, and reports the error.
        done.exception()
        self._resident = length
        self._go_on()

    def _go_on(self) -> None:
        self._busy = False
        self.pump()
