"""The life of a connection as a table: which state may follow which, and why a connection ended.

Responsible for both kinds: connections that a listener accepted, and connections that this node makes. Knows no
sockets and no bytes.

Invariants
* A transition that is not in the table raises.
* A connection ends once, for one reason, and each hook is called once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

logger = logging.getLogger(__name__)


class ConnectionState(Enum):
    """What a connection may do."""

    #: There is no transport yet.
    CONNECTING = "connecting"
    #: TLS is being agreed on: nothing that came has been given to the connection.
    HANDSHAKING = "handshaking"
    #: The peer has been asked which versions it serves (only connections that this node makes).
    NEGOTIATING = "negotiating"
    #: The client of a SASL listener proves which user it is, first or again; no request of it is dispatched.
    #: Of a connection that this node makes: this node proves it to the peer.
    AUTHENTICATING = "authenticating"
    #: Requests are dispatched, or sent.
    READY = "ready"
    #: The connection has ended for a reason; what was answered before may still leave.
    CLOSING = "closing"
    #: The transport is gone.
    CLOSED = "closed"


Transitions: TypeAlias = Mapping[ConnectionState, frozenset[ConnectionState]]

#: Connections that a listener accepted.
ACCEPTED: Transitions = {
    ConnectionState.CONNECTING: frozenset(
        {
            ConnectionState.HANDSHAKING,
            ConnectionState.AUTHENTICATING,
            ConnectionState.READY,
            ConnectionState.CLOSING,
        }
    ),
    ConnectionState.HANDSHAKING: frozenset(
        {ConnectionState.AUTHENTICATING, ConnectionState.READY, ConnectionState.CLOSING}
    ),
    ConnectionState.AUTHENTICATING: frozenset({ConnectionState.READY, ConnectionState.CLOSING}),
    # Authentication again: KIP-368.
    ConnectionState.READY: frozenset({ConnectionState.AUTHENTICATING, ConnectionState.CLOSING}),
    ConnectionState.CLOSING: frozenset({ConnectionState.CLOSED}),
    ConnectionState.CLOSED: frozenset(),
}
#: Connections that this node makes.
MADE: Transitions = {
    ConnectionState.CONNECTING: frozenset(
        {ConnectionState.HANDSHAKING, ConnectionState.NEGOTIATING, ConnectionState.CLOSING}
    ),
    ConnectionState.HANDSHAKING: frozenset({ConnectionState.NEGOTIATING, ConnectionState.CLOSING}),
    ConnectionState.NEGOTIATING: frozenset(
        {ConnectionState.AUTHENTICATING, ConnectionState.READY, ConnectionState.CLOSING}
    ),
    ConnectionState.AUTHENTICATING: frozenset({ConnectionState.READY, ConnectionState.CLOSING}),
    # Authentication again: KIP-368.
    ConnectionState.READY: frozenset({ConnectionState.AUTHENTICATING, ConnectionState.CLOSING}),
    ConnectionState.CLOSING: frozenset({ConnectionState.CLOSED}),
    ConnectionState.CLOSED: frozenset(),
}


@dataclass(slots=True, frozen=True)
class End:
    """Why a connection ended, and which side ended it."""

    reason: str
    by_peer: bool

    def __str__(self) -> str:
        return f"{self.reason} (by the peer)" if self.by_peer else self.reason


Hook: TypeAlias = Callable[[End], object]


class StatefulConnection:
    """The state of one connection, its end, and the hooks that are told of it."""

    __slots__ = ("_hooks", "_table", "_where_finished", "end", "state")

    def __init__(self, table: Transitions) -> None:
        self._table = table
        self._hooks: list[Hook] = []
        #: those that want to hear it already when the peer sends no more
        self._where_finished: list[Hook] = []
        self.state = ConnectionState.CONNECTING
        #: None until the connection has ended
        self.end: End | None = None

    def become(self, state: ConnectionState) -> None:
        """Go on to the next state. Raises ValueError for one that the table does not allow."""
        if state not in self._table[self.state]:
            raise ValueError(f"a connection cannot become {state.value} when it is {self.state.value}")
        self.state = state

    def when_ended(self, hook: Hook) -> None:
        """Call `hook` once when the connection ends, before its transport is gone; at once if it has ended."""
        if self.end is not None:
            hook(self.end)
        else:
            self._hooks.append(hook)

    def when_finished(self, hook: Hook) -> None:
        """Call `hook` once when the peer has sent its last byte, or when the connection ends if that is earlier."""
        if self.end is not None:
            hook(self.end)
        else:
            self._where_finished.append(hook)

    def peer_has_finished(self, end: End) -> None:
        """Tell those who asked that the peer sends no more. The connection goes on: the peer is owed something."""
        hooks, self._where_finished = self._where_finished, []
        self._tell(hooks, end)

    def begin_end(self, end: End) -> None:
        """CLOSING, for this reason; then every hook hears of it."""
        self.become(ConnectionState.CLOSING)
        self.end = end
        hooks, self._hooks, self._where_finished = [*self._hooks, *self._where_finished], [], []
        self._tell(hooks, end)

    def _tell(self, hooks: list[Hook], end: End) -> None:
        for hook in hooks:
            try:
                hook(end)
            except Exception:
                # The other hooks must hear of it too, and the transport must be closed.
                logger.exception("%r: a hook failed when the connection ended", self)
