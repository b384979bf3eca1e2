"""Requests of transactions as short calls, and the waits that they need: builders for the scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compat_tests.differential.session import NOW_MS, Session
from pykbroker_wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pykbroker_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from pykbroker_wire.messages.describe_transactions import DescribeTransactionsRequest
from pykbroker_wire.messages.end_txn import EndTxnRequest
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pykbroker_wire.records.batch import build_batch

TIMEOUT_MS = 60_000
NOBODYS_ID = 5_000_000  # a producer id that no node assigns so soon
CONCURRENT_TRANSACTIONS = 51
Topics = Sequence[tuple[str, Sequence[int]]]


@dataclass(slots=True)
class Producer:
    """A transactional id with the producer id and epoch that a coordinator gave it."""

    name: str
    id: int
    epoch: int

    def older(self) -> Producer:
        return Producer(self.name, self.id, self.epoch - 1)

    def newer(self) -> Producer:
        return Producer(self.name, self.id, self.epoch + 1)

    def take(self, answer: Any) -> None:
        """Take the identity that EndTxn version 5 returns for the next transaction."""
        if answer is not None and answer.error_code == 0 and answer.producer_id >= 0:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch


def until_coordinator(s: Session) -> None:
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=[s.name("coordinator")])
    s.until(lambda: s.ask(request).coordinators[0].error_code == 0, "transactions have a coordinator")
    # Answers without a producer contain producer id 0, so no producer here may have it.
    s.until(lambda: s.ask(init(None)).error_code == 0, "producer ids are there")
    probe = InitProducerIdRequest(transactional_id=s.name("coordinator"), transaction_timeout_ms=TIMEOUT_MS)
    given: list[Any] = []

    def coordinated() -> bool:
        given[:] = [s.ask(probe)]
        return bool(given[0].error_code == 0)

    s.until(coordinated, "transactions are coordinated")
    s.know("producer", given[0].producer_id)


def init(name: str | None, *, timeout_ms: int = TIMEOUT_MS, **fields: Any) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms, **fields)


def producer(s: Session, what: str = "t", *, timeout_ms: int = TIMEOUT_MS) -> Producer:
    """Return a producer of its own, not compared. It is not the first of its name: there is an older epoch, 0."""
    name = s.name(what)
    given: list[Any] = []

    def ready() -> bool:
        given[:] = [s.ask(init(name, timeout_ms=timeout_ms))]
        return bool(given[0].error_code == 0)

    for _ in range(2):
        s.until(ready, f"{name} has a producer id")
    s.know("producer", given[0].producer_id)
    return Producer(name, given[0].producer_id, given[0].producer_epoch)


def add_partitions(p: Producer, *topics: tuple[str, Sequence[int]]) -> AddPartitionsToTxnRequest:
    """Return the request of versions 0 to 3, which clients send."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=p.name,
        v3_and_below_producer_id=p.id,
        v3_and_below_producer_epoch=p.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=list(indexes)) for name, indexes in topics],
    )


def add_for(*asked: tuple[Producer, Topics, bool]) -> AddPartitionsToTxnRequest:
    """Return the request of versions 4 and 5, which brokers send for several transactions; the flag is verify only."""
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=p.name,
                producer_id=p.id,
                producer_epoch=p.epoch,
                verify_only=verify_only,
                topics=[AddPartitionsToTxnTopic(name=name, partitions=list(indexes)) for name, indexes in topics],
            )
            for p, topics, verify_only in asked
        ]
    )


def add_offsets(p: Producer, group: str) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(transactional_id=p.name, producer_id=p.id, producer_epoch=p.epoch, group_id=group)


def commit_offsets(
    p: Producer,
    group: str,
    *topics: tuple[str, Sequence[tuple[int, int]]],
    metadata: str | None = "m",
    ids: Mapping[str, bytes] | None = None,
    **fields: Any,
) -> TxnOffsetCommitRequest:
    """`ids`: the ids of topics by their names, for version 6."""
    return TxnOffsetCommitRequest(
        transactional_id=p.name,
        group_id=group,
        producer_id=p.id,
        producer_epoch=p.epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                topic_id=(ids or {}).get(name, bytes(16)),
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                    for index, offset in partitions
                ],
            )
            for name, partitions in topics
        ],
        **fields,
    )


def end(p: Producer, *, commit: bool = True) -> EndTxnRequest:
    return EndTxnRequest(transactional_id=p.name, producer_id=p.id, producer_epoch=p.epoch, committed=commit)


def batch(p: Producer, sequence: int = 0, *, values: Sequence[bytes] = (b"v",), transactional: bool = True) -> bytes:
    return build_batch(
        [(b"k", value, (), NOW_MS) for value in values],
        producer_id=p.id,
        producer_epoch=p.epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def hanging(s: Session, value: bytes) -> tuple[str, Producer]:
    """Make a topic with a transaction that its coordinator does not have, which a broker without verification
    accepts."""
    until_coordinator(s)
    topic = s.make_topic("data")
    by = producer(s)
    answer = s.ask(write(s, by, topic, (0, batch(by, values=[value]))), 9)
    (appended,) = answer.responses[0].partition_responses
    assert appended.error_code == 0
    return topic, by


def write(
    s: Session, p: Producer | None, topic: str, *parts: tuple[int, bytes], name: str | None = None
) -> ProduceRequest:
    """Return a Produce request of any version, under the producer's transactional id (or `name`)."""
    return ProduceRequest(
        transactional_id=p.name if p is not None else name,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=s.topic_id(topic),
                partition_data=[PartitionProduceData(index=index, records=records) for index, records in parts],
            )
        ],
    )


def until_written(s: Session, p: Producer, topic: str, *parts: tuple[int, bytes], version: int = 13) -> None:
    """Prepare: write transactional records; repeated as long as the last transaction is being completed."""
    request = write(s, p, topic, *parts)

    def written() -> bool:
        done = s.ask(request, version).responses[0].partition_responses
        return all(each.error_code == 0 for each in done)

    s.until(written, f"{p.name} has written to {topic}")


def until_added(s: Session, p: Producer, *topics: tuple[str, Sequence[int]]) -> None:
    request = add_partitions(p, *topics)

    def added() -> bool:
        found = s.ask(request, 3).results_by_topic_v3_and_below
        return all(each.partition_error_code == 0 for topic in found for each in topic.results_by_partition)

    s.until(added, f"{p.name} has added partitions")


def until_state(s: Session, name: str, *states: str) -> None:
    request = DescribeTransactionsRequest(transactional_ids=[name])
    s.until(lambda: s.ask(request).transaction_states[0].transaction_state in states, f"{name} is {states}")


def until_ended(s: Session, p: Producer, *, commit: bool = True, version: int = 5) -> Any:
    """Prepare: end the transaction and wait for the markers."""
    answers: list[Any] = []

    def ended() -> bool:
        answers[:] = [s.ask(end(p, commit=commit), version)]
        return bool(answers[0].error_code == 0)

    s.until(ended, f"{p.name} has ended")
    until_state(s, p.name, "CompleteCommit" if commit else "CompleteAbort")
    p.take(answers[0])
    return answers[0]
