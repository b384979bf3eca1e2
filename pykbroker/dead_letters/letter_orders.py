"""One order of letters, which is a range of records of one share partition, and the requests that come of orders. Pure
values; writer_machine.py drives them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from pykbroker.dead_letters.letter_batches import KeyAndValue, LetterFrame
from pykbroker.dead_letters.letter_topics import LetterPartition
from pykbroker.retries.tries import Tries

if TYPE_CHECKING:
    from pykbroker.share_leaders.dead_letters import DeadLetters


class OrderStage(Enum):
    """Where an order is. `writer_machine.py` has the order in a collection for each stage but the last two."""

    #: waits for its turn to look at the topic
    QUEUED = auto()
    #: waits for the creation of the topic
    CREATING = auto()
    #: waits for its next try
    RESTING = auto()
    #: waits for its turn to read the source log
    UNREAD = auto()
    #: the source log is read
    READING = auto()
    #: its next letters can be sent
    READY = auto()
    #: its next letters are under way
    SENT = auto()
    ENDED = auto()


class LetterPlace(NamedTuple):
    """A partition of a dead letter topic and the broker that leads it."""

    node_id: int
    topic_id: bytes
    partition: int


class AppendedLetters(NamedTuple):
    """Letters that are in the log of a leader: the place, which is a partition in one leader epoch, and the offset
    after the last of them."""

    place: Hashable
    after: int


@dataclass(slots=True, eq=False)
class LetterOrder:
    """Letters to write. The fields after `frame` are notes of the machine."""

    letters: DeadLetters
    frame: LetterFrame
    #: the first offset whose letter is not written yet
    next_offset: int = 0
    stage: OrderStage = OrderStage.QUEUED
    #: the partition to which the next letters go, once the topic is known
    target: LetterPartition | None = None
    #: what was read for the next letters; None if it must be read first
    copies: dict[int, KeyAndValue] | None = None
    #: the last offset that `copies` decides
    copies_through: int = -1
    #: the bytes of `copies`, and the broker whose share of the memory they take (copy_reads.py)
    held_bytes: int = 0
    held_by: int = -1
    #: the time from which on the order no longer waits for a source log that cannot be read yet, None before the first
    #: wait
    patient_until: float | None = None
    #: The most bytes of a batch with this order, 0 for the machine's limit. A leader has refused a larger one.
    most_bytes: int = 0
    #: letters that a leader has appended, without knowing that they are on enough replicas
    appended: AppendedLetters | None = None
    #: the failures in a row
    tries: Tries = field(default_factory=Tries)
    #: why it was given up; empty if all its letters are written
    problem: str = ""

    def __post_init__(self) -> None:
        self.next_offset = self.letters.first_offset

    @property
    def place(self) -> LetterPlace:
        """The place of an order whose topic is known."""
        assert self.target is not None
        return LetterPlace(self.target.leader, self.target.topic_id, self.target.partition)

    def last_known(self) -> int:
        """The last offset whose letter is known: the last of all, or of those that `copies` decides."""
        last = self.letters.last_offset
        return last if self.copies is None else min(last, self.copies_through)


class ReadSource(NamedTuple):
    """Read keys and values for an order, from its next offset to `last`. The end is `source_read`."""

    order: LetterOrder
    last: int
    #: the most bytes of a batch of the topic
    most_bytes: int


class CreateTopic(NamedTuple):
    """Create a dead letter topic. The end is `created`."""

    name: str


@dataclass(slots=True, eq=False)
class SendLetters:
    """Send one Produce to a broker. The end is `answered` or `failed`."""

    node_id: int
    batches: Mapping[LetterPartition, bytes]
    #: Each order of a batch, and the offset after its last letter in the batch. Orders leave it when another broker
    #: leads their partition (sent_requests.py).
    orders: dict[LetterPartition, list[tuple[LetterOrder, int]]] = field(default_factory=dict)
    #: when it was made
    began: float = 0.0
