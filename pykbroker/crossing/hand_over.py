"""One direction of what passes between the two event loops of a node: messages, in order, each once.

Only messages cross. They are values that nobody changes any more; futures, promises and callbacks stay on the loop
that made them. Responsible for the queue and for having the receiver look at it. Not responsible for bounds, which
follow from what is put, however long the receiver stands still:

* Metadata, and what is known of the quorum, wait for the receiver's word (feed.py, control_end.py).
* A question is put for a request of a client, whose connections are bounded, or once at a time. An answer is put for a
  question.
* The lease has as many states as the life of a broker. A directory fails once, and is cordoned by a change of the
  configuration.

Invariants
* The receiver takes the messages in the order in which they were put, on its own loop, and never one inside another.
* What was put is taken before the broker loop handles the next frame of a client, and before it appends for a client:
  the dispatcher and api/produce.py call `take_all`.
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
        """`call_soon` of the receiver's loop; None: sender and receiver share a loop, and `put` has the message taken
        before it returns, or, inside another one's taking, right behind it."""
        self._call_soon = call_soon
        self._take = take
        #: those that wait; true if there are any
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
            # Set before the call: the receiver clears it before it looks, so that no message is left behind.
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
                    # A bug of one part must not keep the others from what came behind it.
                    logger.exception("A message of the other loop could not be taken: %s", type(message).__name__)
        finally:
            self._is_taking = False

    def close(self) -> None:
        """Take nothing any more."""
        self._is_closed = True
        self.messages.clear()

    def _called(self) -> None:
        self._is_called = False
        self.take_all()
