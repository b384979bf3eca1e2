"""A classic group as a value: its members, its state, and which of them waits for what.

Responsible for the state table, membership, static members, protocol selection, leader election and the checks that
every request of a member passes. Not responsible for the order of a rebalance (rebalance.py), nor for offsets,
records or timers.

The table is TRANSITIONS; a transition that is not in it is a bug and raises.

    Empty -> PreparingRebalance        the first member joins
    PreparingRebalance -> Empty        no member rejoined
    PreparingRebalance -> CompletingRebalance   every expected member has joined, or time is up
    CompletingRebalance -> Stable      the leader's assignment is in the log
    CompletingRebalance, Stable -> PreparingRebalance   a member came, left, died or changed
    any -> Dead                        the group was deleted

What is in the log of all this is `stored`: the last GroupMetadata record, changed by replay alone. Everything else is
soft state: it follows requests and timers, runs ahead of the log while a rebalance is under way, and after a failover
starts again from `stored`.

Invariants: the generation only rises; the leader is a member; an instance id belongs to one member;
in Empty there are no members; members await a sync only in CompletingRebalance.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from enum import Enum
from typing import Final

from pykbroker.coordinator.group.java import hash_map_order, java_hash
from pykbroker.coordinator.result import Token
from pykbroker_wire.errors import DecodeError, ErrorCode, KafkaError
from pykbroker_wire.messages.consumer_protocol import ConsumerProtocolSubscription
from pykbroker_wire.stored.group.group_metadata import GroupMetadataValue, MemberMetadata

logger = logging.getLogger(__name__)

#: What ListGroups calls this kind of group.
CLASSIC: Final = "classic"
#: The protocol type of consumers; Connect and schema registries have their own.
CONSUMER = "consumer"

#: (name, metadata) in the member's order of preference
Protocols = tuple[tuple[str, bytes], ...]


class ClassicGroupState(Enum):
    """Values are the names that ListGroups and DescribeGroups show."""

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


class Member:
    """One member. `awaiting_join` and `awaiting_sync` name its parked request, if any."""

    __slots__ = (
        "_protocols",
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "member_id",
        "protocol_names",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: Token | None = None
        self.awaiting_sync: Token | None = None
        #: has not been told its member id yet, so it cannot heartbeat
        self.is_new = False

    @property
    def protocols(self) -> Protocols:
        return self._protocols

    @protocols.setter
    def protocols(self, protocols: Protocols) -> None:
        self._protocols = protocols
        #: made once: a member may have 100,000 protocols, and each request to join is compared with them
        self.protocol_names = frozenset(name for name, _ in protocols)

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def excused_from_heartbeat(self) -> bool:
        """A member whose request is parked here is alive as far as we can tell; a new one might never have been."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"member {self.member_id} does not support the protocol {protocol} of its group")


