"""One partition as its fetcher sees it: how far it is fetched, in which leader epoch, and what it waits for.

Responsible for the phases and which may follow which. Not responsible for what an answer means (fetcher.py).

Invariant: a phase changes only as `_FOLLOWS` says; what has ENDED never changes again, so that whatever comes late
finds nothing to change.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Protocol

from pykbroker.replica.fetching.divergence import Epochs
from pykbroker.replica.fetching.session import PartitionKey, Position

#: No epoch in the log, or none that is known.
NO_EPOCH = -1


class Phase(Enum):
    #: records are asked for, unless it is delayed
    FETCHING = auto()
    #: the replica appends, flushes or cuts what the leader said
    WORKING = auto()
    #: the leader's log does not have the fetch offset: its end is asked for
    ASKING_END = auto()
    #: and then its start
    ASKING_START = auto()
    #: fetched no more by this fetcher: another role, another leader epoch, another fetcher, or it failed
    ENDED = auto()


_FOLLOWS: dict[Phase, frozenset[Phase]] = {
    Phase.FETCHING: frozenset({Phase.WORKING, Phase.ASKING_END, Phase.ENDED}),
    Phase.WORKING: frozenset({Phase.FETCHING, Phase.ENDED}),
    Phase.ASKING_END: frozenset({Phase.ASKING_START, Phase.WORKING, Phase.FETCHING, Phase.ENDED}),
    Phase.ASKING_START: frozenset({Phase.WORKING, Phase.FETCHING, Phase.ENDED}),
    Phase.ENDED: frozenset(),
}


class FetchedLog(Epochs, Protocol):
    """What a fetcher asks of a replica's log. Everything here raises KafkaError when the log cannot be used."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch that the log knows; -1 if it knows none."""


class PartitionFetch:
    """One leader epoch of one partition, in one fetcher."""

    __slots__ = (
        "fetch_offset",
        "index",
        "is_delayed",
        "is_held",
        "key",
        "lag",
        "last_fetched_epoch",
        "leader_epoch",
        "leader_high_watermark",
        "log_start_offset",
        "not_yet",
        "phase",
        "replica",
        "topic",
        "topic_id",
        "unknown",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int, leader_epoch: int, replica: FetchedLog) -> None:
        """Raises KafkaError when the log cannot be used."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.key: PartitionKey = (topic_id, index)
        self.leader_epoch = leader_epoch
        self.replica = replica
        self.phase = Phase.FETCHING
        #: answers in a row by which the leader has not heard of its leadership
        self.not_yet = 0
        #: answers in a row by which the leader does not know the topic
        self.unknown = 0
        #: an error is waited out
        self.is_delayed = False
        #: it is throttled, and the quota is exceeded
        self.is_held = False
        #: what the leader said last; -1 before it has said anything in this epoch
        self.leader_high_watermark = -1
        #: by how many committed records the replica is behind; -1: not known yet
        self.lag = -1
        self.fetch_offset = self.last_fetched_epoch = self.log_start_offset = 0
        self.look()

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    def look(self) -> bool:
        """Take over where the replica's log ends now. Returns whether the leader is asked another question than before.
        Raises KafkaError."""
        replica = self.replica
        before = self.fetch_offset, self.last_fetched_epoch
        self.fetch_offset = replica.log_end_offset
        self.last_fetched_epoch = replica.latest_epoch
        self.log_start_offset = replica.log_start_offset
        if self.leader_high_watermark >= 0:
            self.lag = max(0, self.leader_high_watermark - self.fetch_offset)
        return before != (self.fetch_offset, self.last_fetched_epoch)

    @property
    def is_ready(self) -> bool:
        """It belongs into the next Fetch."""
        return self.phase is Phase.FETCHING and not self.is_delayed and not self.is_held

    @property
    def is_in_sync(self) -> bool:
        """The replica has all that is committed, as far as the leader has said."""
        return self.lag == 0

    @property
    def position(self) -> Position:
        return Position(self.fetch_offset, self.leader_epoch, self.last_fetched_epoch, self.log_start_offset)

    def enter(self, phase: Phase) -> None:
        assert phase in _FOLLOWS[self.phase], f"{self}: {phase.name} after {self.phase.name}"
        self.phase = phase
