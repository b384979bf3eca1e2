"""What a librdkafka producer says of its own Produce requests: which records each held, and how it ended.

Kafka keeps the order of a producer that is not idempotent only as far as its client sends in order. librdkafka with
`max.in.flight` 1 has one request on the wire and builds the next one meanwhile. If the broker refuses the first (it
leads the partition not yet), the next one is sent all the same, and the records of the first are sent again behind it.
So the order that the broker must keep is that of the requests, and this account is the order of the requests.

Not here: what the log must hold (journal.py). Invariants: requests end in the order in which they were built (one
connection); a request holds the lowest numbers that are neither in another request nor delivered, as librdkafka
sorts what it sends again before what it never sent. The account is one of a single partition.
"""

from __future__ import annotations

import enum
import logging
import re
from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

#: Settings of the client with which it says all that is read here.
SAYS_ITS_REQUESTS = {"debug": "msg", "log_level": 7}

_BUILT = re.compile(r": Produce MessageSet with (\d+) message\(s\)")
_ENDED = re.compile(
    r": MessageSet with (\d+) message\(s\) \(.*?\) (?:(delivered)|encountered error: .* \(actions (\S*)\))"
)


class Fate(enum.Enum):
    #: the broker may have it or not: no answer came
    UNKNOWN = "unknown"
    #: acknowledged
    DELIVERED = "delivered"
    #: the broker answered that it has not appended the records
    REFUSED = "refused"


@dataclass(slots=True)
class Attempt:
    """One Produce request: the numbers of its records in their order."""

    numbers: Sequence[int]
    fate: Fate = Fate.UNKNOWN


@dataclass(slots=True)
class Account:
    attempts: list[Attempt] = field(default_factory=list)
    _under_way: deque[Attempt] = field(default_factory=deque)
    #: records to be sent again, in order
    _again: list[int] = field(default_factory=list)
    _next: int = 0

    def hear(self, line: str) -> None:
        """One line of the client's log."""
        if built := _BUILT.search(line):
            self._built(int(built[1]))
        elif ended := _ENDED.search(line):
            self._ended(int(ended[1]), delivered=ended[2] is not None, actions=ended[3] or "")

    def _built(self, count: int) -> None:
        again = self._again[:count]
        del self._again[:count]
        fresh = range(self._next, self._next + count - len(again))
        self._next = fresh.stop
        attempt = Attempt((*again, *fresh) if again else fresh)
        self.attempts.append(attempt)
        self._under_way.append(attempt)

    def _ended(self, count: int, *, delivered: bool, actions: str) -> None:
        attempt = self._under_way.popleft()
        assert len(attempt.numbers) == count, f"a request of {len(attempt.numbers)} records ended as one of {count}"
        if delivered:
            attempt.fate = Fate.DELIVERED
            return
        if "MsgNotPersisted" in actions:
            attempt.fate = Fate.REFUSED
        for number in attempt.numbers:
            insort(self._again, number)


class Listener(logging.Handler):
    """Gives an account every line that the client logs."""

    def __init__(self, account: Account) -> None:
        super().__init__()
        self._account = account

    def emit(self, record: logging.LogRecord) -> None:
        self._account.hear(record.getMessage())


def listening(name: str, account: Account) -> logging.Logger:
    """A logger of its own for a client; nothing of it reaches other loggers."""
    logger = logging.Logger(name, logging.DEBUG)
    logger.addHandler(Listener(account))
    return logger
