"""TLS between a transport and a connection: the layer is the protocol of the transport, and the transport of the
connection.

Responsible for the order of a connection: handshake, records in both directions, close_notify. Its parts are an OpenSSL
session without I/O (tls_stream.py), the times at which it reads (paced_reading.py), the bytes that wait to be encrypted
(tls_writer.py), and regions of files (region_pieces.py). Accepted and outgoing connections both use the layer. Not
responsible for certificates (contexts.py), nor for the timeout of a handshake (the connection has a timer for it).

Invariants
* The connection receives no byte before its `secured` is called. Either `secured` or `insecure` is called, or neither.
* One thread at a time uses the TLS object: while a step of the handshake runs on a thread, nothing is read.
* After the handshake at most the bytes of one read wait to be decrypted.
* One turn of the loop decrypts for TURN_SECONDS at most, plus its last record.

A truncated stream needs no guard here: frames have their length, and a part of a frame is never dispatched.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, Final, cast

from pykbroker.net.peer_security import SecuredProtocol
from pykbroker.tls.handshakes import Handshakes, Side
from pykbroker.tls.paced_reading import PacedReading
from pykbroker.tls.region_pieces import RegionPieces
from pykbroker.tls.tls_stream import NotTls, TlsStream, reason_of
from pykbroker.tls.tls_writer import TlsWriter

if TYPE_CHECKING:
    from pykbroker_log.disk import Region

_READ_BYTES: Final = 16 * 1024


class TlsLayer(asyncio.BufferedProtocol, asyncio.Transport):
    """The layer of one connection. `loop`, `handshakes` and `receive_view` are shared. `receive_view` is only used
    during one read. It must not be the memory into which the connections above receive, because a connection receives
    while encrypted records still wait in `receive_view`."""

    __slots__ = (
        "_below",
        "_closing",
        "_handshakes",
        "_loop",
        "_lost",
        "_peer_has_finished",
        "_protocol",
        "_reading",
        "_receive_view",
        "_regions",
        "_side",
        "_stream",
        "_writer",
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
        self._handshakes = handshakes
        self._receive_view = receive_view
        self._stream = TlsStream(context, server_hostname)
        self._reading = PacedReading(loop)
        self._writer = TlsWriter(loop, self._stream, protocol, emptied=self._emptied, failed=self._fail)
        self._regions = RegionPieces(self._stream, self.is_closing)
        self._below: asyncio.Transport | None = None
        self._lost = False
        self._closing = False
        self._peer_has_finished = False

    # -- the protocol of the transport below --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        below = self._below = cast(asyncio.Transport, transport)
        self._writer.attach(below)
        self._reading.attach(below)
        self._regions.attach(below)
        self._protocol.connection_made(self)
        hostname = self._stream.server_hostname
        if hostname is not None and not self._closing:
            # A client sends first.
            try:
                self._stream.begin()
            except ValueError as error:
                self._fail(f"TLS cannot be spoken with {hostname!r}: {error}")
            else:
                self._step()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._lost = self._closing = True
        self._reading.detach()
        self._writer.clear()
        self._regions.clear()
        self._protocol.connection_lost(exc)
        self._stream.clear()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receive_view if self._stream.is_secured else self._receive_view[:_READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing or self._peer_has_finished:
            return
        received = self._receive_view[:nbytes]
        stream = self._stream
        if stream.is_secured:
            self._reading.received(filled=nbytes == len(self._receive_view))
            stream.receive(received)
            self._decrypt()
            stream.keep()
            return
        try:
            can_step = stream.receive_handshake(received)
        except NotTls as error:
            self._fail(str(error))
        else:
            if can_step:
                self._step()

    def eof_received(self) -> bool | None:
        if not self._stream.is_secured or self._below is None:
            return None
        if not self._peer_has_finished:
            self._peer_has_finished = True
            if not self._closing and not self._protocol.eof_received():
                self.close()
        # The waiting bytes are encrypted and sent first. Then the transport below is closed.
        return not self._below.is_closing()

    def pause_writing(self) -> None:
        self._writer.below_is_full()

    def resume_writing(self) -> None:
        self._writer.below_has_room()

    # -- handshake ----------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        self._reading.is_stepping = True
        self._reading.update()
        self._handshakes.run(self._stream.handshake_step, self._stepped, lambda: not self._closing, self._side)

    def _stepped(self, error: BaseException | None) -> None:
        self._reading.is_stepping = False
        if self._closing:
            return
        # The step may have produced an alert.
        self._send_out()
        if isinstance(error, ssl.SSLWantReadError):
            self._reading.update()
        elif error is not None:
            self._fail(f"the TLS handshake failed: {reason_of(error)}")
        else:
            self._protocol.secured(self._stream.secure())
            self._reading.update()
            self._reading.begin_turn()
            self._decrypt()

    def _fail(self, reason: str) -> None:
        # OpenSSL encrypts nothing after an error, so the bytes that are not yet encrypted are dropped.
        self._closing = True
        self._writer.clear()
        self._protocol.insecure(reason)
        self._finish()

    # -- reading ------------------------------------------------------------------------------------------------------

    def _decrypt(self) -> None:
        """Pass decrypted bytes to the connection, as long as it wants more and this turn lasts."""
        stream, reading = self._stream, self._reading
        more = not self._peer_has_finished
        while more and reading.is_wanted and not self._closing:
            view = self._protocol.get_buffer(-1)
            filled = 0
            try:
                while filled < len(view):
                    count = stream.read(view[filled:])
                    if count is None:
                        more = False
                        break
                    filled += count
                    if reading.is_turn_over():
                        # The rest of the node gets its turn now.
                        more = False
                        self._decrypt_soon()
                        break
            except ssl.SSLZeroReturnError:
                self._peer_has_finished = True
            except NotTls as error:
                self._fail(str(error))
                return
            if filled:
                self._protocol.buffer_updated(filled)
            if self._peer_has_finished:
                if not self._closing and not self._protocol.eof_received():
                    self.close()
                return
        # OpenSSL may have written a response to an update of keys.
        self._send_out()

    def _send_out(self) -> None:
        """Send the bytes that OpenSSL has written by itself."""
        if not self._lost and self._below is not None and (written := self._stream.take_out()):
            self._below.write(written)

    def _decrypt_soon(self) -> None:
        """Continue to decrypt in the next turn of the loop. Nothing is read from the transport until then."""
        if not self._reading.is_put_off and not self._closing:
            self._reading.is_put_off = True
            self._reading.update()
            self._loop.call_soon(self._decrypt_later)

    def _decrypt_later(self) -> None:
        self._reading.is_put_off = False
        if self._stream.is_secured and not self._lost:
            self._reading.begin_turn()
            self._decrypt()
            self._reading.update()

    def pause_reading(self) -> None:
        self._reading.is_wanted = False
        self._reading.update()

    def resume_reading(self) -> None:
        self._reading.is_wanted = True
        if self._stream.is_secured:
            # The transport below does not report the bytes that this layer already holds.
            self._decrypt_soon()
        self._reading.update()

    def is_reading(self) -> bool:
        return self._reading.is_wanted and not self._closing

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Encrypt and send bytes. The caller must not change them, because some may wait here unencrypted."""
        if not self._closing and len(data):
            self._writer.write(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._writer.set_limit(high)

    def get_write_buffer_size(self) -> int:
        return self._writer.unsent_bytes

    # -- the outlet of regions ----------------------------------------------------------------------------------------

    def send(self, data: bytes, *, more: bool) -> None:
        """Encrypt `data`. It is sent with the next piece of a region, or by `flush`."""
        self._regions.send(data)

    def send_region(self, region: Region, position: int, length: int) -> int:
        """Read, encrypt and send pieces of a region until the socket is full."""
        return self._regions.send_region(region, position, length)

    def flush(self) -> None:
        """Send the kept bytes, unless the connection is closing."""
        self._regions.flush()

    # -- end ----------------------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing or (self._below is not None and self._below.is_closing())

    def close(self) -> None:
        """Close after all written bytes and close_notify have left."""
        if self._closing:
            return
        self._closing = True
        if self._writer.is_empty:
            self._finish()

    def _emptied(self) -> bool:
        if self._closing:
            self._finish()
        return self._closing

    def _finish(self) -> None:
        below = self._below
        if below is None or self._lost or below.is_closing():
            return
        # A thread uses the TLS object during a step.
        if not self._reading.is_stepping:
            self._stream.end()
            self._send_out()
        below.close()

    def abort(self) -> None:
        self._closing = True
        if self._below is not None:
            self._below.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sslcontext":
            return self._stream.context
        return default if self._below is None else self._below.get_extra_info(name, default)
