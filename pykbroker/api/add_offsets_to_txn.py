"""AddOffsetsToTxn, versions 0-4. KIP-98.

It adds the partition of `__consumer_offsets` with a group's offsets to a transaction. Clients of transaction.version 2
do not send it: TxnOffsetCommit adds that partition (KIP-890).
"""

from __future__ import annotations

from pykbroker.coordinator.transaction.service import known_to
from pykbroker.coordinator.transaction.shard import Producer
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may, may_write
from pykbroker.dispatch.rows import Handlers
from pykbroker.metadata.topic_names import GROUP_METADATA_TOPIC
from pykbroker.runtime.later import Later, then
from pykbroker.security.authorizer import Operation
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

_FENCED_FROM = 2


def handle(ctx: BrokerContext, request: AddOffsetsToTxnRequest) -> Later[AddOffsetsToTxnResponse]:
    if not may_write(ctx, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not may(ctx, Operation.READ, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)
    partition = (GROUP_METADATA_TOPIC, ctx.services.groups.partition_of(request.group_id))
    added = ctx.services.transactions.add_partitions(producer, [partition], 0)
    return then(added, lambda code: AddOffsetsToTxnResponse(error_code=known_to(ctx.api_version, _FENCED_FROM, code)))


HANDLERS = Handlers(handle)
