"""The log of a librdkafka producer about its own Produce requests, with the records of each and how it ended.

Kafka keeps the order of a producer that is not idempotent only if its client sends in order. With `max.in.flight` 1,
librdkafka has one request on the wire and builds the next one at the same time. The broker may refuse the first,
because it does not lead the partition yet. Then the next one is still sent, and the records of the first are sent again
after it. So the order that the broker must keep is that of the requests, and an account has the order of the requests.

The rules for the log are in journal.py. Invariants: requests end in the order in which they were built (one thread, one
connection at a time). A request holds the lowest numbers that are neither in another request nor delivered, because
librdkafka sorts what it sends again before what it has never sent. An account is for a single partition. A line that
does not fit these invariants is kept in `broken`, because an exception in a logger would be lost.
"""

from __future__ import annotations

import enum
import logging
import re
from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

#: Settings with which the client logs everything that is read here. With the default, rebootstrap, librdkafka makes a
#: new thread for a broker that was away. That thread may send new records before the old thread gives up those that it
#: had sent. The settings are for a client of one broker. A client of several brokers forgets those that are away, and
#: has no address left when the last one that it knows dies.
SAYS_ITS_REQUESTS = {"debug": "msg", "log_level": 7, "metadata.recovery.strategy": "none"}

_BUILT = re.compile(r": Produce MessageSet with (\d+) message\(s\)")
_ENDED = re.compile(
    r": MessageSet with (\d+) message\(s\) \(.*?\) (?:(delivered)|encountered error: .* \(actions (\S*)\))"
)


class Fate(enum.Enum):
    #: the broker may have the records or not, because no answer came
    UNKNOWN = "unknown"
    #: acknowledged
    DELIVERED = "delivered"
    #: the broker answered with an error after which the client believes that nothing was appended
    REFUSED = "refused"


@dataclass(slots=True)
class Attempt:
    """One Produce request, with the numbers of its records in their order."""

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
        """Read one line of the client's log."""
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


class Hearing(Protocol):
    """An account of a client, which reads the lines that the client logs."""

    def hear(self, line: str) -> None: ...


class Listener(logging.Handler):
    """Gives every line that the client logs to an account."""

    def __init__(self, account: Hearing) -> None:
        super().__init__()
        self._account = account

    def emit(self, record: logging.LogRecord) -> None:
        self._account.hear(record.getMessage())


def listening(name: str, account: Hearing) -> logging.Logger:
    """Return a logger for one client; none of its lines reach other loggers."""
    logger = logging.Logger(name, logging.DEBUG)
    logger.addHandler(Listener(account))
    return logger
