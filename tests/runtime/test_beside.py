"""Work that one loop has another one do."""

from __future__ import annotations

import asyncio

import pytest

from pykbroker.runtime.beside import run_there


def test_however_often_it_is_cancelled_the_work_has_ended_when_it_returns() -> None:
    asyncio.run(_cancel_three_times())


async def _cancel_three_times() -> None:
    loop = asyncio.get_running_loop()
    goes_on, may_end = asyncio.Event(), asyncio.Event()
    ended = False

    async def work() -> None:
        nonlocal ended
        goes_on.set()
        try:
            await asyncio.Event().wait()
        finally:
            # The end of what it has begun takes its time.
            while not may_end.is_set():
                try:
                    await may_end.wait()
                except asyncio.CancelledError:
                    continue
            ended = True

    running = asyncio.ensure_future(run_there(loop, loop, loop.call_soon, loop.call_soon, work))
    await goes_on.wait()
    for _ in range(3):
        running.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not running.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended
