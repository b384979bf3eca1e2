"""The contract of a listener with its connections: their bounds, the parts that they share, and where they are counted.

Also responsible for the memory that incomplete requests may take. Not responsible for accepting connections
(listener.py), nor for the work of a connection (connection.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from pykbroker.net.listener_metrics import ListenerMetrics
    from pykbroker.net.peer_security import TlsOfListener
    from pykbroker.plugins.plugin_principals import PluginPrincipals
    from pykbroker.runtime.cold_reads import ColdReads
    from pykbroker.runtime.line_limit import LineLimit

#: the type of a connection
C_contra = TypeVar("C_contra", contravariant=True)


@dataclass(slots=True, frozen=True)
class Limits:
    """The bounds of a connection; bytes, seconds and counts."""

    frame_bytes: int = 104_857_600
    unanswered_requests: int = 1024
    unsent_bytes: int = 16 * 1024 * 1024
    frame_seconds: float = 60.0
    idle_seconds: float = 600.0
    #: SO_SNDBUF and SO_RCVBUF of the connection's socket; -1 means the default of the operating system
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1


class Pausable(Protocol):
    """A connection from which nothing is read while it is muted."""

    def mute(self) -> None: ...

    def unmute(self) -> None: ...


class WaitingMemory:
    """Bytes of incomplete requests, over all connections (queued.max.request.bytes; -1 means no bound).

    Over the bound, a connection that needs more memory is muted, unless all other connections that hold memory are
    muted. So one connection always continues. If its client stalls, the deadline of its request ends it, and the next
    connection continues.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0
        self._holding: dict[Pausable, None] = {}
        self._waiting: dict[Pausable, None] = {}

    def taken(self, count: int, connection: Pausable) -> None:
        self.used += count
        if self._limit < 0:
            return
        self._holding[connection] = None
        if self.used > self._limit and connection not in self._waiting and len(self._waiting) + 1 < len(self._holding):
            self._waiting[connection] = None
            connection.mute()

    def given_back(self, count: int, connection: Pausable) -> None:
        """Give back all bytes that `connection` held."""
        self.used -= count
        self._holding.pop(connection, None)
        if connection in self._waiting:
            del self._waiting[connection]
            connection.unmute()
        while self._waiting and (self.used <= self._limit or len(self._waiting) == len(self._holding)):
            following = next(iter(self._waiting))
            del self._waiting[following]
            following.unmute()


class BeginsConnection(Protocol[C_contra]):
    """Authenticates the client of a connection before its first request is dispatched (sasl/sasl_connection.py)."""

    def begin(self, connection: C_contra) -> None: ...


class ConnectionHome(Protocol[C_contra]):
    """The listener of a connection."""

    @property
    def name(self) -> str: ...

    @property
    def security_protocol(self) -> str: ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def lines(self) -> LineLimit:
        """The limit for lines about mistakes that clients repeat."""

    @property
    def memory(self) -> WaitingMemory: ...

    @property
    def receive_view(self) -> memoryview:
        """The memory into which all connections receive. The bytes of a frame in it are valid only until its dispatch
        returns."""

    @property
    def cold_reads(self) -> ColdReads: ...

    @property
    def metrics(self) -> ListenerMetrics: ...

    @property
    def tls(self) -> TlsOfListener | None: ...

    @property
    def principals(self) -> PluginPrincipals | None: ...

    @property
    def authentication(self) -> BeginsConnection[C_contra] | None: ...

    @property
    def dispatch(self) -> Callable[[C_contra, memoryview], Any]:
        """The function that answers the requests (connection.py has its possible results)."""

    def admit(self, connection: C_contra) -> str | None:
        """Count a connection in, or return the reason why it is refused."""

    def forget(self, connection: C_contra) -> None: ...
