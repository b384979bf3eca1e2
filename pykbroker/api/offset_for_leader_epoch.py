"""OffsetForLeaderEpoch, versions 2-4. KIP-101, KIP-279, KIP-320: where a leader epoch ends in this log."""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.log_opening import when_open
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


def handle(ctx: BrokerContext, request: OffsetForLeaderEpochRequest) -> Later[OffsetForLeaderEpochResponse]:
    asked = ((topic.topic, asked.partition) for topic in request.topics for asked in topic.partitions)
    return when_open(ctx, asked, lambda: _respond(ctx, request))


def _respond(ctx: BrokerContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    is_broker = ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME, quiet=True)
    topics = []
    for topic in request.topics:
        allowed = is_broker or ctx.authorize(Operation.DESCRIBE, Resource.TOPIC, topic.topic)
        answers = []
        for asked in topic.partitions:
            try:
                if not allowed:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                partition = ctx.services.replicas.get(topic.topic, asked.partition)
                partition.require_leader(asked.current_leader_epoch)
                epoch, end_offset = partition.log.epoch_end_offset(asked.leader_epoch)
                answers.append(EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset))
            except KafkaError as error:
                answers.append(
                    EpochEndOffset(partition=asked.partition, error_code=error.code, leader_epoch=-1, end_offset=-1)
                )
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics)


HANDLERS = Handlers(handle)
