"""Reassignments of partitions (KIP-455): AlterPartitionReassignments and ListPartitionReassignments.

A reassignment begins with the replicas of both assignments. It is over when the replicas that it adds are in sync;
partition_change.py checks this with each change of the ISR. Responsible for beginning and cancelling it. The functions
are pure: they take the state and a request, and return records and verdicts.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykbroker.controller.elections import partition_change
from pykbroker.controller.partition_change import ElectionKind, PartitionChange
from pykbroker.controller.result import OK, RecordList, Result, TooManyRecords, Verdict, verdict_of
from pykbroker.controller.state import ControllerState
from pykbroker.controller.topics import check_assignment
from pykbroker.metadata.image import PartitionImage, TopicImage
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from pykbroker_wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def alter_reassignments(
    state: ControllerState, request: AlterPartitionReassignmentsRequest
) -> Result[AlterPartitionReassignmentsResponse]:
    """Begin or cancel reassignments. Each partition has a verdict of its own."""
    records = RecordList()
    responses = []
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            verdict = _alter(state, topic.name, wanted, request.allow_replication_factor_change, records)
            partitions.append(
                ReassignablePartitionResponse(
                    partition_index=wanted.partition_index, error_code=verdict.code, error_message=verdict.message
                )
            )
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=responses,
    )
    return Result(response, records)


def _alter(
    state: ControllerState, name: str, wanted: ReassignablePartition, may_change_factor: bool, records: RecordList
) -> Verdict:
    try:
        topic = state.image.topics.by_name.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
        index = wanted.partition_index
        partition = topic.partitions.get(index)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
        if wanted.replicas is None:
            change = _cancellation(state, topic, index, partition)
        else:
            check_assignment(state, wanted.replicas, kept=partition.replicas)
            if not may_change_factor:
                _check_factor(partition, wanted.replicas)
            change = partition_change(state, topic, index, partition)
            begin(change, wanted.replicas)
        record = change.build()
        if record is not None:
            records.check_room(1)
            records.append(record)
    except TooManyRecords:
        raise
    except KafkaError as error:
        return verdict_of(error)
    return OK


def _check_factor(partition: PartitionImage, wanted: list[int]) -> None:
    """Check the replication factor. During a reassignment, `wanted` is compared with the number of replicas at its end
    (KIP-860)."""
    staying = {*partition.replicas, *partition.adding_replicas} - {*partition.removing_replicas}
    if len(staying) != len(wanted):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(staying)} to {len(wanted)}",
        )


def begin(change: PartitionChange, wanted: list[int]) -> None:
    """Set the first change of a reassignment: the wanted replicas, then those that will be removed."""
    before = {*change.partition.replicas}
    removing = sorted(before - {*wanted})
    adding = sorted({*wanted} - before)
    change.replicas = [*wanted, *removing]
    # As in Apache Kafka, an earlier reassignment's adding (or removing) replicas stay if this one has none.
    change.removing = removing or None
    change.adding = adding or None


def _cancellation(state: ControllerState, topic: TopicImage, index: int, partition: PartitionImage) -> PartitionChange:
    """Return the change back to the replicas and the ISR without the added replicas."""
    if not partition.is_reassigning:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    adding = set(partition.adding_replicas)
    replicas = [replica for replica in partition.replicas if replica not in adding]
    isr = [replica for replica in partition.isr if replica not in adding]
    unclean = state.unclean_election_enabled(topic.name)
    if not replicas:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Invalid replica assignment: addingReplicas contains all replicas."
        )
    if not isr:
        if not unclean:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean "
                "leader election.",
            )
        isr = replicas[:1]
    change = partition_change(state, topic, index, partition)
    if unclean:
        change.election = ElectionKind.UNCLEAN
    change.isr, change.replicas, change.removing, change.adding = isr, replicas, [], []
    return change


def list_reassignments(
    state: ControllerState, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Return the reassignments that are under way, of the topics in the request, or of all topics if it names none."""
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
