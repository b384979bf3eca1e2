"""Incremental fetch sessions (KIP-227): this broker stores the partitions that a client reads between its fetches.

Responsible for the partitions of a fetch, and for the choice of partitions in an incremental answer. Not responsible
for reading. Bounded by max.incremental.fetch.session.cache.slots and, beyond Apache Kafka, by KEPT_PARTITIONS, because
any client may name partitions that do not exist. A client that gets no session sends full fetches.

The session epoch is 0 in a fetch that asks for a new session, and -1 in a fetch that wants no session. Otherwise it
counts 1, 2, … 2^31-1, and then from 1 again.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pykbroker_wire.errors import ErrorCode

if TYPE_CHECKING:
    from pykbroker.metrics.registry import Metrics
    from pykbroker.replica.partition import Partition

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
#: The most partitions in all sessions of consumers together. They take up to about 150 MB.
KEPT_PARTITIONS = 500_000
#: A session that was used within this time is only evicted for a session that has priority (KIP-227; see `_evict`).
MIN_EVICTION_SECONDS = 120.0

#: topic id (or name before version 13) and partition index
SessionKey = tuple[bytes | str, int]


def next_epoch(epoch: int) -> int:
    """Return the epoch after `epoch`."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == 2**31 - 1 else epoch + 1


class SessionPartition:
    """One partition of a fetch: the fields of the client's request, and the values in the last answer that it got."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
        "topic_id",
        "verified_epoch",
    )

    def __init__(self, topic: str | None, topic_id: bytes, index: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.fetch_offset = 0
        self.log_start_offset = -1
        self.max_bytes = 0
        self.current_leader_epoch = -1
        self.last_fetched_epoch = -1
        self.partition: Partition | None = None
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        #: the leader epoch in which the follower's present offset was checked; -1 if it has not been checked
        self.verified_epoch = -1

    def worth_telling(
        self, error: int, has_news: bool, high_watermark: int, log_start_offset: int, *, diverges: bool = False
    ) -> bool:
        """Return True if an incremental answer has to contain this partition, and store the values of the answer.
        `has_news`: the answer has records, or another replica to read from. `diverges`: it has a diverging epoch."""
        changed = has_news
        if self.sent_high_watermark != high_watermark:
            self.sent_high_watermark = high_watermark
            changed = True
        if self.sent_log_start_offset != log_start_offset:
            self.sent_log_start_offset = log_start_offset
            changed = True
        if error or diverges:
            # With -1 the partition is also in the next answer. So an error is repeated until it has ended, and its end
            # is reported once. A follower whose log diverges ignores the high watermark until it has truncated, so it
            # gets the high watermark again.
            self.sent_high_watermark = -1
            changed = True
        return changed


class FetchSession:
    """One session. Partitions that had records move to the end of `partitions`, so that each partition gets its
    turn."""

    __slots__ = ("created", "epoch", "id", "last_used", "partitions", "privileged", "uses_topic_ids")

    def __init__(self, session_id: int, privileged: bool, uses_topic_ids: bool, now: float) -> None:
        self.id = session_id
        self.epoch = 1
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.created = now
        self.last_used = now
        self.partitions: dict[SessionKey, SessionPartition] = {}

    def move_to_end(self, key: SessionKey) -> None:
        entry = self.partitions.pop(key, None)
        if entry is not None:
            self.partitions[key] = entry


class FetchSessions:
    """The cache, with the least recently used session first."""

    def __init__(self, slots: int, rng: random.Random, metrics: Metrics) -> None:
        self._slots = slots
        self._random = rng
        self._sessions: dict[int, FetchSession] = {}
        name = "kafka.server:type=FetchSessionCache,name="
        metrics.gauge(name + "NumIncrementalFetchSessions", lambda: len(self))
        metrics.gauge(name + "NumIncrementalFetchPartitionsCached", self.partition_count)
        self._evictions = metrics.counter(name + "IncrementalFetchSessionEvictionsPerSec")

    def __len__(self) -> int:
        return len(self._sessions)

    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def make_room(self, partitions: int, now: float) -> bool:
        """Return True if there is room for this many more partitions of consumers. To make room, sessions of consumers
        that were unused for long are closed. Sessions of followers do not count."""
        consumers = [session for session in self._sessions.values() if not session.privileged]
        over = sum(len(session.partitions) for session in consumers) + partitions - KEPT_PARTITIONS
        for session in consumers:
            if over <= 0 or now - session.last_used <= MIN_EVICTION_SECONDS:
                break
            over -= len(session.partitions)
            self.close(session.id)
            self._evictions.value += 1
        return over <= 0

    def find(self, session_id: int, epoch: int, uses_topic_ids: bool, now: float) -> FetchSession | ErrorCode:
        """Return the session of an incremental fetch, with its epoch advanced, or the error for the whole answer."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.epoch = next_epoch(epoch)
        session.last_used = now
        # Move it to the end. Dicts keep insertion order, so the first is the least recently used.
        del self._sessions[session_id]
        self._sessions[session_id] = session
        return session

    def peek(self, session_id: int) -> FetchSession | None:
        """Return a session without marking it as used."""
        return self._sessions.get(session_id)

    def close(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def create(
        self,
        partitions: Iterable[tuple[SessionKey, SessionPartition]],
        *,
        privileged: bool,
        uses_topic_ids: bool,
        now: float,
    ) -> FetchSession | None:
        """Return a new session, or None if the cache is full of sessions that have priority. `privileged`: the session
        belongs to a broker that may fetch as a follower."""
        if self._slots <= 0:
            return None
        members = dict(partitions)
        if not privileged and not self.make_room(len(members), now):
            return None
        if len(self._sessions) >= self._slots and not self._evict(len(members), privileged, now):
            return None
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._random.randrange(1, 2**31 - 1)
        session = FetchSession(session_id, privileged, uses_topic_ids, now)
        session.partitions = members
        self._sessions[session_id] = session
        return session

    def _evict(self, size: int, privileged: bool, now: float) -> bool:
        oldest = next(iter(self._sessions.values()))
        if now - oldest.last_used > MIN_EVICTION_SECONDS:
            victim = oldest
        else:
            # Followers have priority over consumers, then larger sessions over smaller ones that are not new.
            candidates = [
                session
                for session in self._sessions.values()
                if (privileged and not session.privileged)
                or (
                    session.privileged <= privileged
                    and len(session.partitions) < size
                    and now - session.created > MIN_EVICTION_SECONDS
                )
            ]
            if not candidates:
                return False
            victim = min(candidates, key=lambda session: len(session.partitions))
        del self._sessions[victim.id]
        self._evictions.value += 1
        return True
