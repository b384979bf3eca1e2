"""A reader of Java's own key store format (JKS). No library that reads it has wheels for every system.

Pure. Responsible for the integrity of the store, its entries, and the protection of its keys. JCEKS is not read.

Layout: magic, version, number of entries, and the entries. An entry begins with tag, alias and time. A key entry then
has an EncryptedPrivateKeyInfo and the chain, a trusted entry one certificate. At the end is the SHA-1 of the password,
a fixed salt (two words), and all bytes before.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from struct import Struct
from typing import Final

STORE_MAGIC: Final = b"\xfe\xed\xfe\xed"
JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"
_SALT: Final = b"Mighty Aphrodite"
#: The OID 1.3.6.1.4.1.42.2.17.1.1, which names the encryption of keys.
_PROTECTION: Final = bytes.fromhex("060a2b060104012a02110101")
_KEY, _TRUSTED = 1, 2
_DIGEST_BYTES: Final = 20
_SHORT, _INT = Struct(">H"), Struct(">I")


class JksError(ValueError):
    """The store cannot be read. The text contains no secrets."""


@dataclass(slots=True, frozen=True)
class JksKey:
    """An entry with a key. protected: the encrypted key. chain: certificates (DER), the key's own certificate first."""

    alias: str
    protected: bytes
    chain: tuple[bytes, ...]


@dataclass(slots=True, frozen=True)
class JksStore:
    keys: tuple[JksKey, ...]
    #: certificates, DER
    trusted: tuple[bytes, ...]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, count: int) -> bytes:
        start, end = self._position, self._position + count
        if end > len(self._data):
            raise JksError("it ends too early")
        self._position = end
        return self._data[start:end]

    def int(self) -> int:
        value: int = _INT.unpack(self.take(4))[0]
        return value

    def text(self) -> str:
        return self.take(_SHORT.unpack(self.take(2))[0]).decode("utf-8", "replace")

    def certificate(self) -> bytes:
        kind = self.text()
        if kind != "X.509":
            raise JksError(f"it has a certificate of type {kind}, and only X.509 is served")
        return self.take(self.int())


def read_jks(data: bytes, password: str | None) -> JksStore:
    """Read a store. Without a password its integrity is not checked, as in Java. Raises JksError with the reason."""
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        expected = hashlib.sha1(password.encode("utf-16-be") + _SALT + body).digest()  # noqa: S324  # the format JKS
        if not hmac.compare_digest(expected, digest):
            raise JksError("the password is wrong, or the store is damaged")
    reader = _Reader(body)
    reader.take(len(STORE_MAGIC))
    version = reader.int()
    if version not in (1, 2):
        raise JksError(f"version {version}")
    keys, trusted = [], []
    for _ in range(reader.int()):
        tag, alias = reader.int(), reader.text()
        reader.take(8)
        if tag == _KEY:
            protected = reader.take(reader.int())
            keys.append(JksKey(alias, protected, tuple(reader.certificate() for _ in range(reader.int()))))
        elif tag == _TRUSTED:
            trusted.append(reader.certificate())
        else:
            raise JksError(f"it has an entry of the unknown kind {tag}")
    return JksStore(tuple(keys), tuple(trusted))


def unprotected(key: JksKey, password: str) -> bytes:
    """Return the decrypted key of an entry (PKCS #8, DER). Raises JksError for a wrong password."""
    # SEQUENCE { SEQUENCE { OID, NULL }, OCTET STRING }: only the OCTET STRING is needed, which comes after OID and
    # NULL.
    at = key.protected.find(_PROTECTION)
    if at < 0:
        raise JksError(f"the key {key.alias} is protected in an unknown way")
    rest = _Reader(key.protected[at + len(_PROTECTION) :])
    rest.take(2)  # NULL
    if rest.take(1) != b"\x04":
        raise JksError(f"the key {key.alias} cannot be read")
    length = rest.take(1)[0]
    if length & 0x80:
        length = int.from_bytes(rest.take(length & 0x7F))
    if length < 2 * _DIGEST_BYTES:
        raise JksError(f"the key {key.alias} cannot be read")
    secret = password.encode("utf-16-be")
    block = rest.take(_DIGEST_BYTES)
    encrypted = rest.take(length - 2 * _DIGEST_BYTES)
    stream = bytearray()
    while len(stream) < len(encrypted):
        block = hashlib.sha1(secret + block).digest()  # noqa: S324  # the format JKS
        stream += block
    plain = bytes(a ^ b for a, b in zip(encrypted, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain).digest(), rest.take(_DIGEST_BYTES)):  # noqa: S324  # the format JKS
        raise JksError(f"the password of the key {key.alias} is wrong")
    return plain
