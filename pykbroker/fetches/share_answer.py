"""The answer to a ShareFetch: its partitions, with what was acquired and what became of acknowledgements.

Responsible for the choice of partitions in an incremental answer. Not responsible for acquiring.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pykbroker.client_view.leader_hints import MOVED, LeaderHints
from pykbroker.fetches.share_acknowledgements import DONE, AcknowledgeResult
from pykbroker_wire.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)

if TYPE_CHECKING:
    from pykbroker.fetches.share_acquisitions import AnsweredPartition
    from pykbroker.fetches.share_fetch_plan import ShareFetchPlan
    from pykbroker.metadata.image import MetadataImage
    from pykbroker.share_partitions.share_sessions import SessionPartitionId


def share_answer(
    plan: ShareFetchPlan,
    parts: list[AnsweredPartition],
    acknowledged: Mapping[SessionPartitionId, AcknowledgeResult],
    image: MetadataImage,
    listener: str,
    lock_duration_ms: int,
) -> ShareFetchResponse:
    """Return the answer. `acknowledged` has the results of the acknowledgements in the request. The session remembers
    which partitions the answer has. An error of an acknowledgement names no leader, as in Apache Kafka."""
    hints = LeaderHints(image, listener)
    topics: dict[bytes, ShareFetchableTopicResponse] = {}

    def add(data: PartitionData, topic_id: bytes) -> None:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ShareFetchableTopicResponse(topic_id=topic_id)
        topic.partitions.append(data)

    left = dict(acknowledged)
    for part in parts:
        is_due = plan.is_full or plan.session.belongs_in_answer(part.named, part.error, has_records=bool(part.acquired))
        if not is_due and part.named not in left:
            continue
        topic_id, index = part.named
        result = left.pop(part.named, DONE)
        data = PartitionData(
            partition_index=index,
            error_code=part.error,
            acknowledge_error_code=result.code,
            acknowledge_error_message=result.message,
            current_leader=LeaderIdAndEpoch(),
            records=part.records,
            acquired_records=[
                AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                for first, last, count in part.acquired
            ],
        )
        if part.error in MOVED:
            leader, epoch = hints.leader_of(topic_id, index)
            data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        add(data, topic_id)
    for (topic_id, index), (code, message) in left.items():
        data = PartitionData(
            partition_index=index, acknowledge_error_code=code, acknowledge_error_message=message, records=[]
        )
        add(data, topic_id)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=lock_duration_ms,
        responses=list(topics.values()),
        node_endpoints=[
            NodeEndpoint(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in hints.brokers.values()
        ],
    )
