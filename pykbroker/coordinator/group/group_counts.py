"""The numbers of groups in each state and of their offsets, counted in turns when metrics are read.

Responsible for walking over all groups without a long turn of the loop. Not responsible for the names of the metrics
(coordinator_metrics.py). Apache Kafka counts its groups once a minute; here a reading of the metrics counts them, and a
group costs nothing between two readings.

Groups change while a long count is under way, so it is not the state of one moment. A group that exists the whole time
counts once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING

from pykbroker.runtime.in_turns import in_turns
from pykbroker.runtime.later import Later

if TYPE_CHECKING:
    from pykbroker.coordinator.group.shard import GroupShard


class GroupCounts:
    """The numbers of the last count that ended."""

    __slots__ = ("groups", "offsets")

    def __init__(self) -> None:
        #: by the kind and the state, both as ListGroups shows them
        self.groups: Counter[tuple[str, str]] = Counter()
        self.offsets = 0

    def of_kind(self, kind: str) -> int:
        """Return the number of groups of a kind, in any state."""
        return sum(number for (of, _), number in self.groups.items() if of == kind)

    def walk(self, shards: Iterable[GroupShard]) -> Iterator[None]:
        """Add the groups and offsets of the shards. Yields after each group, where the caller may pause."""
        groups = self.groups
        for shard in shards:
            for group in list(shard.groups.values()):
                groups[group.kind, group.state_name] += 1
                yield
            for size in shard.offsets.sizes():
                self.offsets += size
                yield


class CountInTurns:
    """Counts the groups of all shards of one coordinator."""

    __slots__ = ("_loop", "_shards", "_under_way", "latest")

    def __init__(self, loop: asyncio.AbstractEventLoop, shards: Callable[[], list[GroupShard]]) -> None:
        """`shards` returns the shards that are loaded."""
        self._loop = loop
        self._shards = shards
        self._under_way: asyncio.Future[None] | None = None
        self.latest = GroupCounts()

    def count(self) -> Later[None]:
        """Count, and set `latest`. Few groups are counted at once; else a future is returned. If a count is under way,
        its future is returned."""
        if self._under_way is not None:
            return self._under_way
        later = in_turns(self._loop, self._work())
        self._under_way = later
        return later

    def _work(self) -> Generator[None]:
        counts = GroupCounts()
        try:
            yield from counts.walk(self._shards())
            self.latest = counts
        finally:
            self._under_way = None
