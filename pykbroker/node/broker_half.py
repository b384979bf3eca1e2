"""The broker half of a node: replicas, coordinators, and the listeners for clients, all on the broker loop.

It is made from its `LoopSide` and from the messages between the loops. Responsible for wiring these parts, for the
order in which they start, and for the reaction of the broker to a failed directory. Not responsible for the work of any
part.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from pykbroker.api import rows
from pykbroker.client_view.cluster_view import ClusterViews
from pykbroker.config.typed_config import Config
from pykbroker.coordinator.coordinator_metrics import CoordinatorMetrics
from pykbroker.coordinator.group.service import GroupService
from pykbroker.coordinator.share.service import ShareCoordinatorService
from pykbroker.coordinator.transaction.marker_writer import MarkerWriter
from pykbroker.coordinator.transaction.service import TransactionService
from pykbroker.coordinator.transaction.verifier import Verifier
from pykbroker.crossing.broker_end import BrokerEnd
from pykbroker.crossing.hand_over import HandOver
from pykbroker.crossing.loop_messages import ToBroker
from pykbroker.dispatch.dispatcher import MakeDispatcher
from pykbroker.dispatch.forwarding import forward
from pykbroker.dispatch.peers import LocalPeer
from pykbroker.dispatch.rows import On
from pykbroker.dispatch.services import BrokerServices
from pykbroker.dispatch.suspects import Suspects
from pykbroker.liveness import EARLY_FENCING
from pykbroker.liveness.dead_brokers import DeadBrokers
from pykbroker.liveness.lost_peers import LostPeers
from pykbroker.metadata.features import not_served
from pykbroker.metadata.restored import Restored
from pykbroker.metadata.view import MetadataView
from pykbroker.node.loop_side import LoopSide
from pykbroker.node.parts import StartedParts
from pykbroker.node.ports import answers_versions
from pykbroker.node.share_parts import ShareLogs, ShareParts
from pykbroker.node.turn_report import SlowTurnReport
from pykbroker.node_to_controller.controller_channel import ControllerChannel
from pykbroker.node_to_controller.directory_assignments import AssignmentReports
from pykbroker.node_to_controller.isr_changes import IsrChanges
from pykbroker.node_to_controller.producer_ids import ProducerIds
from pykbroker.quorum.channel import BrokerChannels
from pykbroker.replica.batch_checks import BatchChecks
from pykbroker.replica.fetch_sessions import FetchSessions
from pykbroker.replica.fetching.manager import FetcherManager
from pykbroker.replica.isr_updates import FAILED_UPDATES
from pykbroker.replica.quota import ReplicationQuotas
from pykbroker.replica.table import ReplicaTable
from pykbroker.security.peer_session import ANONYMOUS
from pykbroker.share_leaders import share_metrics
from pykbroker.storage.cleaner import LogCleaner
from pykbroker.storage.format import directories_of
from pykbroker.storage.space import DiskSpace
from pykbroker.storage.upkeep import Upkeep
from pykbroker.topic_creation.auto_create import create_dead_letter_topic
from pykbroker.topic_creation.initial_topics import InitialTopics
from pykbroker_log.log_config import StorageError
from pykbroker_log.log_dirs import LogDir

logger = logging.getLogger(__name__)

_LONGEST_SHUTDOWN_SECONDS = 300.0


class BrokerPlace(NamedTuple):
    """The directories and the cluster of this broker. `log_dirs`: all directories of the node; `data_dirs`: the
    directories that the broker half uses. `restored`: the limits of a cluster that was put back to an earlier state."""

    log_dirs: list[LogDir]
    data_dirs: list[LogDir]
    cluster_id: str
    has_controller: bool
    restored: Restored | None = None


class BrokerHalf:
    """Call `start` once, after the other parts of the node have started. Call `shut_down` before the parts are
    closed."""

    def __init__(
        self,
        side: LoopSide,
        control: BrokerEnd,
        inbox: HandOver[ToBroker],
        place: BrokerPlace,
        make_dispatcher: MakeDispatcher,
        parts: StartedParts,
    ) -> None:
        """`control`: the state of the control side, and the messages to it. `inbox`: the messages from it. `parts`: the
        stack of the broker loop's parts."""
        config, runtime, live, metadata = side.config, side.runtime, side.live, control.metadata
        node_id = config.node_id
        self.side = side
        self._control = control
        self._place = place
        self.lease = lease = control.lease
        self._space = DiskSpace(runtime)
        assert side.ways.to_brokers is not None, "this is the side of a broker"
        to_brokers = side.ways.to_brokers.setup

        def channel(purpose: str) -> ControllerChannel:
            """Return a channel for one purpose. Each purpose has its own connection. The names of the purposes are
            Apache Kafka's, except `suspects`."""
            made = ControllerChannel(
                runtime,
                control,
                metadata,
                f"broker-{node_id}",
                side.ways.to_controllers.setup,
                local=control.call_controller if place.has_controller else None,
            )
            parts.add(f"{purpose} channel to the controller", made.close)
            return made

        def broker_epoch() -> int:
            return lease.broker_epoch

        self.assignments = AssignmentReports(runtime, node_id, broker_epoch, channel("directory-assignments"), metadata)
        self._isr_changes = IsrChanges(
            runtime,
            node_id,
            broker_epoch,
            channel("alter-partition"),
            metadata,
            side.metrics.counter(FAILED_UPDATES),
        )
        replicas = ReplicaTable(
            runtime,
            live.current,
            node_id,
            place.data_dirs,
            side.metrics,
            self._directory_failed,
            side.cold_reads,
            assignments=self.assignments,
            space=self._space,
            alter_partition=self._isr_changes.submit,
            move_throttle=partial(live.throttle, "replica.alter.log.dirs.io.max.bytes.per.second"),
            quotas=ReplicationQuotas(config, node_id, runtime.loop.time, side.metrics, live.throttle),
        )
        to_broker = partial(_address_of, metadata, config.listeners.inter_broker_name)
        is_watching = config.bool(EARLY_FENCING)
        dead = self._dead = DeadBrokers(runtime.loop.call_later if is_watching else None)
        self._lost: LostPeers | None = None
        if is_watching:
            self._lost = LostPeers(
                runtime,
                side.prober,
                lambda address: dead.lose(self._brokers_at(address)),
                lambda address: dead.find_again(self._brokers_at(address)),
                dead.doubt,
                dead.settle,
            )
        self._fetchers = FetcherManager(
            runtime,
            live.current,
            replicas,
            to_broker,
            broker_epoch,
            to_brokers,
            side.metrics,
            self._lost,
        )

        def channels() -> BrokerChannels:
            return BrokerChannels(runtime, to_broker, f"broker-{node_id}", to_brokers, self._lost)

        self._channels = channels()
        batch_checks = BatchChecks(runtime)
        self.shares = ShareParts(
            runtime,
            live,
            metadata,
            channels,
            self._channels.send,
            ShareLogs(replicas, side.cold_reads, batch_checks),
            lambda name: create_dead_letter_topic(self.services, name),
            side.metrics,
            self._in_memory,
        )
        replicas.on_leadership(self.shares.leaders.on_leadership)
        share_metrics.register(side.metrics, self.shares.leaders, lambda: replicas.purgatory.share_count)
        groups = GroupService(
            runtime,
            live,
            node_id,
            replicas,
            metadata,
            self.shares.group_states,
            self.shares.ends,
            epochs_from=0 if place.restored is None else place.restored.group_epoch + 1,
        )
        forwarding = channel("forwarding")
        producer_ids = ProducerIds(runtime, node_id, broker_epoch, forwarding, metadata)
        share_coordinator = ShareCoordinatorService(runtime, config, replicas, metadata)
        markers = MarkerWriter(runtime, replicas, groups.coordinator, config.int("request.timeout.ms"))
        transactions = TransactionService(
            runtime,
            config,
            node_id,
            replicas,
            metadata,
            producer_ids,
            markers.write,
            self._channels.send,
            producer_ids_from=0 if place.restored is None else place.restored.producer_id,
        )
        self.services = BrokerServices(
            config=config,
            runtime=runtime,
            node_id=node_id,
            cluster_id=place.cluster_id,
            quorum=control,
            metadata=metadata,
            metrics=side.metrics,
            authorizer=side.authorizer,
            replicas=replicas,
            groups=groups,
            transactions=transactions,
            share_coordinator=share_coordinator,
            share_leaders=self.shares.leaders,
            verifier=Verifier(runtime, live.current, node_id, metadata, transactions, self._channels.send),
            batch_checks=batch_checks,
            markers=markers,
            fetch_sessions=FetchSessions(
                config.int("max.incremental.fetch.session.cache.slots"), runtime.random, side.metrics
            ),
            producer_ids=producer_ids,
            controller_channel=forwarding,
            suspects=Suspects(runtime.loop, channel("suspects")),
            lease=lease,
            inbox=inbox,
            rows=rows(On.BROKER, side.metrics),
            cluster_views=ClusterViews(dead),
            check_stores=side.check_stores,
        )
        self._dispatcher = make_dispatcher(self.services, forward)
        between = config.listeners.inter_broker_name
        # A request of this broker to itself looks as if it came over the listener between brokers.
        own_peer = LocalPeer(ANONYMOUS, between, config.listeners.protocols[between])
        self._call_own = partial(self._dispatcher.call, own_peer)
        self.coordinator_metrics = CoordinatorMetrics(
            side.metrics, runtime.loop, groups.coordinator, transactions.coordinator, share_coordinator
        )

    async def start(self, parts: StartedParts) -> None:
        """Follow the metadata, open the logs, and become unfenced. When this returns, clients are served."""
        side, services, lease, metadata = self.side, self.services, self.lease, self._control.metadata
        replicas, live = services.replicas, side.live
        self._keep_reserve()
        # These parts act as soon as the metadata requires it. All later parts get the broker's epoch from the lease.
        parts.add("disk space", self._space.close)
        parts.add("producer ids", services.producer_ids.close)
        if self._lost is not None:
            parts.add("lost brokers", self._lost.close)
            metadata.add_publisher(self._dead)
        parts.add("channels to brokers", self._channels.close)
        self.shares.start(parts)
        # The coordinator of groups closes before the persister, whose last answers would otherwise be written.
        parts.add("group coordinator", services.groups.close)
        parts.add("transaction coordinator", services.transactions.close)
        parts.add("share coordinator", services.share_coordinator.close)
        parts.add("directory assignments", self.assignments.close)
        parts.add("changes of ISRs", self._isr_changes.close)
        lease.follow()
        live.on_change(replicas.reconfigure)
        self._cordon(live.current)
        live.on_change(self._cordon)
        live.on_change(services.verifier.reconfigure)
        await lease.caught_up
        # From here on logs may change. If the start ends before this, the record of the last clean stop stays.
        await replicas.logs.directories.claim()
        # The replicas follow the metadata only from here on. Before the controller has registered this start, the
        # metadata may have this broker as the leader of partitions whose records a loss of power has destroyed on this
        # machine.
        metadata.add_publisher(replicas)
        metadata.add_publisher(services.groups)
        metadata.add_publisher(services.transactions)
        metadata.add_publisher(services.share_coordinator)
        self.shares.follow()
        for name, level in not_served(metadata.image).items():
            # Every new cluster has such features, as with Apache Kafka, so an operator learns nothing from it.
            logger.debug("Feature %s is finalised at %d, is not served here, and stays as it is", name, level)
        # The image has all metadata up to this broker's registration. A log is opened on its first use; logs that are
        # not used are opened after clients are served. After an unclean stop a log can be used as soon as it is
        # recovered.
        parts.add("replicas", partial(_stop, replicas))
        recovery = replicas.logs.recovery
        recovery.when_begun(lambda: self._control.recovery_began(recovery.progress.so_far()))
        replicas.start()
        parts.add("ISR expiration", replicas.isr_expiration.stop)
        replicas.isr_expiration.start()
        # The fetchers start before this broker is unfenced, so that its replicas can catch up in that time.
        parts.add("replica fetchers", self._fetchers.close)
        live.on_change(self._fetchers.reconfigure)
        self._fetchers.reconfigure(live.current)
        self._fetchers.start()
        parts.add("moves between directories", replicas.logs.moves.close)
        replicas.logs.moves.start()
        upkeep = Upkeep(
            side.runtime,
            side.config,
            replicas.logs,
            lambda: replicas.topic_metrics.bytes_in.value + replicas.topic_metrics.replication_bytes_in.value,
        )
        parts.add("upkeep", upkeep.stop)
        upkeep.start()
        cleaner = LogCleaner(side.runtime, live.current, replicas.logs, side.metrics)
        parts.add("log cleaner", cleaner.stop)
        live.on_change(cleaner.reconfigure)
        cleaner.start()
        services.groups.start()
        services.transactions.start()
        services.share_coordinator.start()
        await lease.ready_to_unfence()
        # The ACLs are loaded by now, because the image has this broker's registration. early.start.listeners opens no
        # listener of a broker earlier.
        await side.acls_loaded()
        versions = answers_versions(services)
        self.shares.serve(parts)
        await side.ports.serve(side.points, self._dispatcher, versions, parts, services.share_leaders.disconnected)
        topics = InitialTopics(services)
        parts.add("initial topics", topics.close)
        await topics.start()
        if side.config.bool("pykbroker.load.reporter.enable"):
            from pykbroker.load_reports.load_reporter import LoadReporter  # of a node that needs it

            reporter = LoadReporter(services, self._channels.send)
            parts.add("load reporter", reporter.close)
            reporter.start()
        parts.add("watch over slow turns", side.runtime.watch_turns(SlowTurnReport(side.metrics, "The broker loop")))
        # This comes last, because tools that wait for this log line then connect.
        lease.announce_running()
        replicas.logs.opener.serve()

    def call(self, request: Any) -> Any:
        """Handle a request of this process. Return a response, or a future or promise of one."""
        point = self.side.points[0]
        return self._dispatcher.call(LocalPeer(ANONYMOUS, point.listener_name, point.security_protocol), request)

    def _in_memory(self, key: int) -> Callable[[Any], Any] | None:
        """Return what handles a request of this broker to itself, None if it has to come over a listener."""
        return self._call_own if self._dispatcher.takes_in_memory(key) else None

    async def shut_down(self) -> None:
        """Do a controlled shutdown: the controller moves leaderships away, and then allows this broker to stop."""
        await self.shares.shut_down()
        # Apache Kafka waits for the same time. The lifecycle itself stops waiting if no controller answers it.
        granted = self.lease.begin_controlled_shutdown(self._serve_no_more)
        await asyncio.wait({granted}, timeout=_LONGEST_SHUTDOWN_SECONDS)

    def _keep_reserve(self) -> None:
        """While the metadata log has given up its reserve, let appends leave that much space free."""
        config = self.side.config
        self._space.keep_reserve(self._control, directories_of(config), config.int("pykbroker.metadata.reserve.bytes"))
        self._control.when_short_of_room(self._space.reserve_given_up)

    def _serve_no_more(self) -> None:
        """Close the listeners. From now on metadata for clients would not contain this node. Some clients would then
        have no node left (librdkafka 2.16 forgets the only address that it had)."""
        self.side.ports.close(self.side.points)

    def _brokers_at(self, address: tuple[str, int]) -> list[int]:
        """Return the brokers whose listener between brokers has this address. There is only one, unless there is an
        error in the configuration."""
        listener = self.side.config.listeners.inter_broker_name
        metadata = self._control.metadata
        return [
            broker_id for broker_id in metadata.image.brokers if _address_of(metadata, listener, broker_id) == address
        ]

    def _cordon(self, config: Config) -> None:
        self.lease.cordon(d.directory_id for d in self._place.log_dirs if d.path in config.cordoned_log_dirs)

    def _directory_failed(self, log_dir: LogDir, error: StorageError) -> None:
        self.lease.directory_failed(log_dir.directory_id, log_dir.path)
        self._fetchers.directory_failed()
        is_last = all(other.offline for other in self._place.log_dirs)
        if is_last or log_dir.path == self.side.config.metadata_log_dir:
            self._control.failed(error)


async def _stop(replicas: ReplicaTable) -> None:
    # The workers of the replicas must have ended before the directories are closed, which happens several turns later.
    replicas.stop()
    await replicas.ended()


def _address_of(metadata: MetadataView, listener_name: str, broker_id: int) -> tuple[str, int] | None:
    """Return the address at which another broker listens for brokers."""
    broker = metadata.image.brokers.get(broker_id)
    endpoint = None if broker is None else broker.endpoints.get(listener_name)
    return None if endpoint is None else (endpoint.host, endpoint.port)
