"""A consumer group (KIP-848) as a value: the content of its records, and the state that follows from them.

Responsible for the replayed state: members, their subscriptions and current assignments, the target assignment, the
epochs, the owner of each partition, resolved regular expressions. It also has the state that ListGroups shows, and the
checks of its members' requests. Not responsible for changes by requests (consumer_heartbeat.py, mixed.py), for the
steps of a member towards its target (reconcile.py) nor for the target (target.py).

    Empty         no members
    Assigning     the group epoch is ahead of the target assignment's
    Reconciling   at least one member has not reached the target yet
    Stable        every member has reached the target

There are three epochs. The group epoch rises when members, subscriptions or topics change. The epoch of the target is
the group epoch at the time of its computation. A member has the epoch of the target that it has reached, and a
partition the epoch of its owner.

Invariants: members, target and counts change by replay alone (`update_…`, `remove_…`, `set_…`). A partition has at most
one owner, which may read it or has not confirmed yet that it stopped. Epochs only rise, except that a static member has
epoch -2 while it is away. `refresh_…`, `resolving`, `rejoin_timers` and `answered_on` are soft state.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from pykbroker.coordinator.group.contract import PartitionCheck
from pykbroker.coordinator.group.java import hash_map_order, java_hash
from pykbroker_wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

#: The name of this kind of group in ListGroups, and its protocol type.
CONSUMER: Final = "consumer"

LEAVE_EPOCH: Final = -1
#: The epoch of a static member that is away for a moment.
LEAVE_STATIC_EPOCH: Final = -2
#: The epoch of a partition without an owner.
NO_EPOCH: Final = -1

#: OffsetCommit of a member needs this version, because older versions do not have STALE_MEMBER_EPOCH.
_COMMIT_WITH_EPOCH_FROM: Final = 9

#: topic id -> partition -> epoch in which the member got it
AssignedPartitions = Mapping[bytes, Mapping[int, int]]
#: topic id -> partitions
TargetAssignment = Mapping[bytes, frozenset[int]]

NOTHING: Final[AssignedPartitions] = {}
NO_TARGET: Final[TargetAssignment] = {}


class ConsumerState(Enum):
    """The values are the names that ListGroups and ConsumerGroupDescribe show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


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


#: topic -> the number of members that subscribe to it by name, and the number of regular expressions that match it
SubscriberCounts = dict[str, tuple[int, int]]


