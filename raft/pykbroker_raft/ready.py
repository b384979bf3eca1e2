"""The work of the driver of a `RaftNode`, and the values with which the driver passes time and addresses.

`RaftNode` changes only itself; everything else is in a `Ready`. After each input the driver calls `RaftNode.ready()`,
and does the work in this order:

1. `election`: write quorum-state and fsync it. No request and no reply of this or a later Ready may be sent before
   that.
2. `log`: do the steps in their order. The bytes of an append are written unchanged.
3. `requests` and `replies`: send them. A reply with `read` first gets its records from the log or the snapshot.
4. `flush`: fsync the log when convenient, then call `RaftNode.flushed(offset)`; one fsync may serve many Readys.
5. `high_watermark`, `leader`: notify the listeners.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.log_view import OffsetAndEpoch

#: A deadline that never comes.
NEVER = 1 << 62


class Now(NamedTuple):
    """The two clocks: `steady_ms` never jumps and is for timers, `wall_ms` is for records and descriptions."""

    steady_ms: int
    wall_ms: int


class Destination(NamedTuple):
    """The replica that gets a request. Servers that are asked for the leader have ids from -2 downwards: the bootstrap
    servers, because their ids are unknown, and then the voters."""

    id: int
    host: str
    port: int


@dataclass(slots=True)
class Inbound:
    """A request from another replica; `token` identifies it in the reply."""

    token: int
    request: Any
    version: int
    listener: str


@dataclass(slots=True)
class Outgoing:
    """A request. Its response is passed to `RaftNode.response(correlation_id, ...)`, or None if there was none."""

    correlation_id: int
    destination: Destination
    request: Any
    timeout_ms: int


@dataclass(slots=True)
class ReadLog:
    """Put the log's batches from `offset` into the first partition of this fetch response."""

    offset: int
    max_bytes: int


@dataclass(slots=True)
class ReadSnapshot:
    """Put this part of a snapshot into the first partition of this response."""

    id: OffsetAndEpoch
    position: int
    max_bytes: int


@dataclass(slots=True)
class Reply:
    """The response to the request with this `token`."""

    token: int
    response: Any
    read: ReadLog | ReadSnapshot | None = None


@dataclass(slots=True)
class Append:
    """Batches to write at the end of the log; they contain their offsets and epochs."""

    base_offset: int
    next_offset: int
    records: bytes


@dataclass(slots=True)
class Truncate:
    """Cut the log so that it ends at `offset`, which is never below the high watermark."""

    offset: int


@dataclass(slots=True)
class SnapshotChunk:
    """A part of a fetched snapshot of `size` bytes. After the last one, put the snapshot in place, empty the log so
    that it starts after it, and call `RaftNode.snapshot_installed(...)`, or `snapshot_refused` if it is damaged. If the
    disk has no room for it, drop what was fetched, and call `snapshot_dropped` when there is room again."""

    id: OffsetAndEpoch
    position: int
    data: bytes
    size: int

    @property
    def last(self) -> bool:
        return self.position + len(self.data) == self.size


LogStep = Append | Truncate | SnapshotChunk


@dataclass(slots=True)
class LeaderChange:
    """The current leader. A leader's own listeners are notified only after they have read everything below
    `start_offset`."""

    leader_id: int | None
    epoch: int
    start_offset: int = 0


@dataclass(slots=True)
class Ready:
    """Everything to do since the last Ready."""

    election: ElectionState | None = None
    log: list[LogStep] = field(default_factory=list)
    flush: bool = False
    requests: list[Outgoing] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    high_watermark: int | None = None
    leader: LeaderChange | None = None

    def __bool__(self) -> bool:
        return bool(
            self.election is not None
            or self.log
            or self.flush
            or self.requests
            or self.replies
            or self.high_watermark is not None
            or self.leader is not None
        )
