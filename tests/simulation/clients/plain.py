"""A producer without transactions: idempotent with several batches in flight, or plain with one.

An idempotent producer sends a batch again until it is acknowledged, in order, as real clients do. A plain one does so
too, and may write a value twice; with acks=1 an acknowledged batch may be lost at a change of the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.records.batch import build_batch
from pykbroker_worlds.history.events import History, Place, Produced
from pykbroker_worlds.simulated.sim_cluster import SimCluster
from tests.simulation.clients.base import MOVED, NO_COORDINATOR, QUIET, Peer, Trouble

#: After this many refusals because of a gap, the batch before the first unacknowledged one is really lost.
_MOST_GAPS = 30


@dataclass(slots=True)
class _Sent:
    """A batch that is not acknowledged yet."""

    values: list[bytes]
    sequence: int
    records: bytes
    attempts: int = 0
    gaps: int = 0


class PlainProducer(Peer):
    """Writes to one partition. `acks` is 1 or -1; `in_flight` above 1 only if `idempotent`."""

    def __init__(
        self,
        cluster: SimCluster,
        history: History,
        name: str,
        place: Place,
        *,
        idempotent: bool,
        acks: int = -1,
        in_flight: int = 1,
        trouble: Trouble = QUIET,
    ) -> None:
        super().__init__(cluster, history, name, trouble)
        assert idempotent or in_flight == 1
        self.place = place
        self.acks = acks
        self.in_flight = in_flight
        self.idempotent = idempotent
        self.acknowledged = 0
        self._producer_id = -1
        self._sequence = 0
        self._values = 0
        #: True after the first batch was acknowledged
        self._knows_me = False

    async def run(self, is_over: Callable[[], bool], pause: float) -> None:
        """Write until it is over and everything sent is acknowledged."""
        if self.idempotent:
            await self._identify()
        while not is_over():
            await self._deliver([self._batch() for _ in range(self.random.randint(1, self.in_flight))])
            await self.pause(0.0, pause)

    async def _identify(self) -> None:
        while True:
            answer = await self.anybody(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
            if answer.error_code == ErrorCode.NONE:
                self._producer_id = answer.producer_id
                return
            assert answer.error_code in NO_COORDINATOR, ErrorCode(answer.error_code)
            await self.pause()

    def _batch(self) -> _Sent:
        count = self.random.randint(1, 3)
        values = [f"{self.name}:{self._values + number}".encode() for number in range(count)]
        self._values += count
        sequence = self._sequence if self.idempotent else -1
        self._sequence += count
        records = build_batch(
            [(None, value, (), self.world.now_ms()) for value in values],
            producer_id=self._producer_id,
            producer_epoch=0 if self.idempotent else -1,
            base_sequence=sequence,
        )
        return _Sent(values, sequence, records)

    async def _deliver(self, batches: list[_Sent]) -> None:
        together = self._knows_me
        while batches:
            topic_id, leader = await self.topic_id(self.place[0]), await self.leader(self.place)
            # A leader without state of a producer accepts any first sequence: until then only one batch is sent at a
            # time. A batch that is sent again is sent alone, as real clients do.
            now = batches if together else batches[:1]
            codes = await asyncio.gather(*(self._attempt(batch, topic_id, leader) for batch in now))
            left = [batch for batch, code in zip(now, codes, strict=True) if code != ErrorCode.NONE]
            if codes[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                first = batches[0]
                first.gaps += 1
                assert first.gaps < _MOST_GAPS, f"{self.name}: what stands before sequence {first.sequence} is lost"
            together = not left
            self._knows_me = self._knows_me or not left
            batches = left + batches[len(now) :]
            if left:
                self.lost_leader(self.place)
                await self.pause()

    async def _attempt(self, batch: _Sent, topic_id: bytes, leader: int) -> int | None:
        batch.attempts += 1
        event = Produced(
            started=self.history.now(),
            code=None,
            client=self.name,
            place=self.place,
            producer_id=self._producer_id,
            epoch=0 if self.idempotent else -1,
            sequence=batch.sequence,
            values=tuple(batch.values),
            attempt=batch.attempts,
            acks=self.acks,
        )
        try:
            data = TopicProduceData(
                topic_id=topic_id,
                partition_data=[PartitionProduceData(index=self.place[1], records=batch.records)],
            )
            request = ProduceRequest(transactional_id=None, acks=self.acks, timeout_ms=2_000, topic_data=[data])
            answer = await self.once(leader, request)
            if answer is not None:
                found = answer.responses[0].partition_responses[0]
                event.code, event.base_offset = found.error_code, found.base_offset
        finally:
            self.history.record(event)
        code = event.code
        self.note("produced", self.place, code, event.base_offset)
        if code == ErrorCode.NONE:
            self.acknowledged += len(batch.values)
        else:
            allowed = MOVED | {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER} if self.idempotent else MOVED
            assert code is None or code in allowed, ErrorCode(code)
        return code
