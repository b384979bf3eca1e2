"""The first checks of requests from members of share groups, in Apache Kafka's order."""

from __future__ import annotations

from typing import Final

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may
from pykbroker.metadata.features import share_version
from pykbroker.security.authorizer import Operation
from pykbroker.share_partitions.share_sessions import SessionMember
from pykbroker_wire.errors import ErrorCode, KafkaError

#: Clients make the ids of their members, as texts of a uuid.
_MOST_MEMBER_ID_CHARACTERS: Final = 36


def is_member_id(member_id: str) -> bool:
    return 0 < len(member_id) <= _MOST_MEMBER_ID_CHARACTERS


def member_of(ctx: BrokerContext, group_id: str | None, member_id: str | None) -> SessionMember:
    """Return the member that sends a ShareFetch or ShareAcknowledge. Raises KafkaError with the error of the whole
    answer."""
    if not share_version(ctx.services.metadata.image):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if not may(ctx, Operation.READ, group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if member_id is None or not is_member_id(member_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return SessionMember(group_id, member_id)
