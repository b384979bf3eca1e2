"""An application of the user as a process of the world: it starts, pauses, dies, and starts again.

`AppProcess` is responsible for its lives. `App` is what a test holds: each of its calls is a step, which may be left
out when a failure is shrunk. Neither is responsible for what it does, which is the user's coroutine, nor for what
survives it (store.py and the brokers).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, Final

from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_worlds.selection import Selection
from pykbroker_worlds.simulated.world import SimRuntime, SimWorld

#: The coroutine function that an application runs, called once in each life.
Main = Callable[[], Coroutine[Any, Any, object]]
#: Seconds that a process has between SIGTERM and SIGKILL.
_GRACE_SECONDS: Final = 30.0


class AppFailed(AssertionError):
    """An application of the world raised an exception, which is the cause of this one."""


class AppProcess:
    """A process of the user's code, which ends with `main`. It has a network of its own, and time and chance of the
    world."""

    def __init__(
        self,
        world: SimWorld,
        name: str,
        main: Main,
        *,
        may_fail: bool = False,
        restart_seconds: float | None = None,
    ) -> None:
        """`name` is also the machine on which it runs. With `may_fail` an exception of `main` ends this process alone,
        and not the scenario. With `restart_seconds` it starts again after that time, as by a supervisor."""
        self.name = name
        #: how often it has been started
        self.lives = 0
        #: what `main` raised in the present life, or in the last one
        self.error: BaseException | None = None
        self._world = world
        self._main = main
        self._may_fail = may_fail or restart_seconds is not None
        self._restart_seconds = restart_seconds
        self._runtime: SimRuntime | None = None
        self._task: asyncio.Task[object] | None = None
        self._is_stopping = False

    def __repr__(self) -> str:
        return f"app {self.name}"

    @property
    def machine(self) -> str:
        return self.name

    @property
    def is_alive(self) -> bool:
        """True from its start until `main` has ended or it was killed, also while it is paused."""
        return self._runtime is not None and self._runtime.alive and self._task is not None and not self._task.done()

    def start(self) -> None:
        """Begin a life. Raises RuntimeError if it is alive."""
        if self.is_alive:
            raise RuntimeError(f"{self!r} runs already")
        self.lives += 1
        self.error = None
        self._is_stopping = False
        self._runtime = self._world.runtime(f"{self.name} life {self.lives}", MemoryDisk(record=False), self.machine)
        self._world.tell(self.name, "starts" if self.lives == 1 else f"starts again, life {self.lives}")
        # The coroutine is made in the process too: code before its first `await` belongs to it.
        self._task = self._runtime.loop.create_task(self._live(self.lives))

    async def _live(self, life: int) -> object:
        runtime = self._runtime
        assert runtime is not None
        try:
            return await self._main()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  # whatever the application raises is its end
            if life == self.lives and not self._world.loop.is_over:
                self._failed(error, life)
            return None
        finally:
            if not self._world.loop.is_over:
                # The process ends with `main`, and with it the tasks that `main` has left behind.
                self._world.loop.call_soon(runtime.kill, context=contextvars.Context())

    def _failed(self, error: BaseException, life: int) -> None:
        self._world.tell(self.name, f"ends with {type(error).__name__}: {error}")
        if self._is_stopping:
            return
        self.error = error
        if self._restart_seconds is not None and isinstance(error, Exception):
            # A supervisor is another process.
            again = contextvars.Context()
            self._world.loop.call_later(self._restart_seconds, self._start_again, life, context=again)

    def _start_again(self, life: int) -> None:
        if life == self.lives and not self.is_alive and not self._world.loop.is_over:
            self.start()

    def kill(self) -> None:
        """End it as SIGKILL does. Nothing happens if it is dead."""
        if self.is_alive:
            assert self._runtime is not None
            self._world.tell(self.name, "is killed")
            self._runtime.kill()

    async def stop(self) -> None:
        """Cancel `main`, and kill the process if it does not end."""
        if not self.is_alive:
            return
        task, runtime = self._task, self._runtime
        assert task is not None
        assert runtime is not None
        self._world.tell(self.name, "is told to stop")
        self._is_stopping = True
        task.cancel()
        await asyncio.wait({task}, timeout=_GRACE_SECONDS)
        if not task.done():
            self._world.tell(self.name, f"does not stop within {_GRACE_SECONDS:g} s, and is killed")
        runtime.kill()

    def pause(self) -> None:
        """Let it do nothing until `resume`. Bytes that are sent to it are kept."""
        if self.is_alive:
            assert self._runtime is not None
            self._world.tell(self.name, "is paused")
            self._runtime.pause()

    def resume(self) -> None:
        """Let it go on: first with all that became due in the meantime."""
        if self._runtime is not None and self._runtime.alive:
            self._world.tell(self.name, "goes on")
            self._runtime.resume()

    def check(self) -> None:
        """Raises AppFailed if `main` raised an exception in the present life, unless it may fail."""
        if self.error is not None and not isinstance(self.error, Exception):
            raise self.error
        if self.error is not None and not self._may_fail:
            raise AppFailed(f"{self!r}: {type(self.error).__name__}: {self.error}") from self.error


class App:
    """An application, as a test holds it: a process of the user's code, which ends with `main`.

    A killed application runs nothing more: no `except` and no `finally`. Variables of modules survive it,
    because all applications of a world share one interpreter.
    """

    def __init__(self, process: AppProcess, selection: Selection) -> None:
        self.process = process
        self._selection = selection

    def __repr__(self) -> str:
        return repr(self.process)

    @property
    def name(self) -> str:
        return self.process.name

    @property
    def machine(self) -> str:
        return self.process.machine

    @property
    def lives(self) -> int:
        """Return how often it has been started."""
        return self.process.lives

    @property
    def error(self) -> BaseException | None:
        """Return what `main` raised in the present life, or in the last one."""
        return self.process.error

    @property
    def is_alive(self) -> bool:
        """True from its start until `main` has ended or it was killed, also while it is paused."""
        return self.process.is_alive

    def start(self) -> None:
        """Begin a life. Raises RuntimeError if it is alive."""
        if not (self.is_alive and self._selection.some_are_left_out):
            self.process.start()

    def kill(self) -> None:
        """End it as SIGKILL does: it runs nothing more, its connections are reset. Nothing happens if it is dead."""
        if self._selection.step(self.name, "kill"):
            self.process.kill()

    async def stop(self) -> None:
        """End it as SIGTERM does in most services: `main` is cancelled, and its `finally` runs. After 30 virtual
        seconds it is killed. An exception of a stop is in the story, and is no failure."""
        if self._selection.step(self.name, "stop"):
            await self.process.stop()

    def restart(self) -> None:
        """Kill it if it is alive, and start it again."""
        if self._selection.step(self.name, "restart") or not self.is_alive:
            self.process.kill()
            self.process.start()

    def pause(self) -> None:
        """Let it do nothing until `resume`, as after SIGSTOP or in a long collection of garbage. Bytes that are sent to
        it are kept."""
        if self._selection.step(self.name, "pause"):
            self.process.pause()

    def resume(self) -> None:
        """Let a paused application go on: first with all that became due in the meantime."""
        self.process.resume()
