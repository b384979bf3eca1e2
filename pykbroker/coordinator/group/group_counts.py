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
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from pykbroker.runtime.later import Later

if TYPE_CHECKING:
    from pykbroker.coordinator.group.shard import GroupShard

#: A turn of a count ends after this time.
_TURN_SECONDS: Final = 0.002
#: The clock is read once for this many groups.
_AT_ONCE: Final = 64


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
        done: asyncio.Future[None] = self._loop.create_future()
        self._under_way = done
        counts = GroupCounts()
        self._turn(counts, counts.walk(self._shards()))
        if not done.done():
            return done
        done.result()
        return None

    def _turn(self, counts: GroupCounts, walk: Iterator[None]) -> None:
        until_s = self._loop.time() + _TURN_SECONDS
        assert self._under_way is not None
        try:
            for number, _ in enumerate(walk, 1):
                if number % _AT_ONCE == 0 and self._loop.time() >= until_s:
                    self._loop.call_soon(self._turn, counts, walk)
                    return
        except Exception as bug:  # noqa: BLE001  # the reader of the metrics gets it
            self._under_way.set_exception(bug)
        else:
            self.latest = counts
            self._under_way.set_result(None)
        self._under_way = None
