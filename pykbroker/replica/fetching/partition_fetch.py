"""One partition in its fetcher: its fetch position, its leader epoch and its phase.

Responsible for the phases and their order. Not responsible for the meaning of an answer (fetcher.py).

Invariant: a phase changes only as `_FOLLOWS` allows. A partition in the phase ENDED never changes again, so late
results have no effect.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Protocol

from pykbroker.replica.fetching.divergence import Epochs
from pykbroker.replica.fetching.session import PartitionKey, Position

#: The log has no epoch, or no known one.
NO_EPOCH = -1


class Phase(Enum):
    #: the fetcher asks for records, unless the partition is delayed
    FETCHING = auto()
    #: the replica appends, flushes or truncates, as the answer requires
    WORKING = auto()
    #: the leader's log does not have the fetch offset, so the fetcher asks for the end of the leader's log
    ASKING_END = auto()
    #: the fetcher asks for the start of the leader's log, after it has got the end
    ASKING_START = auto()
    #: this fetcher no longer fetches the partition, which has another role, leader epoch or fetcher, or has failed
    ENDED = auto()


_FOLLOWS: dict[Phase, frozenset[Phase]] = {
    Phase.FETCHING: frozenset({Phase.WORKING, Phase.ASKING_END, Phase.ENDED}),
    Phase.WORKING: frozenset({Phase.FETCHING, Phase.ENDED}),
    Phase.ASKING_END: frozenset({Phase.ASKING_START, Phase.WORKING, Phase.FETCHING, Phase.ENDED}),
    Phase.ASKING_START: frozenset({Phase.WORKING, Phase.FETCHING, Phase.ENDED}),
    Phase.ENDED: frozenset(),
}


class FetchedLog(Epochs, Protocol):
    """The queries of a fetcher to a replica's log. All of them raise KafkaError if the log cannot be used."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log, or -1 if the log has none."""


class PartitionFetch:
    """The fetching of one partition in one leader epoch, by one fetcher."""

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
        """Raises KafkaError if the log cannot be used."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.key: PartitionKey = (topic_id, index)
        self.leader_epoch = leader_epoch
        self.replica = replica
        self.phase = Phase.FETCHING
        #: the number of consecutive answers of a leader that has not got the metadata of its leadership
        self.not_yet = 0
        #: the number of consecutive answers of a leader whose metadata does not have the topic
        self.unknown = 0
        #: True while the partition pauses after an error
        self.is_delayed = False
        #: True while the partition is left out, because it is throttled and the quota is exceeded
        self.is_held = False
        #: the high watermark in the leader's last answer, or -1 before its first answer in this epoch
        self.leader_high_watermark = -1
        #: the number of committed records that the replica lacks, or -1 if unknown
        self.lag = -1
        self.fetch_offset = self.last_fetched_epoch = self.log_start_offset = 0
        self.look()

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    def look(self) -> bool:
        """Read the end of the replica's log. Return True if the fetch offset or its epoch has changed. Raises
        KafkaError."""
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
        """True if the partition belongs in the next Fetch."""
        return self.phase is Phase.FETCHING and not self.is_delayed and not self.is_held

    @property
    def is_in_sync(self) -> bool:
        """True if the replica has all committed records, as far as the leader has reported them."""
        return self.lag == 0

    @property
    def position(self) -> Position:
        return Position(self.fetch_offset, self.leader_epoch, self.last_fetched_epoch, self.log_start_offset)

    def enter(self, phase: Phase) -> None:
        assert phase in _FOLLOWS[self.phase], f"{self}: {phase.name} after {self.phase.name}"
        self.phase = phase
