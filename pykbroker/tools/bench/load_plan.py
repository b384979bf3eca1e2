"""What a load is: records, sizes, pace, and how several processes share it. Pure.

A plan travels to its process as JSON; so does what becomes of it (`LoadTold`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any, Final

#: Different records; after the last comes the first again.
_DIFFERENT: Final = 1000
_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MARK: Final = struct.Struct(">QQ")
#: The least record of an end-to-end load: which run, and when it was due.
LEAST_MARKED: Final = _MARK.size


@dataclass(slots=True)
class LoadPlan:
    """What one process does."""

    #: produce, consume, or, for an end-to-end load, send and receive
    work: str
    topic: str
    bootstrap: str
    #: a Java client's properties
    properties: dict[str, str]
    records: int
    record_bytes: int = 0
    #: records a second; 0: as fast as it goes
    rate: float = 0
    #: consumers: their partitions
    partitions: list[int] = field(default_factory=list)
    #: end-to-end: tells the records of this run from others
    run: int = 0
    #: consumers end when nothing comes for so long
    patience_ms: int = 30_000

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class LoadTold:
    """What one process did. Times are of the monotonic clock that all processes of a machine share."""

    records: int = 0
    bytes: int = 0
    failed: int = 0
    #: the first failure, in one line
    failure: str = ""
    begun_ns: int = 0
    ended_ns: int = 0
    #: of the processor
    cpu_seconds: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)


def shares(whole: int, parts: int) -> list[int]:
    """`whole` in `parts` numbers that differ by one at most."""
    return [whole // parts + (part < whole % parts) for part in range(parts)]


def dealt(partitions: Sequence[int], parts: int) -> list[list[int]]:
    """The partitions of each consumer; none is without one."""
    hands: list[list[int]] = [[] for _ in range(min(parts, len(partitions)))]
    for place, number in enumerate(sorted(partitions)):
        hands[place % len(hands)].append(number)
    return hands


def due_ns(number: int, begun_ns: int, rate: float) -> int:
    """When record `number` (from 0 on) is to be sent, at so many records a second."""
    return begun_ns + int(number * 1_000_000_000 / rate)


def contents(record_bytes: int, chance: Random) -> list[bytes]:
    """Records of random letters, as Apache Kafka's kafka-producer-perf-test has them: compression makes them shorter,
    but not much."""
    return [bytes(chance.choices(_LETTERS, k=record_bytes)) for _ in range(_DIFFERENT)]


def marked(content: bytes, run: int, at_ns: int) -> bytes:
    """A record that says when it was due; as long as `content`."""
    return _MARK.pack(run, at_ns) + content[_MARK.size :]


def due_of(value: bytes | None, run: int) -> int | None:
    """When a record of this run was due; None: it is of another."""
    if value is None or len(value) < _MARK.size:
        return None
    of_run, at_ns = _MARK.unpack_from(value)
    return int(at_ns) if of_run == run else None
