"""`make bench`: Apache Kafka and pykbroker on this machine, the same load on both, rounds interleaved.

Prints both sides and their ratio for every measurement, and stores the run in bench/results/ with every round of both
sides, after each measurement. Each figure is the median over the rounds, or the worst of them for a figure of worst
cases. Each measurement defines which direction is better; the ratio is always "how many times better pykbroker is".
bench/report.py makes docs/benchmarks.md and the rows of the README from stored runs.

The brokers of both sides run at the same time, one node each, then three nodes each. A measurement that starts its own
cluster has the machine for that cluster alone. Measurements of rolls, segments and balance have their own sides
(sides.py).

`--before FOLDER` also measures the pykbroker of another checkout in the same rounds, to show the effect of a change.
`--alone` leaves out Apache Kafka, but for rolls. `--resume FILE` continues an interrupted run, or adds the rows of
another `--only` to it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / part) for part in ("", "wire", "log", "raft")]

from bench.balancing import BALANCING  # noqa: E402
from bench.cold_starts import COLD_STARTS  # noqa: E402
from bench.compaction import COMPACTION  # noqa: E402
from bench.containers import CONTAINERS  # noqa: E402
from bench.durability import DURABILITY  # noqa: E402
from bench.footprint import FOOTPRINT  # noqa: E402
from bench.groups import GROUPS  # noqa: E402
from bench.measurements import MEASUREMENTS, Figure, Found, Kind, Measurement, Subject  # noqa: E402
from bench.pauses import PAUSES  # noqa: E402
from bench.reading import READING  # noqa: E402
from bench.replication import REPLICATION  # noqa: E402
from bench.report import RESULTS, format_row, part_of  # noqa: E402
from bench.returning import RETURNING  # noqa: E402
from bench.rolls import ROLLS  # noqa: E402
from bench.secured import SECURED  # noqa: E402
from bench.segments import SEGMENTS  # noqa: E402
from bench.servers import BEFORE, KAFKA_VERSION, ROOT, ApacheKafka, Pykbroker, Server, checkout  # noqa: E402
from bench.sharing import SHARING  # noqa: E402
from bench.sides import KAFKA_AND_PYKBROKER, key_of  # noqa: E402
from bench.slow_device import slow_device  # noqa: E402
from bench.spark import SPARK  # noqa: E402
from bench.spreading import SPREADING  # noqa: E402
from bench.starting import STARTING  # noqa: E402
from bench.transactions import TRANSACTIONS  # noqa: E402

KNOWN = [
    *(*MEASUREMENTS, *GROUPS, *TRANSACTIONS, *RETURNING, *STARTING, *DURABILITY, *READING, *COMPACTION, *SPARK),
    *(*REPLICATION, *FOOTPRINT, *PAUSES, *COLD_STARTS),
    *(*SPREADING, *CONTAINERS, *SECURED, *SHARING),
    *(*ROLLS, *SEGMENTS, *BALANCING),
]

#: side -> figure -> the value of each round
Values = dict[str, dict[str, list[float]]]


class Bench:
    """Runs the sides at the same time; a measurement uses one after the other, round by round."""

    def __init__(self, sides: list[type[Server]], rounds: int, seconds: float, warm_up_seconds: float) -> None:
        self._sides = sides
        self._rounds = rounds
        self._seconds = seconds
        self._warm_up_seconds = warm_up_seconds
        #: side -> its running subject, all of one kind
        self._running: dict[str, Subject] = {}
        self._kind: Kind[Any] | None = None

    def measure(self, measurement: Measurement) -> Values:
        sides: list[type[Server]] = [Pykbroker] if measurement.has_own_sides else self._sides
        values: Values = {side.name: {} for side in sides}
        rounds = self._rounds
        if measurement.most_rounds is not None:
            rounds = min(rounds, measurement.most_rounds)
        for round_number in range(rounds):
            # Each round begins with another side, so that a drift of the machine's speed affects all.
            first = round_number % len(sides)
            for side in sides[first:] + sides[:first]:
                for name, value in self._measure_once(measurement, side).items():
                    found = values[side.name].setdefault(name, [])
                    found += value if isinstance(value, list) else [value]
        return values

    def _measure_once(self, measurement: Measurement, side: type[Server]) -> Found:
        if not measurement.fresh:
            running = self._subject(measurement.kind, side)
            found = measurement.measure(running, self._seconds)
            running.delete_topics()
            return found
        if measurement.kind.alone:
            self.stop()
        subject = measurement.kind.make(side)
        try:
            return measurement.measure(subject, self._seconds)
        finally:
            subject.stop()

    def _subject(self, kind: Kind[Any], side: type[Server]) -> Subject:
        """Return the running subject of a side. The first call starts and warms up all sides, so that they share the
        machine, and first stops subjects of another kind."""
        if self._kind != kind:
            self.stop()
            self._kind = kind
            for each in self._sides:
                subject = self._running[each.name] = kind.make(each)
                subject.start()
                kind.warm_up(subject, self._warm_up_seconds)
        return self._running[side.name]

    def stop(self) -> None:
        """Stop the running subjects. The next measurement that needs one starts it again."""
        while self._running:
            self._running.popitem()[1].stop()
        self._kind = None


def rounds_of(measurement: Measurement, figure: Figure, values: Values) -> dict[str, list[float]]:
    """Return side -> its numbers of every round, for sides that have any."""
    if measurement.has_own_sides:
        sides, found = measurement.sides, values[Pykbroker.name]
        numbers = {sides.other: found.get(sides.others(figure.source)), sides.ours: found.get(figure.source)}
    else:
        numbers = {side: found.get(figure.source) for side, found in values.items()}
    return {side: each for side, each in numbers.items() if each}


def compared(measurement: Measurement, figure: Figure, values: Values) -> dict[str, object] | None:
    """Return the row of one figure, or None if a side has no such figure. A figure with a limit may stand alone.
    Without Apache Kafka in the run, the row compares with the other checkout."""
    sides = measurement.sides
    rounds = rounds_of(measurement, figure, values)
    made = {side: figure.made_of(each) for side, each in rounds.items()}
    peer = sides.other if measurement.has_own_sides or sides.other in values else BEFORE
    may_stand_alone = measurement.has_own_sides and figure.at_most is not None
    if sides.ours not in made or not (peer in made or may_stand_alone):
        return None
    theirs, mine = made.get(peer, 0.0), made[sides.ours]
    row: dict[str, object] = {
        "measurement": measurement.title,
        "figure": figure.name,
        "unit": figure.unit,
        "ratio": (mine / theirs if figure.more_is_better else theirs / mine) if theirs and mine else 0.0,
        "more_is_better": figure.more_is_better,
        "target": figure.target,
        "at_most": figure.at_most,
    }
    if sides != KAFKA_AND_PYKBROKER:
        row["sides"] = [sides.other, sides.ours]
    for side, each in rounds.items():
        row |= {key_of(side): made[side], f"{key_of(side)}_all": each}
    return row


def beside(measurement: Measurement, values: Values) -> dict[str, dict[str, list[float]]]:
    """Return the numbers that are not compared: figure -> side -> each round."""
    figures = {figure.source for figure in measurement.figures}
    if measurement.has_own_sides:
        figures |= {measurement.sides.others(name) for name in figures}
    names = sorted(set(values[Pykbroker.name]) - figures)
    return {name: {side: values[side].get(name, []) for side in values} for name in names}


def show(rows: list[dict[str, Any]], others: dict[str, dict[str, list[float]]]) -> None:
    for row in rows:
        print(format_row(row), flush=True)
    for name, sides in others.items():
        medians = (f"{side} {statistics.median(found):.3g}" for side, found in sides.items() if found)
        print(f"    {name}: {', '.join(medians)}", flush=True)


def run(bench: Bench, chosen: list[Measurement], record: dict[str, Any], store: Callable[[], None]) -> None:
    """Run the measurements that `record` lacks, and store it after each measurement."""
    for measurement in chosen:
        if measurement.title in record["done"]:
            continue
        values = bench.measure(measurement)
        rows = [row for figure in measurement.figures if (row := compared(measurement, figure, values))]
        others = beside(measurement, values)
        show(rows, others)
        record["results"] += rows
        record["beside"][measurement.title] = others
        record["done"].append(measurement.title)
        record["whole"] = complete_parts(record)
        store()


def complete_parts(record: dict[str, Any]) -> list[str]:
    """Return the parts of the page for which this run has every measurement, measured as the page needs them."""
    if record["fsync_ms"] or record["alone"]:
        return []
    missing = {part_of(known.title) for known in KNOWN if known.title not in record["done"]}
    return [part for part in dict.fromkeys(part_of(known.title) for known in KNOWN) if part not in missing]


def commit(folder: Path = ROOT) -> str:
    """Return the measured commit, with `+` after it if there are changes that are not committed."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    # A stored run that is not committed yet does not change the measured code.
    changed = git("status", "--porcelain", "--", ".", ":!bench/results")
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + ("+" if changed else "")


