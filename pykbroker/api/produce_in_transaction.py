"""Produce within a transaction: every partition belongs to it before its first batch is appended (KIP-890).

Responsible for what a request of transactional batches needs before `produce.append`: one producer, a guard from each
partition where nothing of the transaction is open yet, the coordinator's verdict on those (up to version 11 they must
have been added, from version 12 on they are added), and what that verdict is called in the client's version. A
partition where the transaction is open costs a look into a dictionary. Not responsible for appending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, TypeVar

from pykbroker.coordinator.later import settle
from pykbroker.coordinator.transaction.records import TopicPartition
from pykbroker.coordinator.transaction.shard import Producer
from pykbroker.coordinator.transaction.verifier import Verdicts
from pykbroker.replica.partition import Partition
from pykbroker.security.authorizer import Operation, Resource
from pykbroker.serving.context import BrokerContext
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.produce import ProduceRequest
from pykbroker_wire.primitives import Buffer

T = TypeVar("T")

_TOPIC_IDS_FROM: Final = 13
#: From here on the client knows TRANSACTION_ABORTABLE, and then that partitions are added for it.
_ABORTABLE_FROM: Final = 11
ADDS_FROM: Final = 12

_ATTRIBUTES_AT: Final = 22
_TRANSACTIONAL: Final = 0x10
_HEADER_SIZE: Final = 61
_PRODUCER_AT: Final = 43
_PRODUCER: Final = Struct(">qhi")

#: What passes with time. Old clients try again only what they know, and NOT_ENOUGH_REPLICAS does not make them look for
#: leaders.
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Unverified(KafkaError):
    """Records that were not given to the log; the client is told the message, if there is one."""


#: By topic name and index: the guard to append with, None where none is needed, or why nothing is appended.
Verified = dict[TopicPartition, "object | Unverified | None"]
Append = Callable[[BrokerContext, ProduceRequest, Verified], T]


class _Everywhere(Verified):
    """One verdict for all partitions."""

    def __init__(self, verdict: Unverified) -> None:
        self._verdict = verdict

    def get(self, key: TopicPartition, default: Any = None) -> Any:
        return self._verdict


def is_transactional(records: Buffer | None) -> bool:
    return records is not None and len(records) > _ATTRIBUTES_AT and bool(records[_ATTRIBUTES_AT] & _TRANSACTIONAL)


def producer_of(records: Buffer) -> tuple[int, int, int] | None:
    """Producer id, epoch and base sequence; None: no batch, or nobody's. The log refuses those."""
    if len(records) < _HEADER_SIZE:
        return None
    found: tuple[int, int, int] = _PRODUCER.unpack_from(records, _PRODUCER_AT)
    return found if found[0] >= 0 else None


def handle(ctx: BrokerContext, request: ProduceRequest, append: Append[T]) -> T | asyncio.Future[T]:
    """Verify, then `append`. The request's transactional id may be written by this client."""
    services = ctx.services
    image = services.metadata.image.topics
    adds = ctx.api_version >= ADDS_FROM
    skip = not adds and not services.verifier.enabled
    verified: Verified = {}
    guarded: list[TopicPartition] = []
    identity: tuple[int, int] | None = None
    for topic in request.topic_data:
        if ctx.api_version >= _TOPIC_IDS_FROM:
            known = image.by_id.get(topic.topic_id)
            name = None if known is None else known.name
        else:
            name = topic.name
        if name is None or not ctx.authorize(Operation.WRITE, Resource.TOPIC, name):
            continue
        for asked in topic.partition_data:
            records = asked.records
            if records is None or not is_transactional(records) or image.partition(name, asked.index) is None:
                continue
            producer = producer_of(records)
            if producer is None:
                continue
            if identity is not None and identity != producer[:2]:
                mixed = Unverified(
                    ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
                )
                return append(ctx, request, _Everywhere(mixed))
            identity = producer[:2]
            if skip:
                continue
            try:
                guard = services.replicas.get(name, asked.index).start_verification(*producer, supports_epoch_bump=adds)
            except KafkaError as error:
                verified[name, asked.index] = error
                continue
            if guard is not None:
                verified[name, asked.index] = guard
                guarded.append((name, asked.index))
    if not guarded:
        return append(ctx, request, verified)
    assert identity is not None
    assert request.transactional_id is not None
    verdicts = services.verifier.verify(request.transactional_id, *identity, guarded, add=adds)
    if not isinstance(verdicts, asyncio.Future):
        _judge(ctx, verified, verdicts)
        return append(ctx, request, verified)
    return _later(ctx, request, verified, verdicts, append)


def verify_at_once(
    ctx: BrokerContext, partition: Partition, records: Buffer, transactional_id: str | None
) -> tuple[bool, object | None]:
    """For a frame of one partition: whether its batch may be appended now, and with which guard. False when anything
    is unusual, or has to wait: `handle` decides."""
    if (
        transactional_id is None
        or not is_transactional(records)
        or (producer := producer_of(records)) is None
        or not ctx.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)
    ):
        return False, None
    verifier = ctx.services.verifier
    adds = ctx.api_version >= ADDS_FROM
    if not adds and not verifier.enabled:
        return True, None
    try:
        guard = partition.start_verification(*producer, supports_epoch_bump=adds)
    except KafkaError:
        return False, None
    if guard is None:
        return True, None
    place = partition.topic, partition.index
    good = verifier.verify_at_once(Producer(transactional_id, producer[0], producer[1]), place, add=adds)
    return good, guard


def keep_records(request: ProduceRequest) -> None:
    """For a request that outlives its frame: copies its records, 0.1 ms for a megabyte."""
    for topic in request.topic_data:
        for asked in topic.partition_data:
            if asked.records is not None:
                asked.records = memoryview(bytearray(asked.records))


def _later(
    ctx: BrokerContext,
    request: ProduceRequest,
    verified: Verified,
    verdicts: asyncio.Future[Verdicts],
    append: Append[T],
) -> asyncio.Future[T]:
    """Once per partition and transaction, and only when the answer does not come at once."""
    keep_records(request)
    answer: asyncio.Future[T] = ctx.services.runtime.loop.create_future()

    def arrived(done: asyncio.Future[Verdicts]) -> None:
        # Also when the client is gone: what it sent may be appended, and its transaction decides what becomes of it.
        if done.cancelled():
            answer.cancel()
            return
        _judge(ctx, verified, done.result())
        settle(answer, lambda: append(ctx, request, verified))

    verdicts.add_done_callback(arrived)
    return answer


def _judge(ctx: BrokerContext, verified: Verified, verdicts: Verdicts) -> None:
    for partition, code in verdicts.items():
        if code:
            verified[partition] = refusal(ctx.api_version, code)


def refusal(version: int, code: ErrorCode) -> Unverified:
    """The coordinator's verdict in the words of a client's version."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_FROM:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.INVALID_TXN_STATE:
        return Unverified(code, "Partition was not added to the transaction")
    if code in _RETRIABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_FROM):
        return Unverified(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}",
        )
    return Unverified(code, "")
