"""One TLS connection of OpenSSL as a value: bytes of the peer in, bytes for the peer out. Pure, without a socket or a
clock.

Responsible for the first record, for the bytes that a peer may send before the end of its handshake, for passing one
record at a time to OpenSSL (tls_records.py), and for encrypting. Not responsible for the thread that a step of the
handshake needs, nor for the transport below and the connection above (tls_layer.py).

Invariants
* OpenSSL is not called before the first record is complete, so silent and slow clients cost no TLS object.
* Before the handshake is done, at most HANDSHAKE_BYTES are received.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any, Final, cast

from pykbroker.tls.tls_records import HEADER_BYTES, TlsRecords

#: The most bytes of a peer until its handshake is done: enough for the longest certificate chain of OpenSSL.
HANDSHAKE_BYTES: Final = 128 * 1024
_LONGEST_RECORD: Final = 16 * 1024 + 256
_HANDSHAKE_RECORD: Final = 0x16
_ENCRYPTED_AT_ONCE: Final = 32 * 1024


class NotTls(Exception):
    """The peer sent bytes that end the connection; the text is the reason."""


class TlsStream:
    """Call `begin` for a connection that this node makes. Then call `receive_handshake` and `handshake_step` until the
    handshake is done, and `secure` once."""

    __slots__ = (
        "_first",
        "_handshake_bytes",
        "_incoming",
        "_is_filled",
        "_outgoing",
        "_records",
        "_tls",
        "context",
        "is_secured",
        "server_hostname",
    )

    def __init__(self, context: ssl.SSLContext, server_hostname: str | None) -> None:
        """`server_hostname`: the peer's, for a connection that this node makes; None for one that it accepted."""
        self.context = context
        self.server_hostname = server_hostname
        self._tls: ssl.SSLObject | None = None
        self._incoming = self._outgoing = cast(ssl.MemoryBIO, None)
        #: the received part of the first record, before there is a TLS object
        self._first: bytearray | None = None
        self._handshake_bytes = 0
        self.is_secured = False
        #: received since the handshake and not yet passed to OpenSSL
        self._records = TlsRecords()
        #: True if the reader's buffer was filled, so that OpenSSL may still hold the rest of the record
        self._is_filled = False

    def begin(self) -> None:
        """Make the TLS object. Raises ValueError for a host name that no certificate can have."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = self.context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=self.server_hostname is None,
            server_hostname=self.server_hostname,
        )

    # -- handshake ----------------------------------------------------------------------------------------------------

    def receive_handshake(self, received: memoryview) -> bool:
        """Add received bytes. Return True if OpenSSL can take a step. Raises NotTls."""
        self._handshake_bytes += len(received)
        if self._handshake_bytes > HANDSHAKE_BYTES:
            raise NotTls(f"the TLS handshake is not done after {HANDSHAKE_BYTES} bytes")
        if self._tls is None:
            return self._receive_first(received)
        self._incoming.write(received)
        return True

    def _receive_first(self, received: memoryview) -> bool:
        first = self._first = self._first or bytearray()
        first += received
        if first[0] != _HANDSHAKE_RECORD:
            raise NotTls("it does not speak TLS, which this listener does")
        if len(first) < HEADER_BYTES:
            return False
        length = int.from_bytes(first[3:HEADER_BYTES])
        if length > _LONGEST_RECORD:
            raise NotTls(f"it sends a TLS record of {length} bytes")
        if len(first) < HEADER_BYTES + length:
            return False
        self.begin()
        self._incoming.write(first)
        self._first = None
        return True

    @property
    def handshake_step(self) -> Callable[[], object]:
        """The next step. It may run on a thread, and until it has ended, nothing else of this stream is used. It raises
        ssl.SSLWantReadError if the peer must send first, and returns if the handshake is done."""
        assert self._tls is not None
        return self._tls.do_handshake

    def secure(self) -> bytes | None:
        """Note that the handshake is done. Return the certificate that the peer has proved (DER), or None."""
        assert self._tls is not None
        self.is_secured = True
        # The rest of the received bytes goes to OpenSSL one record at a time.
        self._records.add(memoryview(self._incoming.read()))
        return self._tls.getpeercert(binary_form=True)

    # -- records ------------------------------------------------------------------------------------------------------

    def receive(self, received: memoryview) -> None:
        """Add received bytes after the handshake. They must not change before `keep`."""
        self._records.add(received)

    def keep(self) -> None:
        """Copy the bytes that wait."""
        self._records.keep()

    def read(self, room: memoryview) -> int | None:
        """Decrypt one record, as far as there is room. Return its number of bytes, or None if no complete record is
        there. Raises ssl.SSLZeroReturnError after the peer's close_notify, and NotTls."""
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
                raise NotTls("it sends TLS records that have no data, and too many of them") from None
            return 0
        except ssl.SSLZeroReturnError:
            raise
        except ssl.SSLError as error:
            raise NotTls(f"what it sent is not TLS: {reason_of(error)}") from error
        if not count:
            raise ssl.SSLZeroReturnError
        self._is_filled = count == len(room)
        records.had_data(count)
        return count

    def write(self, data: memoryview) -> int:
        """Encrypt at least a part of `data`, and return its size. `take_out` has the result. Raises ssl.SSLError."""
        assert self._tls is not None
        count = self._tls.write(data)
        self._records.had_data(count)
        return count

    def encrypt(self, data: bytes, keep: Callable[[bytes], None]) -> int:
        """Encrypt all of `data`, and pass the result in parts to `keep`. Return the size of the result."""
        assert self._tls is not None
        write, read = self._tls.write, self._outgoing.read
        view = memoryview(data)
        position, size, total = 0, len(data), 0
        while position < size:
            # A MemoryBIO keeps the largest size that it ever had, so it gets only a small piece at a time.
            position += write(view[position : position + _ENCRYPTED_AT_ONCE])
            keep(encrypted := read())
            total += len(encrypted)
        self._records.had_data(size)
        return total

    def take_out(self) -> bytes:
        """Return the bytes for the peer that OpenSSL has written: of a handshake, an alert, an update of keys, or
        encrypted data."""
        return self._outgoing.read() if self._tls is not None and self._outgoing.pending else b""

    def end(self) -> None:
        """Write close_notify, and do not wait for the peer's."""
        if self.is_secured and self._tls is not None:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass

    def clear(self) -> None:
        """Free the memory, because the connection is lost. A TLS object has 50 KiB outside of Python's memory, which
        the collector does not count, so it frees a connection late (connection and transport refer to each other). A
        handshake's thread has its own reference."""
        self._tls = self._first = None
        self._incoming = self._outgoing = cast(ssl.MemoryBIO, None)
        self._records = TlsRecords()


def reason_of(error: BaseException) -> str:
    """Return OpenSSL's text of the error, without the place in OpenSSL's source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    reason = getattr(error, "reason", None)
    if reason:
        return str(reason).lower().replace("_", " ")
    return str(error) or type(error).__name__
