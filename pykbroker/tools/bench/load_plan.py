"""A plan of a load: records, sizes, pace, and the share of each of several processes. Pure.

A plan goes to its process as JSON, and its result (`LoadTold`) comes back as JSON.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any, Final

#: The number of different records; they repeat in turn.
_DIFFERENT: Final = 1000
_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MARK: Final = struct.Struct(">QQ")
#: The least size of a record of an end-to-end load. It has the number of the run, and the time when it was due.
LEAST_MARKED: Final = _MARK.size


@dataclass(slots=True)
class LoadPlan:
    """The work of one process."""

    #: produce, consume, or, for an end-to-end load, send and receive
    work: str
    topic: str
    bootstrap: str
    #: a Java client's properties
    properties: dict[str, str]
    records: int
    record_bytes: int = 0
    #: records per second; 0 for no limit
    rate: float = 0
    #: the partitions of a consumer
    partitions: list[int] = field(default_factory=list)
    #: end-to-end: distinguishes the records of this run from others
    run: int = 0
    #: a consumer ends if no record comes for this long
    patience_ms: int = 30_000

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class LoadTold:
    """The result of one process. Times are of the monotonic clock that all processes of a machine share."""

    records: int = 0
    bytes: int = 0
    failed: int = 0
    #: the first failure, in one line
    failure: str = ""
    begun_ns: int = 0
    ended_ns: int = 0
    #: processor time
    cpu_seconds: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)


def shares(whole: int, parts: int) -> list[int]:
    """Split `whole` into `parts` numbers that differ by one at most."""
    return [whole // parts + (part < whole % parts) for part in range(parts)]


def dealt(partitions: Sequence[int], parts: int) -> list[list[int]]:
    """Return the partitions of each consumer; each has at least one."""
    hands: list[list[int]] = [[] for _ in range(min(parts, len(partitions)))]
    for place, number in enumerate(sorted(partitions)):
        hands[place % len(hands)].append(number)
    return hands


def due_ns(number: int, begun_ns: int, rate: float) -> int:
    """Return the time at which record `number` (from 0 on) is to be sent, at a rate in records per second."""
    return begun_ns + int(number * 1_000_000_000 / rate)


def contents(record_bytes: int, chance: Random) -> list[bytes]:
    """Return records of random letters, as Apache Kafka's kafka-producer-perf-test has them: compression makes them
    shorter, but not much."""
    return [bytes(chance.choices(_LETTERS, k=record_bytes)) for _ in range(_DIFFERENT)]


def marked(content: bytes, run: int, at_ns: int) -> bytes:
    """Return a record that contains the time when it was due. It is as long as `content`."""
    return _MARK.pack(run, at_ns) + content[_MARK.size :]


def due_of(value: bytes | None, run: int) -> int | None:
    """Return the time when a record of this run was due, or None if the record is of another run."""
    if value is None or len(value) < _MARK.size:
        return None
    of_run, at_ns = _MARK.unpack_from(value)
    return int(at_ns) if of_run == run else None
