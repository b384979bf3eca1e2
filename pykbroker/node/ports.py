"""The listening sockets of a node: bound before anything is advertised, served when their half is ready.

Responsible for the bounds that the listeners of one half share, for the ports that were bound, and for what is
advertised. Not responsible for what is answered (serving/).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pykbroker.config.kinds import PYTHON_CLASS
from pykbroker.config.listeners import SECURITY_PROTOCOLS, TLS_PROTOCOLS, EndPoint, Listeners, is_wildcard
from pykbroker.config.live import LiveConfig
from pykbroker.config.load import Config
from pykbroker.config.protection import PRINCIPAL_BUILDER
from pykbroker.metadata.image import Endpoint
from pykbroker.metrics.registry import Metrics
from pykbroker.net.admission import Admission
from pykbroker.net.connection import Dispatch
from pykbroker.net.from_config import admission_limits, limits_of
from pykbroker.net.handshakes import Handshakes
from pykbroker.net.listener import Listener, WaitingMemory
from pykbroker.net.places import Places, own_places
from pykbroker.node.parts import StartedParts
from pykbroker.runtime import Runtime
from pykbroker.runtime.cold_reads import ColdReads
from pykbroker.serving.services import Services
from pykbroker_wire.messages.api_versions import ApiVersionsResponse

if TYPE_CHECKING:
    from pykbroker.net.sasl_connection import ListenerAuthentication
    from pykbroker.plugins.plugin_principals import PluginPrincipals
    from pykbroker.security.tls.tls_server import TlsServer


#: The answer to ApiVersions in a version.
AnswerVersions = Callable[[int], ApiVersionsResponse]
#: Listener name, and what answers its clients' ApiVersions -> how they prove which user they are, None if they do not.
Authentication = Callable[[str, AnswerVersions], "ListenerAuthentication | None"]


def answers_versions(services: Services) -> AnswerVersions:
    """What answers ApiVersions of clients that are not authenticated: as to all others, loaded with the first."""

    def answer(version: int) -> ApiVersionsResponse:
        from pykbroker.api import api_versions

        return api_versions.answer(services, version)

    return answer


def without_sasl(listener: str, versions: AnswerVersions) -> None:
    """The `Authentication` of a node without SASL listeners."""


class Ports:
    """The listeners of both halves."""

    def __init__(
        self,
        runtime: Runtime,
        live: LiveConfig,
        cold_reads: ColdReads,
        handshakes: Handshakes,
        authentication: Authentication,
        metrics: Metrics,
    ) -> None:
        """Reads the key stores of TLS listeners: ConfigError for one that cannot be used. `handshakes`: of the node."""
        self._authentication = authentication
        self._runtime = runtime
        self._live = live
        self._cold_reads = cold_reads
        self._metrics = metrics
        self._principals = _principals(live.static)
        self._listeners: list[Listener] = []
        self._tls = _tls_servers(live.static)
        self._handshakes = handshakes

    async def bind(self, parts: StartedParts) -> None:
        """Take every port. Raises OSError."""
        config = self._live.static
        limits = limits_of(config)
        places = places_of(self._runtime.most_connections, config.listeners)
        # The halves are two servers, as in Apache Kafka: clients cannot take the controller's places.
        for points in (config.listeners.broker, config.listeners.controller):
            bounds = admission_limits(config, points)
            admission = Admission(self._runtime.loop, bounds)
            self._live.on_change(partial(_change_bounds, admission, points))
            # Nor can clients of the broker half take those of the listener between brokers, nor its memory.
            memory, memory_between = (WaitingMemory(config.int("queued.max.request.bytes")) for _ in range(2))
            for point in points:
                is_protected = point.listener_name == bounds.protected
                listener = Listener(
                    self._runtime,
                    point.listener_name,
                    limits,
                    security_protocol=point.security_protocol,
                    tls=self._tls.get(point.listener_name),
                    handshakes=self._handshakes,
                    admission=admission,
                    places=places,
                    memory=memory_between if is_protected else memory,
                    cold_reads=self._cold_reads,
                    metrics=self._metrics,
                    principals=self._principals,
                    between_nodes=is_protected or point in config.listeners.controller,
                )
                parts.add(f"listener {listener.name}", listener.close)
                await listener.bind(point.host, point.port, config.int("socket.listen.backlog.size"))
                self._listeners.append(listener)

    async def serve(
        self, points: tuple[EndPoint, ...], dispatch: Dispatch, versions: AnswerVersions, parts: StartedParts
    ) -> None:
        """Let clients in at `points`. On the stack a second time: a half that stops takes no more requests.

        `versions` answers ApiVersions of clients that are not authenticated."""
        for listener in self._of(points):
            parts.add(f"listener {listener.name}", listener.close)
            await listener.serve(dispatch, self._authentication(listener.name, versions))

    def close(self, points: tuple[EndPoint, ...]) -> None:
        for listener in self._of(points):
            listener.close()

    def _of(self, points: tuple[EndPoint, ...]) -> list[Listener]:
        names = {point.listener_name for point in points}
        return [listener for listener in self._listeners if listener.name in names]

    @property
    def tls(self) -> Mapping[str, TlsServer]:
        """What listeners that speak TLS have, by their names."""
        return self._tls

    @property
    def bound(self) -> tuple[Listener, ...]:
        """Every listener that has its port, the broker half's first."""
        return tuple(self._listeners)

    def port_of(self, point: EndPoint) -> int:
        """The port that was bound, where the configuration says 0."""
        if point.port:
            return point.port
        return next((listener.port for listener in self._listeners if listener.name == point.listener_name), 0)

    def advertised(self, points: tuple[EndPoint, ...]) -> list[Endpoint]:
        """What other nodes are told of advertised end points."""
        return [
            Endpoint(
                point.listener_name,
                point.host,
                self.port_of(point),
                SECURITY_PROTOCOLS.index(point.security_protocol),
            )
            for point in points
        ]

    def bootstrap_servers(self) -> str:
        """`host:port` of the first client listener, or of all controller listeners where there is none, for programs on
        this machine: a listener on every address is at localhost."""
        listeners = self._live.static.listeners
        return ",".join(self._local_address(point) for point in listeners.broker[:1] or listeners.controller)

    def _local_address(self, point: EndPoint) -> str:
        host = "localhost" if is_wildcard(point.host) else point.host
        port = self.port_of(point)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _tls_servers(config: Config) -> dict[str, TlsServer]:
    """By the names of the listeners that speak TLS."""
    names = [point.listener_name for point in config.listeners.all if point.security_protocol in TLS_PROTOCOLS]
    if not names:
        return {}
    # It needs cryptography, which a node without TLS never loads.
    from pykbroker.security.tls.tls_server import tls_server

    return {name: tls_server(config, name) for name in names}


def _principals(config: Config) -> PluginPrincipals | None:
    if not config.str(PRINCIPAL_BUILDER).strip().startswith(PYTHON_CLASS):
        return None
    from pykbroker.plugins.plugin_principals import plugin_principals  # of a node that needs it

    return plugin_principals(config)


def places_of(total: int, listeners: Listeners) -> Places:
    """Divide the connections of a node between its listeners. One that is for clients and for brokers counts as one for
    clients."""
    brokers, nodes = ([point.listener_name for point in points] for points in (listeners.broker, listeners.controller))
    if len(brokers) > 1 and listeners.inter_broker_name in brokers:
        brokers.remove(listeners.inter_broker_name)
        nodes.append(listeners.inter_broker_name)
    return Places(total, own_places(total, nodes=nodes, clients=brokers))


def _change_bounds(admission: Admission, points: tuple[EndPoint, ...], config: Config) -> None:
    admission.change(admission_limits(config, points))
