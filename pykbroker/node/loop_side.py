"""The parts that each half of a node has of its own. The two halves may run on two event loops.

It is made from the configuration. Responsible for the parts that both halves have under the same names: the view of the
metadata with the configuration in effect, the authorizer, listeners, key stores, connections to other nodes and
metrics. Not responsible for the use of these parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from pykbroker.config.authorization import AUDIT_FILE, AUTHORIZER, authorizer_settings
from pykbroker.config.dynamic import DynamicConfigs
from pykbroker.config.listeners import EndPoint
from pykbroker.config.live import LiveConfig
from pykbroker.config.metric_windows import metric_windows
from pykbroker.config.typed_config import Config
from pykbroker.liveness.prober import Prober
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import ConfigResource, MetadataImage
from pykbroker.metadata.view import MetadataView
from pykbroker.metrics.registry import Metrics
from pykbroker.node.parts import StartedParts
from pykbroker.node.ports import Authentication, Ports, tls_servers, without_sasl
from pykbroker.node.ways_to_nodes import WaysToNodes, way_to_brokers, way_to_controllers
from pykbroker.runtime import Runtime
from pykbroker.runtime.cold_reads import ColdReads
from pykbroker.security.authorizer import AllowAll, Authorizer
from pykbroker.security.standard_authorizer import StandardAuthorizer
from pykbroker.tls.handshakes import Handshakes

if TYPE_CHECKING:
    from pykbroker.node.tls_stores import TlsStores, UsesStores


class LoopSide:
    """The parts of one half. Call `start`, then `follow`, once each. All parts belong to the loop of `runtime`."""

    def __init__(
        self,
        config: Config,
        runtime: Runtime,
        metadata: MetadataView,
        points: tuple[EndPoint, ...],
        connections: int,
        cluster_id: Callable[[], str],
    ) -> None:
        """`points`: the listeners of this half, which together accept at most `connections`. Raises ConfigError for a
        super user that is not a principal, for a plugin that cannot be loaded, and for key stores that cannot be
        used."""
        self.config = config
        self.runtime = runtime
        self.metadata = metadata
        self.points = points
        self.live = LiveConfig(config)
        self.prober = Prober(runtime)
        self.cold_reads = ColdReads(runtime, config.int("pykbroker.max.cold.reads"))
        self.metrics = Metrics()
        self._cluster_id = cluster_id
        handshakes = Handshakes(runtime)
        self.ports = Ports(
            runtime,
            self.live,
            points,
            connections,
            self.cold_reads,
            handshakes,
            self._authentication(config),
            self.metrics,
        )
        self.ways = WaysToNodes(
            to_brokers=way_to_brokers(config, runtime, handshakes) if points == config.listeners.broker else None,
            to_controllers=way_to_controllers(config, runtime, handshakes),
        )
        #: None if this half uses no TLS
        self.stores = self._tls_stores()
        self.authorizer: Authorizer = AllowAll()
        self._acls: StandardAuthorizer | None = None
        # A half without listeners gets no requests and needs no authorizer.
        self._settings = authorizer_settings(config) if points else None
        if points and self._settings is None and config.optional_str(AUTHORIZER):
            self.authorizer = _authorizer_in_python(config)
        self._when_loaded: list[Callable[[], None]] = []

    async def start(self, parts: StartedParts) -> None:
        """Bind the ports, and start watching key stores and authorizer. Raises OSError, and StorageFormatError for an
        audit file that cannot be opened."""
        if self._settings is not None:
            # The authorizer is not made earlier, because it writes log lines, and a node that cannot start should log
            # only the reason.
            self.authorizer = self._acls = StandardAuthorizer(
                self.config.node_id, self._settings.super_users, allow_if_no_acl=self._settings.allow_if_no_acl
            )
        await self.ports.bind(parts)
        if self.stores is not None:
            parts.add("TLS stores", self.stores.close)
            self.stores.start()
        self._watch_authorizer(parts)

    def follow(self) -> None:
        """Let the configuration, the key stores and the authorizer follow the metadata from now on."""
        self.metadata.add_publisher(_LiveConfigPublisher(self.live, self.config.node_id))
        if self.stores is not None:
            from pykbroker.node.tls_stores import StorePublisher

            stores = StorePublisher(self.stores, self.live, self.config.node_id)
            self.metadata.add_publisher(stores)
            self._when_loaded.append(stores.complete_initial_load)
        if self._acls is not None:
            self.metadata.add_publisher(_AclPublisher(self._acls))
            # This comes last, because from then on requests of clients are authorized.
            self._when_loaded.append(self._acls.complete_initial_load)

    def complete_initial_load(self) -> None:
        """Notify the parts that all metadata that was committed at this node's start is published."""
        for tell in self._when_loaded:
            tell()

    def acls_loaded(self) -> asyncio.Future[None]:
        """Return a future that is done when requests can be authorized. It is done at once if there are no ACLs to
        load."""
        loaded: asyncio.Future[None] = self.runtime.loop.create_future()
        if self._acls is None:
            loaded.set_result(None)
        else:
            self._acls.when_loaded(lambda: None if loaded.done() else loaded.set_result(None))
        return loaded

    def check_stores(self, config: Config) -> None:
        """Raise ConfigError for a changed configuration whose TLS stores cannot be used."""
        if self.stores is not None:
            self.stores.check(config)

    def _watch_authorizer(self, parts: StartedParts) -> None:
        """Register the authorizer's metrics, and start the audit if the properties file has one."""
        config, runtime = self.config, self.runtime
        if self._acls is not None:
            from pykbroker.security import authorizer_metrics  # only on a node that needs it

            role = "broker" if self.points == config.listeners.broker else "controller"
            windows = metric_windows(config)
            authorizer_metrics.register(self.metrics, self._acls, (role,), runtime.loop.time, windows)
        path = config.optional_str(AUDIT_FILE)
        if path and self.points:
            from pykbroker.node.authorization_audit import audited  # only on a node that needs it

            self.authorizer = audited(self.authorizer, path, config, runtime, self.metrics, parts)

    def _tls_stores(self) -> TlsStores | None:
        config, is_broker = self.config, self.points == self.config.listeners.broker
        users: dict[str, list[UsesStores]] = {name: [server] for name, server in self.ports.tls.items()}
        to_brokers, to_controllers = self.ways.to_brokers, self.ways.to_controllers
        if to_brokers is not None and to_brokers.tls is not None:
            users.setdefault(to_brokers.tls.listener, []).append(to_brokers.tls)
        own = frozenset(users)
        if to_controllers.tls is not None:
            users.setdefault(to_controllers.tls.listener, []).append(to_controllers.tls)
        if is_broker:
            # A broker half checks each change of the configuration, also of keys that only the controller half uses.
            for name, server in tls_servers(config, config.listeners.controller).items():
                users.setdefault(name, [server])
        else:
            own = frozenset(users)
        if not users:
            return None
        # The module needs cryptography, which a node without TLS never imports.
        from pykbroker.node.tls_stores import TlsStores

        return TlsStores(self.config, self.runtime, self.metrics, users, own)

    def _authentication(self, config: Config) -> Authentication:
        """Return the function that makes the authentication of a listener. Raises ConfigError for a listener that could
        not authenticate its clients."""
        if not any(point.security_protocol.startswith("SASL_") for point in self.points):
            return without_sasl
        # A node without SASL listeners does not import this module, so that it starts faster.
        from pykbroker.node.sasl_listeners import SaslListeners

        return SaslListeners(config, self._cluster_id, lambda: self.metadata.image.scram).of


