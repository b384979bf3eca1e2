"""The messages of the persister: from operations to a request, and from a response to answers. Pure.

Responsible for the five requests to share coordinators (keys 83 to 87, KIP-932) and for FindCoordinator of share
partitions (version 6, key type 2). Not responsible for the choice of operations that share a request, so a request may
have only operations with different keys (persister_machine.py keeps that).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

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


def _by_topic(operations: list[StateOperation]) -> Mapping[bytes, list[StateOperation]]:
    by_topic: dict[bytes, list[StateOperation]] = {}
    for operation in operations:
        by_topic.setdefault(operation.key.topic_id, []).append(operation)
    return by_topic


def _initialize(group_id: str, operations: list[StateOperation]) -> TopLevel:
    wire = initialize_share_group_state
    return wire.InitializeShareGroupStateRequest(
        group_id=group_id,
        topics=[
            wire.InitializeStateData(
                topic_id=topic_id,
                partitions=[
                    wire.PartitionData(
                        partition=each.key.partition, state_epoch=each.state_epoch, start_offset=each.start_offset
                    )
                    for each in of_topic
                ],
            )
            for topic_id, of_topic in _by_topic(operations).items()
        ],
    )


def _read(group_id: str, operations: list[StateOperation]) -> TopLevel:
    wire = read_share_group_state
    return wire.ReadShareGroupStateRequest(
        group_id=group_id,
        topics=[
            wire.ReadStateData(
                topic_id=topic_id,
                partitions=[
                    wire.PartitionData(partition=each.key.partition, leader_epoch=each.leader_epoch)
                    for each in of_topic
                ],
            )
            for topic_id, of_topic in _by_topic(operations).items()
        ],
    )


def _write(group_id: str, operations: list[StateOperation]) -> TopLevel:
    wire = write_share_group_state
    return wire.WriteShareGroupStateRequest(
        group_id=group_id,
        topics=[
            wire.WriteStateData(
                topic_id=topic_id,
                partitions=[
                    wire.PartitionData(
                        partition=each.key.partition,
                        state_epoch=each.state_epoch,
                        leader_epoch=each.leader_epoch,
                        start_offset=each.start_offset,
                        # Version 0 has no field for it. The coordinator then stores -1, so the lag is unknown.
                        delivery_complete_count=each.delivery_complete_count,
                        state_batches=list(each.batches),
                    )
                    for each in of_topic
                ],
            )
            for topic_id, of_topic in _by_topic(operations).items()
        ],
    )


def _delete(group_id: str, operations: list[StateOperation]) -> TopLevel:
    wire = delete_share_group_state
    return wire.DeleteShareGroupStateRequest(
        group_id=group_id,
        topics=[
            wire.DeleteStateData(
                topic_id=topic_id, partitions=[wire.PartitionData(partition=each.key.partition) for each in of_topic]
            )
            for topic_id, of_topic in _by_topic(operations).items()
        ],
    )


def _summarize(group_id: str, operations: list[StateOperation]) -> TopLevel:
    wire = read_share_group_state_summary
    return wire.ReadShareGroupStateSummaryRequest(
        group_id=group_id,
        topics=[
            wire.ReadStateSummaryData(
                topic_id=topic_id,
                partitions=[
                    wire.PartitionData(partition=each.key.partition, leader_epoch=each.leader_epoch)
                    for each in of_topic
                ],
            )
            for topic_id, of_topic in _by_topic(operations).items()
        ],
    )


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
