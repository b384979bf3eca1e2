"""The mark `kafka_world` as users have it: pytest in a process of its own, in a folder of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HEAD = """
import asyncio, datetime, time
from time import time as taken_by_name
import pytest
"""
SEEDS = (
    HEAD
    + """
@pytest.mark.kafka_world(seeds=6)
async def test_fails_from_3(kafka_world, capsys):
    await kafka_world.sleep("1 min")
    print("this is seed", kafka_world.seed)
    kafka_world.did("it", kafka_world.seed)
    assert kafka_world.seed < 3

def test_without_a_world():
    assert abs(time.time() - taken_by_name()) < 10
"""
)


def run(folder: Path, module: str, *arguments: str, **environment: str) -> str:
    """Return what pytest printed about this module."""
    (folder / "test_it.py").write_text(module)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "test_it.py", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        start_new_session=True,  # without a terminal
    )
    return done.stdout + done.stderr


def test_the_first_seed_that_fails_is_the_failure(tmp_path: Path) -> None:
    said = run(tmp_path, SEEDS)
    assert "1 failed, 1 passed" in said, said
    assert "this is seed 3" in said
    assert "this is seed 4" not in said
    (trace,) = re.findall(r"seed 3 of 6, trace (\w+), with pykbroker \S+, aiokafka \S+", said)
    assert "again: pytest 'test_it.py::test_fails_from_3' --kafka-seed 3" in said
    # The same seed alone, from another folder with another environment, and with other tests left out.
    other = tmp_path / "another" / "folder"
    other.mkdir(parents=True)
    # As in a container with Docker's default profile, in which the kernel grants no steady addresses.
    refused = {"PYKBROKER_WORLDS_STEADY": "no"}
    alone = run(other, SEEDS, "--kafka-seed", "3", "-k", "fails", SIZE="x" * 5_000, **refused)
    assert f"seed 3 of 1, trace {trace}," in alone, alone
    assert "the kernel refuses steady addresses" in alone
    assert "the kernel refuses steady addresses" not in said
    assert "1 passed" in run(tmp_path, SEEDS, "--kafka-seed", "2", "-k", "fails")


def test_the_faults_of_a_failure_are_shrunk(tmp_path: Path) -> None:
    """The service cannot bear a second start, so one fault that ends it is enough."""
    module = (
        HEAD
        + """
@pytest.mark.kafka_world(seeds=20)
async def test_it(kafka_world):
    async def service():
        kafka_world.did("started")
        await asyncio.sleep(3600)

    if kafka_world.seed < 3:
        return  # they draw a fault or two
    kafka_world.app("service", service)
    await kafka_world.disturb("30s", brokers=False, apps=True)
    assert len(kafka_world.done("started")) == 1, f"started {len(kafka_world.done('started'))} times"
"""
    )
    said = run(tmp_path, module)
    (drawn,) = re.findall(r"1 of (\d+) events \(drawn faults and steps\) are enough", said)
    assert int(drawn) > 2
    (again,) = re.findall(r"again: pytest 'test_it.py::test_it' (--kafka-seed \d+:\d+)", said)
    assert "started 2 times" in said
    assert "started 2 times" in run(tmp_path, module, *again.split())
    # The same seed without any fault.
    assert "1 passed" in run(tmp_path, module, *f"{again.partition(':')[0]}:".split())


def test_the_steps_of_a_test_are_shrunk(tmp_path: Path) -> None:
    """Without a step the rest goes on: a broker that was not killed need not be started, nor an application."""
    module = (
        HEAD
        + """
@pytest.mark.kafka_world(seeds=1, brokers=3)
async def test_it(kafka_world):
    async def service():
        kafka_world.did("started")
        await asyncio.sleep(3600)

    app = kafka_world.app("service", service)
    await kafka_world.sleep("1s")
    kafka_world.kill(1)
    app.pause()
    await kafka_world.stop(2)
    await kafka_world.sleep("1s")
    await kafka_world.start(1)
    await kafka_world.start(2)
    app.kill()
    app.start()
    kafka_world.partition(1, app)
    kafka_world.pause(1)
    await kafka_world.sleep("1s")
    kafka_world.resume(1)
    app.resume()
    kafka_world.heal()
    assert len(kafka_world.done("started")) == 1, f"started {len(kafka_world.done('started'))} times"
