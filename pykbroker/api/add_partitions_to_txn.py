"""AddPartitionsToTxn, versions 0-5. KIP-98; KIP-890 (version 4: many transactions, verify only, between brokers).

Clients up to version 3 add partitions before they produce to them. From version 4 on brokers verify or add them for a
producer (coordinator/transaction/verifier.py). If one partition is refused, no partition of its transaction is added.
Apache Kafka never answers an empty list of transactions; this broker answers it with an empty list.
"""

from __future__ import annotations

from pykbroker.coordinator.transaction.records import TopicPartition
from pykbroker.coordinator.transaction.service import known_to
from pykbroker.coordinator.transaction.shard import Producer
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may_write
from pykbroker.dispatch.rows import Handlers
from pykbroker.metadata.topic_names import INTERNAL_TOPICS
from pykbroker.runtime.later import Later, gather, then
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

_BETWEEN_BROKERS_FROM = 4
_FENCED_FROM = 2


def handle(ctx: BrokerContext, request: AddPartitionsToTxnRequest) -> Later[AddPartitionsToTxnResponse]:
    if ctx.api_version < _BETWEEN_BROKERS_FROM:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return then(
            _one(ctx, transaction),
            lambda result: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results),
        )
    if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    answers: Later[list[AddPartitionsToTxnResult]] = gather([_one(ctx, each) for each in request.transactions])
    return then(answers, lambda results: AddPartitionsToTxnResponse(results_by_transaction=results))


def _one(ctx: BrokerContext, asked: AddPartitionsToTxnTransaction) -> Later[AddPartitionsToTxnResult]:
    from_client = ctx.api_version < _BETWEEN_BROKERS_FROM
    partitions = _partitions(asked.topics)
    if from_client and not may_write(ctx, asked.transactional_id):
        return _result(asked, dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    refused = _refused(ctx, asked.topics, from_client)
    if refused:
        verdicts = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
        return _result(asked, verdicts | refused)
    producer = Producer(asked.transactional_id, asked.producer_id, asked.producer_epoch)
    if asked.verify_only:
        return then(
            ctx.services.transactions.verify_partitions(producer, partitions), lambda verdicts: _result(asked, verdicts)
        )
    # Brokers ask this broker to add partitions only for clients of transaction.version 2.
    added = ctx.services.transactions.add_partitions(producer, partitions, 0 if from_client else 2)
    return then(
        added,
        lambda code: _result(asked, dict.fromkeys(partitions, known_to(ctx.api_version, _FENCED_FROM, code))),
    )


def _partitions(topics: list[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return list(dict.fromkeys((topic.name, index) for topic in topics for index in topic.partitions))


def _refused(
    ctx: BrokerContext, topics: list[AddPartitionsToTxnTopic], from_client: bool
) -> dict[TopicPartition, ErrorCode]:
    image = ctx.services.metadata.image.topics
    refused: dict[TopicPartition, ErrorCode] = {}
    for topic in topics:
        allowed = not from_client or (
            topic.name not in INTERNAL_TOPICS and ctx.authorize(Operation.WRITE, Resource.TOPIC, topic.name)
        )
        for index in topic.partitions:
            if not allowed:
                refused[topic.name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif image.partition(topic.name, index) is None:
                refused[topic.name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _result(
    asked: AddPartitionsToTxnTransaction, verdicts: dict[TopicPartition, ErrorCode]
) -> AddPartitionsToTxnResult:
    """Return the topics and partitions of the request in its order. As in Apache Kafka, topics without partitions and
    repeated partitions are kept."""
    return AddPartitionsToTxnResult(
        transactional_id=asked.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=verdicts[topic.name, index]
                    )
                    for index in topic.partitions
                ],
            )
            for topic in asked.topics
        ],
    )


HANDLERS = Handlers(handle)
