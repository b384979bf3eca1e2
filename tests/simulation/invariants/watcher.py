"""Watches a simulated cluster: after every event it finds out what has changed on which node, and has it checked.

Responsible for noticing changes, for the lives and deaths of nodes, and for the messages of nodes to each other and to
clients. It must be cheap, because a run has tens of thousands of events, and most change nothing here. Not responsible
for the invariants: quorum.py, metadata.py, partitions.py, acknowledgements.py and two_loops.py check them.

It reads the objects of the real nodes and changes nothing: a seed gives the same run with it and without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

from pykbroker.controller.active import ActiveController
from pykbroker.controller.heartbeats import BrokerSession
from pykbroker.metadata.image import EMPTY_IMAGE
from pykbroker.node_to_controller.lifecycle import BrokerLifecycle
from pykbroker.quorum.driver import QuorumDriver
from pykbroker.replica.delayed_produce import ACKS_ALL, DelayedProduce
from pykbroker.replica.partition import ENOUGH, Partition
from pykbroker_log.log_config import AppendOrigin
from pykbroker_raft.ready import Outgoing, Reply
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from tests.simulation.invariants import two_loops
from tests.simulation.invariants.acknowledgements import Acknowledgements
from tests.simulation.invariants.metadata import Key, MetadataInvariants
from tests.simulation.invariants.partitions import PartitionInvariants, Replica
from tests.simulation.invariants.quorum import QuorumInvariants

if TYPE_CHECKING:
    from pykbroker.metadata.image import MetadataImage
    from pykbroker.node.node import Node
    from pykbroker_log.results import AppendInfo
    from pykbroker_wire.messages.broker_registration import BrokerRegistrationRequest
    from pykbroker_worlds.history.events import History
    from pykbroker_worlds.simulated.sim_broker import SimBroker
    from pykbroker_worlds.simulated.sim_cluster import SimCluster
    from pykbroker_worlds.simulated.world import SimRuntime


class WatchedNode:
    """One node of the cluster."""

    __slots__ = (
        "broker",
        "controller",
        "image",
        "is_active",
        "loader",
        "member",
        "node",
        "number",
        "replicas",
        "runtime",
        "table",
        "table_image",
    )

    def __init__(self, broker: SimBroker, quorum: QuorumInvariants) -> None:
        self.broker = broker
        self.number = broker.number
        self.member = quorum.members[broker.number]
        self.replicas: list[Replica] = []
        self.runtime: Any = None
        self.forget()

    def forget(self) -> None:
        """Reset it after a life."""
        self.node: Node | None = None
        self.loader: Any = None
        self.controller: Any = None
        self.table: Any = None
        self.image: MetadataImage = EMPTY_IMAGE
        #: the metadata that the table of replicas got. At a start it gets it later than the node.
        self.table_image: MetadataImage | None = None
        self.is_active = False
        for replica in self.replicas:
            replica.is_up = False
        self.replicas = []


class Watcher:
    """Watches one cluster for one run: `with watching(cluster, history) as watcher:`."""

    def __init__(self, cluster: SimCluster, history: History | None = None) -> None:
        numbers = sorted(cluster.nodes)
        self.quorum = QuorumInvariants(numbers)
        self.metadata = MetadataInvariants()
        self.partitions = PartitionInvariants(self.metadata)
        self.acknowledgements = Acknowledgements(self.partitions, history)
        self._cluster = cluster
        self._loop = cluster.world.loop
        self._nodes = [WatchedNode(cluster.nodes[number], self.quorum) for number in numbers]
        # An event of a process changes only this process; one of the harness (a kill, a start) may change any.
        self._of_process: dict[object, list[WatchedNode]] = {None: self._nodes}
        #: the number of calls
        self.events = 0
        # An error that a hook found in the middle of an event: product code may have caught the exception.
        self._found: AssertionError | None = None

    # -- after every event --------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Check after an event. Raises InvariantBroken."""
        self.events += 1
        if self._found is not None:
            raise self._found
        changed_partitions: set[Key] | None = None
        changed: list[Replica] = []
        nodes = self._of_process.get(self._loop.owner, ())
        for watched in nodes:
            runtime = watched.broker._runtime
            if runtime is not watched.runtime or watched.loader is None or not runtime.alive:
                self._life(watched)
            member = watched.member
            if member.driver is None:
                continue
            if not member.is_as_before():
                added = self.quorum.look(member)
                if added:
                    keys = self.metadata.committed(added)
                    changed_partitions = keys if changed_partitions is None else changed_partitions | keys
        for watched in nodes:
            loader = watched.loader
            if loader is None:
                continue
            if loader.image is not watched.image:
                watched.image = loader.image
                self.metadata.shows(watched.number, loader.image)
            table = watched.table
            if table is not None and table._image is not watched.table_image:
                watched.table_image = table._image
                self._list_replicas(watched)
            controller = watched.controller
            if controller is not None and controller.is_active is not watched.is_active:
                watched.is_active = controller.is_active
                if controller.is_active:
                    self.metadata.acts(watched.number, controller, self.quorum.leaders)
            for replica in watched.replicas:
                if not replica.is_as_before():
                    changed.append(replica)
        if changed or self.partitions.commits_noted:
            self.partitions.look(changed)
        if changed_partitions:
            self.partitions.metadata_changed(changed_partitions, self._running())
        self.acknowledgements.look()

    def _life(self, watched: WatchedNode) -> None:
        """Follow a node that is starting, or has gone down, or both."""
        broker = watched.broker
        runtime = broker._runtime
        if watched.runtime is not runtime or runtime is None or not runtime.alive:
            if watched.node is not None:
                self.quorum.ended(watched.number)
                self.metadata.ended(watched.number)
                lost = broker.lost_power
                for replica in watched.replicas:
                    replica.may_lack = replica.may_lack or lost
                watched.forget()
            for owner in _owners(watched.runtime):
                self._of_process.pop(owner, None)
            watched.runtime = runtime
        # Its second loop begins a little later.
        for owner in _owners(runtime):
            self._of_process[owner] = [watched]
        if runtime is None or not runtime.alive:
            return
        node = watched.node = broker._node
        if node is None:
            return
        driver = node.shared._quorum
        if watched.member.driver is None and driver is not None and driver._started is not None:
            self.quorum.started(watched.number, driver, broker.disk)
        if watched.member.driver is not None and (node._controller is not None or not node.config.is_controller):
            half = node._controller
            watched.controller = None if half is None else half._controller
            if not node.config.is_broker or node._half is not None:
                watched.table = None if node._half is None else node._half.services.replicas
                watched.loader = node.shared.loader

    def _list_replicas(self, watched: WatchedNode) -> None:
        """Update the node's replicas after its table got other metadata."""
        table = watched.table
        held = list(table)
        known = {id(replica.partition): replica for replica in watched.replicas}
        # Before others begin: in one event a replica may be removed, and come back without its log.
        for lost in known.keys() - {id(partition) for partition in held}:
            replica = known.pop(lost)
            replica.is_up = False
            replica.was_removed = True
        watched.replicas = [
            known.get(id(partition)) or self.partitions.replica(watched.number, partition) for partition in held
        ]
        self.partitions.not_held(watched.number, table._image)

    def _running(self) -> dict[int, bool]:
        """Return for each node whether its present life is the one in the metadata."""
        brokers = self.metadata.image.brokers
        running = {}
        for watched in self._nodes:
            known = brokers.get(watched.number)
            running[watched.number] = (
                watched.node is not None
                and known is not None
                and known.incarnation_id == watched.node.shared.incarnation_id
            )
        return running

    # -- in the middle of an event ------------------------------------------------------------------------------------

    def note(self, error: AssertionError) -> None:
        """Keep an error that a hook has found: the run ends when this event does."""
        if self._found is None:
            self._found = error

    def says(self, driver: QuorumDriver, what: str) -> None:
        if not driver._runtime.alive:  # type: ignore[attr-defined]
            return
        try:
            self.quorum.says(driver, what)
        except AssertionError as error:
            self.note(error)

    def fences_early(self, node: int, broker_id: int, refused: Sequence[tuple[str, int]], silent_ms: int) -> None:
        network, machine = self._cluster.world.network, self._cluster.nodes[node].machine
        try:
            self.metadata.fences_early(
                node, broker_id, [network.was_refused(machine, port) for _, port in refused], silent_ms
            )
        except AssertionError as error:
            self.note(error)

    def appends(self, partition: Partition) -> None:
        """Check an append for a client, as the leader."""
        number = partition._shared.node_id
        node = self._cluster.nodes[number]
        if not node.is_alive:
            return
        try:
            two_loops.appends(number, partition, node.node.loader.image)
        except AssertionError as error:
            self.note(error)

    def sends_heartbeat(self, lifecycle: BrokerLifecycle) -> None:
        beside: SimRuntime | None = lifecycle._runtime.second  # type: ignore[attr-defined]
        try:
            two_loops.sends_heartbeat(
                lifecycle.node_id, 0.0 if beside is None else beside.standing_seconds, lifecycle._session_ms / 1000
            )
        except AssertionError as error:
            self.note(error)

    # -- the end ------------------------------------------------------------------------------------------------------

    def at_rest(self) -> None:
        """Check the cluster at rest, after the faults."""
        self.look()
        self.partitions.at_rest()


