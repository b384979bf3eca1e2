"""FindCoordinator, versions 0-6. KIP-699 (several keys, version 4), KIP-890 (5), KIP-932 (share groups, 6).

It finds coordinators of groups, of transactional ids, and of the state of share partitions, for which only brokers ask.
Their internal topics are created at the first request, and until then the response is COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from pykbroker.client_view.leader_hints import ReachableBroker, node_on_listener
from pykbroker.coordinator.share.share_partition_key import SharePartitionKey, parse_share_partition_key
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may
from pykbroker.dispatch.rows import Handlers
from pykbroker.metadata.topic_names import GROUP_METADATA_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker.topic_creation.auto_create import ensure_topic
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP = 0
TRANSACTION = 1
SHARE = 2

_SEVERAL_KEYS_FROM = 4
_SHARE_FROM = 6
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
    services = ctx.services
    topics = services.metadata.image.topics
    if key_type == GROUP:
        topic, index = GROUP_METADATA_TOPIC, services.groups.partition_of(key)
    elif key_type == TRANSACTION:
        topic, index = TRANSACTION_STATE_TOPIC, services.transactions.partition_of(key)
    else:
        topic, index = SHARE_STATE_TOPIC, services.share_coordinator.partition_of(_share_partition(key))
    if topic not in topics.by_name:
        # The client asks again; the response does not wait for the controller.
        ensure_topic(services, topic)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = topics.partition(topic, index)
    node = (
        node_on_listener(services.metadata.image, partition.leader, ctx.listener_name)
        if partition is not None
        else None
    )
    if node is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return node


def _share_partition(key: str) -> SharePartitionKey:
    try:
        return parse_share_partition_key(key)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None


HANDLERS = Handlers(handle)
