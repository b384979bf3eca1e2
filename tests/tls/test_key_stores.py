"""Stores of PEM, PKCS #12 and JKS: those of keytool and others are read, and an unusable one is one line."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_der_x509_certificate
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker.config.kinds import ConfigError
from pykbroker.runtime.secret_files import as_memory_file
from pykbroker.tls.stores import OwnKey, StorePasswords, read_key, read_trusted
from testkit.certificates import authority, client_identity, in_one_line, node_identity

GOLDEN = Path(__file__).parents[1] / "golden" / "key_stores"
STORE, KEY = "storesecret", "keysecret"
NAME = "listener SSL, keystore /etc/key"


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def check_fits(own: OwnKey) -> None:
    """Check that the key is that of the first certificate, and that OpenSSL accepts both."""
    raw = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    key = load_pem_private_key(own.pem, None).public_key()
    assert key.public_bytes(*raw) == load_der_x509_certificate(own.chain[0]).public_key().public_bytes(*raw)
    with as_memory_file(own.pem) as path:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)


@pytest.mark.parametrize(
    ("file", "passwords"),
    [
        ("key.jks", StorePasswords(STORE, KEY)),
        ("key.p12", StorePasswords(STORE)),
        ("key.p12", StorePasswords(STORE, STORE)),
    ],
)
def test_keys_that_keytool_has_made(file: str, passwords: StorePasswords) -> None:
    own = read_key(golden(file), passwords, NAME)
    check_fits(own)
    assert own.chain == read_trusted(golden("certificate.pem"), None, NAME)


@pytest.mark.parametrize("file", ["trust.jks", "trust.p12", "certificate.pem"])
@pytest.mark.parametrize("password", [STORE, None])
def test_trust_stores_that_keytool_has_made(file: str, password: str | None) -> None:
    if file == "trust.p12" and password is None:
        with pytest.raises(ConfigError, match="the password is wrong"):
            read_trusted(golden(file), password, NAME)
    else:
        (certificate,) = read_trusted(golden(file), password, NAME)
        assert load_der_x509_certificate(certificate).subject.rfc4514_string() == "CN=node,O=Golden"


def test_a_key_in_a_trust_store_trusts_its_own_certificate_alone() -> None:
    """As in Java: the authority above it is part of the chain, and not a separate entry."""
    identity = node_identity()
    (trusted,) = read_trusted(identity.pkcs12("p"), "p", NAME)
    assert load_der_x509_certificate(trusted) == identity.certificate
    (trusted,) = read_trusted(golden("key.jks"), STORE, NAME)
    with pytest.raises(ConfigError, match="no certificate that is trusted"):
        read_trusted(
            pkcs12.serialize_key_and_certificates(
                None, None, None, [authority().certificate], BestAvailableEncryption(b"p")
            ),
            "p",
            NAME,
        )


def test_our_own_stores_are_read() -> None:
    identity = node_identity()
    own = read_key(identity.pkcs12("p"), StorePasswords("p"), NAME)
    check_fits(own)
    assert [load_der_x509_certificate(each) for each in own.chain] == [identity.certificate, authority().certificate]
    (trusted,) = read_trusted(authority().truststore("p"), "p", NAME)
    assert load_der_x509_certificate(trusted) == authority().certificate


def test_pem_may_be_encrypted_and_in_one_line() -> None:
    identity = node_identity()
    protection = BestAvailableEncryption("pässword".encode())
    encrypted = identity.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection)
    for pem in (encrypted + identity.chain_pem, in_one_line(identity.chain_pem + encrypted).encode()):
        check_fits(read_key(pem, StorePasswords(key="pässword"), NAME))
    traditional = identity.key.private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"x")
    )
    for pem, password, reason in (
        (encrypted + identity.chain_pem, None, "ssl.key.password is not set"),
        (encrypted + identity.chain_pem, "wrong", "cannot be decrypted"),
        (traditional + identity.chain_pem, "x", "0 private keys"),
    ):
        with pytest.raises(ConfigError, match=reason):
            read_key(pem, StorePasswords(key=password), NAME)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no store of PEM, PKCS12 or JKS"),
        (b"\x30", "no store"),
        (b"hello", "no store"),
        (b"\x30\x82\x00\x10" + bytes(16), "the password is wrong, or it is no PKCS12"),
        (b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----", "0 private keys"),
        (b"-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----", "no base64"),
        (b"-----BEGIN PRIVATE KEY-----\nabcd\n-----END PRIVATE KEY-----", "its key cannot be read"),
        (node_identity().key_pem, "it has no certificate"),
        (node_identity().key_pem * 2 + node_identity().chain_pem, "it has 2 private keys"),
        (node_identity().key_pem + client_identity().chain_pem, "does not fit"),
        (golden("key.jks")[:-1] + b"x", "the password is wrong, or the store is damaged"),
        (golden("trust.jks"), "0 private keys"),
        (golden("other.jceks"), "JCEKS is not served"),
        (authority().truststore(STORE), "no private key"),
    ],
)
def test_what_cannot_be_used_is_one_line(data: bytes, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        read_key(data, StorePasswords(STORE), NAME)
    line = str(refused.value)
    assert line.startswith(NAME)
    assert "\n" not in line
    assert STORE not in line


@pytest.mark.parametrize(
    ("file", "passwords"),
    [
        ("key.jks", StorePasswords("wrong", KEY)),
        ("key.jks", StorePasswords(STORE, "wrong")),
        ("key.jks", StorePasswords(STORE)),
        ("key.p12", StorePasswords("wrong")),
        ("key.p12", StorePasswords(STORE, "another")),
        ("key.p12", StorePasswords()),
    ],
)
def test_a_wrong_password_is_one_line_without_it(file: str, passwords: StorePasswords) -> None:
    with pytest.raises(ConfigError, match="password") as refused:
        read_key(golden(file), passwords, NAME)
    assert refused.value.__cause__ is None
    for secret in (passwords.store, passwords.key):
        assert secret in (None, "wrong", "another") or secret not in str(refused.value)


def test_secrets_are_in_no_repr() -> None:
    assert STORE not in repr(StorePasswords(STORE, KEY))
    assert "PRIVATE" not in repr(read_key(golden("key.p12"), StorePasswords(STORE), NAME))
    assert "PRIVATE" not in repr(node_identity())


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    file=st.sampled_from(["key.jks", "trust.jks", "key.p12", "trust.p12", "certificate.pem"]),
    cuts=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=4),
    end=st.integers(0, 5000),
    password=st.sampled_from([STORE, None]),
)
def test_damaged_stores_are_refused_and_nothing_else(
    file: str, cuts: list[tuple[int, int]], end: int, password: str | None
) -> None:
    data = bytearray(golden(file))
    for position, byte in cuts:
        data[position % len(data)] = byte
    del data[max(1, end % len(data)) :]
    for read in (
        lambda: read_trusted(bytes(data), password, NAME),
        lambda: read_key(bytes(data), StorePasswords(password, KEY if file == "key.jks" else None), NAME),
    ):
        with contextlib.suppress(ConfigError):
            read()


#: OIDs with a changed end: a curve, and a kind of key, that do not exist
_CURVE = bytes.fromhex("2a8648ce3d030107"), bytes.fromhex("2a8648ce3d030177")
_KIND = bytes.fromhex("2a8648ce3d0201"), bytes.fromhex("2a8648ce3d0277")


def jks_of(key: bytes, certificate: bytes, password: str) -> bytes:
    """Return a store with one key (PKCS #8, DER), as keytool writes it; the key's salt is zero."""
    secret, block, stream = password.encode("utf-16-be"), bytes(20), b""
    while len(stream) < len(key):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    hidden = bytes(20) + bytes(a ^ b for a, b in zip(key, stream, strict=False)) + hashlib.sha1(secret + key).digest()
    protected = bytes.fromhex("060a2b060104012a0211010105000482") + len(hidden).to_bytes(2) + hidden
    body = bytes.fromhex("feedfeed0000000200000001000000010001") + b"k" + bytes(8)
    body += len(protected).to_bytes(4) + protected + (1).to_bytes(4)
    body += (5).to_bytes(2) + b"X.509" + len(certificate).to_bytes(4) + certificate
    return body + hashlib.sha1(secret + b"Mighty Aphrodite" + body).digest()


def pem(label: str, der: bytes) -> bytes:
    return f"-----BEGIN {label}-----\n{base64.b64encode(der).decode()}\n-----END {label}-----\n".encode()


@pytest.mark.parametrize("unknown", [_CURVE, _KIND])
def test_a_key_whose_algorithm_is_not_served_is_refused_with_one_line(unknown: tuple[bytes, bytes]) -> None:
    """The key is in a PEM file, in JKS, or in a certificate."""
    identity = node_identity()
    der = identity.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    certificate = identity.certificate.public_bytes(Encoding.DER)
    check_fits(read_key(jks_of(der, certificate, STORE), StorePasswords(STORE), NAME))
    strange = der.replace(*unknown)
    assert strange != der
    for data in (
        pem("PRIVATE KEY", strange) + identity.chain_pem,
        jks_of(strange, certificate, STORE),
        identity.key_pem + pem("CERTIFICATE", certificate.replace(*unknown)),
    ):
        with pytest.raises(ConfigError, match="its algorithm is not served") as refused:
            read_key(data, StorePasswords(STORE), NAME)
        assert "\n" not in str(refused.value)


def test_a_certificate_of_a_strange_version_is_refused_with_one_line() -> None:
    der = authority().certificate.public_bytes(Encoding.DER)
    strange = der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x09", 1)
    with pytest.raises(ConfigError, match="one of its certificates cannot be read"):
        read_trusted(pem("CERTIFICATE", strange), None, NAME)
    with pytest.raises(ConfigError, match="one of its certificates cannot be read"):
        read_key(node_identity().key_pem + pem("CERTIFICATE", strange), StorePasswords(), NAME)


def test_a_memory_file_is_on_no_disk() -> None:
    with as_memory_file(b"secret" * 100_000) as path:
        assert os.readlink(path).startswith("/memfd:")
        assert Path(path).read_bytes() == b"secret" * 100_000
    assert not Path(path).exists()


def test_a_key_of_another_kind_is_refused_with_one_line() -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    with pytest.raises(ConfigError, match="does not fit"):
        read_key(pem + node_identity().chain_pem, StorePasswords(key="x"), NAME)
