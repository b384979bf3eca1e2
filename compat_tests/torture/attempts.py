"""What a librdkafka producer says of its own Produce requests: which records each held, and how it ended.

Kafka keeps the order of a producer that is not idempotent only as far as its client sends in order. librdkafka with
`max.in.flight` 1 has one request on the wire and builds the next one meanwhile. If the broker refuses the first (it
leads the partition not yet), the next one is sent all the same, and the records of the first are sent again behind it.
So the order that the broker must keep is that of the requests, and this account is the order of the requests.

Not here: what the log must hold (journal.py).

Invariants
* Requests to one broker end in the order in which they were built (one thread, one connection at a time). When the
  leader changes, those to the old one and those to the new one end in any order.
* A request holds the lowest numbers that are neither in another request nor delivered, as librdkafka sorts what it
  sends again before what it never sent. That is so while one broker leads (`is_exact`): when the leader changes, the
  thread of the new one may send what is new before the thread of the old one hands back what it had sent. The client
  does not say which records a request holds (MsgId is 0 without idempotence), so only the counts are sure then.

The account is one of a single partition. What does not fit these is kept in `broken`: an exception in a logger would be
lost.
"""

from __future__ import annotations

import enum
import logging
import re
from bisect import insort
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

#: Settings of the client with which it says all that is read here. With the default, rebootstrap, librdkafka makes a
#: new thread for a broker that was away, which may send what is new before the old thread gives up what it had sent.
#: With `none` it forgets brokers that are away, and goes nowhere else when the last one that it knows dies: so it asks
#: often which are back.
SAYS_ITS_REQUESTS = {
    "debug": "msg",
    "log_level": 7,
    "metadata.recovery.strategy": "none",
    "topic.metadata.refresh.interval.ms": 200,
}

_THREAD = re.compile(r"\[thrd:(.*?)\]")
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
    #: the client's thread that sent it; one for each broker
    thread: str = ""
    #: after how many requests of the account were built it ended; -1 while it is under way
    ended_after: int = -1

    def __str__(self) -> str:
        said = f"{self.numbers[0]} to {self.numbers[-1]} {self.fate.value}"
        return f"{said} ({self.thread}, ended after request {self.ended_after})" if self.thread else said


@dataclass(slots=True)
class Account:
    attempts: list[Attempt] = field(default_factory=list)
    #: the first line that does not fit
    broken: str = ""
    #: by the thread that serves a broker
    _under_way: defaultdict[str, deque[Attempt]] = field(default_factory=lambda: defaultdict(deque))
    #: records to be sent again, in order
    _again: list[int] = field(default_factory=list)
    _next: int = 0

    @property
    def is_exact(self) -> bool:
        """Whether the numbers of each request are sure."""
        return len(self._under_way) <= 1

    def most_copies(self) -> int:
        """How many records the log holds at most."""
        return sum(len(attempt.numbers) for attempt in self.attempts)

    def hear(self, line: str) -> None:
        """One line of the client's log."""
        built, ended = _BUILT.search(line), _ENDED.search(line)
        if built is None and ended is None:
            return
        thread = _THREAD.search(line)
        name = "" if thread is None else thread[1]
        under_way = self._under_way[name]
        if built is not None:
            under_way.append(self._built(int(built[1]), name))
        elif ended is not None:
            if not under_way or len(under_way[0].numbers) != int(ended[1]):
                self.broken = self.broken or line
                return
            self._ended(under_way.popleft(), delivered=ended[2] is not None, actions=ended[3] or "")

    def _built(self, count: int, thread: str) -> Attempt:
        again = self._again[:count]
        del self._again[:count]
        fresh = range(self._next, self._next + count - len(again))
        self._next = fresh.stop
        attempt = Attempt((*again, *fresh) if again else fresh, thread=thread)
        self.attempts.append(attempt)
        return attempt

    def _ended(self, attempt: Attempt, *, delivered: bool, actions: str) -> None:
        attempt.ended_after = len(self.attempts)
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