@contextmanager
def watching(cluster: SimCluster, history: History | None = None) -> Iterator[Watcher]:
    """Watch a cluster from before its start to the end of the block."""
    watcher = Watcher(cluster, history)
    send, reply, finish = QuorumDriver._send, QuorumDriver._reply, DelayedProduce._finish
    advance, fence_early = Partition.advance, ActiveController.fence_early
    append, next_request = Partition.append, BrokerLifecycle._next_request

    def sends(driver: QuorumDriver, outgoing: Outgoing) -> None:
        watcher.says(driver, type(outgoing.request).__name__)
        send(driver, outgoing)

    def replies(driver: QuorumDriver, answer: Reply) -> None:
        watcher.says(driver, type(answer.response).__name__)
        reply(driver, answer)

    def finishes(produce: DelayedProduce, position: int, code: ErrorCode) -> None:
        if not code and position in produce._open and produce._acks == ACKS_ALL:
            partition, last = produce._appended[position]
            node = partition._shared.node_id
            # A process that dies at a call of its disk sends nothing in the rest of the event.
            if cluster.nodes[node].is_alive:
                watcher.acknowledgements.answers(node, partition, last)
        finish(produce, position, code)

    def advances(partition: Partition, arrived_bytes: int = ENOUGH) -> None:
        log = partition.handle.log
        before = -1 if log is None else log.high_watermark
        advance(partition, arrived_bytes)
        log = partition.handle.log
        if log is not None and log.high_watermark != before:
            watcher.partitions.commits(partition._shared.node_id, partition)

    def fences_early(
        controller: ActiveController, broker_id: int, broker_epoch: int, refused: Sequence[tuple[str, int]]
    ) -> None:
        sessions = controller.state.sessions
        over_at_ms = sessions.over_at_ms(BrokerSession(broker_id, broker_epoch))
        now_ms = int(cluster.world.loop.time() * 1000)
        silent_ms = sessions.timeout_ms if over_at_ms is None else sessions.timeout_ms - (over_at_ms - now_ms)
        watcher.fences_early(controller._node_id, broker_id, refused, silent_ms)
        fence_early(controller, broker_id, broker_epoch, refused)

    def appends(partition: Partition, records: Any, **named: Any) -> AppendInfo:
        info = append(partition, records, **named)
        if named.get("origin", AppendOrigin.CLIENT) is AppendOrigin.CLIENT:
            watcher.appends(partition)
        return info

    def sends_next(lifecycle: BrokerLifecycle) -> BrokerRegistrationRequest | BrokerHeartbeatRequest | None:
        request = next_request(lifecycle)
        if isinstance(request, BrokerHeartbeatRequest):
            watcher.sends_heartbeat(lifecycle)
        return request

    with (
        mock.patch.object(ActiveController, "fence_early", fences_early),
        mock.patch.object(BrokerLifecycle, "_next_request", sends_next),
        mock.patch.object(Partition, "append", appends),
        mock.patch.object(Partition, "advance", advances),
        mock.patch.object(QuorumDriver, "_send", sends),
        mock.patch.object(QuorumDriver, "_reply", replies),
        mock.patch.object(DelayedProduce, "_finish", finishes),
    ):
        cluster.world.after_event.append(watcher.look)
        yield watcher


def _owners(runtime: SimRuntime | None) -> list[SimRuntime]:
    """The owners of a process's callbacks: its first loop, and its second."""
    if runtime is None:
        return []
    return [runtime] if runtime.second is None else [runtime, runtime.second]
