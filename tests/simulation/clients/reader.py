"""Consumers without a group: one partition, one isolation level, from a position on. And readers of the whole log."""

from __future__ import annotations

from typing import Any

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.control import ControlType, parse_control
from pykbroker_wire.records.record import iter_records
from pykbroker_worlds.history.events import Batch, CommittedOffset, FetchedOffset, History, Log, Place, Read
from pykbroker_worlds.simulated.sim_cluster import SimCluster
from tests.simulation.clients.base import GROUP, MOVED, NO_COORDINATOR, QUIET, Peer, Trouble


class Reader(Peer):
    """Reads like a consumer: it leaves out control batches and the records of aborted transactions."""

    def __init__(
        self,
        cluster: SimCluster,
        history: History,
        name: str,
        place: Place,
        *,
        committed_only: bool,
        trouble: Trouble = QUIET,
    ) -> None:
        super().__init__(cluster, history, name, trouble)
        self.place = place
        self.committed_only = committed_only
        self.position = 0
        self.high_watermark = -1
        self.last_stable_offset = -1
        #: the broker that was asked last, as in `Read`
        self.server = (0, 0, -1)

    async def fetch(self, wait_ms: int, max_bytes: int = 1 << 20) -> Any:
        """Fetch once; the response may be empty. Return None if it must be tried again."""
        topic, index = self.place
        leader = await self.leader(self.place)
        asked = FetchPartition(
            partition=index,
            fetch_offset=self.position,
            current_leader_epoch=self.leader_epochs[self.place],
            partition_max_bytes=max_bytes,
        )
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=int(self.committed_only),
            session_epoch=-1,
            topics=[FetchTopic(topic_id=await self.topic_id(topic), partitions=[asked])],
        )
        epoch = self._leads(leader)
        self.server = leader, self.cluster.brokers[leader].starts, epoch
        answer = await self.once(leader, request)
        if self._leads(leader) != epoch:
            self.server = *self.server[:2], -1
        if answer is None or not answer.responses:
            self.lost_leader(self.place)
            return None
        assert not answer.error_code, ErrorCode(answer.error_code)
        found = answer.responses[0].partitions[0]
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # A power loss has removed the records at this position.
            event = Read(
                started=self.history.now(),
                code=int(found.error_code),
                client=self.name,
                server=self.server,
                place=self.place,
                committed_only=self.committed_only,
                position=self.position,
                next_position=self.position,
                records=(),
                high_watermark=found.high_watermark,
                last_stable_offset=found.last_stable_offset,
            )
            self.history.record(event)
            self.position = await self._start()
            self.note("out of range", self.position)
            return None
        if found.error_code:
            assert found.error_code in MOVED, ErrorCode(found.error_code)
            self.lost_leader(self.place)
            return None
        return found

    def _leads(self, broker: int) -> int:
        """Return the leader epoch in which a broker leads the partition now; -1 if it does not."""
        asked = self.cluster.brokers[broker]
        led = asked.led() if asked.up else ()
        return next((one.leader_epoch for one in led if (one.topic, one.index) == self.place), -1)

    async def _start(self) -> int:
        topic, index = self.place
        partition = ListOffsetsPartition(partition_index=index, timestamp=-2)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
        while True:
            answer = await self.once(await self.leader(self.place), request)
            if answer is not None and not answer.topics[0].partitions[0].error_code:
                return int(answer.topics[0].partitions[0].offset)
            self.lost_leader(self.place)
            await self.pause()

    async def poll(self, wait_ms: int = 500, max_bytes: int = 1 << 20) -> tuple[tuple[int, bytes], ...]:
        started = self.history.now()
        found = await self.fetch(wait_ms, max_bytes)
        if found is None:
            await self.pause()
            return ()
        position, records = self._understand(found)
        event = Read(
            started=started,
            code=int(ErrorCode.NONE),
            client=self.name,
            server=self.server,
            place=self.place,
            committed_only=self.committed_only,
            position=self.position,
            next_position=position,
            records=records,
            high_watermark=found.high_watermark,
            last_stable_offset=found.last_stable_offset,
        )
        self.history.record(event)
        self.position = position
        self.high_watermark, self.last_stable_offset = found.high_watermark, found.last_stable_offset
        self.note(position, found.high_watermark, found.last_stable_offset)
        return records

    def _understand(self, found: Any) -> tuple[int, tuple[tuple[int, bytes], ...]]:
        position = self.position
        records: list[tuple[int, bytes]] = []
        aborted = sorted(found.aborted_transactions or (), key=lambda one: one.first_offset)
        inside: set[int] = set()
        data = found.records or b""
        for at, header in iter_batches(data):
            while aborted and aborted[0].first_offset <= header.last_offset:
                inside.add(aborted.pop(0).producer_id)
            if header.is_control:
                for record in iter_records(data, at, header):
                    if parse_control(record).type is ControlType.ABORT:
                        inside.discard(header.producer_id)
            elif not (self.committed_only and header.is_transactional and header.producer_id in inside):
                records += (
                    (record.offset, bytes(record.value or b""))
                    for record in iter_records(data, at, header)
                    if record.offset >= self.position
                )
            position = max(position, header.next_offset)
        return position, tuple(records)

    async def forever(self, pause: float = 0.05) -> None:
        """Poll small parts, and start again now and then, so that every range is read in different ways."""
        while True:
            await self.poll(self.random.choice([0, 200, 500]), self.random.choice([1, 300, 1_000, 1 << 20]))
            if self.random.random() < 0.05:
                self.position = self.random.randint(0, self.position)
            await self.pause(0.0, pause)

    async def read_all(self) -> None:
        """Read from the start to the end, once."""
        self.position, self.high_watermark = 0, -1
        while self.position < self.high_watermark or self.high_watermark < 0:
            if not await self.poll(0) and self.committed_only and self.position >= self.last_stable_offset >= 0:
                return

    async def whole_log(self) -> Log:
        """Read everything up to the high watermark, batch by batch."""
        log: Log = []
        self.position = 0
        while True:
            found = await self.fetch(0)
            if found is None:
                await self.pause()
                continue
            data = found.records or b""
            for at, header in iter_batches(data):
                records = list(iter_records(data, at, header))
                control = parse_control(records[0]) if header.is_control else None
                log.append(
                    Batch(
                        base_offset=header.base_offset,
                        last_offset=header.last_offset,
                        producer_id=header.producer_id,
                        epoch=header.producer_epoch,
                        sequence=header.base_sequence,
                        is_transactional=header.is_transactional,
                        marker=control.type if control is not None else None,
                        coordinator_epoch=control.coordinator_epoch if control is not None else -1,
                        timestamp=header.max_timestamp,
                        values=() if header.is_control else tuple(bytes(record.value or b"") for record in records),
                    )
                )
                self.position = header.next_offset
            self.high_watermark, self.last_stable_offset = found.high_watermark, found.last_stable_offset
            if self.position >= found.high_watermark:
                return log


