"""SASL on the connections of a listener: passes frames to the authenticator, and carries out its verdict.

Responsible for time: the delay of a refusal (connection.failed.authentication.delay.ms), a deadline for the whole
exchange, the end of a session (KIP-368). Not responsible for the meaning of a frame
(server_authenticator.py).

Invariants
* Between `begin` and a verdict every frame goes to the authenticator, and none to the dispatcher.
* A connection that is refused reads no more bytes.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pykbroker.net.connection import CloseConnection
from pykbroker.net.connection_state import ConnectionState
from pykbroker.net.promise import Promise
from pykbroker.sasl.server_authenticator import Authenticated, ListenerRules, ServerAuthenticator
from pykbroker.security.peer_session import PeerSession

if TYPE_CHECKING:
    from pykbroker.net.connection import Connection, DispatchFrame
    from pykbroker.net.replies import AnswerBuffers, Pending

logger = logging.getLogger(__name__)

_HANDSHAKE: Final = b"\0\x11"
#: As in Apache Kafka: a client that renews its session more often than this is refused.
_LEAST_SECONDS_BETWEEN: Final = 1.0
#: The time for a refused client to read the response and to close. kafka-python, for one, does not read a response that
#: comes together with the end of the connection.
_SECONDS_TO_READ: Final = 0.25


@dataclass(slots=True, frozen=True)
class ListenerAuthentication:
    """The settings that all connections of a listener share.

    frame_bytes: the limit of a request before authentication. failure_seconds: the delay of a refusal.
    deadline_seconds: the timeout of the whole exchange.
    """

    rules: ListenerRules
    frame_bytes: int
    failure_seconds: float
    deadline_seconds: float

    def begin(self, connection: Connection) -> None:
        """Authenticate the connection, beginning with its first frame."""
        SaslConnection(connection, self).begin(None)


class _Refusal:
    """The response of a failed exchange, which leaves after the delay (see Pending)."""

    __slots__ = ("_answer", "future")

    def __init__(self, answer: AnswerBuffers) -> None:
        self._answer = answer
        self.future = Promise()

    def encode(self, result: Any) -> AnswerBuffers:
        return self._answer


class SaslConnection:
    """The first authentication of one connection, and the later ones that renew its session."""

    __slots__ = (
        "_authenticator",
        "_connection",
        "_expires_at",
        "_renewed_at",
        "_serve",
        "_session",
        "_settings",
        "_timer",
    )

    def __init__(self, connection: Connection, settings: ListenerAuthentication) -> None:
        self._connection = connection
        self._settings = settings
        self._serve: DispatchFrame = connection.listener.dispatch
        self._authenticator: ServerAuthenticator | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._session: Authenticated | None = None
        self._expires_at = 0.0
        self._renewed_at: float | None = None

    def begin(self, session: Authenticated | None) -> None:
        """Begin an exchange with the next frames; it renews `session`, if that is not None."""
        connection, settings = self._connection, self._settings
        connection.become(ConnectionState.AUTHENTICATING)
        self._authenticator = ServerAuthenticator(settings.rules, session)
        connection.frames_go_to(self._authenticate, settings.frame_bytes)
        self._timer = connection.listener.loop.call_later(settings.deadline_seconds, self._too_late)
        if session is None:
            connection.when_ended(lambda end: self._let_go())

    def _authenticate(self, connection: Connection, frame: memoryview) -> AnswerBuffers | Pending | None:
        assert self._authenticator is not None
        outcome = self._authenticator.receive(frame)
        if outcome.software is not None:
            connection.client_software_name, connection.client_software_version = outcome.software
        if outcome.failed is not None:
            return self._refuse(outcome.failed, outcome.answer)
        if outcome.authenticated is not None:
            self._enter(outcome.authenticated)
        return outcome.answer or None

    def _enter(self, session: Authenticated) -> None:
        connection = self._connection
        loop, metrics = connection.listener.loop, connection.listener.metrics
        named = self._principal_of(session)
        if self._session is not None:
            metrics.renewed.value += 1
        else:
            metrics.authenticated.value += 1
            if not session.is_renewable:
                metrics.without_renewal.value += 1
        self._authenticator = None
        self._session = session
        self._stop_timer()
        connection.session = named
        connection.become(ConnectionState.READY)
        if session.lifetime_ms is None:
            serve = self._serve
        else:
            self._expires_at = loop.time() + session.lifetime_ms / 1000
            serve = self._serve_session
        connection.frames_go_to(serve, connection.listener.limits.frame_bytes)

    def _principal_of(self, session: Authenticated) -> PeerSession:
        """Return the session with its principal. Raises CloseConnection for a user without a principal, or whose
        principal has changed since the last authentication."""
        connection = self._connection
        principals = connection.listener.principals
        if principals is None:
            return PeerSession(f"User:{session.user}")
        try:
            named = principals.session(connection, user=session.user, mechanism=session.mechanism)
        except ValueError as error:
            self._count_refusal()
            raise CloseConnection(f"the client has no principal: {error}") from None
        if self._session is not None and named != connection.session:
            self._count_refusal()
            raise CloseConnection(
                f"its principal was {connection.session.principal}, and after the renewal it is {named.principal}"
            )
        return named

    def _refuse(self, reason: str, answer: AnswerBuffers) -> Pending | None:
        """Refuse the client after the delay that Kafka has against guessing. Nothing more is read from the client."""
        connection = self._connection
        self._count_refusal()
        self._stop_timer()
        connection.mute()
        loop, delay = connection.listener.loop, self._settings.failure_seconds
        reason = f"authentication failed: {reason}"
        if not answer:
            self._timer = loop.call_later(delay, connection.close, reason)
            return None
        refusal = _Refusal(answer)
        self._timer = loop.call_later(delay, self._answer, refusal, reason)
        return refusal

    def _answer(self, refusal: _Refusal, reason: str) -> None:
        logger.info("Connection from %s: %s", self._connection, reason)
        refusal.future.set_result(None)
        self._timer = self._connection.listener.loop.call_later(
            _SECONDS_TO_READ, self._connection.close, reason, logging.DEBUG
        )

    def _count_refusal(self) -> None:
        metrics = self._connection.listener.metrics
        (metrics.refused if self._session is None else metrics.renewal_refused).value += 1

    def _too_late(self) -> None:
        self._count_refusal()
        self._connection.close(f"not authenticated within {self._settings.deadline_seconds:g} s")

    def _let_go(self) -> None:
        """Drop the bytes that the client has sent. Connections refer to themselves, so they stay in memory until the
        garbage collector runs. Until then, clients without authentication could hold any amount of memory."""
        self._stop_timer()
        self._authenticator = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- a session that ends ------------------------------------------------------------------------------------------

    def _serve_session(self, connection: Connection, frame: memoryview) -> AnswerBuffers | Pending | None:
        now = connection.listener.loop.time()
        if bytes(frame[:2]) == _HANDSHAKE and (
            self._renewed_at is None or now - self._renewed_at >= _LEAST_SECONDS_BETWEEN
        ):
            self._renewed_at = now
            self.begin(self._session)
            return self._authenticate(connection, frame)
        if now > self._expires_at:
            connection.listener.metrics.expired.value += 1
            raise CloseConnection("its session has ended and was not renewed (connections.max.reauth.ms)")
        return self._serve(connection, frame)
