"""Counters and gauges under Apache Kafka's own names.

Responsible for names and numbers. Not responsible for exporting them (exposition.py) nor for the choice of events to
count. The hot path keeps a Counter and adds to its `value`, so it never looks a name up. Names are Kafka's MBean names,
e.g. `kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec`. The number under the name of a rate is the count of
events since the start.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from heapq import merge
from typing import Final, NamedTuple, TypeAlias

#: Matches only if the property `name` ends with PerSec, because a topic may also be called PerSec. The count of a
#: histogram grows too. Its name begins with a capital letter; `group-count` is the number of groups.
_GROWS = re.compile(r"[^,]*,name=([^,]*PerSec|[A-Z]\w*-count)(,|$)")
#: Other values of tags are quoted, as in Apache Kafka (Sanitizer.jmxSanitize).
_PLAIN = re.compile(r"[\w\-%. \t]*", re.ASCII)
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "*": r"\*", "?": r"\?", "\n": r"\n"})

#: So many names are sorted in some dozen microseconds.
_SORTED_AT_ONCE: Final = 128

#: the names of metrics, each with its number
Numbers: TypeAlias = Iterator[tuple[str, float]]


def tag(value: str) -> str:
    """Return the value of a tag for the name of a metric. A value that clients choose, such as the id of a group, is
    quoted if it could be read as another tag."""
    return value if _PLAIN.fullmatch(value) else f'"{value.translate(_ESCAPES)}"'


class Counter:
    """A number that only grows."""

    __slots__ = ("name", "value")

    def __init__(self, name: str) -> None:
        self.name = name
        self.value = 0


class Sample(NamedTuple):
    """`counts`: the number only grows while the node lives."""

    name: str
    value: float
    counts: bool


class Metrics:
    """All counters and gauges of a node."""

    def __init__(self) -> None:
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Callable[[], float]] = {}
        self._families: list[Callable[[], Iterable[tuple[str, float]]]] = []
        #: gauges that only grow
        self._growing: set[str] = set()

    def counter(self, name: str) -> Counter:
        """Return the counter of that name; the first call makes it."""
        counter = self._counters.get(name)
        if counter is None:
            counter = self._counters[name] = Counter(name)
        return counter

    def count(self, name: str) -> None:
        """Add one to the counter of that name, for rare events."""
        self.counter(name).value += 1

    def gauge(self, name: str, read: Callable[[], float], *, counts: bool = False) -> None:
        """Register a number that is computed when metrics are read. `counts`: True if the number only grows."""
        self._gauges[name] = read
        if counts:
            self._growing.add(name)

    def family(self, read: Callable[[], Iterable[tuple[str, float]]]) -> None:
        """Register a function that returns a name and a number for each of many objects. It is called when metrics are
        read, because the objects come and go. They may also do so between two numbers that it yields."""
        self._families.append(read)

    def remove(self, name: str) -> None:
        self._counters.pop(name, None)
        self._gauges.pop(name, None)

    def snapshot(self) -> dict[str, float]:
        """Return every name with its current number."""
        values: dict[str, float] = {name: counter.value for name, counter in self._counters.items()}
        values.update((name, read()) for name, read in self._gauges.items())
        for family in self._families:
            values.update(family())
        return dict(sorted(values.items()))

    def is_counter(self, name: str) -> bool:
        """Return True if the number only grows. Kafka's rates (`PerSec`) count events since the start, and the count of
        a histogram all its values."""
        return name in self._counters or name in self._growing or _GROWS.match(name) is not None

    def samples(self) -> Iterator[Sample]:
        """Yield a sample for each number, sorted by name, all of the same moment."""
        for name, value in self.snapshot().items():
            yield Sample(name, value, self.is_counter(name))

    def read_in_steps(self, found: list[Sample]) -> Generator[None]:
        """Append to `found` what `samples` yields. This yields after each step of some microseconds, where the caller
        may pause (runtime/in_turns.py), because ten thousand partitions have a hundred thousand numbers. So the numbers
        are not of the same moment, and objects may come and go in a pause."""
        values: dict[str, float] = {name: counter.value for name, counter in self._counters.items()}
        for name, read in list(self._gauges.items()):
            values[name] = read()
            yield
        for family in list(self._families):
            for name, value in family():
                values[name] = value
                yield
        names = list(values)
        sorted_parts = []
        for first in range(0, len(names), _SORTED_AT_ONCE):
            sorted_parts.append(sorted(names[first : first + _SORTED_AT_ONCE]))
            yield
        for name in merge(*sorted_parts):
            found.append(Sample(name, values[name], self.is_counter(name)))
            yield


def merged(few: Iterable[Sample], many: Sequence[Sample]) -> list[Sample]:
    """Return the samples of the halves of a node as one list, sorted by name. `many` is sorted already. If both have
    the same name, counters are added up, and the greatest of other numbers is taken."""
    found = list(many)
    for sample in few:
        # Sorting a hundred thousand samples would hold the loop.
        at = bisect_left(found, sample.name, key=_name_of)
        if at == len(found) or found[at].name != sample.name:
            found.insert(at, sample)
        else:
            before = found[at].value
            value = before + sample.value if sample.counts else max(before, sample.value)
            found[at] = sample._replace(value=value)
    return found


def _name_of(sample: Sample) -> str:
    return sample.name
