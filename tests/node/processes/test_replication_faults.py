"""Nodes end and start again in any way while clients run: the promises of test_replication.py, for longer."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from testkit.nodes.load import Load
from testkit.nodes.nodes import PATIENCE_SECONDS
from testkit.nodes.trio import NUMBERS, REPLICATED, Trio
from tests.node.processes.test_replication import create_one_for_each

FAULTS = 20


def killed(trio: Trio, load: Load, number: int, rng: random.Random) -> None:
    trio.kill(number)
    load.goes_on()
    trio.start(number)


def killed_and_back_at_once(trio: Trio, load: Load, number: int, rng: random.Random) -> None:
    trio.kill(number)
    trio.start(number)


def stopped(trio: Trio, load: Load, number: int, rng: random.Random) -> None:
    assert trio.stop(number) == 0
    load.goes_on()
    trio.start(number)


def two_killed(trio: Trio, load: Load, number: int, rng: random.Random) -> None:
    other = number % len(NUMBERS) + 1
    os.kill(trio.running[number].pid, signal.SIGKILL)
    for each in (other, number):
        trio.kill(each)
    time.sleep(rng.uniform(0, 3))
    for each in (number, other):
        trio.start(each)


def paused(trio: Trio, load: Load, number: int, rng: random.Random) -> None:
    """Pause for less, or for more than a session."""
    with trio.paused(number):
        time.sleep(rng.choice([0.5, 2, 6]))


WAYS = (killed, killed, killed_and_back_at_once, stopped, two_killed, paused)


@pytest.mark.long(amount=f"{FAULTS} faults")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_acknowledged_is_lost_however_nodes_end(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with Trio(tmp_path, "dynamic", REPLICATED) as trio:
        trio.serving(*NUMBERS)
        topics = create_one_for_each(trio)
        with Load(trio, topics) as load:
            for _ in range(FAULTS):
                load.goes_on()
                rng.choice(WAYS)(trio, load, rng.choice(NUMBERS), rng)
                for process in trio.running.values():
                    process.ready(PATIENCE_SECONDS)
                trio.in_sync(*topics)
        load.judge()
        for topic in topics:
            trio.same_logs(topic)
        assert not trio.complaints()
