"""The log of an idempotent librdkafka producer about its epochs, with the records that it may have written twice.

Kafka writes the batches of a producer once within one producer epoch. A broker that refuses one request and takes the
next one answers OUT_OF_ORDER_SEQUENCE_NUMBER to it. librdkafka goes on with a new epoch then, and sends again all that
was not acknowledged. A request whose answer was lost may be in the log already, so its records are there twice. This
happens when the leader changes while requests are on their way, with any broker (librdkafka's issue 4953).

The rules for the log are in journal.py, and test_order.py has the client's behavior. Invariants: a record may be
repeated only if no answer came to a request with it, and a new epoch began after that. The client writes into one
partition, whose messages it numbers from 1.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass, field

#: Settings with which the client logs everything that is read here.
SAYS_ITS_EPOCHS = {"debug": "msg,eos", "log_level": 7}

_UNANSWERED = re.compile(
    r": MessageSet with (\d+) message\(s\) \(MsgId (\d+),.*?\) encountered error: (.*) "
    r"\(actions \S*MsgPossiblyPersisted"
)
#: librdkafka counts this error among those that leave it open, but the broker has appended nothing.
_REFUSED = "out of order sequence number"
_EPOCH_BEGUN = re.compile(r" changed PID\{.*?\} -> PID\{.*?\} with base MsgId (\d+)")


@dataclass(slots=True)
class Repeats:
    """The records that one client may have written again."""

    #: for each epoch that repeats records, those that may be in the log before it
    by_epoch: list[Set[int]] = field(default_factory=list)
    _unanswered: set[int] = field(default_factory=set)

    def hear(self, line: str) -> None:
        """Read one line of the client's log."""
        if failed := _UNANSWERED.search(line):
            if _REFUSED not in failed[3]:
                first = int(failed[2]) - 1
                self._unanswered.update(range(first, first + int(failed[1])))
        elif begun := _EPOCH_BEGUN.search(line):
            first = int(begun[1]) - 1
            again = frozenset(number for number in self._unanswered if number >= first)
            if again:
                self.by_epoch.append(again)

    def has(self, number: int) -> bool:
        """Return True if this record may be there more than once."""
        return any(number in again for again in self.by_epoch)
