"""The follower's side of a fetch session (KIP-227, KIP-516): only what changed is said to the leader again; pure.

Responsible for: session id and epoch, what the leader's session holds, and whether an answer fits it. Not responsible
for what is asked of which partition (fetcher.py), nor for sending.

Invariants:
* At most one request is under way.
* A session that may not hold what this side believes is closed and made anew by the next request, which is full.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from pykbroker_wire.errors import ErrorCode

#: A partition: topic id and index.
PartitionKey = tuple[bytes, int]
NO_SESSION = 0
#: The epoch of a full fetch, which makes a session.
INITIAL_EPOCH = 0
_MAX_INT32 = 2**31 - 1


class Position(NamedTuple):
    """What is asked of one partition."""

    fetch_offset: int
    leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int


@dataclass(slots=True, frozen=True)
class SessionRequest:
    """What one Fetch says."""

    session_id: int
    session_epoch: int
    partitions: list[tuple[PartitionKey, Position]]
    forgotten: list[PartitionKey]


class FollowerSession:
    """With one leader."""

    __slots__ = ("_changed", "_epoch", "_id", "_sent", "_wanted")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        # What is to be fetched. What was fetched last stands last: a full fetch begins with what waits longest.
        self._wanted: dict[PartitionKey, Position] = {}
        # What the leader was told.
        self._sent: dict[PartitionKey, Position] = {}
        # Where the two differ, in the order in which they came to differ.
        self._changed: dict[PartitionKey, None] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, key: PartitionKey, position: Position) -> None:
        """Fetch the partition from here on."""
        self._wanted.pop(key, None)
        sent = self._sent.get(key)
        # Most partitions stay where they are: the same object, not an equal one.
        self._wanted[key] = sent if sent == position else position
        self._compare(key)

    def drop(self, key: PartitionKey) -> None:
        """Fetch the partition no more."""
        self._wanted.pop(key, None)
        self._compare(key)

    def is_current(self, key: PartitionKey) -> bool:
        """Nothing about the partition has changed since the leader was told: its answer counts."""
        position = self._wanted.get(key)
        return position is not None and self._sent.get(key) == position

    def build(self) -> SessionRequest | None:
        """The next request; None if there is nothing to fetch."""
        wanted = self._wanted
        if not wanted:
            return None
        if self._epoch == INITIAL_EPOCH:
            self._sent = dict(wanted)
            self._changed.clear()
            return SessionRequest(self._id, INITIAL_EPOCH, list(wanted.items()), [])
        added: list[tuple[PartitionKey, Position]] = []
        forgotten: list[PartitionKey] = []
        for key in self._changed:
            position = wanted.get(key)
            if position is None:
                forgotten.append(key)
                del self._sent[key]
            else:
                added.append((key, position))
                self._sent[key] = position
        self._changed.clear()
        return SessionRequest(self._id, self._epoch, added, forgotten)

    def answered(self, session_id: int, keys: Collection[PartitionKey]) -> str | None:
        """The leader has answered with these partitions. Returns why the answer cannot be used, if so."""
        is_full = self._epoch == INITIAL_EPOCH
        extra = sum(key not in self._sent for key in keys)
        omitted = len(self._sent) - (len(keys) - extra) if is_full else 0
        if extra or omitted:
            if is_full:
                self._id = NO_SESSION
            self._epoch = INITIAL_EPOCH
            return f"{extra} partitions were not asked for, {omitted} are left out"
        if session_id == NO_SESSION:
            # The leader keeps no session, or has ended it.
            self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        elif is_full:
            self._id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch == _MAX_INT32 else self._epoch + 1
        return None

    def refused(self, code: int) -> None:
        """The leader has answered with an error for the whole request."""
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH

    def lost(self) -> None:
        """No answer came: whether the leader's session has taken the request is not known."""
        self._epoch = INITIAL_EPOCH

    def _compare(self, key: PartitionKey) -> None:
        if self._wanted.get(key) == self._sent.get(key):
            self._changed.pop(key, None)
        else:
            self._changed[key] = None
