"""The authentication of a client on a SASL connection: takes frames, returns responses and a verdict. Pure, without a
clock.

As in Apache Kafka's SaslServerAuthenticator, a client sends ApiVersions at most once, then SaslHandshake, then the
tokens of the mechanism. After version 1 of SaslHandshake the tokens are in SaslAuthenticate requests (KIP-152), after
version 0 they are bare frames. Re-authentication is another exchange on the same connection. It begins with
SaslHandshake, and must have the same mechanism and the same user (KIP-368). Not responsible for framing, for time, nor
for the permissions of a principal.

Two rules are stricter than in Apache Kafka. Before authentication no body of a request of another API is read, so such
a request gets no response. An exchange has at most MAX_FRAMES frames.

Invariants
* An exchange has an authenticated user only in the state COMPLETE, which it reaches only if its SaslServer has a user.
* A failed exchange stays failed.
* No error and no log line contains data that a client sent, except the name of an API.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from pykbroker.sasl.sasl_server import AuthenticationFailed, InvalidCredentials, SaslServer
from pykbroker.security.client_software import is_valid
from pykbroker_wire.apis import APIS, ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.headers import RequestHeader, encode_response
from pykbroker_wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pykbroker_wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pykbroker_wire.primitives import Buffer, DecodeError

#: The most frames of an exchange. A client needs five: ApiVersions twice, SaslHandshake, and two tokens.
MAX_FRAMES: Final = 12

AnswerFrame = list[Buffer]


class AuthenticationState(Enum):
    #: ApiVersions or SaslHandshake may come.
    HANDSHAKE_OR_VERSIONS = auto()
    #: SaslHandshake must come.
    HANDSHAKE = auto()
    #: The mechanism's tokens must come, in SaslAuthenticate requests or as bare frames.
    AUTHENTICATE = auto()
    #: The client re-authenticates by another mechanism, so its first token fails.
    BAD_MECHANISM = auto()
    COMPLETE = auto()
    FAILED = auto()


@dataclass(slots=True, frozen=True)
class Mechanism:
    """`begin` makes the server's side of an exchange. `max_reauth_ms`: the lifetime of a session; 0 means without
    end."""

    begin: Callable[[], SaslServer]
    max_reauth_ms: int = 0


@dataclass(slots=True, frozen=True)
class ListenerRules:
    """The rules for every connection of a listener. `versions` returns the answer to ApiVersions in a version."""

    mechanisms: Mapping[str, Mechanism]
    versions: Callable[[int], ApiVersionsResponse]


@dataclass(slots=True, frozen=True)
class Authenticated:
    """A session. `lifetime_ms`: it ends after this time unless it is renewed; None if it does not end. `is_renewable`:
    the client uses SaslAuthenticate 1 or newer, so it can renew the session (KIP-368)."""

    user: str
    mechanism: str
    lifetime_ms: int | None
    is_renewable: bool = True


@dataclass(slots=True)
class SaslStep:
    """The result of one frame. At most one of `authenticated` and `failed` is set; if neither is, the exchange
    continues.

    `answer` of a failure is sent after the delay for failures. `software`: the client's software from ApiVersions.
    """

    answer: AnswerFrame = field(default_factory=list)
    authenticated: Authenticated | None = None
    failed: str | None = None
    software: tuple[str, str] | None = None


class _OtherUser(AuthenticationFailed):
    """The client tries to renew its session as another user. Only the client gets the text, which has both names."""


class _Failed(Exception):
    """The exchange has failed. `answer` is for the client; it is empty if there is no response."""

    def __init__(self, reason: str, answer: AnswerFrame | None = None) -> None:
        super().__init__(reason)
        self.answer: AnswerFrame = [] if answer is None else answer


class ServerAuthenticator:
    """One exchange. `renewed`: the session that it renews, or None for the first exchange."""

    __slots__ = ("_frames", "_is_renewable", "_mechanism", "_renewed", "_rules", "_server", "_with_headers", "state")

    def __init__(self, rules: ListenerRules, renewed: Authenticated | None = None) -> None:
        self._rules = rules
        self._renewed = renewed
        self._server: SaslServer | None = None
        self._mechanism = ""
        #: True if tokens come in SaslAuthenticate requests
        self._with_headers = False
        self._is_renewable = False
        self._frames = 0
        self.state = AuthenticationState.HANDSHAKE_OR_VERSIONS if renewed is None else AuthenticationState.HANDSHAKE

    def receive(self, frame: Buffer) -> SaslStep:
        """Take one frame, without its size."""
        state, self.state = self.state, AuthenticationState.FAILED
        self._frames += 1
        try:
            if self._frames > MAX_FRAMES:
                raise _Failed(f"more than {MAX_FRAMES} requests")
            if state in (AuthenticationState.HANDSHAKE_OR_VERSIONS, AuthenticationState.HANDSHAKE):
                outcome, self.state = self._take_request(state, frame)
            elif state is AuthenticationState.AUTHENTICATE:
                outcome, self.state = self._take_token(frame)
            elif state is AuthenticationState.BAD_MECHANISM:
                assert self._renewed is not None
                # Apache Kafka sends no response here.
                raise _Failed(f"re-authentication must use the same mechanism, {self._renewed.mechanism}")
            else:
                raise _Failed("it sent a request after the end of the exchange")
        except _Failed as failure:
            return SaslStep(failure.answer, failed=str(failure))
        except DecodeError:
            # The error's text is left out, because it may contain data that the client sent.
            return SaslStep(failed="it sent a request that cannot be decoded")
        return outcome

    # -- before the tokens --------------------------------------------------------------------------------------------

    def _take_request(self, state: AuthenticationState, frame: Buffer) -> tuple[SaslStep, AuthenticationState]:
        header, position = RequestHeader.decode(frame)
        if header.api_key == ApiKey.API_VERSIONS:
            if state is not AuthenticationState.HANDSHAKE_OR_VERSIONS:
                raise _Failed("it sent ApiVersions, and SaslHandshake was expected")
            return self._answer_versions(header, frame, position)
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            return self._take_handshake(header, frame, position)
        raise _Failed(f"it sent {_name_of(header)} before authentication")

    def _answer_versions(
        self, header: RequestHeader, frame: Buffer, position: int
    ) -> tuple[SaslStep, AuthenticationState]:
        api, version = APIS[ApiKey.API_VERSIONS], header.version
        if not api.min_version <= version <= api.max_version:
            known = ApiVersion(api_key=header.api_key, min_version=api.min_version, max_version=api.max_version)
            refused = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known])
            answer = encode_response(header.correlation_id, header.api_key, 0, refused.encode(0))
            return SaslStep(answer), AuthenticationState.HANDSHAKE_OR_VERSIONS
        request, _ = ApiVersionsRequest.decode(frame, position, version)
        if not is_valid(request, version):
            refused = ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            return SaslStep(_answer(header, refused)), AuthenticationState.HANDSHAKE_OR_VERSIONS
        software = (request.client_software_name, request.client_software_version) if version >= 3 else None
        answer = _answer(header, self._rules.versions(version))
        return SaslStep(answer, software=software), AuthenticationState.HANDSHAKE

    def _take_handshake(
        self, header: RequestHeader, frame: Buffer, position: int
    ) -> tuple[SaslStep, AuthenticationState]:
        _check_version(header)
        request, _ = SaslHandshakeRequest.decode(frame, position, header.version)
        names = list(self._rules.mechanisms)
        mechanism = self._rules.mechanisms.get(request.mechanism)
        if mechanism is None:
            refused = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=names)
            raise _Failed("an unsupported SASL mechanism", _answer(header, refused))
        self._with_headers = header.version >= 1
        answer = _answer(header, SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=names))
        if self._renewed is not None and request.mechanism != self._renewed.mechanism:
            self._mechanism = request.mechanism
            return SaslStep(answer), AuthenticationState.BAD_MECHANISM
        self._mechanism = request.mechanism
        self._server = mechanism.begin()
        return SaslStep(answer), AuthenticationState.AUTHENTICATE

    # -- tokens -------------------------------------------------------------------------------------------------------

    def _take_token(self, frame: Buffer) -> tuple[SaslStep, AuthenticationState]:
        if not self._with_headers:
            try:
                challenge, authenticated = self._evaluate(bytes(frame))
            except (AuthenticationFailed, InvalidCredentials) as error:
                raise _Failed(_reason(error)) from None
            answer: AnswerFrame = [len(challenge).to_bytes(4, "big") + challenge]
        else:
            header, token = self._token_of(frame)
            try:
                challenge, authenticated = self._evaluate(token)
            except AuthenticationFailed as error:
                raise _Failed(_reason(error), _refused(header, str(error))) from None
            except InvalidCredentials as error:
                # All reasons have the same text, so that a client cannot find out anything about users.
                text = f"Authentication failed during {self._what} due to invalid credentials with SASL mechanism "
                raise _Failed(str(error), _refused(header, text + self._mechanism)) from None
            # Without an error the text is empty, as in Apache Kafka.
            response = SaslAuthenticateResponse(error_message="", auth_bytes=challenge)
            if authenticated is not None and authenticated.lifetime_ms is not None:
                response.session_lifetime_ms = authenticated.lifetime_ms
            answer = _answer(header, response)
        if authenticated is None:
            return SaslStep(answer), AuthenticationState.AUTHENTICATE
        return SaslStep(answer, authenticated), AuthenticationState.COMPLETE

    def _token_of(self, frame: Buffer) -> tuple[RequestHeader, bytes]:
        header, position = RequestHeader.decode(frame)
        if header.api_key != ApiKey.SASL_AUTHENTICATE:
            raise _Failed(f"it sent {_name_of(header)}, and SaslAuthenticate was expected", _illegal_state(header))
        _check_version(header)
        self._is_renewable = header.version >= 1
        request, _ = SaslAuthenticateRequest.decode(frame, position, header.version)
        return header, bytes(request.auth_bytes)

    def _evaluate(self, token: bytes) -> tuple[bytes, Authenticated | None]:
        server = self._server
        assert server is not None
        challenge = server.evaluate(token)
        user = server.user
        if user is None:
            return challenge, None
        renewed = self._renewed
        if renewed is not None and user != renewed.user:
            raise _OtherUser(f"Cannot change principals during re-authentication from User.{renewed.user}: User.{user}")
        lasts_ms = self._rules.mechanisms[self._mechanism].max_reauth_ms
        return challenge, Authenticated(
            user, self._mechanism, lasts_ms if lasts_ms > 0 else None, is_renewable=self._is_renewable
        )

    @property
    def _what(self) -> str:
        return "authentication" if self._renewed is None else "re-authentication"


def _reason(error: AuthenticationFailed | InvalidCredentials) -> str:
    """Return the reason for the log."""
    return "re-authentication as another user" if isinstance(error, _OtherUser) else str(error)


def _name_of(header: RequestHeader) -> str:
    return APIS[header.api_key].name


def _check_version(header: RequestHeader) -> None:
    """Raise _Failed for an unknown version, because no response can be encoded in it."""
    api = APIS[header.api_key]
    if not api.min_version <= header.version <= api.max_version:
        raise _Failed(f"{api.name} of version {header.version}")


def _answer(header: RequestHeader, response: Any) -> AnswerFrame:
    return encode_response(header.correlation_id, header.api_key, header.version, response.encode(header.version))


def _refused(header: RequestHeader, text: str) -> AnswerFrame:
    return _answer(
        header, SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text)
    )


def _illegal_state(header: RequestHeader) -> AnswerFrame:
    """Return the ILLEGAL_SASL_STATE response for the APIs that a client may use before authentication, or an empty
    frame for any other API."""
    api = APIS[header.api_key]
    if not api.min_version <= header.version <= api.max_version:
        return []
    if header.api_key == ApiKey.SASL_HANDSHAKE:
        return _answer(header, SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
    if header.api_key == ApiKey.API_VERSIONS:
        return _answer(header, ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
    return []
