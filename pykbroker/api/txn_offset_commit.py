"""TxnOffsetCommit, versions 0-6. KIP-98, KIP-447 (members), KIP-890 (adds its partition), KIP-1319 (topic ids).

It commits offsets of any group in a transaction; the offsets are invisible until the transaction's marker. From version
3 on the member's generation is checked. The transaction's coordinator verifies the group's partition, or, for clients
of transaction.version 2 (from version 5 on), adds it. Version 6 names topics by their ids.
"""

from __future__ import annotations

from pykbroker.coordinator.group.transactional import TOPIC_IDS_FROM, refused
from pykbroker.dispatch.append_order import in_order
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may, may_read_topic
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, then
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponseTopic,
)

#: In earlier versions producers could crash on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296).
_LOADING_IS_KNOWN_FROM = 2


def handle(ctx: BrokerContext, request: TxnOffsetCommitRequest) -> Later[TxnOffsetCommitResponse]:
    if not ctx.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return _refuse(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not may(ctx, Operation.READ, request.group_id):
        return _refuse(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    image = ctx.services.metadata.image.topics
    by_id = ctx.api_version >= TOPIC_IDS_FROM
    answered: list[TxnOffsetCommitResponseTopic] = []
    accepted: list[TxnOffsetCommitRequestTopic] = []
    for topic in request.topics:
        known = image.by_id.get(topic.topic_id) if by_id else image.by_name.get(topic.name)
        if known is None and by_id:
            answered.append(refused(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        elif not may_read_topic(ctx, topic.name if known is None else known.name):
            answered.append(refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif known is None:
            answered.append(refused(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            there = [asked for asked in topic.partitions if asked.partition_index in known.partitions]
            if len(there) < len(topic.partitions):
                missing = [asked for asked in topic.partitions if asked.partition_index not in known.partitions]
                answered.append(
                    refused(
                        TxnOffsetCommitRequestTopic(name=known.name, topic_id=known.id, partitions=missing),
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    )
                )
            if there:
                accepted.append(TxnOffsetCommitRequestTopic(name=known.name, topic_id=known.id, partitions=there))
    if not accepted:
        return TxnOffsetCommitResponse(topics=answered)
    committed = ctx.services.groups.commit_in_transaction(
        request, accepted, ctx.api_version, ctx.services.verifier, in_order(ctx)
    )
    version = ctx.api_version
    return then(committed, lambda response: _answer(answered, response, version))


def _refuse(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(topics=[refused(topic, code) for topic in request.topics])


def _answer(
    answered: list[TxnOffsetCommitResponseTopic], response: TxnOffsetCommitResponse, version: int
) -> TxnOffsetCommitResponse:
    """Put the refused topics first; each topic is in the response once."""
    if version < _LOADING_IS_KNOWN_FROM:
        for topic in response.topics:
            for answer in topic.partitions:
                if answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not answered:
        return response
    before_it = {_key(topic, version): topic for topic in answered}
    for topic in response.topics:
        before = before_it.get(_key(topic, version))
        if before is None:
            before_it[_key(topic, version)] = topic
            answered.append(topic)
        else:
            before.partitions += topic.partitions
    return TxnOffsetCommitResponse(topics=answered)


def _key(topic: TxnOffsetCommitResponseTopic, version: int) -> str | bytes:
    return topic.topic_id if version >= TOPIC_IDS_FROM else topic.name


HANDLERS = Handlers(handle)
