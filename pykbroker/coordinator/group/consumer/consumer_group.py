"""A consumer group (KIP-848) as a value: the content of its records, and the state that follows from them.

Responsible for the replayed state: members and their current assignments, the target assignment and the epochs, with
the counts that follow from the members (subscriptions.py) and the owner of each partition (partition_epochs.py). It
also has the state that ListGroups shows, and the checks of its members' requests. Not responsible for changes by
requests (consumer_heartbeat.py, mixed.py), for the steps of a member towards its target (reconcile.py) nor for the
target (target.py).

    Empty         no members
    Assigning     the group epoch is ahead of the target assignment's
    Reconciling   at least one member has not reached the target yet
    Stable        every member has reached the target

There are three epochs. The group epoch rises when members, subscriptions or topics change. The epoch of the target is
the group epoch at the time of its computation. A member has the epoch of the target that it has reached, and a
partition the epoch of its owner.

Invariants: members, target and counts change by replay alone (`update_…`, `remove_…`, `set_…`). Epochs only rise,
except that a static member has epoch -2 while it is away. `target_epoch` is at most `epoch`. Each value of
`static_members` is a member. `topics_refresh`, `resolving`, `rejoin_timers` and `answered_on` are soft state.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from enum import Enum
from typing import Final, NamedTuple

from pykbroker.coordinator.group.consumer.consumer_member import (
    NO_EPOCH,
    NO_TARGET,
    ConsumerMember,
    MemberState,
    TargetAssignment,
)
from pykbroker.coordinator.group.consumer.partition_epochs import PartitionEpochs
from pykbroker.coordinator.group.consumer.subscriptions import Subscriptions
from pykbroker.coordinator.group.contract import STALE_TO_PRODUCERS_FROM, PartitionCheck
from pykbroker_wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

#: The name of this kind of group in ListGroups, and its protocol type.
CONSUMER: Final = "consumer"

#: OffsetCommit of a member needs this version, because older versions do not have STALE_MEMBER_EPOCH.
_COMMIT_WITH_EPOCH_FROM: Final = 9


class ConsumerState(Enum):
    """The values are the names that ListGroups and ConsumerGroupDescribe show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class DeadlineAndEpoch(NamedTuple):
    """The time at which the topics are looked at again, and the group epoch in which that time was set."""

    deadline_ms: int
    epoch: int


NO_REFRESH: Final = DeadlineAndEpoch(0, 0)


