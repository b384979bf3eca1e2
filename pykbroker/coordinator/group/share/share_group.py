"""A share group (KIP-932) as a value: the content of its records, and the state that follows from them.

Responsible for the replayed state: members with their partitions, the target assignment, the epochs, and the share
partitions that have a state at a share coordinator. It also has the state that ListGroups shows, and the checks that
each kind of group has. Not responsible for changes by requests (share_step.py), for the records (share_records.py) nor
for the target (share_target.py).

    Empty     no members
    Stable    at least one member

A member has no partitions to give up first, because several members may fetch a partition. So there are no states
between. There are three epochs, as in a consumer group. The group epoch rises when members, subscriptions, topics or
the partitions that may be assigned change. The epoch of the target is the group epoch at the time of its computation. A
member has the epoch of the target that it has got.

Invariants: members, target, epochs and states change by replay alone (`update_…`, `remove_…`, `set_…`).
`topics_refresh_ms`, `refreshed_epoch`, `initializing_since_ms` and `waiting` are soft state. Each key of `waiting` is a
member, or becomes one when the records of its join are replayed. `_has_unassigned` follows from target, states,
subscribers and topics, and is None after each change of these.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final, NoReturn

from pykbroker.coordinator.group.contract import PartitionCheck
from pykbroker.coordinator.group.share.share_member import NO_PARTITIONS, SharedPartitions, ShareMember
from pykbroker.coordinator.group.share.share_partition_states import NO_STATES, SharePartitionStates
from pykbroker.coordinator.group.topics import GroupTopics
from pykbroker.coordinator.result import Token
from pykbroker_wire.errors import ErrorCode, KafkaError

#: The name of this kind of group in ListGroups, and its protocol type.
SHARE: Final = "share"


class ShareGroupState(Enum):
    """The values are the names that ListGroups and ShareGroupDescribe show."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroup:
    """The group as a value (see the module's docstring)."""

    __slots__ = (
        "_has_unassigned",
        "epoch",
        "group_id",
        "initializing_since_ms",
        "members",
        "metadata_hash",
        "refreshed_epoch",
        "states",
        "subscribers",
        "target",
        "target_epoch",
        "target_timestamp_ms",
        "topics_refresh_ms",
        "waiting",
    )

    kind: Final = SHARE
    protocol_type: Final = SHARE

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        #: the group epoch, and the hash of the topics in that epoch
        self.epoch = 1
        self.metadata_hash = 0
        #: the group epoch for which the target was computed, and when; at most `epoch`
        self.target_epoch = 1
        self.target_timestamp_ms = 0
        self.members: dict[str, ShareMember] = {}
        #: member id -> its part of the target
        self.target: dict[str, SharedPartitions] = {}
        #: topic name -> number of members that subscribe to it
        self.subscribers: dict[str, int] = {}
        #: None if the group has no record of them
        self.states: SharePartitionStates | None = None
        self._has_unassigned: bool | None = None
        #: soft state: the time at which the topics are looked at again, and the group epoch when it was set
        self.topics_refresh_ms = 0
        self.refreshed_epoch = 0
        #: soft state: topic id -> when share coordinators were asked last to initialise partitions of it
        self.initializing_since_ms: dict[bytes, int] = {}
        #: soft state: member id -> the requests of its join, which wait for an assignment
        self.waiting: dict[str, list[Token]] = {}

    # -- replay -------------------------------------------------------------------------------------------------------

    def set_epoch(self, epoch: int, metadata_hash: int) -> None:
        self.epoch = epoch
        self.metadata_hash = metadata_hash

    def set_target_epoch(self, epoch: int, timestamp_ms: int) -> None:
        self.target_epoch = epoch
        self.target_timestamp_ms = timestamp_ms

    def set_target(self, member_id: str, target: SharedPartitions | None) -> None:
        self._has_unassigned = None
        if target is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = target

    def set_states(self, states: SharePartitionStates | None) -> None:
        self.states = states
        self._has_unassigned = None
        initializing: Mapping[bytes, object] = {} if states is None else states.initializing
        for topic_id in [topic_id for topic_id in self.initializing_since_ms if topic_id not in initializing]:
            del self.initializing_since_ms[topic_id]

    def update_member(self, member: ShareMember) -> None:
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if old is None or old.topics != member.topics:
            _count(self.subscribers, () if old is None else old.topics, -1)
            _count(self.subscribers, member.topics, 1)
            self._has_unassigned = None

    def remove_member(self, member_id: str) -> None:
        old = self.members.pop(member_id, None)
        if old is not None:
            _count(self.subscribers, old.topics, -1)
            self._has_unassigned = None

    # -- questions ----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def newest_epoch(self) -> int:
        return self.epoch

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def known_states(self) -> SharePartitionStates:
        return NO_STATES if self.states is None else self.states

    def target_of(self, member_id: str) -> SharedPartitions:
        return self.target.get(member_id, NO_PARTITIONS)

    def has_unassigned(self, topics: GroupTopics) -> bool:
        """Return True if the partitions of a subscribed topic that may be assigned are not those of the target."""
        if self._has_unassigned is None:
            self._has_unassigned = self.has_unassigned_of(self.known_states, topics)
        return self._has_unassigned

    def has_unassigned_of(self, states: SharePartitionStates, topics: GroupTopics) -> bool:
        """Return what `has_unassigned` will return with these states.

        A topic that was deleted while the group had no coordinator may still have states. In Apache Kafka 4.3.1 each
        heartbeat then raises the group epoch if the topic was created anew."""
        assigned: dict[bytes, set[int]] = {}
        for target in self.target.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return any(
            found.name in self.subscribers
            and topics.id_of(found.name) == topic_id
            and assigned.get(topic_id, set()) != set(found.partitions)
            for topic_id, found in states.initialized.items()
        )

    def topics_are_stale(self, now_ms: int) -> bool:
        return now_ms >= self.topics_refresh_ms or self.epoch < self.refreshed_epoch

    def topics_changed(self, names: Collection[str]) -> None:
        """Let the next heartbeat look at all topics of the group, if the group subscribes to one of these."""
        if not self.subscribers.keys().isdisjoint(names):
            self.topics_refresh_ms = 0
            self._has_unassigned = None

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.subscribers

    def subscribers_after(self, old: ShareMember | None, new: ShareMember | None) -> dict[str, int]:
        """Return the subscribers of each topic after `old` has become `new`. None stands for a member that has not
        joined yet, or has left."""
        subscribers = dict(self.subscribers)
        _count(subscribers, () if old is None else old.topics, -1)
        _count(subscribers, () if new is None else new.topics, 1)
        return subscribers

    def member(self, member_id: str) -> ShareMember:
        """Return the member, or raise KafkaError."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def offsets_expire_from_ms(self) -> int | None:
        """Return None, because a share group has no offsets in `__consumer_offsets` and is kept when it is empty."""
        return None

    def session_after_commit(self, member_id: str) -> int | None:
        return None

    # -- checks -------------------------------------------------------------------------------------------------------

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool = False,
        api_version: int = 0,
    ) -> PartitionCheck | None:
        self._refuse_consumer()

    def check_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Do nothing, because the group has no offsets to fetch, and Apache Kafka answers with none."""

    def check_offset_delete(self) -> None:
        self._refuse_consumer()

    def _refuse_consumer(self) -> NoReturn:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")

    def check_delete(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)


def _count(subscribers: dict[str, int], topics: Collection[str], change: int) -> None:
    for topic in topics:
        count = subscribers.get(topic, 0) + change
        if count > 0:
            subscribers[topic] = count
        else:
            subscribers.pop(topic, None)
