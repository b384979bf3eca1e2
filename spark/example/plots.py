"""The example in five pictures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.dates as mdates
import matplotlib.pyplot as plt

from example.expected import Session, Window

_COLOURS = {"view": "#4477aa", "cart": "#ccbb44", "order": "#ee6677"}
_PLAIN, _MARK = "#4477aa", "#ee6677"
_STYLE: dict[Any, Any] = {
    "figure.figsize": (8, 4),
    "figure.dpi": 100,
    "font.size": 10,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
}


def draw(
    folder: Path,
    *,
    windows: Iterable[Window],
    sessions: Iterable[Session],
    dead_letters: Mapping[str, int],
    freshness_s: Sequence[float],
    window_s: int,
    session_gap_s: int,
) -> list[Path]:
    """Write the pictures as PNG files and return their paths."""
    windows = list(windows)
    with plt.rc_context(_STYLE):
        return [
            _save(_events(windows, window_s), folder / "events.png"),
            _save(_revenue(windows), folder / "revenue.png"),
            _save(_sessions(sessions, session_gap_s), folder / "sessions.png"),
            _save(_dead_letters(dead_letters), folder / "dead-letters.png"),
            _save(_freshness(freshness_s), folder / "freshness.png"),
        ]


def _save(figure: Any, path: Path) -> Path:
    figure.savefig(path, bbox_inches="tight")
    plt.close(figure)
    return path


def _events(windows: Sequence[Window], window_s: int) -> Any:
    counts: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for window in windows:
        counts[window.event_type][window.start_ms] += window.events
    starts = [window.start_ms for window in windows]
    times = range(min(starts), max(starts) + 1, window_s * 1000)
    figure, axes = plt.subplots()
    axes.stackplot(
        [datetime.fromtimestamp(start / 1000, UTC) for start in times],
        [[counts[kind][start] for start in times] for kind in _COLOURS],
        labels=[f"{kind}s" for kind in _COLOURS],
        colors=list(_COLOURS.values()),
    )
    axes.set_title(f"Events per {window_s // 60} minutes")
    axes.set_xlabel("time of the event (UTC)")
    axes.set_ylabel("events")
    axes.xaxis.set_major_formatter(mdates.ConciseDateFormatter(axes.xaxis.get_major_locator()))
    axes.margins(x=0)
    axes.grid(axis="y")
    axes.legend(loc="upper left", frameon=False)
    return figure


def _revenue(windows: Sequence[Window]) -> Any:
    amounts: dict[str, Decimal] = defaultdict(Decimal)
    for window in windows:
        if window.amount is not None:
            amounts[window.country or "not told (v1)"] += window.amount
    return _bars(
        {name: float(amount) for name, amount in amounts.items()},
        "Revenue by country",
        "amount of all orders",
        "{:,.0f}",
    )


def _dead_letters(counts: Mapping[str, int]) -> Any:
    return _bars(counts, "Dead letters by reason", "records", "{:,.0f}")


def _bars(values: Mapping[str, float], title: str, label: str, form: str) -> Any:
    figure, axes = plt.subplots()
    ascending = sorted(values.items(), key=lambda item: item[1])
    bars = axes.barh([name for name, _ in ascending], [value for _, value in ascending], color=_PLAIN)
    axes.bar_label(bars, [form.format(value) for _, value in ascending], padding=4)
    axes.set_title(title)
    axes.set_xlabel(label)
    axes.margins(x=0.1)
    axes.grid(axis="x")
    return figure


def _sessions(sessions: Iterable[Session], gap_s: int) -> Any:
    minutes = [(session.end_ms - session.start_ms) / 60_000 - gap_s / 60 for session in sessions]
    figure, axes = plt.subplots()
    axes.hist(minutes, bins=[5.0 * number for number in range(int(max(minutes) // 5) + 2)], color=_PLAIN, rwidth=0.92)
    middle = sorted(minutes)[len(minutes) // 2]
    axes.axvline(middle, color=_MARK)
    axes.annotate(f" half are shorter\n than {middle:.0f} min", (middle, axes.get_ylim()[1]), va="top", color=_MARK)
    axes.set_title(f"Lengths of {len(minutes):,} sessions")
    axes.set_xlabel("minutes from the first event to the last")
    axes.set_ylabel("sessions")
    axes.margins(x=0.01)
    axes.grid(axis="y")
    return figure


def _freshness(seconds: Sequence[float]) -> Any:
    ascending = sorted(seconds)
    figure, axes = plt.subplots()
    axes.plot(ascending, [100 * (rank + 1) / len(ascending) for rank in range(len(ascending))], color=_PLAIN)
    for share in (50, 95):
        value = ascending[min(len(ascending) - 1, len(ascending) * share // 100)]
        axes.plot([0, value, value], [share, share, 0], color=_MARK, linewidth=1, linestyle="--")
        axes.annotate(f" p{share} {value:.1f} s", (value, share), va="top", color=_MARK)
    axes.set_title("Freshness: from Kafka's acknowledgement to visible in the lake")
    axes.set_xlabel("seconds")
    axes.set_ylabel("% of events")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 101)
    axes.grid()
    return figure
