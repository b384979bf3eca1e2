"""One run of a node inside another program: on a thread and a loop of its own.

Responsible for the thread, and for the start, the pause and the end of a run. Not responsible for the node's
configuration, nor for cutting a killed node off (killable.py). It does not change the process: signals, garbage
collector settings, loop policy, root logging and limits stay.

Invariant: when `stop` or `kill` returns, the thread has ended, and everything that the run opened is closed.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from pykbroker.config.typed_config import Config
from pykbroker.dispatch.dispatcher import Dispatcher, MakeDispatcher
from pykbroker.metrics.registry import Sample
from pykbroker.net.promise import Promise
from pykbroker.node.node import Node
from pykbroker.node.start_options import AS_USUAL, StartOptions
from pykbroker.runtime import OsRuntime
from pykbroker.testing.killable import KillableRuntime, killable_loop

R = TypeVar("R", bound=OsRuntime)
T = TypeVar("T")

#: The seconds without a sign of a loop after which the node counts as stuck.
STUCK_SECONDS = 60.0


class NotServing(RuntimeError):
    """The node does not serve, or has ended before it answered. Then it may have done what was asked."""


class NodeThread(Generic[R]):
    """The constructor starts the thread. Methods are for the threads of the host, and may not be called on the node's
    loop."""

    def __init__(
        self,
        config: Config,
        make_runtime: Callable[[asyncio.AbstractEventLoop], R],
        *,
        name: str = "pykbroker",
        options: StartOptions = AS_USUAL,
        make_dispatcher: MakeDispatcher = Dispatcher,
    ) -> None:
        """`make_runtime` is called on the thread."""
        self._config = config
        self._make_runtime = make_runtime
        self._make_node = partial(Node, config, options=options, make_dispatcher=make_dispatcher)
        self._is_abandoned = False
        self._go: threading.Event | None = None
        #: the exception that kept the node from starting, or ended it unexpectedly
        self.failure: BaseException | None = None
        self._node: Node | None = None
        self._runtime: R | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._has_loop = threading.Event()
        self._is_ready = threading.Event()
        #: done when the node has ended, so that no thread waits longer for an answer
        self._end: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._has_loop.wait()

    @property
    def node(self) -> Node | None:
        """The node, if it serves clients."""
        return self._node

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def wait_until_ready(self, timeout_seconds: float | None = None) -> None:
        """Wait until clients are served. Raises the exception that kept the node from starting, or TimeoutError while
        it continues its start."""
        if not self._is_ready.wait(timeout_seconds):
            raise TimeoutError(f"node {self._config.node_id} does not serve clients after {timeout_seconds} s")
        if self.failure is not None:
            failure = self.failure
            self.stop()
            raise failure
        if self._node is None and not self.runs:
            raise RuntimeError(f"node {self._config.node_id} was stopped before it served clients")

    def ask(self, request: object, timeout_seconds: float = 60.0) -> Any:
        """Pass a request to the node's broker half in memory, in the newest version of its API, and return the answer.

        Raises NotServing (a RuntimeError), also at once if the node ends before it answers, TimeoutError, or the
        handler's exception.
        """
        return self._asked(lambda node: node.call(request), timeout_seconds)

    def ask_controller(self, request: object, timeout_seconds: float = 60.0) -> Any:
        """Let the node's broker half send a request to the active controller, and return the answer. Raises as `ask`
        does, and Disconnected if no controller can be reached."""

        def send(node: Node) -> Any:
            return node.services.controller_channel.send(request, int(timeout_seconds * 1000))

        return self._asked(send, timeout_seconds)

    def read(self, read: Callable[[Node], T], timeout_seconds: float = 60.0) -> T:
        """Call a function with the node on the loop of its broker half, and return its result. Raises as `ask` does."""
        found: T = self._asked(read, timeout_seconds)
        return found

    def _asked(self, ask: Callable[[Node], Any], timeout_seconds: float) -> Any:
        node = self._node
        if node is None:
            raise NotServing(f"node {self._config.node_id} does not serve")
        answer: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def there(later: asyncio.Future[Any] | Promise) -> None:
            if later.cancelled():
                answer.cancel()
                answer.set_running_or_notify_cancel()
            elif (error := later.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(later.result())

        def call() -> None:
            try:
                result = ask(node)
            except Exception as error:  # noqa: BLE001  # raised again in the thread that waits for the answer
                answer.set_exception(error)
                return
            if isinstance(result, asyncio.Future | Promise):
                result.add_done_callback(there)
            else:
                answer.set_result(result)

        if not _called(node.broker_loop, call):
            raise NotServing(f"node {self._config.node_id} does not serve")
        return self._answered(answer, timeout_seconds)

    def _answered(self, answer: concurrent.futures.Future[T], timeout_seconds: float) -> T:
        """Wait for an answer of the node. A node that shuts down cancels the requests that wait, and a node that is
        killed leaves them undone."""
        done = self._first_of(answer, timeout_seconds)
        if not done:
            raise TimeoutError(f"node {self._config.node_id} did not answer within {timeout_seconds:g} s")
        if answer not in done or answer.cancelled():
            raise NotServing(f"node {self._config.node_id} has ended before it answered")
        return answer.result()

    def _first_of(self, answer: concurrent.futures.Future[Any], timeout_seconds: float) -> set[object]:
        """Wait for the answer or the end of the node. Return those that have come, or nothing when time is over."""
        either: tuple[concurrent.futures.Future[Any], ...] = (answer, self._end)
        return {*concurrent.futures.wait(either, timeout_seconds, concurrent.futures.FIRST_COMPLETED).done}

    def metrics(self, timeout_seconds: float = 60.0) -> list[Sample]:
        """Return the metrics of the node with their current values, sorted by name. Raises as `ask` does."""
        node = self._node
        if node is None or self._loop is None:
            raise NotServing(f"node {self._config.node_id} does not serve")
        return self._answered(asyncio.run_coroutine_threadsafe(node.samples(), self._loop), timeout_seconds)

    def begin_stop(self) -> None:
        """Request a shutdown, or the end of a start. `stop` waits for it."""
        if self._stop is not None:
            self._on_loop(self._stop.set)

    def stop(self) -> None:
        """Do `begin_stop`, and return when the node has ended. A second call changes nothing."""
        self.begin_stop()
        self._thread.join()

    def abandon(self) -> None:
        """End the node without a shutdown, because its files are about to be replaced; returns when it has ended."""
        self._is_abandoned = True
        self.stop()

    # -- a node that stands still -------------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        return self._go is not None

    def pause(self) -> None:
        """Pause both loops until `resume`, or the end of the node; returns when they are paused. The node's sockets
        stay open. Raises TimeoutError if a loop stands still for a minute."""
        go = threading.Event()

        def stand(stands: concurrent.futures.Future[None], go_on: Callable[[], object]) -> None:
            stands.set_result(None)
            go.wait()
            go_on()

        standing = []
        for loop, go_on in self._loops():
            stands: concurrent.futures.Future[None] = concurrent.futures.Future()
            if _called(loop, partial(stand, stands, go_on)):
                self._go = go
                standing.append(stands)
        try:
            for stands in standing:
                # A node that is about to end is never paused.
                self._wait_for(stands, "has not paused")
        except TimeoutError:
            self.resume()
            raise

    def resume(self) -> None:
        go, self._go = self._go, None
        if go is not None:
            go.set()

    def _wait_for(self, done: concurrent.futures.Future[None], what: str) -> None:
        """Wait until a callback on a loop is done, or the node has ended. Raises the callback's exception, or
        TimeoutError."""
        if not self._first_of(done, STUCK_SECONDS):
            raise TimeoutError(f"node {self._config.node_id} {what} for {STUCK_SECONDS:g} s; a loop stands still")
        if done.done():
            done.result()

    def _loops(self) -> list[tuple[asyncio.AbstractEventLoop, Callable[[], object]]]:
        """Return each loop of the node, with the first thing to do there after a pause."""
        node = self._node
        if self._loop is None or node is None:
            return []
        return [(loop, lambda: None) for loop in dict.fromkeys((self._loop, node.broker_loop))]

    # -- on the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(self._serve())
        finally:
            self._ended()

    def _ended(self) -> None:
        self._node = None
        self._has_loop.set()
        self._is_ready.set()
        self._end.set_result(None)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        runtime = self._runtime = self._make_runtime(self._loop)
        self._has_loop.set()
        try:
            node = self._make_node(runtime)
        except Exception as error:  # noqa: BLE001  # raised again in the thread that waits for the start
            self.failure = error
            runtime.close()
            return
        await self._live(node, self._stop)
        if self._is_abandoned:
            await node.abandon()
        else:
            await node.stop()
        runtime.close()

    async def _live(self, node: Node, stop: asyncio.Event) -> None:
        starting, stopping = asyncio.ensure_future(node.start()), asyncio.ensure_future(stop.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()  # has no effect if it is done
        try:
            await starting
        except BaseException as error:  # noqa: BLE001  # raised again in the thread that waits for the start
            if not stop.is_set():
                self.failure = error
            stopping.cancel()
            return
        node.on_fatal(stop.set)
        self._node = node
        self._is_ready.set()
        await stopping
        self.failure = node.fatal

    def _on_loop(self, callback: Callable[[], object]) -> bool:
        """Schedule a callback on the loop, if it still exists."""
        assert self._loop is not None
        return _called(self._loop, callback)


class KillableNode(NodeThread[KillableRuntime]):
    """A node that may also end as by `kill -9`, and pause as by SIGSTOP."""

    def __init__(
        self,
        config: Config,
        make_runtime: Callable[[asyncio.AbstractEventLoop], KillableRuntime],
        *,
        name: str = "pykbroker",
        options: StartOptions = AS_USUAL,
        make_dispatcher: MakeDispatcher = Dispatcher,
    ) -> None:
        self._killed = False
        self._over = False
        super().__init__(config, make_runtime, name=name, options=options, make_dispatcher=make_dispatcher)

    def begin_kill(self) -> None:
        """Cut the node off from clients and from other nodes. `kill` waits for its end."""
        self._killed = True
        for runtime in self._runtimes:
            runtime.cut_off()
        for runtime in self._runtimes:
            _called(runtime.loop, partial(_drop, runtime))
        if self._go is not None:
            self._go.set()

    def kill(self) -> None:
        """End the node at once: without a shutdown, and without writing anything more."""
        self.begin_kill()
        self._thread.join()

    def _loops(self) -> list[tuple[asyncio.AbstractEventLoop, Callable[[], object]]]:
        def go_on(runtime: KillableRuntime) -> None:
            if self._killed:
                _drop(runtime)
            else:
                runtime.network_changed()

        return [(runtime.loop, partial(go_on, runtime)) for runtime in self._runtimes]

    def network_changed(self) -> None:
        """Let the node's connections follow the network; returns when they do. A paused node lets them follow when it
        resumes, before anything else. Raises TimeoutError if a loop of the node stands still for a minute."""
        if self.is_paused:
            return

        def follow(runtime: KillableRuntime, followed: concurrent.futures.Future[None]) -> None:
            try:
                runtime.network_changed()
            except Exception as error:  # noqa: BLE001  # raised again in the thread that waits
                followed.set_exception(error)
            else:
                followed.set_result(None)

        for runtime in self._runtimes:
            followed: concurrent.futures.Future[None] = concurrent.futures.Future()
            if _called(runtime.loop, partial(follow, runtime, followed)):
                self._wait_for(followed, "has not followed the network")

    @property
    def _runtimes(self) -> tuple[KillableRuntime, ...]:
        """The runtimes of the two loops that the start has made so far."""
        return () if self._runtime is None else self._runtime.each

    # -- on the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        runner = asyncio.Runner(loop_factory=killable_loop)
        try:
            runner.run(self._serve())
        except RuntimeError:
            if not self._killed:
                raise  # after a kill the exception is "Event loop stopped before Future completed"
        finally:
            if self._killed and not self._over:
                assert self._runtime is not None
                self._runtime.bury()
            else:
                runner.close()
            self._ended()

    async def _serve(self) -> None:
        await super()._serve()
        self._over = True


def _drop(runtime: KillableRuntime) -> None:
    """Stop the loop at once. It handles its sockets once more before it stops, so first let it read nothing more."""
    runtime.read_no_more()
    runtime.loop.stop()


def _called(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> bool:
    """Schedule a callback on the loop, if it still exists."""
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        return False  # the loop is closed, so its thread is about to end
    return True


def new_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's loop if it is installed, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
