"""Zombies that the first process of a container inherits are waited for; children of its own are left to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from pykbroker.entry.orphans import Orphans
from testkit.nodes.processes import command, environment


def ended_child() -> int:
    """A child that has ended and was not waited for."""
    child = os.fork()
    if child == 0:
        os._exit(7)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    return child


def is_there(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def test_a_zombie_is_taken_away_at_the_second_look() -> None:
    child = ended_child()
    orphans = Orphans()
    orphans.look()
    assert is_there(child)
    orphans.look()
    assert not is_there(child)
    orphans.look()


def test_a_child_that_is_waited_for_between_two_looks_keeps_its_status() -> None:
    child = ended_child()
    orphans = Orphans()
    orphans.look()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    orphans.look()


def test_a_child_that_runs_is_left_alone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        orphans = Orphans()
        orphans.look()
        orphans.look()
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait() == 1


def test_a_signal_that_came_before_the_interpreter_ends_the_start() -> None:
    """The image's scripts block it until there is a handler: the kernel drops one for which the first process of a
    container has none."""

    def pending() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        os.kill(os.getpid(), signal.SIGTERM)

    started = subprocess.run(
        command("in-container", "launch", "--help"), env=environment({}), preexec_fn=pending, capture_output=True
    )
    assert started.returncode == 128 + signal.SIGTERM
