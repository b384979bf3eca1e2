"""The order of responses: a connection sends them in the order of its requests (a rule of the protocol since 0.8,
without a KIP).

Sans-I/O: a slot is opened for each request and filled in any order, and `take` returns the finished prefix. Not
responsible for writing or for the content of a response.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

AnswerBuffers: TypeAlias = Sequence[bytes | bytearray | memoryview]


class Slot:
    """The place of one response. `buffers` is None until the response is there. If `buffers` is empty, the request gets
    no response."""

    __slots__ = ("buffers", "size")

    def __init__(self) -> None:
        self.buffers: AnswerBuffers | None = None
        self.size = 0


class Replies:
    """Slots in request order. `held_bytes`: the bytes of finished responses that wait for an earlier one."""

    __slots__ = ("_slots", "held_bytes")

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()
        self.held_bytes = 0

    def __len__(self) -> int:
        """Return the number of requests that are not answered, or whose response waits for an earlier one."""
        return len(self._slots)

    def open(self) -> Slot:
        slot = Slot()
        self._slots.append(slot)
        return slot

    def fill(self, slot: Slot, buffers: AnswerBuffers) -> None:
        """Put the response into its slot."""
        slot.buffers = buffers
        slot.size = sum(map(len, buffers))
        self.held_bytes += slot.size

    def take(self, out: list[bytes | bytearray | memoryview]) -> None:
        """Append the finished responses at the front to `out`, and remove their slots."""
        slots = self._slots
        while slots:
            buffers = slots[0].buffers
            if buffers is None:
                return
            self.held_bytes -= slots.popleft().size
            out.extend(buffers)