class ConsumerGroup:
    """The group as a value (see the module's docstring)."""

    __slots__ = (
        "_state",
        "answered_on",
        "epoch",
        "group_id",
        "has_partition_metadata",
        "members",
        "metadata_hash",
        "partition_epochs",
        "rejoin_timers",
        "resolving",
        "static_members",
        "subscriptions",
        "target",
        "target_epoch",
        "target_timestamp_ms",
        "topics_refresh",
    )

    kind: Final = CONSUMER
    protocol_type: Final = CONSUMER

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        #: the group epoch, and the hash of the topics in that epoch
        self.epoch = 1
        self.metadata_hash = 0
        #: the group epoch for which the target was computed, and when; at most `epoch`
        self.target_epoch = 1
        self.target_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        #: instance id -> id of the member that has it now, which is in `members`
        self.static_members: dict[str, str] = {}
        #: member id -> its part of the target; a static member that is away keeps its part
        self.target: dict[str, TargetAssignment] = {}
        self.partition_epochs = PartitionEpochs(group_id)
        self.subscriptions = Subscriptions()
        #: a record of a release before 4.1 exists, to be deleted with the next change
        self.has_partition_metadata = False
        #: None if it has to be computed again, because the members or an epoch have changed
        self._state: ConsumerState | None = ConsumerState.EMPTY
        #: soft state: when the topics are looked at again
        self.topics_refresh = NO_REFRESH
        #: True while regular expressions are being resolved
        self.resolving = False
        #: classic members that were asked to rejoin and have not done so yet
        self.rejoin_timers: set[str] = set()
        #: member -> the connection on which its last assignment was sent
        self.answered_on: dict[str, int] = {}

    # -- replay -------------------------------------------------------------------------------------------------------

    def set_epoch(self, epoch: int, metadata_hash: int) -> None:
        self.epoch = epoch
        self.metadata_hash = metadata_hash
        self._state = None

    def set_target_epoch(self, epoch: int, timestamp_ms: int) -> None:
        self.target_epoch = epoch
        self.target_timestamp_ms = timestamp_ms
        self._state = None

    def set_target(self, member_id: str, target: TargetAssignment | None) -> None:
        if target is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = target

    def update_member(self, member: ConsumerMember) -> None:
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self.subscriptions.replace(old, member)
        if old is not None:
            self.partition_epochs.release(old)
        self.partition_epochs.own(member)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._state = None

    def remove_member(self, member_id: str) -> None:
        old = self.members.pop(member_id, None)
        if old is None:
            return
        self.subscriptions.replace(old, None)
        self.partition_epochs.release(old)
        # Remove the former instances of the member too, because a member may join again as another instance.
        for instance_id in [instance for instance, holder in self.static_members.items() if holder == member_id]:
            del self.static_members[instance_id]
        self.rejoin_timers.discard(member_id)
        self._state = None

    # -- questions ----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerState:
        if self._state is None:
            self._state = self._compute_state()
        return self._state

    def _compute_state(self) -> ConsumerState:
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return ConsumerState.STABLE
        return ConsumerState.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def newest_epoch(self) -> int:
        return self.epoch

    @property
    def is_empty(self) -> bool:
        return not self.members

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        if instance_id is None:
            return None
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member_id: str, instance_id: str | None) -> TargetAssignment:
        """Return the target of a member. A static member that comes back has the target of the member that it
        replaces."""
        if instance_id is not None:
            previous = self.static_members.get(instance_id)
            return NO_TARGET if previous is None else self.target.get(previous, NO_TARGET)
        return self.target.get(member_id, NO_TARGET)

    def topics_are_stale(self, now_ms: int) -> bool:
        return now_ms >= self.topics_refresh.deadline_ms or self.epoch < self.topics_refresh.epoch

    def topics_changed(self, names: Collection[str]) -> None:
        """Let the next heartbeat look at all topics of the group, if the group subscribes to one of these."""
        if not self.subscriptions.subscribers.keys().isdisjoint(names):
            self.topics_refresh = NO_REFRESH

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.subscriptions

    def supports_classic(self, protocol_type: str, names: Iterable[str]) -> bool:
        if protocol_type != CONSUMER:
            return False
        if not self.members:
            return any(True for _ in names)
        return self.subscriptions.supports_classic(names)

    def only_classic_without(self, leaving: Iterable[ConsumerMember]) -> bool:
        """Return True if all members that stay use the classic protocol."""
        gone = list(leaving)
        classic_gone = sum(member.classic is not None for member in gone)
        return self.subscriptions.classic_count - classic_gone == len(self.members) - len(gone)

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Return True if another member still owns a partition of the member's target."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            partition not in member.assigned.get(topic_id, {})
            and self.partition_epochs.of(topic_id, partition) != NO_EPOCH
            for topic_id, partitions in self.target.get(member.member_id, NO_TARGET).items()
            for partition in partitions
        )

    def offsets_expire_from_ms(self) -> int | None:
        """Return -1, because the retention of an offset begins at its commit. It expires if no member subscribes to its
        topic."""
        return -1

    def session_after_commit(self, member_id: str) -> int | None:
        """Return None, because only heartbeats keep the session of a member."""
        return None

    # -- checks -------------------------------------------------------------------------------------------------------

    def member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool = False,
        api_version: int = _COMMIT_WITH_EPOCH_FROM,
    ) -> PartitionCheck | None:
        """Return the check that each partition must pass, None if all partitions may be committed. `api_version` is
        that of OffsetCommit, or with `transactional` that of TxnOffsetCommit."""
        if generation < 0 and not self.members:
            # The client is an admin client, or a consumer that assigns its partitions itself.
            return None
        if transactional and generation == -1 and not member_id and instance_id is None:
            return None
        member = self.member(member_id)
        if not transactional and member.classic is None and api_version < _COMMIT_WITH_EPOCH_FROM:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        if generation == member.epoch:
            return None
        # Older producers do not know STALE_MEMBER_EPOCH, nor do classic members.
        unknown = member.classic is not None or (transactional and api_version < STALE_TO_PRODUCERS_FROM)
        stale = ErrorCode.ILLEGAL_GENERATION if unknown else ErrorCode.STALE_MEMBER_EPOCH
        if generation > member.epoch:
            raise KafkaError(stale)

        def check(topic: str, topic_id: bytes, partition: int) -> None:
            """Accept an older epoch if the member has owned the partition since that epoch (KIP-1251)."""
            since = member.assigned.get(topic_id, {}).get(partition)
            if since is None:
                since = member.revoking.get(topic_id, {}).get(partition)
            if since is None or generation < since:
                raise KafkaError(stale)

        return check

    def check_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION)

    def check_delete(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_offset_delete(self) -> None:
        """Do nothing. The shard refuses topics to which a member subscribes."""
