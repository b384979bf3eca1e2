"""The Ready under construction: the parts of a replica add what the driver must do, in order.

Responsible for correlation ids and for sending no request to a peer that is busy or backing off. Decides nothing else.
"""

from __future__ import annotations

from typing import Any

from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.peer_requests import PeerRequests
from pykbroker_raft.ready import Destination, LeaderChange, LogStep, Now, Outgoing, ReadLog, ReadSnapshot, Ready, Reply


class Outbox:
    """The parts add to it, and the node takes it."""

    def __init__(self, connections: PeerRequests, request_timeout_ms: int) -> None:
        self._connections = connections
        self._request_timeout_ms = request_timeout_ms
        self._ready = Ready()
        self._next_correlation_id = 0

    def take(self) -> Ready:
        """Return everything that was added since the last call."""
        ready, self._ready = self._ready, Ready()
        return ready

    def reply(self, token: int, response: Any, read: ReadLog | ReadSnapshot | None = None) -> None:
        self._ready.replies.append(Reply(token, response, read))

    def send_to(self, destination: Destination, request: Any, now: Now) -> int:
        """Send unless the peer is busy or backing off. Return when to call again."""
        if self._connections.is_ready(destination.id, now.steady_ms):
            self._next_correlation_id += 1
            self._connections.sent(destination.id, self._next_correlation_id, now.steady_ms)
            self._ready.requests.append(
                Outgoing(self._next_correlation_id, destination, request, self._request_timeout_ms)
            )
        return self._connections.ready_at(destination.id)

    def write(self, step: LogStep) -> None:
        """Add a log step after the earlier ones."""
        self._ready.log.append(step)

    def flush(self) -> None:
        self._ready.flush = True

    def persist(self, election: ElectionState) -> None:
        self._ready.election = election

    def committed(self, high_watermark: int) -> None:
        self._ready.high_watermark = high_watermark

    def leader_changed(self, change: LeaderChange) -> None:
        self._ready.leader = change
