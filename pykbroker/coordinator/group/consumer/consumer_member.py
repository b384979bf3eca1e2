"""One member of a consumer group (KIP-848) as a value, and what its records have: assignments, epochs, subscriptions.

Not responsible for the group (consumer_group.py), nor for the steps of a member towards its target (reconcile.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

LEAVE_EPOCH: Final = -1
#: The epoch of a static member that is away for a moment.
LEAVE_STATIC_EPOCH: Final = -2
#: The epoch of a partition without an owner.
NO_EPOCH: Final = -1

#: topic id -> partition -> epoch in which the member got it
AssignedPartitions = Mapping[bytes, Mapping[int, int]]
#: topic id -> partitions
TargetAssignment = Mapping[bytes, frozenset[int]]

NOTHING: Final[AssignedPartitions] = {}
NO_TARGET: Final[TargetAssignment] = {}


class MemberState(IntEnum):
    """The values are the numbers in the record."""

    STABLE = 0
    #: the member has partitions to give up first
    UNREVOKED_PARTITIONS = 1
    #: another member still owns partitions of its target
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class ClassicMetadata(NamedTuple):
    """The classic metadata of a member that uses the classic protocol."""

    session_timeout_ms: int
    #: (name, metadata) in the member's order of preference
    protocols: tuple[tuple[str, bytes], ...]


class ConsumerMember(NamedTuple):
    """One member, as a value: `_replace` makes the next one."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str | None = ""
    assignor: str | None = None
    state: MemberState = MemberState.STABLE
    assigned: AssignedPartitions = NOTHING
    #: partitions that the member must give up, until it confirms that it has stopped reading them
    revoking: AssignedPartitions = NOTHING
    classic: ClassicMetadata | None = None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def moved_to(
        self, epoch: int, state: MemberState, assigned: AssignedPartitions, revoking: AssignedPartitions
    ) -> ConsumerMember:
        return self._replace(epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, revoking=revoking)


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched, with the metadata offset and the time of that match."""

    topics: frozenset[str]
    metadata_offset: int
    timestamp_ms: int
