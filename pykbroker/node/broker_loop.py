"""The broker half and its event loop, with the interface that the rest of the node uses.

It is made on the control loop. Responsible for both ends of the messages between the loops, for this broker's lifecycle
(on the control loop), and for the order in which the broker half starts and stops. Not responsible for the parts of the
broker half (broker_half.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pykbroker.crossing.broker_end import BrokerEnd
from pykbroker.crossing.control_end import ControlEnd
from pykbroker.crossing.feed import MetadataFeed
from pykbroker.crossing.hand_over import HandOver
from pykbroker.crossing.loop_messages import BrokerQuestion, ToBroker, ToControl
from pykbroker.dispatch.dispatcher import MakeDispatcher
from pykbroker.liveness import EARLY_FENCING
from pykbroker.liveness.quorum_watch import QuorumWatch
from pykbroker.metadata.image import Endpoint
from pykbroker.metrics.registry import Sample
from pykbroker.node.broker_half import BrokerHalf, BrokerPlace
from pykbroker.node.loop_side import LoopSide
from pykbroker.node.parts import StartedParts
from pykbroker.node.ports import connections_of
from pykbroker.node.shared import SharedServer
from pykbroker.node_to_controller.broker_membership import BrokerIdentity
from pykbroker.node_to_controller.broker_state import BrokerState
from pykbroker.node_to_controller.controller_channel import ControllerChannel
from pykbroker.node_to_controller.lifecycle import BrokerLifecycle
from pykbroker.runtime.world import Beside
from pykbroker_log.log_dirs import LogDir


class BrokerLoop:
    """Call `bind`, then `start`, once each. Call `shut_down` before the parts are closed."""

    def __init__(
        self,
        shared: SharedServer,
        beside: Beside,
        on_failure: Callable[[BaseException], None],
        make_dispatcher: MakeDispatcher,
    ) -> None:
        """`on_failure` is called if the broker cannot continue; the node must then end. Raises ConfigError, as
        `LoopSide` does."""
        config = shared.config
        self._shared = shared
        self._beside = beside
        self._on_failure = on_failure
        self._make_dispatcher = make_dispatcher
        self._to_broker: HandOver[ToBroker] = HandOver(beside.call_there, self._take_there)
        self._to_control: HandOver[ToControl] = HandOver(beside.call_back, self._take_here)
        self._end = BrokerEnd(beside.runtime, config.node_id, self._to_control.put)
        self.side = LoopSide(
            config,
            beside.runtime,
            self._end.metadata,
            config.listeners.broker,
            connections_of(beside.runtime.most_connections, config.listeners)[0],
            lambda: shared.cluster_id,
        )
        self._control: ControlEnd | None = None
        self._samples: list[Sample] = []
        self._sampling: asyncio.Future[list[Sample]] | None = None
        self._lifecycle: BrokerLifecycle | None = None
        self._half: BrokerHalf | None = None
        #: the advertised endpoints, with the ports that were bound
        self._endpoints: list[Endpoint] = []
        #: parts of the broker loop: the listening sockets, and the others
        self._listening = StartedParts()
        self._parts = StartedParts()

    @property
    def has_own_loop(self) -> bool:
        """False if the whole node runs on one loop."""
        return self._beside.call_there is not None

    @property
    def state(self) -> BrokerState:
        return BrokerState.NOT_RUNNING if self._lifecycle is None else self._lifecycle.state

    @property
    def broker_epoch(self) -> int:
        """The broker's epoch, or -1 before the first registration."""
        return -1 if self._lifecycle is None else self._lifecycle.broker_epoch

    @property
    def lifecycle(self) -> BrokerLifecycle | None:
        """The lifecycle of this broker, or None before it is made."""
        return self._lifecycle

    @property
    def half(self) -> BrokerHalf | None:
        """The broker half, or None before it is made. It belongs to the broker loop."""
        return self._half

    async def bind(self, parts: StartedParts) -> None:
        """Take the ports of the broker half. Raises OSError."""
        parts.add("broker loop", self._close)
        self._endpoints = await self._beside.run(self._bind)

    async def start(self, parts: StartedParts, controller: Callable[[Any], Any] | None) -> None:
        """Register, and let the broker half follow the metadata. When this returns, clients are served. `controller`
        calls this node's controller half, or is None if the node has none."""
        shared = self._shared
        config, loader, node_id = shared.config, shared.loader, shared.config.node_id
        data_dirs = [log_dir for log_dir in shared.directories.log_dirs if log_dir.path in config.log_dirs]
        place = BrokerPlace(
            shared.directories.log_dirs,
            data_dirs,
            shared.cluster_id,
            controller is not None,
            shared.options.restored,
        )
        heartbeats = ControllerChannel(
            shared.runtime,
            shared.quorum,
            loader,
            f"broker-{node_id}",
            shared.side.ways.to_controllers.setup,
            local=controller,
        )
        parts.add("heartbeat channel to the controller", heartbeats.close)
        feed = MetadataFeed(loader, self._to_broker.put, lambda: lifecycle.metadata_seen())
        identity = BrokerIdentity(
            node_id,
            shared.cluster_id,
            shared.incarnation_id,
            tuple(sorted(log_dir.directory_id for log_dir in data_dirs if not log_dir.offline)),
            _previous_broker_epoch(data_dirs),
            config.optional_str("broker.rack"),
        )
        lifecycle = self._lifecycle = BrokerLifecycle(
            shared.runtime,
            config,
            heartbeats,
            loader,
            identity,
            seen_offset=lambda: feed.seen_offset,
            changed=lambda state, epoch: control.lease_changed(state, epoch),
            fatal=lambda reason: self._on_failure(RuntimeError(reason)),
        )
        heartbeats.when_lost(lifecycle.connection_lost)
        control = self._control = ControlEnd(
            shared.runtime,
            self._to_broker.put,
            feed,
            lifecycle,
            shared.quorum,
            controller,
            shared.directories.failed,
            self._on_failure,
            config.int("broker.session.timeout.ms") / 1000,
        )
        parts.add("broker lifecycle", lifecycle.stop)
        parts.add("broker half", lambda: self._beside.run(self._parts.close))
        await self._beside.run(self._follow)
        # This comes before the half is made, because the parts of the half start with the configuration that is in the
        # metadata.
        control.start()
        shared.when_loaded(feed.initial_load_completed)
        await self._beside.run(lambda: self._make_half(place))
        lifecycle.start(self._endpoints)
        await self._beside.run(self._start_half)

    async def samples(self, seconds: float) -> list[Sample]:
        """Return the broker half's metrics, or its previous metrics if it does not answer in this time."""
        if self._control is not None:
            if self._sampling is None or self._sampling.done():
                # Only one question waits at a time, even if this is called often while the broker loop stands still.
                self._sampling = self._control.ask(BrokerQuestion.METRICS)
                self._sampling.add_done_callback(self._keep_samples)
            asked = self._sampling
            await asyncio.wait({asked}, timeout=seconds)
            if asked.done():
                self._keep_samples(asked)
        return self._samples

    def _keep_samples(self, answered: asyncio.Future[list[Sample]]) -> None:
        """Keep an answer, even if its caller no longer waits. The next caller gets it if its own answer is late."""
        if not answered.cancelled() and answered.exception() is None:
            self._samples = answered.result()

    def recovery_progress(self) -> tuple[int, int, int] | None:
        """Return the broker half's last report of its recovery, and ask for a new one (see
        `ControlEnd.recovery_progress`)."""
        return None if self._control is None else self._control.recovery_progress()

    @property
    def silent_seconds(self) -> float:
        """The seconds without a sign of life of the broker loop; 0 if it turns."""
        return 0.0 if self._control is None else self._control.silent_seconds

    async def shut_down(self) -> None:
        """Do a controlled shutdown: the controller moves leaderships away and lets this broker go."""
        half, lifecycle = self._half, self._lifecycle
        if half is None or lifecycle is None:
            return
        if lifecycle.state is not BrokerState.RUNNING:
            # There is no leadership to move away. If the broker waited for an answer, its session could begin now, and
            # the next start would have to wait for the end of that session.
            lifecycle.begin_controlled_shutdown()
            return
        watch = self._watch_quorum() if self._shared.config.bool(EARLY_FENCING) else None
        try:
            await self._beside.run(half.shut_down)
        finally:
            if watch is not None:
                watch.close()

    # -- on the broker loop -------------------------------------------------------------------------------------------

    async def _bind(self) -> list[Endpoint]:
        await self.side.start(self._listening)
        return self.side.ports.advertised(self._shared.advertised.broker)

    async def _follow(self) -> None:
        self._end.when_loaded(self.side.complete_initial_load)
        self._end.answer_with(BrokerQuestion.METRICS, lambda: list(self.side.metrics.samples()))
        self.side.follow()

    async def _make_half(self, place: BrokerPlace) -> None:
        half = self._half = BrokerHalf(self.side, self._end, self._to_broker, place, self._make_dispatcher, self._parts)
        recovery = half.services.replicas.logs.recovery
        self._end.answer_with(BrokerQuestion.METRICS, half.coordinator_metrics.samples)
        self._end.answer_with(BrokerQuestion.RECOVERY, recovery.progress.so_far)

    async def _start_half(self) -> None:
        assert self._half is not None
        await self._half.start(self._parts)

    def _take_there(self, message: ToBroker) -> None:
        self._end.take(message)

    # -- on the control loop ------------------------------------------------------------------------------------------

    def _take_here(self, message: ToControl) -> None:
        if self._control is not None:
            self._control.take(message)

    async def _close(self) -> None:
        await self._beside.run(self._close_listening)
        # This comes before the end of the loop, so that the loop does not count as silent while its threads finish
        # their work.
        if self._control is not None:
            self._control.close()
        await self._beside.close()
        self._to_control.close()

    async def _close_listening(self) -> None:
        await self._listening.close()
        self._end.close()
        self._to_broker.close()

    def _watch_quorum(self) -> QuorumWatch:
        shared, lifecycle = self._shared, self._lifecycle
        assert lifecycle is not None
        return QuorumWatch(
            shared.runtime,
            shared.side.prober,
            shared.config.node_id,
            lambda: shared.quorum.voters,
            self._has_heirs,
            lambda: lifecycle.go_without_leave("most voters refuse connections, so no controller can come"),
        )

    def _has_heirs(self) -> bool:
        """Return True if another broker, which the metadata shows as active, could lead one of this broker's
        partitions. If there is none, the controller allows this broker to stop."""
        image = self._shared.loader.image
        own = self._shared.config.node_id
        candidates = {
            replica
            for topic in image.topics.by_id.values()
            for partition in topic.partitions.values()
            if partition.leader == own
            for replica in partition.isr
        }
        return any(image.broker_is_active(replica) for replica in candidates - {own})


def _previous_broker_epoch(log_dirs: list[LogDir]) -> int:
    """Return the broker epoch of the last run if every directory was stopped cleanly in it, else -1. A directory that
    is offline may have lost records, so it counts as not stopped cleanly."""
    epochs = {-1 if log_dir.offline else log_dir.sign.broker_epoch for log_dir in log_dirs}
    return epochs.pop() if len(epochs) == 1 else -1
