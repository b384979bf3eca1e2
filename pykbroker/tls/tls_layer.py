"""TLS between a transport and a connection: the layer is the protocol of the transport, and the transport of the
connection.

Responsible for the handshake, for decrypting received and encrypting sent bytes, for close_notify, and for two bounds.
These are the cost of a peer before the end of its handshake, and the bytes that wait to be encrypted or sent. Accepted
and outgoing connections both use the layer. It is also the outlet of regions of files (net/sending.py): it reads a
piece when the transport below has nothing left to send. Not responsible for certificates (contexts.py), nor for the
timeout of a handshake, which the connection has.

Invariants
* The connection gets no byte before `secured`. It gets either `secured` once, or `insecure` once, or neither.
* One thread at a time uses the TLS object: while a step of the handshake runs on a thread, nothing is read.
* OpenSSL is not called before the first record is complete, so silent and slow clients cost no TLS object.
* Before the handshake is done, at most HANDSHAKE_BYTES are received. Afterwards at most the bytes of one read wait to
  be decrypted.
* One turn of the loop decrypts for TURN_SECONDS at most, plus its last record.

A truncated stream needs no guard here: frames have their length, and a part of a frame is never dispatched.
"""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, cast

from pykbroker.net.peer_security import SecuredProtocol
from pykbroker.net.sending import CUT_OFF
from pykbroker.net.socket_room import SocketRoom
from pykbroker.tls.handshakes import Handshakes, Side
from pykbroker.tls.tls_records import HEADER_BYTES, TlsRecords

if TYPE_CHECKING:
    from pykbroker_log.disk import Region

#: The most bytes of a peer until its handshake is done: enough for the longest certificate chain of OpenSSL.
HANDSHAKE_BYTES: Final = 128 * 1024
_READ_BYTES: Final = 16 * 1024
_LONGEST_RECORD: Final = 16 * 1024 + 256
_HANDSHAKE_RECORD: Final = 0x16
#: The most bytes that OpenSSL encrypts in one call; TURN_BYTES is the most in one turn of the loop.
PIECE_BYTES: Final = 64 * 1024
#: The largest piece of a region, if the socket has room for it. Each call costs the kernel time and wakes the client.
LARGEST_PIECE_BYTES: Final = 256 * 1024
_ENCRYPTED_AT_ONCE: Final = 32 * 1024
TURN_BYTES: Final = 1 << 20
TURN_SECONDS: Final = 0.005
#: The transport below holds about this many encrypted bytes; the rest waits unencrypted.
_ENCRYPTED_BYTES: Final = 256 * 1024


class _TooManyRecords(Exception):
    """The peer sent too many records without data."""


