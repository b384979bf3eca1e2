"""The parts of SCRAM that both sides use: mechanisms, keys, and the messages of the exchange. RFC 5802, RFC 7677;
KIP-84.

Pure. Not responsible for the order of messages on each side (scram_server.py, sasl_client.py). Passwords are taken as
UTF-8 without SASLprep, as in Apache Kafka's ScramFormatter.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from pykbroker.security.stored_keys import StoredKeys

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
#: A longer message is refused, because the patterns take 200 bytes of memory for each byte of a message, and clients
#: send messages before they are authenticated. Names, nonces and keys have some hundred bytes.
MAX_MESSAGE_BYTES: Final = 16 * 1024
_RANDOM_BITS: Final = 130
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class ScramMechanism(NamedTuple):
    """`number`: the mechanism's number in the protocol and in metadata records; `hash_name`: the name for hashlib."""

    name: str
    number: int
    hash_name: str
    #: the name in the texts of Apache Kafka's errors
    constant: str

    @property
    def key_bytes(self) -> int:
        """The size of a salted password, and of each key."""
        return hashlib.new(self.hash_name).digest_size


SHA_256: Final = ScramMechanism("SCRAM-SHA-256", 1, "sha256", "SCRAM_SHA_256")
SHA_512: Final = ScramMechanism("SCRAM-SHA-512", 2, "sha512", "SCRAM_SHA_512")
MECHANISMS: Final = {mechanism.name: mechanism for mechanism in (SHA_256, SHA_512)}
BY_NUMBER: Final = {mechanism.number: mechanism for mechanism in MECHANISMS.values()}


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", mechanism.hash_name)


def server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Server Key", mechanism.hash_name)


def hash_of(mechanism: ScramMechanism, key: bytes) -> bytes:
    """Return H(key) of the RFC. The hash of the client key is the stored key."""
    return hashlib.new(mechanism.hash_name, key).digest()


def stored_keys(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> StoredKeys:
    """Return the stored keys for a salted password."""
    stored = hash_of(mechanism, client_key(mechanism, salted))
    return StoredKeys(salt, stored, server_key(mechanism, salted), iterations)


def xor(one: bytes, other: bytes) -> bytes:
    """Return the XOR of two byte strings of the same length. Raises ValueError if the lengths differ."""
    if len(one) != len(other):
        raise ValueError("two keys of different sizes")
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def in_base_36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


def random_string(randbits: Callable[[int], int] = secrets.randbits) -> str:
    """Return 130 random bits in base 36: the form of Apache Kafka's nonces, and, as bytes, of its salts."""
    return in_base_36(randbits(_RANDOM_BITS))


# -- texts ------------------------------------------------------------------------------------------------------------


def saslname(user: str) -> str:
    """Return a user's name in the form that messages have, with escapes."""
    return user.replace("=", "=3D").replace(",", "=2C")


def user_of(name: str) -> str:
    """Return the user's name for a `saslname` that a pattern has matched."""
    return name.replace("=2C", ",").replace("=3D", "=")


def to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


class BadMessage(ValueError):
    """The bytes are not a SCRAM message. The text contains none of these bytes."""


# Only ASCII, as in Apache Kafka's patterns.
_SASLNAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = "(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS: Final = f"(?:,[A-Za-z]+={_VALUE})*"

# By the RFC, the server must understand an extension `m=` or refuse it. No pattern allows it, so it is refused.
_CLIENT_FIRST: Final = re.compile(
    f"(?P<gs2>n,(?:a=(?P<authzid>{_SASLNAME}))?,)"
    f"(?P<bare>n=(?P<name>{_SASLNAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST: Final = re.compile(f"r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}).*")
_CLIENT_FINAL: Final = re.compile(
    f"(?P<without_proof>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL: Final = re.compile(f"(?:e=(?P<error>[^,]+)|v=(?P<signature>{_BASE64}))(?:,.*)?")


class ClientFirst(NamedTuple):
    gs2_header: str
    bare: str
    #: "" if there is none
    authzid: str
    user: str
    nonce: str
    extensions: dict[str, str]


class ServerFirst(NamedTuple):
    nonce: str
    salt: bytes
    iterations: int

    def to_text(self) -> str:
        return f"r={self.nonce},s={to_base64(self.salt)},i={self.iterations}"


class ClientFinal(NamedTuple):
    channel_binding: bytes
    nonce: str
    without_proof: str
    proof: bytes


class ServerFinal(NamedTuple):
    error: str | None
    signature: bytes


def _matched(pattern: re.Pattern[str], data: bytes, name: str) -> re.Match[str]:
    found = None
    if len(data) <= MAX_MESSAGE_BYTES:
        with suppress(UnicodeDecodeError):
            found = pattern.fullmatch(data.decode())
    if found is None:
        raise BadMessage(f"Invalid SCRAM {name} message format")
    return found


def _from_base64(text: str) -> bytes:
    """Decode base64. Only the form in which unused bits are 0 is accepted. Raises BadMessage for others."""
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error:
        data = b""
    if to_base64(data) != text:
        raise BadMessage("Invalid SCRAM message format")
    return data


def parse_client_first(data: bytes) -> ClientFirst:
    """Parse the first message of a client. Raises BadMessage. Channel binding (`p=`, `y`) is such an error too, because
    Apache Kafka does not support it either."""
    found = _matched(_CLIENT_FIRST, data, "client first")
    pairs = (pair.partition("=") for pair in found["extensions"].split(",")[1:])
    extensions = {name: value for name, _, value in pairs}
    authzid = user_of(found["authzid"] or "")
    return ClientFirst(found["gs2"], found["bare"], authzid, user_of(found["name"]), found["nonce"], extensions)


def parse_server_first(data: bytes) -> ServerFirst:
    found = _matched(_SERVER_FIRST, data, "server first")
    return ServerFirst(found["nonce"], _from_base64(found["salt"]), int(found["iterations"]))


def parse_client_final(data: bytes) -> ClientFinal:
    found = _matched(_CLIENT_FINAL, data, "client final")
    return ClientFinal(
        _from_base64(found["channel"]), found["nonce"], found["without_proof"], _from_base64(found["proof"])
    )


def parse_server_final(data: bytes) -> ServerFinal:
    found = _matched(_SERVER_FINAL, data, "server final")
    return ServerFinal(found["error"], _from_base64(found["signature"] or ""))
