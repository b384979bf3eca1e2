"""Apache Kafka's DumpLogSegments and `pykbroker dump-log` on the same files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from compat_tests.tool_server import run_shared

#: The files of a log directory, and the tools' arguments for them.
ASKED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("*/*.log", ()),
    ("*/*.log", ("--print-data-log",)),
    ("*/*.log", ("--deep-iteration", "--skip-record-metadata")),
    ("*/*.log", ("--max-bytes", "30000")),
    ("*/*.index", ()),
    ("*/*.index", ("--index-sanity-check",)),
    ("*/*.index", ("--verify-index-only",)),
    ("*/*.timeindex", ()),
    ("*/*.timeindex", ("--index-sanity-check",)),
    ("*/*.snapshot", ()),
    ("*/*.txnindex", ()),
    ("__consumer_offsets-*/*.log", ("--offsets-decoder",)),
    ("__transaction_state-*/*.log", ("--transaction-log-decoder",)),
    ("__share_group_state-*/*.log", ("--share-group-state-decoder",)),
    ("__cluster_metadata-0/*.log", ("--cluster-metadata-decoder",)),
    ("__cluster_metadata-0/*.checkpoint", ("--cluster-metadata-decoder",)),
    ("*.checkpoint", ("--cluster-metadata-decoder",)),
    ("*checkpoint", ()),
)


def differences(log_dirs: Iterable[Path], asked: Sequence[tuple[str, tuple[str, ...]]] = ASKED) -> list[str]:
    """Return the differences of the two outputs as text; empty if there are none."""
    log_dirs = list(log_dirs)
    found = []
    for pattern, words in asked:
        files = sorted(path for log_dir in log_dirs for path in log_dir.glob(pattern))
        if files:
            theirs, ours = _kafka(files, words), _pykbroker(files, words)
            found += [f"{pattern} {words}: {line}" for line in _first_difference(theirs, ours)]
    return found


def _kafka(files: list[Path], words: Sequence[str]) -> tuple[str, str]:
    done = run_shared("org.apache.kafka.tools.DumpLogSegments", ["--files", ",".join(map(str, files)), *words])
    return done.out, done.err


def _pykbroker(files: list[Path], words: Sequence[str]) -> tuple[str, str]:
    command = [sys.executable, "-m", "pykbroker", "dump-log", "--files", ",".join(map(str, files)), *words]
    done = subprocess.run(command, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode(), done.stderr.decode()


def _first_difference(theirs: tuple[str, str], ours: tuple[str, str]) -> list[str]:
    if theirs[0] != ours[0]:
        pairs = zip(theirs[0].split("\n"), ours[0].split("\n"), strict=False)
        return [next((f"{one!r} is here {other!r}" for one, other in pairs if one != other), "more lines")]
    # Apache Kafka's tool keeps complaints in a hash map.
    if sorted(theirs[1].split("\n")) != sorted(ours[1].split("\n")):
        return [f"{theirs[1]!r} is here {ours[1]!r}"]
    return []


def verified(log_dirs: Iterable[Path]) -> str:
    """Return the findings of `dump-log --verify`; empty if there are none."""
    command = [sys.executable, "-m", "pykbroker", "dump-log", "--verify", *map(str, log_dirs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return "" if done.returncode == 0 else done.stdout + done.stderr
