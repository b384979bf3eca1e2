"""The broker half of a node: replicas, coordinators, the lease from the controller, the listeners for clients.

Made from the shared part and channels to the active controller. Responsible for wiring these parts, for the order in
which they start, and for what a failed directory means to the broker; not responsible for what any of them does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from pykbroker.api import rows
from pykbroker.config.load import Config
from pykbroker.coordinator.group.service import GroupService
from pykbroker.coordinator.transaction.marker_writer import MarkerWriter
from pykbroker.coordinator.transaction.service import TransactionService
from pykbroker.coordinator.transaction.verifier import Verifier
from pykbroker.metadata.features import not_served
from pykbroker.metadata.loader import MetadataLoader
from pykbroker.net.from_config import EARLY_FENCING
from pykbroker.net.lost_peers import LostPeers
from pykbroker.node.parts import StartedParts
from pykbroker.node.ports import answers_versions
from pykbroker.node.shared import SharedServer
from pykbroker.node_to_controller.assignments import Assignments
from pykbroker.node_to_controller.controller_channel import ControllerChannel
from pykbroker.node_to_controller.isr_changes import IsrChanges
from pykbroker.node_to_controller.lifecycle import BrokerLifecycle
from pykbroker.node_to_controller.producer_ids import ProducerIds
from pykbroker.node_to_controller.quorum_watch import QuorumWatch
from pykbroker.quorum.channel import BrokerChannels
from pykbroker.replica.fetch_sessions import FetchSessions
from pykbroker.replica.fetching.manager import FetcherManager
from pykbroker.replica.isr_updates import FAILED_UPDATES
from pykbroker.replica.quota import ReplicationQuotas
from pykbroker.replica.table import ReplicaTable
from pykbroker.security.peer_session import ANONYMOUS
from pykbroker.serving.batch_checks import BatchChecks
from pykbroker.serving.cluster_view import ClusterViews
from pykbroker.serving.dispatch import Dispatcher, MakeDispatcher
from pykbroker.serving.forwarding import forward
from pykbroker.serving.initial_topics import InitialTopics
from pykbroker.serving.peers import LocalPeer
from pykbroker.serving.rows import On
from pykbroker.serving.services import BrokerServices
from pykbroker.storage.cleaner import LogCleaner
from pykbroker.storage.upkeep import Upkeep
from pykbroker_log.log_config import StorageError
from pykbroker_log.log_dirs import LogDir

logger = logging.getLogger(__name__)

_LONGEST_SHUTDOWN_SECONDS = 300.0


class BrokerHalf:
    """`start` once, when everything before it runs; `shut_down` asks to be let go before the parts are closed."""

    def __init__(
        self,
        shared: SharedServer,
        channel: Callable[[str], ControllerChannel],
        on_failure: Callable[[BaseException], None],
        make_dispatcher: MakeDispatcher,
    ) -> None:
        """`channel` makes one for a purpose. `on_failure`: the broker cannot go on, and the node with it."""
        config, runtime, loader, live = shared.config, shared.runtime, shared.loader, shared.live
        node_id = config.node_id
        data_dirs = [log_dir for log_dir in shared.log_dirs if log_dir.path in config.log_dirs]
        self._shared = shared
        self._on_failure = on_failure
        self._make_dispatcher = make_dispatcher
        heartbeats = channel("heartbeat")
        self.lifecycle = lifecycle = BrokerLifecycle(
            runtime=runtime,
            config=config,
            channel=heartbeats,
            metadata=loader,
            node_id=node_id,
            cluster_id=shared.cluster_id,
            incarnation_id=shared.incarnation_id,
            directory_ids=[log_dir.directory_id for log_dir in data_dirs if not log_dir.offline],
            previous_broker_epoch=_previous_broker_epoch(data_dirs),
            fatal=lambda reason: on_failure(RuntimeError(reason)),
        )
        heartbeats.when_lost(lifecycle.connection_lost)
        self.assignments = Assignments(
            runtime, node_id, lambda: lifecycle.broker_epoch, channel("directory-assignments"), loader
        )
        self._isr_changes = IsrChanges(
            runtime,
            node_id,
            lambda: lifecycle.broker_epoch,
            channel("alter-partition"),
            loader,
            shared.metrics.counter(FAILED_UPDATES),
        )
        replicas = ReplicaTable(
            runtime,
            live.current,
            node_id,
            data_dirs,
            shared.metrics,
            self._directory_failed,
            shared.cold_reads,
            assignments=self.assignments,
            space=shared.space,
            alter_partition=self._isr_changes.submit,
            move_throttle=partial(live.throttle, "replica.alter.log.dirs.io.max.bytes.per.second"),
            quotas=ReplicationQuotas(config, node_id, runtime.loop.time, shared.metrics, live.throttle),
        )
        to_broker = partial(_address_of, loader, config.listeners.inter_broker_name)
        is_watching = config.bool(EARLY_FENCING)
        self._views = ClusterViews(runtime.loop.call_later if is_watching else None)
        self._lost: LostPeers | None = None
        if is_watching:
            self._lost = LostPeers(
                runtime,
                lambda address: self._views.lose(self._brokers_at(address)),
                lambda address: self._views.find_again(self._brokers_at(address)),
                self._views.doubt,
                self._views.settle,
            )
        self._fetchers = FetcherManager(
            runtime,
            live.current,
            replicas,
            to_broker,
            lambda: lifecycle.broker_epoch,
            shared.setup_between_brokers,
            shared.metrics,
            self._lost,
        )
        groups = GroupService(runtime, live, node_id, replicas, loader)
        forwarding = channel("forwarding")
        producer_ids = ProducerIds(runtime, node_id, lambda: lifecycle.broker_epoch, forwarding, loader)
        self._channels = BrokerChannels(
            runtime,
            to_broker,
            f"broker-{node_id}",
            shared.setup_between_brokers,
            self._lost,
        )
        markers = MarkerWriter(runtime, replicas, groups.coordinator, config.int("request.timeout.ms"))
        transactions = TransactionService(
            runtime, config, node_id, replicas, loader, producer_ids, markers.write, self._channels.send
        )
        self.services = BrokerServices(
            config=config,
            runtime=runtime,
            node_id=node_id,
            cluster_id=shared.cluster_id,
            quorum=shared.quorum,
            metadata=loader,
            metrics=shared.metrics,
            authorizer=shared.authorizer,
            replicas=replicas,
            groups=groups,
            transactions=transactions,
            verifier=Verifier(runtime, live.current, node_id, loader, transactions, self._channels.send),
            batch_checks=BatchChecks(runtime),
            markers=markers,
            fetch_sessions=FetchSessions(
                config.int("max.incremental.fetch.session.cache.slots"), runtime.random, shared.metrics
            ),
            producer_ids=producer_ids,
            controller_channel=forwarding,
            lifecycle=lifecycle,
            rows=rows(On.BROKER, shared.metrics),
            cluster_views=self._views,
            check_stores=shared.check_stores,
        )

    async def start(self, parts: StartedParts) -> None:
        """Register, follow the metadata, open the logs, become unfenced; when it returns, clients are served."""
        shared, services, lifecycle = self._shared, self.services, self.lifecycle
        replicas, live = services.replicas, shared.live
        dispatcher = self._make_dispatcher(services, forward)
        # These act as soon as the metadata says so, and everything below asks the lease for the broker's epoch.
        parts.add("broker lifecycle", lifecycle.stop)
        parts.add("producer ids", services.producer_ids.close)
        parts.add("group coordinator", services.groups.close)
        if self._lost is not None:
            parts.add("lost brokers", self._lost.close)
            shared.loader.add_publisher(self._views)
        parts.add("channels to brokers", self._channels.close)
        parts.add("transaction coordinator", services.transactions.close)
        parts.add("directory assignments", self.assignments.close)
        parts.add("changes of ISRs", self._isr_changes.close)
        live.on_change(replicas.reconfigure)
        self._cordon(live.current)
        live.on_change(self._cordon)
        live.on_change(services.verifier.reconfigure)
        lifecycle.start(shared.ports.advertised(shared.advertised.broker))
        await lifecycle.caught_up
        # From here on logs may change. A start that has not come so far leaves the last clean stop as it was.
        await replicas.logs.directories.claim()
        # Not before: until the controller has heard of this start, the metadata may name this broker as the leader of
        # partitions whose records a power loss has taken from it.
        shared.loader.add_publisher(replicas)
        shared.loader.add_publisher(services.groups)
        shared.loader.add_publisher(services.transactions)
        for name, level in not_served(shared.loader.image).items():
            # Every new cluster has some, as with Apache Kafka: nothing to warn of.
            logger.info("Feature %s is finalised at %d, is not served here, and stays as it is", name, level)
        # The image has everything up to this broker's registration. Logs are opened on first use, and the rest when
        # clients are served; those that an unclean stop has left come back one by one.
        parts.add("replicas", partial(_stop, replicas))
        replicas.start()
        parts.add("ISR expiration", replicas.isr_expiration.stop)
        replicas.isr_expiration.start()
        # Before this broker is unfenced: its replicas catch up meanwhile.
        parts.add("replica fetchers", self._fetchers.close)
        live.on_change(self._fetchers.reconfigure)
        self._fetchers.reconfigure(live.current)
        self._fetchers.start()
        parts.add("moves between directories", replicas.logs.moves.close)
        replicas.logs.moves.start()
        upkeep = Upkeep(
            shared.runtime,
            shared.config,
            replicas.logs,
            lambda: replicas.bytes_in.value + replicas.replication_bytes_in.value,
        )
        parts.add("upkeep", upkeep.stop)
        upkeep.start()
        cleaner = LogCleaner(shared.runtime, live.current, replicas.logs, shared.metrics)
        parts.add("log cleaner", cleaner.stop)
        live.on_change(cleaner.reconfigure)
        cleaner.start()
        services.groups.start()
        services.transactions.start()
        await lifecycle.ready_to_unfence()
        # Long ago, in truth: the image has this broker's registration. early.start.listeners opens no listener sooner.
        await shared.acls_loaded()
        versions = answers_versions(services)
        await shared.ports.serve(shared.config.listeners.broker, dispatcher, versions, parts)
        topics = InitialTopics(services)
        parts.add("initial topics", topics.close)
        await topics.start()
        if shared.config.bool("pykbroker.load.reporter.enable"):
            from pykbroker.serving.load_reporter import LoadReporter  # of a node that needs it

            reporter = LoadReporter(services, self._channels.send)
            parts.add("load reporter", reporter.close)
            reporter.start()
        # Last: what waits for this line connects.
        lifecycle.announce_running()
        replicas.logs.opener.serve()

    def call(self, request: Any) -> Any:
        """Handle a request of this process: a response, or a future or promise of one."""
        point = self._shared.config.listeners.broker[0]
        peer = LocalPeer(ANONYMOUS, point.listener_name, point.security_protocol)
        return Dispatcher(self.services).call(peer, request)

    async def shut_down(self) -> None:
        """A controlled shutdown: the controller moves leaderships away and lets this broker go."""
        # As long as Apache Kafka waits. The lifecycle itself gives up when no controller answers it.
        granted = self.lifecycle.begin_controlled_shutdown(self._serve_no_more)
        watch = self._watch_quorum() if self._lost is not None else None
        try:
            await asyncio.wait({granted}, timeout=_LONGEST_SHUTDOWN_SECONDS)
        finally:
            if watch is not None:
                watch.close()

    def _watch_quorum(self) -> QuorumWatch:
        shared = self._shared
        return QuorumWatch(
            shared.runtime,
            shared.config.node_id,
            lambda: shared.quorum.voters,
            self._has_heirs,
            lambda: self.lifecycle.go_without_leave("most voters refuse connections, so no controller can come"),
        )

    def _has_heirs(self) -> bool:
        """Return True if another broker that lives, as far as the metadata says, could lead a partition of this one's.
        The controller lets this broker go when there is none."""
        image = self._shared.loader.image
        own = self._shared.config.node_id
        found = (
            image.topics.partition(partition.topic, partition.index)
            for partition in self.services.replicas
            if partition.is_leader
        )
        candidates = {replica for partition in found if partition is not None for replica in partition.isr}
        return any(image.broker_is_active(replica) for replica in candidates - {own})

    def _serve_no_more(self) -> None:
        """A client that asked now would be told of a cluster without this node, and some clients take it for good that
        there is none (librdkafka 2.16 then forgets the only address that it had)."""
        self._shared.ports.close(self._shared.config.listeners.broker)

    def _brokers_at(self, address: tuple[str, int]) -> list[int]:
        """Which brokers listen there for brokers: one, unless something is wrong."""
        listener = self._shared.config.listeners.inter_broker_name
        brokers = self._shared.loader.image.brokers
        return [broker_id for broker_id in brokers if _address_of(self._shared.loader, listener, broker_id) == address]

    def _cordon(self, config: Config) -> None:
        self.lifecycle.cordon(d.directory_id for d in self._shared.log_dirs if d.path in config.cordoned_log_dirs)

    def _directory_failed(self, log_dir: LogDir, error: StorageError) -> None:
        self.lifecycle.directory_failed(log_dir.directory_id)
        self._fetchers.directory_failed()
        shared = self._shared
        if all(other.offline for other in shared.log_dirs) or log_dir.path == shared.config.metadata_log_dir:
            self._on_failure(error)


async def _stop(replicas: ReplicaTable) -> None:
    # Its workers are gone when the directories are closed, several turns from here.
    replicas.stop()
    await replicas.ended()


def _address_of(loader: MetadataLoader, listener_name: str, broker_id: int) -> tuple[str, int] | None:
    """Where another broker listens for brokers."""
    broker = loader.image.brokers.get(broker_id)
    endpoint = None if broker is None else broker.endpoints.get(listener_name)
    return None if endpoint is None else (endpoint.host, endpoint.port)


def _previous_broker_epoch(log_dirs: list[LogDir]) -> int:
    """The epoch of the last run if every directory was stopped cleanly, else -1: a directory that cannot be reached
    may have lost something."""
    epochs = {-1 if log_dir.offline else log_dir.sign.broker_epoch for log_dir in log_dirs}
    return epochs.pop() if len(epochs) == 1 else -1
