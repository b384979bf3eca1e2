"""The client's side of PLAIN and SCRAM, for the connections that this node makes. RFC 4616, RFC 5802.

Pure: challenges in, tokens out. SCRAM checks the server's signature: a peer that does not know the password's keys is
not this cluster's.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pykbroker.security.sasl.plain_server import PLAIN
from pykbroker.security.sasl.scram import (
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    BadMessage,
    ScramMechanism,
    client_key,
    hash_of,
    parse_server_final,
    parse_server_first,
    random_string,
    salted_password,
    saslname,
    server_key,
    to_base64,
    xor,
)


class LoginRefused(Exception):
    """The peer refuses this node, or proves not to be what it says. The text has nothing of the password."""


@dataclass(slots=True, frozen=True, repr=False)
class Login:
    """As which user this node speaks to others, and by which mechanism."""

    mechanism: str
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.mechanism}, [hidden])"

    def begin(self) -> SaslClient:
        """One exchange."""
        if self.mechanism == PLAIN:
            return PlainClient(self)
        return ScramClient(self, MECHANISMS[self.mechanism])


class SaslClient(Protocol):
    """The client's side of one exchange."""

    @property
    def is_complete(self) -> bool:
        """Whether the peer has shown what it must."""
        ...

    def first(self) -> bytes:
        """The token that begins."""
        ...

    def evaluate(self, challenge: bytes) -> bytes | None:
        """The next token; None when there is none. Raises LoginRefused."""
        ...


class PlainClient:
    __slots__ = ("_login", "is_complete")

    def __init__(self, login: Login) -> None:
        self._login = login
        self.is_complete = False

    def first(self) -> bytes:
        return f"\0{self._login.user}\0{self._login.password}".encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        if challenge or self.is_complete:
            raise LoginRefused("the peer sent a challenge, and PLAIN has none")
        self.is_complete = True
        return None


class ScramClient:
    __slots__ = ("_bare", "_login", "_mechanism", "_nonce", "_signature", "is_complete")

    def __init__(self, login: Login, mechanism: ScramMechanism, nonce: Callable[[], str] = random_string) -> None:
        self._login = login
        self._mechanism = mechanism
        self._nonce = nonce()
        self._bare = f"n={saslname(login.user)},r={self._nonce}"
        #: the server's, once the proof is sent
        self._signature: bytes | None = None
        self.is_complete = False

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        try:
            if self._signature is None:
                return self._prove(challenge)
            self._check(challenge)
        except BadMessage as error:
            raise LoginRefused(str(error)) from None
        return None

    def _prove(self, challenge: bytes) -> bytes:
        mechanism = self._mechanism
        first = parse_server_first(challenge)
        if not first.nonce.startswith(self._nonce) or first.nonce == self._nonce:
            raise LoginRefused("the peer's nonce does not begin with this node's")
        if not MIN_ITERATIONS <= first.iterations <= MAX_ITERATIONS:
            # Few weaken the password, many keep this node busy for the peer.
            raise LoginRefused(
                f"the peer wants {first.iterations} iterations, allowed are {MIN_ITERATIONS} to {MAX_ITERATIONS}"
            )
        salted = salted_password(mechanism, self._login.password, first.salt, first.iterations)
        without_proof = f"c={to_base64(b'n,,')},r={first.nonce}"
        signed = f"{self._bare},{challenge.decode()},{without_proof}".encode()
        key = client_key(mechanism, salted)
        proof = xor(key, hmac.digest(hash_of(mechanism, key), signed, mechanism.hash_name))
        self._signature = hmac.digest(server_key(mechanism, salted), signed, mechanism.hash_name)
        return f"{without_proof},p={to_base64(proof)}".encode()

    def _check(self, challenge: bytes) -> None:
        assert self._signature is not None
        final = parse_server_final(challenge)
        if final.error is not None or not hmac.compare_digest(final.signature, self._signature):
            raise LoginRefused("the peer does not prove that it knows this node's password")
        self.is_complete = True
