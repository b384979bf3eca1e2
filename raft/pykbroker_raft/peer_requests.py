"""The requests to peers: at most one in flight to each, a pause after a failure, and a timeout.

Responsible for matching a response to the request that waits for it. A late or repeated response is dropped, because
its "diverging epoch" could otherwise cut off records that were committed after it was sent.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from pykbroker_raft.ready import Destination


@dataclass(slots=True)
class _InFlight:
    correlation_id: int
    deadline_ms: int


@dataclass(slots=True)
class PeerRequests:
    retry_backoff_ms: int
    request_timeout_ms: int
    bootstrap: tuple[Destination, ...]
    in_flight: dict[int, _InFlight] = field(default_factory=dict)
    backing_off: dict[int, int] = field(default_factory=dict)

    def _expire(self, now_ms: int) -> None:
        for node_id in [key for key, sent in self.in_flight.items() if now_ms >= sent.deadline_ms]:
            del self.in_flight[node_id]
        for node_id in [key for key, until in self.backing_off.items() if now_ms >= until]:
            del self.backing_off[node_id]

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        self._expire(now_ms)
        return node_id not in self.in_flight and node_id not in self.backing_off

    def is_backing_off(self, node_id: int, now_ms: int) -> bool:
        self._expire(now_ms)
        return node_id in self.backing_off

    def has_timed_out(self, node_id: int, now_ms: int) -> bool:
        sent = self.in_flight.get(node_id)
        return sent is not None and now_ms >= sent.deadline_ms

    def any_in_flight(self, now_ms: int) -> bool:
        self._expire(now_ms)
        return bool(self.in_flight)

    def ready_at(self, node_id: int) -> int:
        """Return when the next request may be sent to this peer, if nothing happens before."""
        sent = self.in_flight.get(node_id)
        return sent.deadline_ms if sent is not None else self.backing_off.get(node_id, 0)

    def first_timeout(self) -> int:
        """Return when the first of the requests in flight has had no response for too long. There must be one."""
        return min(sent.deadline_ms for sent in self.in_flight.values())

    def first_ready_at(self, servers: Sequence[Destination], now_ms: int) -> int:
        """Return when the next request may be sent to one of these servers, if nothing happens before. There must be a
        server."""
        if self.any_in_flight(now_ms):
            return self.first_timeout()
        return min(self.backing_off.get(node.id, now_ms) for node in servers)

    def find_ready(self, servers: Sequence[Destination], now_ms: int, chance: random.Random) -> Destination | None:
        """Return any of these servers that is ready, or None if a request to some peer is in flight already. There must
        be a server."""
        if self.any_in_flight(now_ms):
            return None
        first = chance.randrange(len(servers))
        rotated = (*servers[first:], *servers[:first])
        return next((node for node in rotated if self.is_ready(node.id, now_ms)), None)

    def sent(self, node_id: int, correlation_id: int, now_ms: int) -> None:
        self.in_flight[node_id] = _InFlight(correlation_id, now_ms + self.request_timeout_ms)

    def is_expected(self, node_id: int, correlation_id: int) -> bool:
        sent = self.in_flight.get(node_id)
        return sent is not None and sent.correlation_id == correlation_id

    def answered(self, node_id: int, correlation_id: int, success: bool, now_ms: int) -> None:
        # The handler may have reset all connections; then there is nothing to record.
        if self.is_expected(node_id, correlation_id):
            del self.in_flight[node_id]
            if not success:
                self.backing_off[node_id] = now_ms + self.retry_backoff_ms

    def reset(self, node_id: int) -> None:
        self.in_flight.pop(node_id, None)
        self.backing_off.pop(node_id, None)

    def reset_all(self) -> None:
        self.in_flight.clear()
        self.backing_off.clear()
