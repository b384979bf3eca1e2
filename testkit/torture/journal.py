"""The records sent to a partition, acknowledged and read from it, and a judgement of whether these fit together.

Pure and not thread-safe; threads that share a journal hold its `lock`. The value of a record contains its writer and
its number, and the rest of the value follows from these. So a record that no writer sent cannot pass.

The rules when processes are killed and the page cache is not (no power was lost):
* Every acknowledged record is there, at the offset that was acknowledged, unless retention was set to take it.
* The records of an idempotent producer are there once, in their order. A new epoch of its client may begin with records
  that an earlier request had without an answer, and that a broker refused then. Each such epoch may repeat them once
  (epochs.py).
* A producer that is not idempotent may send records again, also after later ones (attempts.py). Its log holds whole
  requests in the order in which its client sent them. Each acknowledged request is there, and none is there more
  often than it was sent. A request that was answered with an error may be there, because a leader that goes away
  while an answer waits has already appended. A client of several brokers does not log its requests, so the only rule
  for it is that no acknowledged record is lost.
* An offset that was read once always has the same record, or none once the log begins after it.
* Offsets have no holes, except in a compacted or transactional topic.
* In a compacted topic each key's acknowledged value with the highest offset is there, or a value after it.
* Either all or no records of a transaction are visible, in agreement with the answer to its producer.
"""

from __future__ import annotations

import threading
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from testkit.torture.attempts import Account, Attempt, Fate
from testkit.torture.epochs import Repeats

_FILLER = bytes(range(256)) * 24


class Found(NamedTuple):
    """A record as a consumer received it."""

    offset: int
    key: bytes | None
    value: bytes | None


class Numbered(NamedTuple):
    """A writer's record and its offset."""

    number: int
    offset: int


class Violation(AssertionError):
    """The broker has broken a promise."""


def value_of(writer: str, number: int) -> bytes:
    """Return the value of a writer's record; most are small, and one in 40 has some kilobytes."""
    head = b"%s/%d/" % (writer.encode(), number)
    chance = zlib.crc32(head)
    size = 3000 + chance % 3000 if chance % 40 == 0 else chance % 200
    return head + _FILLER[chance % 251 :][:size]


def author_of(value: bytes) -> tuple[str, int]:
    writer, number, _ = value.split(b"/", 2)
    return writer.decode(), int(number)


@dataclass(slots=True)
class Written:
    """One writer's records in one partition, numbered from 0."""

    name: str
    exactly_once: bool
    #: True if the client logs its requests; only for a client that is not idempotent
    is_accounted: bool = True
    #: records below this number were handed to the client
    sent: int = 0
    #: number -> offset; -1 if the answer did not contain it
    acknowledged: dict[int, int] = field(default_factory=dict)
    #: the number of keys that it uses in turn, for a compacted topic
    keys: int = 0
    #: the client's requests
    account: Account = field(default_factory=Account)
    #: the records that an idempotent client may have written again
    repeats: Repeats = field(default_factory=Repeats)

    def key(self, number: int) -> bytes | None:
        return b"%s-%d" % (self.name.encode(), number % self.keys) if self.keys else None


@dataclass(slots=True)
class Transaction:
    """Records [first, end) of a writer. `outcome` is None as long as no outcome was reported."""

    first: int
    end: int = -1
    outcome: bool | None = None


