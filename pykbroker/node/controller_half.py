"""The controller half of a node: its controller, which may become the active controller, and the listeners for
controllers.

It is made from the `SharedServer`. Responsible for wiring these parts, and for the order in which they start. Not
responsible for the decisions of a controller (controller/).
"""

from __future__ import annotations

from typing import Any

from pykbroker.api import rows
from pykbroker.config.authorization import starts_early
from pykbroker.config.listeners import EndPoint
from pykbroker.controller import controller_metrics
from pykbroker.controller.active import ActiveController
from pykbroker.dispatch.dispatcher import Dispatcher
from pykbroker.dispatch.peers import LocalPeer
from pykbroker.dispatch.rows import On
from pykbroker.dispatch.services import ControllerServices
from pykbroker.liveness import EARLY_FENCING
from pykbroker.liveness.broker_watch import BrokerWatch
from pykbroker.node.parts import StartedParts
from pykbroker.node.ports import answers_versions
from pykbroker.node.shared import SharedServer
from pykbroker.node_to_controller.controller_channel import Channel
from pykbroker.node_to_controller.controller_lifecycle import ControllerRegistration
from pykbroker.security.peer_session import ANONYMOUS
from pykbroker.storage.format import bootstrap_records


class ControllerHalf:
    """Call `start`, then `serve`, then `register`, once each."""

    def __init__(self, shared: SharedServer) -> None:
        config = shared.config
        self._shared = shared
        self._controller = ActiveController(
            runtime=shared.runtime,
            quorum=shared.quorum,
            config=config,
            node_id=config.node_id,
            cluster_id=shared.cluster_id,
            bootstrap=bootstrap_records(shared.runtime.disk, config),
            own_incarnation=shared.incarnation_id if config.is_broker else None,
            policies=shared.policies,
            restored=shared.options.restored,
        )
        controller_metrics.register(
            shared.side.metrics, lambda: shared.loader.image, is_active=lambda: self._controller.is_active
        )
        self._broker_watch: BrokerWatch | None = None
        if config.bool(EARLY_FENCING):
            self._broker_watch = BrokerWatch(
                shared.runtime, config.node_id, shared.loader, shared.side.prober, self._controller.fence_early
            )
        self.services = ControllerServices(
            config=config,
            runtime=shared.runtime,
            node_id=config.node_id,
            cluster_id=shared.cluster_id,
            quorum=shared.quorum,
            metadata=shared.loader,
            metrics=shared.side.metrics,
            authorizer=shared.side.authorizer,
            controller=self._controller,
            broker_watch=self._broker_watch,
            rows=rows(On.CONTROLLER, shared.side.metrics),
        )
        self._dispatcher = Dispatcher(self.services)
        self._versions = answers_versions(self.services)
        name = config.listeners.controller_names[0]
        self._own_peer = LocalPeer(ANONYMOUS, name, config.listeners.protocols[name])

    def start(self, parts: StartedParts) -> None:
        """Follow the quorum's leaders and records."""
        parts.add("controller", self._controller.stop)
        self._shared.quorum.register(self._controller)
        if self._broker_watch is not None:
            parts.add("broker watch", self._broker_watch.close)
            self._broker_watch.start()
            self._shared.when_leader_left(self._broker_watch.leader_left)

    async def serve(self, parts: StartedParts) -> None:
        """Serve brokers, controllers and clients. Listeners that are not in early.start.listeners wait until the ACLs
        are loaded.

        The listeners close after the broker half and before the controller. Until then this node's broker, and other
        brokers in controlled shutdown, can still reach the controller.
        """
        shared = self._shared
        points = shared.config.listeners.controller
        early = tuple(point for point in points if starts_early(shared.config, point.listener_name))
        await shared.side.ports.serve(early, self._dispatcher, self._versions, parts)
        late = tuple(point for point in points if point not in early)
        if late:
            opening = shared.runtime.loop.create_task(self._serve_late(late, parts), name="late controller listeners")

            def give_up() -> None:
                opening.cancel()

            parts.add("late controller listeners", give_up)

    async def _serve_late(self, points: tuple[EndPoint, ...], parts: StartedParts) -> None:
        await self._shared.side.acls_loaded()
        await self._shared.side.ports.serve(points, self._dispatcher, self._versions, parts)

    def call(self, request: Any) -> Any:
        """Handle a request of the broker half in the same process. Return a response, or a future of one."""
        return self._dispatcher.call(self._own_peer, request)

    def register(self, channel: Channel, parts: StartedParts) -> None:
        """Register this controller with the active controller, on this node or another."""
        shared = self._shared
        registration = ControllerRegistration(
            runtime=shared.runtime,
            channel=channel,
            metadata=shared.loader,
            node_id=shared.config.node_id,
            incarnation_id=shared.incarnation_id,
        )
        parts.add("controller registration", registration.stop)
        registration.start(shared.side.ports.advertised(shared.advertised.controller))
