"""Checks whether copies end under the throttle of a run.

A replica catches up only if it is copied faster than it grows. Pure. Not responsible for setting a throttle
(tools/cluster/run_marks.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from heapq import nlargest

from pykbroker.tools.balance.plan_file import PlannedMove


def growth(moves: Iterable[PlannedMove], most_at_once: int) -> dict[int, float]:
    """Return broker -> the larger of two sums, in bytes per second: the growth of the replicas that are copied to it,
    and the growth of those that are copied from it as their first replica. If a broker has more than `most_at_once`
    moves, only those that grow fastest count."""
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
    """Return the warning about a throttle in bytes per second, or None if all copies can end under it."""
    needed = growth(moves, most_at_once)
    broker = max(needed, key=lambda each: (needed[each], -each), default=None)
    if broker is None or needed[broker] < throttle:
        return None
    return (
        f"a throttle of {throttle:,} bytes/s is too low: the partitions that broker {broker} copies at once get "
        f"{needed[broker]:,.0f} bytes/s from producers, so the copies cannot catch up. Allow a higher rate, or fewer "
        "moves per broker"
    )
