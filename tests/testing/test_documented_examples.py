"""The examples of docs/testing.md are run as they are written: here those that need only the tests' own environment.

compat_tests/frameworks runs those of the frameworks, compat_tests/spark/test_documented.py those of Spark, and
compat_tests/container/testcontainers/test_own_class.py those of the container.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pykbroker.testing.faults_server import FaultsServer
from testkit.documented import blocks, examples
from testkit.nodes.processes import environment
from testkit.plugin_runs import PLUGIN, installed_plugins
from tests.testing.test_faults_server import ask


def test_every_example_is_run_somewhere() -> None:
    assert Counter(example.needs for example in examples()) == {"": 18, "frameworks": 3, "spark": 1, "docker": 1}


@pytest.mark.slow
def test_the_examples(tmp_path: Path) -> None:
    written = [example.write(tmp_path) for example in examples() if not example.needs]
    named = [] if "pykbroker" in installed_plugins() else ["-p", PLUGIN]
    command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider", *named, str(tmp_path)]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout
    assert f"{len(written)} passed" in done.stdout


@pytest.mark.slow
def test_the_times_that_a_reader_can_measure() -> None:
    commands = [
        line.removeprefix("$ ") for _, text in blocks("console") for line in text.splitlines() if "python -c" in line
    ]
    assert len(commands) == 2
    for command in commands:
        _, *arguments = shlex.split(command)
        done = subprocess.run(
            [sys.executable, *arguments], env=environment(), capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        assert float(done.stdout) > 0


def test_the_rule_over_http() -> None:
    (text,) = [text for _, text in blocks("console") if "curl" in text]
    (sent,) = re.findall(r"-d '(.*)'", text)
    (answer,) = [line for line in text.splitlines() if line.startswith("{")]
    (wait,) = re.findall(r"http://127.0.0.1:9405(/faults/1/wait\S*)'", text)
    server = FaultsServer("127.0.0.1:0")
    server.start()
    assert ask(server.address, "POST", "/faults", sent.encode()) == (201, json.loads(answer))
    assert ask(server.address, "GET", wait.replace("10000", "0"))[0] == 408
    server.close()
