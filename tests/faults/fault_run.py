"""One cluster, its clients, many faults, one judge: the program that CI, `make test-long` and people run.

`python -m tests.faults.fault_run --seed 1 --count 20` is a round. A seed names the order of the faults; every kind
comes once before any comes again. `--rounds 50` runs one round after the other (1,000 faults) and notes each in
docs/fault-runs.jsonl; an interrupted run goes on where it was.

Each round runs in namespaces of its own for network, mounts and processes, where that is allowed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pykbroker import generated_page
from testkit.nodes.load import Load
from testkit.nodes.nodes import GROUP, TRANSACTION
from testkit.nodes.trio import NUMBERS
from testkit.nodes.wire import TOPIC, Wire
from tests.faults.fault_kinds import BOUNCES, KINDS, RETURN_SECONDS, Kind, Stand
from tests.faults.faulted_trio import FaultedTrio
from tests.faults.packet_switch import PacketSwitch
from tests.long_runs import ROOT, code_id, git

NOTES = ROOT / "docs" / "fault-runs.jsonl"
PAGE = ROOT / "docs" / "fault-runs.md"
#: A change in one of these makes earlier results results of other code.
CODE = ("wire", "log", "raft", "pykbroker", "testkit", "tests/faults", "pyproject.toml")
ROUND = 20
_INSIDE = "PYKBROKER_FAULTS_INSIDE"
_RESULT = "result.json"
#: A network, mounts and process ids of its own: when the round's process ends, all that it started ends.
_UNSHARE = (
    "unshare",
    "--net",
    "--mount",
    "--propagation",
    "private",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
_IDEMPOTENT: dict[str, Any] = {"enable.idempotence": True}
_PLAIN: dict[str, Any] = {"acks": "all", "max.in.flight": 1}
#: topic -> its replicas, and the settings of its writers: an idempotent and a plain one, and each codec
TOPICS: dict[str, tuple[Sequence[int], dict[str, dict[str, Any]]]] = {
    "one": ((1, 2, 3), {"once": _IDEMPOTENT, "plain": {**_PLAIN, "compression.type": "lz4"}}),
    "two": ((2, 3, 1), {"once": {**_IDEMPOTENT, "compression.type": "zstd"}}),
    "three": ((3, 1, 2), {"once": {**_IDEMPOTENT, "compression.type": "snappy"}}),
    "moves": ((1, 2), {"once": {**_IDEMPOTENT, "compression.type": "gzip"}}),
}
INTERNAL = ("__consumer_offsets", "__transaction_state")

Note = dict[str, Any]


def may_unshare() -> bool:
    """Return True if this process may have a network and mounts of its own, and carry packets."""
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return False
    try:
        return subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def chosen(seed: int, count: int, kinds: Sequence[Kind]) -> list[Kind]:
    """Every kind once, in some order, before any comes again."""
    rng = random.Random(seed)
    found: list[Kind] = []
    while len(found) < count:
        found += rng.sample(kinds, len(kinds))
    return found[:count]


# One round


def run_round(seed: int, count: int, names: Sequence[str], folder: Path, bounces: int) -> Note:
    """Raises what went wrong, noted with the fault. Prints a line for each fault."""
    inside = bool(os.environ.get(_INSIDE))
    allowed = [kind for kind in KINDS if inside or not (kind.needs_network or kind.needs_mount)]
    if names:
        allowed = [kind for kind in allowed if kind.name in names]
    with ExitStack() as stack:
        switch = stack.enter_context(PacketSwitch(NUMBERS)) if inside else None
        trio = FaultedTrio(folder, switch, may_mount=inside)
        stack.enter_context(trio)
        trio.serving(*NUMBERS)
        trio.all_vote()
        load = _load(trio)
        stand = Stand(trio, load, random.Random(f"{seed} faults"), [*TOPICS, "transacted", *INTERNAL], bounces)
        began = time.monotonic()
        with load:
            stand.settle()
            for number, kind in enumerate(chosen(seed, count, allowed), start=1):
                victim = kind.victim(stand)
                started = time.monotonic()
                complaints = len(trio.complaints())
                try:
                    kind.fault(stand, victim)
                    stand.settle(RETURN_SECONDS if kind.needs_network else 0.0)
                    found = trio.complaints()[complaints:]
                    assert kind.is_an_error or not found, found
                except BaseException as error:
                    error.add_note(f"seed {seed}, fault {number}: {kind.name}, node {victim}")
                    raise
                seconds = time.monotonic() - started
                print(f"{number:3} of {count}: {kind.name}, node {victim}: {seconds:.1f} s", flush=True)
        load.judge()
        for topic in stand.topics:
            for partition, led in trio.partitions(topic).items():
                with Wire(trio.address(led.leader_id)) as wire:
                    is_empty = not wire.fetch(topic, partition=partition, max_wait_ms=0).high_watermark
                if not is_empty:
                    trio.same_logs(topic, partition)
        records = sum(len(writer.acknowledged) for each in load.journals.values() for writer in each.writers.values())
    return {
        "seed": seed,
        "faults": count,
        "network": inside,
        "records": records,
        "seconds": round(time.monotonic() - began),
    }


def _load(trio: FaultedTrio) -> Load:
    for topic, (replicas, _) in TOPICS.items():
        trio.create(topic, replicas)
    trio.create("transacted", (2, 1, 3))
    with Wire(trio.address(1)) as wire:
        # It has two replicas: one of them may be away.
        assert not wire.alter(TOPIC, "moves", {"min.insync.replicas": "1"}).error_code
    load = Load(trio, (), pause_s=0.3)
    for topic, (_, writers) in TOPICS.items():
        load.write(topic, writers)
    # librdkafka waits for the answer to JoinGroup as long as a member may be away from poll, however silent the
    # coordinator is: five minutes by default.
    member = {"socket.timeout.ms": "6000", "max.poll.interval.ms": "10000"}
    load.consume(trio.keys_by_coordinator(GROUP, "member")[2], "one", member)
    load.transact(trio.keys_by_coordinator(TRANSACTION, "writer")[3], "transacted", {"socket.timeout.ms": 2_500})
    return load


# A round in a process of its own


def round_apart(
    seed: int, count: int, names: Sequence[str] = (), *, bounces: int = BOUNCES, timeout: float | None = None
) -> Note:
    """Run a round in namespaces of its own. Raises CalledProcessError or TimeoutExpired; what it said is printed."""
    inside = may_unshare()
    prefix = _UNSHARE if inside else ()
    command = [*prefix, sys.executable, "-m", "tests.faults.fault_run", "--apart"]
    command += ["--seed", str(seed), "--count", str(count), "--bounces", str(bounces)]
    for name in names:
        command += ["--only", name]
    paths = os.pathsep.join(str(ROOT / part) for part in ("", "wire", "log", "raft"))
    env = {**os.environ, "PYTHONPATH": paths, _INSIDE: "1" if inside else ""}
    # Made here: in the namespace of the round a file system is mounted in it.
    with tempfile.TemporaryDirectory(prefix="pykbroker-faults-") as folder:
        command += ["--folder", folder]
        with subprocess.Popen(command, env=env, cwd=ROOT, start_new_session=True) as process:
            try:
                status = process.wait(timeout)
            finally:
                if process.poll() is None:
                    # The whole group: without namespaces the nodes would stay.
                    os.killpg(process.pid, signal.SIGKILL)
        if status:
            raise subprocess.CalledProcessError(status, command)
        note: Note = json.loads((Path(folder) / _RESULT).read_text(encoding="utf-8"))
    return note


def _apart(seed: int, count: int, names: Sequence[str], folder: Path, bounces: int) -> int:
    if os.environ.get(_INSIDE):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    try:
        note = run_round(seed, count, names, folder, bounces)
    except BaseException as error:  # noqa: BLE001  # told, with the nodes' last words
        # Without the line that begins a traceback, which stands for one of a node (tests/whole_run/forgiving.py).
        print(*traceback.format_tb(error.__traceback__), *traceback.format_exception_only(error), sep="", flush=True)
        for number in NUMBERS:
            log = folder / f"{number}.log"
            if log.exists():
                print(f"--- node {number}", *log.read_text(errors="replace").splitlines()[-25:], sep="\n")
        return 1
    (folder / _RESULT).write_text(json.dumps(note), encoding="utf-8")
    return 0


# Many rounds, by hand


def read_notes() -> list[Note]:
    if not NOTES.exists():
        return []
    return [json.loads(line) for line in NOTES.read_text(encoding="utf-8").splitlines()]


def left(notes: Sequence[Note], code: str | None, first: int, rounds: int) -> list[int]:
    """The seeds that have not passed with this code; with None, those that did not pass when they ran last. Code with
    uncommitted changes has no name: all of them."""
    if code is None:
        passed = {note["seed"]: _passed(note) for note in notes}
    else:
        is_named = not code.endswith("+")
        passed = {note["seed"]: True for note in notes if is_named and note["code"] == code and _passed(note)}
    return [seed for seed in range(first, first + rounds) if not passed.get(seed)]


def _passed(note: Note) -> bool:
    passed: bool = note["result"] == "passed"
    return passed


def run_rounds(first: int, rounds: int, *, goes_on: bool = False) -> int:
    """Returns how many rounds failed. `goes_on`: a round counts that passed when it ran last, whatever code it was."""
    code, commit = code_id(CODE), git("rev-parse", "--short=10", "HEAD")
    seeds = left(read_notes(), None if goes_on else code, first, rounds)
    print(f"{len(seeds)} rounds of {ROUND} faults are left of {rounds}", flush=True)
    failed = 0
    for seed in seeds:
        note: Note = {"seed": seed, "faults": ROUND, "result": "passed"}
        try:
            note |= round_apart(seed, ROUND)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            note["result"] = f"failed: {type(error).__name__}"
            failed += 1
        note |= {"date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"), "commit": commit, "code": code}
        with NOTES.open("a", encoding="utf-8") as notes:
            notes.write(json.dumps(note) + "\n")
        print(f"round {seed}: {note['result']}", flush=True)
    return failed


def page(notes: Sequence[Note]) -> str:
    """docs/fault-runs.md: one row for each code that ran."""
    by_code: dict[str, list[Note]] = {}
    for note in {(note["code"], note["seed"]): note for note in notes}.values():
        by_code.setdefault(note["code"], []).append(note)
    last = {note["seed"]: note for note in notes}.values()
    lines = [
        "<!-- Generated by `python -m tests.faults.fault_run --report`. Do not edit. -->",
        "",
        "# Faults on real processes",
        "",
        f"What `make faults` has run: rounds of {ROUND} faults on a cluster of three processes, each in a network",
        "namespace of its own, with idempotent, plain and transactional producers, consumers and a group. A round",
        "passes when every client goes on after each fault, nothing that was acknowledged is lost, nothing of an",
        "idempotent producer is doubled or reordered, no aborted record is read, all replicas hold the same bytes, and",
        "no node says ERROR that has not lost a disk.",
        "",
        "Partitions, delay and loss need neither netem nor nftables: a process carries the packets between the",
        "namespaces (`tests/faults/packet_switch.py`). It needs root and /dev/net/tun; where they are missing, the",
        "faults of the network and of the full disk are left out, and 20 of the 28 kinds remain. Linux has no",
        "namespace for the wall clock: a `sitecustomize.py` shifts it in one process.",
        "",
        f"{len(last)} rounds have run, {sum(note['faults'] for note in last):,} faults, each counted once;",
        f"{sum(not _passed(note) for note in last)} rounds failed with the newest code that ran them.",
        "",
        "| commit | rounds | faults | failed | acknowledged records | hours | date (UTC) |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for rows in by_code.values():
        faults = sum(note["faults"] for note in rows)
        failed = sum(not _passed(note) for note in rows)
        records = sum(note.get("records", 0) for note in rows)
        hours = sum(note.get("seconds", 0) for note in rows) / 3600
        lines.append(
            f"| {rows[-1]['commit']} | {len(rows)} | {faults:,} | {failed} | {records:,} | {hours:.1f} "
            f"| {rows[-1]['date']} |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.fault_run", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=ROUND)
    parser.add_argument("--only", action="append", default=[], help="a kind by its name; may be given again")
    parser.add_argument("--bounces", type=int, default=BOUNCES, help="how often a bounce is repeated")
    parser.add_argument("--rounds", type=int, help="so many rounds, from --seed on, noted in docs/fault-runs.jsonl")
    parser.add_argument("--go-on", action="store_true", help="of --rounds, only those that have not passed yet")
    parser.add_argument("--report", action="store_true", help="only make docs/fault-runs.md")
    parser.add_argument("--check", action="store_true", help="only say whether docs/fault-runs.md is up to date")
    parser.add_argument("--apart", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.apart:
        return _apart(options.seed, options.count, options.only, options.folder, options.bounces)
    if options.check:
        return generated_page.check(PAGE, page(read_notes()), "tests.faults.fault_run --report")
    failed = 0
    if options.rounds:
        failed = run_rounds(options.seed, options.rounds, goes_on=options.go_on)
    elif not options.report:
        print(round_apart(options.seed, options.count, options.only, bounces=options.bounces))
        return 0
    PAGE.write_text(page(read_notes()), encoding="utf-8")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
