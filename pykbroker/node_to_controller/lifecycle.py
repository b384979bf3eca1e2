"""Makes a broker a member of the cluster, and keeps its membership: registration, heartbeats, controlled shutdown.

It runs on the control loop of the node, so that heartbeats continue while the broker half is busy. Responsible for the
time at which each message is sent, for timeouts and log lines. Not responsible for the messages and the next state
(broker_membership.py), for finding the controller and trying again (controller_sender.py), nor for the actions of the
broker half in a state (crossing/lease.py). The broker half calls
`ready_to_unfence` when the logs are open, and serves clients after that.

There are no fixed waits. After an event that may change the controller's answer, the next message is sent at once: a
new leader of the quorum, this broker's registration in the metadata, or `ready_to_unfence`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pykbroker.config.typed_config import Config
from pykbroker.metadata.image import Endpoint, MetadataImage
from pykbroker.metadata.snapshot import DIRECTORIES_FROM
from pykbroker.metadata.view import MetadataView
from pykbroker.node_to_controller.broker_membership import BrokerIdentity, BrokerMembership
from pykbroker.node_to_controller.broker_state import BrokerState
from pykbroker.node_to_controller.controller_channel import Channel
from pykbroker.node_to_controller.controller_sender import ControllerSender
from pykbroker_wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pykbroker_wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

if TYPE_CHECKING:
    from pykbroker.metadata.delta import MetadataDelta
    from pykbroker.runtime import Runtime

logger = logging.getLogger(__name__)

_SHUTDOWN_POLL_MS = 50
#: Apache Kafka's pauses double up to broker.session.timeout.ms. A broker that waits until the session of its last run
#: ends could then wait up to half of that time in vain.
_LONGEST_PAUSE_MS = 1_000
#: A leader of the quorum that was just elected is the active controller a few milliseconds later.
_FIRST_PAUSE_MS = 20
#: Longer than the pause before a connection connects again (net/client.py).
_AFTER_LOSS_MS = 60


class BrokerLifecycle:
    """Registers with the controller, then keeps the lease with heartbeats. Call `start` once and `stop` once."""

    def __init__(
        self,
        runtime: Runtime,
        config: Config,
        channel: Channel,
        metadata: MetadataView,
        identity: BrokerIdentity,
        *,
        seen_offset: Callable[[], int],
        changed: Callable[[BrokerState, int], None],
        fatal: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """`seen_offset` returns the offset up to which the broker half has the metadata. `changed` gets each new state
        with the broker's epoch. `fatal` is called if the node must stop."""
        self.node_id = identity.node_id
        self._membership = BrokerMembership(identity)
        self._runtime = runtime
        self._metadata = metadata
        self._seen_offset = seen_offset
        self._changed = changed
        self._fatal = fatal
        self._config = config
        self._heartbeat_ms = config.int("broker.heartbeat.interval.ms")
        self._session_ms = config.int("broker.session.timeout.ms")
        self._stands = False
        #: how often the controller has not permitted the shutdown yet
        self._shutdown_answers = 0
        self._failure_timers: list[asyncio.TimerHandle] = []
        self._registration_timer: asyncio.TimerHandle | None = None
        self._shutdown_timer: asyncio.TimerHandle | None = None
        # As in Apache Kafka's channel "heartbeat", the timeout of a request is one heartbeat interval.
        self._sender = ControllerSender(
            runtime,
            channel,
            metadata,
            f"[BrokerLifecycleManager id={identity.node_id}]",
            self._next_request,
            self._answered,
            timeout_ms=self._heartbeat_ms,
            first_pause_ms=_FIRST_PAUSE_MS,
            last_pause_ms=min(self._session_ms, _LONGEST_PAUSE_MS),
        )

    @property
    def state(self) -> BrokerState:
        return self._membership.state

    @property
    def broker_epoch(self) -> int:
        """The epoch of the last registration, or -1 before the first."""
        return self._membership.broker_epoch

    # From the broker half.

    def start(self, endpoints: Iterable[Endpoint]) -> None:
        """Begin to register with these advertised listeners, which have the ports that were bound."""
        identity = self._membership.identity
        self._membership.endpoints = tuple(endpoints)
        self._become(BrokerState.STARTING)
        self._metadata.add_publisher(self, catch_up=False)
        self._metadata.on_leader(self._leader_changed)
        self._registration_timer = self._runtime.loop.call_later(
            self._config.int("initial.broker.registration.timeout.ms") / 1000, self._registration_timed_out
        )
        self._sender.wake()
        self._log(
            "Incarnation %s of broker in cluster %s is now STARTING.",
            identity.incarnation_id.hex(),
            identity.cluster_id,
        )

    def ready_to_unfence(self) -> None:
        """Ask to be unfenced, because recovery is over."""
        self._membership.is_ready = True
        self._sender.wake()

    def announce_running(self) -> None:
        """Log that clients are served, once. Apache Kafka has the same line, and tools wait for it before they
        connect."""
        self._log("The broker has been unfenced. Transitioning from RECOVERY to RUNNING.")

    def begin_controlled_shutdown(self) -> None:
        """Ask the controller to move leaderships away. The state is SHUTTING_DOWN when the controller permits the
        shutdown."""
        if self.state is BrokerState.RUNNING:
            self._log("Beginning controlled shutdown.")
            self._become(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
            self._expect_controller()
            self._sender.wake()
        elif self.state is not BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self._log("Skipping controlled shutdown because we are in state %s.", self.state.name)
            self.stop()

    def go_without_leave(self, reason: str) -> None:
        """Stop without the controller's permission, because no controller will answer."""
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            logger.warning(
                "[BrokerLifecycleManager id=%d] Stopping without the permission of the controller: %s.",
                self.node_id,
                reason,
            )
            self.stop()

    def stop(self) -> None:
        """Send no more messages. The session ends by itself."""
        if self.state is BrokerState.SHUTTING_DOWN:
            return
        self._log("Transitioning from %s to SHUTTING_DOWN.", self.state.name)
        self._sender.close()
        for timer in (self._registration_timer, self._shutdown_timer, *self._failure_timers):
            if timer is not None:
                timer.cancel()
        self._registration_timer = self._shutdown_timer = None
        self._become(BrokerState.SHUTTING_DOWN)

    def directory_failed(self, directory_id: bytes) -> None:
        """Report to the controller that a log directory is offline (KIP-858)."""
        if self._membership.directories.fail(directory_id):
            timeout_ms = self._config.int("log.dir.failure.timeout.ms")
            timer = self._runtime.loop.call_later(timeout_ms / 1000, self._failure_untold, directory_id, timeout_ms)
            self._failure_timers.append(timer)
        if self._membership.is_registered:
            self._sender.wake()

    def stand_still(self, seconds: float) -> None:
        """Note that the loop of the broker half has not turned for about a session. It serves no client, so no
        heartbeat keeps its lease."""
        if not self._stands:
            self._stands = True
            logger.warning(
                "[BrokerLifecycleManager id=%d] The broker loop has not turned for %.1f s, and a session is %d ms "
                "(broker.session.timeout.ms). No heartbeat is sent until the loop turns again.",
                self.node_id,
                seconds,
                self._session_ms,
            )

    def turn_again(self) -> None:
        """Note that the loop of the broker half turns again."""
        if self._stands:
            self._stands = False
            self._log("The broker loop turns again.")
            self._sender.wake()

    def connection_lost(self) -> None:
        """Send the next heartbeat over a new connection soon, because the connection to the controller has ended. The
        controller treats a broker as gone if it is not back within half a second (liveness/broker_deaths.py)."""
        if self._membership.is_registered:
            self._sender.wake(_AFTER_LOSS_MS)

    def cordon(self, directory_ids: Iterable[bytes]) -> None:
        """Report to the controller which directories get no new replicas (KIP-1066)."""
        if self._membership.directories.cordon(directory_ids) and self._membership.is_registered:
            self._sender.wake()

    def _failure_untold(self, directory_id: bytes, timeout_ms: int) -> None:
        """Stop the node if the controller has no report of a failed directory. The controller would continue to make
        this broker the leader of replicas in that directory."""
        if not self._membership.directories.is_reported(directory_id) and self.state is not BrokerState.SHUTTING_DOWN:
            self._fatal(
                f"a log directory failed, and this node could not report that to the controller within {timeout_ms} ms "
                "(log.dir.failure.timeout.ms)"
            )

    def metadata_seen(self) -> None:
        """Note that the broker half has newer metadata, which may include this broker's registration."""
        is_starting = self._membership.is_registered and self.state is BrokerState.STARTING
        if is_starting and self._seen_offset() >= self.broker_epoch:
            self._sender.wake()

    # From the metadata.

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        """Register again if the metadata has lost this broker, or can have its directories from now on (called by the
        loader)."""
        changed = delta.cluster.brokers_changed
        removed = self.node_id in changed and changed[self.node_id] is None
        upgraded = old.features.metadata_version < DIRECTORIES_FROM <= new.features.metadata_version
        if self._membership.is_lost(removed=removed, gets_directories=upgraded and old.offset >= 0):
            self._sender.wake()

    def _leader_changed(self, leader_id: int | None, epoch: int) -> None:
        """Send at once to a new controller, which has no message of this broker yet."""
        if leader_id is not None:
            self._sender.wake()

    def _become(self, state: BrokerState) -> None:
        self._membership.state = state
        self._changed(state, self.broker_epoch)

    # To and from the controller.

    def _next_request(self) -> BrokerRegistrationRequest | BrokerHeartbeatRequest | None:
        if self._stands:
            return None
        return self._membership.next_request(self._seen_offset(), self._metadata.image.features.metadata_version)

    def _answered(self, response: BrokerRegistrationResponse | BrokerHeartbeatResponse) -> None:
        if isinstance(response, BrokerRegistrationResponse):
            self._registration_answered(response)
        else:
            self._heartbeat_answered(response)

    def _registration_answered(self, response: BrokerRegistrationResponse) -> None:
        self._membership.registered(response)
        if self._registration_timer is not None:
            self._registration_timer.cancel()
            self._registration_timer = None
        self._log("Successfully registered broker %d with broker epoch %d", self.node_id, self.broker_epoch)
        self._changed(self.state, self.broker_epoch)
        caught_up = self._seen_offset() >= self.broker_epoch
        # Otherwise `metadata_seen` sends the heartbeat as soon as the broker half has seen the registration.
        self._sender.wake(0 if caught_up or self.state is not BrokerState.STARTING else self._heartbeat_ms)

    def _heartbeat_answered(self, response: BrokerHeartbeatResponse) -> None:
        membership = self._membership
        membership.answered()
        if membership.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self._shutdown_answered(membership.state_after(response) is BrokerState.SHUTTING_DOWN)
            return
        while (following := membership.state_after(response)) is not None:
            if following is BrokerState.RECOVERY:
                self._log("The broker has caught up. Transitioning from STARTING to RECOVERY.")
            self._become(following)
        self._sender.wake(0 if membership.is_held_back else self._heartbeat_ms)

    def _shutdown_answered(self, granted: bool) -> None:
        if granted:
            self._log("The controller has asked us to exit controlled shutdown.")
            self.stop()
            return
        self._log("The broker is in PENDING_CONTROLLED_SHUTDOWN state, still waiting for the active controller.")
        self._expect_controller()
        # The first answer only means that the controller has begun to move leaderships. Ask again at once, and then
        # after longer and longer pauses.
        self._sender.wake(min(self._heartbeat_ms, _SHUTDOWN_POLL_MS * self._shutdown_answers))
        self._shutdown_answers += 1

    def _expect_controller(self) -> None:
        """Wait for the next answer for the length of a session. If several nodes of a quorum stop at once, the last
        node has no controller. Apache Kafka waits five minutes for a controller."""
        if self._shutdown_timer is not None:
            self._shutdown_timer.cancel()
        self._shutdown_timer = self._runtime.loop.call_later(self._session_ms / 1000, self._no_controller)

    def _no_controller(self) -> None:
        self.go_without_leave(
            f"no controller has answered for {self._session_ms} ms (broker.session.timeout.ms), so the session of this "
            "broker is over"
        )

    def _registration_timed_out(self) -> None:
        self._registration_timer = None
        reason = "Shutting down because we were unable to register with the controller quorum."
        if self._sender.last_failure:
            reason += f" Last: {self._sender.last_failure}."
        logger.error("[BrokerLifecycleManager id=%d] %s", self.node_id, reason)
        self.stop()
        self._fatal(reason)

    def _log(self, message: str, *args: object) -> None:
        logger.info("[BrokerLifecycleManager id=%d] " + message, self.node_id, *args)
