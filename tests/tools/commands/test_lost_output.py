"""The program `pykbroker` at a standard output that cannot be written: a closed pipe ends it without a word, and a full
disk with one line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykbroker.testing import Broker

LINE = "pykbroker: standard output cannot be written: No space left on device\n"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("t", partitions=1)
        broker.produce("t", b"one", partition=0)
        yield broker


def ended(words: str, broker: Broker, output: int, error: Path) -> int:
    """Run a command with this standard output; returns its exit status."""
    given = words.format(at=f"-b {broker.bootstrap_servers}").split()
    with error.open("wb") as said:
        command = [sys.executable, "-m", "pykbroker", *given]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        done = subprocess.run(
            command, stdout=output, stderr=said, stdin=subprocess.DEVNULL, env=environment, timeout=60
        )
    return done.returncode


COMMANDS = [
    "version",
    "health --help",
    "--version",
    "topics --help",
    "random-uuid",
    "storage random-uuid",
    "topics list {at}",
    "groups list --help",
    "logs dump 00000000000000000000.log",
    "consume t {at}",
    "consume t --share workers --from beginning {at}",
]
#: A command that ends because its reader has all that it wanted has not failed.
READS = ("consume",)


@pytest.fixture
def log_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty log file in the current directory, about which `logs dump` prints its name."""
    (tmp_path / "00000000000000000000.log").touch()
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("log_file")
@pytest.mark.parametrize("words", COMMANDS)
def test_a_closed_pipe_ends_a_command_without_a_word(words: str, broker: Broker, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    error = tmp_path / "error"
    try:
        assert ended(words, broker, writing, error) == (0 if words.startswith(READS) else 1)
    finally:
        os.close(writing)
    assert error.read_text() == ""


@pytest.mark.slow
@pytest.mark.usefixtures("log_file")
@pytest.mark.parametrize("words", COMMANDS)
def test_a_full_disk_is_one_line_of_a_command(words: str, broker: Broker, tmp_path: Path) -> None:
    error = tmp_path / "error"
    with open("/dev/full", "wb") as full:
        assert ended(words, broker, full.fileno(), error) == 1
    assert error.read_text() == LINE


def test_a_failure_is_printed_although_the_output_is_lost(broker: Broker, tmp_path: Path) -> None:
    error = tmp_path / "error"
    with open("/dev/full", "wb") as full:
        assert ended("version --no-such-option", broker, full.fileno(), error) == 2
    assert error.read_text().startswith("pykbroker: ")
