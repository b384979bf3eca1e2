"""The threads of blocking calls, and the calls that need none because their disk waits for no device."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykbroker.quorum.blocking_calls import BlockingCalls
from pykbroker.runtime import OsRuntime, Runtime
from pykbroker.testing import Broker
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.os_disk.volatile import VolatileDisk


class Bench:
    """Calls of one driver, whose threads are a list."""

    def __init__(self, loop: asyncio.AbstractEventLoop, disk: OsDisk) -> None:
        self.threads: list[Any] = []
        runtime = SimpleNamespace(loop=loop, disk=disk, run_blocking=self.run_blocking)
        self.calls = BlockingCalls(cast("Runtime", runtime))
        self.ended: list[Any] = []
        self._loop = loop

    def run_blocking(self, call: Any) -> asyncio.Future[Any]:
        self.threads.append(call)
        future = self._loop.create_future()
        future.set_result(call())
        return future

    def then(self, future: asyncio.Future[Any]) -> None:
        self.ended.append(future.exception() or future.result())


@pytest.mark.parametrize(("disk", "threads"), [(OsDisk, 1), (VolatileDisk, 0)])
def test_an_fsync_has_a_thread_if_its_disk_waits_for_a_device(disk: type[OsDisk], threads: int) -> None:
    async def run() -> None:
        bench = Bench(asyncio.get_running_loop(), disk())
        bench.calls.run_fsync(lambda: 7, bench.then)
        assert len(bench.threads) == threads
        # A driver is in the middle of a step.
        assert bench.ended == []
        await bench.calls.all_returned()
        assert bench.ended == [7]
        # Another call may take long on any disk.
        bench.calls.run(lambda: 8, bench.then)
        assert len(bench.threads) == threads + 1
        await bench.calls.all_returned()
        assert bench.ended == [7, 8]

    asyncio.run(run())


def test_the_error_of_a_call_without_a_thread_is_its_result() -> None:
    def fail() -> None:
        raise OSError("no")

    async def run() -> None:
        bench = Bench(asyncio.get_running_loop(), VolatileDisk())
        bench.calls.run_fsync(fail, bench.then)
        await bench.calls.all_returned()
        assert [str(error) for error in bench.ended] == ["no"]

    asyncio.run(run())


@pytest.mark.parametrize("is_kept", [False, True])
def test_the_metadata_log_of_a_temporary_directory_is_flushed_without_a_thread(
    is_kept: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    run_blocking = OsRuntime.run_blocking

    def counted(self: OsRuntime, function: Any, *args: object) -> Any:
        names.append(getattr(function, "__qualname__", ""))
        return run_blocking(self, function, *args)

    monkeypatch.setattr(OsRuntime, "run_blocking", counted)
    with Broker(data_dir=tmp_path if is_kept else None) as broker:
        broker.create_topic("t", partitions=1)
    assert ("MetadataStorage.flush" in names) == is_kept
    assert "open_replica" in names
