"""A cluster leaves its process as it was: no thread, no file, no socket, no warning."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="/proc says what is open"),
]


def watch(*words: str) -> None:
    """Run a watch of `leaves_nothing` in a process of its own."""
    command = [sys.executable, "-W", "default::ResourceWarning", "-m", "tests.testing.leaves_nothing", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_nothing_is_left_of_a_killed_node(loop: str) -> None:
    watch("a_killed_node", loop)


def test_the_host_process_stays_as_it_was() -> None:
    watch("the_host_process")
