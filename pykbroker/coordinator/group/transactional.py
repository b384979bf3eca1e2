"""Offsets that belong to a transaction: TxnOffsetCommit (KIP-98), with checks of the member that commits (KIP-447,
KIP-1319) and of the transaction (KIP-890).

Responsible for the checks that the group makes for such a commit, for the guard that proves that the transaction's
coordinator has the partition, and for the client's error if the coordinator refuses. Not responsible for pending
offsets (offsets.py), for the marker (machine.py), nor for asking the transaction's coordinator
(coordinator/transaction/verifier.py).

If the transaction's coordinator did not have the partition of an offset, the offset would wait for a marker that never
comes, and a member that needs stable offsets would wait too. So the log demands a proof for the first batch of a
transaction. The log gives a guard, the coordinator confirms or adds the partition, and the batch is appended with the
guard.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from pykbroker.coordinator.group.records import offset_record
from pykbroker.coordinator.machine import CoordinatorRuntime, client_code
from pykbroker.coordinator.measures import CountedEvent
from pykbroker.coordinator.request_guards import RequestVerification, Verifier
from pykbroker.coordinator.result import Result, Token
from pykbroker.runtime.later import CallWhenDone, Later, at_any_time, settle
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from pykbroker_wire.records.batch import NO_SEQUENCE

if TYPE_CHECKING:
    from pykbroker.coordinator.group.shard import GroupShard
    from pykbroker.replica.table import ReplicaTable

#: From this version on the client knows TRANSACTION_ABORTABLE (KIP-1050), and from the next version on it uses
#: transaction version 2.
_ABORTABLE_FROM: Final = 4
_ADDS_FROM: Final = 5
#: From this version on the client knows GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH, and topics have ids (KIP-1319).
TOPIC_IDS_FROM: Final = 6


def commit(
    shard: GroupShard,
    request: TxnOffsetCommitRequest,
    topics: list[TxnOffsetCommitRequestTopic],
    api_version: int,
    token: Token,
    now_ms: int,
) -> Result:
    """`topics` are the topics of the request that exist and may be read, with names and ids."""
    group = shard.groups.get(request.group_id)
    check = None
    if group is not None:
        check = group.check_offset_commit(
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            transactional=True,
            api_version=api_version,
        )
    elif request.generation_id_or_member_epoch >= 0:
        known = api_version >= TOPIC_IDS_FROM
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.ILLEGAL_GENERATION)
    result = Result()
    result.transaction = (request.producer_id, request.producer_epoch)
    response = TxnOffsetCommitResponse()
    for topic in topics:
        answers: list[TxnOffsetCommitResponsePartition] = []
        for asked in topic.partitions:
            metadata = asked.committed_metadata or ""
            answer = TxnOffsetCommitResponsePartition(partition_index=asked.partition_index)
            answers.append(answer)
            if len(metadata) > shard.settings.offset_metadata_max_bytes:
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            if check is not None:
                check(topic.name, topic.topic_id, asked.partition_index)
            result.records.append(
                offset_record(
                    request.group_id,
                    topic.name,
                    asked.partition_index,
                    offset=asked.committed_offset,
                    leader_epoch=asked.committed_leader_epoch,
                    metadata=metadata,
                    commit_ms=now_ms,
                    expire_ms=-1,
                    topic_id=topic.topic_id,
                )
            )
        response.topics.append(
            TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)
        )
    result.count(CountedEvent.OFFSET_COMMIT, len(result.records))
    result.reply(token, response)
    return result


class TransactionalOffsets:
    """The part of the group service for TxnOffsetCommit."""

    def __init__(
        self,
        topic: str,
        coordinator: CoordinatorRuntime[GroupShard],
        replicas: ReplicaTable,
    ) -> None:
        self._topic = topic
        self._coordinator = coordinator
        self._replicas = replicas

    def commit(
        self,
        index: int,
        request: TxnOffsetCommitRequest,
        topics: list[TxnOffsetCommitRequestTopic],
        api_version: int,
        verifier: Verifier,
        when_done: CallWhenDone = at_any_time,
    ) -> Later[TxnOffsetCommitResponse]:
        """`when_done` calls the next step after the transaction's coordinator has answered. Handlers pass one that
        keeps the order of appends within a connection."""

        def refuse(code: ErrorCode) -> TxnOffsetCommitResponse:
            return TxnOffsetCommitResponse(topics=[refused(topic, code) for topic in topics])

        def submit(guard: object | None) -> Later[TxnOffsetCommitResponse]:
            return self._coordinator.submit(
                index,
                lambda shard, token, now_ms: commit(shard, request, topics, api_version, token, now_ms),
                refuse,
                verification=guard,
            )

        if self._coordinator.leader_epoch(index) is None:
            return refuse(ErrorCode.NOT_COORDINATOR)
        adds = api_version >= _ADDS_FROM
        if not adds and not verifier.enabled:
            return submit(None)
        place = (self._topic, index)
        producer = (request.producer_id, request.producer_epoch)
        verification = RequestVerification(
            self._replicas, verifier, request.transactional_id, producer, [(place, NO_SEQUENCE)], add=adds
        )

        def ask() -> Later[TxnOffsetCommitResponse]:
            asked = verification.ask()
            if not isinstance(asked, asyncio.Future):
                return follow()
            answer: asyncio.Future[TxnOffsetCommitResponse] = asked.get_loop().create_future()

            def arrived(done: asyncio.Future[None]) -> None:
                if done.cancelled():
                    answer.cancel()  # the node is stopping
                elif not answer.done():
                    settle(answer, follow)

            when_done(asked, arrived)
            return answer

        def follow() -> Later[TxnOffsetCommitResponse]:
            if verification.must_ask_again():
                return ask()
            guard = verification.guards.get(place)
            return refuse(_for_client(guard.code, api_version)) if isinstance(guard, KafkaError) else submit(guard)

        return ask()


def refused(topic: TxnOffsetCommitRequestTopic, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=code)
            for asked in topic.partitions
        ],
    )


def _for_client(code: ErrorCode, api_version: int) -> ErrorCode:
    """Return the error code that a client gets for a refused verification."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and api_version < _ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.NETWORK_EXCEPTION:
        # Clients retry this code without looking for the coordinator again. Older clients do not expect
        # NETWORK_EXCEPTION.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return client_code(code)
