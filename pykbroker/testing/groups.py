"""`groups` of a broker or cluster: the list of its groups, and the end of a single member's session.

Responsible for the values of groups, for what users call, and for finding the timer of a session in the nodes of this
process. Not responsible for what the end of a session means (coordinator/group/).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pykbroker.testing.asynchronous import on_thread

if TYPE_CHECKING:
    from pykbroker.dispatch.services import BrokerServices

#: A topic and the index of a partition.
NamedIndex: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class InspectedMember:
    """`assignment`: topics with the index of a partition, sorted."""

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    assignment: tuple[NamedIndex, ...]


@dataclass(frozen=True, slots=True)
class InspectedGroup:
    """`type`: `classic`, `consumer` (KIP-848) or `share` (KIP-932). `state`: Kafka's word, `Stable`, `Empty`, ...
    `protocol`: the assignor."""

    group_id: str
    type: str
    state: str
    protocol: str
    members: tuple[InspectedMember, ...]


class Groups:
    """The groups of a broker or cluster: `broker.groups()` is their list."""

    def __init__(self, find: Callable[[], list[InspectedGroup]], end: Callable[[str, str], bool]) -> None:
        self._find = find
        self._end = end

    def __call__(self) -> list[InspectedGroup]:
        """Return all groups, sorted by their ids."""
        return self._find()

    def expire(self, group_id: str, member: str | InspectedMember) -> None:
        """End the session of one member, as if it had sent no heartbeat for the whole of its session time-out. Its id
        is in `broker.group(group_id).members`. Raises LookupError if no node has a session of this member."""
        member_id = member if isinstance(member, str) else member.member_id
        if not self._end(group_id, member_id):
            raise LookupError(no_session(group_id, member_id))

    expire_async = on_thread(expire)


class HasSessions(ABC):
    """A broker or cluster whose groups have members."""

    @abstractmethod
    def _end_session(self, group_id: str, member_id: str) -> bool:
        """End the session of a member of a group. Return False if there is none."""


def no_session(group_id: str, member_id: str) -> str:
    """Return the reason why no session ended."""
    return f"group {group_id} has no session of a member {member_id}"


def end_session(services: BrokerServices, group_id: str, member_id: str) -> bool:
    """End the session, if this node coordinates the group and has it. Runs on the broker loop of the node."""
    # Groups of all kinds have this timer.
    key = ("session", group_id, member_id)
    return any(host.ready and host.timers.end(key) for host in services.groups.coordinator.hosts())
