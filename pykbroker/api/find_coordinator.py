"""FindCoordinator, versions 0-6. KIP-699 (several keys, version 4), KIP-890 (5), KIP-932 (share groups, 6).

It finds coordinators of groups and transactional ids. Their internal topics are created at the first request, and until
then the response is COORDINATOR_NOT_AVAILABLE. Share groups are not supported yet, and a valid key of a share group
gets COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

import re

from pykbroker.client_view.leader_hints import ReachableBroker, node_on_listener
from pykbroker.coordinator.group.service import GroupService
from pykbroker.coordinator.transaction.service import TransactionService
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may
from pykbroker.dispatch.rows import Handlers
from pykbroker.metadata.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker.topic_creation.auto_create import ensure_topic
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP = 0
TRANSACTION = 1
SHARE = 2

_SEVERAL_KEYS_FROM = 4
_SHARE_FROM = 6
_SHARE_KEY = re.compile(r"[^:]+:[A-Za-z0-9_-]{22}:[0-9]+")
_NOWHERE = ReachableBroker(-1, "", -1, None)


def handle(ctx: BrokerContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if ctx.api_version >= _SEVERAL_KEYS_FROM:
        return FindCoordinatorResponse(
            coordinators=[_find(ctx, request.key_type, key) for key in request.coordinator_keys]
        )
    found = _find(ctx, request.key_type, request.key)
    code = ErrorCode(found.error_code)
    return FindCoordinatorResponse(
        error_code=code,
        # Kafka's name for "no error", which clients print.
        error_message="NONE" if code is ErrorCode.NONE else code.message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(ctx: BrokerContext, key_type: int, key: str) -> Coordinator:
    try:
        node = _coordinator(ctx, key_type, key)
        code = ErrorCode.NONE
    except KafkaError as error:
        node = _NOWHERE
        code = error.code
    found = Coordinator(key=key, node_id=node.node_id, host=node.host, port=node.port, error_code=code)
    if key_type not in (GROUP, TRANSACTION, SHARE):
        # Only this error has a message in Kafka, because it is about the whole request and not about a key.
        found.error_message = code.message
    return found


def _coordinator(ctx: BrokerContext, key_type: int, key: str) -> ReachableBroker:
    if key_type == GROUP:
        if not may(ctx, Operation.DESCRIBE, key):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    elif key_type == TRANSACTION:
        if not ctx.authorize(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, key):
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    else:
        if key_type != SHARE or ctx.api_version < _SHARE_FROM:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        # A valid key is group:topic id:partition.
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE if _SHARE_KEY.fullmatch(key) else ErrorCode.INVALID_REQUEST
        )
    services = ctx.services
    topics = services.metadata.image.topics
    service: GroupService | TransactionService
    if key_type == GROUP:
        topic, service = GROUP_METADATA_TOPIC, services.groups
    else:
        topic, service = TRANSACTION_STATE_TOPIC, services.transactions
    if topic not in topics.by_name:
        # The client asks again; the response does not wait for the controller.
        ensure_topic(services, topic)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = topics.partition(topic, service.partition_of(key))
    node = (
        node_on_listener(services.metadata.image, partition.leader, ctx.listener_name)
        if partition is not None
        else None
    )
    if node is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return node


HANDLERS = Handlers(handle)
