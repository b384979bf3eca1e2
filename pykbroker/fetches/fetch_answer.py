"""Builds the answer to a fetch just before it is sent: chooses its partitions, and fills in the data of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykbroker.client_view.leader_hints import MOVED, leader_hint
from pykbroker.fetches.fetch_plan import LEADERS_FROM, READ_COMMITTED, TOPIC_IDS_FROM
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from pykbroker_wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from pykbroker.fetches.fetch_plan import FetchPlan
    from pykbroker.fetches.partition_reads import PartitionRead
    from pykbroker.metadata.image import MetadataImage
    from pykbroker.replica.fetch_sessions import SessionKey

#: Empty values that all answers share; they are never changed.
_NO_DIVERGENCE: Final = EpochEndOffset()
_NO_LEADER: Final = LeaderIdAndEpoch()
_NO_SNAPSHOT: Final = SnapshotId()


def fetch_answer(plan: FetchPlan, found: list[PartitionRead], image: MetadataImage, listener: str) -> FetchResponse:
    """Return the answer, which names nodes by their endpoints of `listener`. The session remembers the values that the
    answer has."""
    session = plan.session
    if session is not None and session.epoch != plan.session_epoch:
        # The client has sent another fetch of this session, perhaps with other offsets. Only the later fetch gets
        # records.
        return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.id)
    uses_ids, names_leaders = plan.version >= TOPIC_IDS_FROM, plan.version >= LEADERS_FROM
    with_aborted = plan.request.isolation_level == READ_COMMITTED
    topics: dict[bytes | str, FetchableTopicResponse] = {}
    endpoints: dict[int, NodeEndpoint] = {}
    moved: list[SessionKey] = []
    for read in found:
        entry, log = read.entry, read.log
        data = _partition_data(read, with_aborted=with_aborted)
        if session is not None:
            has_records = read.records is not None and read.records.size > 0
            tell = entry.worth_telling(
                read.error,
                has_records or read.preferred_replica >= 0,
                data.high_watermark,
                data.log_start_offset,
                diverges=read.diverging is not None,
            )
            if has_records:
                moved.append(read.key)
            if not tell and not plan.is_full:
                continue
        if log is None and names_leaders and read.error in MOVED and entry.topic:
            leader, epoch, node = leader_hint(image, listener, entry.topic, entry.index)
            data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
            if leader >= 0 and node is not None:
                endpoints[node.node_id] = NodeEndpoint(
                    node_id=node.node_id, host=node.host, port=node.port, rack=node.rack
                )
        name = read.key[0]
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchableTopicResponse(
                topic="" if uses_ids else entry.topic or "",
                topic_id=entry.topic_id if uses_ids else ZERO_UUID,
            )
        topic.partitions.append(data)
    if session is not None:
        for key in moved:
            session.move_to_end(key)
    return FetchResponse(
        session_id=0 if session is None else session.id,
        responses=list(topics.values()),
        node_endpoints=list(endpoints.values()),
    )


def _partition_data(read: PartitionRead, *, with_aborted: bool) -> PartitionData:
    """Return the data of one partition. Null and an empty list of aborted transactions mean the same to clients. As in
    Apache Kafka, the list is null if the partition was read without isolation, or if the read failed."""
    records, log = read.records, read.log
    data = PartitionData(
        partition_index=read.entry.index,
        error_code=read.error,
        high_watermark=-1,
        diverging_epoch=_NO_DIVERGENCE,
        current_leader=_NO_LEADER,
        snapshot_id=_NO_SNAPSHOT,
        aborted_transactions=None,
        preferred_read_replica=read.preferred_replica,
        records=[] if records is None else records.slices,
    )
    if log is not None:
        data.high_watermark = log.high_watermark
        data.last_stable_offset = log.last_stable_offset
        data.log_start_offset = log.log_start_offset
    if not read.is_known:
        data.aborted_transactions = []
    elif with_aborted and records is not None:
        data.aborted_transactions = [
            AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in records.aborted
        ]
    if read.diverging is not None:
        epoch, end_offset = read.diverging
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return data
