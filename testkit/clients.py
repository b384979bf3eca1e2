"""The interface of a client for the suite, in whatever language the client is written.

A `Client` produces a list of records, reads a topic to its end, and joins a group. It returns its results in these
values and never judges them: the suite (suite.py) has the expectations.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
Headers = tuple[tuple[str, bytes | None], ...]
ALL_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
#: The longest time of any step: a bound for hanging clients, not a measure, because a busy machine is slow.
PATIENCE_S = 240.0
# Recent, so that retention does not delete it, but so old that a second of clock skew does not matter.
NOW_MS = int(time.time() * 1000) - 3_600_000


@dataclass(frozen=True, slots=True)
class Record:
    """A record as the application sees it; `offset` is None before it was written."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 0
    partition: int = 0
    offset: int | None = None

    @property
    def content(self) -> tuple[bytes | None, bytes | None, Headers, int]:
        return (self.key, self.value, self.headers, self.timestamp_ms)


class ProduceError(Exception):
    """A record was refused; the argument is Kafka's name of the error: MESSAGE_TOO_LARGE."""


class Member(ABC):
    """One member of a consumer group, which polls on its own until it leaves; on leaving it commits what it has
    read."""

    @abstractmethod
    def partitions(self) -> set[int]:
        """Return its current assignment."""

    @abstractmethod
    def records(self) -> list[Record]:
        """Return every record that it has read since it joined."""

    @abstractmethod
    def leave(self) -> None:
        """Commit and leave the group, like an application that closes its consumer."""


class Client(ABC):
    name: str
    compressions: Sequence[str] = ALL_COMPRESSIONS
    # Values that the client's own interface does not let an application write.
    null_header_values = True
    keyless_tombstones = True
    # The time after which a lost member is removed.
    session_timeout_ms = 10_000

    @abstractmethod
    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        compression: str = "none",
        idempotent: bool = False,
        max_request_bytes: int = 1_000_000,
    ) -> list[tuple[int, int]]:
        """Write with acks=all; returns partition and offset per record, in the order given."""

    @abstractmethod
    def transact(
        self, bootstrap: str, topic: str, transactional_id: str, transactions: Sequence[tuple[bool, Sequence[Record]]]
    ) -> None:
        """Run transactions of one producer in a row: each is committed if the first of its pair is true, else
        aborted."""

    @abstractmethod
    def consume(
        self, bootstrap: str, topic: str, *, from_time_ms: int | None = None, committed: bool = False
    ) -> list[Record]:
        """Return all records from the start (or from the first record at or after a time) to the end at the time of the
        call.

        With `committed` it reads with read_committed, and the end is the last stable offset.
        """

    @abstractmethod
    def member(self, bootstrap: str, topic: str, group: str) -> Member:
        """Join a group, from the earliest record if nothing is committed."""


def wait_until(what: Callable[[], T | None], why: str, *, timeout_s: float = PATIENCE_S, every_s: float = 0.05) -> T:
    """Repeat a question until the answer is true; the only way in which a test waits. `every_s`: the rest between two
    questions, longer for one that starts a process."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = what()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {why} (last answer: {answer!r})")
        time.sleep(every_s)
