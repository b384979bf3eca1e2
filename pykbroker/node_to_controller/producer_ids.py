"""Producer ids for idempotent producers, from blocks that the controller allocates (KIP-730).

Responsible for asking for the next block before the present block ends, and for giving out each id once. Not
responsible for allocating blocks, nor for finding the controller and asking again (controller_sender.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pykbroker.node_to_controller.controller_channel import Channel
from pykbroker.node_to_controller.controller_sender import ControllerSender, KnownLeader
from pykbroker.runtime import Runtime
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

#: Ask for the next block when this fraction of the present one is left.
PREFETCH_AT = 0.1
#: The shortest and the longest pause after a failure. The shortest is Apache Kafka's.
FIRST_PAUSE_MS, LAST_PAUSE_MS = 50, 1_000
#: The longest time for which an InitProducerId waits for a block.
WAIT_SECONDS = 5.0


class ProducerIds:
    """Gives out producer ids. `broker_epoch` returns this broker's present epoch."""

    def __init__(
        self,
        runtime: Runtime,
        broker_id: int,
        broker_epoch: Callable[[], int],
        channel: Channel,
        leadership: KnownLeader,
    ) -> None:
        self._runtime = runtime
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._next = 0
        self._end = 0
        self._reserve: tuple[int, int] | None = None
        self._low_water = 0
        self._waiting: dict[asyncio.Future[int], asyncio.TimerHandle] = {}
        self._sender = ControllerSender(
            runtime,
            channel,
            leadership,
            "Producer ids:",
            self._next_request,
            self._answered,
            first_pause_ms=FIRST_PAUSE_MS,
            last_pause_ms=LAST_PAUSE_MS,
        )

    def take(self) -> int | asyncio.Future[int]:
        """Return an id, or a future of one. The future raises COORDINATOR_LOAD_IN_PROGRESS, as Kafka does, if no block
        comes in time."""
        if self._next == self._end and self._reserve is not None:
            self._begin(*self._reserve)
            self._reserve = None
        if self._next < self._end:
            taken = self._next
            self._next += 1
            if self._is_low and not self._sender.in_flight:
                self._sender.wake()
            return taken
        future: asyncio.Future[int] = self._runtime.loop.create_future()
        self._waiting[future] = self._runtime.loop.call_later(WAIT_SECONDS, self._expire, future)
        future.add_done_callback(self._waits_no_more)
        if not self._sender.in_flight:
            self._sender.wake()
        return future

    def close(self) -> None:
        self._sender.close()
        for future in list(self._waiting):
            future.cancel()

    def _begin(self, start: int, length: int) -> None:
        self._next, self._end = start, start + length
        self._low_water = int(length * PREFETCH_AT)

    def _waits_no_more(self, future: asyncio.Future[int]) -> None:
        # This is also called when the client is gone, which cancels the future.
        timer = self._waiting.pop(future, None)
        if timer is not None:
            timer.cancel()

    def _expire(self, future: asyncio.Future[int]) -> None:
        if not future.done():
            future.set_exception(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no block of producer ids in time"))

    @property
    def _is_low(self) -> bool:
        return self._reserve is None and self._end - self._next <= self._low_water

    def _next_request(self) -> AllocateProducerIdsRequest | None:
        if not self._waiting and not self._is_low:
            return None
        return AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())

    def _answered(self, response: AllocateProducerIdsResponse) -> None:
        block = (response.producer_id_start, response.producer_id_len)
        if self._next == self._end:
            self._begin(*block)
        else:
            self._reserve = block
        for waiter in self._waiting:
            if self._next == self._end:
                self._sender.wake()
                break
            if not waiter.done():
                waiter.set_result(self._next)
                self._next += 1
