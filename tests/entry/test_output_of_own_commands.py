"""The commands of a broker at a standard output that cannot be written: a closed pipe ends them without a word, and a
full disk with one line. A node that runs by then is stopped in order."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from pykbroker.testing import Broker
from testkit.nodes.processes import environment

LINE: Final = "pykbroker: standard output cannot be written: No space left on device\n"
PROPERTIES: Final = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://localhost:0,CONTROLLER://localhost:0
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=localhost:9093
log.dirs={}
"""
CLEAN: Final = ".kafka_cleanshutdown"

pytestmark = pytest.mark.slow


@pytest.fixture(params=["buffered", "unbuffered"])
def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment of a command. `python -u`, as images run it, writes each line at once."""
    found = {name: value for name, value in environment().items() if name != "PYTHONUNBUFFERED"}
    return found | ({"PYTHONUNBUFFERED": "1"} if request.param == "unbuffered" else {})


@pytest.fixture(params=["closed", "full"])
def output(request: pytest.FixtureRequest) -> Iterator[int]:
    """Yield a descriptor that takes nothing."""
    if request.param == "full":
        made = os.open("/dev/full", os.O_WRONLY)
    else:
        reading, made = os.pipe()
        os.close(reading)
    yield made
    os.close(made)


@pytest.fixture
def said(output: int) -> str:
    """Return the line of a command at this output."""
    return LINE if os.path.realpath(f"/proc/self/fd/{output}") == "/dev/full" else ""


def run(settings: dict[str, str], output: int, module: str, *words: str) -> tuple[int, str]:
    """Run a command with this standard output. Returns its exit status and what it writes to standard error."""
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(
        command, stdout=output, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=settings, timeout=60, text=True
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", ["version", "start --help"])
def test_a_text(words: str, settings: dict[str, str], output: int, said: str) -> None:
    assert run(settings, output, "pykbroker", *words.split()) == (1, said)


@pytest.mark.parametrize("words", [[], ["-o", "json"]])
def test_the_health_of_a_node(
    words: list[str], settings: dict[str, str], output: int, said: str, tmp_path: Path
) -> None:
    socket = tmp_path / "health.sock"
    with Broker(config={"pykbroker.health.socket": str(socket)}):
        assert run(settings, output, "pykbroker", "health", "--socket", str(socket), *words) == (1, said)


def test_a_format(settings: dict[str, str], output: int, said: str, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(PROPERTIES.format(tmp_path / "data"))
    words = ["format", str(file), "--cluster-id", "4L6g3nShT-eMCtK--X86sw", "--ignore-formatted"]
    assert run(settings, output, "pykbroker", *words) == (1, said)
    # It has formatted the directory, and says so the second time.
    assert (tmp_path / "data" / "meta.properties").exists()
    assert run(settings, output, "pykbroker", *words) == (1, said)


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_node_or_a_cluster_stops_in_order(
    brokers: int, settings: dict[str, str], output: int, said: str, tmp_path: Path
) -> None:
    words = ["start", "--data-dir", str(tmp_path), "--port", "0", "--log-level", "ERROR"]
    folders = [tmp_path]
    if brokers > 1:
        words += ["--brokers", str(brokers)]
        folders = [tmp_path / f"node-{number}" for number in range(1, brokers + 1)]
    assert run(settings, output, "pykbroker", *words) == (1, said)
    for folder in folders:
        assert list(folder.rglob(CLEAN)), f"{folder} was not closed"


def test_the_help_of_cub(settings: dict[str, str], output: int, said: str) -> None:
    expected = said.replace("pykbroker: ", "cub: ")
    assert run(settings, output, "pykbroker.tools.kafka.cub", "--help") == (1, expected)


@pytest.mark.parametrize("module", ["pykbroker", "pykbroker.tools.kafka.cub"])
def test_a_program_without_a_standard_output(module: str, settings: dict[str, str]) -> None:
    words = ["version"] if module == "pykbroker" else ["ensure", "PATH"]
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", module, *words]
    done = subprocess.run(command, stderr=subprocess.PIPE, env=settings, timeout=60, text=True)
    assert (done.returncode, done.stderr) == (0, "")
