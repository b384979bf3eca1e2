"""A classic group as a value: its members, its state, and the requests that wait for it.

Responsible for the state table, membership, static members, leader election and the checks that each request of a
member passes. Not responsible for the choice of a protocol (protocol_selection.py), for the order of a rebalance
(rebalance.py), nor for offsets, records or timers.

The table is TRANSITIONS; a transition that is not in it is a bug and raises.

    Empty -> PreparingRebalance        the first member joins
    PreparingRebalance -> Empty        no member rejoined
    PreparingRebalance -> CompletingRebalance   every expected member has joined, or time is up
    CompletingRebalance -> Stable      the leader's assignment is in the log
    CompletingRebalance, Stable -> PreparingRebalance   a member came, left, died or changed
    any -> Dead                        the group was deleted

Only `stored` is in the log: it is the last GroupMetadata record, and replay alone changes it. Everything else is soft
state. It follows requests and timers, runs ahead of the log during a rebalance, and starts again from `stored` after a
failover.

Invariants: the generation only rises; the leader is a member; an instance id belongs to one member;
in Empty there are no members; members await a sync only in CompletingRebalance.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from enum import Enum
from typing import Final

from pykbroker.coordinator.group.classic.classic_member import Member
from pykbroker.coordinator.group.classic.protocol_selection import CONSUMER, read_subscriptions, selected_protocol
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.stored.group.group_metadata import GroupMetadataValue, MemberMetadata

logger = logging.getLogger(__name__)

#: The name of this kind of group in ListGroups.
CLASSIC: Final = "classic"


class ClassicGroupState(Enum):
    """The values are the names that ListGroups and DescribeGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: dict[ClassicGroupState, frozenset[ClassicGroupState]] = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset(
        {ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.EMPTY, ClassicGroupState.DEAD}
    ),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset(
        {ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}
    ),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}),
    ClassicGroupState.DEAD: frozenset({ClassicGroupState.DEAD}),
}


