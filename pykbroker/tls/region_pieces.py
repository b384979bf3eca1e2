"""Regions of files over TLS: reads, encrypts and sends a piece when the transport below has nothing left to send.

It is the outlet of regions (net/sending.py) for a connection with TLS. Encrypted bytes are kept until a piece is worth
a call of the kernel, or until `flush`. Not responsible for the queue of a connection.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pykbroker.net.sending import CUT_OFF
from pykbroker.net.socket_room import SocketRoom
from pykbroker.tls.tls_stream import TlsStream
from pykbroker.tls.tls_writer import PIECE_BYTES

if TYPE_CHECKING:
    from pykbroker_log.disk import Region

_LEAST_BYTES: Final = 16 * 1024
#: The largest piece of a region, if the socket has room for it. Each call costs the kernel time and wakes the client.
LARGEST_PIECE_BYTES: Final = 256 * 1024


class RegionPieces:
    """The encrypted bytes of one connection that are sent past the buffer of its transport."""

    __slots__ = ("_below", "_is_closing", "_kept", "_kept_bytes", "_room", "_stream")

    def __init__(self, stream: TlsStream, is_closing: Callable[[], bool]) -> None:
        """`is_closing` returns True if nothing may be sent from now on."""
        self._is_closing = is_closing
        self._below: asyncio.Transport | None = None
        self._stream = stream
        #: encrypted, to be sent in this turn of the loop
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        #: the room of the socket; None until the first region is sent
        self._room: SocketRoom | None = None

    def attach(self, below: asyncio.Transport) -> None:
        self._below = below

    def send(self, data: bytes) -> None:
        """Encrypt `data`. It is sent with the next piece of a region, or by `flush`."""
        if self._kept_bytes + len(data) > PIECE_BYTES:
            self.flush()
        self._encrypt(data)

    def send_region(self, region: Region, position: int, length: int) -> int:
        """Read, encrypt and send pieces of a region until the socket is full. A piece smaller than its room is kept."""
        room = self._room or self._find_room()
        begin, end = position, position + length
        while position < end:
            piece = min(max(room.free_bytes(), _LEAST_BYTES), LARGEST_PIECE_BYTES)
            data = region.pread(min(end - position, max(piece - self._kept_bytes, _LEAST_BYTES)), position)
            if not data:
                raise OSError(errno.EIO, CUT_OFF)
            self._encrypt(data)
            position += len(data)
            if self._kept_bytes >= piece and not self._send_kept():
                break
        return position - begin

    def flush(self) -> None:
        """Send the kept bytes, unless the connection is closing."""
        if self._kept and not self._is_closing():
            self._send_kept()

    def clear(self) -> None:
        self._kept.clear()

    def _encrypt(self, data: bytes) -> None:
        self._kept_bytes += self._stream.encrypt(data, self._kept.append)

    def _find_room(self) -> SocketRoom:
        assert self._below is not None
        self._room = SocketRoom(self._below.get_extra_info("socket"))
        return self._room

    def _send_kept(self) -> bool:
        """Return True if the socket took all bytes at once. Otherwise the rest waits in the transport below."""
        below, kept = self._below, self._kept
        assert below is not None
        room = self._room or self._find_room()
        sent = 0
        if not below.get_write_buffer_size():
            try:
                sent = os.writev(room.fd, kept)
            except BlockingIOError:
                pass
        left = self._kept_bytes - sent
        if left:
            below.write(b"".join(kept)[sent:])
        kept.clear()
        self._kept_bytes = 0
        return not left
