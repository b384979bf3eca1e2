"""The follower's side of a fetch session (KIP-227, KIP-516): after the first, a fetch contains only changed partitions;
pure.

Responsible for session id and epoch, for this side's view of the leader's session, and for checking that an answer fits
it. Not responsible for the fetch positions (fetcher.py), nor for sending.

Invariants:
* At most one request is under way.
* If the leader's session may differ from this side's view, the next request is a full fetch, which closes the session
  and makes a new session.
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
    """The position of a fetch in one partition."""

    fetch_offset: int
    leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int


@dataclass(slots=True, frozen=True)
class SessionRequest:
    """The content of one Fetch."""

    session_id: int
    session_epoch: int
    partitions: list[tuple[PartitionKey, Position]]
    forgotten: list[PartitionKey]


class FollowerSession:
    """The session with one leader."""

    __slots__ = ("_changed", "_epoch", "_id", "_sent", "_wanted")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        # The positions to fetch. The partition that was fetched last is at the end, so a full fetch begins with the
        # partitions that have waited longest.
        self._wanted: dict[PartitionKey, Position] = {}
        # The positions in the leader's session, as far as this side knows.
        self._sent: dict[PartitionKey, Position] = {}
        # The partitions whose position differs between `_wanted` and `_sent`, in the order in which the difference
        # began.
        self._changed: dict[PartitionKey, None] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, key: PartitionKey, position: Position) -> None:
        """Fetch the partition from this position on."""
        self._wanted.pop(key, None)
        sent = self._sent.get(key)
        # Most positions do not change. To save memory, an equal position uses the object in `_sent`.
        self._wanted[key] = sent if sent == position else position
        self._compare(key)

    def drop(self, key: PartitionKey) -> None:
        """Stop fetching the partition."""
        self._wanted.pop(key, None)
        self._compare(key)

    def is_current(self, key: PartitionKey) -> bool:
        """Return True if the leader has the present position of the partition. Only then its answer counts."""
        position = self._wanted.get(key)
        return position is not None and self._sent.get(key) == position

    def build(self) -> SessionRequest | None:
        """Return the next request, or None if there is nothing to fetch."""
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
        """Take the leader's answer, which has these partitions. Return the reason if the answer cannot be used, else
        None."""
        is_full = self._epoch == INITIAL_EPOCH
        extra = sum(key not in self._sent for key in keys)
        omitted = len(self._sent) - (len(keys) - extra) if is_full else 0
        if extra or omitted:
            if is_full:
                self._id = NO_SESSION
            self._epoch = INITIAL_EPOCH
            return f"{extra} partitions were not asked for, {omitted} are left out"
        if session_id == NO_SESSION:
            # The leader has made no session, or has ended it.
            self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        elif is_full:
            self._id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch == _MAX_INT32 else self._epoch + 1
        return None

    def refused(self, code: int) -> None:
        """Note that the leader answered with an error for the whole request."""
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH

    def lost(self) -> None:
        """Note that no answer came. It is unknown whether the leader has applied the request to its session."""
        self._epoch = INITIAL_EPOCH

    def _compare(self, key: PartitionKey) -> None:
        if self._wanted.get(key) == self._sent.get(key):
            self._changed.pop(key, None)
        else:
            self._changed[key] = None
