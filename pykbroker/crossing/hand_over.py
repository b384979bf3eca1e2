"""One direction of the messages between the two event loops of a node: in order, each once.

Only messages cross. They are values that are no longer changed; futures, promises and callbacks stay on the loop that
made them. Responsible for the queue and for waking the receiver. Not responsible for bounds, which follow from what is
put, even if the receiver stands still:

* Metadata, and the state of the quorum, wait until the receiver has taken the earlier ones (feed.py, control_end.py).
* A question is put for a request of a client, whose connections are bounded, or once at a time. An answer is put for a
  question.
* The lease has as many states as the life of a broker. A directory fails once, and is cordoned by a change of the
  configuration.

Invariants
* The receiver takes the messages in the order in which they were put, on its own loop, and never one inside another.
* A message that was put is taken before the broker loop handles the next frame of a client, and before it appends for a
  client: the dispatcher and api/produce.py call `take_all`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from pykbroker.runtime.world import CallSoon

logger = logging.getLogger(__name__)

M = TypeVar("M")


class HandOver(Generic[M]):
    """`put` belongs to the sender, `take_all` and `close` to the receiver."""

    def __init__(self, call_soon: CallSoon | None, take: Callable[[M], None]) -> None:
        """`call_soon` of the receiver's loop. If it is None, sender and receiver share a loop: `put` then lets the
        message be taken before it returns, or, while another message is taken, right after that."""
        self._call_soon = call_soon
        self._take = take
        #: the waiting messages; true if there are any
        self.messages: deque[M] = deque()
        self._is_called = False
        self._is_taking = False
        self._is_closed = False

    def put(self, message: M) -> None:
        """Hand it over. After the receiver has closed, nothing happens."""
        if self._is_closed:
            return
        self.messages.append(message)
        if self._call_soon is None:
            self.take_all()
        elif not self._is_called:
            # Set before the call: the receiver clears it before it looks, so no message stays in the queue.
            self._is_called = True
            try:
                self._call_soon(self._called)
            except RuntimeError:
                self._is_closed = True

    def take_all(self) -> None:
        """Take every message that waits."""
        if self._is_taking:
            return
        self._is_taking = True
        try:
            while self.messages:
                message = self.messages.popleft()
                try:
                    self._take(message)
                except Exception:
                    # A bug of one part must not keep the other parts from the next messages.
                    logger.exception("A message of the other loop could not be taken: %s", type(message).__name__)
        finally:
            self._is_taking = False

    def close(self) -> None:
        """Take no more messages."""
        self._is_closed = True
        self.messages.clear()

    def _called(self) -> None:
        self._is_called = False
        self.take_all()
