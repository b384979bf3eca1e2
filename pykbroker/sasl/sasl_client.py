"""The client's side of PLAIN and SCRAM, for the connections that this node makes. RFC 4616, RFC 5802.

Pure: it takes challenges and returns tokens. SCRAM checks the server's signature, because a peer that does not have the
password's keys does not belong to this cluster. The one costly step, PBKDF2, can run on a thread before `evaluate` (see
`derivation`). Salted passwords are stored (`SaltedPasswords`), so that the next connection does not need this step.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from pykbroker.sasl.plain_server import PLAIN
from pykbroker.sasl.scram import (
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    BadMessage,
    ScramMechanism,
    ServerFirst,
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

#: The most salted passwords that are stored for one login. A user has one salt in a cluster, and two while its password
#: changes.
_KEPT: Final = 8


class LoginRefused(Exception):
    """The peer refuses this node, or does not prove its identity. The text contains nothing of the password."""


@dataclass(slots=True, frozen=True, repr=False)
class Login:
    """The user, the password and the mechanism with which this node authenticates to other nodes."""

    mechanism: str
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.mechanism}, [hidden])"

    def begin(self, salted: SaltedPasswords | None = None) -> SaslClient:
        """Begin an exchange. `salted`: the salted passwords that earlier exchanges have derived."""
        if self.mechanism == PLAIN:
            return PlainClient(self)
        return ScramClient(self, MECHANISMS[self.mechanism], salted=salted)


class Derivation(NamedTuple):
    """The inputs, apart from the password, from which a salted password is derived."""

    salt: bytes
    iterations: int


class SaltedPasswords:
    """The salted passwords of one login that were used last, by the salts that peers chose. Its `repr` shows none."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Derivation, bytes] = {}

    def __repr__(self) -> str:
        return "SaltedPasswords([hidden])"

    def find(self, derivation: Derivation) -> bytes | None:
        """Return the salted password, or None if it is not stored."""
        salted = self._known.pop(derivation, None)
        if salted is not None:
            self._known[derivation] = salted
        return salted

    def keep(self, derivation: Derivation, salted: bytes) -> None:
        self._known[derivation] = salted
        while len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]


class SaslClient(Protocol):
    """The client's side of one exchange."""

    @property
    def is_complete(self) -> bool:
        """True after the peer has proved its identity as far as the mechanism requires it."""
        ...

    def first(self) -> bytes:
        """Return the first token."""
        ...

    def derivation(self, challenge: bytes) -> Derivation | None:
        """Return the inputs of the key that `evaluate` will need for this challenge, or None if it needs none. Raises
        LoginRefused."""
        ...

    def derive(self, derivation: Derivation) -> bytes:
        """Return the salted password that `evaluate` would derive. It may run on a thread, because it releases the
        GIL."""
        ...

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Return the next token, or None if there is none. Raises LoginRefused."""
        ...


class PlainClient:
    __slots__ = ("_login", "is_complete")

    def __init__(self, login: Login) -> None:
        self._login = login
        self.is_complete = False

    def first(self) -> bytes:
        return f"\0{self._login.user}\0{self._login.password}".encode()

    def derivation(self, challenge: bytes) -> Derivation | None:
        return None

    def derive(self, derivation: Derivation) -> bytes:
        raise AssertionError("PLAIN derives nothing")

    def evaluate(self, challenge: bytes) -> bytes | None:
        if challenge or self.is_complete:
            raise LoginRefused("the peer sent a challenge, and PLAIN has none")
        self.is_complete = True
        return None


class ScramClient:
    __slots__ = ("_bare", "_login", "_mechanism", "_nonce", "_salted", "_signature", "is_complete")

    def __init__(
        self,
        login: Login,
        mechanism: ScramMechanism,
        nonce: Callable[[], str] = random_string,
        salted: SaltedPasswords | None = None,
    ) -> None:
        self._login = login
        self._salted = SaltedPasswords() if salted is None else salted
        self._mechanism = mechanism
        self._nonce = nonce()
        self._bare = f"n={saslname(login.user)},r={self._nonce}"
        #: the signature that the server must send; None until the proof is sent
        self._signature: bytes | None = None
        self.is_complete = False

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def derivation(self, challenge: bytes) -> Derivation | None:
        if self._signature is not None:
            return None
        first = self._first_of(challenge)
        wanted = Derivation(first.salt, first.iterations)
        return None if self._salted.find(wanted) is not None else wanted

    def derive(self, derivation: Derivation) -> bytes:
        return salted_password(self._mechanism, self._login.password, derivation.salt, derivation.iterations)

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
        first = self._first_of(challenge)
        derivation = Derivation(first.salt, first.iterations)
        salted = self._salted.find(derivation)
        if salted is None:
            salted = self.derive(derivation)
            self._salted.keep(derivation, salted)
        without_proof = f"c={to_base64(b'n,,')},r={first.nonce}"
        signed = f"{self._bare},{challenge.decode()},{without_proof}".encode()
        key = client_key(mechanism, salted)
        proof = xor(key, hmac.digest(hash_of(mechanism, key), signed, mechanism.hash_name))
        self._signature = hmac.digest(server_key(mechanism, salted), signed, mechanism.hash_name)
        return f"{without_proof},p={to_base64(proof)}".encode()

    def _first_of(self, challenge: bytes) -> ServerFirst:
        """Return the server's first message. Raises LoginRefused."""
        try:
            first = parse_server_first(challenge)
        except BadMessage as error:
            raise LoginRefused(str(error)) from None
        if not first.nonce.startswith(self._nonce) or first.nonce == self._nonce:
            raise LoginRefused("the peer's nonce does not begin with this node's")
        if not MIN_ITERATIONS <= first.iterations <= MAX_ITERATIONS:
            # With few iterations the password is easier to guess. With many, the peer could keep this node busy.
            raise LoginRefused(
                f"the peer wants {first.iterations} iterations, allowed are {MIN_ITERATIONS} to {MAX_ITERATIONS}"
            )
        return first

    def _check(self, challenge: bytes) -> None:
        assert self._signature is not None
        final = parse_server_final(challenge)
        if final.error is not None or not hmac.compare_digest(final.signature, self._signature):
            raise LoginRefused("the peer does not prove that it knows this node's password")
        self.is_complete = True
