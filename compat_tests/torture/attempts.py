"""What a librdkafka producer says of its own Produce requests: which records each held, and how it ended.

Kafka keeps the order of a producer that is not idempotent only as far as its client sends in order. librdkafka with
`max.in.flight` 1 has one request on the wire and builds the next one meanwhile. If the broker refuses the first (it
leads the partition not yet), the next one is sent all the same, and the records of the first are sent again behind it.
So the order that the broker must keep is that of the requests, and this account is the order of the requests.

Not here: what the log must hold (journal.py). Invariants: requests end in the order in which they were built (one
thread, one connection at a time); a request holds the lowest numbers that are neither in another request nor delivered,
as librdkafka sorts what it sends again before what it never sent. The account is one of a single partition. What does
not fit these is kept in `broken`: an exception in a logger would be lost.
"""

from __future__ import annotations

import enum
import logging
import re
from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

#: Settings of the client with which it says all that is read here. With the default, rebootstrap, librdkafka makes a
#: new thread for a broker that was away, which may send what is new before the old thread gives up what it had sent.
#: For a client of one broker: of several it forgets those that are away, and has nowhere to go when the last one that
#: it knows dies.
SAYS_ITS_REQUESTS = {"debug": "msg", "log_level": 7, "metadata.recovery.strategy": "none"}

_BUILT = re.compile(r": Produce MessageSet with (\d+) message\(s\)")
_ENDED = re.compile(
    r": MessageSet with (\d+) message\(s\) \(.*?\) (?:(delivered)|encountered error: .* \(actions (\S*)\))"
)


class Fate(enum.Enum):
    #: the broker may have it or not: no answer came
    UNKNOWN = "unknown"
    #: acknowledged
    DELIVERED = "delivered"
    #: the broker answered with an error after which the client believes that nothing was appended
    REFUSED = "refused"


@dataclass(slots=True)
class Attempt:
    """One Produce request: the numbers of its records in their order."""

    numbers: Sequence[int]
    fate: Fate = Fate.UNKNOWN


@dataclass(slots=True)
class Account:
    attempts: list[Attempt] = field(default_factory=list)
    #: the first line that does not fit
    broken: str = ""
    _under_way: deque[Attempt] = field(default_factory=deque)
    #: records to be sent again, in order
    _again: list[int] = field(default_factory=list)
    _next: int = 0

    def hear(self, line: str) -> None:
        """One line of the client's log."""
        if built := _BUILT.search(line):
            self._built(int(built[1]))
        elif ended := _ENDED.search(line):
            if not self._under_way or len(self._under_way[0].numbers) != int(ended[1]):
                self.broken = self.broken or line
                return
            self._ended(delivered=ended[2] is not None, actions=ended[3] or "")

    def _built(self, count: int) -> None:
        again = self._again[:count]
        del self._again[:count]
        fresh = range(self._next, self._next + count - len(again))
        self._next = fresh.stop
        attempt = Attempt((*again, *fresh) if again else fresh)
        self.attempts.append(attempt)
        self._under_way.append(attempt)

    def _ended(self, *, delivered: bool, actions: str) -> None:
        attempt = self._under_way.popleft()
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
