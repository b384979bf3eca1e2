"""Decides that the process of a broker is gone before the broker's session is over, from the state of its sockets.
Pure.

Its input is events: the brokers of the metadata, heartbeats, connections that end, results of probes, time. Its output
is effects: endpoints to connect to, and brokers that are gone. Not responsible for sockets (broker_watch.py), nor for
fencing a broker that is gone (controller/brokers.py). docs/decisions/0023-early-fence.md says why it is safe to fence
such a broker.

The rule. An endpoint is armed when this controller has connected to it since the broker's registration. If the peer,
and not this node, ends the connection of a broker's last accepted heartbeat, every armed endpoint of the broker is
probed. If there is an armed endpoint, and all armed endpoints refuse, the broker is gone. Whatever the probes find, the
broker is also gone if it does not come back with a heartbeat soon (peer_ends.py has that rule and its exceptions). In
every other case (the broker is in controlled shutdown, it has a newer epoch, its connection is only silent) the session
decides, as in Apache Kafka. A new active controller probes each broker that serves and has sent no heartbeat within
GRACE_MS; the same rule applies. The broker in the process of the former leader is gone if that process has ended its
connection to this node and is not back.

Invariants:
* A heartbeat cancels every probe that began before it.
* If a broker sends a heartbeat after it was reported as gone, the report was wrong. The broker is never reported again
  in this broker epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pykbroker.liveness.peer_ends import PeerEnds

if TYPE_CHECKING:
    from pykbroker.net.client import PeerAddress

#: After this time a broker that is alive has sent a heartbeat to a new controller.
GRACE_MS = 200
#: The end of a former leader's connection is evidence for this time. By then an election that follows its death is
#: over. An older end of a connection proves nothing, because the broker may have connected to another controller since.
LEFT_MS = 2_000


class Registration(NamedTuple):
    """A broker as the metadata has it."""

    broker_epoch: int
    endpoints: tuple[PeerAddress, ...]
    is_fenced: bool
    in_controlled_shutdown: bool


@dataclass(slots=True, frozen=True)
class TryEndpoint:
    """Connect to the endpoint until it accepts, and then call `tried`. After several failures call `tried` too."""

    broker_id: int
    broker_epoch: int
    endpoint: PeerAddress


@dataclass(slots=True, frozen=True)
class ProbeEndpoints:
    """Probe each endpoint, and call `probed` with each result."""

    broker_id: int
    number: int
    endpoints: tuple[PeerAddress, ...]


@dataclass(slots=True, frozen=True)
class BrokerGone:
    """The process with this broker epoch is gone. `refused` has the endpoints that refused. It is empty if the broker
    counts as gone because it did not come back."""

    broker_id: int
    broker_epoch: int
    refused: tuple[PeerAddress, ...]


@dataclass(slots=True, frozen=True)
class BrokerAlive:
    """A broker that was reported as gone is alive. This effect comes once for each broker epoch."""

    broker_id: int
    broker_epoch: int


DeathEffect = TryEndpoint | ProbeEndpoints | BrokerGone | BrokerAlive


@dataclass(slots=True)
class _Watched:
    """One broker epoch."""

    broker_epoch: int
    #: None while this node's metadata does not have the registration, if a heartbeat came before it
    registration: Registration | None = None
    armed: set[PeerAddress] = field(default_factory=set)
    trying: set[PeerAddress] = field(default_factory=set)
    #: the connection of the last accepted heartbeat; None if there is none, or if it has ended
    connection: int | None = None
    #: True if the last heartbeat asked for a controlled shutdown
    is_leaving: bool = False
    #: the number of the probe under way, or 0, and the endpoints whose result is missing
    probe: int = 0
    unanswered: set[PeerAddress] = field(default_factory=set)
    was_reported: bool = False
    was_alive: bool = False
    #: the time at which a new controller probes the broker, unless a heartbeat comes before
    due_ms: int | None = None


class BrokerDeaths:
    """The decisions of one controller, active or not. `now_ms`: the loop's clock."""

    def __init__(self) -> None:
        self.is_active = False
        self._brokers: dict[int, _Watched] = {}
        self._probes = 0
        #: the brokers that ended the connection of their heartbeats and are not back
        self._ends: PeerEnds[int] = PeerEnds()
        #: leaders of the quorum that ended their connection to this node and did not come back -> the time when that
        #: was reported
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
                # The registration is of a new process, so the end of the former process no longer matters.
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
        """Return True if this effect is still to be carried out."""
        watched = self._brokers.get(effect.broker_id)
        return watched is not None and watched.broker_epoch == effect.broker_epoch and effect.endpoint in watched.trying

    def tried(self, broker_id: int, broker_epoch: int, endpoint: PeerAddress, *, accepts: bool) -> None:
        """Record that a TryEndpoint was carried out. `accepts`: the endpoint has accepted a connection."""
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
        """Record that the loop of this node turns. The owner calls it several times a second while this controller is
        active."""
        self._ends.turned(now_ms)

    # -- the active controller ----------------------------------------------------------------------------------------

    def activated(self, now_ms: int) -> None:
        """Record that this controller is active from now on. Each broker that serves has GRACE_MS to send a
        heartbeat."""
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
        """Record an accepted heartbeat. `connection` is None if the heartbeat came in memory."""
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
        """Record the result of a probe for one of its endpoints."""
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