class Offsets(Peer):
    """Sends OffsetFetch and plain OffsetCommit for a group without members."""

    async def fetch(self, group: str, place: Place, *, stable: bool) -> FetchedOffset | None:
        """Return the offset, or None if it must be fetched again."""
        topic, index = place
        asked = OffsetFetchRequestTopics(topic_id=await self.topic_id(topic), partition_indexes=[index])
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=[asked])], require_stable=stable
        )
        started = self.history.now()
        coordinator = await self.coordinator(GROUP, group)
        answer = await self.ask_coordinator(GROUP, group, request)
        if answer is None:
            return None
        found = answer.groups[0]
        code = found.error_code or found.topics[0].partitions[0].error_code
        part = found.topics[0].partitions[0] if not found.error_code else None
        event = FetchedOffset(
            started=started,
            code=code,
            client=self.name,
            group=group,
            place=place,
            offset=part.committed_offset if part is not None else -1,
            mark=(part.metadata or "") if part is not None else "",
            stable=stable,
            was_replaced=self.was_replaced(coordinator),
        )
        self.history.record(event)
        self.note("fetched", group, place, code, event.offset)
        if code in NO_COORDINATOR:
            await self.moved(GROUP, group)
            return None
        if code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            assert stable
            await self.pause()
            return None
        assert code == ErrorCode.NONE, ErrorCode(code)
        return event

    async def fetched(self, group: str, place: Place, *, stable: bool = True) -> FetchedOffset:
        while True:
            found = await self.fetch(group, place, stable=stable)
            if found is not None:
                return found

    async def commit(
        self,
        group: str,
        place: Place,
        offset: int,
        *,
        member: str = "",
        generation: int = -1,
        instance: str | None = None,
    ) -> int:
        """Commit until it is answered; return the code."""
        mark = f"{self.name}@{offset}"
        part = OffsetCommitRequestPartition(partition_index=place[1], committed_offset=offset, committed_metadata=mark)
        topic = OffsetCommitRequestTopic(topic_id=await self.topic_id(place[0]), partitions=[part])
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=instance,
            topics=[topic],
        )
        while True:
            event = CommittedOffset(
                started=self.history.now(),
                code=None,
                client=self.name,
                group=group,
                place=place,
                offset=offset,
                mark=mark,
                member=member,
                generation=generation,
            )
            try:
                answer = await self.ask_coordinator(GROUP, group, request)
                if answer is not None:
                    event.code = answer.topics[0].partitions[0].error_code
            finally:
                self.history.record(event)
            code = event.code
            self.note("committed", group, place, offset, code)
            if code in NO_COORDINATOR:
                await self.moved(GROUP, group)
            elif code is not None:
                return int(code)

    async def watch(self, groups: list[str], places: list[Place], pause: float = 0.1) -> None:
        while True:
            await self.fetch(self.random.choice(groups), self.random.choice(places), stable=self.random.random() < 0.5)
            await self.pause(0.0, pause)

    async def commit_now_and_then(self, group: str, place: Place, count: int) -> None:
        for _ in range(count):
            code = await self.commit(group, place, self.history.now())
            assert code == ErrorCode.NONE, ErrorCode(code)
            await self.pause(0.0, 0.3)
