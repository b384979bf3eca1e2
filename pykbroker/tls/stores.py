"""Key stores and trust stores: reads a key with its chain, or certificates, from the bytes of PEM, PKCS #12 or JKS.

Pure. The content of a store decides its format, not the type in the configuration, because Java's tools have written
PKCS #12 into files named .jks since 2017. Keys stay in memory. Every error is one line that names the store and
contains no secret.

There are two differences from Java. A store with several keys is refused, while Java chooses one of them. In PKCS #12 a
certificate is trusted if it has an alias, while Java requires an attribute that only its own tools write. These tools
always write an alias with the attribute.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pykbroker.config.kinds import ConfigError
from pykbroker.tls import jks

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\s([A-Za-z0-9+/=\s]+)-----END \1-----")
_CERTIFICATES: Final = (b"CERTIFICATE", b"X509 CERTIFICATE", b"TRUSTED CERTIFICATE")
_SEQUENCE: Final = 0x30


@dataclass(slots=True, frozen=True)
class OwnKey:
    """A key and its chain. pem: the key without encryption, then the chain. chain: certificates (DER), the key's own
    certificate first. alias: Java's name for the entry in its store."""

    pem: bytes = field(repr=False)
    chain: tuple[bytes, ...]
    alias: str = "kafka"


@dataclass(slots=True, frozen=True)
class StorePasswords:
    """The password of a store, and the password of its key if that is a different one."""

    store: str | None = None
    key: str | None = None

    def __repr__(self) -> str:
        return "Passwords([hidden])"


def read_key(data: bytes, passwords: StorePasswords, name: str) -> OwnKey:
    """Return the only key of a store. `name` is the name of the store in errors. Raises ConfigError."""
    try:
        with _refused("it cannot be read"):
            match _kind(data):
                case "PEM":
                    key, chain, alias = _pem_key(data, passwords.key)
                case "JKS":
                    key, chain, alias = _jks_key(data, passwords)
                case _:
                    key, chain, alias = _pkcs12_key(data, passwords)
    except (jks.JksError, _StoreError) as error:
        raise ConfigError(f"{name}: {error}") from None
    return replace(_own_key(key, chain, name), alias=alias)


def read_trusted(data: bytes, password: str | None, name: str) -> tuple[bytes, ...]:
    """Return the certificates (DER) that a store trusts, at least one. Raises ConfigError."""
    try:
        with _refused("it cannot be read"):
            match _kind(data):
                case "PEM":
                    found = tuple(_certificates(data))
                case "JKS":
                    store = jks.read_jks(data, password)
                    found = (*store.trusted, *(key.chain[0] for key in store.keys if key.chain))
                case _:
                    found = _pkcs12_trusted(data, password)
            for certificate in found:
                _parse(certificate)
    except (jks.JksError, _StoreError) as error:
        raise ConfigError(f"{name}: {error}") from None
    if not found:
        raise ConfigError(f"{name}: it has no certificate that is trusted")
    return found


class _StoreError(ValueError):
    pass


def _kind(data: bytes) -> str:
    if data.startswith(jks.STORE_MAGIC):
        return "JKS"
    if data.startswith(jks.JCEKS_MAGIC):
        raise _StoreError("a store of type JCEKS is not served; keytool -importkeystore makes PKCS12 of it")
    if b"-----BEGIN " in data:
        return "PEM"
    if data[:1] == bytes([_SEQUENCE]) and len(data) > 1 and data[1] & 0x80:
        return "PKCS12"
    raise _StoreError("it is no store of PEM, PKCS12 or JKS")


# -- PEM --------------------------------------------------------------------------------------------------------------


