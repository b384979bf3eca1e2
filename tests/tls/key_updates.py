"""A TLS 1.3 client that sends records which Python's ssl cannot make: updates of its keys (RFC 8446, 4.6.3)."""

from __future__ import annotations

import hmac
import ssl
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_HASHES = {"TLS_AES_256_GCM_SHA384": "sha384", "TLS_AES_128_GCM_SHA256": "sha256"}
_APPLICATION, _HANDSHAKE = 23, 22
#: A handshake message of type 24 with one byte: the peer need not update its own keys, or must.
_NOT_REQUESTED, _REQUESTED = b"\x18\0\0\1\0", b"\x18\0\0\1\1"


class ClientRecords:
    """The records of a client after its handshake, made without OpenSSL. `lines` are those of the key log."""

    def __init__(self, cipher: str, lines: str) -> None:
        secrets = {line.split()[0]: bytes.fromhex(line.split()[2]) for line in lines.splitlines() if line[0] != "#"}
        self._hash = _HASHES[cipher]
        self._key_bytes = 32 if "256_GCM" in cipher else 16
        self._take(secrets["CLIENT_TRAFFIC_SECRET_0"])

    def _take(self, secret: bytes) -> None:
        self._secret = secret
        self._cipher = AESGCM(self._expand(b"key", self._key_bytes))
        self._iv = int.from_bytes(self._expand(b"iv", 12))
        self._number = 0

    def _expand(self, label: bytes, size: int) -> bytes:
        """HKDF-Expand-Label of no more than one block."""
        label = b"tls13 " + label
        info = size.to_bytes(2) + bytes([len(label)]) + label + b"\0"
        return hmac.digest(self._secret, info + b"\1", self._hash)[:size]

    def _record(self, content: bytes, kind: int) -> bytes:
        header = b"\x17\3\3" + (len(content) + 17).to_bytes(2)
        nonce = (self._iv ^ self._number).to_bytes(12)
        self._number += 1
        return header + self._cipher.encrypt(nonce, content + bytes([kind]), header)

    def data(self, content: bytes) -> bytes:
        return self._record(content, _APPLICATION)

    def update(self, *, requested: bool = False) -> bytes:
        record = self._record(_REQUESTED if requested else _NOT_REQUESTED, _HANDSHAKE)
        self._take(self._expand(b"traffic upd", len(self._secret)))
        return record


def logging_keys(context: ssl.SSLContext, log: Path) -> ssl.SSLContext:
    context.keylog_filename = str(log)
    return context