class TlsLayer(asyncio.BufferedProtocol, asyncio.Transport):
    """The layer of one connection. `loop`, `handshakes` and `receive_view` are shared. `receive_view` is only used
    during one read. It must not be the memory into which the connections above receive, because they receive while
    records still wait in it."""

    __slots__ = (
        "_below",
        "_below_is_full",
        "_closing",
        "_context",
        "_decrypt_scheduled",
        "_first",
        "_handshake_bytes",
        "_handshakes",
        "_high",
        "_incoming",
        "_is_filled",
        "_is_reading",
        "_is_secured",
        "_is_stepping",
        "_kept",
        "_kept_bytes",
        "_loop",
        "_lost",
        "_outgoing",
        "_peer_has_finished",
        "_protocol",
        "_protocol_paused",
        "_pump_scheduled",
        "_queue",
        "_queued_bytes",
        "_read_goes_on",
        "_receive_view",
        "_records",
        "_room",
        "_server_hostname",
        "_side",
        "_tls",
        "_turn_ends",
        "_wants_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: SecuredProtocol,
        context: ssl.SSLContext,
        handshakes: Handshakes,
        receive_view: memoryview,
        *,
        server_hostname: str | None = None,
        side: Side = Side.CLIENT,
    ) -> None:
        """`server_hostname`: the peer's, for a connection that this node makes; None for one that it accepted at a
        listener of this `side`."""
        super().__init__()
        self._side = side if server_hostname is None else Side.OWN
        self._loop = loop
        self._protocol = protocol
        self._context = context
        self._handshakes = handshakes
        self._receive_view = receive_view
        self._server_hostname = server_hostname
        self._below: asyncio.Transport | None = None
        self._tls: ssl.SSLObject | None = None
        self._incoming = self._outgoing = cast(ssl.MemoryBIO, None)
        #: the received part of the first record, before there is a TLS object
        self._first: bytearray | None = None
        self._handshake_bytes = 0
        self._is_secured = False
        #: True while a thread uses the TLS object, or is about to
        self._is_stepping = False
        self._lost = False
        self._closing = False
        self._peer_has_finished = False
        # Reading: whether the connection wants bytes, and the last call to the transport below.
        self._wants_bytes = True
        self._is_reading = True
        self._decrypt_scheduled = False
        #: The end of the loop's present turn for this connection. A read that filled the buffer is followed by another
        #: in the same turn if there is more.
        self._turn_ends = 0.0
        self._read_goes_on = False
        #: received since the handshake and not yet passed to OpenSSL
        self._records = TlsRecords()
        #: True if the connection's buffer was filled, so that OpenSSL may still hold the rest of the record
        self._is_filled = False
        # Writing: the bytes that are not yet encrypted.
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._below_is_full = False
        #: encrypted, to be sent in this turn of the loop
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        #: the room of the socket; None until the first region is sent
        self._room: SocketRoom | None = None
        self._pump_scheduled = False
        self._high = _ENCRYPTED_BYTES
        self._protocol_paused = False

    # -- the protocol of the transport below --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast(asyncio.Transport, transport)
        self._below.set_write_buffer_limits(high=_ENCRYPTED_BYTES)
        self._protocol.connection_made(self)
        if self._server_hostname is not None and not self._closing:
            # A client sends first.
            try:
                self._begin()
            except ValueError as error:
                self._fail(f"TLS cannot be spoken with {self._server_hostname!r}: {error}")
            else:
                self._step()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._lost = self._closing = True
        self._queue.clear()
        self._kept.clear()
        self._queued_bytes = 0
        self._protocol.connection_lost(exc)
        # A TLS object has 50 KiB outside of Python's memory, which the collector does not count, so it frees a
        # connection late (connection and transport refer to each other). A handshake's thread has its own reference.
        self._tls = self._first = None
        self._incoming = self._outgoing = cast(ssl.MemoryBIO, None)
        self._records = TlsRecords()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receive_view if self._is_secured else self._receive_view[:_READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing or self._peer_has_finished:
            return
        received = self._receive_view[:nbytes]
        if self._is_secured:
            if not self._read_goes_on:
                self._turn_ends = self._loop.time() + TURN_SECONDS
            self._read_goes_on = nbytes == len(self._receive_view)
            self._records.add(received)
            self._decrypt()
            self._records.keep()
            return
        self._handshake_bytes += nbytes
        if self._handshake_bytes > HANDSHAKE_BYTES:
            self._fail(f"the TLS handshake is not done after {HANDSHAKE_BYTES} bytes")
        elif self._tls is not None:
            self._incoming.write(received)
            self._step()
        else:
            self._take_first(received)

    def eof_received(self) -> bool | None:
        if not self._is_secured or self._below is None:
            return None
        if not self._peer_has_finished:
            self._peer_has_finished = True
            if not self._closing and not self._protocol.eof_received():
                self.close()
        # Bytes that wait are still encrypted and sent. Then the transport below is closed.
        return not self._below.is_closing()

    def pause_writing(self) -> None:
        self._below_is_full = True
        self._maybe_pause_protocol()

    def resume_writing(self) -> None:
        self._below_is_full = False
        self._pump()

    # -- handshake ----------------------------------------------------------------------------------------------------

    def _take_first(self, received: memoryview) -> None:
        first = self._first = self._first or bytearray()
        first += received
        if first[0] != _HANDSHAKE_RECORD:
            self._fail("it does not speak TLS, which this listener does. Its security.protocol has to be one with TLS")
            return
        if len(first) < HEADER_BYTES:
            return
        length = int.from_bytes(first[3:HEADER_BYTES])
        if length > _LONGEST_RECORD:
            self._fail(f"it sends a TLS record of {length} bytes")
        elif len(first) >= HEADER_BYTES + length:
            self._begin()
            self._incoming.write(first)
            self._first = None
            self._step()

    def _begin(self) -> None:
        """Make the TLS object. Raises ValueError for a host name that no certificate can have."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = self._context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=self._server_hostname is None,
            server_hostname=self._server_hostname,
        )

    def _step(self) -> None:
        assert self._tls is not None
        self._is_stepping = True
        self._update_reading()
        self._handshakes.run(self._tls.do_handshake, self._stepped, lambda: not self._closing, self._side)

    def _stepped(self, error: BaseException | None) -> None:
        self._is_stepping = False
        if self._closing:
            return
        assert self._below is not None
        # Send the bytes that OpenSSL has written. They may be an alert.
        if self._outgoing.pending:
            self._below.write(self._outgoing.read())
        if isinstance(error, ssl.SSLWantReadError):
            self._update_reading()
        elif error is not None:
            self._fail(f"the TLS handshake failed: {_reason(error)}")
        else:
            assert self._tls is not None
            self._is_secured = True
            # The rest of the received bytes goes to OpenSSL one record at a time.
            self._records.add(memoryview(self._incoming.read()))
            self._protocol.secured(self._tls.getpeercert(binary_form=True))
            self._update_reading()
            self._turn_ends = self._loop.time() + TURN_SECONDS
            self._decrypt()

    def _fail(self, reason: str) -> None:
        # OpenSSL encrypts nothing after an error, so the bytes that are not yet encrypted are dropped.
        self._closing = True
        self._queue.clear()
        self._queued_bytes = 0
        self._protocol.insecure(reason)
        self._finish()

    # -- reading ------------------------------------------------------------------------------------------------------

    def _decrypt(self) -> None:
        """Pass decrypted bytes to the connection, as long as it wants more and this turn lasts."""
        more = not self._peer_has_finished
        while more and self._wants_bytes and not self._closing:
            view = self._protocol.get_buffer(-1)
            filled = 0
            try:
                while filled < len(view):
                    count = self._read_record(view[filled:])
                    if count is None:
                        more = False
                        break
                    filled += count
                    if self._loop.time() > self._turn_ends:
                        # The rest of the node gets its turn now.
                        more = False
                        self._decrypt_soon()
                        break
            except ssl.SSLZeroReturnError:
                self._peer_has_finished = True
            except ssl.SSLError as error:
                self._fail(f"what it sent is not TLS: {_reason(error)}")
                return
            except _TooManyRecords:
                self._fail("it sends TLS records that have no data, and too many of them")
                return
            if filled:
                self._protocol.buffer_updated(filled)
            if self._peer_has_finished:
                if not self._closing and not self._protocol.eof_received():
                    self.close()
                return
        # OpenSSL may have written a response to an update of keys.
        if not self._lost and self._outgoing.pending and self._below is not None:
            self._below.write(self._outgoing.read())

    def _read_record(self, room: memoryview) -> int | None:
        """Decrypt one record, as far as there is room. Return its number of bytes, or None if no complete record is
        there."""
        tls, records = self._tls, self._records
        assert tls is not None
        was_filled = self._is_filled
        if not was_filled:
            piece = records.next_piece()
            if piece is None:
                return None
            self._incoming.write(piece)
        try:
            # The type stub does not have the buffer argument. Only a complete record can count as one without data.
            count = cast(int, tls.read(len(room), cast(Any, room)))
        except ssl.SSLWantReadError:
            self._is_filled = False
            if was_filled:
                return 0
            if not records.is_whole:
                return None
            if not records.had_none():
                raise _TooManyRecords from None
            return 0
        if not count:
            raise ssl.SSLZeroReturnError
        self._is_filled = count == len(room)
        records.had_data(count)
        return count

    def _decrypt_soon(self) -> None:
        """Continue to decrypt in the next turn of the loop. Nothing is read from the transport until then."""
        if not self._decrypt_scheduled and not self._closing:
            self._decrypt_scheduled = True
            self._update_reading()
            self._loop.call_soon(self._decrypt_later)

    def _decrypt_later(self) -> None:
        self._decrypt_scheduled = self._read_goes_on = False
        if self._is_secured and not self._lost:
            self._turn_ends = self._loop.time() + TURN_SECONDS
            self._decrypt()
            self._update_reading()

    def pause_reading(self) -> None:
        self._wants_bytes = False
        self._update_reading()

    def resume_reading(self) -> None:
        self._wants_bytes = True
        if self._is_secured:
            # The transport below does not report the bytes that this layer already holds.
            self._decrypt_soon()
        self._update_reading()

    def is_reading(self) -> bool:
        return self._wants_bytes and not self._closing

    def _update_reading(self) -> None:
        reading = self._wants_bytes and not self._is_stepping and not self._decrypt_scheduled
        if reading == self._is_reading or self._lost or self._below is None or self._below.is_closing():
            return
        self._is_reading = reading
        if reading:
            self._below.resume_reading()
        else:
            self._below.pause_reading()

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Encrypt and send bytes. The caller must not change them, because some may wait here unencrypted."""
        if self._closing or not len(data):
            return
        view = memoryview(data)
        self._queue.append(view)
        self._queued_bytes += len(view)
        if not self._pump_scheduled:
            self._pump()
        self._maybe_pause_protocol()

    def _maybe_pause_protocol(self) -> None:
        will_hear = self._below_is_full or bool(self._queue)
        if will_hear and not self._protocol_paused and self.get_write_buffer_size() > self._high:
            self._protocol_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self.write(b"".join(list_of_data))

    def _pump(self) -> None:
        below, tls, queue = self._below, self._tls, self._queue
        budget = TURN_BYTES
        while queue and not self._below_is_full and not self._lost:
            assert below is not None
            assert tls is not None
            if budget <= 0:
                # Other connections have responses as well.
                self._pump_scheduled = True
                self._loop.call_soon(self._pump_later)
                return
            view = queue[0]
            piece = view[:PIECE_BYTES]
            try:
                sent = tls.write(piece)
            except ssl.SSLError as error:
                self._fail(f"an answer cannot be encrypted: {_reason(error)}")
                return
            if sent == len(view):
                queue.popleft()
            else:
                queue[0] = view[sent:]
            self._queued_bytes -= sent
            budget -= sent
            self._records.had_data(sent)
            below.write(self._outgoing.read())
        if not queue and self._closing:
            self._finish()
        elif self._protocol_paused and (
            self.get_write_buffer_size() <= self._high // 4 or not (queue or self._below_is_full)
        ):
            self._protocol_paused = False
            self._protocol.resume_writing()

    def _pump_later(self) -> None:
        self._pump_scheduled = False
        self._pump()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _ENCRYPTED_BYTES if high is None else high
        if self._below is not None:
            self._below.set_write_buffer_limits(high=min(self._high, _ENCRYPTED_BYTES))
            self._maybe_pause_protocol()

    def get_write_buffer_size(self) -> int:
        below = 0 if self._below is None else self._below.get_write_buffer_size()
        return self._queued_bytes + below

    # -- the outlet of regions ----------------------------------------------------------------------------------------

    def send(self, data: bytes, *, more: bool) -> None:
        """Encrypt `data`. It is sent with the next piece of a region, or by `flush`."""
        if self._kept_bytes + len(data) > PIECE_BYTES:
            self.flush()
        self._encrypt(data)

    def send_region(self, region: Region, position: int, length: int) -> int:
        """Read, encrypt and send pieces of a region until the socket is full. A piece smaller than its room is kept."""
        room = self._room or self._find_room()
        begin, end = position, position + length
        while position < end:
            piece = min(max(room.free_bytes(), _READ_BYTES), LARGEST_PIECE_BYTES)
            data = region.pread(min(end - position, max(piece - self._kept_bytes, _READ_BYTES)), position)
            if not data:
                raise OSError(errno.EIO, CUT_OFF)
            self._encrypt(data)
            position += len(data)
            if self._kept_bytes >= piece and not self._send_kept():
                break
        return position - begin

    def flush(self) -> None:
        """Send the kept bytes, unless the connection is closing."""
        if self._kept and not self.is_closing():
            self._send_kept()

    def _encrypt(self, data: bytes) -> None:
        assert self._tls is not None
        write, read, keep = self._tls.write, self._outgoing.read, self._kept.append
        view = memoryview(data)
        position, size = 0, len(data)
        while position < size:
            # A MemoryBIO keeps the largest size that it ever had, so it gets only a small piece at a time.
            position += write(view[position : position + _ENCRYPTED_AT_ONCE])
            keep(encrypted := read())
            self._kept_bytes += len(encrypted)
        self._records.had_data(size)

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

    # -- end ----------------------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing or (self._below is not None and self._below.is_closing())

    def close(self) -> None:
        """Close after all written bytes and close_notify have left."""
        if self._closing:
            return
        self._closing = True
        if not self._queue:
            self._finish()

    def _finish(self) -> None:
        below = self._below
        if below is None or self._lost or below.is_closing():
            return
        if self._is_stepping:
            # A thread uses the TLS object.
            below.close()
            return
        if self._is_secured and self._tls is not None:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                # Do not wait for the peer's close_notify.
                pass
        if self._tls is not None and self._outgoing.pending:
            below.write(self._outgoing.read())
        below.close()

    def abort(self) -> None:
        self._closing = True
        if self._below is not None:
            self._below.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sslcontext":
            return self._context
        return default if self._below is None else self._below.get_extra_info(name, default)


def _reason(error: BaseException) -> str:
    """Return OpenSSL's text of the error, without the place in OpenSSL's source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    reason = getattr(error, "reason", None)
    if reason:
        return str(reason).lower().replace("_", " ")
    return str(error) or type(error).__name__