def _blocks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the label and the DER of each block. Any white space is accepted, because a properties file may have all
    blocks in one line."""
    for label, body in _BLOCK.findall(data):
        try:
            yield label, base64.b64decode(b"".join(body.split()), validate=True)
        except binascii.Error:
            raise _StoreError(f"the block {label.decode()} is no base64") from None


def _certificates(data: bytes) -> list[bytes]:
    return [der for label, der in _blocks(data) if label in _CERTIFICATES]


def _pem_key(data: bytes, password: str | None) -> tuple[Any, list[bytes], str]:
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    keys = [(label, der) for label, der in _blocks(data) if label.endswith(b"PRIVATE KEY")]
    if len(keys) != 1:
        raise _StoreError(f"it has {len(keys)} private keys, and must have one")
    ((label, der),) = keys
    encrypted = label == b"ENCRYPTED PRIVATE KEY"
    if encrypted and password is None:
        raise _StoreError("its key is encrypted, and ssl.key.password is not set")
    reason = "its key cannot be decrypted with ssl.key.password" if encrypted else "its key cannot be read"
    with _refused(reason):
        key = load_der_private_key(der, password.encode() if encrypted and password is not None else None)
    return key, _certificates(data), "kafka"


# -- PKCS #12 and JKS -------------------------------------------------------------------------------------------------


def _pkcs12(data: bytes, password: str | None) -> Any:
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    with _refused("the password is wrong, or it is no PKCS12 store that can be read"):
        return load_pkcs12(data, None if password is None else password.encode())


def _pkcs12_key(data: bytes, passwords: StorePasswords) -> tuple[Any, list[bytes], str]:
    if passwords.key is not None and passwords.key != passwords.store:
        raise _StoreError("ssl.key.password is not that of the store, and a PKCS12 store has one for both")
    store = _pkcs12(data, passwords.store)
    if store.key is None or store.cert is None:
        raise _StoreError("it has no private key with a certificate")
    others = [each.certificate for each in store.additional_certs]
    alias = "1" if store.cert.friendly_name is None else store.cert.friendly_name.decode(errors="replace").lower()
    return store.key, [_der(each) for each in _chain(store.cert.certificate, others)], alias


def _chain(leaf: Certificate, others: list[Certificate]) -> list[Certificate]:
    """Return a certificate followed by its issuers. In a PKCS #12 store the certificates have no order."""
    chain = [leaf]
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((each for each in others if each.subject == chain[-1].issuer and each not in chain), None)
        if issuer is None:
            break
        chain.append(issuer)
    return chain


def _pkcs12_trusted(data: bytes, password: str | None) -> tuple[bytes, ...]:
    store = _pkcs12(data, password)
    found = [each.certificate for each in store.additional_certs if each.friendly_name is not None]
    if store.cert is not None:
        found.append(store.cert.certificate)
    return tuple(map(_der, found))


def _jks_key(data: bytes, passwords: StorePasswords) -> tuple[Any, list[bytes], str]:
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    store = jks.read_jks(data, passwords.store)
    if len(store.keys) != 1:
        raise _StoreError(f"it has {len(store.keys)} private keys, and must have one")
    (entry,) = store.keys
    password = passwords.key if passwords.key is not None else passwords.store
    der = jks.unprotected(entry, password or "")
    with _refused(f"its key {entry.alias} cannot be read"):
        return load_der_private_key(der, None), list(entry.chain), entry.alias


# -- keys and certificates --------------------------------------------------------------------------------------------


@contextmanager
def _refused(reason: str) -> Iterator[None]:
    """Turn errors of the library cryptography into a _StoreError. They have many types, and their texts may contain
    anything."""
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        yield
    except (jks.JksError, _StoreError):
        raise
    except UnsupportedAlgorithm:
        raise _StoreError(f"{reason}: its algorithm is not served") from None
    except Exception:  # noqa: BLE001  # as the docstring says
        raise _StoreError(reason) from None


def _parse(der: bytes) -> Certificate:
    from cryptography.x509 import load_der_x509_certificate

    with _refused("one of its certificates cannot be read"):
        return load_der_x509_certificate(der)


def _der(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.DER)


def _own_key(key: Any, chain: list[bytes], name: str) -> OwnKey:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    if not chain:
        raise ConfigError(f"{name}: it has no certificate")
    kind = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    try:
        first, *_ = [_parse(certificate) for certificate in chain]
        with _refused("its key, or that of its first certificate, cannot be used"):
            fits = key.public_key().public_bytes(*kind) == first.public_key().public_bytes(*kind)
            pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    except _StoreError as error:
        raise ConfigError(f"{name}: {error}") from None
    if not fits:
        raise ConfigError(f"{name}: its key does not fit its first certificate")
    return OwnKey(pem + b"".join(map(_to_pem, chain)), tuple(chain))


def _to_pem(der: bytes) -> bytes:
    return b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE-----\n"
