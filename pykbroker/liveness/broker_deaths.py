"""A broker's process is gone before its session is over, and its sockets show it. Pure.

Events come in: the brokers of the metadata, heartbeats, connections that end, what probes find, time. Effects go out:
connections to try, and brokers that are gone. Not responsible for sockets (broker_watch.py), nor for the fence that
follows (controller/brokers.py). docs/decisions/0023-early-fence.md says why it is safe to fence such a broker.

The rule. If the peer, and not this node, ends the connection of a broker's last accepted heartbeat, every armed
endpoint of the broker is probed. If all of them, one at least, refuse, the broker is gone. An endpoint is armed once
this controller has connected to it since the broker's registration. Whatever the probes find, the broker is also gone
if it does not come back with a heartbeat soon (peer_ends.py has that rule and its exceptions). In every other case (the
broker is in controlled shutdown, it has a newer epoch, its connection is only silent) the session decides, as in Apache
Kafka. A new active controller probes, by the same rule, each broker that serves and has sent no heartbeat within
GRACE_MS. The broker in the process of the former leader is gone if that process has ended its connection to this node
and is not back.

Invariants:
* A heartbeat cancels every probe that began before it.
* A broker that sends a heartbeat after it was reported as gone was alive. It is never reported again in this broker
  epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pykbroker.liveness.peer_ends import PeerEnds

if TYPE_CHECKING:
    from pykbroker.net.client import PeerAddress

#: A broker that serves has sent a heartbeat to a new controller by then.
GRACE_MS = 200
#: For this time a former leader counts as one that left. An election that follows its death is over by then. An older
#: end of a connection proves nothing, because the broker may have come back to another controller.
LEFT_MS = 2_000


class Registration(NamedTuple):
    """A broker as the metadata has it."""

    broker_epoch: int
    endpoints: tuple[PeerAddress, ...]
    is_fenced: bool
    in_controlled_shutdown: bool


@dataclass(slots=True, frozen=True)
class TryEndpoint:
    """Connect once, and call `tried` with what the endpoint does."""

    broker_id: int
    broker_epoch: int
    endpoint: PeerAddress


@dataclass(slots=True, frozen=True)
class ProbeEndpoints:
    """Connect to each endpoint, and call `probed` for each of them."""

    broker_id: int
    number: int
    endpoints: tuple[PeerAddress, ...]


@dataclass(slots=True, frozen=True)
class BrokerGone:
    """The process of this incarnation is gone. `refused` has the endpoints that refused. It is empty if the evidence is
    that the broker did not come back."""

    broker_id: int
    broker_epoch: int
    refused: tuple[PeerAddress, ...]


@dataclass(slots=True, frozen=True)
class BrokerAlive:
    """The broker that was reported as gone is alive. This comes once."""

    broker_id: int
    broker_epoch: int


DeathEffect = TryEndpoint | ProbeEndpoints | BrokerGone | BrokerAlive


@dataclass(slots=True)
class _Watched:
    """One broker epoch."""

    broker_epoch: int
    #: None if a heartbeat came before the registration was in the metadata here
    registration: Registration | None = None
    armed: set[PeerAddress] = field(default_factory=set)
    trying: set[PeerAddress] = field(default_factory=set)
    #: the connection of the last accepted heartbeat; None if there is none, or if it has ended
    connection: int | None = None
    #: the last heartbeat asked for a shutdown
    is_leaving: bool = False
    #: the probe under way, 0 for none, and the endpoints that have not answered it
    probe: int = 0
    unanswered: set[PeerAddress] = field(default_factory=set)
    was_reported: bool = False
    was_alive: bool = False
    #: when a new controller probes the broker if no heartbeat of it has come
    due_ms: int | None = None


class BrokerDeaths:
    """Decides for one controller, active or not. `now_ms`: the loop's clock."""

    def __init__(self) -> None:
        self.is_active = False
        self._brokers: dict[int, _Watched] = {}
        self._probes = 0
        #: brokers that ended the connection of their heartbeats
        self._ends: PeerEnds[int] = PeerEnds()
        #: leaders of the quorum that ended their connection to this node and did not come back, and when
        self._left_ms: dict[int, int] = {}

    # -- every controller ---------------------------------------------------------------------------------------------

    def metadata(self, brokers: Mapping[int, Registration]) -> list[DeathEffect]:
        """Take all brokers of a new image."""
        for broker_id in set(self._brokers) - set(brokers):
            del self._brokers[broker_id]
        effects: list[DeathEffect] = []
        for broker_id, registration in brokers.items():
            watched = self._brokers.get(broker_id)
            if watched is None or watched.broker_epoch < registration.broker_epoch:
                watched = self._brokers[broker_id] = _Watched(registration.broker_epoch)
                self._ends.back(broker_id)
                # Its process was started after the one that left.
                self._left_ms.pop(broker_id, None)
            if watched.broker_epoch == registration.broker_epoch:
                effects += self._registered(broker_id, watched, registration)
        return effects

    def _registered(self, broker_id: int, watched: _Watched, registration: Registration) -> Iterable[DeathEffect]:
        before, watched.registration = watched.registration, registration
        watched.armed &= set(registration.endpoints)
        if before is None or before.endpoints != registration.endpoints:
            for endpoint in registration.endpoints:
                if endpoint not in watched.armed and endpoint not in watched.trying:
                    watched.trying.add(endpoint)
                    yield TryEndpoint(broker_id, watched.broker_epoch, endpoint)

    def is_trying(self, effect: TryEndpoint) -> bool:
        """Return True if `tried` is still of use for this effect."""
        watched = self._brokers.get(effect.broker_id)
        return watched is not None and watched.broker_epoch == effect.broker_epoch and effect.endpoint in watched.trying

    def tried(self, broker_id: int, broker_epoch: int, endpoint: PeerAddress, *, accepts: bool) -> None:
        """A TryEndpoint was carried out."""
        watched = self._brokers.get(broker_id)
        if watched is not None and watched.broker_epoch == broker_epoch:
            watched.trying.discard(endpoint)
            registration = watched.registration
            if accepts and registration is not None and endpoint in registration.endpoints:
                watched.armed.add(endpoint)

    def leader_left(self, broker_id: int, now_ms: int) -> None:
        """Record that this broker's process, which led the quorum, has ended its connection to this node and is not
        back."""
        self._left_ms[broker_id] = now_ms

    def turned(self, now_ms: int) -> None:
        """Record that the loop of this node turns. Called several times a second while this controller is active."""
        self._ends.turned(now_ms)

    # -- the active controller ----------------------------------------------------------------------------------------

    def activated(self, now_ms: int) -> None:
        """This controller leads from now on. It gives each broker that serves GRACE_MS to send a heartbeat."""
        self.is_active = True
        for watched in self._brokers.values():
            registration = watched.registration
            if registration is not None and not registration.is_fenced and not registration.in_controlled_shutdown:
                watched.due_ms = now_ms + GRACE_MS

    def deactivated(self) -> None:
        """Stop deciding, because another controller leads now."""
        self.is_active = False
        for watched in self._brokers.values():
            watched.connection = watched.due_ms = None
            watched.probe = 0
        self._ends.clear()

    def heartbeat(
        self, broker_id: int, broker_epoch: int, connection: int | None, *, is_leaving: bool = False
    ) -> list[DeathEffect]:
        """Record an accepted heartbeat. `connection` is None if it came in memory."""
        watched = self._brokers.get(broker_id)
        if not self.is_active or (watched is not None and watched.broker_epoch > broker_epoch):
            return []
        if watched is None or watched.broker_epoch < broker_epoch:
            watched = self._brokers[broker_id] = _Watched(broker_epoch)
        watched.connection = connection
        watched.is_leaving = is_leaving
        watched.probe = 0
        watched.due_ms = None
        self._ends.back(broker_id)
        self._left_ms.pop(broker_id, None)
        if watched.was_reported and not watched.was_alive:
            watched.was_alive = True
            return [BrokerAlive(broker_id, broker_epoch)]
        return []

    def connection_ended(self, connection: int, *, by_peer: bool, now_ms: int) -> list[DeathEffect]:
        """Record that a connection over which heartbeats came has ended."""
        effects: list[DeathEffect] = []
        for broker_id, watched in self._brokers.items():
            if watched.connection == connection:
                watched.connection = None
                if by_peer:
                    if not watched.is_leaving:
                        self._ends.ended(broker_id, now_ms)
                    effects += self._probe(broker_id, watched)
        return effects

    @property
    def deadline_ms(self) -> int | None:
        """The time at which `clock` must run, or None."""
        due = [each.due_ms for each in self._brokers.values() if each.due_ms is not None]
        if self._ends.deadline_ms is not None:
            due.append(self._ends.deadline_ms)
        return min(due, default=None)

    def clock(self, now_ms: int) -> list[DeathEffect]:
        """Return the effects that are due at `now_ms`."""
        effects: list[DeathEffect] = []
        for broker_id, watched in self._brokers.items():
            if watched.due_ms is not None and watched.due_ms <= now_ms:
                watched.due_ms = None
                left_ms = self._left_ms.get(broker_id)
                if left_ms is not None and now_ms - left_ms < LEFT_MS and not self._ends.has_stalled_since(left_ms):
                    effects += self._not_back(broker_id, watched)
                else:
                    effects += self._probe(broker_id, watched)
        for broker_id in self._ends.clock(now_ms):
            if broker_id in self._brokers:
                effects += self._not_back(broker_id, self._brokers[broker_id])
        return effects

    def _not_back(self, broker_id: int, watched: _Watched) -> Iterable[DeathEffect]:
        registration = watched.registration
        serves = registration is not None and not registration.is_fenced and not registration.in_controlled_shutdown
        if serves and not watched.is_leaving and not watched.was_reported:
            watched.probe = 0
            watched.was_reported = True
            yield BrokerGone(broker_id, watched.broker_epoch, ())

    def _probe(self, broker_id: int, watched: _Watched) -> Iterable[DeathEffect]:
        if watched.armed and not watched.is_leaving and not watched.was_reported:
            self._probes += 1
            watched.probe = self._probes
            watched.unanswered = set(watched.armed)
            yield ProbeEndpoints(broker_id, watched.probe, tuple(sorted(watched.armed)))

    def probed(self, broker_id: int, number: int, endpoint: PeerAddress, *, refuses: bool) -> list[DeathEffect]:
        """A probe has its verdict about one of its endpoints."""
        watched = self._brokers.get(broker_id)
        if watched is None or not number or watched.probe != number:
            return []
        if not refuses:
            watched.probe = 0
            return []
        watched.unanswered.discard(endpoint)
        if watched.unanswered:
            return []
        watched.probe = 0
        watched.was_reported = True
        self._ends.refused(broker_id)
        return [BrokerGone(broker_id, watched.broker_epoch, tuple(sorted(watched.armed)))]
