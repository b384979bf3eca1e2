"""The requests of a member of a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Responsible for the effect of each request on the group: which answer is sent now, which request waits, which record is
written. Pure: requests come in as values, `Result` goes out. Not responsible for the phases of a rebalance
(rebalance.py), for the rules of the group (classic_group.py), offsets, nor for checks that need no group (service.py).
Sources: KIP-345 (static members), KIP-389 (group size), KIP-394 (member id round), KIP-814 (skip assignment).

The group is Stable as soon as its assignment is in the local log. Answers with the assignment are sent when it is
committed. If its append is refused, the waiting SyncGroups fail and another rebalance starts. A refused record of an
empty group loses nothing, because after a failover the former generation comes back and times out.

Unlike in Apache Kafka, each waiting request is answered, even if another request of the same member replaces it.
"""

from __future__ import annotations

import logging

from pykbroker.coordinator.group.classic.classic_answers import all_members, assignment_of, joined
from pykbroker.coordinator.group.classic.classic_group import ClassicGroup, ClassicGroupState
from pykbroker.coordinator.group.classic.classic_member import Member, Protocols
from pykbroker.coordinator.group.classic.classic_records import empty_group_record, group_record
from pykbroker.coordinator.group.classic.joining import (
    MEMBER_ID_REQUIRED_FROM,
    SKIP_ASSIGNMENT_FROM,
    UNKNOWN_MEMBER,
    Client,
    join_refused,
)
from pykbroker.coordinator.group.classic.protocol_selection import selected_protocol
from pykbroker.coordinator.group.classic.rebalance import Rebalance, session_timer, sync_timer
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.measures import CountedEvent
from pykbroker.coordinator.result import Result, TimerKey, Token
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykbroker_wire.messages.join_group import JoinGroupRequest
from pykbroker_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from pykbroker_wire.messages.sync_group import SyncGroupRequest

logger = logging.getLogger(__name__)


def _protocols(request: JoinGroupRequest) -> Protocols:
    return tuple((protocol.name, protocol.metadata) for protocol in request.protocols)


