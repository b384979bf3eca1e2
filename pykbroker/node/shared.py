"""What both halves of a node stand on (Apache Kafka's SharedServer).

Responsible for the log directories (formatted, locked, opened, closed), the bound ports, this node's replica of the
quorum, the metadata that it loads, the configuration in effect and the metrics. Knows neither half.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from pykbroker.config.authorization import AUDIT_FILE, AUTHORIZER, authorizer_settings
from pykbroker.config.kinds import ConfigError
from pykbroker.config.live import LiveConfig
from pykbroker.config.load import Config
from pykbroker.metadata.acl_publisher import AclPublisher
from pykbroker.metadata.config_watch import ConfigWatch
from pykbroker.metadata.live_config import LiveConfigPublisher
from pykbroker.metadata.loader import MetadataLoader
from pykbroker.metrics.registry import Metrics
from pykbroker.net.from_config import EARLY_FENCING
from pykbroker.net.handshakes import Handshakes
from pykbroker.net.lost_peers import LostPeers
from pykbroker.node.advertised import Advertised, NoNameError, advertise
from pykbroker.node.parts import StartedParts
from pykbroker.node.ports import Authentication, Ports, without_sasl
from pykbroker.node.quorum_settings import quorum_config
from pykbroker.node.ways_to_nodes import refuse_scram_of_voters, setup_between_brokers, setup_to_controllers
from pykbroker.plugins.topic_policies import Policies
from pykbroker.quorum.channel import SocketPeers
from pykbroker.quorum.driver import QuorumDriver
from pykbroker.runtime import Runtime
from pykbroker.runtime.cold_reads import ColdReads
from pykbroker.security.authorizer import AllowAll, Authorizer
from pykbroker.security.standard_authorizer import StandardAuthorizer
from pykbroker.storage.bare_directories import check_metadata
from pykbroker.storage.directories import close
from pykbroker.storage.format import (
    Formatted,
    StorageFormatError,
    directories_of,
    format_directories,
    is_unused,
    read_format,
)
from pykbroker.storage.space import DiskSpace
from pykbroker_log.log_config import StorageError
from pykbroker_log.log_dirs import LogDir
from pykbroker_raft.metadata_storage import UNUSABLE
from pykbroker_wire.primitives import random_uuid, uuid_to_str

if TYPE_CHECKING:
    from pykbroker.node.tls_stores import TlsStores, UsesStores

logger = logging.getLogger(__name__)

StartError = StorageFormatError


class Ending(NamedTuple):
    """What the directories keep of a stop: whether it was in order, and the broker's epoch (-1 for none)."""

    clean: bool
    broker_epoch: int


