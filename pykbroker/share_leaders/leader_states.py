"""The states of a leader of a share partition, and the errors that clients get from the persister's.

Pure. A change of the state that is not in the table raises.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from pykbroker_wire.errors import ErrorCode


class LeaderState(Enum):
    """The state of one leader object. It begins in LOADING."""

    #: Its state is being read from the share coordinator.
    LOADING = "loading"
    ACTIVE = "active"
    #: Its state could not be read. It is no longer in the table.
    FAILED = "failed"
    #: A newer leader, or a newer state of the group, has taken its place at the share coordinator.
    FENCED = "fenced"
    #: This broker no longer leads the partition in this epoch, or no member of the group reads here.
    ENDED = "ended"

    def may_become(self, state: LeaderState) -> bool:
        return state in _CHANGES[self]


_CHANGES: Final = {
    LeaderState.LOADING: frozenset({LeaderState.ACTIVE, LeaderState.FAILED, LeaderState.ENDED}),
    LeaderState.ACTIVE: frozenset({LeaderState.FENCED, LeaderState.ENDED}),
    LeaderState.FAILED: frozenset(),
    LeaderState.FENCED: frozenset(),
    LeaderState.ENDED: frozenset(),
}

#: As in Apache Kafka (SharePartition.fetchPersisterError). Every other error is UNKNOWN_SERVER_ERROR, also
#: INVALID_REQUEST, which a share coordinator answers about a share partition that it does not know.
_FOR_CLIENTS: Final = {
    ErrorCode.NONE: ErrorCode.NONE,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
#: After these errors of a write the state of this leader is of no use. The next fetch reads it anew.
_FENCING: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)


def error_for_clients(error: ErrorCode) -> ErrorCode:
    """Return the error that clients get for an error in an answer of the persister."""
    return _FOR_CLIENTS.get(error, ErrorCode.UNKNOWN_SERVER_ERROR)


def is_fencing(error: ErrorCode) -> bool:
    """Return True if a leader whose write has got this error (as `error_for_clients` returns it) is fenced."""
    return error in _FENCING
