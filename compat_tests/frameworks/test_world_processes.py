"""Worlds in processes of many kinds: with coverage, with anyio's threads, and one seed in many workers."""

from __future__ import annotations

import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compat_tests.frameworks.runs import run_pytest
from testkit import needs

SERVICE = """
import asyncio


async def bill(world):
    await asyncio.sleep(1)
    world.did("billed")


def nobody_calls_this():
    return 1


def in_a_thread(number):
    return number + 1
"""
TEST = """
import anyio
import anyio.to_thread
import pytest
import service


@pytest.mark.kafka_world(seeds=2)
async def test_it(kafka_world):
    kafka_world.app("billing", lambda: service.bill(kafka_world))
    await kafka_world.sleep("3 s")
    assert kafka_world.done("billed")
    for abandon in (True, False):
        assert await anyio.to_thread.run_sync(service.in_a_thread, 1, abandon_on_cancel=abandon) == 2
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["coverage run", "pytest-cov"])
def test_lines_that_ran_in_a_world_are_counted(tmp_path: Path, kind: str) -> None:
    """Nothing is configured for subprocesses. anyio's threads are simulated."""
    (tmp_path / "service.py").write_text(SERVICE, encoding="utf-8")
    (tmp_path / "test_it.py").write_text(TEST, encoding="utf-8")
    if kind == "pytest-cov":
        done = run_pytest(tmp_path, "--cov=service", "--cov-report=json:found.json")
    else:
        done = run_pytest(tmp_path, through=["-m", "coverage", "run", "--branch", "--source=."])
    assert re.search(r"^1 passed", done.stdout, re.MULTILINE), done.stdout + done.stderr
    if kind == "coverage run":
        command = [needs.frameworks(), "-m", "coverage", "json", "-o", "found.json"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["files"]["service.py"]["missing_lines"] == [11]
    assert [path.name for path in tmp_path.glob(".coverage*")] == [".coverage"]


ONE_SEED = """
import asyncio

import aiokafka
import pytest


@pytest.mark.parametrize("faults", ["kill", "none"])
@pytest.mark.kafka_world(seeds=1, brokers=3)
async def test_it(kafka_world, faults):
    servers = kafka_world.bootstrap_servers

    async def ordering():
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
            while True:
                await producer.send_and_wait("orders", b"%d" % len(kafka_world.done("sent")))
                kafka_world.did("sent")
                await asyncio.sleep(0.5)

    async def billing():
        async with aiokafka.AIOKafkaConsumer(
            "orders", bootstrap_servers=servers, group_id="billing", auto_offset_reset="earliest"
        ) as consumer:
            async for record in consumer:
                kafka_world.did("billed", record.value)

    kafka_world.app("ordering", ordering, restart_after="1s")
    first, _ = kafka_world.apps(2, billing, "billing", restart_after="1s")
    await kafka_world.until(lambda: len(kafka_world.done("billed")) > 3)
    if faults == "kill":
        kafka_world.kill(2)
        first.kill()
    await kafka_world.sleep("15 s")
    assert False, f"{len(kafka_world.done('billed'))} were billed"


def test_another():
    pass
"""


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("count", [4, pytest.param(100, marks=pytest.mark.long(amount="100 workers"))])
def test_one_seed_is_one_trace_in_workers_of_every_kind(tmp_path: Path, count: int) -> None:
    """Every second worker is measured by coverage. The others have another folder, another size of the environment,
    other tests left out, and every fourth one has no steady addresses."""

    def traces(number: int) -> str:
        folder = tmp_path / f"{number}"
        if number % 2:
            folder = folder.joinpath(*["deep"] * number)
        folder.mkdir(parents=True)
        (folder / "test_it.py").write_text(ONE_SEED, encoding="utf-8")
        if number % 2:
            steady = {} if number % 4 == 1 else {"PYKBROKER_WORLDS_STEADY": "no"}
            done = run_pytest(folder, "--kafka-seed", "7", "-k", "it and not another", SIZE="x" * 37 * number, **steady)
        else:
            done = run_pytest(folder, "--kafka-seed", "7", "--cov=aiokafka")
            assert "TOTAL" in done.stdout, done.stdout
        found = re.findall(r"trace (\w{16})", done.stdout)
        assert len(found) == 2, done.stdout + done.stderr
        return " ".join(found)

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(traces, range(count)))
    assert len(set(found)) == 1, found
