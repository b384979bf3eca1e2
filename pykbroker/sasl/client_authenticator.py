"""Authenticates this node on a connection that it makes: first SaslHandshake, then the tokens, then other requests.

Pure: responses in, requests out. Responsible for the order of the messages, and for accepting no success response
before the mechanism is complete (KIP-43, KIP-152, KIP-368). Not responsible for sockets, versions, time
(outgoing_login.py), nor for the content of a token (sasl_client.py).

Invariant: an exchange gives a session only if the peer has proved its identity as far as the mechanism requires it.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from pykbroker.sasl.sasl_client import Derivation, Login, LoginRefused, SaltedPasswords
from pykbroker_wire.errors import ErrorCode, error_name
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pykbroker_wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

#: If the handshake used version 0, tokens are sent without a header, so a response would have no error code.
LEAST_HANDSHAKE: Final = 1
_LONGEST_TEXT: Final = 200


class ClientSession(NamedTuple):
    """The session after the peer has accepted this node. `lifetime_ms`: the time until the session ends unless it is
    renewed. None if the session lasts as long as the connection."""

    lifetime_ms: int | None


class _Step(Enum):
    BEGIN = auto()
    HANDSHAKE = auto()
    TOKENS = auto()
    COMPLETE = auto()
    FAILED = auto()


class ClientAuthenticator:
    """One exchange. Each method may raise LoginRefused. Do not use the object after that."""

    __slots__ = ("_client", "_mechanism", "_step")

    def __init__(self, login: Login, salted: SaltedPasswords) -> None:
        self._client = login.begin(salted)
        self._mechanism = login.mechanism
        self._step = _Step.BEGIN

    def begin(self) -> SaslHandshakeRequest:
        """Return the first request. Call it once."""
        assert self._step is _Step.BEGIN
        self._step = _Step.HANDSHAKE
        return SaslHandshakeRequest(mechanism=self._mechanism)

    def handshaken(self, response: SaslHandshakeResponse) -> SaslAuthenticateRequest:
        """Return the next request, after the response to the request of `begin`."""
        self._expect(_Step.HANDSHAKE)
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            served = ", ".join(response.mechanisms)
            raise LoginRefused(f"the peer does not serve {self._mechanism}, only {shown(served)}")
        if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise LoginRefused("the peer asks for no SASL on this listener")
        if response.error_code != ErrorCode.NONE:
            raise LoginRefused(f"the peer answers SaslHandshake with {error_name(response.error_code)}")
        self._step = _Step.TOKENS
        return SaslAuthenticateRequest(auth_bytes=self._client.first())

    def derivation(self, response: SaslAuthenticateResponse) -> Derivation | None:
        """Return the inputs of the key that must be derived before this response is passed to `receive`, or None. The
        derivation takes milliseconds."""
        if self._step is not _Step.TOKENS or response.error_code != ErrorCode.NONE:
            return None
        return self._client.derivation(bytes(response.auth_bytes))

    def derive(self, derivation: Derivation) -> bytes:
        """Return the salted password, for the SaltedPasswords. It takes milliseconds and may run on any thread."""
        return self._client.derive(derivation)

    def receive(self, response: SaslAuthenticateResponse) -> SaslAuthenticateRequest | ClientSession:
        """Return the next request, or the session."""
        self._expect(_Step.TOKENS)
        if response.error_code != ErrorCode.NONE:
            said = f": {shown(response.error_message)}" if response.error_message else ""
            raise LoginRefused(f"{error_name(response.error_code)}{said}")
        token = self._client.evaluate(bytes(response.auth_bytes))
        self._step = _Step.COMPLETE if self._client.is_complete else _Step.TOKENS
        if self._step is _Step.COMPLETE:
            lifetime_ms = response.session_lifetime_ms
            return ClientSession(lifetime_ms if lifetime_ms > 0 else None)
        assert token is not None
        return SaslAuthenticateRequest(auth_bytes=token)

    def _expect(self, step: _Step) -> None:
        found, self._step = self._step, _Step.FAILED
        if found is not step:
            raise LoginRefused("the peer sends an answer that no request waits for")


def shown(text: str) -> str:
    """Return a peer's text in a form that is safe for a line of the log."""
    return text[:_LONGEST_TEXT].encode("unicode_escape").decode("ascii")
