"""The choice of connections to serve, over all listeners of one server: how many, how many per address, how fast.

Responsible for Apache Kafka's bounds max.connections, max.connections.per.ip (with overrides) and
max.connection.creation.rate. Not responsible for a connection once it is served.

As in Apache Kafka, a connection over max.connections or over the rate waits as it would in the accept queue. A
connection over the bound of its address is closed. All bounds may change while the node runs.

Invariants
* Each listener has its own waiting queue. Connections that wait at one listener neither refuse nor delay connections at
  another.
* The listener between brokers never waits for the other listeners: over max.connections, its new connection takes the
  place of that connection of another listener that was idle longest (KIP-402). Its addresses are also counted apart
  from those of clients.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykbroker.net.connection import Connection

UNBOUNDED = 2**31 - 1
#: The shortest wait until the rate allows one more connection.
_SHORTEST_WAIT_SECONDS = 0.001


@dataclass(slots=True, frozen=True)
class AdmissionLimits:
    """Bounds: counts of connections, and rates in new connections per second. `waiting` is the length of each
    listener's accept queue."""

    connections: int = UNBOUNDED
    listener_connections: Mapping[str, int] = field(default_factory=dict)
    per_address: int = UNBOUNDED
    address_overrides: Mapping[str, int] = field(default_factory=dict)
    rate: int = UNBOUNDED
    listener_rates: Mapping[str, int] = field(default_factory=dict)
    #: the unused part of the rate is kept for this long
    burst_seconds: float = 10.0
    waiting: int = 50
    #: the listener between brokers, if it is not the only one
    protected: str | None = None


class _Rate:
    """A bucket of permissions for new connections, which fills with time."""

    __slots__ = ("_filled_at", "_tokens")

    def __init__(self, now: float, rate: int, burst_seconds: float) -> None:
        self._tokens = rate * burst_seconds
        self._filled_at = now

    def wait(self, now: float, rate: int, burst_seconds: float) -> float:
        """Return the seconds until one more connection is allowed, or 0 if it is allowed now."""
        self._tokens = min(rate * burst_seconds, self._tokens + (now - self._filled_at) * rate)
        self._filled_at = now
        return 0.0 if self._tokens >= 1 - 1e-9 else (1 - self._tokens) / rate

    def take(self) -> None:
        self._tokens -= 1


class Admission:
    """Shared by the listeners of the broker half, and by those of the controller half."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: AdmissionLimits) -> None:
        self._loop = loop
        self._limits = limits
        #: the served connections, and how each counts towards the bound of its address
        self._served: dict[Connection, tuple[bool, str]] = {}
        #: the waiting connections of all listeners, in the order of their arrival
        self._waiting: dict[Connection, None] = {}
        self._waiting_at: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        #: (True for the protected listener, address)
        self._per_address: Counter[tuple[bool, str]] = Counter()
        self._rates: dict[str, _Rate] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._served)

    @property
    def waiting(self) -> int:
        """Return the number of connections that are accepted and not yet served."""
        return len(self._waiting)

    @property
    def limits(self) -> AdmissionLimits:
        return self._limits

    def change(self, limits: AdmissionLimits) -> None:
        """Set new bounds. Served connections stay, even if they are now too many."""
        self._limits = limits
        self._rates.clear()
        self._admit_waiting()

    def arrive(self, connection: Connection) -> str | None:
        """Add a new connection: serve it at once, mute it until there is room, or refuse it for the returned reason."""
        name = connection.listener_name
        if not self._waiting and self._delay(name) == 0:
            return self._enter(connection)
        if self._waiting_at[name] >= self._limits.waiting:
            return (
                f"{len(self._served)} connections are open (max.connections), and {self._waiting_at[name]} more wait "
                "at this listener"
            )
        self._waiting[connection] = None
        self._waiting_at[name] += 1
        connection.mute()
        self._admit_waiting()
        return None

    def leave(self, connection: Connection) -> None:
        """Remove a connection that has ended. A waiting connection may then be served."""
        if connection in self._waiting:
            self._stop_waiting(connection)
        if connection not in self._served:
            return
        address = self._served.pop(connection)
        self._per_listener[connection.listener_name] -= 1
        left = self._per_address[address] - 1
        if left:
            self._per_address[address] = left
        else:
            del self._per_address[address]
        if self._waiting:
            self._admit_waiting()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_waiting(self, connection: Connection) -> None:
        del self._waiting[connection]
        self._waiting_at[connection.listener_name] -= 1

    def _enter(self, connection: Connection) -> str | None:
        limits = self._limits
        address = (connection.listener_name == limits.protected, connection.client_host)
        for rate in self._rates_of(connection.listener_name):
            rate[0].take()
        count = self._per_address[address]
        if count >= limits.address_overrides.get(connection.client_host, limits.per_address):
            return f"{count} connections are open from this address (max.connections.per.ip)"
        self._served[connection] = address
        self._per_listener[connection.listener_name] += 1
        self._per_address[address] = count + 1
        if len(self._served) > limits.connections and connection.listener_name == limits.protected:
            self._close_idlest()
        return None

    def _close_idlest(self) -> None:
        # A connection that is closing is no candidate, because it already gives up its place.
        others = [one for one in self._served if one.listener_name != self._limits.protected and one.end is None]
        if others:
            idlest = min(others, key=lambda one: one.last_active)
            idlest.close("max.connections is reached, and the listener between brokers needs room for a connection")

    def _delay(self, name: str) -> float:
        """Return the seconds until this listener may serve one more connection: 0 if it may now, infinite if a served
        connection must end first."""
        limits = self._limits
        if self._per_listener[name] >= limits.listener_connections.get(name, UNBOUNDED):
            return float("inf")
        if len(self._served) >= limits.connections and name != limits.protected:
            return float("inf")
        now = self._loop.time()
        return max(
            (rate.wait(now, allowed, limits.burst_seconds) for rate, allowed in self._rates_of(name)), default=0.0
        )

    def _rates_of(self, listener: str) -> list[tuple[_Rate, int]]:
        limits = self._limits
        found = []
        for key, allowed in (("", limits.rate), (listener, limits.listener_rates.get(listener, UNBOUNDED))):
            # For the listener between brokers only its own rate counts, not the common rate.
            if allowed == UNBOUNDED or (not key and listener == limits.protected):
                continue
            rate = self._rates.get(key)
            if rate is None:
                rate = self._rates[key] = _Rate(self._loop.time(), allowed, limits.burst_seconds)
            found.append((rate, allowed))
        return found

    def _admit_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        soonest = float("inf")
        full: set[str] = set()
        for connection in list(self._waiting):
            name = connection.listener_name
            if name in full or connection not in self._waiting:
                continue
            delay = self._delay(name)
            if delay:
                # Later connections of this listener wait at least as long.
                full.add(name)
                soonest = min(soonest, delay)
                continue
            self._stop_waiting(connection)
            refused = self._enter(connection)
            if refused is None:
                connection.unmute()
            else:
                connection.close(f"refused: {refused}")
        if soonest != float("inf"):
            self._timer = self._loop.call_later(max(soonest, _SHORTEST_WAIT_SECONDS), self._admit_waiting)
