"""A ShareFetch whose partitions are read, perhaps several times, until there are records to acquire (Apache Kafka:
DelayedShareFetch).

All partitions are read first, and then all are acquired, in one turn of the loop. So no other fetch can acquire what
this one has read, and no lock between fetches is needed. A read that needs the device ends the pass before anything is
acquired.

Responsible for the decision to answer or to wait. Not responsible for the event that ends a wait: the leaders of the
share partitions wake their waiting fetches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pykbroker.fetches.partition_reads import PartitionRead, PartitionReads, asked_partitions, read_partitions
from pykbroker.fetches.share_acquisitions import ShareAcquisitions
from pykbroker.fetches.share_reader import ShareReader
from pykbroker.replica.parked import Isolation
from pykbroker_log.disk import ColdRead

if TYPE_CHECKING:
    from pykbroker.dispatch.context import BrokerContext
    from pykbroker.fetches.share_fetch_plan import ShareFetchPlan


class WaitingShareFetch:
    """Call `read` first. If it does not return the acquisitions, call `park`."""

    __slots__ = ("_answer", "_began_s", "_ctx", "_plan", "_reader")

    def __init__(self, ctx: BrokerContext, plan: ShareFetchPlan) -> None:
        self._ctx = ctx
        self._plan = plan
        self._reader = ShareReader(ctx, plan)
        #: the time of the arrival, or of the last pass that could acquire records
        self._began_s = ctx.services.runtime.loop.time()
        #: what the parked fetch returns
        self._answer: asyncio.Future[ShareAcquisitions] | None = None

    def asked(self) -> Iterator[tuple[str, int]]:
        """Return the topic name and index of each partition in the plan, as far as the name is known."""
        return asked_partitions(self._plan, self._ctx.services.metadata.image)

    def read(self, final: bool) -> ShareAcquisitions | int | asyncio.Future[ShareAcquisitions | int]:
        """Read every partition, and acquire. Return what was acquired, or the number of missing bytes if there are too
        few and the fetch may wait (not `final`). Return a future of one of these if a read needs a device, because some
        bytes are not in memory."""
        try:
            return self._read(final, wait=False)
        except ColdRead as cold:
            cold_reads = self._ctx.services.replicas.logs.cold_reads
            return cold_reads.retry(cold, lambda wait: self._read(final, wait))

    def _read(self, final: bool, wait: bool) -> ShareAcquisitions | int:
        """As `read`, but without a future. May raise ColdRead, unless `wait`; then nothing is acquired."""
        services, plan, reader = self._ctx.services, self._plan, self._reader
        acquisitions = ShareAcquisitions(plan)
        is_cancelled = self._answer is not None and self._answer.done()
        if is_cancelled or not plan.is_current(services.share_leaders.sessions):
            # The client has gone, or its session has ended. It would never get what is acquired here.
            return acquisitions
        limit = min(plan.request.max_bytes, services.replicas.fetch_max_bytes)
        reads = read_partitions(plan, reader, services, limit, wait=wait)
        wanted = min(plan.request.min_bytes, limit)
        if not reader.acquirable:
            # As in Apache Kafka, a fetch of no bytes waits too while share partitions are loaded or full of locks.
            wanted = max(1, wanted)
        is_short = plan.wants_records and reads.size < wanted and bool(reads.waiting_for) and not reads.is_urgent
        waits = is_short and not final
        if plan.wants_records:
            self._count(reads, waits=waits, is_expired=is_short and final)
        if waits:
            return wanted - reads.size
        # A quota of the client has to be asked here. Records that a throttled client acquires stay locked and are never
        # sent.
        for into in reads.found:
            topic_id, index = into.key
            assert isinstance(topic_id, bytes)
            if not plan.wants_records and not into.error:
                continue  # As in Apache Kafka, the answer has no partition that could be read.
            acquisitions.add((topic_id, index), into.error, reader.reads.get(into.key))
        return acquisitions

    def _count(self, reads: PartitionReads, *, waits: bool, is_expired: bool) -> None:
        """Count a pass as Apache Kafka does. Partitions that the metadata does not have, or that the client may not
        read, do not count there."""
        services, plan, reader = self._ctx.services, self._plan, self._reader
        measures, group = services.share_leaders.measures, plan.member.group
        if reader.acquirable or not waits:
            measures.acquirable(group, self._began_s)
            self._began_s = measures.now_s()
        if waits:
            return
        measures.expired_fetches += is_expired
        topics: set[str] = set()
        failed: set[str] = set()
        asked = errors = 0
        for into in reads.found:
            if into.error and not self._exists(into):
                continue
            topic = into.entry.topic
            assert topic is not None
            asked += 1
            topics.add(topic)
            if into.error:
                errors += 1
                failed.add(topic)
        services.replicas.topic_metrics.share_fetches.count(topics, failed)
        if errors < asked:
            measures.fetched(group, reader.acquirable, asked)

    def _exists(self, into: PartitionRead) -> bool:
        """Return True if the metadata has a partition that was not read, and the client may read it."""
        topic, entry = self._ctx.services.metadata.image.topics.by_id.get(into.entry.topic_id), into.entry
        return topic is not None and entry.index in topic.partitions and self._reader.may_read(topic.name)

    def park(self, found: int | asyncio.Future[ShareAcquisitions | int]) -> asyncio.Future[ShareAcquisitions]:
        """Wait for records, until the request's deadline. `found`: the result of `read`."""
        parked = self._ctx.services.replicas.purgatory.park(
            -1,
            Isolation.HIGH_WATERMARK,
            found,
            self._plan.request.max_wait_ms / 1000,
            self.read,
            self._reader.leaders.values,
            is_share=True,
        )
        self._answer = parked.future
        return parked.future
