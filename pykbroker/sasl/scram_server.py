"""SCRAM on the server: two tokens, which are checked with the user's keys from the metadata log. RFC 5802, KIP-84.

It follows the RFC more strictly than Apache Kafka's ScramSaslServer. It compares the whole nonce of the last message,
requires the header of the first message as channel binding, and refuses a mandatory extension (`m=`).

In addition to Apache Kafka's checks, it hides which users exist: a user without credentials gets a first message like
any other user, and fails at the last step. The salt for such a user must be the same each time and from each broker, so
it is an HMAC of the name (`Decoys`).

Invariant: an exchange is complete only when the proof was made with the user's key.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from pykbroker.sasl.sasl_server import AuthenticationFailed, InvalidCredentials
from pykbroker.sasl.scram import (
    MIN_ITERATIONS,
    BadMessage,
    ClientFirst,
    ScramMechanism,
    ServerFirst,
    hash_of,
    in_base_36,
    parse_client_final,
    parse_client_first,
    random_string,
    to_base64,
    xor,
)
from pykbroker.security.stored_keys import StoredKeys

#: (mechanism number, user name) -> the stored keys of the user's password, or None if the user has none for the
#: mechanism
FindKeys = Callable[[int, str], StoredKeys | None]
_SALT_BITS: Final = 130


class Decoys:
    """Keys for users that have none. A name has the same keys on every broker, and they belong to no password.

    The secret is derived from the cluster id, which all brokers have in their directories, and which clients get only
    after authentication. So only a client that has logged in once can find out which users exist. A separate secret
    would need a metadata record that Apache Kafka does not have.
    """

    __slots__ = ("_secret",)

    def __init__(self, cluster_id: str) -> None:
        self._secret = hmac.digest(cluster_id.encode(), b"pykbroker: salts of SCRAM users that do not exist", "sha512")

    def __repr__(self) -> str:
        return "Decoys([hidden])"

    def keys_for(self, mechanism: ScramMechanism, user: str) -> StoredKeys:
        derived = hmac.digest(self._secret, f"{mechanism.name}\0{user}".encode(), "sha512")
        # The salt has the form of the salts that Apache Kafka's tools make.
        salt = in_base_36(int.from_bytes(derived[:17], "big") >> (17 * 8 - _SALT_BITS)).encode()
        key = hash_of(mechanism, derived)
        return StoredKeys(salt, key, key, MIN_ITERATIONS)


class _State(Enum):
    CLIENT_FIRST = auto()
    CLIENT_FINAL = auto()
    COMPLETE = auto()
    FAILED = auto()


class ScramServer:
    """One exchange (see SaslServer)."""

    __slots__ = (
        "_decoys",
        "_find",
        "_first",
        "_keys",
        "_known",
        "_mechanism",
        "_nonce",
        "_server_first",
        "_state",
        "user",
    )

    def __init__(
        self,
        mechanism: ScramMechanism,
        find: FindKeys,
        decoys: Decoys,
        nonce: Callable[[], str] = random_string,
    ) -> None:
        self._mechanism = mechanism
        self._find = find
        self._decoys = decoys
        self._nonce = nonce
        self._state = _State.CLIENT_FIRST
        self._first: ClientFirst | None = None
        self._server_first: ServerFirst | None = None
        self._keys: StoredKeys | None = None
        self._known = False
        self.user: str | None = None

    def evaluate(self, token: bytes) -> bytes:
        state, self._state = self._state, _State.FAILED
        try:
            if state is _State.CLIENT_FIRST:
                answer = self._take_first(token)
                self._state = _State.CLIENT_FINAL
            elif state is _State.CLIENT_FINAL:
                answer = self._take_final(token)
                self._state = _State.COMPLETE
            else:
                raise InvalidCredentials("the client sent a token after the end of the exchange")
        except BadMessage as error:
            raise InvalidCredentials(str(error)) from None
        return answer.encode()

    def _take_first(self, token: bytes) -> str:
        first = parse_client_first(token)
        if first.extensions.get("tokenauth", "").lower() == "true":
            raise InvalidCredentials("delegation tokens are not served")
        # The decoy is made for each user. It takes a third of the time of this step, and that time must not reveal if
        # the user exists.
        decoy = self._decoys.keys_for(self._mechanism, first.user)
        found = self._find(self._mechanism.number, first.user)
        self._known = found is not None
        keys = decoy if found is None else found
        if first.authzid and first.authzid != first.user:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if keys.iterations < MIN_ITERATIONS:
            raise InvalidCredentials(
                f"Iterations {keys.iterations} is less than the minimum {MIN_ITERATIONS} for {self._mechanism.name}"
            )
        self._first = first
        self._keys = keys
        self._server_first = ServerFirst(first.nonce + self._nonce(), keys.salt, keys.iterations)
        return self._server_first.to_text()

    def _take_final(self, token: bytes) -> str:
        first, server_first, keys = self._first, self._server_first, self._keys
        assert first is not None
        assert server_first is not None
        assert keys is not None
        mechanism = self._mechanism
        final = parse_client_final(token)
        if not hmac.compare_digest(final.nonce, server_first.nonce):
            raise InvalidCredentials("Invalid client nonce in the final client message")
        if final.channel_binding != first.gs2_header.encode():
            raise InvalidCredentials("Invalid channel binding in the final client message")
        signed = f"{first.bare},{server_first.to_text()},{final.without_proof}".encode()
        signature = hmac.digest(keys.stored_key, signed, mechanism.hash_name)
        if len(final.proof) != len(signature):
            raise InvalidCredentials("Invalid client credentials")
        proven = hash_of(mechanism, xor(signature, final.proof))
        if not (hmac.compare_digest(proven, keys.stored_key) and self._known):
            raise InvalidCredentials("Invalid client credentials")
        self.user = first.user
        return f"v={to_base64(hmac.digest(keys.server_key, signed, mechanism.hash_name))}"