def _authorizer_in_python(config: Config) -> Authorizer:
    # A node without such an authorizer does not import these modules.
    from pykbroker.plugins import AuthorizerPlugin
    from pykbroker.plugins.plugin_authorizer import PluginAuthorizer
    from pykbroker.plugins.plugin_loading import plugin

    made = plugin(config, AUTHORIZER, AuthorizerPlugin)
    assert made is not None, "config/protection.py lets no other authorizer start"
    return PluginAuthorizer(made)


class _LiveConfigPublisher:
    """Puts the dynamic configuration of this broker and of all brokers into the configuration in effect. It is added
    before the publishers that act on configuration, so that they read the new values."""

    def __init__(self, live: LiveConfig, node_id: int) -> None:
        self._live = live
        self._name = str(node_id)

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        configs = new.configs
        self._live.update(
            DynamicConfigs(
                broker=configs.of(ConfigResource.BROKER, self._name), cluster=configs.of(ConfigResource.BROKER, "")
            )
        )


class _AclPublisher:
    """Passes changes of ACLs to the authorizer. `complete_initial_load` tells the authorizer when the first load is
    complete."""

    def __init__(self, authorizer: StandardAuthorizer) -> None:
        self._authorizer = authorizer

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        if delta.acls_changed:
            self._authorizer.change(delta.acls_changed)