@dataclass(slots=True)
class Journal:
    """The journal of one partition."""

    partition: str
    compacted: bool = False
    transactional: bool = False
    #: retention may take records from the front
    shrinks: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    writers: dict[str, Written] = field(default_factory=dict)
    transactions: dict[str, list[Transaction]] = field(default_factory=dict)
    #: records that are after later ones, because their client sent them so
    sent_later: int = 0
    _read: dict[int, int] = field(default_factory=dict)

    def writer(self, name: str, *, exactly_once: bool, is_accounted: bool = True, keys: int = 0) -> Written:
        made = self.writers[name] = Written(name, exactly_once, is_accounted, keys=keys)
        return made

    def violated(self, what: str) -> Violation:
        return Violation(f"{self.partition}: {what}")

    # -- one record, as it is read ------------------------------------------------------------------------------------

    def see(self, record: Found) -> tuple[str, int]:
        """Record that a client has read this. Raises Violation if no writer sent it, or if the offset had another
        record before."""
        try:
            name, number = author_of(record.value or b"")
            writer = self.writers[name]
        except (ValueError, KeyError):
            raise self.violated(f"offset {record.offset} holds {record.value!r:.80}, which nobody sent") from None
        if number >= writer.sent or record.value != value_of(name, number) or record.key != writer.key(number):
            raise self.violated(f"offset {record.offset} holds {record.value!r:.80}, which {name} did not send")
        mark = zlib.crc32(record.value)
        if self._read.setdefault(record.offset, mark) != mark:
            raise self.violated(f"offset {record.offset} was something else before it was {name}'s record {number}")
        offset = writer.acknowledged.get(number, -1)
        # The acknowledgement has the place of the last copy.
        is_earlier_copy = record.offset < offset and writer.repeats.has(number)
        if offset >= 0 and writer.exactly_once and offset != record.offset and not is_earlier_copy:
            raise self.violated(f"{name}'s record {number} was acknowledged at {offset} and is at {record.offset}")
        return name, number

    def see_window(self, records: list[Found], start: int, end: int) -> None:
        """Record everything from `start` to `end`, read at one time."""
        for record in records:
            self.see(record)
        if self.compacted or self.transactional:
            return
        offsets = [record.offset for record in records]
        if offsets != list(range(start, end)):
            missing = sorted(set(range(start, end)) - set(offsets))
            raise self.violated(f"read {start} to {end}: {missing[:10]} are missing or out of order")

    # -- the whole ----------------------------------------------------------------------------------------------------

    def judge(self, records: Iterable[Found], start: int, end: int) -> None:
        """Judge all that a consumer gets from the beginning to the end. Raises Violation."""
        records = list(records)
        self.see_window(records, start, end)
        found: dict[str, list[Numbered]] = {name: [] for name in self.writers}
        for record in records:
            name, number = author_of(record.value or b"")
            found[name].append(Numbered(number, record.offset))
        for name, writer in self.writers.items():
            if writer.exactly_once:
                self._judge_order(writer, found[name])
            elif writer.is_accounted:
                self._judge_attempts(writer, [number for number, _ in found[name]])
            if self.transactional:
                self._judge_transactions(name, {number for number, _ in found[name]})
            elif self.compacted:
                self._judge_keys(writer, found[name])
            else:
                self._judge_acknowledged(writer, found[name], start)

    def _judge_order(self, writer: Written, found: list[Numbered]) -> None:
        newest = -1
        epochs = deque(writer.repeats.by_epoch)
        for number, _ in found:
            if number <= newest:
                repeated = set(range(number, newest + 1))
                while epochs and not repeated <= epochs[0]:
                    epochs.popleft()
                if not epochs:
                    raise self.violated(f"{writer.name}'s record {number} comes after {newest}, or twice")
                epochs.popleft()
            newest = number

    def _judge_attempts(self, writer: Written, numbers: list[int]) -> None:
        attempts = writer.account.attempts
        if writer.account.broken:
            raise self.violated(f"{writer.name} has lost count of its requests at {writer.account.broken!r}")
        if self.compacted:
            at = _unexplained_in_compacted(attempts, numbers)
        else:
            at = _unexplained(attempts, numbers, front_may_be_gone=self.shrinks)
        if at is not None:
            raise self.violated(
                f"{writer.name}'s requests do not explain its records, number {at} of {len(numbers)}: there are "
                f"{_runs(numbers[max(0, at - 100) : at])}, and then {_runs(numbers[at : at + 200])}; "
                f"sent were {_around(attempts, numbers[at:])}"
            )
        newest = -1
        for number in dict.fromkeys(numbers):
            self.sent_later += number < newest
            newest = max(newest, number)

    def _judge_acknowledged(self, writer: Written, found: list[Numbered], start: int) -> None:
        there = {number for number, _ in found}
        placed = set(found)
        first = min(there, default=0)
        for number, offset in writer.acknowledged.items():
            # A record without an offset that is before the first one left may have been taken together with it.
            is_gone = offset < start if offset >= 0 else number < first
            is_there = Numbered(number, offset) in placed if offset >= 0 else number in there
            if not is_there and not (self.shrinks and is_gone):
                raise self.violated(f"{writer.name}'s record {number} was acknowledged at {offset} and is gone")
        if writer.exactly_once and there:
            holes = set(range(first, max(there))) - there
            if holes:
                raise self.violated(f"{writer.name}'s records {sorted(holes)[:10]} are missing between its others")

    def _judge_keys(self, writer: Written, found: list[Numbered]) -> None:
        newest: dict[int, Numbered] = {}
        for number, offset in writer.acknowledged.items():
            key = number % writer.keys
            newest[key] = max(newest.get(key, Numbered(-1, -2)), Numbered(number, offset), key=lambda one: one.offset)
        last = {number % writer.keys: Numbered(number, offset) for number, offset in found}
        for key, wanted in newest.items():
            left = last.get(key, Numbered(-1, -1))
            is_there = left.offset >= wanted.offset if wanted.offset >= 0 else left.number >= wanted.number
            if not is_there:
                raise self.violated(
                    f"{writer.name}'s record {wanted.number}, its key's newest, was acknowledged and is gone"
                )

    def _judge_transactions(self, name: str, there: set[int]) -> None:
        for transaction in self.transactions.get(name, ()):
            parts = set(range(transaction.first, transaction.end))
            found = parts & there
            what = f"{name}'s transaction of {transaction.first} to {transaction.end}"
            if transaction.outcome is True and found != parts:
                raise self.violated(f"{what} was committed and lacks {sorted(parts - found)[:10]}")
            if transaction.outcome is False and found:
                raise self.violated(f"{what} was aborted and {sorted(found)[:10]} are seen")
            if found and found != parts:
                raise self.violated(f"{what} is seen in part: {len(found)} of {len(parts)}")
            there -= parts
        if there:
            raise self.violated(f"{name}'s records {sorted(there)[:10]} are seen and belong to no transaction")


