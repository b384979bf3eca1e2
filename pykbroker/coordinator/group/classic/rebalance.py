"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and what happens when time passes.

Responsible for the order of a rebalance: who waits, who is answered what, which record is written. Pure: requests and
timers come in as values, `Result` goes out. Not responsible for the rules of the group (classic_group.py), offsets, nor
for checks that need no group (service.py). Sources: KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345
(static members), KIP-389 (group size), KIP-394 (member id round), KIP-814 (skip assignment).

The assignment is Stable as soon as it is in the local log; the answers that carry it leave when it is committed. A
refused append of an assignment fails the parked SyncGroups and starts another rebalance; of an empty group nothing is
lost: after a failover the former generation comes back and times out.

Unlike Apache Kafka, no parked request is forgotten: a request that is superseded by another of the same member, or
whose member leaves while it awaits a sync, is answered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pykbroker.coordinator.group.classic.classic_group import ClassicGroup, ClassicGroupState, Member, Protocols
from pykbroker.coordinator.group.classic.classic_records import empty_group_record, group_record
from pykbroker.coordinator.group.classic.joining import (
    MEMBER_ID_REQUIRED_FROM,
    SKIP_ASSIGNMENT_FROM,
    UNKNOWN_MEMBER,
    Client,
    join_refused,
)
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.result import Result, TimerKey, Token
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykbroker_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from pykbroker_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from pykbroker_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

logger = logging.getLogger(__name__)

#: A member that was never told its id cannot heartbeat; if its JoinGroup is parked longer than this it is given up.
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


def session_timer(group_id: str, member_id: str) -> TimerKey:
    return ("session", group_id, member_id)


def join_timer(group_id: str) -> TimerKey:
    return ("join", group_id)


def sync_timer(group_id: str) -> TimerKey:
    return ("sync", group_id)


def _protocols(request: JoinGroupRequest) -> Protocols:
    return tuple((protocol.name, protocol.metadata) for protocol in request.protocols)


