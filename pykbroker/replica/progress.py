"""The leader's knowledge of one follower: its end offset, and the last time at which it was caught up; pure.

It is Kafka's ReplicaState. Responsible for the facts that a fetch proves, and for those of them that remain true in a
new leader epoch. Not responsible for the choice of the followers in sync (leader.py), nor for the source of the time,
which is the loop's clock because the wall clock jumps.

Invariants:
* A follower that has not fetched from this leader has proved nothing: its end offset is UNKNOWN.
* `caught_up_ms` never goes back in a leader epoch.
"""

from __future__ import annotations

from typing import NamedTuple

UNKNOWN = -1
#: Earlier than any time of a loop's clock, even just after the start.
NEVER_MS = -(1 << 62)
#: The broker epoch of a fetch that names no broker epoch. It is not compared with the broker's epoch.
ANY_EPOCH = -1


class FollowerFetch(NamedTuple):
    """The facts that one fetch of a follower proves, if its offset was found in the leader's log. It is a NamedTuple,
    which is cheap to make, because each partition of each fetch needs one."""

    replica_id: int
    #: the follower has all records before this offset
    offset: int
    #: the log start offset of the follower's log
    log_start_offset: int
    broker_epoch: int
    #: the end of the leader's log when it was read
    leader_end: int
    steady_ms: int


class FollowerProgress:
    """The progress of one follower."""

    __slots__ = (
        "_last_fetch_leader_end",
        "_last_fetch_ms",
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.end_offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        #: the broker epoch in its last fetch, or None before its first fetch
        self.broker_epoch: int | None = None
        #: the last time at which it had all records of the leader
        self.caught_up_ms = NEVER_MS
        self._last_fetch_ms = NEVER_MS
        self._last_fetch_leader_end = UNKNOWN

    def note(self, fetch: FollowerFetch) -> bool:
        """Record the facts that the fetch proves. Return True if the follower's end offset has changed."""
        # If small batches come fast, a follower always lags by a batch. It was still caught up at its previous fetch if
        # it now has all records that the leader had at that time.
        if fetch.offset >= fetch.leader_end:
            self.caught_up_ms = max(self.caught_up_ms, fetch.steady_ms)
        elif fetch.offset >= self._last_fetch_leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self._last_fetch_ms)
        self._last_fetch_leader_end = max(self._last_fetch_leader_end, fetch.leader_end)
        self._last_fetch_ms = fetch.steady_ms
        self.log_start_offset = fetch.log_start_offset
        self.broker_epoch = fetch.broker_epoch
        moved = fetch.offset != self.end_offset
        self.end_offset = fetch.offset
        return moved

    def begin_epoch(self, leader_end: int, steady_ms: int, *, in_sync: bool) -> None:
        """Begin a leader epoch. A follower in the ISR counts as caught up now. Any other follower does not: the high
        watermark does not wait for it, and it cannot join the ISR before it fetches."""
        self.caught_up_ms = self._last_fetch_ms = steady_ms if in_sync else NEVER_MS
        self._last_fetch_leader_end = UNKNOWN if self.end_offset == UNKNOWN else leader_end

    def is_caught_up(self, leader_end: int, steady_ms: int, max_lag_ms: int) -> bool:
        """Return True if the follower has all records of the leader, or was caught up at most `max_lag_ms` ago."""
        return self.end_offset == leader_end or steady_ms - self.caught_up_ms <= max_lag_ms
