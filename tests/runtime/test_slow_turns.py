"""Turns of the loop that take too long are found, with what they were doing."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import pykbroker
from pykbroker.metrics.registry import Metrics
from pykbroker.node.turn_report import SlowTurnReport
from pykbroker.runtime import OsRuntime
from pykbroker.runtime.slow_turns import UNKNOWN, SlowTurn
from pykbroker.testing.node_thread import new_loop

_PATIENCE_SECONDS = 30.0
PACKAGE = Path(pykbroker.__file__).parent


@pytest.fixture(params=[new_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def runtime(request: pytest.FixtureRequest) -> Iterator[OsRuntime]:
    # A broker that other tests share may be watched as well.
    before = watches()
    loop = request.param()
    runtime = OsRuntime(loop)
    yield runtime
    runtime.close()
    loop.close()
    assert watches() <= before


def watches() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "pykbroker-turn-watch"}


def _found(runtime: OsRuntime, turn: Callable[[], object], *, has_stack: bool = True) -> SlowTurn:
    """Return the report of this turn, which is repeated until there is one. On a busy machine the thread may be as late
    as in a call that keeps the lock. So only reports with a stack count, or only those without."""

    async def watch() -> SlowTurn:
        reported: asyncio.Future[SlowTurn] = runtime.loop.create_future()

        def report(slow: SlowTurn) -> None:
            if not reported.done() and bool(slow.stack) is has_stack:
                reported.set_result(slow)

        runtime.watch_turns(report)

        def again() -> None:
            if not reported.done():
                turn()
                runtime.loop.call_later(0.01, again)

        again()
        return await asyncio.wait_for(reported, _PATIENCE_SECONDS)

    return _run(runtime, watch())


def _run(runtime: OsRuntime, coroutine: Coroutine[Any, Any, SlowTurn]) -> SlowTurn:
    return runtime.loop.run_until_complete(coroutine)


def _until_looked_at(runtime: OsRuntime, step: Callable[[], object]) -> None:
    watch = runtime._watch
    assert watch is not None
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while watch._found is None and time.monotonic() < deadline:
        step()


@pytest.mark.slow
def test_a_turn_that_computes_is_found_with_its_place(runtime: OsRuntime) -> None:
    slow = _found(runtime, lambda: _until_looked_at(runtime, lambda: None))
    assert slow.seconds > 0.1
    assert any("_until_looked_at (runtime/test_slow_turns.py:" in line for line in slow.stack)


@pytest.mark.slow
def test_a_turn_that_waits_is_found(runtime: OsRuntime) -> None:
    slow = _found(runtime, lambda: _until_looked_at(runtime, lambda: time.sleep(0.01)))
    assert slow.seconds > 0.1
    assert slow.cpu_seconds < slow.seconds


@pytest.mark.slow
def test_the_api_is_the_reason(runtime: OsRuntime) -> None:
    code = compile("look()", f"{PACKAGE}/api/list_offsets.py", "exec")
    slow = _found(runtime, lambda: exec(code, {"look": lambda: _until_looked_at(runtime, lambda: None)}))
    assert slow.reason == "ListOffsets"


@pytest.mark.slow
def test_the_module_is_the_reason_where_no_api_is_served(runtime: OsRuntime) -> None:
    code = compile("look()", f"{PACKAGE}/metadata/loader.py", "exec")
    slow = _found(runtime, lambda: exec(code, {"look": lambda: _until_looked_at(runtime, lambda: None)}))
    assert slow.reason == "metadata/loader"


@pytest.mark.slow
def test_a_package_whose_name_begins_alike_is_another_one(runtime: OsRuntime) -> None:
    code = compile("look()", f"{PACKAGE}_log/segments.py", "exec")
    slow = _found(runtime, lambda: exec(code, {"look": lambda: _until_looked_at(runtime, lambda: None)}))
    assert slow.reason == UNKNOWN


@pytest.mark.slow
def test_a_call_that_keeps_the_lock_is_found_by_its_cpu(runtime: OsRuntime) -> None:
    def turn() -> None:
        # No line of Python runs in here, so no other thread does.
        sum(range(30_000_000))

    slow = _found(runtime, turn, has_stack=False)
    assert slow.cpu_seconds > 0.1
    assert slow.reason == UNKNOWN


_STOPPED = """
import asyncio, sys
from pykbroker.runtime import OsRuntime
async def main():
    runtime = OsRuntime(asyncio.get_running_loop())
    slow = []
    runtime.watch_turns(slow.append)
    print("ready", flush=True)
    await runtime.loop.run_in_executor(None, sys.stdin.readline)
    await asyncio.sleep(0.2)
    print(slow, flush=True)
    runtime.close()
asyncio.run(main())
"""


@pytest.mark.slow
def test_a_process_that_was_stopped_has_no_slow_turn() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _STOPPED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGSTOP)
        assert os.waitid(os.P_PID, process.pid, os.WSTOPPED) is not None
        time.sleep(0.5)  # the stop itself, of which nothing can be waited for
        os.kill(process.pid, signal.SIGCONT)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "[]\n"


def test_slow_turns_are_counted_by_reason_and_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    slow = SlowTurnReport(metrics, "The broker loop")
    caplog.set_level(logging.INFO, "pykbroker.node.turn_report")
    for seconds, reason in ((0.2, "Produce"), (0.4, "Produce"), (1.5, "Fetch")):
        slow(SlowTurn(seconds, 0.1, reason, ("outer (a/b.py:1)", "inner (c/d.py:2)")))
    assert metrics.snapshot() == {
        "pykbroker:type=EventLoop,name=LongestTurnCpuMs": 100.0,
        "pykbroker:type=EventLoop,name=LongestTurnMs": 1500.0,
        "pykbroker:type=EventLoop,name=SlowTurns,reason=Fetch": 1,
        "pykbroker:type=EventLoop,name=SlowTurns,reason=Produce": 2,
    }
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "INFO",
            "The broker loop stood still for 200 ms (100 ms of CPU) in Produce; it was at: "
            "inner (c/d.py:2) < outer (a/b.py:1)",
        ),
        (
            "WARNING",
            "The broker loop stood still for 1500 ms (100 ms of CPU) in Fetch; it was at: "
            "inner (c/d.py:2) < outer (a/b.py:1)",
        ),
    ]
