"""What the state machine asks of the world, and how the world speaks of time and place.

`RaftNode` changes only itself; everything else is in the `Ready` that it hands out. The driver works it off in this
order:

1. `election`: write quorum-state and fsync it. No request and no reply of this or a later Ready may leave before.
2. `log`: the steps in their order. Appends are bytes to write as they are.
3. `requests` and `replies`: send; a reply with `read` gets its records from the log or the snapshot first.
4. `flush`: fsync the log when convenient, then tell `RaftNode.flushed(offset)`; one fsync may serve many Readys.
5. `high_watermark`, `leader`: tell the listeners.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.log_view import OffsetAndEpoch

#: A deadline that never comes.
NEVER = 1 << 62


class Now(NamedTuple):
    """The two clocks: `steady_ms` never jumps and is for timers, `wall_ms` goes into records and descriptions."""

    steady_ms: int
    wall_ms: int


class Destination(NamedTuple):
    """The replica that a request is for. Bootstrap servers, whose ids are not known, count down from -2."""

    id: int
    host: str
    port: int


@dataclass(slots=True)
class Inbound:
    """A request as it came in; `token` names it in the reply."""

    token: int
    request: Any
    version: int
    listener: str


@dataclass(slots=True)
class Outgoing:
    """A request; its answer comes back through `RaftNode.response(correlation_id, ...)`, None when there was none."""

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
    """The response to the request that came in with `token`."""

    token: int
    response: Any
    read: ReadLog | ReadSnapshot | None = None


@dataclass(slots=True)
class Append:
    """Batches to write at the end of the log, offsets and epochs already in them."""

    base_offset: int
    next_offset: int
    records: bytes


@dataclass(slots=True)
class Truncate:
    """Cut the log so that it ends at `offset`. Never below the high watermark."""

    offset: int


@dataclass(slots=True)
class SnapshotChunk:
    """Bytes of a snapshot of `size` bytes that is being fetched. After the last one: put it in place, empty the log so
    that it starts after it, and tell `RaftNode.snapshot_installed(...)`; or `snapshot_refused` when it is damaged. If
    the disk has no room for it: give up what was fetched, and tell `snapshot_dropped` when there is room again."""

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
    """The leader now. A leader's own listeners learn of it only once they have seen everything below `start_offset`."""

    leader_id: int | None
    epoch: int
    start_offset: int = 0


@dataclass(slots=True)
class Ready:
    """Everything to do since the last one."""

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
