"""WriteTxnMarkers, versions 1-2: the end of transactions, written to partitions led here. KIP-98; KIP-890 and KIP-1228
(version 2 says the transaction.version, by which a marker's epoch is judged).

It serves other brokers' coordinators, and an administrator that ends a hanging transaction (KIP-664). All markers of a
request are written before the commit of the first is awaited. A response comes when its marker is committed.
"""

from __future__ import annotations

from itertools import chain

from pykbroker.coordinator.transaction.marker_writer import Marker
from pykbroker.coordinator.transaction.records import TopicPartition
from pykbroker.dispatch.append_order import in_order
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.log_opening import when_open
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, gather, then
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def handle(ctx: BrokerContext, request: WriteTxnMarkersRequest) -> Later[WriteTxnMarkersResponse]:
    topics = chain.from_iterable(marker.topics for marker in request.markers)
    topics = chain.from_iterable(marker.topics for marker in request.markers)
    named = ((topic.name, index) for topic in topics for index in topic.partition_indexes)
    return when_open(ctx, named, lambda: _write(ctx, request), in_order(ctx))


def _write(ctx: BrokerContext, request: WriteTxnMarkersRequest) -> Later[WriteTxnMarkersResponse]:
    allowed = ctx.authorize(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME, quiet=True) or ctx.authorize(
        Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME
    )
    writer = ctx.services.markers
    asked: list[tuple[int, TopicPartition]] = []
    verdicts: list[Later[ErrorCode]] = []
    for wanted in request.markers:
        marker = Marker(
            wanted.producer_id,
            wanted.producer_epoch,
            wanted.transaction_result,
            wanted.coordinator_epoch,
            wanted.transaction_version,
        )
        for topic in wanted.topics:
            for index in topic.partition_indexes:
                asked.append((wanted.producer_id, (topic.name, index)))
                verdicts.append(
                    writer.write((topic.name, index), marker) if allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                )
    codes: Later[list[ErrorCode]] = gather(verdicts)
    return then(codes, lambda answers: _response(asked, answers))


def _response(asked: list[tuple[int, TopicPartition]], codes: list[ErrorCode]) -> WriteTxnMarkersResponse:
    """Return the results by producer id, then topic, each once."""
    found: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    for (producer_id, (topic, index)), code in zip(asked, codes, strict=True):
        found.setdefault(producer_id, {}).setdefault(topic, {})[index] = code
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index, code in partitions.items()
                        ],
                    )
                    for topic, partitions in topics.items()
                ],
            )
            for producer_id, topics in found.items()
        ]
    )


HANDLERS = Handlers(handle)
