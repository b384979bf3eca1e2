"""DescribeTopicPartitions, version 0. Topics in pages of partitions, with eligible leaders. KIP-966."""

from __future__ import annotations

from functools import partial

from pykbroker.client_view.cluster_view import ClusterView
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.rows import Handlers
from pykbroker.metadata.image import PartitionImage, TopicImage
from pykbroker.metadata.topic_names import INTERNAL_TOPICS, topic_name_problem
from pykbroker.net.promise import Promise
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)


def handle(ctx: BrokerContext, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse | Promise:
    return ctx.services.cluster_views.when_settled(partial(_answer, ctx, request))


def _answer(ctx: BrokerContext, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    topics = ctx.services.metadata.image.topics.by_name
    fetch_all = not request.topics
    start = "" if request.cursor is None else request.cursor.topic_name
    names = sorted({name for name in (topics if fetch_all else (t.name for t in request.topics)) if name >= start})
    if request.cursor is not None:
        not_in_list = not fetch_all and request.cursor.topic_name not in names
        if not_in_list or request.cursor.partition_index < 0:
            return _invalid(request)
    allowed, refused = [], []
    for name in names:
        if ctx.authorize(Operation.DESCRIBE, Resource.TOPIC, name, quiet=fetch_all):
            allowed.append(name)
        elif not fetch_all:
            refused.append(
                DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
            )
    limit = min(ctx.services.config.int("max.request.partition.size.limit"), request.response_partition_limit)
    response = _page(ctx, allowed, request, max(limit, 1), fetch_all)
    for topic in response.topics:
        topic.topic_authorized_operations = ctx.authorized_operations(Resource.TOPIC, topic.name or "")
    response.topics.extend(refused)
    return response


def _page(
    ctx: BrokerContext, names: list[str], request: DescribeTopicPartitionsRequest, limit: int, fetch_all: bool
) -> DescribeTopicPartitionsResponse:
    image = ctx.services.metadata.image
    view = ctx.services.cluster_views.of(image, ctx.listener_name)
    response = DescribeTopicPartitionsResponse()
    remaining = limit
    for name in names:
        if not remaining:
            # The page is full, so the next page begins here, whether the topic exists or not.
            response.next_cursor = ResponseCursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.by_name.get(name)
        if topic is None:
            if not fetch_all:
                response.topics.append(_missing(name))
            continue
        first = request.cursor.partition_index if request.cursor and request.cursor.topic_name == name else 0
        end = min(len(topic.partitions), first + remaining)
        response.topics.append(_topic(view, topic, first, end))
        if end < len(topic.partitions):
            response.next_cursor = ResponseCursor(topic_name=name, partition_index=end)
            break
        remaining -= max(0, end - first)
    return response


def _topic(view: ClusterView, topic: TopicImage, first: int, end: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _partition(view, index, topic.partitions[index]) for index in range(first, end) if index in topic.partitions
        ],
    )


def _partition(view: ClusterView, index: int, partition: PartitionImage) -> DescribeTopicPartitionsResponsePartition:
    is_gone = partition.leader in view.gone
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if is_gone else ErrorCode.NONE,
        partition_index=index,
        leader_id=view.leader(partition),
        leader_epoch=partition.leader_epoch,
        replica_nodes=view.listed(partition.replicas),
        isr_nodes=view.listed(partition.isr),
        eligible_leader_replicas=view.listed(partition.elr),
        last_known_elr=view.listed(partition.last_known_elr),
        offline_replicas=view.offline(partition),
    )


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    problem = topic_name_problem(name)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if problem is None else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)


def _invalid(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name)
            for topic in request.topics
        ]
    )


HANDLERS = Handlers(handle)
