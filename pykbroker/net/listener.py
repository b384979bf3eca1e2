"""A listener: its connections, and their common bounds.

Not responsible for the port (bound_port.py), for protocols inside a connection (connection.py), for the responses
(api/), nor for the number of connections (admission.py). Bounds are Kafka's: connections.max.idle.ms,
socket.request.max.bytes, queued.max.request.bytes, socket.send.buffer.bytes, socket.receive.buffer.bytes. Other bounds
exist only in pykbroker: unanswered requests, unsent bytes, the time for one request to arrive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pykbroker.config.kinds import ConfigError
from pykbroker.config.listeners import SECURITY_PROTOCOLS, TLS_PROTOCOLS
from pykbroker.metrics.registry import Metrics
from pykbroker.net.admission import Admission, AdmissionLimits
from pykbroker.net.bound_port import BoundPort
from pykbroker.net.connection import Connection, DispatchFrame
from pykbroker.net.connection_home import BeginsConnection, Limits, WaitingMemory
from pykbroker.net.listener_metrics import ListenerMetrics
from pykbroker.runtime.cold_reads import ColdReads

if TYPE_CHECKING:
    from pykbroker.net.peer_security import TlsOfListener
    from pykbroker.net.places import Places
    from pykbroker.plugins.plugin_principals import PluginPrincipals
    from pykbroker.runtime import Runtime
    from pykbroker.runtime.line_limit import LineLimit

logger = logging.getLogger(__name__)

RECEIVE_BYTES = 256 * 1024

#: called with `Connection.connection_number`
ConnectionGone: TypeAlias = Callable[[int | None], object]


class _Service(NamedTuple):
    """The functions to which a listener passes its requests and the ends of its connections."""

    dispatch: DispatchFrame
    authentication: BeginsConnection[Connection] | None
    ended: ConnectionGone | None


class Listener:
    """Call `bind`, which takes the port, and then `serve`, which accepts, once each. `close` ends every connection."""

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        limits: Limits,
        *,
        security_protocol: str = "PLAINTEXT",
        tls: TlsOfListener | None = None,
        admission: Admission | None = None,
        places: Places | None = None,
        memory: WaitingMemory | None = None,
        cold_reads: ColdReads | None = None,
        metrics: Metrics | None = None,
        principals: PluginPrincipals | None = None,
    ) -> None:
        """The listeners of one server share `admission`, `memory` and `cold_reads`; the listeners of one node share
        `places`. Without `admission`, `memory` or `places` their bounds do not exist. Raises ConfigError for a protocol
        that connections do not support, so that no client takes a plain socket for a secured one."""
        if security_protocol not in SECURITY_PROTOCOLS or (tls is not None) != (security_protocol in TLS_PROTOCOLS):
            raise ConfigError(f"listener {name}: {security_protocol} is not served")
        self.tls = tls
        #: None if principals are named as Apache Kafka's DefaultKafkaPrincipalBuilder names them
        self.principals = principals
        self.loop = runtime.loop
        self.name = name
        self.security_protocol = security_protocol
        self.limits = limits
        self.cold_reads = cold_reads if cold_reads is not None else ColdReads(runtime)
        self.memory = memory if memory is not None else WaitingMemory(-1)
        self.admission = admission if admission is not None else Admission(self.loop, AdmissionLimits())
        self._port = BoundPort(
            runtime, name, places, lambda: Connection(self), lambda made: made if tls is None else tls.layer(made)
        )
        self.receive_view = memoryview(bytearray(RECEIVE_BYTES))
        #: in the order of arrival; when the listener closes, they are closed in this order
        self.connections: dict[Connection, None] = {}
        self.metrics = ListenerMetrics(metrics or Metrics(), name, lambda: len(self.connections))
        self._service: _Service | None = None
        self._tidy_timer: asyncio.TimerHandle | None = None

    async def bind(self, host: str, port: int, backlog: int) -> None:
        """Take the port, so that it can be advertised. Raises OSError."""
        await self._port.bind(host, port, backlog)

    def accept(self) -> asyncio.BaseProtocol | None:
        """Return the protocol of a new connection, or None if there is no place for it."""
        return self._port.accept()

    @property
    def port(self) -> int:
        """The number of the bound port; 0 before `bind`."""
        return self._port.number

    @property
    def lines(self) -> LineLimit:
        """The limit for lines about mistakes that clients of this port repeat."""
        return self._port.lines

    @property
    def dispatch(self) -> DispatchFrame:
        """The function that answers the requests of every connection."""
        assert self._service is not None, f"listener {self.name} does not serve yet"
        return self._service.dispatch

    @property
    def authentication(self) -> BeginsConnection[Connection] | None:
        """None if the listener does not authenticate its clients with SASL."""
        return None if self._service is None else self._service.authentication

    def answer_with(
        self,
        dispatch: DispatchFrame,
        authentication: BeginsConnection[Connection] | None = None,
        ended: ConnectionGone | None = None,
    ) -> None:
        """Pass every request to `dispatch`, after `authentication`, and the number of each connection that has ended to
        `ended`. Call it once. Raises RuntimeError for a SASL listener without authentication, and for any other
        listener with authentication."""
        if self._service is not None:
            raise RuntimeError(f"listener {self.name} has its dispatcher already")
        if self.security_protocol.startswith("SASL_") != (authentication is not None):
            raise RuntimeError(f"listener {self.name}: {self.security_protocol} and its authentication do not agree")
        self._service = _Service(dispatch, authentication, ended)

    async def serve(
        self,
        dispatch: DispatchFrame,
        authentication: BeginsConnection[Connection] | None = None,
        ended: ConnectionGone | None = None,
    ) -> None:
        """Accept connections, also those that have waited since `bind`. The arguments are those of `answer_with`."""
        self.answer_with(dispatch, authentication, ended)
        await self._port.serve()
        self._schedule_tidy()

    def admit(self, connection: Connection) -> str | None:
        """Count a connection in, or return the reason why it is refused."""
        refused = self.admission.arrive(connection)
        if refused is None:
            self.connections[connection] = None
            self.metrics.opened.value += 1
        return refused

    def forget(self, connection: Connection) -> None:
        self._port.ended(connection)
        if connection in self.connections:
            del self.connections[connection]
            self.metrics.closed.value += 1
            self.admission.leave(connection)
            if self._service is not None and self._service.ended is not None:
                self._service.ended(connection.connection_number)

    def _schedule_tidy(self) -> None:
        period = min(5.0, max(0.05, self.limits.idle_seconds / 4), max(0.05, self.limits.frame_seconds / 4))
        self._tidy_timer = self.loop.call_later(period, self._tidy)

    def _tidy(self) -> None:
        now = self.loop.time()
        for connection in list(self.connections):
            connection.tidy(now)
        self._schedule_tidy()

    def stop_accepting(self) -> None:
        self._port.close()
        if self._tidy_timer is not None:
            self._tidy_timer.cancel()
            self._tidy_timer = None

    def close(self) -> None:
        self.stop_accepting()
        for connection in list(self.connections):
            connection.close("this listener is closed", logging.DEBUG)