class ClassicGroup:
    """The group as a value (see the module's docstring). Mutators keep the invariants and decide nothing."""

    kind: Final = CLASSIC

    __slots__ = (
        "generation",
        "group_id",
        "leader",
        "member_added",
        "members",
        "pending_join",
        "pending_sync",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "quiet_until_ms",
        "state",
        "state_timestamp_ms",
        "static_members",
        "stored",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        #: the last record in the log; replay alone changes it
        self.stored: GroupMetadataValue | None = None
        #: `move_to` changes both, and only as TRANSITIONS allows
        self.state = ClassicGroupState.EMPTY
        self.previous_state = ClassicGroupState.DEAD
        #: when the state last changed; -1 after a record of a version before 2
        self.state_timestamp_ms = now_ms
        #: rises by one with the end of each join phase
        self.generation = 0
        #: set by the first member, and kept when the group becomes empty
        self.protocol_type: str | None = None
        #: the protocol of this generation; None before the first generation, and in one without members
        self.protocol_name: str | None = None
        #: the id of a member; None without members
        self.leader: str | None = None
        #: in the order in which they joined
        self.members: dict[str, Member] = {}
        #: instance id -> id of its member, which is in `members`
        self.static_members: dict[str, str] = {}
        #: member ids that were given out (KIP-394), while their member has not come back yet
        self.pending_join: set[str] = set()
        #: members of this generation that have not sent SyncGroup yet
        self.pending_sync: set[str] = set()
        #: a member came during the initial rebalance, so the group waits for more
        self.member_added = False
        #: until this time rebalances are logged at DEBUG level only, because the members try again at once
        self.quiet_until_ms = 0
        #: None if this is not a consumer group or its subscriptions cannot be read
        self.subscribed_topics: frozenset[str] | None = None

    def take_up_stored(self) -> None:
        """Set the soft state from the group's record after loading. A group without a record stays as it is."""
        value = self.stored
        if value is None:
            return
        self.state_timestamp_ms = value.current_state_timestamp
        self.state = ClassicGroupState.STABLE if value.members else ClassicGroupState.EMPTY
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        self.leader = value.leader
        for stored in value.members:
            session_timeout_ms = stored.session_timeout
            member = Member(
                stored.member_id,
                stored.group_instance_id,
                stored.client_id,
                stored.client_host,
                # Version 0 had no rebalance timeout.
                stored.rebalance_timeout if stored.rebalance_timeout != -1 else session_timeout_ms,
                session_timeout_ms,
                ((value.protocol or "", stored.subscription),),
                stored.assignment,
            )
            self._insert(member)
        self.subscribed_topics = self._read_subscriptions()

    def to_stored(self, assignments: dict[str, bytes]) -> GroupMetadataValue:
        """Return the record of this generation. `assignments` must name all members."""
        protocol = self.protocol_name
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=protocol,
            leader=self.leader,
            current_state_timestamp=self.state_timestamp_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(protocol),
                    assignment=assignments[member.member_id],
                )
                for member in self.members.values()
            ],
        )

    def continue_from(self, generation: int) -> None:
        """Continue a group that was a consumer group (KIP-848). Its members are added already, and their assignments
        follow."""
        assert self.state is ClassicGroupState.EMPTY
        assert self.members
        self.generation = generation
        self.previous_state, self.state = ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.STABLE
        self.protocol_name = selected_protocol(self.members.values())
        self.subscribed_topics = self._read_subscriptions()

    # -- state --------------------------------------------------------------------------------------------------------

    def move_to(self, state: ClassicGroupState, now_ms: int) -> None:
        assert state in TRANSITIONS[self.state], (
            f"group {self.group_id}: {self.state.value} does not lead to {state.value}"
        )
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def newest_epoch(self) -> int:
        return self.generation if self.stored is None else max(self.generation, self.stored.generation)

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicGroupState.EMPTY

    @property
    def can_rebalance(self) -> bool:
        return ClassicGroupState.PREPARING_REBALANCE in TRANSITIONS[self.state]

    def next_generation(self, now_ms: int) -> None:
        """End the join phase when all members that take part have joined. The group chooses its protocol, or becomes
        empty."""
        self.generation += 1
        self.pending_sync.clear()
        if self.members:
            self.protocol_name = selected_protocol(self.members.values())
            self.move_to(ClassicGroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.move_to(ClassicGroupState.EMPTY, now_ms)
        self.subscribed_topics = self._read_subscriptions()

    # -- members ------------------------------------------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type
        self._insert(member)
        self.pending_join.discard(member.member_id)

    def _insert(self, member: Member) -> None:
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members, f"instance id {member.instance_id} is taken"
            self.static_members[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_join.discard(member_id)
        self.pending_sync.discard(member_id)

    def replace_static(self, instance_id: str, new_member_id: str) -> Member:
        """Give the member of an instance a new member id (KIP-345). It keeps its assignment and, if it was the leader,
        stays the leader."""
        old_member_id = self.static_members[instance_id]
        old = self.members[old_member_id]
        member = Member(
            new_member_id,
            instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
            old.assignment,
        )
        # The entry is replaced in place, because the order of members is the order of joining.
        self.members = {
            (new_member_id if member_id == old_member_id else member_id): (
                member if member_id == old_member_id else other
            )
            for member_id, other in self.members.items()
        }
        self.static_members[instance_id] = new_member_id
        if self.leader == old_member_id:
            self.leader = new_member_id
        self.pending_sync.discard(old_member_id)
        return member

    def not_rejoined(self) -> list[Member]:
        return [member for member in self.members.values() if member.awaiting_join is None]

    @property
    def awaiting_join_count(self) -> int:
        return sum(member.awaiting_join is not None for member in self.members.values())

    @property
    def all_joined(self) -> bool:
        return not self.pending_join and all(member.awaiting_join is not None for member in self.members.values())

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is a member that joined. Return False if no member did."""
        if self.leader is None:
            return False
        if self.members[self.leader].awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                logger.info(
                    "Group %s: leader %s did not rejoin in time, so member %s is the leader now",
                    self.group_id,
                    self.leader,
                    member.member_id,
                )
                self.leader = member.member_id
                return True
        return False

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # -- protocols ----------------------------------------------------------------------------------------------------

    def _read_subscriptions(self) -> frozenset[str] | None:
        return read_subscriptions(self.group_id, self.protocol_type, self.protocol_name, self.members.values())

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Return True if a member with these protocols could take part."""
        offered = set(names)
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and bool(offered)
        if protocol_type != self.protocol_type:
            return False
        # There may be no members here, while the last member leaves. Then each protocol is supported.
        for member in self.members.values():
            offered &= member.protocol_names
        return bool(offered)

    def is_subscribed(self, topic: str) -> bool:
        """Return True if a member subscribes to the topic, or if a consumer group's subscriptions cannot be read."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER
        return topic in self.subscribed_topics

    def topics_changed(self, names: Collection[str]) -> None:
        """Do nothing, because the members of a classic group watch topics themselves."""

    # -- checks -------------------------------------------------------------------------------------------------------

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        if instance_id is not None:
            owner = self.static_members.get(instance_id)
            if owner is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if owner != member_id:
                logger.info(
                    "Group %s: member %s is fenced, because its instance id %s belongs to member %s now",
                    self.group_id,
                    member_id,
                    instance_id,
                    owner,
                )
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool = False,
        api_version: int = -1,
    ) -> None:
        """Check a commit for all partitions at once (see ConsumerGroup.check_offset_commit)."""
        if generation < 0 and self.state is ClassicGroupState.EMPTY:
            # The client is an admin client, or a consumer that assigns its partitions itself.
            return
        if generation >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if generation != self.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not transactional and self.state is not ClassicGroupState.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not transactional and self.state is ClassicGroupState.COMPLETING_REBALANCE:
            # The member knows the new generation but not yet its partitions.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Do nothing. Member epochs belong to consumer groups, and Apache Kafka ignores them here."""

    def check_delete(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_offset_delete(self) -> None:
        if self.state is not ClassicGroupState.EMPTY and self.protocol_type != CONSUMER:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def session_after_commit(self, member_id: str) -> int | None:
        """Return the session timeout of a member that has committed, because a commit shows that the member is alive.
        Return None in states in which a commit does not count."""
        if self.state in (ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE):
            return self.members[member_id].session_timeout_ms
        return None

    def offsets_expire_from_ms(self) -> int | None:
        """Return the time at which the retention of this group's offsets began: -1 if it begins at each offset's
        commit, None if it has not begun."""
        if self.protocol_type is not None:
            if self.state is ClassicGroupState.EMPTY:
                return self.state_timestamp_ms
            if (
                self.protocol_type == CONSUMER
                and self.subscribed_topics is not None
                and self.state is ClassicGroupState.STABLE
            ):
                # Offsets of topics to which no member subscribes expire.
                return -1
            return None
        return -1
