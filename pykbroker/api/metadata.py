"""Metadata, versions 0-13: brokers, topics and partition leaders as a listener's clients see them.

Topics are named or have a topic id (KIP-516). With auto-creation the broker asks the controller for a missing
topic and answers UNKNOWN_TOPIC_OR_PARTITION at once, as Apache Kafka does; then the client asks again.
"""

from __future__ import annotations

from functools import partial

from pykbroker.client_view.cluster_view import ClusterView, nodes
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.rows import Handlers
from pykbroker.metadata.image import PartitionImage, TopicImage
from pykbroker.metadata.topic_names import INTERNAL_TOPICS, topic_name_problem
from pykbroker.net.promise import Promise
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker.topic_creation.auto_create import create_missing
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pykbroker_wire.primitives import ZERO_UUID


def handle(ctx: BrokerContext, request: MetadataRequest) -> MetadataResponse | Promise:
    return ctx.services.cluster_views.when_settled(partial(_answer, ctx, request))


def _answer(ctx: BrokerContext, request: MetadataRequest) -> MetadataResponse:
    version = ctx.api_version
    wanted = request.topics
    if wanted is not None and version < 12 and any(t.name is None or t.topic_id != ZERO_UUID for t in wanted):
        return _invalid(request)
    # Version 0 cannot have null. In it an empty list means all topics.
    if wanted is None or (version == 0 and not wanted):
        topics = _all_topics(ctx)
    else:
        ids = {topic.topic_id: None for topic in wanted if topic.topic_id != ZERO_UUID}
        if ids:
            topics = _by_id(ctx, list(ids))
        else:
            names = dict.fromkeys(topic.name for topic in wanted if topic.name is not None)
            topics = _by_name(ctx, list(names), request.allow_auto_topic_creation)
    response = _cluster(ctx)
    response.topics = topics
    if request.include_topic_authorized_operations and version >= 8:
        for found in topics:
            known = found.error_code not in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID)
            if known and found.name is not None:
                found.topic_authorized_operations = ctx.authorized_operations(Resource.TOPIC, found.name)
    if request.include_cluster_authorized_operations and 8 <= version <= 10:
        response.cluster_authorized_operations = (
            ctx.authorized_operations(Resource.CLUSTER, CLUSTER_NAME)
            if ctx.authorize(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
            else 0
        )
    return response


def _cluster(ctx: BrokerContext) -> MetadataResponse:
    alive = list(nodes(ctx.services.metadata.image, ctx.listener_name))
    brokers = [
        MetadataResponseBroker(node_id=n.broker.id, host=n.endpoint.host, port=n.endpoint.port, rack=n.broker.rack)
        for n in alive
    ]
    # Any broker will do, because brokers forward the requests for the controller.
    controller = ctx.services.runtime.random.choice(brokers).node_id if brokers else -1
    return MetadataResponse(brokers=brokers, cluster_id=ctx.services.cluster_id, controller_id=controller)


def _all_topics(ctx: BrokerContext) -> list[MetadataResponseTopic]:
    image = ctx.services.metadata.image
    view = ctx.services.cluster_views.of(image, ctx.listener_name)
    return [
        _topic(ctx, view, topic)
        for name, topic in image.topics.by_name.items()
        if ctx.authorize(Operation.DESCRIBE, Resource.TOPIC, name, quiet=True)
    ]


def _by_id(ctx: BrokerContext, ids: list[bytes]) -> list[MetadataResponseTopic]:
    image = ctx.services.metadata.image
    view = ctx.services.cluster_views.of(image, ctx.listener_name)
    unknown, found, refused = [], [], []
    for topic_id in ids:
        topic = image.topics.by_id.get(topic_id)
        if topic is None:
            unknown.append(MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id))
        elif ctx.authorize(Operation.DESCRIBE, Resource.TOPIC, topic.name):
            found.append(_topic(ctx, view, topic))
        else:
            # The client sent the id, so only the name is hidden.
            refused.append(
                MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=topic_id)
            )
    return unknown + found + refused


def _by_name(ctx: BrokerContext, names: list[str], allow_creation: bool) -> list[MetadataResponseTopic]:
    image = ctx.services.metadata.image
    view = ctx.services.cluster_views.of(image, ctx.listener_name)
    may_create = allow_creation and ctx.services.config.bool("auto.create.topics.enable")
    found, missing, not_creatable, refused = [], [], [], []
    for name in names:
        topic = image.topics.by_name.get(name)
        if not ctx.authorize(Operation.DESCRIBE, Resource.TOPIC, name):
            # The response does not reveal if the topic exists.
            refused.append(MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name))
        elif topic is not None:
            found.append(_topic(ctx, view, topic))
        elif may_create and not (
            ctx.authorize(Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME, quiet=True)
            or ctx.authorize(Operation.CREATE, Resource.TOPIC, name)
        ):
            not_creatable.append(_missing(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif topic_name_problem(name) is not None:
            missing.append(_missing(name, ErrorCode.INVALID_TOPIC_EXCEPTION))
        else:
            missing.append(_missing(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    if may_create:
        create = [
            topic.name
            for topic in missing
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic.name is not None
        ]
        if create:
            create_missing(ctx.services, create)
    return found + missing + not_creatable + refused


def _missing(name: str, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)


def _topic(ctx: BrokerContext, view: ClusterView, topic: TopicImage) -> MetadataResponseTopic:
    # The response about a partition whose leader or replicas are missing depends on the version.
    version = ctx.api_version
    kind = 0 if version == 0 else 1 if version < 6 else 6
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=view.partitions(topic, kind, lambda index, partition: _partition(view, kind, index, partition)),
    )


def _partition(view: ClusterView, kind: int, index: int, partition: PartitionImage) -> MetadataResponsePartition:
    replicas, isr = view.listed(partition.replicas), view.listed(partition.isr)
    code = ErrorCode.NONE
    if kind == 0:
        # Only version 0 leaves out brokers that are not alive. Then the partition has an error code.
        replicas, isr = view.alive(replicas), view.alive(isr)
        if len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
            code = ErrorCode.REPLICA_NOT_AVAILABLE
    missing = ErrorCode.LISTENER_NOT_FOUND if kind == 6 else ErrorCode.LEADER_NOT_AVAILABLE
    problem = view.leader_problem(partition, missing)
    return MetadataResponsePartition(
        error_code=code if problem is None else problem,
        partition_index=index,
        leader_id=view.leader(partition),
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=view.offline(partition),
    )


def _invalid(request: MetadataRequest) -> MetadataResponse:
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or ()
        ]
    )


HANDLERS = Handlers(handle)
