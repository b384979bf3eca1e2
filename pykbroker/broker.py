"""The composition root: builds the parts of a node, starts and stops them in order. No logic.

A node has a controller half, a broker half, or both (process.roles). The halves share the quorum's replica of the
metadata log and
exchange protocol messages over a channel: in memory when combined, a connection otherwise.

Start: directories locked and formatted -> quorum -> controller half -> broker half registered ->
unfenced -> ready; logs are opened on first use, or recovered, while it serves.
Stop: controlled shutdown -> listeners -> coordinators -> quorum -> directories, and with them their logs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from pykbroker.api import On
from pykbroker.config.listeners import SECURITY_PROTOCOLS, EndPoint
from pykbroker.config.live import LiveConfig
from pykbroker.config.load import Config
from pykbroker.controller.active import ActiveController
from pykbroker.coordinator.group.service import GroupService
from pykbroker.coordinator.transaction.marker_writer import MarkerWriter
from pykbroker.coordinator.transaction.service import TransactionService
from pykbroker.coordinator.transaction.verifier import Verifier
from pykbroker.metadata.features import not_served
from pykbroker.metadata.image import Endpoint as MetadataEndpoint
from pykbroker.metadata.live_config import LiveConfigPublisher
from pykbroker.metadata.loader import MetadataLoader
from pykbroker.metrics.registry import Metrics
from pykbroker.net.admission import Admission
from pykbroker.net.listener import Listener, WaitingMemory
from pykbroker.net.settings import admission_limits, limits_of, setup_timeout
from pykbroker.node_to_controller.assignments import Assignments
from pykbroker.node_to_controller.lifecycle import BrokerLifecycle, ControllerRegistration
from pykbroker.node_to_controller.producer_ids import ProducerIds
from pykbroker.quorum.channel import BrokerChannels, Channel, InMemoryChannel, LeaderChannel, SocketPeers
from pykbroker.quorum.driver import QuorumConfig, QuorumDriver
from pykbroker.replica.fetch_sessions import FetchSessions
from pykbroker.replica.table import ReplicaTable
from pykbroker.runtime import Runtime
from pykbroker.runtime.cold_reads import ColdReads
from pykbroker.security.session import ANONYMOUS
from pykbroker.serving.dispatch import Dispatcher
from pykbroker.serving.forwarding import forward
from pykbroker.serving.local import LocalPeer
from pykbroker.serving.services import BrokerServices, ControllerServices
from pykbroker.storage.cleaner import LogCleaner
from pykbroker.storage.directories import close
from pykbroker.storage.format import (
    Formatted,
    StorageFormatError,
    bootstrap_records,
    directories_of,
    format_directories,
    is_unused,
    random_uuid,
    read_format,
)
from pykbroker.storage.upkeep import Upkeep
from pykbroker_log.checkpoints import encode_uuid
from pykbroker_log.log_config import StorageError
from pykbroker_log.log_dirs import LogDir
from pykbroker_raft.node import RaftConfig
from pykbroker_raft.storage import UNUSABLE, StorageConfig
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet

logger = logging.getLogger(__name__)

StartError = StorageFormatError
#: A bound beyond this is none: the default is 292 million years.
_LONGEST_START_MS = 10**12
_LONGEST_SHUTDOWN_SECONDS = 300.0


class Node:
    """One process of a cluster."""

    def __init__(self, config: Config, runtime: Runtime, *, may_format: bool = False) -> None:
        self.config = config
        self.live = LiveConfig(config)
        self.runtime = runtime
        self._cold_reads = ColdReads(runtime, config.int("pykbroker.max.cold.reads"))
        self.metrics = Metrics()
        self.loader = MetadataLoader()
        self.fatal: BaseException | None = None
        self._may_format = may_format
        #: of this run of the node, for its registrations
        self._incarnation = random_uuid(runtime.random)
        self._on_fatal: Callable[[], None] = lambda: None
        self._formatted = Formatted("", {})
        self._log_dirs: list[LogDir] = []
        self._listeners: list[Listener] = []
        self._quorum: QuorumDriver | None = None
        self._controller: ActiveController | None = None
        self._broker: BrokerServices | None = None
        self._lifecycle: BrokerLifecycle | None = None
        self._upkeep: Upkeep | None = None
        self._cleaner: LogCleaner | None = None
        self._assignments: Assignments | None = None
        self._registration: ControllerRegistration | None = None
        self._channel: Channel | None = None
        self._channels: BrokerChannels | None = None
        self._controller_dispatcher: Dispatcher | None = None
        self._stopping = False

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the first client listener."""
        names = {point.listener_name: point.host for point in self.config.listeners.broker}
        for listener in self._listeners:
            if listener.name in names:
                host = names[listener.name] or "localhost"
                return f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"
        return ",".join(f"{point.host}:{self._port_of(point)}" for point in self.config.listeners.controller)

    @property
    def services(self) -> BrokerServices:
        """The broker half."""
        assert self._broker is not None, "this node has no broker half, or is not started"
        return self._broker

    def recovery_progress(self) -> tuple[int, int, int] | None:
        """(bytes checked, bytes to check, logs left) while logs of an unclean stop are recovered."""
        return None if self._broker is None else self._broker.replicas.recovery.progress()

    def on_fatal(self, callback: Callable[[], None]) -> None:
        """`callback` when the node cannot go on; `fatal` says why."""
        self._on_fatal = callback

    def _fail(self, error: BaseException) -> None:
        if self.fatal is None and not self._stopping:
            self.fatal = error
            logger.error("[KafkaRaftServer nodeId=%d] Stopping: %s", self.config.node_id, error)
            self._on_fatal()

    # -- start --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start every part; when it returns, clients are served. Raises StartError or OSError."""
        limit_ms = self.config.int("server.max.startup.time.ms")
        try:
            async with asyncio.timeout(limit_ms / 1000 if limit_ms < _LONGEST_START_MS else None):
                await self._start()
        except asyncio.CancelledError:
            # What start waited for will not come: a part has given up and said why.
            if self.fatal is not None:
                raise StartError(str(self.fatal)) from None
            raise
        except TimeoutError:
            raise StartError(f"the node was not up within {limit_ms} ms (server.max.startup.time.ms)") from None

    async def _start(self) -> None:
        config = self.config
        self._formatted = self._prepare_directories()
        await self._bind_listeners()
        quorum = self._quorum = self._make_quorum()
        quorum.on_failure = self._fail
        quorum.on_snapshot_due = self.loader.write_snapshot
        try:
            await quorum.start()
        except UNUSABLE as error:
            raise StartError(f"The metadata log in {config.metadata_log_dir} cannot be used: {error}") from error
        if config.is_controller:
            self._start_controller(quorum)
        self.loader.add_publisher(LiveConfigPublisher(self.live, config.node_id))
        # After the controller: who hears of a leader from the loader finds it active.
        quorum.register(self.loader)
        if config.is_controller:
            for listener in self._listeners_of(config.listeners.controller):
                await listener.serve()
        self._channel = self._make_channel(quorum)
        if config.is_broker:
            await self._start_broker(quorum, self._channel)
        if config.is_controller:
            self._registration = ControllerRegistration(
                runtime=self.runtime,
                channel=self._channel,
                metadata=self.loader,
                node_id=config.node_id,
                incarnation_id=self._incarnation,
            )
            self._registration.start(self._advertised(config.listeners.advertised_controller))
        logger.info("[KafkaRaftServer nodeId=%d] Kafka Server started", config.node_id)

    def _prepare_directories(self) -> Formatted:
        disk, config = self.runtime.disk, self.config
        paths = directories_of(config)
        if self._may_format and all(is_unused(disk, path) for path in paths):
            cluster_id = encode_uuid(random_uuid(self.runtime.random))
            format_directories(disk, config, cluster_id, self.runtime.random, now_ms=self.runtime.now_ms())
            logger.info("Formatted %s for the new cluster %s", ", ".join(paths), cluster_id)
        formatted = read_format(disk, config, self.runtime.random, now_ms=self.runtime.now_ms())
        for path in paths:
            self._log_dirs.append(self._open_directory(path, formatted))
        return formatted

    def _open_directory(self, path: str, formatted: Formatted) -> LogDir:
        """One that fails is done without, as in Apache Kafka, unless it is the metadata log's or somebody else's."""
        disk = self.runtime.disk
        reason = formatted.broken.get(path)
        if reason is None:
            try:
                return LogDir.open(disk, path, formatted.directory_ids[path], self.runtime.now_ms())
            except BlockingIOError as error:
                raise StorageFormatError(f"log directory {path} cannot be used: {error}") from error
            except (StorageError, OSError) as error:
                if path == self.config.metadata_log_dir:
                    raise StorageFormatError(f"log directory {path} cannot be used: {error}") from error
                reason = str(error)
        logger.error("Log directory %s: offline from the start: %s", path, reason)
        return LogDir.out_of_order(disk, path)

    async def _bind_listeners(self) -> None:
        config = self.config
        limits = limits_of(config)
        # The halves are two servers, as in Apache Kafka: clients cannot take the controller's places.
        for points in (config.listeners.broker, config.listeners.controller):
            admission = Admission(self.runtime.loop, admission_limits(config, points))
            self.live.on_change(partial(_change_bounds, admission, points))
            memory = WaitingMemory(config.int("queued.max.request.bytes"))
            for point in points:
                listener = Listener(
                    self.runtime,
                    point.listener_name,
                    self._not_yet,
                    limits,
                    security_protocol=point.security_protocol,
                    admission=admission,
                    memory=memory,
                    cold_reads=self._cold_reads,
                )
                await listener.bind(point.host, point.port, config.int("socket.listen.backlog.size"))
                self._listeners.append(listener)

    @staticmethod
    def _not_yet(connection: Any, frame: memoryview) -> None:
        raise AssertionError("a listener serves before its dispatcher is there")

    def _listeners_of(self, points: tuple[EndPoint, ...]) -> list[Listener]:
        names = {point.listener_name for point in points}
        return [listener for listener in self._listeners if listener.name in names]

    def _port_of(self, point: EndPoint) -> int:
        """The port that was bound, where the configuration says 0."""
        if point.port:
            return point.port
        return next((listener.port for listener in self._listeners if listener.name == point.listener_name), 0)

    def _make_quorum(self) -> QuorumDriver:
        config = self.config
        directory_id = self._formatted.directory_ids[config.metadata_log_dir]
        listeners = config.listeners
        name = listeners.controller_names[0]
        endpoints = tuple(
            Endpoint(point.listener_name, point.host, self._port_of(point)) for point in listeners.advertised_controller
        )
        static = VoterSet.of(
            VoterNode(ReplicaKey(node_id), (Endpoint(name, host, port),))
            for node_id, (host, port) in config.voters.items()
        )
        bootstrap = (
            []
            if static.voters or (config.is_controller and config.is_broker)
            else config.list("controller.quorum.bootstrap.servers")
        )
        raft = RaftConfig(
            node_id=config.node_id,
            directory_id=directory_id,
            cluster_id=self._formatted.cluster_id,
            listener=name,
            endpoints=endpoints,
            bootstrap=tuple(_host_and_port(address) for address in bootstrap),
            static_voters=static,
            is_controller=config.is_controller,
            election_timeout_ms=config.int("controller.quorum.election.timeout.ms"),
            election_backoff_max_ms=config.int("controller.quorum.election.backoff.max.ms"),
            fetch_timeout_ms=config.int("controller.quorum.fetch.timeout.ms"),
            request_timeout_ms=config.int("controller.quorum.request.timeout.ms"),
            retry_backoff_ms=config.int("controller.quorum.retry.backoff.ms"),
        )
        storage = StorageConfig(
            segment_bytes=config.optional_int("internal.metadata.log.segment.bytes")
            or config.int("metadata.log.segment.bytes"),
            segment_ms=config.int("metadata.log.segment.ms"),
            max_retention_bytes=config.int("metadata.max.retention.bytes"),
            max_retention_ms=config.int("metadata.max.retention.ms"),
        )
        chosen = QuorumConfig(
            raft,
            config.metadata_log_dir,
            storage,
            snapshot_bytes=config.int("metadata.log.max.record.bytes.between.snapshots"),
            snapshot_interval_ms=config.int("metadata.log.max.snapshot.interval.ms"),
        )
        return QuorumDriver(
            self.runtime, chosen, SocketPeers(self.runtime, f"raft-client-{config.node_id}", setup_timeout(config))
        )

    # -- the controller half ------------------------------------------------------------------------------------------

    def _start_controller(self, quorum: QuorumDriver) -> None:
        config = self.config
        controller = self._controller = ActiveController(
            runtime=self.runtime,
            quorum=quorum,
            config=config,
            node_id=config.node_id,
            cluster_id=self._formatted.cluster_id,
            bootstrap=bootstrap_records(self.runtime.disk, config),
            own_incarnation=self._incarnation if config.is_broker else None,
        )
        services = ControllerServices(
            config=config,
            runtime=self.runtime,
            node_id=config.node_id,
            cluster_id=self._formatted.cluster_id,
            quorum=quorum,
            metadata=self.loader,
            metrics=self.metrics,
            controller=controller,
        )
        dispatcher = self._controller_dispatcher = Dispatcher(services, On.CONTROLLER)
        services.handlers = {key: row.handle for key, row in dispatcher.rows.items()}
        for listener in self._listeners_of(config.listeners.controller):
            listener.dispatch = dispatcher
        quorum.register(controller)

    def _make_channel(self, quorum: QuorumDriver) -> Channel:
        dispatcher = self._controller_dispatcher
        if dispatcher is not None:
            listeners = self.config.listeners
            name = listeners.controller_names[0]
            peer = LocalPeer(ANONYMOUS, name, listeners.protocols[name])
            return InMemoryChannel(self.runtime, lambda request: dispatcher.call(peer, request))
        return LeaderChannel(
            self.runtime, lambda: quorum.leader, f"broker-{self.config.node_id}", setup_timeout(self.config)
        )

    # -- the broker half ----------------------------------------------------------------------------------------------

    async def _start_broker(self, quorum: QuorumDriver, channel: Channel) -> None:
        config, runtime, loader = self.config, self.runtime, self.loader
        data_dirs = [log_dir for log_dir in self._log_dirs if log_dir.path in config.log_dirs]
        replicas = ReplicaTable(
            runtime,
            self.live.current,
            config.node_id,
            data_dirs,
            self.metrics,
            self._directory_failed,
            self._cold_reads,
        )
        groups = GroupService(runtime, self.live, config.node_id, replicas, loader)
        lifecycle = self._lifecycle = BrokerLifecycle(
            runtime=runtime,
            config=config,
            channel=channel,
            metadata=loader,
            node_id=config.node_id,
            cluster_id=self._formatted.cluster_id,
            incarnation_id=self._incarnation,
            directory_ids=[log_dir.directory_id for log_dir in data_dirs if not log_dir.offline],
            previous_broker_epoch=_previous_broker_epoch(data_dirs),
            fatal=lambda reason: self._fail(RuntimeError(reason)),
        )
        producer_ids = ProducerIds(runtime, config.node_id, lambda: lifecycle.broker_epoch, channel.send)
        channels = self._channels = BrokerChannels(
            runtime, partial(self._address_of, loader), f"broker-{config.node_id}", setup_timeout(config)
        )
        markers = MarkerWriter(runtime, replicas, groups.coordinator, config.int("request.timeout.ms"))
        transactions = TransactionService(
            runtime, config, config.node_id, replicas, loader, producer_ids, markers.write, channels.send
        )
        verifier = Verifier(runtime, self.live.current, config.node_id, loader, transactions, channels.send)
        assignments = self._assignments = Assignments(
            runtime, config.node_id, lambda: lifecycle.broker_epoch, channel.send, loader
        )
        replicas.on_opened = replicas.moves.unassign = assignments.opened
        replicas.moves.assign = assignments.assign
        replicas.moves.throttle = partial(self.live.throttle, "replica.alter.log.dirs.io.max.bytes.per.second")
        services = self._broker = BrokerServices(
            config=config,
            runtime=runtime,
            node_id=config.node_id,
            cluster_id=self._formatted.cluster_id,
            quorum=quorum,
            metadata=loader,
            metrics=self.metrics,
            replicas=replicas,
            groups=groups,
            transactions=transactions,
            verifier=verifier,
            markers=markers,
            fetch_sessions=FetchSessions(
                config.int("max.incremental.fetch.session.cache.slots"), runtime.random, self.metrics
            ),
            producer_ids=producer_ids,
            controller_channel=channel,
            lifecycle=lifecycle,
        )
        dispatcher = Dispatcher(services, On.BROKER, forward)
        for listener in self._listeners_of(config.listeners.broker):
            listener.dispatch = dispatcher
        self.live.on_change(replicas.reconfigure)
        self._cordon(self.live.current)
        self.live.on_change(self._cordon)
        loader.add_publisher(replicas)
        self.live.on_change(verifier.reconfigure)
        loader.add_publisher(groups)
        loader.add_publisher(transactions)
        lifecycle.start(self._advertised(config.listeners.advertised_broker))
        await lifecycle.caught_up
        for name, level in not_served(loader.image).items():
            logger.warning("Feature %s is finalised at %d, is not served here, and stays as it is", name, level)
        # The image has everything up to this broker's registration. Logs are opened on first use, and the rest when
        # clients are served; those that an unclean stop has left come back one by one.
        replicas.start()
        replicas.moves.start()
        self._upkeep = Upkeep(runtime, config, replicas)
        self._upkeep.start()
        cleaner = self._cleaner = LogCleaner(runtime, self.live.current, replicas, self.metrics)
        self.live.on_change(cleaner.reconfigure)
        cleaner.start()
        transactions.start()
        await lifecycle.ready_to_unfence()
        for listener in self._listeners_of(config.listeners.broker):
            await listener.serve()
        replicas.opener.serve()

    def _address_of(self, loader: MetadataLoader, broker_id: int) -> tuple[str, int] | None:
        """Where another broker listens for brokers."""
        broker = loader.image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoints.get(self.config.listeners.inter_broker_name)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def _advertised(self, points: tuple[EndPoint, ...]) -> list[MetadataEndpoint]:
        return [
            MetadataEndpoint(
                point.listener_name,
                point.host or "localhost",
                self._port_of(point),
                SECURITY_PROTOCOLS.index(point.security_protocol),
            )
            for point in points
        ]

    def _cordon(self, config: Config) -> None:
        assert self._lifecycle is not None
        self._lifecycle.cordon(d.directory_id for d in self._log_dirs if d.path in config.cordoned_log_dirs)

    def _directory_failed(self, log_dir: LogDir, error: StorageError) -> None:
        if self._lifecycle is not None:
            self._lifecycle.directory_failed(log_dir.directory_id)
        if all(other.offline for other in self._log_dirs) or log_dir.path == self.config.metadata_log_dir:
            self._fail(error)

    # -- stop ---------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """A controlled shutdown, as far as the node came up. Stopping twice is fine."""
        if self._stopping:
            return
        self._stopping = True
        clean = self.fatal is None
        if self._lifecycle is not None and clean and self.config.bool("controlled.shutdown.enable"):
            # As long as Apache Kafka waits; a broker whose controllers are gone must end too.
            granted = self._lifecycle.begin_controlled_shutdown(self._serve_no_more)
            await asyncio.wait({granted}, timeout=_LONGEST_SHUTDOWN_SECONDS)
        for listener in self._listeners:
            listener.close()
        if self._upkeep is not None:
            self._upkeep.stop()
        if self._cleaner is not None:
            self._cleaner.stop()
        if self._assignments is not None:
            self._assignments.close()
        broker = self._broker
        broker_epoch = -1
        if broker is not None:
            # Its workers are gone when the directories are closed, several turns from here.
            broker.replicas.stop()
            await broker.replicas.recovery.ended()
            await broker.replicas.moves.close()
            broker.transactions.close()
            broker.groups.close()
            broker.producer_ids.close()
            broker_epoch = broker.lifecycle.broker_epoch
            broker.lifecycle.stop()
        if self._registration is not None:
            self._registration.stop()
        if self._controller is not None:
            self._controller.stop()
        if self._quorum is not None:
            await self._quorum.stop()
        if isinstance(self._channel, LeaderChannel):
            self._channel.close()
        if self._channels is not None:
            self._channels.close()
        jobs = self.live.current.int("num.recovery.threads.per.data.dir")
        for log_dir in self._log_dirs:
            try:
                await close(
                    self.runtime, log_dir, clean=clean and broker is not None, broker_epoch=broker_epoch, jobs=jobs
                )
            except StorageError as error:
                logger.error("Log directory %s: cannot be closed cleanly: %s", log_dir.path, error)
        logger.info("[KafkaRaftServer nodeId=%d] shut down completed", self.config.node_id)

    def _serve_no_more(self) -> None:
        """Who asked now would be told of a cluster without this node: some clients take it for good that there is none
        (librdkafka 2.16 then forgets the only address that it had)."""
        for listener in self._listeners_of(self.config.listeners.broker):
            listener.close()


def _change_bounds(admission: Admission, points: tuple[EndPoint, ...], config: Config) -> None:
    admission.change(admission_limits(config, points))


def _previous_broker_epoch(log_dirs: list[LogDir]) -> int:
    """Of the stop before this start, if it was clean everywhere: what is in no reach may have lost something."""
    epochs = {-1 if log_dir.offline else log_dir.previous_broker_epoch for log_dir in log_dirs}
    return epochs.pop() if len(epochs) == 1 else -1


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
