"""The time of fsyncs of the metadata log: controller.quorum.append.linger.ms."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from pykbroker.quorum.blocking_calls import BlockingCalls
from pykbroker.quorum.metadata_flush import MetadataFlush
from tests.coordinator.fakes import Loop


class Log:
    """A log whose fsyncs end when the test ends them."""

    def __init__(self, linger_ms: int = 25) -> None:
        self.loop = Loop()
        self.linger_ms = linger_ms
        self.end = 0
        self.durable = 0
        #: the log's end at the start of each fsync
        self.fsyncs: list[int] = []
        self.failed: BaseException | None = None
        self._running: tuple[asyncio.Future[int], Callable[[asyncio.Future[int]], None]] | None = None
        self.flush = MetadataFlush(
            cast(asyncio.AbstractEventLoop, self.loop),
            cast(BlockingCalls, self),
            lambda: self.end,
            lambda: self.end,
            self._flushed,
            self._failed,
            lambda: self.linger_ms,
        )

    def run_fsync(self, call: Callable[[], int], then: Callable[[asyncio.Future[int]], None]) -> None:
        assert self._running is None
        self.fsyncs.append(call())
        self._running = (self.loop.create_future(), then)

    def _flushed(self, offset: int) -> None:
        self.durable = offset

    def _failed(self, error: BaseException) -> None:
        self.failed = error

    def append(self) -> None:
        self.end += 1
        self.flush.begin()

    def fsync_ends(self, error: OSError | None = None) -> None:
        assert self._running is not None
        (future, then), self._running = self._running, None
        if error is None:
            future.set_result(self.fsyncs[-1])
        else:
            future.set_exception(error)
        then(future)

    @property
    def is_idle(self) -> bool:
        return self._running is None


def contended(fsync_s: float = 1.0, **kind: Any) -> Log:
    """Make a log that got its second record during the fsync of its first."""
    log = Log(**kind)
    log.append()
    log.append()
    log.loop.advance(fsync_s)
    assert log.fsyncs == [1]
    log.fsync_ends()
    assert log.durable == 1
    return log


def test_a_lone_record_does_not_linger() -> None:
    log = Log()
    for number in range(1, 4):
        log.append()
        log.fsync_ends()
        assert log.durable == number
    assert log.fsyncs == [1, 2, 3]


def test_what_came_during_an_fsync_lingers_and_gathers() -> None:
    log = contended()
    log.loop.advance(0.020)
    log.append()
    assert log.is_idle
    log.loop.advance(0.006)
    assert log.fsyncs == [1, 3]
    log.fsync_ends()
    assert log.durable == 3
    log.loop.advance(1)
    assert log.is_idle


def test_a_fast_device_is_not_left_idle() -> None:
    """Four times as long as the fsync took is soon over."""
    log = contended(fsync_s=0.001)
    log.loop.advance(0.0035)
    assert log.is_idle
    log.append()
    log.loop.advance(0.001)
    assert log.fsyncs == [1, 3]


def test_nothing_lingers_without_a_linger() -> None:
    log = contended(linger_ms=0)
    assert log.fsyncs == [1, 2]


def test_a_leader_that_follows_while_it_lingers_flushes_what_it_fetches() -> None:
    log = contended()
    log.linger_ms = 0
    log.append()
    assert log.fsyncs == [1, 3]
    log.fsync_ends()
    log.loop.advance(1)
    assert log.is_idle


def test_a_log_that_was_cut_is_flushed_again_at_once() -> None:
    log = Log()
    log.append()
    log.flush.log_was_cut()
    log.fsync_ends()
    assert log.durable == 0
    assert log.fsyncs == [1, 1]


def test_nothing_follows_an_error_or_the_end() -> None:
    log = Log()
    log.append()
    log.append()
    log.fsync_ends(OSError("dead"))
    log.loop.advance(1)
    assert isinstance(log.failed, OSError)
    assert log.fsyncs == [1]
    log = contended()
    log.flush.close()
    log.loop.advance(1)
    assert log.fsyncs == [1]