def processor() -> str:
    """Return the model of the processor in the kernel's words."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def new_record(options: argparse.Namespace) -> dict[str, Any]:
    """Return the stored form of a run before its first measurement."""
    return {
        "when": time.strftime("%Y-%m-%dT%H-%M-%S"),
        "commit": commit(),
        "before": commit(options.before) if options.before else "",
        "whole": [],
        "kafka": options.kafka,
        "python": platform.python_version(),
        "machine": {"processor": processor(), "cores": os.cpu_count(), "system": platform.system().lower()},
        "rounds": options.rounds,
        "seconds": options.seconds,
        "warm_up_seconds": options.warm_up,
        "fsync_ms": options.fsync_ms,
        "only": options.only,
        "alone": options.alone,
        "note": options.note,
        "done": [],
        "results": [],
        "beside": {},
    }


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each load")
    parser.add_argument(
        "--warm-up", type=float, default=20.0, help="seconds of load before anything counts, for the JIT"
    )
    parser.add_argument("--only", default="", help="a regular expression over measurement titles")
    parser.add_argument(
        "--fsync-ms", type=float, default=0, help="on a file system (FUSE) on which every fsync takes so long"
    )
    parser.add_argument("--before", type=Path, help="a checkout with an environment: its pykbroker is measured too")
    parser.add_argument("--alone", action="store_true", help="with --before: leave Apache Kafka out")
    parser.add_argument("--kafka", default=KAFKA_VERSION, help="the release of Apache Kafka (default: %(default)s)")
    parser.add_argument("--resume", type=Path, help="a stored run of the same commit, interrupted or of other rows")
    parser.add_argument("--note", default="", help="a sentence for the page, for example about other load")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.alone and not options.before:
        print("--alone needs --before: there is nothing to compare with", file=sys.stderr)
        return 2
    chosen = [measurement for measurement in KNOWN if re.search(options.only, measurement.title)]
    if options.list:
        print(*(measurement.title for measurement in chosen), sep="\n")
        return 0
    ApacheKafka.version = options.kafka
    record = new_record(options)
    path = RESULTS / f"{record['when']}-{record['commit'].rstrip('+')}.json"
    if options.resume:
        path, now = options.resume, record
        record = {"alone": False, **json.loads(path.read_text(encoding="utf-8"))}
        same = ("commit", "before", "rounds", "seconds", "warm_up_seconds", "fsync_ms", "alone", "machine")
        other = [name for name in same if record[name] != now[name]]
        if other:
            print(f"{path} is a run with another {', '.join(other)}", file=sys.stderr)
            return 1

    def store() -> None:
        RESULTS.mkdir(exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    sides: list[type[Server]] = [Pykbroker] if options.alone else [ApacheKafka, Pykbroker]
    if options.before:
        sides.append(checkout(options.before.resolve()))
    bench = Bench(sides, options.rounds, options.seconds, options.warm_up)
    with ExitStack() as stack:
        if options.fsync_ms:
            tempfile.tempdir = str(stack.enter_context(slow_device(options.fsync_ms)))
        stack.callback(bench.stop)
        run(bench, chosen, record, store)
    print(f"stored: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
