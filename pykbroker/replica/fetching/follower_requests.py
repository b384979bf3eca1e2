"""The requests of a follower to its leader: Fetch, and ListOffsets for the first and last offset; pure.

Responsible for the fields of the messages. Not responsible for which request comes next (fetcher.py), nor for the
content of a fetch session (session.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pykbroker.replica.fetching.partition_fetch import PartitionFetch, Phase
from pykbroker.replica.fetching.session import SessionRequest
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

_LATEST = -1
_EARLIEST = -2

FetcherRequest = FetchRequest | ListOffsetsRequest


@dataclass(slots=True, frozen=True)
class FetchSettings:
    """The values of replica.fetch.*"""

    max_wait_ms: int
    min_bytes: int
    partition_max_bytes: int
    response_max_bytes: int
    backoff_seconds: float


def list_offsets_request(node_id: int, fetches: Iterable[PartitionFetch]) -> ListOffsetsRequest:
    """Ask for the end of the leader's log, or for its start if the partition is in the phase ASKING_START."""
    topics: dict[str, ListOffsetsTopic] = {}
    for fetch in fetches:
        topic = topics.get(fetch.topic)
        if topic is None:
            topic = topics[fetch.topic] = ListOffsetsTopic(name=fetch.topic)
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=fetch.index,
                current_leader_epoch=fetch.leader_epoch,
                timestamp=_LATEST if fetch.phase is Phase.ASKING_END else _EARLIEST,
            )
        )
    return ListOffsetsRequest(replica_id=node_id, topics=list(topics.values()))


def fetch_request(node_id: int, broker_epoch: int, content: SessionRequest, settings: FetchSettings) -> FetchRequest:
    """Ask for the records of the partitions in `content`."""
    topics: dict[bytes, FetchTopic] = {}
    for (topic_id, index), position in content.partitions:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchTopic(topic_id=topic_id)
        topic.partitions.append(
            FetchPartition(
                partition=index,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.fetch_offset,
                last_fetched_epoch=position.last_fetched_epoch,
                log_start_offset=position.log_start_offset,
                partition_max_bytes=settings.partition_max_bytes,
            )
        )
    forgotten: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in content.forgotten:
        forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
    return FetchRequest(
        replica_state=ReplicaState(replica_id=node_id, replica_epoch=broker_epoch),
        max_wait_ms=settings.max_wait_ms,
        min_bytes=settings.min_bytes,
        max_bytes=settings.response_max_bytes,
        session_id=content.session_id,
        session_epoch=content.session_epoch,
        topics=list(topics.values()),
        forgotten_topics_data=list(forgotten.values()),
    )
