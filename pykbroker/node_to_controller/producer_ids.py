"""Producer ids for idempotent producers: taken from blocks that the controller hands out (KIP-730).

Responsible for asking for the next block before this one ends, and for giving out each id once. Not responsible for
making blocks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from pykbroker.runtime import Runtime
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.allocate_producer_ids import AllocateProducerIdsRequest

logger = logging.getLogger(__name__)

#: Ask for the next block when this much of the present one is left.
PREFETCH_AT = 0.1
REQUEST_TIMEOUT_MS = 30_000
RETRY_SECONDS = 0.05
#: What an InitProducerId waits for a block at the most.
WAIT_SECONDS = 5.0


class ProducerIds:
    """Gives out ids. `send` asks the controller; `broker_epoch` tells this broker's epoch when asked."""

    def __init__(
        self,
        runtime: Runtime,
        broker_id: int,
        broker_epoch: Callable[[], int],
        send: Callable[..., asyncio.Future[Any]],
    ) -> None:
        self._runtime = runtime
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._send = send
        self._next = 0
        self._end = 0
        self._reserve: tuple[int, int] | None = None
        self._asking = False
        self._closed = False
        self._low_water = 0
        self._waiting: dict[asyncio.Future[int], asyncio.TimerHandle] = {}

    def take(self) -> int | asyncio.Future[int]:
        """An id now, or a future of one that raises COORDINATOR_LOAD_IN_PROGRESS, as Kafka, when no block came."""
        if self._next == self._end and self._reserve is not None:
            self._begin(*self._reserve)
            self._reserve = None
        if self._next < self._end:
            taken = self._next
            self._next += 1
            if self._end - self._next <= self._low_water and self._reserve is None:
                self._ask()
            return taken
        future: asyncio.Future[int] = self._runtime.loop.create_future()
        self._waiting[future] = self._runtime.loop.call_later(WAIT_SECONDS, self._expire, future)
        future.add_done_callback(self._waits_no_more)
        self._ask()
        return future

    def close(self) -> None:
        self._closed = True
        for future in list(self._waiting):
            future.cancel()

    def _begin(self, start: int, length: int) -> None:
        self._next, self._end = start, start + length
        self._low_water = int(length * PREFETCH_AT)

    def _waits_no_more(self, future: asyncio.Future[int]) -> None:
        # Also when its client is gone.
        timer = self._waiting.pop(future, None)
        if timer is not None:
            timer.cancel()

    def _expire(self, future: asyncio.Future[int]) -> None:
        if not future.done():
            future.set_exception(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no block of producer ids in time"))

    def _ask(self) -> None:
        if self._asking or self._closed:
            return
        self._asking = True
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        self._send(request, REQUEST_TIMEOUT_MS).add_done_callback(self._answered)

    def _answered(self, future: asyncio.Future[Any]) -> None:
        self._asking = False
        if self._closed or future.cancelled():
            return
        error = future.exception()
        if error is None and future.result().error_code == ErrorCode.NONE:
            response = future.result()
            block = (response.producer_id_start, response.producer_id_len)
            if self._next == self._end:
                self._begin(*block)
            else:
                self._reserve = block
            for waiter in self._waiting:
                if self._next == self._end:
                    self._ask()
                    break
                if not waiter.done():
                    waiter.set_result(self._next)
                    self._next += 1
            return
        reason = error if error is not None else ErrorCode(future.result().error_code).name
        logger.info("Producer ids: the controller gave no block: %s", reason)
        if self._waiting:
            self._runtime.loop.call_later(RETRY_SECONDS, self._ask)
