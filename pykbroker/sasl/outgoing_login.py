"""SASL on the connections that this node makes: the exchange of each connection, and the data that connections to one
listener share.

Responsible for time and threads: a key is derived off the loop, once for all connections that need it. A session is
renewed before it ends (KIP-368). After a refusal is logged, further refusals by this peer are not logged until it has
accepted this node again. Not responsible for the messages (client_authenticator.py), nor for pauses between attempts
(net/client.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from pykbroker.net.peer_security import AuthenticatingConnection
from pykbroker.runtime import Runtime
from pykbroker.sasl.client_authenticator import LEAST_HANDSHAKE, ClientAuthenticator, ClientSession
from pykbroker.sasl.sasl_client import Derivation, Login, LoginRefused, SaltedPasswords
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateResponse
from pykbroker_wire.messages.sasl_handshake import SaslHandshakeResponse

logger = logging.getLogger(__name__)

#: As in Apache Kafka's clients, a session is renewed after 85 to 95 % of its lifetime, so that not all sessions are
#: renewed at once.
_RENEWED_FROM: Final = 0.85
_SPREAD: Final = 0.1
#: The timeout of a renewal.
RENEWAL_SECONDS: Final = 30.0


class OutgoingLogin:
    """The user as which this node authenticates at one listener of other nodes. All connections to that listener share
    it."""

    def __init__(self, runtime: Runtime, login: Login) -> None:
        self.runtime = runtime
        self._login = login
        self._salted = SaltedPasswords()
        self._deriving: dict[Derivation, list[Callable[[], None]]] = {}
        #: addresses that have refused this node, and have not accepted it since
        self._refused_by: set[str] = set()

    def exchange(self, connection: AuthenticatingConnection) -> OutgoingExchange:
        return OutgoingExchange(self, connection)

    def begin(self) -> ClientAuthenticator:
        return ClientAuthenticator(self._login, self._salted)

    def derive(self, authenticator: ClientAuthenticator, derivation: Derivation, then: Callable[[], None]) -> None:
        """Derive a key on a thread, once for all connections that need the same key. Then call `then` of each on the
        loop."""
        waiting = self._deriving.get(derivation)
        if waiting is not None:
            waiting.append(then)
            return
        self._deriving[derivation] = [then]
        done = self.runtime.run_blocking(partial(authenticator.derive, derivation))
        done.add_done_callback(partial(self._derived, derivation))

    def _derived(self, derivation: Derivation, done: asyncio.Future[bytes]) -> None:
        waiting = self._deriving.pop(derivation)
        # The derivation is cancelled only if the node stops.
        if not done.cancelled():
            self._salted.keep(derivation, done.result())
            for then in waiting:
                then()

    def note_refused(self, address: str, reason: str) -> None:
        """Log one line for all attempts of all connections to this address."""
        if address not in self._refused_by:
            self._refused_by.add(address)
            logger.error(
                "Connection to %s: authentication of this node as %s by %s failed: %s. It is tried again, with pauses",
                address,
                self._login.user,
                self._login.mechanism,
                reason,
            )

    def note_accepted(self, address: str) -> None:
        if address in self._refused_by:
            self._refused_by.remove(address)
            logger.info("Connection to %s: this node is authenticated as %s again", address, self._login.user)


class OutgoingExchange:
    """The first authentication of one connection, and the later ones that renew its session."""

    __slots__ = ("_authenticator", "_connection", "_login", "_renew_at", "_timer")

    def __init__(self, login: OutgoingLogin, connection: AuthenticatingConnection) -> None:
        self._login = login
        self._connection = connection
        self._authenticator: ClientAuthenticator | None = None
        self._renew_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Begin an exchange. Its requests are the next that the connection sends."""
        authenticator = self._authenticator = self._login.begin()
        self._connection.ask(authenticator.begin(), LEAST_HANDSHAKE, self._handshaken)

    def is_due(self) -> bool:
        """Return True if the session must be renewed before the next request."""
        return self._renew_at is not None and self._login.runtime.loop.time() >= self._renew_at

    def renew(self) -> None:
        """Begin another exchange on a connection that is in use, with RENEWAL_SECONDS as the timeout."""
        late = f"not authenticated again within {RENEWAL_SECONDS:g} s"
        self._timer = self._login.runtime.loop.call_later(RENEWAL_SECONDS, self._connection.close, late)
        self.begin()

    def stop(self) -> None:
        """Stop, because the connection has ended."""
        self._authenticator = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _handshaken(self, response: SaslHandshakeResponse) -> None:
        authenticator = self._authenticator
        assert authenticator is not None
        try:
            following = authenticator.handshaken(response)
        except LoginRefused as refusal:
            self._refuse(refusal)
        else:
            self._connection.ask(following, 0, self._answered)

    def _answered(self, response: SaslAuthenticateResponse) -> None:
        authenticator = self._authenticator
        assert authenticator is not None
        try:
            derivation = authenticator.derivation(response)
        except LoginRefused as refusal:
            self._refuse(refusal)
            return
        if derivation is None:
            self._go_on(authenticator, response)
        else:
            self._login.derive(authenticator, derivation, partial(self._go_on, authenticator, response))

    def _go_on(self, authenticator: ClientAuthenticator, response: SaslAuthenticateResponse) -> None:
        if self._authenticator is not authenticator:
            return
        try:
            following = authenticator.receive(response)
        except LoginRefused as refusal:
            self._refuse(refusal)
            return
        if isinstance(following, ClientSession):
            self._enter(following)
        else:
            self._connection.ask(following, 0, self._answered)

    def _enter(self, session: ClientSession) -> None:
        self.stop()
        runtime = self._login.runtime
        if session.lifetime_ms is None:
            self._renew_at = None
        else:
            part = _RENEWED_FROM + _SPREAD * runtime.random.random()
            self._renew_at = runtime.loop.time() + session.lifetime_ms / 1000 * part
        self._login.note_accepted(self._connection.address)
        self._connection.authenticated()

    def _refuse(self, refusal: LoginRefused) -> None:
        self.stop()
        self._login.note_refused(self._connection.address, str(refusal))
        self._connection.refused(f"authentication failed: {refusal}")
