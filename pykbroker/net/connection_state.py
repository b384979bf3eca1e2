"""The life of a connection as a table: the states that may follow each state, and the reason why a connection ended.

Responsible for both kinds of connections: those that a listener accepted, and those that this node makes. Handles no
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
    """The stages of a connection's life; each decides what the connection may do."""

    #: There is no transport yet.
    CONNECTING = "connecting"
    #: The TLS handshake runs; the connection above TLS has got no byte yet.
    HANDSHAKING = "handshaking"
    #: The peer was asked for its versions (only connections that this node makes).
    NEGOTIATING = "negotiating"
    #: The client of a SASL listener authenticates, first or again; none of its requests is dispatched. On a connection
    #: that this node makes, this node authenticates.
    AUTHENTICATING = "authenticating"
    #: Requests are dispatched, or sent.
    READY = "ready"
    #: The connection has ended for a reason (`end`); earlier responses may still be sent.
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
    # The client authenticates again (KIP-368).
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
    # This node authenticates again (KIP-368).
    ConnectionState.READY: frozenset({ConnectionState.AUTHENTICATING, ConnectionState.CLOSING}),
    ConnectionState.CLOSING: frozenset({ConnectionState.CLOSED}),
    ConnectionState.CLOSED: frozenset(),
}


@dataclass(slots=True, frozen=True)
class End:
    """The reason why a connection ended, and the side that ended it."""

    reason: str
    by_peer: bool

    def __str__(self) -> str:
        return f"{self.reason} (by the peer)" if self.by_peer else self.reason


Hook: TypeAlias = Callable[[End], object]


class StatefulConnection:
    """The state of one connection, its end, and the hooks that it calls."""

    __slots__ = ("_hooks", "_table", "_where_finished", "end", "state")

    def __init__(self, table: Transitions) -> None:
        self._table = table
        self._hooks: list[Hook] = []
        #: hooks to call as soon as the peer sends no more
        self._where_finished: list[Hook] = []
        self.state = ConnectionState.CONNECTING
        #: None until the connection has ended
        self.end: End | None = None

    def become(self, state: ConnectionState) -> None:
        """Change to the next state. Raises ValueError for a state that the table does not allow."""
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
        """Call the hooks of `when_finished`. The connection continues, because responses are due to the peer."""
        hooks, self._where_finished = self._where_finished, []
        self._tell(hooks, end)

    def begin_end(self, end: End) -> None:
        """Become CLOSING for this reason, then call every hook."""
        self.become(ConnectionState.CLOSING)
        self.end = end
        hooks, self._hooks, self._where_finished = [*self._hooks, *self._where_finished], [], []
        self._tell(hooks, end)

    def _tell(self, hooks: list[Hook], end: End) -> None:
        for hook in hooks:
            try:
                hook(end)
            except Exception:
                # The other hooks must be called too, and the transport must be closed.
                logger.exception("%r: a hook failed when the connection ended", self)