class ConsumerGroup:
    """The group as a value (see the module's docstring)."""

    __slots__ = (
        "_state",
        "answered_on",
        "assignors",
        "classic_count",
        "classic_protocols",
        "epoch",
        "group_id",
        "has_partition_metadata",
        "members",
        "metadata_hash",
        "partition_epochs",
        "refresh_deadline_ms",
        "refresh_epoch",
        "regexes",
        "rejoin_timers",
        "resolved",
        "resolving",
        "static_members",
        "subscribers",
        "target",
        "target_epoch",
        "target_timestamp_ms",
    )

    kind: Final = CONSUMER
    protocol_type: Final = CONSUMER

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1
        self.metadata_hash = 0
        self.target_epoch = 1
        self.target_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.target: dict[str, TargetAssignment] = {}
        #: topic id -> partition -> epoch of its owner
        self.partition_epochs: dict[bytes, dict[int, int]] = {}
        self.subscribers: SubscriberCounts = {}
        #: regular expression -> number of members that subscribe with it
        self.regexes: dict[str, int] = {}
        self.resolved: dict[str, ResolvedRegex] = {}
        self.assignors: dict[str, int] = {}
        self.classic_count = 0
        #: protocol -> number of classic members that support it
        self.classic_protocols: dict[str, int] = {}
        #: a record of a release before 4.1 exists, to be deleted with the next change
        self.has_partition_metadata = False
        self._state: ConsumerState | None = ConsumerState.EMPTY
        # Soft state: the time at which the topics are looked at again, and the group epoch in which this time was set.
        self.refresh_deadline_ms = 0
        self.refresh_epoch = 0
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
        self._recount(old, member)
        if old is not None:
            self._release(old)
        self._own(member.member_id, member.assigned, member.epoch)
        self._own(member.member_id, member.revoking, member.epoch)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._state = None

    def remove_member(self, member_id: str) -> None:
        old = self.members.pop(member_id, None)
        if old is None:
            return
        self._recount(old, None)
        self._release(old)
        # Remove the former instances of the member too, because a member may join again as another instance.
        for instance_id in [instance for instance, holder in self.static_members.items() if holder == member_id]:
            del self.static_members[instance_id]
        self.rejoin_timers.discard(member_id)
        self._state = None

    def set_resolved(self, regex: str, resolved: ResolvedRegex | None) -> None:
        old = self.resolved.pop(regex, None)
        if old is not None:
            count_topics(self.subscribers, old.topics, by_regex=-1)
        if resolved is not None:
            self.resolved[regex] = resolved
            count_topics(self.subscribers, resolved.topics, by_regex=1)

    def _recount(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        if old is not None and new is not None and old[3:11] == new[3:11] and old.classic == new.classic:
            # Its subscription is the same, and only its assignment has changed.
            return
        if old is not None:
            count_topics(self.subscribers, old.topics, by_name=-1)
            _count(self.assignors, old.assignor, -1)
            _count(self.regexes, old.regex, -1)
            if old.classic is not None:
                self.classic_count -= 1
                for name, _ in old.classic.protocols:
                    _count(self.classic_protocols, name, -1)
        if new is not None:
            count_topics(self.subscribers, new.topics, by_name=1)
            _count(self.assignors, new.assignor, 1)
            _count(self.regexes, new.regex, 1)
            if new.classic is not None:
                self.classic_count += 1
                for name, _ in new.classic.protocols:
                    _count(self.classic_protocols, name, 1)

    def _release(self, member: ConsumerMember) -> None:
        for assigned in (member.assigned, member.revoking):
            for topic_id, partitions in assigned.items():
                epochs = self.partition_epochs.get(topic_id)
                if epochs is None:
                    continue
                for partition in partitions:
                    # A partition that another member got since then stays with that member.
                    if epochs.get(partition) == member.epoch:
                        del epochs[partition]
                if not epochs:
                    del self.partition_epochs[topic_id]

    def _own(self, member_id: str, assigned: AssignedPartitions, epoch: int) -> None:
        for topic_id, partitions in assigned.items():
            epochs = self.partition_epochs.setdefault(topic_id, {})
            for partition in partitions:
                before = epochs.get(partition)
                if before is not None and before >= epoch:
                    # Another program wrote this log, and it must be readable even so.
                    logger.error(
                        "Group %s: partition %d of topic %s is owned in epoch %d when member %s gets it in epoch %d",
                        self.group_id,
                        partition,
                        topic_id.hex(),
                        before,
                        member_id,
                        epoch,
                    )
                epochs[partition] = epoch

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
    def is_empty(self) -> bool:
        return not self.members

    def owner_epoch(self, topic_id: bytes, partition: int) -> int:
        """Return the epoch of a partition's owner, NO_EPOCH if it has none."""
        epochs = self.partition_epochs.get(topic_id)
        return NO_EPOCH if epochs is None else epochs.get(partition, NO_EPOCH)

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

    def subscribers_after(self, old: ConsumerMember, new: ConsumerMember) -> SubscriberCounts:
        """Return the subscribers of each topic after `old` has become `new`."""
        subscribers = dict(self.subscribers)
        count_topics(subscribers, old.topics, by_name=-1)
        count_topics(subscribers, new.topics, by_name=1)
        if old.regex and old.regex != new.regex and self.regexes.get(old.regex) == 1:
            resolved = self.resolved.get(old.regex)
            if resolved is not None:
                count_topics(subscribers, resolved.topics, by_regex=-1)
        return subscribers

    def subscribers_without(self, members: Iterable[ConsumerMember], regexes: Iterable[str]) -> SubscriberCounts:
        subscribers = dict(self.subscribers)
        for member in members:
            count_topics(subscribers, member.topics, by_name=-1)
        for regex in regexes:
            resolved = self.resolved.get(regex)
            if resolved is not None:
                count_topics(subscribers, resolved.topics, by_regex=-1)
        return subscribers

    def preferred_assignor(
        self, default: str, old: ConsumerMember | None = None, new: ConsumerMember | None = None
    ) -> str:
        """Return the assignor that most members ask for. If several have the most votes, the first in the order of
        Java's HashMap wins. That is the assignor of `new` if no other member asks for it, because HashMap.compute adds
        at the head of a bucket, and the two assignors always share a bucket."""
        votes = dict(self.assignors)
        if old is not None:
            _count(votes, old.assignor, -1)
        order = hash_map_order(votes, java_hash)
        if new is not None:
            if new.assignor and new.assignor not in votes:
                order.insert(0, new.assignor)
            _count(votes, new.assignor, 1)
        return max(order, key=votes.__getitem__) if votes else default

    def topics_are_stale(self, now_ms: int) -> bool:
        return now_ms >= self.refresh_deadline_ms or self.epoch < self.refresh_epoch

    def topics_changed(self, names: Collection[str]) -> None:
        """Let the next heartbeat look at all topics of the group, if the group subscribes to one of these."""
        if not self.subscribers.keys().isdisjoint(names):
            self.refresh_deadline_ms = 0
            self.refresh_epoch = 0

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.subscribers

    def supports_classic(self, protocol_type: str, names: Iterable[str]) -> bool:
        if protocol_type != CONSUMER:
            return False
        if not self.members:
            return any(True for _ in names)
        return any(self.classic_protocols.get(name, 0) == self.classic_count for name in names)

    def only_classic_without(self, leaving: Iterable[ConsumerMember]) -> bool:
        """Return True if all members that stay use the classic protocol."""
        gone = list(leaving)
        classic_gone = sum(member.classic is not None for member in gone)
        return self.classic_count - classic_gone == len(self.members) - len(gone)

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Return True if another member still owns a partition of the member's target."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            partition not in member.assigned.get(topic_id, {}) and self.owner_epoch(topic_id, partition) != NO_EPOCH
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
        """Return the check that each partition must pass, None if all partitions may be committed."""
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
        # Producers do not know STALE_MEMBER_EPOCH, nor do classic members.
        stale = (
            ErrorCode.ILLEGAL_GENERATION
            if transactional or member.classic is not None
            else ErrorCode.STALE_MEMBER_EPOCH
        )
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


def count_topics(subscribers: SubscriberCounts, topics: Iterable[str], *, by_name: int = 0, by_regex: int = 0) -> None:
    for topic in topics:
        names, regexes = subscribers.get(topic, (0, 0))
        counts = (names + by_name, regexes + by_regex)
        if counts[0] > 0 or counts[1] > 0:
            subscribers[topic] = counts
        else:
            subscribers.pop(topic, None)


def _count(counts: dict[str, int], name: str | None, change: int) -> None:
    if name:
        count = counts.get(name, 0) + change
        if count > 0:
            counts[name] = count
        else:
            counts.pop(name, None)
