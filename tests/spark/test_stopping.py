"""Signals, in a process of their own: the first asks, the second ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

SPARK = Path(__file__).resolve().parents[2] / "spark"
PROGRAM = """
import os, signal
from pipeline.stopping import Stop
before = signal.getsignal(signal.SIGTERM)
with Stop() as stop:
    os.kill(os.getpid(), signal.{first})
    print("asked", stop.asked, flush=True)
    {second}
print("restored", signal.getsignal(signal.SIGTERM) is before)
"""


def run(first: str, second: str) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(first=first, second=second)
    env = {"PYTHONPATH": str(SPARK)}
    return subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_signal_asks_and_nothing_else(number: str) -> None:
    ended = run(number, "pass")
    assert (ended.returncode, ended.stdout) == (0, "asked True\nrestored True\n")


@pytest.mark.parametrize(("first", "second"), [("SIGTERM", "SIGTERM"), ("SIGINT", "SIGINT"), ("SIGTERM", "SIGINT")])
def test_a_second_signal_ends_the_program_at_once(first: str, second: str) -> None:
    ended = run(first, f"os.kill(os.getpid(), signal.{second})")
    assert (ended.returncode, ended.stdout) == (-getattr(signal, second), "asked True\n")
