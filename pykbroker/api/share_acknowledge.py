"""ShareAcknowledge, versions 1-2. KIP-932; KIP-1222 (renewal) with version 2.

A member of a share group acknowledges records that it has acquired, without fetching others. The answer comes after the
state of the records is written. The error is UNSUPPORTED_VERSION while share.version is 0.
"""

from __future__ import annotations

from pykbroker.client_view.leader_hints import MOVED, LeaderHints
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.rows import Handlers
from pykbroker.dispatch.share_members import member_of
from pykbroker.fetches.share_acknowledgements import ShareAcknowledgements
from pykbroker.net.promise import Promise
from pykbroker.share_partitions.share_sessions import FINAL_EPOCH
from pykbroker_wire.errors import KafkaError
from pykbroker_wire.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


def handle(ctx: BrokerContext, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse | Promise:
    leaders = ctx.services.share_leaders
    try:
        member = member_of(ctx, request.group_id, request.member_id)
        session = leaders.sessions.acknowledge(member, request.share_session_epoch)
    except KafkaError as error:
        return ShareAcknowledgeResponse(error_code=error.code)
    acknowledgements = ShareAcknowledgements(ctx, member, is_renewal=request.is_renew_ack)
    acknowledgements.begin(request.topics)
    promise = Promise()

    def answer() -> None:
        if request.share_session_epoch == FINAL_EPOCH:
            leaders.close_session(session)
        promise.set_result(_response(ctx, acknowledgements, leaders.limits_of(member.group).lock_duration_ms))

    acknowledgements.when_done(answer)
    return promise


def _response(
    ctx: BrokerContext, acknowledgements: ShareAcknowledgements, lock_duration_ms: int
) -> ShareAcknowledgeResponse:
    hints = LeaderHints(ctx.services.metadata.image, ctx.listener_name)
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    for (topic_id, index), (code, message) in acknowledgements.results.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ShareAcknowledgeTopicResponse(topic_id=topic_id)
        data = PartitionData(partition_index=index, error_code=code, error_message=message)
        if code in MOVED:
            leader, epoch = hints.leader_of(topic_id, index)
            data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        topic.partitions.append(data)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_duration_ms,
        responses=list(topics.values()),
        node_endpoints=[
            NodeEndpoint(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in hints.brokers.values()
        ],
    )


HANDLERS = Handlers(handle)
