"""Three small protocols that a kind of group implements for the shard. `group_kinds.py` has the table of the kinds
served.

A *group* is a value in the shard's one dict. It has the content of its records, answers the questions about any group
(ListGroups, DeleteGroups, committed offsets, expiry), and checks commits. A *step* is one input to one group: a timer
or a request of a member. It lives as long as the input and adds to one `Result`. A *kind* makes steps and replays its
records.

Requests of one protocol's own members (ConsumerGroupHeartbeat, ShareGroupHeartbeat) are not part of a step, because
each protocol has its operation in the shard. JoinGroup, SyncGroup, Heartbeat and LeaveGroup are part of a step, because
members of the classic protocol take part in groups of two kinds. A kind without such members refuses these requests (in
Apache Kafka INCONSISTENT_GROUP_PROTOCOL for JoinGroup, UNKNOWN_MEMBER_ID for the others).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from pykbroker.coordinator.result import CoordinatorRecord, Result, TimerKey, Token
from pykbroker_wire.primitives import TopLevel

if TYPE_CHECKING:
    from pykbroker.coordinator.group.classic.classic_group import ClassicGroup
    from pykbroker.coordinator.group.classic.joining import Client
    from pykbroker.coordinator.group.settings import GroupSettings
    from pykbroker.coordinator.group.topics import GroupTopics
    from pykbroker_wire.messages.heartbeat import HeartbeatRequest
    from pykbroker_wire.messages.join_group import JoinGroupRequest
    from pykbroker_wire.messages.leave_group import LeaveGroupRequest
    from pykbroker_wire.messages.sync_group import SyncGroupRequest

#: Members of the newer protocols get STALE_MEMBER_EPOCH from this version of TxnOffsetCommit on (KIP-1319).
STALE_TO_PRODUCERS_FROM: Final = 6

#: Takes (topic name, topic id, partition) and raises KafkaError if it may not be committed.
PartitionCheck = Callable[[str, bytes, int], None]


class Group(Protocol):
    """A group of any kind (see the module's docstring). A check raises KafkaError."""

    @property
    def group_id(self) -> str: ...
    @property
    def kind(self) -> str:
        """The name that ListGroups shows and filters by."""
        ...

    @property
    def newest_epoch(self) -> int:
        """The newest generation or epoch that the group may have given to a member."""
        ...

    @property
    def protocol_type(self) -> str | None: ...
    @property
    def state_name(self) -> str:
        """The name of the state in ListGroups."""
        ...

    @property
    def is_empty(self) -> bool:
        """True if the group has no members. It may then be deleted, and is removed when its offsets have expired."""
        ...

    def is_subscribed(self, topic: str) -> bool:
        """Return True if offsets of this topic are neither deleted nor expired, because the group subscribes to it."""
        ...

    def topics_changed(self, names: Collection[str]) -> None:
        """Note that these topics were created, deleted or changed. This changes soft state only, because the group
        looks at the topics at its next input."""
        ...

    def offsets_expire_from_ms(self) -> int | None:
        """Return the time at which the retention of the group's offsets began. -1 means that the retention of each
        offset begins at its commit, and None that no retention has begun."""
        ...

    def session_after_commit(self, member_id: str) -> int | None:
        """Return the session timeout of a member whose session an OffsetCommit renews, None if it renews none."""
        ...

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool = False,
        api_version: int = ...,
    ) -> PartitionCheck | None:
        """Return the check that each partition must pass, None if all partitions may be committed. `api_version` is
        that of OffsetCommit, or with `transactional` that of TxnOffsetCommit."""
        ...

    def check_offset_fetch(self, member_id: str | None, epoch: int) -> None: ...
    def check_offset_delete(self) -> None: ...
    def check_delete(self) -> None: ...


class Step(Protocol):
    """One input to one group (see the module's docstring)."""

    @property
    def becomes(self) -> ClassicGroup | None:
        """The classic group that replaces this one when the records of this input are replayed, because all members
        that stay use the classic protocol. None if the group keeps its kind."""
        ...

    def resume(self) -> None:
        """Begin soft state after loading, as after any failover."""
        ...

    def timer(self, key: TimerKey, event: object) -> None: ...

    def join(self, request: JoinGroupRequest, client: Client, token: Token) -> None: ...
    def sync(self, request: SyncGroupRequest, token: Token) -> None: ...
    def classic_heartbeat(self, request: HeartbeatRequest, token: Token) -> None: ...
    def classic_leave(self, request: LeaveGroupRequest, token: Token) -> None: ...


G = TypeVar("G", bound=Group, covariant=True)


@dataclass(slots=True, frozen=True, kw_only=True)
class GroupKind(Generic[G]):
    """One kind of group. Its methods take a group of any kind and assert that it is of this kind."""

    group: type[G]
    #: the types of its records' keys
    keys: tuple[type[TopLevel], ...]
    group_id_of_key: Callable[[TopLevel], str]
    #: Takes a group (None if there is none of this kind) and a record, and returns the group after the record. It is
    #: the only mutator of replicated state.
    replay_record: Callable[[G | None, CoordinatorRecord], G | None]
    #: returns the records that delete the group, without its offsets
    tombstones_of: Callable[[G], list[CoordinatorRecord]]
    #: returns the records that raise the generation or epoch of a group to a higher one
    raised_to: Callable[[G, int], list[CoordinatorRecord]]
    step_of: Callable[[G, GroupSettings, GroupTopics, int, Result], Step]

    def is_of(self, group: Group | None) -> bool:
        return isinstance(group, self.group)

    def replay(self, group: Group | None, record: CoordinatorRecord) -> Group | None:
        assert group is None or isinstance(group, self.group)
        return self.replay_record(group, record)

    def tombstones(self, group: Group) -> list[CoordinatorRecord]:
        assert isinstance(group, self.group)
        return self.tombstones_of(group)

    def raised(self, group: Group, epoch: int) -> list[CoordinatorRecord]:
        assert isinstance(group, self.group)
        return self.raised_to(group, epoch)

    def step(self, group: Group, settings: GroupSettings, topics: GroupTopics, now_ms: int, result: Result) -> Step:
        assert isinstance(group, self.group)
        return self.step_of(group, settings, topics, now_ms, result)