class SharedServer:
    """`start` once; it puts on the stack what has to be closed."""

    def __init__(
        self,
        config: Config,
        runtime: Runtime,
        *,
        may_format: bool,
        on_failure: Callable[[BaseException], None],
        ending: Callable[[], Ending],
    ) -> None:
        """`on_failure`: the metadata log is lost, and the node with it. `ending` is asked when the directories are
        closed. Raises ConfigError for a super user that is no principal, and for a plugin that cannot be loaded."""
        self.config = config
        self.runtime = runtime
        self.live = LiveConfig(config)
        self.cold_reads = ColdReads(runtime, config.int("pykbroker.max.cold.reads"))
        self.metrics = Metrics()
        self.loader = MetadataLoader()
        #: of this run of the node, for its registrations
        self.incarnation_id = random_uuid(runtime.random)
        self.space = DiskSpace(runtime)
        handshakes = Handshakes(runtime)
        self.ports = Ports(runtime, self.live, self.cold_reads, handshakes, self._authentication(config), self.metrics)
        self.setup_between_brokers = setup_between_brokers(config, runtime, handshakes)
        self.setup_to_controllers = setup_to_controllers(config, runtime, handshakes)
        #: None: this node speaks no TLS
        self.stores = self._tls_stores()
        self.log_dirs: list[LogDir] = []
        self.authorizer: Authorizer = AllowAll()
        self._acls: StandardAuthorizer | None = None
        settings = authorizer_settings(config)
        if settings is not None:
            self.authorizer = self._acls = StandardAuthorizer(
                config.node_id, settings.super_users, allow_if_no_acl=settings.allow_if_no_acl
            )
        elif config.optional_str(AUTHORIZER):
            self.authorizer = _authorizer_in_python(config)
        self.policies = Policies.of(config) if config.is_controller else Policies()
        self._may_format = may_format
        self._on_failure = on_failure
        self._ending = ending
        self._advertised: Advertised | None = None
        self._formatted: Formatted | None = None
        self._quorum: QuorumDriver | None = None
        self._leader_left: Callable[[int], object] | None = None

    @property
    def quorum(self) -> QuorumDriver:
        assert self._quorum is not None, "the shared part is not started"
        return self._quorum

    @property
    def started_quorum(self) -> QuorumDriver | None:
        """None before it is made."""
        return self._quorum

    @property
    def cluster_id(self) -> str:
        assert self._formatted is not None, "the shared part is not started"
        return self._formatted.cluster_id

    @property
    def advertised(self) -> Advertised:
        assert self._advertised is not None, "the shared part is not started"
        return self._advertised

    async def start(self, parts: StartedParts) -> None:
        """Directories locked, ports bound, the replica of the quorum running. Raises StartError or OSError."""
        config = self.config
        advertised = self._advertised = await self._advertise()
        parts.add("log directories", self._close_directories)
        formatted = self._formatted = self._open_directories()
        check_metadata(self.runtime.disk, config, self.log_dirs, advertised.controller)
        await self.ports.bind(parts)
        if self.stores is not None:
            parts.add("TLS stores", self.stores.close)
            self.stores.start()
        self._watch_authorizer(parts)
        lost = None
        if config.bool(EARLY_FENCING):
            lost = LostPeers(
                self.runtime,
                lambda address: self.quorum.peer_refused(*address),
                left=lambda address: self._left(*address),
            )
            parts.add("lost peers", lost.close)
        peers = SocketPeers(self.runtime, f"raft-client-{config.node_id}", self.setup_to_controllers, lost)
        quorum = self._quorum = QuorumDriver(
            self.runtime,
            quorum_config(config, formatted, self.ports.advertised(advertised.controller)),
            peers,
            on_failure=self._on_failure,
            on_snapshot_due=self.loader.write_snapshot,
            on_short_of_room=self.space.reserve_given_up,
        )
        self.space.keep_reserve(quorum, directories_of(config), config.int("pykbroker.metadata.reserve.bytes"))
        parts.add("disk space", self.space.close)
        parts.add("quorum", quorum.stop)
        try:
            await quorum.start()
        except UNUSABLE as error:
            raise StartError(f"The metadata log in {config.metadata_log_dir} cannot be used: {error}") from error
        try:
            refuse_scram_of_voters(config, self._coming_voters())
        except ConfigError as error:
            raise StartError(str(error)) from None

    async def _advertise(self) -> Advertised:
        """Called before anything is opened, so that a controller without a name leaves everything as it was."""
        try:
            advertised = await advertise(self.config.listeners, self.runtime.own_name)
        except NoNameError as error:
            raise StartError(str(error)) from None
        for note in advertised.notes:
            logger.info("%s", note)
        if advertised.warning is not None:
            logger.warning("%s", advertised.warning)
        return advertised

    def when_leader_left(self, callback: Callable[[int], object]) -> None:
        """Call it with the id of a leader of the quorum that has ended its connection and is not back. Once."""
        assert self._leader_left is None, "one part asks"
        self._leader_left = callback

    def _left(self, host: str, port: int) -> None:
        leader = self.quorum.leader
        if self._leader_left is not None and leader is not None and (leader.host, leader.port) == (host, port):
            self._leader_left(leader.id)

    def _coming_voters(self) -> int:
        """How many there are, or will be with this controller, which joins others."""
        known = {voter.key.id for voter in self.quorum.voters}
        joins = self.config.bool("controller.quorum.auto.join.enable") and self.config.node_id not in known
        return max(1, len(known)) + joins

    def _watch_authorizer(self, parts: StartedParts) -> None:
        """Metrics, and the audit that the properties file asks for."""
        config, runtime = self.config, self.runtime
        if self._acls is not None:
            from pykbroker.security import authorizer_metrics  # of a node that needs it

            authorizer_metrics.register(self.metrics, self._acls, config.roles, runtime.loop.time)
        path = config.optional_str(AUDIT_FILE)
        if path:
            from pykbroker.node.authorization_audit import audited  # of a node that needs it

            self.authorizer = audited(self.authorizer, path, config, runtime, self.metrics, parts)

    def load(self) -> None:
        """Follow the quorum: from now on publishers are told what the metadata says."""
        self.loader.add_publisher(ConfigWatch(self.config, lambda line: self._on_failure(StartError(line))))
        self.loader.add_publisher(LiveConfigPublisher(self.live, self.config.node_id))
        loaded: list[Callable[[], None]] = []
        if self.stores is not None:
            from pykbroker.node.tls_stores import StorePublisher

            stores = StorePublisher(self.stores, self.live, self.config.node_id)
            self.loader.add_publisher(stores)
            loaded.append(stores.complete_initial_load)
        if self._acls is not None:
            self.loader.add_publisher(AclPublisher(self._acls))
            # The last: clients are answered from then on.
            loaded.append(self._acls.complete_initial_load)

        def up_to_date() -> None:
            for tell in loaded:
                tell()

        self.quorum.register(self.loader, up_to_date)

    def acls_loaded(self) -> asyncio.Future[None]:
        """Done when clients can be told whether they may: at once without an authorizer."""
        loaded: asyncio.Future[None] = self.runtime.loop.create_future()
        if self._acls is None:
            loaded.set_result(None)
        else:
            self._acls.when_loaded(lambda: None if loaded.done() else loaded.set_result(None))
        return loaded

    def check_stores(self, config: Config) -> None:
        """ConfigError for a changed configuration whose stores of TLS cannot be used."""
        if self.stores is not None:
            self.stores.check(config)

    def _tls_stores(self) -> TlsStores | None:
        users: dict[str, list[UsesStores]] = {name: [server] for name, server in self.ports.tls.items()}
        for setup in (self.setup_between_brokers, self.setup_to_controllers):
            if setup.tls is not None:
                users.setdefault(setup.tls.listener, []).append(setup.tls)
        if not users:
            return None
        # It needs cryptography, which a node without TLS never loads.
        from pykbroker.node.tls_stores import TlsStores

        return TlsStores(self.config, self.runtime, self.metrics, users)

    def _authentication(self, config: Config) -> Authentication:
        """ConfigError for a listener that could not authenticate its clients."""
        if not any(point.security_protocol.startswith("SASL_") for point in config.listeners.all):
            return without_sasl
        # Not loaded by a node that does not need it: its start is short.
        from pykbroker.node.sasl_listeners import SaslListeners

        return SaslListeners(config, lambda: self.cluster_id, lambda: self.loader.image.scram).of

    # -- directories --------------------------------------------------------------------------------------------------

    def _open_directories(self) -> Formatted:
        disk, config = self.runtime.disk, self.config
        paths = directories_of(config)
        if self._may_format and all(is_unused(disk, path) for path in paths):
            cluster_id = uuid_to_str(random_uuid(self.runtime.random))
            format_directories(disk, config, cluster_id, self.runtime.random, now_ms=self.runtime.now_ms())
            logger.info("Formatted %s for the new cluster %s", ", ".join(paths), cluster_id)
        formatted = read_format(disk, config, self.runtime.random, now_ms=self.runtime.now_ms())
        for path in paths:
            self.log_dirs.append(self._open_directory(path, formatted))
        return formatted

    def _open_directory(self, path: str, formatted: Formatted) -> LogDir:
        """One that fails is done without, as in Apache Kafka, unless it is the metadata log's or in use elsewhere."""
        disk = self.runtime.disk
        reason = formatted.broken.get(path)
        if reason is None:
            try:
                return LogDir.open(disk, path, formatted.directory_ids[path], self.runtime.now_ms())
            except BlockingIOError as error:
                raise StartError(f"log directory {path} cannot be used: {error}") from error
            except (StorageError, OSError) as error:
                if path == self.config.metadata_log_dir:
                    raise StartError(f"log directory {path} cannot be used: {error}") from error
                reason = str(error)
        logger.error("Log directory %s: offline from the start: %s", path, reason)
        return LogDir.out_of_order(disk, path)

    async def _close_directories(self) -> None:
        ending = self._ending()
        jobs = self.live.current.int("num.recovery.threads.per.data.dir")
        for log_dir in self.log_dirs:
            try:
                await close(self.runtime, log_dir, clean=ending.clean, broker_epoch=ending.broker_epoch, jobs=jobs)
            except StorageError as error:
                logger.error("Log directory %s: cannot be closed cleanly: %s", log_dir.path, error)


def _authorizer_in_python(config: Config) -> Authorizer:
    # Not loaded by a node that does not need it.
    from pykbroker.plugins import AuthorizerPlugin
    from pykbroker.plugins.plugin_authorizer import PluginAuthorizer
    from pykbroker.plugins.plugin_loading import plugin

    made = plugin(config, AUTHORIZER, AuthorizerPlugin)
    assert made is not None, "config/protection.py lets no other authorizer start"
    return PluginAuthorizer(made)