class Rebalance:
    """One input to one group (a `Step`). Holds what the input needs; lives as long as it."""

    __slots__ = ("group", "now_ms", "result", "settings")

    #: A classic group gives way to one of another kind only when a member of that kind comes (migration.py).
    becomes = None

    def __init__(self, group: ClassicGroup, settings: GroupSettings, now_ms: int, result: Result) -> None:
        self.group = group
        self.settings = settings
        self.now_ms = now_ms
        self.result = result

    # -- JoinGroup ----------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, client: Client, token: Token) -> None:
        self._join(request, client, token)

    def join_new_group(self, request: JoinGroupRequest, client: Client, token: Token) -> None:
        """The first member joins: there was no such group."""
        records_before = len(self.result.records)
        moved_on = self._join(request, client, token)
        if not moved_on and len(self.result.records) == records_before:
            # The group exists from now on, also for a coordinator that takes over before its first generation.
            self.result.records.append(empty_group_record(self.group))

    def _join(self, request: JoinGroupRequest, client: Client, token: Token) -> bool:
        """True when the join phase completed."""
        group = self.group
        member_id = request.member_id
        if not self._has_room_for(member_id):
            self._drop(member_id, ErrorCode.GROUP_MAX_SIZE_REACHED)
            self._refuse(token, UNKNOWN_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED)
            # It may have been the last that the others waited for; Apache Kafka lets them wait for the timeout.
            return self._complete_if_all_joined()
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
            # Counting those who wait lets a group shrink when the limit was lowered: the last to rejoin are out.
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
                # Ids are only given out ahead to dynamic members. Apache Kafka raises here and answers
                # UNKNOWN_SERVER_ERROR.
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
            # It may have missed the answer to its first JoinGroup.
            self.result.reply(token, self._joined(member))
            return False
        if state is ClassicGroupState.STABLE:
            if group.leader == member_id:
                return self._update(member, request, token, f"the leader {member_id} rejoined")
            if member.protocols != _protocols(request):
                return self._update(member, request, token, f"{member_id} changed its metadata")
            self.result.reply(token, self._joined(member))
            return False
        return self._refuse(token, member_id, ErrorCode.UNKNOWN_MEMBER_ID)

    def _joined(self, member: Member) -> JoinGroupResponse:
        """What a member hears at the end of the join phase; the leader also hears of all others."""
        group = self.group
        members: list[JoinGroupResponseMember] = []
        if group.leader == member.member_id and group.state is not ClassicGroupState.STABLE:
            members = self._all_members()
        return JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader or "",
            member_id=member.member_id,
            members=members,
        )

    def _all_members(self) -> list[JoinGroupResponseMember]:
        group = self.group
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(group.protocol_name),
            )
            for member in group.members.values()
        ]

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
        self._expect_new(member_id)
        return self._rebalance_or_complete(f"{member_id} joined with instance id {request.group_instance_id}")

    def _update(self, member: Member, request: JoinGroupRequest, token: Token, reason: str) -> bool:
        self._take_over(member, request, token)
        return self._rebalance_or_complete(reason)

    def _take_over(self, member: Member, request: JoinGroupRequest, token: Token) -> None:
        """The member's latest JoinGroup is the one that counts."""
        self._answer_join(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.protocols = _protocols(request)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.awaiting_join = token

    # -- static members -----------------------------------------------------------------------------------------------

    def _replace_static(self, request: JoinGroupRequest, client: Client, new_member_id: str, token: Token) -> bool:
        """A static member comes back without its member id: it was restarted, or there are two of it (KIP-345)."""
        group = self.group
        instance_id = request.group_instance_id
        assert instance_id is not None
        old = group.members[group.static_members[instance_id]]
        old_leader = group.leader
        logger.info(
            "Group %s: instance %s returns, %s replaces %s", group.group_id, instance_id, new_member_id, old.member_id
        )
        self._answer_join(old, ErrorCode.FENCED_INSTANCE_ID, old.member_id)
        self._answer_sync(old, ErrorCode.FENCED_INSTANCE_ID)
        member = group.replace_static(instance_id, new_member_id)
        self.result.cancel_timer(session_timer(group.group_id, old.member_id))
        self._expect_heartbeat(member)
        self._take_over(member, request, token)
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            # The leader may be assigning to the old id at this moment.
            return self._prepare(f"instance {instance_id} returned as {new_member_id}")
        if group.state is not ClassicGroupState.STABLE:
            return self._complete_if_all_joined()
        if group.select_protocol() != group.protocol_name:
            return self._rebalance_or_complete(f"instance {instance_id} returned with other protocols")
        # Nothing changes for the others: write the new id down and let it have its old assignment.
        member.awaiting_join = None
        is_leader = group.leader == new_member_id
        answer = self._joined(member)
        if client.api_version >= SKIP_ASSIGNMENT_FROM:
            if is_leader:
                answer.members = self._all_members()
                answer.skip_assignment = True
        else:
            # Before KIP-814 a leader that is told so would assign; it is told the name of the former leader instead.
            answer.leader = old_leader or ""
        self.result.reply(token, answer)
        self.result.records.append(
            group_record(group, {other.member_id: other.assignment for other in group.members.values()})
        )
        self.result.append_failed = self._later(lambda later, _error: later._undo_replace(instance_id, old))
        return True

    def _undo_replace(self, instance_id: str, old: Member) -> None:
        group = self.group
        new_member_id = group.static_members.get(instance_id)
        if new_member_id is None:
            return
        self.result.cancel_timer(session_timer(group.group_id, new_member_id))
        member = group.replace_static(instance_id, old.member_id)
        member.protocols = old.protocols
        member.rebalance_timeout_ms = old.rebalance_timeout_ms
        member.session_timeout_ms = old.session_timeout_ms
        self._expect_heartbeat(member)

    # -- phases -------------------------------------------------------------------------------------------------------

    def _rebalance_or_complete(self, reason: str) -> bool:
        if self.group.can_rebalance:
            return self._prepare(reason)
        return self._complete_if_all_joined()

    def _prepare(self, reason: str) -> bool:
        """Enter PreparingRebalance. True when that was over at once."""
        group = self.group
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
                if member.awaiting_sync is not None:
                    self._answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
                    # Its session may have ended while it was parked here, which was ignored.
                    self._expect_heartbeat(member)
        group.pending_sync.clear()
        self.result.cancel_timer(sync_timer(group.group_id))
        group.move_to(ClassicGroupState.PREPARING_REBALANCE, self.now_ms)
        logger.info("Group %s: rebalance after generation %d: %s", group.group_id, group.generation, reason)
        if group.previous_state is not ClassicGroupState.EMPTY and group.all_joined:
            return self.complete_join()
        self._expect_joins()
        return False

    def _expect_joins(self) -> None:
        group = self.group
        if group.previous_state is ClassicGroupState.EMPTY:
            # Members that start together get one rebalance instead of one each.
            delay_ms = self.settings.initial_rebalance_delay_ms
            self._wait_for_more(delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        else:
            self.result.set_timer(join_timer(group.group_id), group.rebalance_timeout_ms)

    def _join_overdue(self) -> None:
        if self.group.state is ClassicGroupState.PREPARING_REBALANCE:
            self.complete_join()

    def _wait_for_more(self, delay_ms: int, remaining_ms: int) -> None:
        self.result.set_timer(join_timer(self.group.group_id), delay_ms, (delay_ms, remaining_ms))

    def _initial_delay_over(self, delay_ms: int, remaining_ms: int) -> None:
        group = self.group
        if group.state is not ClassicGroupState.PREPARING_REBALANCE:
            return
        if group.member_added and remaining_ms != 0:
            group.member_added = False
            self._wait_for_more(
                min(self.settings.initial_rebalance_delay_ms, remaining_ms), max(remaining_ms - delay_ms, 0)
            )
        else:
            self.complete_join()

    def _complete_if_all_joined(self) -> bool:
        group = self.group
        if (
            group.state is ClassicGroupState.PREPARING_REBALANCE
            and group.previous_state is not ClassicGroupState.EMPTY
            and group.all_joined
        ):
            return self.complete_join()
        return False

    def complete_join(self) -> bool:
        """Everybody is here or time is up: go on with those who are here."""
        group = self.group
        group_id = group.group_id
        self.result.cancel_timer(join_timer(group_id))
        for member in group.not_rejoined():
            if not member.is_static:
                logger.info("Group %s: member %s did not rejoin in time", group_id, member.member_id)
                self._forget(member.member_id)
        if group.members and not group.elect_joined_leader():
            # Only static members, all of them away: wait until they return or their sessions end.
            logger.warning("Group %s: no member rejoined in time", group_id)
            self.result.set_timer(join_timer(group_id), group.rebalance_timeout_ms)
            return False
        group.next_generation(self.now_ms)
        if group.state is ClassicGroupState.EMPTY:
            logger.info("Group %s: generation %d is empty", group_id, group.generation)
            self.result.records.append(group_record(group, {}))
            return True
        logger.info("Group %s: generation %d has %d members", group_id, group.generation, len(group.members))
        for member in group.members.values():
            token = member.awaiting_join
            if token is not None:
                member.awaiting_join = None
                self.result.reply(token, self._joined(member))
            self._expect_heartbeat(member)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        self._expect_syncs()
        return True

    def _expect_syncs(self) -> None:
        group = self.group
        self.result.set_timer(sync_timer(group.group_id), group.rebalance_timeout_ms, group.generation)

    # -- SyncGroup ----------------------------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, token: Token) -> None:
        group = self.group
        if group.state is ClassicGroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        for asked, ours in ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol_name)):
            if asked is not None and ours is not None and asked != ours:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        member = group.members[request.member_id]
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._synced(member)
        if group.state is ClassicGroupState.STABLE:
            self.result.reply(token, self._assignment(member))
            return
        assert group.state is ClassicGroupState.COMPLETING_REBALANCE
        self._answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.awaiting_sync = token
        if group.leader == member.member_id:
            self._take_assignment({assignment.member_id: assignment.assignment for assignment in request.assignments})

    def _take_assignment(self, given: dict[str, bytes]) -> None:
        group = self.group
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        # Before the state changes: the record's time is that of the end of the join phase, as in Apache Kafka.
        self.result.records.append(group_record(group, assignments))
        group.move_to(ClassicGroupState.STABLE, self.now_ms)
        for member in group.members.values():
            member.assignment = assignments[member.member_id]
            token = member.awaiting_sync
            if token is not None:
                member.awaiting_sync = None
                self.result.reply(token, self._assignment(member))
                self._expect_heartbeat(member)
        generation = group.generation
        self.result.append_failed = self._later(lambda later, error: later._assignment_lost(generation, error))

    def _assignment_lost(self, generation: int, error: ErrorCode) -> None:
        group = self.group
        if group.state is ClassicGroupState.STABLE and group.generation == generation:
            for member in group.members.values():
                member.assignment = b""
            self._prepare(f"the assignment could not be written: {error.name}")

    def _assignment(self, member: Member) -> SyncGroupResponse:
        group = self.group
        return SyncGroupResponse(
            protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
        )

    def _synced(self, member: Member) -> None:
        group = self.group
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync:
            self.result.cancel_timer(sync_timer(group.group_id))

    def _sync_overdue(self, generation: int) -> None:
        """Members that joined and never asked for their assignment hold partitions that nobody reads."""
        group = self.group
        if (
            generation != group.generation
            or group.state not in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE)
            or not group.pending_sync
        ):
            return
        late = sorted(group.pending_sync)
        for member_id in late:
            self._forget(member_id)
        self._prepare(f"{', '.join(late)} did not sync in time")

    # -- Heartbeat ----------------------------------------------------------------------------------------------------

    def classic_heartbeat(self, request: HeartbeatRequest, token: Token) -> None:
        group = self.group
        if group.state is ClassicGroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        self._expect_heartbeat(group.members[request.member_id])
        rebalancing = group.state is ClassicGroupState.PREPARING_REBALANCE
        self.result.reply(
            token, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE)
        )

    def _expect_heartbeat(self, member: Member) -> None:
        self.result.set_timer(session_timer(self.group.group_id, member.member_id), member.session_timeout_ms)

    def _expect_new(self, member_id: str) -> None:
        """It has not been in a generation yet: it sends no heartbeats."""
        self.result.set_timer(session_timer(self.group.group_id, member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)

    def _session_over(self, member_id: str) -> None:
        group = self.group
        if member_id in group.pending_join:
            logger.info("Group %s: %s never joined with the id it was given", group.group_id, member_id)
            group.remove(member_id)
            if group.state is ClassicGroupState.PREPARING_REBALANCE and group.all_joined:
                self.complete_join()
            return
        member = group.members.get(member_id)
        if member is None or member.excused_from_heartbeat:
            return
        logger.info("Group %s: no heartbeat from member %s in time", group.group_id, member_id)
        self._drop(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
            self._prepare(f"{member_id} is gone")
        elif group.state is ClassicGroupState.PREPARING_REBALANCE and group.all_joined:
            self.complete_join()

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
            self._drop(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            logger.info("Group %s: %s left: %s", group.group_id, member_id, leaver.reason or "no reason given")
        self.result.reply(token, LeaveGroupResponse(members=answers))
        if left:
            if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
                self._prepare(f"{', '.join(left)} left")
            elif group.state is ClassicGroupState.PREPARING_REBALANCE:
                self._complete_if_all_joined()

    # -- timers -------------------------------------------------------------------------------------------------------

    def timer(self, key: TimerKey, event: object) -> None:
        kind = key[0]
        if kind == "session":
            self._session_over(key[2])
        elif kind == "sync":
            assert isinstance(event, int)
            self._sync_overdue(event)
        elif kind != "join":
            # Of the consumer group that this one was.
            pass
        elif event is None:
            self._join_overdue()
        else:
            assert isinstance(event, tuple)
            self._initial_delay_over(*event)

    # -- groups of the consumer protocol ------------------------------------------------------------------------------

    def expect_heartbeats(self) -> None:
        """The session timer of every member starts now."""
        for member in self.group.members.values():
            self._expect_heartbeat(member)

    def rebalance(self, reason: str) -> None:
        """Because of something that was no request of this protocol."""
        self._prepare(reason)

    def give_way(self) -> None:
        """The group becomes a consumer group: its members rejoin that one."""
        group = self.group
        for member in group.members.values():
            self._answer_join(member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            self._answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self.result.cancel_timer(join_timer(group.group_id))
        self.result.cancel_timer(sync_timer(group.group_id))
        before = self.result.append_failed

        def stay(error: ErrorCode, now_ms: int) -> Result:
            result = Result() if before is None else before(error, now_ms)
            Rebalance(group, self.settings, now_ms, result)._wait_again()
            return result

        self.result.append_failed = stay

    def _wait_again(self) -> None:
        """The group stays what it is, and so does what it waits for."""
        group = self.group
        for member in group.members.values():
            if member.is_new:
                self._expect_new(member.member_id)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            self._expect_joins()
        elif group.pending_sync:
            self._expect_syncs()

    def unwritten(self, error: ErrorCode) -> None:
        """The group never came to be: who waits for it hears why."""
        for member in self.group.members.values():
            self._drop_requests(member, error)
            self.result.cancel_timer(session_timer(self.group.group_id, member.member_id))
        self.result.cancel_timer(join_timer(self.group.group_id))

    # -- failover -----------------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """After loading: no member has been heard of yet."""
        group = self.group
        group.take_up_stored()
        self.expect_heartbeats()
        if len(group.members) > self.settings.max_size:
            self._prepare(f"it has {len(group.members)} members, group.max.size is {self.settings.max_size}")

    # -- small things -------------------------------------------------------------------------------------------------

    def _answer_join(self, member: Member, error: ErrorCode, member_id: str = UNKNOWN_MEMBER) -> None:
        token = member.awaiting_join
        if token is not None:
            member.awaiting_join = None
            self.result.reply(token, join_refused(error, member_id))

    def _answer_sync(self, member: Member, error: ErrorCode) -> None:
        token = member.awaiting_sync
        if token is not None:
            member.awaiting_sync = None
            self.result.reply(token, SyncGroupResponse(error_code=error))

    def _drop(self, member_id: str, error: ErrorCode) -> None:
        """Remove a member or an id that was given out; who waits for it hears why."""
        member = self.group.members.get(member_id)
        if member is not None:
            self._drop_requests(member, error)
        self._forget(member_id)

    def _drop_requests(self, member: Member, error: ErrorCode) -> None:
        self._answer_join(member, error)
        self._answer_sync(member, error)

    def _forget(self, member_id: str) -> None:
        self.group.remove(member_id)
        self.result.cancel_timer(session_timer(self.group.group_id, member_id))

    def _later(self, action: Callable[[Rebalance, ErrorCode], None]) -> Callable[[ErrorCode, int], Result]:
        group, settings = self.group, self.settings

        def run(error: ErrorCode, now_ms: int) -> Result:
            result = Result()
            action(Rebalance(group, settings, now_ms, result), error)
            return result

        return run