"""
    )
    said = run(tmp_path, module)
    assert "1 of 6 events (drawn faults and steps) are enough" in said, said
    assert "again: pytest 'test_it.py::test_it' --kafka-seed 0:s4" in said
    assert "started 2 times" in run(tmp_path, module, "--kafka-seed", "0:s4")
    assert "1 passed" in run(tmp_path, module, "--kafka-seed", "0:s1,s2,s3,s5,s6")


def test_each_seed_has_its_own_fixtures_and_time_follows_names(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        HEAD
        + """
made = []

@pytest.fixture(scope="module")
def shared():
    made.append(1)
    yield made
    made.append(2)

@pytest.mark.kafka_world(seeds=3, limit="11 min")
async def test_it(kafka_world, shared, tmp_path, monkeypatch):
    assert shared == [1]
    (tmp_path / "file").touch(exist_ok=False)
    before = taken_by_name()
    await asyncio.sleep(600)
    assert 600 <= taken_by_name() - before < 601
    assert datetime.datetime.now(datetime.timezone.utc).year == 2026

@pytest.mark.kafka_world(seeds=2)
def test_plain(kafka_world):
    async def scenario():
        await kafka_world.sleep("1 s")
        return kafka_world.seed
    assert kafka_world.run(scenario) == kafka_world.seed

class TestClass:
    @pytest.mark.parametrize("number", [1, 2])
    @pytest.mark.kafka_world(seeds=1, config={"num.partitions": "4"})
    async def test_method(self, kafka_world, number):
        await kafka_world.sleep(1_000)
""",
    )
    assert "4 passed" in said, said


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_it_stands_beside_pytest_asyncio(tmp_path: Path, mode: str) -> None:
    said = run(
        tmp_path,
        HEAD
        + """
@pytest.mark.kafka_world(seeds=2)
async def test_world(kafka_world):
    before = time.monotonic()
    await asyncio.sleep(60)
    assert time.monotonic() - before >= 60

@pytest.mark.asyncio
async def test_real():
    before = time.monotonic()
    await asyncio.sleep(0)
    assert time.monotonic() - before < 60
""",
        "-o",
        f"asyncio_mode={mode}",
    )
    assert "2 passed" in said, said


def test_what_a_world_cannot_have_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "def pytest_runtest_makereport(item):\n"
        "    if item.name == 'test_no_report':\n"
        "        raise ValueError('no report')\n"
    )
    said = run(
        tmp_path,
        HEAD
        + """
import pytest_asyncio

@pytest_asyncio.fixture
async def connected():
    yield 1

@pytest.mark.kafka_world(seeds=1)
async def test_fixture(kafka_world, connected):
    pass

@pytest.mark.kafka_world(seed=1)
async def test_argument(kafka_world):
    pass

def test_no_mark(kafka_world):
    pass

@pytest.mark.kafka_world(seeds=2)
async def test_dies(kafka_world):
    import os
    os._exit(7)

@pytest.mark.kafka_world(seeds=1)
async def test_no_report(kafka_world):
    pass

@pytest.mark.kafka_world(seeds=1)
async def test_no_terminal(kafka_world):
    breakpoint()
""",
    )
    assert "asynchronous fixtures do not run in a world, make them in the test: ['connected']" in said, said
    assert "unexpected keyword argument 'seed'" in said
    assert "the fixture kafka_world is for tests with @pytest.mark.kafka_world" in said
    assert "the process of the world ended with status 7\nseed 0, again: pytest 'test_it.py::test_dies'" in said
    assert "ValueError: no report\n\nseed 0, again: pytest 'test_it.py::test_no_report' --kafka-seed 0" in said, said
    assert "a debugger in a world needs a terminal" in said
    assert "5 failed, 1 error" in said


def test_the_example_of_the_readme(tmp_path: Path) -> None:
    readme = (Path(__file__).parents[2] / "worlds/README.md").read_text(encoding="utf-8")
    (example,) = (block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "kafka_world" in block)
    assert "seeds=50" in example
    said = run(tmp_path, example.replace("seeds=50", "seeds=1"))
    assert "1 passed" in said, said


def test_a_module_that_cannot_be_imported_is_an_error_of_pytest(tmp_path: Path) -> None:
    said = run(tmp_path, HEAD + "import does_not_exist\n")
    assert "No module named 'does_not_exist'" in said


def test_a_session_without_a_world_imports_nothing_of_the_broker(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
import sys

def test_it():
    assert "pykbroker_worlds.pytest_plugin" in sys.modules
    assert not {"pykbroker.node.node", "pykbroker_worlds.world"} & sys.modules.keys()
""",
    )
    assert "1 passed" in said, said
