"""Watches the sockets of brokers for a controller.

Responsible for passing events to broker_deaths.py, which decides, and for carrying out its effects. Not responsible for
fencing: `on_gone` passes a broker that is gone to the controller, which fences it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from pykbroker.liveness.broker_deaths import (
    BrokerAlive,
    BrokerDeaths,
    BrokerGone,
    DeathEffect,
    ProbeEndpoints,
    Registration,
    TryEndpoint,
)
from pykbroker.liveness.prober import PortVerdict, Prober, RunningProbes
from pykbroker.net.client import PeerAddress
from pykbroker.net.connection_state import End, StatefulConnection

if TYPE_CHECKING:
    from pykbroker.metadata.delta import MetadataDelta
    from pykbroker.metadata.image import BrokerImage, MetadataImage
    from pykbroker.metadata.view import MetadataView
    from pykbroker.runtime import Runtime

logger = logging.getLogger(__name__)


#: An endpoint of a registered broker is tried for nearly two minutes, with pauses that double.
FIRST_PAUSE_SECONDS = 0.1
LAST_FAILURE = 10
#: An active controller records at this interval that its loop turns.
TURN_SECONDS = 0.25


#: Called with the broker's id, its epoch, and the endpoints that refused.
OnGone = Callable[[int, int, tuple[PeerAddress, ...]], object]


class BrokerWatch:
    """The watch of one controller, active or not; a publisher of the loader. Call `start` once and `close` once."""

    def __init__(self, runtime: Runtime, node_id: int, metadata: MetadataView, prober: Prober, on_gone: OnGone) -> None:
        self._runtime = runtime
        self._node_id = node_id
        self._metadata = metadata
        self._on_gone = on_gone
        self._deaths = BrokerDeaths()
        self._probes: RunningProbes[tuple[DeathEffect, PeerAddress]] = RunningProbes(prober)
        #: the numbers of the connections that will call `_ended`
        self._watched: set[int] = set()
        self._look_soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._turns: asyncio.TimerHandle | None = None
        self._is_closed = False

    def start(self) -> None:
        self._metadata.add_publisher(self)
        self._metadata.on_leader(self._leader_changed)

    def close(self) -> None:
        self._is_closed = True
        for handle in (self._look_soon, self._timer, self._turns):
            if handle is not None:
                handle.cancel()
        self._probes.close()

    # -- events -------------------------------------------------------------------------------------------------------

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        """Look at the brokers soon if they have changed (called by the loader)."""
        if old.brokers is not new.brokers and self._look_soon is None and not self._is_closed:
            # Not at once: while a node starts, images come one after the other, and the early images have old brokers.
            self._look_soon = self._runtime.loop.call_soon(self._look)

    def _look(self) -> None:
        self._look_soon = None
        brokers = self._metadata.image.brokers.values()
        # The broker of this process ends when this controller does.
        others = {broker.id: _registration(broker) for broker in brokers if broker.id != self._node_id}
        self._do(self._deaths.metadata(others))

    def _leader_changed(self, leader_id: int | None, epoch: int) -> None:
        if self._is_closed:
            return
        if leader_id == self._node_id:
            if not self._deaths.is_active:
                if self._look_soon is not None:
                    self._look_soon.cancel()
                self._look()
                self._deaths.activated(self._now_ms())
                self._arm_timer()
                self._turn()
        elif self._deaths.is_active:
            self._deaths.deactivated()
            if self._turns is not None:
                self._turns.cancel()

    def _turn(self) -> None:
        self._deaths.turned(self._now_ms())
        self._turns = self._runtime.loop.call_later(TURN_SECONDS, self._turn)

    def leader_left(self, node_id: int) -> None:
        """Record that the leader of the quorum has ended its connection to this node and is not back."""
        self._deaths.leader_left(node_id, self._now_ms())

    def heartbeat(self, broker_id: int, broker_epoch: int, peer: object, *, is_leaving: bool) -> None:
        """Record that the active controller has accepted a heartbeat from this peer."""
        connection = peer if isinstance(peer, StatefulConnection) else None
        number: int | None = None if connection is None else getattr(connection, "connection_number", None)
        self._do(self._deaths.heartbeat(broker_id, broker_epoch, number, is_leaving=is_leaving))
        if connection is not None and number is not None and number not in self._watched:
            self._watched.add(number)
            connection.when_finished(partial(self._ended, number))

    def _ended(self, number: int, end: End) -> None:
        self._watched.discard(number)
        if not self._is_closed:
            self._do(self._deaths.connection_ended(number, by_peer=end.by_peer, now_ms=self._now_ms()))
            self._arm_timer()

    def _try(self, effect: TryEndpoint, failures: int = 0) -> None:
        if not self._is_closed and self._deaths.is_trying(effect):
            self._probe(effect, effect.endpoint, partial(self._tried, effect, failures))

    def _tried(self, effect: TryEndpoint, failures: int, verdict: PortVerdict) -> None:
        accepts = verdict is PortVerdict.ACCEPTED
        if accepts or failures >= LAST_FAILURE:
            self._deaths.tried(effect.broker_id, effect.broker_epoch, effect.endpoint, accepts=accepts)
        else:
            # A broker that has just registered may not accept connections yet.
            self._runtime.loop.call_later(FIRST_PAUSE_SECONDS * 2**failures, self._try, effect, failures + 1)

    def _probed(self, effect: ProbeEndpoints, endpoint: PeerAddress, verdict: PortVerdict) -> None:
        refuses = verdict is PortVerdict.REFUSED
        if not refuses:
            logger.info(
                "[Controller id=%d] Broker %d has ended its connection, and its endpoint %s:%d is %s now: it is fenced "
                "if it is not back soon.",
                self._node_id,
                effect.broker_id,
                *endpoint,
                verdict.value,
            )
        self._do(self._deaths.probed(effect.broker_id, effect.number, endpoint, refuses=refuses))

    # -- time ---------------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self._runtime.loop.time() * 1000)

    def _arm_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self._deaths.deadline_ms
        if deadline_ms is not None:
            delay_ms = max(1, deadline_ms - self._now_ms())
            self._timer = self._runtime.loop.call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._do(self._deaths.clock(self._now_ms()))
        self._arm_timer()

    # -- effects ------------------------------------------------------------------------------------------------------

    def _do(self, effects: Iterable[DeathEffect]) -> None:
        for effect in effects:
            match effect:
                case TryEndpoint():
                    self._try(effect)
                case ProbeEndpoints():
                    for endpoint in effect.endpoints:
                        self._probe(effect, endpoint, partial(self._probed, effect, endpoint))
                case BrokerGone():
                    self._on_gone(effect.broker_id, effect.broker_epoch, effect.refused)
                case BrokerAlive():
                    logger.warning(
                        "[Controller id=%d] Broker %d at epoch %d was fenced because its connection ended and it "
                        "refused new ones or did not come back. It is alive, and until it registers again only its "
                        "session fences it. Something between the nodes ends or refuses connections in its place.",
                        self._node_id,
                        effect.broker_id,
                        effect.broker_epoch,
                    )

    def _probe(self, effect: DeathEffect, endpoint: PeerAddress, then: Callable[[PortVerdict], None]) -> None:
        self._probes.begin((effect, endpoint), endpoint, then)


def _registration(broker: BrokerImage) -> Registration:
    endpoints = tuple(dict.fromkeys((endpoint.host, endpoint.port) for endpoint in broker.endpoints.values()))
    return Registration(broker.epoch, endpoints, broker.fenced, broker.in_controlled_shutdown)
