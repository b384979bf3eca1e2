"""Time, chance, threads and sockets of the standard library, which follow the world that runs.

`install` replaces `time.time`, `time.monotonic` and their kin, `datetime.now`, `os.urandom` and what is built on it by
functions that ask the present world, and the real clock where there is none. So a module that took `time.time` after
`install` by `from time import time` is in the world too. A module that took it before keeps the real clock. In a world
a thread, a real connection and `time.sleep` raise an exception that says what to use.

Responsible for the replacement. Not responsible for the loop's own clock (simulated/loop.py), nor for modules written
in C that read the clock of the operating system.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import random
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from importlib import import_module
from typing import Any, Final, Protocol

from pykbroker_worlds.simulated.loop import NotSimulated

#: Seconds that `time.monotonic` shows at the beginning of a world. Some clients take 0 for "never".
MONOTONIC_START: Final = 1_000.0
#: functions of `time` -> whether they count from the epoch, and their units per second
_CLOCKS: Final = {
    "time": (True, None),
    "time_ns": (True, 1_000_000_000),
    "monotonic": (False, None),
    "monotonic_ns": (False, 1_000_000_000),
    "perf_counter": (False, None),
    "perf_counter_ns": (False, 1_000_000_000),
}


class WorldTime(Protocol):
    """The time and the chance of a world."""

    def epoch_seconds(self) -> float:
        """Return the wall clock of the process that runs now."""
        ...

    def seconds(self) -> float:
        """Return seconds since the world began."""
        ...

    def random_bytes(self, count: int) -> bytes: ...


#: aiokafka imports all of its compiled modules for records, or none.
_COMPILED: Final = "aiokafka.record._crecords.default_records"
_present: WorldTime | None = None
_is_installed = False
_is_anyio_simulated = False


@contextmanager
def seeded(seed: object) -> Iterator[None]:
    """Let the global generators of `random` and of NumPy, if it was imported, begin with this seed. A generator that a
    world makes itself gets its seed from `os.urandom`."""
    chance = random.getstate()
    random.seed(f"{seed} random")
    numpy = sys.modules.get("numpy.random")
    of_numpy = None if numpy is None else numpy.get_state()
    if numpy is not None:
        numpy.seed(random.Random(f"{seed} numpy").getrandbits(32))
    try:
        yield
    finally:
        random.setstate(chance)
        if numpy is not None:
            numpy.set_state(of_numpy)


@contextmanager
def present(world: WorldTime) -> Iterator[None]:
    """Let the replaced functions ask this world. Worlds do not nest: RuntimeError."""
    global _present
    if _present is not None:
        raise RuntimeError("a world runs already in this process")
    install()
    simulate_threads_of_anyio()
    _present = world
    try:
        yield
    finally:
        _present = None


def refuse_compiled_clients() -> None:
    """Raises NotSimulated if a client that is about to connect has parts in C that read the real clock."""
    if _COMPILED in sys.modules:
        raise NotSimulated(
            "aiokafka's compiled records read the clock of the operating system: use the mark kafka_world, or set "
            "AIOKAFKA_NO_EXTENSIONS=1 before aiokafka is imported"
        )


def install() -> None:
    """Replace the functions, once in a process."""
    global _is_installed
    if _is_installed:
        return
    _is_installed = True
    for name, (is_wall_clock, units) in _CLOCKS.items():
        setattr(time, name, _clock(getattr(time, name), is_wall_clock=is_wall_clock, units=units))
    time.sleep = _sleep(time.sleep)  # type: ignore[assignment]
    datetime.datetime = _WorldDatetime  # type: ignore[misc]
    datetime.date = _WorldDate  # type: ignore[misc]
    os.urandom = _urandom(os.urandom)
    threading.Thread.start = _refused(  # type: ignore[method-assign]
        threading.Thread.start,
        "a thread has no place in a world: use `asyncio.to_thread`, or a task; import anyio before the world begins",
    )
    socket.socket.connect = _refused(  # type: ignore[method-assign]
        socket.socket.connect, "a real connection would leave the world: only its brokers can be reached"
    )
    # `random` took it by name, for `SystemRandom` and `secrets`.
    setattr(random, "_urandom", os.urandom)  # noqa: B010  # a name that typeshed does not have
    # With libuuid, `uuid1` would read the real clock in C.
    setattr(uuid, "_generate_time_safe", None)  # noqa: B010


def _clock(real: Callable[[], float], *, is_wall_clock: bool, units: int | None) -> Callable[[], Any]:
    def now() -> float:
        world = _present
        if world is None:
            return real()
        seconds = world.epoch_seconds() if is_wall_clock else MONOTONIC_START + world.seconds()
        return seconds if units is None else int(seconds * units)

    return now


def _sleep(real: Callable[[float], None]) -> Callable[[float], None]:
    def sleep(seconds: float, /) -> None:
        if _present is None:
            return real(seconds)
        raise NotSimulated(
            f"time.sleep({seconds!r}) would stop every broker and every application of this world: "
            "wait with `await asyncio.sleep`"
        )

    return sleep


def _refused(real: Callable[..., Any], reason: str) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        if _present is None:
            return real(*arguments, **named)
        raise NotSimulated(reason)

    return call


def simulate_threads_of_anyio() -> None:
    """Let `anyio.to_thread.run_sync` use the executor of the loop, if anyio was imported. Its threads would be real."""
    global _is_anyio_simulated
    if _is_anyio_simulated or "anyio" not in sys.modules:
        return
    _is_anyio_simulated = True
    # It is no dependency of pykbroker.
    anyio, lowlevel = import_module("anyio"), import_module("anyio.lowlevel")
    AsyncIOBackend = import_module("anyio._backends._asyncio").AsyncIOBackend

    real = AsyncIOBackend.run_sync_in_worker_thread

    async def run(
        func: Callable[..., Any],
        args: tuple[Any, ...],
        abandon_on_cancel: bool = False,
        limiter: Any = None,
    ) -> Any:
        if _present is None:
            return await real(func, args, abandon_on_cancel, limiter)
        await lowlevel.checkpoint()
        async with limiter or AsyncIOBackend.current_default_thread_limiter():
            with anyio.CancelScope(shield=not abandon_on_cancel):
                return await asyncio.get_running_loop().run_in_executor(None, copy_context().run, func, *args)

    AsyncIOBackend.run_sync_in_worker_thread = staticmethod(run)


def _urandom(real: Callable[[int], bytes]) -> Callable[[int], bytes]:
    def urandom(size: int, /) -> bytes:
        return real(size) if _present is None else _present.random_bytes(size)

    return urandom


_Datetime = datetime.datetime
_Date = datetime.date


class _IsDatetime(type):
    """Lets a datetime that was made by the class of the standard library count as one of the replaced class."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Datetime)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _Datetime)


class _IsDate(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Date)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _Date)


class _WorldDatetime(_Datetime, metaclass=_IsDatetime):
    """`datetime.datetime`, whose present time is the world's."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return _Datetime.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        return _Datetime.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        return _Datetime.fromtimestamp(time.time())


class _WorldDate(_Date, metaclass=_IsDate):
    """`datetime.date`, whose present day is the world's."""

    @classmethod
    def today(cls) -> Any:
        return _Date.fromtimestamp(time.time())
