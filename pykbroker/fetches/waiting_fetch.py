"""A fetch whose partitions are read, perhaps several times, until there is enough for an answer (Kafka's DelayedFetch).

Responsible for the decision to answer or to wait. Not responsible for the event that ends a wait (replica/parked.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pykbroker.fetches.consumer_reader import ConsumerReader
from pykbroker.fetches.fetch_answer import fetch_answer
from pykbroker.fetches.follower_reader import FollowerReader
from pykbroker.fetches.partition_reads import PartitionRead, Reader, asked_partitions, read_partitions
from pykbroker_log.disk import ColdRead
from pykbroker_wire.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from pykbroker.dispatch.context import BrokerContext
    from pykbroker.fetches.fetch_plan import FetchPlan
    from pykbroker.replica.parked import ParkedFetch
    from pykbroker.replica.partition import Partition


class WaitingFetch:
    """Call `read` first. If it does not return the answer, call `park`."""

    __slots__ = ("_ctx", "_empty", "_parked", "_plan", "_reader", "_waiting_for")

    def __init__(self, ctx: BrokerContext, plan: FetchPlan) -> None:
        self._ctx = ctx
        self._plan = plan
        self._reader: Reader = FollowerReader(ctx, plan) if plan.replica_id >= 0 else ConsumerReader(ctx, plan)
        self._waiting_for: list[Partition] = []
        self._parked: ParkedFetch | None = None
        #: the results of the last read if it found no records; they are answered at the deadline, unless something
        #: changes before
        self._empty: list[PartitionRead] | None = None

    def asked(self) -> Iterator[tuple[str, int]]:
        """Return the topic name and index of each partition in the plan, as far as the name is known."""
        return asked_partitions(self._plan, self._ctx.services.metadata.image)

    def read(self, final: bool) -> FetchResponse | int | asyncio.Future[FetchResponse | int]:
        """Read every partition. Return the answer, or the number of missing bytes if there are too few and the fetch
        may wait (not `final`). Return a future of one of these if a read needs a device, because some bytes are not in
        memory."""
        try:
            return self._read(final, wait=False)
        except ColdRead as cold:
            cold_reads = self._ctx.services.replicas.logs.cold_reads
            return cold_reads.retry(cold, lambda wait: self._read(final, wait))

    def _read(self, final: bool, wait: bool) -> FetchResponse | int:
        """As `read`, but without a future. May raise ColdRead, unless `wait`; then nothing has changed."""
        if final and self._empty is not None and self._parked is not None and not self._parked.poked:
            return self._answer(self._empty, 0)
        services, plan = self._ctx.services, self._plan
        limit = min(plan.request.max_bytes, services.replicas.fetch_max_bytes)
        reads = read_partitions(plan, self._reader, services, limit, wait=wait)
        wanted = min(plan.request.min_bytes, limit)
        if reads.size < wanted and reads.waiting_for and not final and not reads.is_urgent:
            self._waiting_for = reads.waiting_for
            self._empty = None if reads.size else reads.found
            return wanted - reads.size
        return self._answer(reads.found, reads.size)

    def _answer(self, found: list[PartitionRead], size: int) -> FetchResponse:
        if size:
            self._reader.count(size)
        return fetch_answer(self._plan, found, self._ctx.services.metadata.image, self._ctx.listener_name)

    def park(self, found: int | asyncio.Future[FetchResponse | int]) -> asyncio.Future[FetchResponse]:
        """Wait for more records, until the request's deadline. `found`: the result of `read`."""
        plan = self._plan
        parked = self._parked = self._ctx.services.replicas.purgatory.park(
            plan.replica_id,
            plan.isolation,
            found,
            plan.request.max_wait_ms / 1000,
            self.read,
            lambda: self._waiting_for,
        )
        return parked.future