def _unexplained(attempts: Sequence[Attempt], numbers: list[int], *, front_may_be_gone: bool) -> int | None:
    """Return where a log begins to differ from these requests, or None if it fits. The log holds whole requests in
    their order, and every acknowledged request is there. Other requests may be there or not, so several explanations
    are followed in parallel."""
    reached = {0}
    furthest = 0
    for attempt in attempts:
        width = len(attempt.numbers)
        after = {at + width for at in reached if numbers[at : at + width] == list(attempt.numbers)}
        if attempt.fate is not Fate.DELIVERED:
            after |= reached
        elif front_may_be_gone and 0 in reached:
            after.add(0)
        if not after:
            return furthest
        reached = after
        furthest = max(reached)
    return None if len(numbers) in reached else furthest


def _unexplained_in_compacted(attempts: Sequence[Attempt], numbers: list[int]) -> int | None:
    """Return the same for a compacted log, from which any record may be gone."""
    sent = (number for attempt in attempts for number in attempt.numbers)
    return next((at for at, number in enumerate(numbers) if number not in sent), None)


def _around(attempts: Sequence[Attempt], numbers: list[int]) -> str:
    """Return the requests near the first of these records, for a message."""
    near = [at for at, attempt in enumerate(attempts) if numbers[:1] and numbers[0] in attempt.numbers]
    if not near:
        return "none with it"
    first = max(0, near[0] - 5)
    return ", ".join(f"#{first + at} {one}" for at, one in enumerate(attempts[first : near[-1] + 6][:40]))


def _runs(numbers: Sequence[int]) -> str:
    """Return numbers as runs, such as 0-19, 10-14."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][-1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{first}-{last}" for first, last in runs)