class ClassicGroup:
    """See the module. Mutators keep the invariants; they decide nothing."""

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
        self.stored: GroupMetadataValue | None = None
        self.state = ClassicGroupState.EMPTY
        self.previous_state = ClassicGroupState.DEAD
        #: -1 in records before version 2
        self.state_timestamp_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        #: ids that were given out (KIP-394) and have not come back yet
        self.pending_join: set[str] = set()
        #: members of this generation that have not sent SyncGroup yet
        self.pending_sync: set[str] = set()
        #: a member came during the initial rebalance: wait for more
        self.member_added = False
        #: until then its rebalances are no lines of the log; its members try again at once
        self.quiet_until_ms = 0
        #: None: not a consumer group, or its subscriptions cannot be read
        self.subscribed_topics: frozenset[str] | None = None

    def take_up_stored(self) -> None:
        """The group as a coordinator finds it after loading: everything follows from its record, if it has one."""
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
        """The record of this generation. `assignments` must name every member."""
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
        """It was a consumer group (KIP-848): its members are there, and their assignments follow."""
        assert self.state is ClassicGroupState.EMPTY
        assert self.members
        self.generation = generation
        self.previous_state, self.state = ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.STABLE
        self.protocol_name = self.select_protocol()
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
    def is_empty(self) -> bool:
        return self.state is ClassicGroupState.EMPTY

    @property
    def can_rebalance(self) -> bool:
        return ClassicGroupState.PREPARING_REBALANCE in TRANSITIONS[self.state]

    def next_generation(self, now_ms: int) -> None:
        """Every member that takes part has joined: choose the protocol, or become empty."""
        self.generation += 1
        self.pending_sync.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
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
        """The same instance under a new member id (KIP-345); it keeps its assignment and, if it had it, the lead."""
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
        # In place: the order of members is the order of joining.
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
        """Make sure that the leader is a member that joined. False if no member did."""
        if self.leader is None:
            return False
        if self.members[self.leader].awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                logger.info(
                    "Group %s: leader %s did not rejoin in time, %s takes over",
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

    def _candidates(self) -> set[str]:
        """What every member supports."""
        members = iter(self.members.values())
        common = set(next(members).protocol_names)
        for member in members:
            common &= member.protocol_names
        return common

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member that speaks these could take part."""
        offered = set(names)
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and bool(offered)
        if protocol_type != self.protocol_type:
            return False
        # While the last member is on its way out there is no member to agree with.
        for member in self.members.values():
            offered &= member.protocol_names
        return bool(offered)

    def select_protocol(self) -> str:
        """Each member votes for the first of its protocols that all support. Of several with as many votes it is that
        which Java's HashMap shows first: it does not matter which, but that all coordinators agree."""
        candidates = self._candidates()
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = next(name for name, _ in member.protocols if name in candidates)
            votes[vote] = votes.get(vote, 0) + 1
        return max(hash_map_order(votes, java_hash), key=votes.__getitem__)

    def _read_subscriptions(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                # Version 0 is a prefix of all later ones, so that the coordinator need not know them.
                subscription, _ = ConsumerProtocolSubscription.decode(member.metadata(self.protocol_name), 2, 0)
                topics.update(subscription.topics)
        except DecodeError as error:
            logger.warning(
                "Group %s: subscriptions of protocol %s cannot be read: %s", self.group_id, self.protocol_name, error
            )
            return None
        return frozenset(topics)

    def is_subscribed(self, topic: str) -> bool:
        """When in doubt, yes."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER
        return topic in self.subscribed_topics

    def topics_changed(self, names: Collection[str]) -> None:
        """Classic groups do not look at topics: their members do."""

    # -- checks -------------------------------------------------------------------------------------------------------

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        if instance_id is not None:
            owner = self.static_members.get(instance_id)
            if owner is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if owner != member_id:
                logger.info(
                    "Group %s: member %s of instance %s is fenced by %s", self.group_id, member_id, instance_id, owner
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
        """Commits are good for every partition or for none (see ConsumerGroup.check_offset_commit)."""
        if generation < 0 and self.state is ClassicGroupState.EMPTY:
            # An admin client, or a consumer that assigns its partitions itself.
            return
        if generation >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if generation != self.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not transactional and self.state is not ClassicGroupState.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not transactional and self.state is ClassicGroupState.COMPLETING_REBALANCE:
            # The member knows the new generation and not yet its partitions.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Member epochs are those of consumer groups: Apache Kafka does not look at them here."""

    def check_delete(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_offset_delete(self) -> None:
        if self.state is not ClassicGroupState.EMPTY and self.protocol_type != CONSUMER:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def session_after_commit(self, member_id: str) -> int | None:
        """A consumer that commits is alive."""
        if self.state in (ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE):
            return self.members[member_id].session_timeout_ms
        return None

    def offsets_expire_from_ms(self) -> int | None:
        """When the retention of this group's offsets began: -1 at each one's commit, None never yet."""
        if self.protocol_type is not None:
            if self.state is ClassicGroupState.EMPTY:
                return self.state_timestamp_ms
            if (
                self.protocol_type == CONSUMER
                and self.subscribed_topics is not None
                and self.state is ClassicGroupState.STABLE
            ):
                # For topics to which no member subscribes any more.
                return -1
            return None
        return -1
