"""DescribeProducers, version 0. KIP-664: the producers that partitions know, and their open transactions.

Any replica of this node answers, as in Apache Kafka (clients ask the leader). With it `kafka-transactions` finds
hanging transactions, which are open in a partition and unknown to their coordinator.
"""

from __future__ import annotations

from pykbroker.coordinator.java import hash_map_order
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.log_opening import when_open
from pykbroker.dispatch.rows import Handlers
from pykbroker.metadata.topic_names import check_topic_name
from pykbroker.runtime.later import Later
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(ctx: BrokerContext, request: DescribeProducersRequest) -> Later[DescribeProducersResponse]:
    asked = ((topic.name, index) for topic in request.topics for index in topic.partition_indexes)
    return when_open(ctx, asked, lambda: _respond(ctx, request))


def _respond(ctx: BrokerContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    topics = []
    # A partition that is named twice is answered once, because it may have a thousand producers.
    for topic_name, indexes in asked.items():
        try:
            _check_topic(ctx, topic_name)
        except KafkaError as error:
            partitions = [
                PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
                for index in indexes
            ]
        else:
            partitions = [_describe(ctx, topic_name, index) for index in indexes]
        topics.append(TopicResponse(name=topic_name, partitions=partitions))
    return DescribeProducersResponse(topics=topics)


def _check_topic(ctx: BrokerContext, name: str) -> None:
    check_topic_name(name)
    if not ctx.authorize(Operation.READ, Resource.TOPIC, name):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    if name not in ctx.services.metadata.image.topics.by_name:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")


def _describe(ctx: BrokerContext, name: str, index: int) -> PartitionResponse:
    try:
        partition = ctx.services.replicas.get(name, index)
        found = {producer.producer_id: producer for producer in partition.active_producers()}
    except KafkaError as error:
        # There is no message, as in Apache Kafka, which has messages only for topics.
        return PartitionResponse(partition_index=index, error_code=error.code)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=found[producer_id].epoch,
                last_sequence=found[producer_id].last_sequence,
                last_timestamp=found[producer_id].last_timestamp,
                coordinator_epoch=found[producer_id].coordinator_epoch,
                current_txn_start_offset=found[producer_id].txn_first_offset,
            )
            for producer_id in hash_map_order(found, lambda value: value ^ value >> 32)
        ],
    )


HANDLERS = Handlers(handle)
