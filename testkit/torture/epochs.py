"""The log of an idempotent librdkafka producer about its epochs, with the records that it may have written twice.

Kafka writes the batches of a producer once within one producer epoch. A broker that refuses one request and takes the
next one answers OUT_OF_ORDER_SEQUENCE_NUMBER to it. librdkafka goes on with a new epoch then, and sends again all that
was not acknowledged. A request whose answer was lost may be in the log already, so its records are there twice. This
happens when the leader changes while requests are on their way, with any broker (librdkafka's issue 4953).

A broker that lost the state of its producers makes the client repeat records too, and that is an error of the broker.
It gives this error to the repetition of a record that is in its log, where it should recognize the repetition. So the
new leader must have refused the repetition, and the error must have come to a later request.

The rules for the log are in journal.py, and test_order.py has the client's behavior. Invariants: a record may be
repeated only if no answer came to a request with it, a broker refused a later request with it, and a new epoch began
after that. None of its requests in that epoch may have been answered with an error about the sequence or the producer.
The client writes into one partition, whose messages it numbers from 1.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass, field

#: Settings with which the client logs everything that is read here.
SAYS_ITS_EPOCHS = {"debug": "msg,eos", "log_level": 7}

_FAILED = re.compile(
    r": MessageSet with (\d+) message\(s\) \(MsgId (\d+),.*?\) encountered error: (.*) "
    r"\(actions \S*(MsgPossiblyPersisted|MsgNotPersisted)"
)
#: librdkafka counts these errors among those that leave it open, but the broker has appended nothing, and says that no
#: batch with these records is there.
_NOT_KNOWN = re.compile("out of order sequence number|Unknown Producer Id")
_EPOCH_BEGUN = re.compile(r" changed PID\{.*?\} -> PID\{.*?\} with base MsgId (\d+)")


@dataclass(slots=True)
class Repeats:
    """The records that one client may have written again."""

    #: for each epoch that repeats records, those that may be in the log before it
    by_epoch: list[Set[int]] = field(default_factory=list)
    _unanswered: set[int] = field(default_factory=set)
    #: those without an answer whose repetition a broker refused
    _refused: set[int] = field(default_factory=set)
    _not_known: set[int] = field(default_factory=set)

    def hear(self, line: str) -> None:
        """Read one line of the client's log."""
        if failed := _FAILED.search(line):
            count, message_id, error, outcome = failed.groups()
            first = int(message_id) - 1
            numbers = set(range(first, first + int(count)))
            if _NOT_KNOWN.search(error):
                self._not_known |= numbers
            elif outcome == "MsgPossiblyPersisted":
                self._unanswered |= numbers
            elif error.startswith("Broker: "):
                self._refused |= numbers & self._unanswered
        elif begun := _EPOCH_BEGUN.search(line):
            first = int(begun[1]) - 1
            again = frozenset(number for number in self._refused - self._not_known if number >= first)
            if again:
                self.by_epoch.append(again)
            for numbers in (self._unanswered, self._refused, self._not_known):
                numbers.clear()

    def has(self, number: int) -> bool:
        """Return True if this record may be there more than once."""
        return any(number in again for again in self.by_epoch)
