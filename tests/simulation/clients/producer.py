"""A transactional producer with the rules of a real client: which errors are retried, which abort, which are fatal.

Two flavours: version 1 of the protocol (AddPartitionsToTxn and AddOffsetsToTxn before the first write, epochs that
last), and version 2 (KIP-890: none of them, a new epoch with every end).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pykbroker_wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from pykbroker_wire.messages.end_txn import EndTxnRequest
from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pykbroker_wire.records.batch import build_batch
from pykbroker_worlds.history.events import CommittedOffset, Ended, History, Identified, Place, Produced
from pykbroker_worlds.simulated.sim_cluster import SimCluster
from tests.simulation.clients.base import GROUP, MOVED, NO_COORDINATOR, QUIET, TRANSACTION, Peer, Trouble

#: the newest versions of clients of transaction.version 0 and 1; clients of 2 use the newest ones
PRODUCE_V1, END_V1, ADD_PARTITIONS_V1, OFFSETS_V1 = 11, 4, 3, 4


class Fenced(Exception):
    """Another producer has this transactional id, or the coordinator gave this one up: the producer must stop."""


class MustAbort(Exception):
    """The transaction can no longer be committed."""


#: Codes that are fatal for a producer.
FATAL = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
#: Codes of Produce and TxnOffsetCommit that abort the transaction; EndTxn shows if they are fatal.
ABORTABLE = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
#: Codes of TxnOffsetCommit which mean that the group has another generation or member.
LOST_GROUP = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)


@dataclass(slots=True)
class Membership:
    """The group member for which offsets are committed."""

    member: str = ""
    generation: int = -1
    instance: str | None = None


@dataclass(slots=True)
class _Transaction:
    name: str
    partitions: set[Place] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    #: a request was sent that may have begun it at the coordinator
    started: bool = False
    #: the sequences that were sent may differ from those in the log
    in_doubt: bool = False


class TransactionalProducer(Peer):
    """A producer. Another one may have the same `transactional_id`: then one of the two is a zombie."""

    def __init__(
        self,
        cluster: SimCluster,
        history: History,
        name: str,
        transactional_id: str,
        *,
        version: int,
        timeout_ms: int = 5_000,
        trouble: Trouble = QUIET,
    ) -> None:
        super().__init__(cluster, history, name, trouble)
        self.transactional_id = transactional_id
        self.version = version
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self.count = 0
        self.transaction: _Transaction | None = None
        self._sequences: dict[Place, int] = {}
        self._values = 0

    # -- identity -----------------------------------------------------------------------------------------------------

    async def init(self, *, keep: bool = False) -> None:
        """Send InitProducerId. With `keep`, get a new epoch for this producer instead of a new life."""
        self.transaction = None
        while True:
            started = self.history.now()
            request = InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self.timeout_ms,
                producer_id=self.producer_id if keep else -1,
                producer_epoch=self.epoch if keep else -1,
            )
            answer = await self.ask_coordinator(TRANSACTION, self.transactional_id, request, 5)
            code = None if answer is None else answer.error_code
            if answer is not None:
                self.history.record(
                    Identified(
                        started=started,
                        code=code,
                        client=self.name,
                        transactional_id=self.transactional_id,
                        producer_id=answer.producer_id,
                        epoch=answer.producer_epoch,
                    )
                )
            self.note("init", code)
            if code == ErrorCode.NONE:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
                self._sequences.clear()
                return
            await self._again(code, FATAL)

    async def _again(self, code: int | None, fatal: frozenset[ErrorCode]) -> None:
        """Wait before the next try of a request to the transaction coordinator, or raise."""
        if code is None:
            return
        if code in fatal:
            raise Fenced(ErrorCode(code).name)
        if code in NO_COORDINATOR:
            await self.moved(TRANSACTION, self.transactional_id)
        else:
            assert code == ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode(code)
            await self.pause(0.02, 0.1)

    # -- a transaction ------------------------------------------------------------------------------------------------

    def begin(self) -> str:
        assert self.transaction is None
        self.count += 1
        self.transaction = _Transaction(f"{self.name}/{self.count}")
        return self.transaction.name

    def values(self, count: int) -> list[bytes]:
        assert self.transaction is not None
        self._values += count
        return [f"{self.transaction.name}:{self._values - count + number}".encode() for number in range(count)]

    async def produce(self, place: Place, values: list[bytes]) -> int:
        """Send one batch; return its offset. Raises MustAbort or Fenced."""
        transaction = self.transaction
        assert transaction is not None
        if self.version == 1 and place not in transaction.partitions:
            await self._add_partition(transaction, place)
        transaction.partitions.add(place)
        transaction.started = True
        attempt = 0
        records = build_batch(
            [(None, value, (), self.world.now_ms()) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self._sequences.get(place, 0),
            transactional=True,
        )
        transaction.in_doubt = True
        while True:
            attempt += 1
            event = Produced(
                started=self.history.now(),
                code=None,
                client=self.name,
                place=place,
                producer_id=self.producer_id,
                epoch=self.epoch,
                sequence=self._sequences.get(place, 0),
                values=tuple(values),
                transactional_id=self.transactional_id,
                transaction=transaction.name,
                attempt=attempt,
            )
            try:
                answer = await self._send_batch(place, records)
                if answer is not None:
                    event.code, event.base_offset = answer.error_code, answer.base_offset
            finally:
                self.history.record(event)
            code = event.code
            self.note("produced", place, code, event.base_offset)
            if code == ErrorCode.NONE:
                self._sequences[place] = self._sequences.get(place, 0) + len(values)
                transaction.in_doubt = False
                return event.base_offset
            if code is None or code in MOVED:
                self.lost_leader(place)
                await self.pause()
            elif code in (ErrorCode.CONCURRENT_TRANSACTIONS, *NO_COORDINATOR):
                await self.pause()
            else:
                if code not in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
                    # The batch is not in the log now, and a try that was lost cannot have put it there.
                    transaction.in_doubt = attempt > 1
                assert code in ABORTABLE or code == ErrorCode.PRODUCER_FENCED, ErrorCode(code)
                raise MustAbort(ErrorCode(code).name)

    async def produce_together(self, place: Place, batches: int) -> None:
        """Send batches of one record for one partition, all in flight at once, on an undisturbed connection.

        A batch that was refused for now is sent again with all later ones. Any other refusal is a failure of the broker
        and raises AssertionError. Only for version 2.
        """
        assert self.transaction is not None
        self.transaction.partitions.add(place)
        self.transaction.started = True
        left = []
        for value in self.values(batches):
            sequence = self._sequences.get(place, 0)
            self._sequences[place] = sequence + 1
            left.append(
                build_batch(
                    [(None, value, (), self.world.now_ms())],
                    producer_id=self.producer_id,
                    producer_epoch=self.epoch,
                    base_sequence=sequence,
                    transactional=True,
                )
            )
        while left:
            # All lookups are done before the first batch is sent, so that the batches leave in order.
            await self.topic_id(place[0])
            await self.leader(place)
            answers = await asyncio.gather(*(self._send_batch(place, records) for records in left))
            codes = [ErrorCode.NETWORK_EXCEPTION if one is None else ErrorCode(one.error_code) for one in answers]
            self.note("together", place, [code.name for code in codes])
            refused = [number for number, code in enumerate(codes) if code]
            if not refused:
                return
            first, *later = codes[refused[0] :]
            passing = {ErrorCode.NETWORK_EXCEPTION, ErrorCode.CONCURRENT_TRANSACTIONS, *MOVED, *NO_COORDINATOR}
            assert first in passing, (place, codes)
            # The batches after a refused one are out of order, and are refused too.
            assert set(later) <= {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, *passing}, (place, codes)
            assert len(refused) == len(codes) - refused[0], (place, codes)
            left = left[refused[0] :]
            self.lost_leader(place)
            await self.pause()

    async def _send_batch(self, place: Place, records: bytes) -> Any:
        topic, index = place
        data = PartitionProduceData(index=index, records=records)
        if self.version == 1:
            topics = [TopicProduceData(name=topic, partition_data=[data])]
        else:
            topics = [TopicProduceData(topic_id=await self.topic_id(topic), partition_data=[data])]
        request = ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=2_000, topic_data=topics)
        answer = await self.once(await self.leader(place), request, PRODUCE_V1 if self.version == 1 else None)
        return None if answer is None else answer.responses[0].partition_responses[0]

    async def _add_partition(self, transaction: _Transaction, place: Place) -> None:
        transaction.started = True
        while True:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=place[0], partitions=[place[1]])],
            )
            answer = await self.ask_coordinator(TRANSACTION, self.transactional_id, request, ADD_PARTITIONS_V1)
            code = None
            if answer is not None:
                code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            self.note("added", place, code)
            if code == ErrorCode.NONE:
                return
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                await self.pause()
            else:
                await self._again(code, FATAL)

    async def commit_offset(self, group: str, place: Place, offset: int, by: Membership | None = None) -> None:
        """Send TxnOffsetCommit for one partition. Raises MustAbort or Fenced."""
        transaction = self.transaction
        assert transaction is not None
        if self.version == 1 and group not in transaction.groups:
            await self._add_offsets(transaction, group)
        transaction.groups.add(group)
        transaction.started = True
        by = by or Membership()
        mark = f"{transaction.name}@{offset}"
        part = TxnOffsetCommitRequestPartition(
            partition_index=place[1], committed_offset=offset, committed_metadata=mark
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id_or_member_epoch=by.generation,
            member_id=by.member,
            group_instance_id=by.instance,
            topics=[TxnOffsetCommitRequestTopic(name=place[0], partitions=[part])],
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
                transaction=transaction.name,
                member=by.member,
                generation=by.generation,
            )
            try:
                answer = await self.ask_coordinator(GROUP, group, request, OFFSETS_V1 if self.version == 1 else 5)
                if answer is not None:
                    event.code = answer.topics[0].partitions[0].error_code
            finally:
                self.history.record(event)
            code = event.code
            self.note("offset", group, place, offset, code)
            if code == ErrorCode.NONE:
                return
            if code in NO_COORDINATOR:
                await self.moved(GROUP, group)
            elif code in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                await self.pause()
            elif code is not None:
                assert code in ABORTABLE | LOST_GROUP or code == ErrorCode.PRODUCER_FENCED, ErrorCode(code)
                raise MustAbort(ErrorCode(code).name)

    async def _add_offsets(self, transaction: _Transaction, group: str) -> None:
        transaction.started = True
        while True:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            )
            answer = await self.ask_coordinator(TRANSACTION, self.transactional_id, request)
            code = None if answer is None else answer.error_code
            self.note("added group", group, code)
            if code == ErrorCode.NONE:
                return
            await self._again(code, FATAL)

    async def end(self, *, commit: bool) -> None:
        """Send EndTxn until it is answered. Raises Fenced."""
        transaction = self.transaction
        assert transaction is not None
        if not transaction.started:
            self.transaction = None
            return
        attempt = 0
        while True:
            attempt += 1
            request = EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commit,
            )
            event = Ended(
                started=self.history.now(),
                code=None,
                client=self.name,
                transaction=transaction.name,
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                epoch=self.epoch,
                commit=commit,
                attempt=attempt,
            )
            version = END_V1 if self.version == 1 else 5
            try:
                answer = await self.ask_coordinator(TRANSACTION, self.transactional_id, request, version)
                if answer is not None:
                    event.code = answer.error_code
            finally:
                self.history.record(event)
            code = event.code
            self.note("ended", transaction.name, commit, code)
            if code == ErrorCode.NONE:
                break
            await self._again(code, FATAL)
        self.transaction = None
        if self.version == 2:
            if (answer.producer_id, answer.producer_epoch) != (self.producer_id, self.epoch):
                self._sequences.clear()
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        elif transaction.in_doubt:
            # A batch was given up: its sequence may be in use (KIP-360).
            await self.init(keep=True)

    # -- a life -------------------------------------------------------------------------------------------------------

    async def run(self, transactions: int, places: list[Place], groups: list[str]) -> None:
        """Run random transactions. Ends early if it is fenced."""
        await self.init()
        for _ in range(transactions):
            await self.one(places, groups)
            await self.pause(0.0, 0.05)

    async def one(self, places: list[Place], groups: list[str]) -> None:
        rng = self.random
        self.begin()
        commit = rng.random() < 0.75
        try:
            for _ in range(rng.randint(1, 3)):
                chosen = rng.sample(places, rng.randint(1, min(3, len(places))))
                for place in chosen:
                    await self.produce(place, self.values(rng.randint(1, 3)))
                if rng.random() < 0.3:
                    await self.pause(0.0, 0.2)
            if groups and rng.random() < 0.6:
                await self.commit_offset(rng.choice(groups), (places[0][0], 0), self.next_offset())
            if rng.random() < 0.05:
                await asyncio.sleep(self.timeout_ms / 1000 * rng.uniform(0.5, 2.0))
        except MustAbort as error:
            self.note("must abort", str(error))
            commit = False
        await self.end(commit=commit)

    def next_offset(self) -> int:
        """Return an offset that rises through the run, whichever producer commits."""
        return self.history.now()
