"""`make bench`: Apache Kafka and pykbroker on this machine, the same load on both, rounds interleaved.

Prints both sides and their ratio for every measurement, and stores the run in bench/results/ with every round of both
sides. Each figure is the median over the rounds. Which way is better stands with the measurement; the ratio is always
"how many times better pykbroker is". docs/benchmarks.md and the rows of the README are made from a stored run by
bench/report.py.
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
from contextlib import ExitStack
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / part) for part in ("", "wire", "log", "raft")]

from bench.compaction import COMPACTION  # noqa: E402
from bench.durability import DURABILITY  # noqa: E402
from bench.groups import GROUPS  # noqa: E402
from bench.measurements import MEASUREMENTS, Measurement, warm_up  # noqa: E402
from bench.reading import READING  # noqa: E402
from bench.report import RESULTS, format_row  # noqa: E402
from bench.returning import RETURNING  # noqa: E402
from bench.servers import KAFKA_VERSION, ROOT, ApacheKafka, Pykbroker, Server  # noqa: E402
from bench.slow_device import slow_device  # noqa: E402
from bench.spark import SPARK  # noqa: E402
from bench.starting import STARTING  # noqa: E402
from bench.transactions import TRANSACTIONS  # noqa: E402


def run(
    measurements: list[Measurement], rounds: int, seconds: float, warm_up_seconds: float
) -> list[dict[str, object]]:
    """Both brokers run side by side; a measurement takes one after the other, round by round."""
    results: list[dict[str, object]] = []
    sides: list[type[Server]] = [ApacheKafka, Pykbroker]
    servers: dict[str, Server] = {}
    try:
        if any(not measurement.fresh for measurement in measurements):
            for side in sides:
                server = servers[side.name] = side()
                server.start()
                warm_up(server, warm_up_seconds)
        for measurement in measurements:
            values: dict[str, dict[str, list[float]]] = {side.name: {} for side in sides}
            for round_number in range(rounds if measurement.repeat else 1):
                # Alternate who goes first, so that a drift of the machine's speed meets both.
                order = sides if round_number % 2 == 0 else sides[::-1]
                for side in order:
                    if measurement.fresh:
                        server = side()
                        try:
                            found = measurement.measure(server, seconds)
                        finally:
                            server.stop()
                    else:
                        found = measurement.measure(servers[side.name], seconds)
                    for name, value in found.items():
                        values[side.name].setdefault(name, []).append(value)
            for figure in measurement.figures:
                theirs = values[ApacheKafka.name].get(figure.name)
                ours = values[Pykbroker.name].get(figure.name)
                if not theirs or not ours:
                    continue
                kafka, mine = statistics.median(theirs), statistics.median(ours)
                ratio = (mine / kafka if figure.more_is_better else kafka / mine) if kafka and mine else 0.0
                row = {
                    "measurement": measurement.title,
                    "figure": figure.name,
                    "unit": figure.unit,
                    "kafka": kafka,
                    "pykbroker": mine,
                    "ratio": ratio,
                    "more_is_better": figure.more_is_better,
                    "target": figure.target,
                    "at_most": figure.at_most,
                    "kafka_all": theirs,
                    "pykbroker_all": ours,
                }
                results.append(row)
                print(format_row(row), flush=True)
            for name in sorted(set(values[Pykbroker.name]) - {figure.name for figure in measurement.figures}):
                print(
                    f"    {name}: {statistics.median(values[Pykbroker.name][name]):.3g}"
                    f" (Apache Kafka {statistics.median(values[ApacheKafka.name][name]):.3g})",
                    flush=True,
                )
    finally:
        for server in servers.values():
            server.stop()
    return results


def commit() -> str:
    """The commit that is measured; `+` behind it: with changes that are not committed."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + ("+" if git("status", "--porcelain") else "")


def processor() -> str:
    """The model of the processor, as the kernel calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main() -> int:
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
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    known = [*MEASUREMENTS, *GROUPS, *TRANSACTIONS, *RETURNING, *STARTING, *DURABILITY, *READING, *COMPACTION, *SPARK]
    chosen = [measurement for measurement in known if re.search(options.only, measurement.title)]
    if options.list:
        for measurement in chosen:
            print(measurement.title)
        return 0
    started = time.strftime("%Y-%m-%dT%H-%M-%S")
    measured = commit()
    with ExitStack() as stack:
        if options.fsync_ms:
            tempfile.tempdir = str(stack.enter_context(slow_device(options.fsync_ms)))
        results = run(chosen, options.rounds, options.seconds, options.warm_up)
    record = {
        "when": started,
        "commit": measured,
        "whole": len(chosen) == len(known) and not options.fsync_ms,
        "kafka": KAFKA_VERSION,
        "python": platform.python_version(),
        "machine": {"processor": processor(), "cores": os.cpu_count(), "system": platform.system().lower()},
        "rounds": options.rounds,
        "seconds": options.seconds,
        "warm_up_seconds": options.warm_up,
        "fsync_ms": options.fsync_ms,
        "only": options.only,
        "results": results,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{started}-{measured.rstrip('+')}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"stored: {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
