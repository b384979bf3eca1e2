"""Reassignments of partitions that are under way: ListPartitionReassignments. Starting one is not served yet."""

from __future__ import annotations

from collections.abc import Iterable

from pykbroker.controller.state import ControllerState
from pykbroker.metadata.image import TopicImage
from pykbroker_wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def list_reassignments(
    state: ControllerState, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    by_name = state.image.topics.by_name
    if request.topics is None:
        found = [_ongoing(topic, topic.partitions) for topic in by_name.values()]
    else:
        found = [_ongoing(by_name[t.name], t.partition_indexes) for t in request.topics if t.name in by_name]
    return ListPartitionReassignmentsResponse(error_message=None, topics=[topic for topic in found if topic.partitions])


def _ongoing(topic: TopicImage, indexes: Iterable[int]) -> OngoingTopicReassignment:
    partitions = []
    for index in indexes:
        partition = topic.partitions.get(index)
        if partition is not None and partition.is_reassigning:
            partitions.append(
                OngoingPartitionReassignment(
                    partition_index=index,
                    replicas=list(partition.replicas),
                    adding_replicas=list(partition.adding_replicas),
                    removing_replicas=list(partition.removing_replicas),
                )
            )
    return OngoingTopicReassignment(name=topic.name, partitions=partitions)
