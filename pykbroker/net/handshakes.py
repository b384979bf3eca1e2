"""The costly steps of TLS handshakes, on threads: signatures and key exchanges, which release the GIL.

Responsible for how many run at once: fsyncs and cold reads use the same threads, and a flood of new connections must
not take them all. The others wait in the order in which they came, in two queues that take turns: clients that have
proved nothing must not keep this node from reaching others. Not responsible for what a step does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from pykbroker.runtime import Runtime

#: Of the threads of one node.
RUNNING_AT_ONCE: Final = 2

HandshakeStep: TypeAlias = Callable[[], object]
#: Called on the loop with what was raised.
HandshakeStepped: TypeAlias = Callable[["BaseException | None"], None]
_Waiting: TypeAlias = deque[tuple[HandshakeStep, HandshakeStepped, Callable[[], bool]]]


class Handshakes:
    """Shared by the TLS connections of one node."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._running = 0
        #: of connections that this node makes, and of those that it accepted
        self._own: _Waiting = deque()
        self._accepted: _Waiting = deque()
        self._own_is_next = True

    def run(
        self, step: HandshakeStep, stepped: HandshakeStepped, wanted: Callable[[], bool], *, is_own: bool = False
    ) -> None:
        """Run `step` on a thread, then `stepped` on the loop. A step that is no more `wanted` when its turn comes is
        dropped, and nothing is called. `is_own`: of a connection that this node makes."""
        (self._own if is_own else self._accepted).append((step, stepped, wanted))
        self._go_on()

    def _go_on(self) -> None:
        while (self._own or self._accepted) and self._running < RUNNING_AT_ONCE:
            is_own = bool(self._own) and (self._own_is_next or not self._accepted)
            step, stepped, wanted = (self._own if is_own else self._accepted).popleft()
            if wanted():
                self._own_is_next = not is_own
                self._running += 1
                self._runtime.run_blocking(step).add_done_callback(partial(self._ended, stepped))

    def _ended(self, stepped: HandshakeStepped, done: asyncio.Future[object]) -> None:
        self._running -= 1
        # Cancelled, the node stops, and its connections are closed.
        if not done.cancelled():
            stepped(done.exception())
        self._go_on()
