"""ShareFetch, versions 1-2. KIP-932; KIP-1206 (acquire modes) and KIP-1222 (renewal) with version 2.

A member of a share group acquires records of the partitions of its share session, and acknowledges records of earlier
fetches. Only the leader of a partition answers. The reading is in pykbroker/fetches, the state of records in
pykbroker/share_leaders. The error is UNSUPPORTED_VERSION while share.version is 0.
"""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.log_opening import when_open
from pykbroker.dispatch.rows import Handlers
from pykbroker.dispatch.share_members import member_of
from pykbroker.fetches.share_acknowledgements import ShareAcknowledgements
from pykbroker.fetches.share_acquisitions import ShareAcquisitions
from pykbroker.fetches.share_fetch_outcome import ShareFetchOutcome
from pykbroker.fetches.share_fetch_plan import BATCH_OPTIMIZED, RECORD_LIMIT, ShareFetchPlan, plan_share_fetch
from pykbroker.fetches.waiting_share_fetch import WaitingShareFetch
from pykbroker.net.promise import Promise
from pykbroker.runtime.later import Later
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse


def handle(ctx: BrokerContext, request: ShareFetchRequest) -> ShareFetchResponse | Promise:
    services = ctx.services
    leaders = services.share_leaders
    try:
        member = member_of(ctx, request.group_id, request.member_id)
        if request.is_renew_ack and _has_limits(request):
            return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        plan = plan_share_fetch(
            request,
            member,
            leaders.sessions,
            ctx.peer.connection_number,
            services.metadata.image,
            services.replicas.fetch_max_bytes,
        )
    except KafkaError as error:
        if error.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            return _refused_later(ctx, request, error.code)
        return ShareFetchResponse(error_code=error.code)
    if plan.displaced is not None:
        leaders.end_session(plan.displaced)
    if request.share_acquire_mode not in (BATCH_OPTIMIZED, RECORD_LIMIT):
        return ShareFetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    acknowledgements = ShareAcknowledgements(ctx, plan.member, is_renewal=request.is_renew_ack)
    if any(each.acknowledgement_batches for topic in request.topics for each in topic.partitions):
        acknowledgements.begin(request.topics)
    outcome = ShareFetchOutcome(ctx, plan, acknowledgements)
    outcome.take(_fetch(ctx, plan))
    return outcome.promise


def _has_limits(request: ShareFetchRequest) -> bool:
    """Return True if a request that renews locks also asks for records. As in Apache Kafka it must not: while it waits
    for records, the renewed locks would run out."""
    return bool(request.max_wait_ms or request.min_bytes or request.max_bytes or request.max_records)


def _fetch(ctx: BrokerContext, plan: ShareFetchPlan) -> Later[ShareAcquisitions] | None:
    if not plan.members or plan.request.is_renew_ack:
        return None
    fetch = WaitingShareFetch(ctx, plan)
    # If too many requests wait already, this request is answered at once with the records that are there.
    final = plan.request.max_wait_ms <= 0 or not ctx.services.replicas.purgatory.has_room(-1)
    found: Later[ShareAcquisitions | int] = when_open(ctx, fetch.asked(), lambda: fetch.read(final))
    return found if isinstance(found, ShareAcquisitions) else fetch.park(found)


def _refused_later(ctx: BrokerContext, request: ShareFetchRequest, code: ErrorCode) -> ShareFetchResponse | Promise:
    """Refuse a member for which there is no session after the max wait of its request, so that it does not ask again at
    once. If too many requests wait already, it is refused at once."""
    refusal = ShareFetchResponse(error_code=code)
    if request.max_wait_ms <= 0:
        return refusal
    return ctx.services.replicas.purgatory.delay(refusal, request.max_wait_ms / 1000) or refusal


HANDLERS = Handlers(handle)
