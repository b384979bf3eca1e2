"""Fetch, versions 4-18. KIP-74 (limits), KIP-227 (sessions), KIP-320 (epochs), KIP-392 (followers serve consumers),
KIP-516 (topic ids), KIP-903 (broker epochs), KIP-951 (hints).

Supported are sessions, long polls, min and max bytes, isolation level, diverging epochs, the first batch whole even
when it is larger than the limit. Every replica serves consumers of version 11 or newer, up to its own high watermark.
With replica.selector.class the leader does not read for a consumer if another replica is in its rack, and names that
replica. The reading is in pykbroker/fetches. On a controller listener, and for the metadata partition, the quorum
answers.
"""

from __future__ import annotations

import asyncio

from pykbroker.dispatch.context import AnyContext, BrokerContext, ControllerContext, is_on_broker, is_on_controller
from pykbroker.dispatch.log_opening import when_open
from pykbroker.dispatch.rows import Handlers
from pykbroker.fetches.fetch_plan import TOPIC_IDS_FROM, plan_fetch
from pykbroker.fetches.waiting_fetch import WaitingFetch
from pykbroker.runtime.later import Later
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData


def handle(ctx: AnyContext, request: FetchRequest) -> FetchResponse | asyncio.Future[FetchResponse]:
    if is_on_broker(ctx):
        return _read_partitions(ctx, request)
    assert is_on_controller(ctx)
    return _read_metadata_log(ctx, request)


def _read_partitions(ctx: BrokerContext, request: FetchRequest) -> FetchResponse | asyncio.Future[FetchResponse]:
    services = ctx.services

    def may_follow() -> bool:
        return ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME, True)

    now = services.runtime.loop.time()
    plan = plan_fetch(request, ctx.api_version, services.fetch_sessions, now, may_follow=may_follow)
    if isinstance(plan, ErrorCode):
        return FetchResponse(error_code=plan)
    fetch = WaitingFetch(ctx, plan)
    # If too many requests wait already, this request is answered at once with the records that are there.
    final = request.max_wait_ms <= 0 or not services.replicas.purgatory.has_room(plan.replica_id)
    answer: Later[FetchResponse | int] = when_open(ctx, fetch.asked(), lambda: fetch.read(final))
    return answer if isinstance(answer, FetchResponse) else fetch.park(answer)


def _read_metadata_log(ctx: ControllerContext, request: FetchRequest) -> FetchResponse | asyncio.Future[FetchResponse]:
    """Let the quorum answer a Fetch on a controller listener. The quorum reads only the metadata log."""
    if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return _refused(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return ctx.services.quorum.handle(request, ctx.api_version, ctx.listener_name)


def _refused(request: FetchRequest, version: int, code: ErrorCode) -> FetchResponse:
    """Refuse a Fetch as a whole, as Apache Kafka does. In versions without topic ids each partition has the error
    too."""
    topics = request.topics if version < TOPIC_IDS_FROM else ()
    return FetchResponse(
        error_code=code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(partition_index=each.partition, error_code=code, high_watermark=-1, records=b"")
                    for each in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


HANDLERS = Handlers(handle)