class ClassicStep:
    """One input to one group (a `Step`). It holds the values of the input and lives as long as it."""

    __slots__ = ("_rebalance", "group", "result", "settings")

    #: None, because a classic group changes its kind only when a member of that kind joins (migration.py).
    becomes = None

    def __init__(self, group: ClassicGroup, settings: GroupSettings, now_ms: int, result: Result) -> None:
        self.group = group
        self.settings = settings
        self.result = result
        self._rebalance = Rebalance(group, settings, now_ms, result)

    def resume(self) -> None:
        self._rebalance.resume()

    def timer(self, key: TimerKey, event: object) -> None:
        self._rebalance.timer(key, event)

    # -- JoinGroup ----------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, client: Client, token: Token) -> None:
        self._join(request, client, token)

    def join_new_group(self, request: JoinGroupRequest, client: Client, token: Token) -> None:
        """Let the first member join a group that did not exist before."""
        records_before = len(self.result.records)
        moved_on = self._join(request, client, token)
        if not moved_on and len(self.result.records) == records_before:
            # The group exists from now on, even for a coordinator that takes over before the group's first generation.
            self.result.records.append(empty_group_record(self.group))

    def _join(self, request: JoinGroupRequest, client: Client, token: Token) -> bool:
        """Return True if the join phase completed."""
        group = self.group
        member_id = request.member_id
        if not self._has_room_for(member_id):
            self._rebalance.drop(member_id, ErrorCode.GROUP_MAX_SIZE_REACHED)
            self._refuse(token, UNKNOWN_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED)
            # The refused member may be the last one that the others waited for. In Apache Kafka the others wait for the
            # timeout.
            return self._rebalance.complete_if_all_joined()
        if group.state is ClassicGroupState.DEAD:
            return self._refuse(token, member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not group.supports(request.protocol_type, (protocol.name for protocol in request.protocols)):
            return self._refuse(token, member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        instance_id = request.group_instance_id
        if member_id != UNKNOWN_MEMBER:
            return self._join_known(request, client, token)
        new_member_id = f"{client.client_id if instance_id is None else instance_id}-{client.member_suffix}"
        if instance_id is not None:
            if instance_id in group.static_members:
                return self._replace_static(request, client, new_member_id, token)
            return self._add(request, client, new_member_id, token)
        if client.api_version >= MEMBER_ID_REQUIRED_FROM:
            group.pending_join.add(new_member_id)
            self.result.set_timer(session_timer(group.group_id, new_member_id), request.session_timeout_ms)
            return self._refuse(token, new_member_id, ErrorCode.MEMBER_ID_REQUIRED)
        return self._add(request, client, new_member_id, token)

    def _refuse(self, token: Token, member_id: str, error: ErrorCode) -> bool:
        self.result.reply(token, join_refused(error, member_id))
        return False

    def _has_room_for(self, member_id: str) -> bool:
        group = self.group
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            # Only members with a waiting JoinGroup are counted. So a group shrinks after the limit was lowered, because
            # the last members to rejoin are refused.
            member = group.members.get(member_id)
            return (
                member is not None and member.awaiting_join is not None
            ) or group.awaiting_join_count < self.settings.max_size
        if group.state in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE):
            return member_id in group.members or len(group.members) < self.settings.max_size
        return True

    def _join_known(self, request: JoinGroupRequest, client: Client, token: Token) -> bool:
        group = self.group
        member_id = request.member_id
        if member_id in group.pending_join:
            if request.group_instance_id is not None:
                # Only dynamic members get ids in advance. Apache Kafka raises here and answers UNKNOWN_SERVER_ERROR.
                return self._refuse(token, member_id, ErrorCode.UNKNOWN_SERVER_ERROR)
            return self._add(request, client, member_id, token)
        try:
            group.check_member(member_id, request.group_instance_id)
        except KafkaError as error:
            return self._refuse(token, member_id, error.code)
        member = group.members[member_id]
        state = group.state
        if state is ClassicGroupState.PREPARING_REBALANCE:
            return self._update(member, request, token, f"{member_id} rejoined")
        if state is ClassicGroupState.COMPLETING_REBALANCE:
            if member.protocols != _protocols(request):
                return self._update(member, request, token, f"{member_id} changed its metadata")
            # The member may have missed the answer to its first JoinGroup.
            self.result.reply(token, joined(group, member))
            return False
        if state is ClassicGroupState.STABLE:
            if group.leader == member_id:
                return self._update(member, request, token, f"the leader {member_id} rejoined")
            if member.protocols != _protocols(request):
                return self._update(member, request, token, f"{member_id} changed its metadata")
            self.result.reply(token, joined(group, member))
            return False
        return self._refuse(token, member_id, ErrorCode.UNKNOWN_MEMBER_ID)

    def _add(self, request: JoinGroupRequest, client: Client, member_id: str, token: Token) -> bool:
        group = self.group
        member = Member(
            member_id,
            request.group_instance_id,
            client.client_id,
            client.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            _protocols(request),
        )
        member.is_new = True
        member.awaiting_join = token
        if group.state is ClassicGroupState.PREPARING_REBALANCE and group.previous_state is ClassicGroupState.EMPTY:
            group.member_added = True
        group.add(member, request.protocol_type)
        self._rebalance.expect_new(member_id)
        return self._rebalance.rebalance_or_complete(f"{member_id} joined with instance id {request.group_instance_id}")

    def _update(self, member: Member, request: JoinGroupRequest, token: Token, reason: str) -> bool:
        self._take_over(member, request, token)
        return self._rebalance.rebalance_or_complete(reason)

    def _take_over(self, member: Member, request: JoinGroupRequest, token: Token) -> None:
        """Make this JoinGroup the member's current one. An earlier one that waits is answered."""
        self._rebalance.answer_join(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.protocols = _protocols(request)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.awaiting_join = token

    # -- static members -----------------------------------------------------------------------------------------------

    def _replace_static(self, request: JoinGroupRequest, client: Client, new_member_id: str, token: Token) -> bool:
        """Replace a static member that comes back without its member id, because it was restarted, or because two
        processes use its instance id (KIP-345)."""
        group = self.group
        instance_id = request.group_instance_id
        assert instance_id is not None
        old = group.members[group.static_members[instance_id]]
        old_leader = group.leader
        logger.info(
            "Group %s: the member with instance id %s has joined again, and member id %s replaces %s",
            group.group_id,
            instance_id,
            new_member_id,
            old.member_id,
        )
        self._rebalance.answer_join(old, ErrorCode.FENCED_INSTANCE_ID, old.member_id)
        self._rebalance.answer_sync(old, ErrorCode.FENCED_INSTANCE_ID)
        member = group.replace_static(instance_id, new_member_id)
        self.result.cancel_timer(session_timer(group.group_id, old.member_id))
        self._rebalance.expect_heartbeat(member)
        self._take_over(member, request, token)
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            # The leader may be assigning partitions to the old id at this moment.
            return self._rebalance.prepare(f"instance {instance_id} returned as {new_member_id}")
        if group.state is not ClassicGroupState.STABLE:
            return self._rebalance.complete_if_all_joined()
        if selected_protocol(group.members.values()) != group.protocol_name:
            return self._rebalance.rebalance_or_complete(f"instance {instance_id} returned with other protocols")
        # Nothing changes for the other members. Write the new id to the log and give it the old assignment.
        member.awaiting_join = None
        is_leader = group.leader == new_member_id
        answer = joined(group, member)
        if client.api_version >= SKIP_ASSIGNMENT_FROM:
            if is_leader:
                answer.members = all_members(group)
                answer.skip_assignment = True
        else:
            # A client from before KIP-814 would compute an assignment if it got its own id as the leader. So it gets
            # the id of the former leader.
            answer.leader = old_leader or ""
        self.result.reply(token, answer)
        self.result.records.append(
            group_record(group, {other.member_id: other.assignment for other in group.members.values()})
        )
        self.result.append_failed = self._rebalance.later(lambda later, _error: _undo_replace(later, instance_id, old))
        return True

    # -- SyncGroup ----------------------------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, token: Token) -> None:
        group = self.group
        member = self._member_of(request)
        for asked, ours in ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol_name)):
            if asked is not None and ours is not None and asked != ours:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._synced(member)
        if group.state is ClassicGroupState.STABLE:
            self.result.reply(token, assignment_of(group, member))
            return
        assert group.state is ClassicGroupState.COMPLETING_REBALANCE
        self._rebalance.answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.awaiting_sync = token
        if group.leader == member.member_id:
            self._take_assignment({assignment.member_id: assignment.assignment for assignment in request.assignments})

    def _take_assignment(self, given: dict[str, bytes]) -> None:
        group = self.group
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        # The record is built before the state changes, because its time is the end of the join phase, as in Apache
        # Kafka.
        self.result.records.append(group_record(group, assignments))
        group.move_to(ClassicGroupState.STABLE, self._rebalance.now_ms)
        self.result.count(CountedEvent.CLASSIC_REBALANCE)
        for member in group.members.values():
            member.assignment = assignments[member.member_id]
            token = member.awaiting_sync
            if token is not None:
                member.awaiting_sync = None
                self.result.reply(token, assignment_of(group, member))
                self._rebalance.expect_heartbeat(member)
        generation = group.generation
        self.result.append_failed = self._rebalance.later(
            lambda later, error: _assignment_lost(later, generation, error)
        )

    def _synced(self, member: Member) -> None:
        group = self.group
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync:
            self.result.cancel_timer(sync_timer(group.group_id))

    # -- Heartbeat ----------------------------------------------------------------------------------------------------

    def classic_heartbeat(self, request: HeartbeatRequest, token: Token) -> None:
        self._rebalance.expect_heartbeat(self._member_of(request))
        rebalancing = self.group.state is ClassicGroupState.PREPARING_REBALANCE
        self.result.reply(
            token, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE)
        )

    def _member_of(self, request: SyncGroupRequest | HeartbeatRequest) -> Member:
        """Return the member that sent the request. Raises KafkaError if the request is not from a member of the present
        generation."""
        group = self.group
        if group.state is ClassicGroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return group.members[request.member_id]

    # -- LeaveGroup ---------------------------------------------------------------------------------------------------

    def classic_leave(self, request: LeaveGroupRequest, token: Token) -> None:
        group = self.group
        if group.state is ClassicGroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        answers: list[MemberResponse] = []
        left: list[str] = []
        for leaver in request.members:
            answer = MemberResponse(member_id=leaver.member_id, group_instance_id=leaver.group_instance_id)
            answers.append(answer)
            member_id = leaver.member_id
            instance_id = leaver.group_instance_id
            try:
                if member_id == UNKNOWN_MEMBER:
                    # An administrator names static members by instance id alone.
                    if instance_id is None or instance_id not in group.static_members:
                        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
                    member_id = group.static_members[instance_id]
                elif member_id not in group.pending_join:
                    group.check_member(member_id, instance_id)
            except KafkaError as error:
                answer.error_code = error.code
                continue
            left.append(member_id)
            self._rebalance.drop(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            logger.info("Group %s: member %s left: %s", group.group_id, member_id, leaver.reason or "no reason given")
        self.result.reply(token, LeaveGroupResponse(members=answers))
        if left:
            if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
                self._rebalance.prepare(f"{', '.join(left)} left")
            elif group.state is ClassicGroupState.PREPARING_REBALANCE:
                self._rebalance.complete_if_all_joined()


def _undo_replace(later: Rebalance, instance_id: str, old: Member) -> None:
    group = later.group
    new_member_id = group.static_members.get(instance_id)
    if new_member_id is None:
        return
    later.result.cancel_timer(session_timer(group.group_id, new_member_id))
    member = group.replace_static(instance_id, old.member_id)
    member.protocols = old.protocols
    member.rebalance_timeout_ms = old.rebalance_timeout_ms
    member.session_timeout_ms = old.session_timeout_ms
    later.expect_heartbeat(member)


def _assignment_lost(later: Rebalance, generation: int, error: ErrorCode) -> None:
    group = later.group
    if group.state is ClassicGroupState.STABLE and group.generation == generation:
        for member in group.members.values():
            member.assignment = b""
        later.assignment_lost(error)
