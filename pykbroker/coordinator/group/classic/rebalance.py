"""The rebalance of a classic group: its phases, the sessions of its members, and its timers.

Responsible for the order of a rebalance: which phase follows, which event ends it, which waiting request is answered.
Not responsible for the effect of a request (classic_step.py), nor for the rules of the group (classic_group.py). Pure:
timers come in as values, `Result` goes out. Sources: KIP-62 (rebalance timeout), KIP-134 (initial delay).

Unlike in Apache Kafka, each waiting request is answered, even if its member is dropped. A SyncGroup that waits when a
rebalance begins is answered too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pykbroker.coordinator.group.classic.classic_answers import joined
from pykbroker.coordinator.group.classic.classic_group import ClassicGroup, ClassicGroupState
from pykbroker.coordinator.group.classic.classic_member import Member
from pykbroker.coordinator.group.classic.classic_records import group_record
from pykbroker.coordinator.group.classic.joining import UNKNOWN_MEMBER, join_refused
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.result import Result, TimerKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.sync_group import SyncGroupResponse

logger = logging.getLogger(__name__)

#: After the assignment of a group could not be written, its rebalances are logged at DEBUG level for this time.
QUIET_MS = 60_000

#: A member that never received its id cannot heartbeat. If its JoinGroup waits for longer than this, the member is
#: dropped.
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


def session_timer(group_id: str, member_id: str) -> TimerKey:
    return ("session", group_id, member_id)


def join_timer(group_id: str) -> TimerKey:
    return ("join", group_id)


def sync_timer(group_id: str) -> TimerKey:
    return ("sync", group_id)


class Rebalance:
    """The rebalance of one group at one input. It lives as long as the input."""

    __slots__ = ("group", "now_ms", "result", "settings")

    def __init__(self, group: ClassicGroup, settings: GroupSettings, now_ms: int, result: Result) -> None:
        self.group = group
        self.settings = settings
        self.now_ms = now_ms
        self.result = result

    # -- phases -------------------------------------------------------------------------------------------------------

    def rebalance_or_complete(self, reason: str) -> bool:
        if self.group.can_rebalance:
            return self.prepare(reason)
        return self.complete_if_all_joined()

    def prepare(self, reason: str) -> bool:
        """Enter PreparingRebalance. Return True if that phase was over at once."""
        group = self.group
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
                if member.awaiting_sync is not None:
                    self.answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
                    # The end of its session was ignored while its request waited here, so a new session begins.
                    self.expect_heartbeat(member)
        group.pending_sync.clear()
        self.result.cancel_timer(sync_timer(group.group_id))
        group.move_to(ClassicGroupState.PREPARING_REBALANCE, self.now_ms)
        self._say("Group %s: a rebalance begins after generation %d: %s", group.group_id, group.generation, reason)
        if group.previous_state is not ClassicGroupState.EMPTY and group.all_joined:
            return self.complete_join()
        self._expect_joins()
        return False

    def assignment_lost(self, error: ErrorCode) -> None:
        """Begin a rebalance after the assignment could not be written. It is logged once a minute, because the members
        rejoin at once."""
        self.prepare(f"the assignment could not be written: {error.name}")
        if self.group.quiet_until_ms <= self.now_ms:
            self.group.quiet_until_ms = self.now_ms + QUIET_MS

    def _say(self, line: str, *args: object) -> None:
        logger.log(logging.DEBUG if self.now_ms < self.group.quiet_until_ms else logging.INFO, line, *args)

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

    def complete_if_all_joined(self) -> bool:
        group = self.group
        if (
            group.state is ClassicGroupState.PREPARING_REBALANCE
            and group.previous_state is not ClassicGroupState.EMPTY
            and group.all_joined
        ):
            return self.complete_join()
        return False

    def complete_join(self) -> bool:
        """Go on with the members that have joined, because all have rejoined or time is up."""
        group = self.group
        group_id = group.group_id
        self.result.cancel_timer(join_timer(group_id))
        for member in group.not_rejoined():
            if not member.is_static:
                logger.info("Group %s: member %s did not rejoin in time and is removed", group_id, member.member_id)
                self._forget(member.member_id)
        if group.members and not group.elect_joined_leader():
            # Only static members are left and all of them are away. Wait until they return or their sessions end.
            logger.warning(
                "Group %s: no member rejoined in time, so the rebalance waits for the static members", group_id
            )
            self.result.set_timer(join_timer(group_id), group.rebalance_timeout_ms)
            return False
        group.next_generation(self.now_ms)
        if group.state is ClassicGroupState.EMPTY:
            logger.info("Group %s: generation %d has no members", group_id, group.generation)
            self.result.records.append(group_record(group, {}))
            return True
        self._say("Group %s: generation %d has %d members", group_id, group.generation, len(group.members))
        for member in group.members.values():
            token = member.awaiting_join
            if token is not None:
                member.awaiting_join = None
                self.result.reply(token, joined(group, member))
            self.expect_heartbeat(member)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        self._expect_syncs()
        return True

    def _expect_syncs(self) -> None:
        group = self.group
        self.result.set_timer(sync_timer(group.group_id), group.rebalance_timeout_ms, group.generation)

    # -- sessions -----------------------------------------------------------------------------------------------------

    def expect_heartbeat(self, member: Member) -> None:
        self.result.set_timer(session_timer(self.group.group_id, member.member_id), member.session_timeout_ms)

    def expect_new(self, member_id: str) -> None:
        """Start the session of a member that has been in no generation yet and therefore sends no heartbeats."""
        self.result.set_timer(session_timer(self.group.group_id, member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)

    def _session_over(self, member_id: str) -> None:
        group = self.group
        if member_id in group.pending_join:
            logger.info(
                "Group %s: no client has joined in time with the member id %s, so the id is no longer valid",
                group.group_id,
                member_id,
            )
            group.remove(member_id)
            if group.state is ClassicGroupState.PREPARING_REBALANCE and group.all_joined:
                self.complete_join()
            return
        member = group.members.get(member_id)
        if member is None or member.excused_from_heartbeat:
            return
        logger.info("Group %s: member %s sent no heartbeat in time and is removed", group.group_id, member_id)
        self.drop(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
            self.prepare(f"{member_id} is gone")
        elif group.state is ClassicGroupState.PREPARING_REBALANCE and group.all_joined:
            self.complete_join()

    # -- timers -------------------------------------------------------------------------------------------------------

    def timer(self, key: TimerKey, event: object) -> None:
        kind = key[0]
        if kind == "session":
            self._session_over(key[2])
        elif kind == "sync":
            assert isinstance(event, int)
            self._sync_overdue(event)
        elif kind != "join":
            # The timer was set when this group was a consumer group.
            pass
        elif event is None:
            self._join_overdue()
        else:
            assert isinstance(event, tuple)
            self._initial_delay_over(*event)

    def _sync_overdue(self, generation: int) -> None:
        """Remove members that joined but did not ask for their assignment, because no member reads their partitions."""
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
        self.prepare(f"{', '.join(late)} did not sync in time")

    # -- groups of the consumer protocol ------------------------------------------------------------------------------

    def expect_heartbeats(self) -> None:
        """The session timer of every member starts now."""
        for member in self.group.members.values():
            self.expect_heartbeat(member)

    def give_way(self) -> None:
        """Answer all waiting requests, because the group becomes a consumer group, which its members must rejoin."""
        group = self.group
        for member in group.members.values():
            self.answer_join(member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            self.answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self.result.cancel_timer(join_timer(group.group_id))
        self.result.cancel_timer(sync_timer(group.group_id))
        before = self.result.append_failed

        def stay(error: ErrorCode, now_ms: int) -> Result:
            result = Result() if before is None else before(error, now_ms)
            Rebalance(group, self.settings, now_ms, result)._wait_again()
            return result

        self.result.append_failed = stay

    def _wait_again(self) -> None:
        """Wait again for the same requests, because the group stays a classic one."""
        group = self.group
        for member in group.members.values():
            if member.is_new:
                self.expect_new(member.member_id)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            self._expect_joins()
        elif group.pending_sync:
            self._expect_syncs()

    def unwritten(self, error: ErrorCode) -> None:
        """Answer the waiting requests with `error`, because the new group could not be written."""
        for member in self.group.members.values():
            self._drop_requests(member, error)
            self.result.cancel_timer(session_timer(self.group.group_id, member.member_id))
        self.result.cancel_timer(join_timer(self.group.group_id))

    # -- failover -----------------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Start the sessions of all members after loading, because no member has sent a request to this coordinator
        yet."""
        group = self.group
        group.take_up_stored()
        self.expect_heartbeats()
        if len(group.members) > self.settings.max_size:
            self.prepare(f"it has {len(group.members)} members, group.max.size is {self.settings.max_size}")

    # -- small things -------------------------------------------------------------------------------------------------

    def answer_join(self, member: Member, error: ErrorCode, member_id: str = UNKNOWN_MEMBER) -> None:
        token = member.awaiting_join
        if token is not None:
            member.awaiting_join = None
            self.result.reply(token, join_refused(error, member_id))

    def answer_sync(self, member: Member, error: ErrorCode) -> None:
        token = member.awaiting_sync
        if token is not None:
            member.awaiting_sync = None
            self.result.reply(token, SyncGroupResponse(error_code=error))

    def drop(self, member_id: str, error: ErrorCode) -> None:
        """Remove a member, or a member id that was given out (KIP-394). Its waiting requests are answered with
        `error`."""
        member = self.group.members.get(member_id)
        if member is not None:
            self._drop_requests(member, error)
        self._forget(member_id)

    def _drop_requests(self, member: Member, error: ErrorCode) -> None:
        self.answer_join(member, error)
        self.answer_sync(member, error)

    def _forget(self, member_id: str) -> None:
        self.group.remove(member_id)
        self.result.cancel_timer(session_timer(self.group.group_id, member_id))

    def later(self, action: Callable[[Rebalance, ErrorCode], None]) -> Callable[[ErrorCode, int], Result]:
        group, settings = self.group, self.settings

        def run(error: ErrorCode, now_ms: int) -> Result:
            result = Result()
            action(Rebalance(group, settings, now_ms, result), error)
            return result

        return run
