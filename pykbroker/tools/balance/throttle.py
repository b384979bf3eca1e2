"""Judges whether copies end under the throttle of a run.

A replica catches up only if it is copied faster than it grows. Pure. Not responsible for setting a throttle
(tools/cluster/run_marks.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from heapq import nlargest

from pykbroker.tools.balance.plan_file import PlannedMove


def growth(moves: Iterable[PlannedMove], most_at_once: int) -> dict[int, float]:
    """Bytes a second that come to the partitions which a broker copies at once, for each broker: to it, or from it as
    their leader. Of more than `most_at_once` moves of a broker, those that grow fastest."""
    rates: dict[int, list[float]] = defaultdict(list)
    leading: dict[int, list[float]] = defaultdict(list)
    for move in moves:
        for broker in move.added:
            rates[broker].append(move.bytes_in)
        if move.added:
            leading[move.now[0]].append(move.bytes_in * len(move.added))
    brokers = rates.keys() | leading.keys()
    return {
        broker: max(sum(nlargest(most_at_once, each[broker])) for each in (rates, leading) if broker in each)
        for broker in brokers
    }


def too_slow(moves: Iterable[PlannedMove], most_at_once: int, throttle: int) -> str | None:
    """Return the warning about a throttle in bytes a second, or None if the copies end under it."""
    needed = growth(moves, most_at_once)
    broker = max(needed, key=lambda each: (needed[each], -each), default=None)
    if broker is None or needed[broker] < throttle:
        return None
    return (
        f"a throttle of {throttle:,} bytes/s is not above what comes to the partitions that broker {broker} copies at "
        f"once, {needed[broker]:,.0f} bytes/s: while that lasts, they do not catch up. Allow a higher rate, or fewer "
        "moves per broker"
    )
