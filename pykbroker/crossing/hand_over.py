"""One direction of the messages between the two event loops of a node: each is delivered once, in order.

Only messages cross from loop to loop. They are values that are no longer changed; futures, promises and callbacks stay
on the loop that made them. Responsible for the queue and for waking the receiver. Not responsible for bounds. The
senders bound the queue, even if the receiver stands still:

* A limited number of messages about metadata and quorum is put before the receiver has taken the earlier messages
  (feed.py, control_end.py).
* A question is put for a request of a client, and connections of clients are bounded; other questions are put one at a
  time. An answer is put for a question.
* The lease has few messages: one for each state in the life of a broker. A directory fails once, and is cordoned only
  by a change of the configuration.

Invariants
* The receiver takes the messages in the order in which they were put, on its own loop, and never one inside another.
* The broker loop takes all messages that were put before it handles the next frame of a client, and before it appends
  for a client: the dispatcher and api/produce.py call `take_all`.
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
        """`call_soon`: that of the receiver's loop, or None if sender and receiver share a loop. If it is None, the
        receiver takes a message within `put`, or, if it is taking another message at that time, right after that
        one."""
        self._call_soon = call_soon
        self._take = take
        #: the waiting messages; true as a condition if there are any
        self.messages: deque[M] = deque()
        self._is_called = False
        self._is_taking = False
        self._is_closed = False

    def put(self, message: M) -> None:
        """Hand a message over. It is dropped if the receiver has closed."""
        if self._is_closed:
            return
        self.messages.append(message)
        if self._call_soon is None:
            self.take_all()
        elif not self._is_called:
            # Set before the call. The receiver clears it before it reads the queue, so no message stays in the queue.
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
                    logger.exception("A message from the other loop could not be handled: %s", type(message).__name__)
        finally:
            self._is_taking = False

    def close(self) -> None:
        """Take no more messages."""
        self._is_closed = True
        self.messages.clear()

    def _called(self) -> None:
        self._is_called = False
        self.take_all()
