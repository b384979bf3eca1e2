"""The messages of the persister: from operations to a request, and from a response to answers. Pure.

Responsible for the five requests to share coordinators (keys 83 to 87, KIP-932) and for FindCoordinator of share
partitions (version 6, key type 2). Not responsible for the choice of operations that share a request, so a request may
have only operations with different keys (persister_machine.py keeps that).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

from pykbroker.share_persister.persister_machine import CoordinatorLookup, LookupAnswer, StateRequest
from pykbroker.share_persister.state_operations import ShareStateAnswer, StateCall, StateOperation
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pykbroker_wire.primitives import TopLevel

_SHARE: Final = 2

T = TypeVar("T")
#: By topic id and partition.
StateAnswers = Mapping[tuple[bytes, int], ShareStateAnswer]


def state_request(request: StateRequest) -> TopLevel:
    """Return the message for a request of the machine."""
    return _REQUESTS[request.call](request.group_id, request.operations)


def state_answers(call: StateCall, response: Any) -> StateAnswers:
    """Return the answers in a response to a request of this kind. Codes that this version does not know are
    UNKNOWN_SERVER_ERROR."""
    read = _ANSWERS[call]
    return {
        (result.topic_id, partition.partition): read(ErrorCode.received(partition.error_code), partition)
        for result in response.results
        for partition in result.partitions
    }


def lookup_request(lookup: CoordinatorLookup) -> FindCoordinatorRequest:
    """Return the FindCoordinator for a lookup. Versions before 4 have no field for it, and versions before 6 answer
    INVALID_REQUEST for this type."""
    keys = [str(operation.key) for operation in lookup.operations]
    return FindCoordinatorRequest(key_type=_SHARE, coordinator_keys=keys)


def lookup_answers(response: FindCoordinatorResponse) -> Mapping[str, LookupAnswer]:
    """Return the answers in the response to a lookup, by the text of the key."""
    return {
        found.key: LookupAnswer(ErrorCode.received(found.error_code), found.node_id, found.error_message or None)
        for found in response.coordinators
    }


# -- requests ---------------------------------------------------------------------------------------------------------


def _topics(
    topic: Callable[..., T], operations: list[StateOperation], partition: Callable[[StateOperation], object]
) -> list[T]:
    """Return the topics of a request. `topic` makes one from a topic id and its partitions."""
    by_topic: dict[bytes, list[object]] = {}
    for operation in operations:
        by_topic.setdefault(operation.key.topic_id, []).append(partition(operation))
    return [topic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in by_topic.items()]


def _initialize(group_id: str, operations: list[StateOperation]) -> TopLevel:
    wire = initialize_share_group_state

    def partition(each: StateOperation) -> initialize_share_group_state.PartitionData:
        return wire.PartitionData(
            partition=each.key.partition, state_epoch=each.state_epoch, start_offset=each.start_offset
        )

    topics = _topics(wire.InitializeStateData, operations, partition)
    return wire.InitializeShareGroupStateRequest(group_id=group_id, topics=topics)


def _read(group_id: str, operations: list[StateOperation]) -> TopLevel:
    wire = read_share_group_state

    def partition(each: StateOperation) -> read_share_group_state.PartitionData:
        return wire.PartitionData(partition=each.key.partition, leader_epoch=each.leader_epoch)

    topics = _topics(wire.ReadStateData, operations, partition)
    return wire.ReadShareGroupStateRequest(group_id=group_id, topics=topics)


def _write(group_id: str, operations: list[StateOperation]) -> TopLevel:
    wire = write_share_group_state

    def partition(each: StateOperation) -> write_share_group_state.PartitionData:
        return wire.PartitionData(
            partition=each.key.partition,
            state_epoch=each.state_epoch,
            leader_epoch=each.leader_epoch,
            start_offset=each.start_offset,
            # Version 0 has no field for it. The coordinator then stores -1, so the lag is unknown.
            delivery_complete_count=each.delivery_complete_count,
            # They are encoded as they are (DeliveryRange).
            state_batches=cast("list[write_share_group_state.StateBatch]", list(each.batches)),
        )

    topics = _topics(wire.WriteStateData, operations, partition)
    return wire.WriteShareGroupStateRequest(group_id=group_id, topics=topics)


def _delete(group_id: str, operations: list[StateOperation]) -> TopLevel:
    wire = delete_share_group_state

    def partition(each: StateOperation) -> delete_share_group_state.PartitionData:
        return wire.PartitionData(partition=each.key.partition)

    topics = _topics(wire.DeleteStateData, operations, partition)
    return wire.DeleteShareGroupStateRequest(group_id=group_id, topics=topics)


def _summarize(group_id: str, operations: list[StateOperation]) -> TopLevel:
    wire = read_share_group_state_summary

    def partition(each: StateOperation) -> read_share_group_state_summary.PartitionData:
        return wire.PartitionData(partition=each.key.partition, leader_epoch=each.leader_epoch)

    topics = _topics(wire.ReadStateSummaryData, operations, partition)
    return wire.ReadShareGroupStateSummaryRequest(group_id=group_id, topics=topics)


_REQUESTS: Final[Mapping[StateCall, Callable[[str, list[StateOperation]], TopLevel]]] = {
    StateCall.INITIALIZE: _initialize,
    StateCall.READ: _read,
    StateCall.WRITE: _write,
    StateCall.DELETE: _delete,
    StateCall.SUMMARIZE: _summarize,
}


# -- answers ----------------------------------------------------------------------------------------------------------


def _error_only(error: ErrorCode, partition: Any) -> ShareStateAnswer:
    return ShareStateAnswer(error, partition.error_message)


def _state(error: ErrorCode, partition: read_share_group_state.PartitionResult) -> ShareStateAnswer:
    if error is not ErrorCode.NONE:
        return _error_only(error, partition)
    return ShareStateAnswer(
        error,
        partition.error_message,
        state_epoch=partition.state_epoch,
        start_offset=partition.start_offset,
        batches=partition.state_batches,
    )


def _summary(error: ErrorCode, partition: read_share_group_state_summary.PartitionResult) -> ShareStateAnswer:
    if error is not ErrorCode.NONE:
        return _error_only(error, partition)
    return ShareStateAnswer(
        error,
        partition.error_message,
        state_epoch=partition.state_epoch,
        leader_epoch=partition.leader_epoch,
        start_offset=partition.start_offset,
        delivery_complete_count=partition.delivery_complete_count,
    )


_ANSWERS: Final[Mapping[StateCall, Callable[[ErrorCode, Any], ShareStateAnswer]]] = {
    StateCall.INITIALIZE: _error_only,
    StateCall.READ: _state,
    StateCall.WRITE: _error_only,
    StateCall.DELETE: _error_only,
    StateCall.SUMMARIZE: _summary,
}
