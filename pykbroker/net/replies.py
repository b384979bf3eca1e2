"""The order of responses: a connection sends them in the order of its requests (a rule of the protocol since 0.8,
without a KIP).

Sans-I/O: a slot is opened for each request and filled in any order, and `take` returns the finished prefix. Also
responsible for the requests that wait for their result. Not responsible for writing or for the content of a response.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from pykbroker.net.promise import Promise

if TYPE_CHECKING:
    from pykbroker.net.connection_home import Limits

AnswerBuffers: TypeAlias = Sequence[bytes | bytearray | memoryview]
#: A future of the result from which the response will be made.
FutureAnswer: TypeAlias = "asyncio.Future[Any] | Promise"


class Pending(Protocol):
    """A response that is not there yet."""

    @property
    def future(self) -> FutureAnswer: ...

    def encode(self, result: Any) -> AnswerBuffers:
        """The bytes of the answer."""
        ...


class Slot:
    """The place of one response. `buffers` is None until the response is there. If `buffers` is empty, the request gets
    no response."""

    __slots__ = ("buffers", "size")

    def __init__(self) -> None:
        self.buffers: AnswerBuffers | None = None
        self.size = 0


class Replies:
    """Slots in request order. `held_bytes`: the bytes of finished responses that wait for an earlier one."""

    __slots__ = ("_parked", "_slots", "held_bytes")

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()
        self._parked: dict[FutureAnswer, tuple[Slot, Pending]] = {}
        self.held_bytes = 0

    def __len__(self) -> int:
        """Return the number of requests that are not answered, or whose response waits for an earlier one."""
        return len(self._slots)

    @property
    def parked(self) -> int:
        """The number of requests that wait for their result."""
        return len(self._parked)

    def is_behind(self, limits: Limits) -> bool:
        """Return True if too many requests are unanswered, or too many bytes wait for an earlier response."""
        return len(self._slots) >= limits.unanswered_requests or self.held_bytes >= limits.unsent_bytes

    def open(self) -> Slot:
        slot = Slot()
        self._slots.append(slot)
        return slot

    def fill(self, slot: Slot, buffers: AnswerBuffers) -> None:
        """Put the response into its slot."""
        slot.buffers = buffers
        slot.size = sum(map(len, buffers))
        self.held_bytes += slot.size

    def park(self, pending: Pending) -> None:
        """Open a slot for a request that waits for its result."""
        self._parked[pending.future] = (self.open(), pending)

    def finish(self, future: FutureAnswer) -> None:
        """Encode the result of a parked request, and put the response into its slot. Raises the error of the future.
        Ignores a future that is not parked."""
        parked = self._parked.pop(future, None)
        if parked is None:
            self.drop(future)
            return
        slot, pending = parked
        self.fill(slot, pending.encode(future.result()))

    def drop(self, future: FutureAnswer) -> None:
        """Ignore the result of a parked request, because no response can be sent."""
        self._parked.pop(future, None)
        if not future.cancelled():
            # An error that is never read would become a line of asyncio's own.
            future.exception()

    def cancel(self) -> None:
        """Cancel the parked requests."""
        parked, self._parked = self._parked, {}
        for future in parked:
            future.cancel()

    def take(self, out: list[bytes | bytearray | memoryview]) -> None:
        """Append the finished responses at the front to `out`, and remove their slots."""
        slots = self._slots
        while slots:
            buffers = slots[0].buffers
            if buffers is None:
                return
            self.held_bytes -= slots.popleft().size
            out.extend(buffers)
