"""`make sim-long`: many seeds on all cores, chunk by chunk; an interrupted run continues where it stopped.

It has the seeds of two runs, that of the whole cluster and the same with share groups. It takes chunks of both in turn.
Each chunk that ends adds a line to docs/simulation.jsonl: its run and its seeds, the failures, the time it took, and a
name for the code that ran. A chunk counts as done while the code has that name. With `--go-on`, a chunk without a
failure counts for any code: such a run finds all failures, and does not begin again after each fix. `--report` makes
docs/simulation.md from the lines, and `--check` checks that the page is up to date.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from pykbroker import generated_page
from tests.long_runs import ROOT, code_id, git
from tests.simulation.cluster_run import Outcome, run_cluster
from tests.simulation.share_run import run_shares
from tests.simulation.share_run.share_plan import SIM_ARGS

NOTES = ROOT / "docs" / "simulation.jsonl"
PAGE = ROOT / "docs" / "simulation.md"
#: A change in one of these makes earlier results those of other code.
CODE = ("wire", "log", "raft", "pykbroker", "worlds", "tests/simulation", "pyproject.toml")
CHUNK = 50

Note = dict[str, Any]
#: the run of a chunk, and its first seed
Chunk = tuple[str, int]


class LongRun(NamedTuple):
    """A run that has seeds: the function that runs one, how many there are, and the arguments of `make sim` for it."""

    run: Callable[[int], Outcome]
    seeds: int
    sim_args: str


RUNS: dict[str, LongRun] = {
    "cluster": LongRun(run_cluster, 10_000, ""),
    "shares": LongRun(run_shares, 2_000, SIM_ARGS),
}


def run_chunk(chunk: Chunk, count: int) -> Note:
    """Run a chunk of seeds, in a process of its own."""
    run, first = chunk
    failed: dict[str, str] = {}
    began, events, simulated = time.process_time(), 0, 0.0
    for seed in range(first, first + count):
        try:
            outcome = RUNS[run].run(seed)
        except Exception as error:  # noqa: BLE001  # any error: this seed found it
            failed[str(seed)] = f"{type(error).__name__}: {error}"[:300]
        else:
            events += outcome.events
            simulated += outcome.simulated_seconds
    return {
        "run": run,
        "first": first,
        "count": count,
        "failed": failed,
        "cpu_seconds": round(time.process_time() - began, 1),
        "events": events,
        "simulated_seconds": round(simulated),
    }


def read_notes() -> list[Note]:
    if not NOTES.exists():
        return []
    # Notes without a run are older than the run with share groups.
    return [{"run": "cluster", **json.loads(line)} for line in NOTES.read_text(encoding="utf-8").splitlines()]


def chunk_of(note: Note) -> Chunk:
    return note["run"], note["first"]


def left(notes: list[Note], code: str | None, seeds: Mapping[str, int], first: int = 0) -> list[Chunk]:
    """Return the chunks that have not run with this code, those of each run spread over the whole. With None, return
    those in which the newest run failed, and those that have never run. Code with uncommitted changes has no name, so
    all chunks are left. `seeds` has the number of seeds of each run."""
    if code is None:
        done = {chunk for chunk, note in newest(notes).items() if not note["failed"]}
    else:
        done = set() if code.endswith("+") else {chunk_of(note) for note in notes if note["code"] == code}
    chunks = [
        (number / count, run, first + number)
        for run, count in seeds.items()
        for number in range(0, count, CHUNK)
        if (run, first + number) not in done
    ]
    return [(run, number) for _, run, number in sorted(chunks)]


def newest(notes: list[Note]) -> dict[Chunk, Note]:
    """The newest note of each chunk."""
    return {chunk_of(note): note for note in notes}


def told(run: str, seed: str) -> str:
    """Return the command that tells what happens with a seed."""
    return f"make sim SEED={seed}{RUNS[run].sim_args}"


def run(seeds: Mapping[str, int], first: int, workers: int, *, goes_on: bool = False) -> int:
    """Run the chunks that are left; return how many seeds failed."""
    code, commit = code_id(CODE), git("rev-parse", "--short=10", "HEAD")
    chunks = left(read_notes(), None if goes_on else code, seeds, first)
    print(
        f"{len(chunks)} chunks of {CHUNK} seeds are left of {sum(seeds.values())} seeds, on {workers} processes",
        flush=True,
    )
    failures = 0
    context = multiprocessing.get_context("spawn")
    # Not ProcessPoolExecutor: with max_tasks_per_child, that of Python 3.11 starts no new process and waits without
    # end.
    with context.Pool(workers, maxtasksperchild=4) as pool:
        for note in pool.imap_unordered(partial(run_chunk, count=CHUNK), chunks):
            note |= {"date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"), "commit": commit, "code": code}
            with NOTES.open("a", encoding="utf-8") as notes:
                notes.write(json.dumps(note) + "\n")
            failures += len(note["failed"])
            for seed, text in note["failed"].items():
                print(f"{told(note['run'], seed)}: {text}", flush=True)
            print(f"{note['run']} {note['first']:6} to {note['first'] + CHUNK}: {note['cpu_seconds']} s", flush=True)
    return failures


def page(notes: list[Note]) -> str:
    """Return docs/simulation.md: one row for each code and run."""
    by_code: dict[tuple[str, str], list[Note]] = {}
    for note in {(note["code"], *chunk_of(note)): note for note in notes}.values():
        by_code.setdefault((note["code"], note["run"]), []).append(note)
    last = newest(notes).values()
    broken = [(note, seed, text) for note in last for seed, text in note["failed"].items()]
    lines = [
        "<!-- Generated by `python -m tests.simulation.cluster_run.long --report`. Do not edit. -->",
        "",
        "# The simulated cluster",
        "",
        "What `make sim-long` has run. Each seed is a cluster of three to six nodes with its clients and its faults,",
        "on a virtual clock; `make sim SEED=7` tells what happens in one. The run `shares` has members of share groups",
        'too; `make sim SEED=7 SIM_ARGS="--shares"` tells one. A seed holds when no invariant breaks at any event,',
        "when the cluster comes to rest within a minute after the faults, and when nothing that was acknowledged is",
        "lost.",
        "",
        f"{sum(note['count'] for note in last):,} seeds have run, each counted once; {len(broken)} failed with the",
        "newest code that ran them.",
        "",
        "| commit | run | seeds | failed | simulated hours | CPU seconds for a seed | date (UTC) |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    for (_, kind), rows in by_code.items():
        seeds = sum(note["count"] for note in rows)
        failed = sum(len(note["failed"]) for note in rows)
        hours = sum(note["simulated_seconds"] for note in rows) / 3600
        seconds = sum(note["cpu_seconds"] for note in rows) / seeds
        commit, date = rows[-1]["commit"], rows[-1]["date"]
        lines.append(f"| {commit} | {kind} | {seeds:,} | {failed} | {hours:.1f} | {seconds:.1f} | {date} |")
    if broken:
        lines += ["", "Seeds that failed when they ran last:", ""]
        lines += [
            f"* `{told(note['run'], seed)}` at {note['commit']}: {text.splitlines()[0][:150]}"
            for note, seed, text in broken[-50:]
        ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make sim-long", description="Run many seeds of the simulated cluster.")
    parser.add_argument("--run", choices=sorted(RUNS), help="only this run; by default both")
    parser.add_argument(
        "--seeds", type=int, help="of each run; by default 10,000 of the cluster, 2,000 with share groups"
    )
    parser.add_argument("--first", type=int, default=0, help="a multiple of the chunk of 50 seeds")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--go-on", action="store_true", help="only what no code has run yet, or what failed")
    parser.add_argument("--report", action="store_true", help="only make docs/simulation.md")
    parser.add_argument("--check", action="store_true", help="only say whether docs/simulation.md is up to date")
    chosen = parser.parse_args(arguments)
    if chosen.check:
        return generated_page.check(PAGE, page(read_notes()), "tests.simulation.cluster_run.long --report")
    seeds = {
        name: each.seeds if chosen.seeds is None else chosen.seeds
        for name, each in RUNS.items()
        if chosen.run in (None, name)
    }
    failures = 0 if chosen.report else run(seeds, chosen.first, chosen.workers, goes_on=chosen.go_on)
    PAGE.write_text(page(read_notes()), encoding="utf-8")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
