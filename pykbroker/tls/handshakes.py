"""The costly steps of TLS handshakes, on threads: signatures and key exchanges, which release the GIL.

Responsible for the number of steps that run at once. Fsyncs and cold reads use the same threads, and a flood of new
connections must not take all threads. Other steps wait in order of arrival, in a queue for each `Side`. The queues take
turns, so that clients without authentication cannot keep nodes from reaching each other. Not responsible for the work
of a step.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Final, TypeAlias

from pykbroker.runtime import Runtime

#: The most steps that run at once for one half of a node.
RUNNING_AT_ONCE: Final = 2

HandshakeStep: TypeAlias = Callable[[], object]
#: Called on the loop with the exception of a step, or with None if it succeeded.
OnStepped: TypeAlias = Callable[["BaseException | None"], None]
_Waiting: TypeAlias = deque[tuple[HandshakeStep, OnStepped, Callable[[], bool]]]


class Side(Enum):
    """The kind of peer at the other end of a connection, and which end made the connection."""

    #: This node made the connection.
    OWN = "own"
    #: A listener between nodes, or of a controller, accepted it.
    NODE = "node"
    #: A listener for clients accepted it.
    CLIENT = "client"


class Handshakes:
    """Shared by the TLS connections of one half of a node."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._running = 0
        #: the queue with the next turn is first
        self._queues: dict[Side, _Waiting] = {side: deque() for side in Side}

    def run(self, step: HandshakeStep, stepped: OnStepped, wanted: Callable[[], bool], side: Side) -> None:
        """Run `step` on a thread, then `stepped` on the loop. If `wanted` returns False when the turn of the step
        comes, the step is dropped, and neither is called."""
        self._queues[side].append((step, stepped, wanted))
        self._go_on()

    def _go_on(self) -> None:
        while self._running < RUNNING_AT_ONCE:
            side = next((side for side, queue in self._queues.items() if queue), None)
            if side is None:
                return
            step, stepped, wanted = self._queues[side].popleft()
            if wanted():
                self._queues[side] = self._queues.pop(side)
                self._running += 1
                self._runtime.run_blocking(step).add_done_callback(partial(self._ended, stepped))

    def _ended(self, stepped: OnStepped, done: asyncio.Future[object]) -> None:
        self._running -= 1
        # The step is cancelled only if the node stops, which closes its connections.
        if not done.cancelled():
            stepped(done.exception())
        self._go_on()
