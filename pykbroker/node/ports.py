"""The listening sockets of one half of a node. Their ports are bound before they are advertised, and connections are
accepted when the half is ready.

Responsible for the bounds that these listeners share, for the ports that were bound, and for the advertised end points.
Not responsible for answering requests (dispatch/).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pykbroker.config.kinds import PYTHON_CLASS
from pykbroker.config.listeners import (
    SECURITY_PROTOCOLS,
    TLS_PROTOCOLS,
    EndPoint,
    ListenerConfig,
    host_and_port,
    local_host,
)
from pykbroker.config.live import LiveConfig
from pykbroker.config.protection import PRINCIPAL_BUILDER
from pykbroker.config.typed_config import Config
from pykbroker.dispatch.services import Services
from pykbroker.metadata.image import Endpoint
from pykbroker.metrics.registry import Metrics
from pykbroker.net.admission import Admission
from pykbroker.net.connection import DispatchFrame
from pykbroker.net.connection_home import WaitingMemory
from pykbroker.net.from_config import admission_limits, limits_of
from pykbroker.net.listener import ConnectionGone, Listener
from pykbroker.net.places import Places, own_places
from pykbroker.node.parts import StartedParts
from pykbroker.runtime import Runtime
from pykbroker.runtime.cold_reads import ColdReads
from pykbroker.tls.handshakes import Handshakes, Side
from pykbroker_wire.messages.api_versions import ApiVersionsResponse

if TYPE_CHECKING:
    from pykbroker.plugins.plugin_principals import PluginPrincipals
    from pykbroker.sasl.sasl_connection import ListenerAuthentication
    from pykbroker.tls.tls_listener import TlsListener
    from pykbroker.tls.tls_server import TlsServer


#: Returns the ApiVersions response in a version.
AnswerVersions = Callable[[int], ApiVersionsResponse]
#: (listener name, source of ApiVersions responses) -> the authentication of the listener's clients, or None without
#: SASL.
Authentication = Callable[[str, AnswerVersions], "ListenerAuthentication | None"]


def answers_versions(services: Services) -> AnswerVersions:
    """Return the source of ApiVersions responses for clients that are not authenticated. It imports the API's module at
    the first request."""

    def answer(version: int) -> ApiVersionsResponse:
        from pykbroker.api import api_versions

        return api_versions.answer(services, version)

    return answer


def without_sasl(listener: str, versions: AnswerVersions) -> None:
    """The `Authentication` of a node without SASL listeners: return None."""


class Ports:
    """The listeners of one half. As in Apache Kafka, each half is a separate socket server."""

    def __init__(
        self,
        runtime: Runtime,
        live: LiveConfig,
        points: tuple[EndPoint, ...],
        connections: int,
        cold_reads: ColdReads,
        handshakes: Handshakes,
        authentication: Authentication,
        metrics: Metrics,
    ) -> None:
        """`connections`: the most connections at all `points` together. `handshakes`: those of this half. Reads the key
        stores of TLS listeners, and raises ConfigError for a store that cannot be used."""
        self._authentication = authentication
        self._runtime = runtime
        self._live = live
        self._points = points
        self._connections = connections
        self._cold_reads = cold_reads
        self._metrics = metrics
        self._principals = _principals(live.static)
        self._listeners: list[Listener] = []
        self._tls = tls_servers(live.static, points)
        self._handshakes = handshakes

    async def bind(self, parts: StartedParts) -> None:
        """Bind every port. Raises OSError."""
        config, points = self._live.static, self._points
        limits = limits_of(config)
        places = places_of(self._connections, points, config.listeners)
        bounds = admission_limits(config, points)
        admission = Admission(self._runtime.loop, bounds)
        self._live.on_change(partial(_change_bounds, admission, points))
        # The listener between brokers has memory of its own, so that clients cannot take all of it.
        memory, memory_between = (WaitingMemory(config.int("queued.max.request.bytes")) for _ in range(2))
        for point in points:
            is_protected = point.listener_name == bounds.protected
            listener = Listener(
                self._runtime,
                point.listener_name,
                limits,
                security_protocol=point.security_protocol,
                tls=self._tls_at(point, is_protected),
                admission=admission,
                places=places,
                memory=memory_between if is_protected else memory,
                cold_reads=self._cold_reads,
                metrics=self._metrics,
                principals=self._principals,
            )
            parts.add(f"listener {listener.name}", listener.close)
            await listener.bind(point.host, point.port, config.int("socket.listen.backlog.size"))
            self._listeners.append(listener)

    def _tls_at(self, point: EndPoint, is_between_brokers: bool) -> TlsListener | None:
        server = self._tls.get(point.listener_name)
        if server is None:
            return None
        # The module needs OpenSSL, which a node without TLS never imports.
        from pykbroker.tls.tls_listener import TlsListener

        # Handshakes of other nodes do not wait for the handshakes of clients.
        is_between_nodes = is_between_brokers or point in self._live.static.listeners.controller
        return TlsListener(self._runtime, server, self._handshakes, Side.NODE if is_between_nodes else Side.CLIENT)

    async def serve(
        self,
        points: tuple[EndPoint, ...],
        dispatch: DispatchFrame,
        versions: AnswerVersions,
        parts: StartedParts,
        ended: ConnectionGone | None = None,
    ) -> None:
        """Serve clients at `points`. Each listener is put on the stack of parts a second time, so that a half that
        stops closes it before the parts that were started earlier.

        `versions` answers ApiVersions of clients that are not authenticated. `ended` is called with the number of each
        connection that has ended."""
        for listener in self._of(points):
            parts.add(f"listener {listener.name}", listener.close)
            await listener.serve(dispatch, self._authentication(listener.name, versions), ended)

    def close(self, points: tuple[EndPoint, ...]) -> None:
        for listener in self._of(points):
            listener.close()

    def _of(self, points: tuple[EndPoint, ...]) -> list[Listener]:
        names = {point.listener_name for point in points}
        return [listener for listener in self._listeners if listener.name in names]

    @property
    def tls(self) -> Mapping[str, TlsServer]:
        """Listener name -> its TLS, for the listeners that use TLS."""
        return self._tls

    @property
    def bound(self) -> tuple[Listener, ...]:
        """The listeners whose port is bound."""
        return tuple(self._listeners)

    def port_of(self, point: EndPoint) -> int:
        """Return the configured port, or the bound port if the configuration has 0."""
        if point.port:
            return point.port
        return next((listener.port for listener in self._listeners if listener.name == point.listener_name), 0)

    def advertised(self, points: tuple[EndPoint, ...]) -> list[Endpoint]:
        """Return advertised end points in the form that other nodes get, with the bound ports."""
        return [
            Endpoint(
                point.listener_name,
                point.host,
                self.port_of(point),
                SECURITY_PROTOCOLS.index(point.security_protocol),
            )
            for point in points
        ]

    def local_addresses(self, points: tuple[EndPoint, ...]) -> str:
        """Return `host:port` of each end point, separated by commas, for programs on this machine. A wildcard address
        becomes localhost."""
        return ",".join(host_and_port(local_host(point.host), self.port_of(point)) for point in points)


def tls_servers(config: Config, points: tuple[EndPoint, ...]) -> dict[str, TlsServer]:
    """Return listener name -> its TLS, for the listeners at `points` that use TLS."""
    names = [point.listener_name for point in points if point.security_protocol in TLS_PROTOCOLS]
    if not names:
        return {}
    # The module needs cryptography, which a node without TLS never imports.
    from pykbroker.tls.tls_server import tls_server

    return {name: tls_server(config, name) for name in names}


def _principals(config: Config) -> PluginPrincipals | None:
    if not config.str(PRINCIPAL_BUILDER).strip().startswith(PYTHON_CLASS):
        return None
    from pykbroker.plugins.plugin_principals import plugin_principals  # only on a node that needs it

    return plugin_principals(config)


def connections_of(total: int, listeners: ListenerConfig) -> tuple[int, int]:
    """Divide the connections of a node between its halves. Return the number for the broker half, and the number for
    the controller half. The division is fixed, because the halves may have an event loop each."""
    if not listeners.controller:
        return total, 0
    if not listeners.broker:
        return 0, total
    return total - total // 4, total // 4


def places_of(total: int, points: tuple[EndPoint, ...], listeners: ListenerConfig) -> Places:
    """Divide the connections of a half between its listeners. A listener for clients and for brokers counts as one for
    clients."""
    names = [point.listener_name for point in points]
    nodes = [point.listener_name for point in points if point in listeners.controller]
    if len(listeners.broker) > 1 and listeners.inter_broker_name in names:
        nodes.append(listeners.inter_broker_name)
    return Places(total, own_places(total, nodes=nodes, clients=[name for name in names if name not in nodes]))


def _change_bounds(admission: Admission, points: tuple[EndPoint, ...], config: Config) -> None:
    admission.change(admission_limits(config, points))
