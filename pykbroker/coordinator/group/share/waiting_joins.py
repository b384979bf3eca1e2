"""Joins of a share group that wait for an assignment (share_step.py says why).

Responsible for the requests that wait, for their answers, and for the two timers: one that ends the wait of a join, and
one for the next target. Not responsible for whether a join has to wait (share_step.py).

Invariants: a request of a join is answered once. A member has a timer as long as a request of its join waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pykbroker.coordinator.group.share.share_group import ShareGroup
from pykbroker.coordinator.group.share.share_input import ShareInput
from pykbroker.coordinator.group.share.share_member import ShareMember
from pykbroker.coordinator.group.share.share_partition_states import SharePartitionStates
from pykbroker.coordinator.group.share.share_target import ShareTarget, written_target
from pykbroker.coordinator.measures import CountedEvent
from pykbroker.coordinator.result import Result, TimerKey, Token
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.share_group_heartbeat import Assignment, ShareGroupHeartbeatResponse, TopicPartitions

#: A join waits for this time beyond the assignment interval.
_GRACE_MS: Final = 200
#: The most requests of one member's join that wait. A further one is answered at once, and so are those that wait.
_MOST_WAITING: Final = 8


def join_timer(group_id: str, member_id: str) -> TimerKey:
    """The timer of a join that waits for an assignment."""
    return ("share-join", group_id, member_id)


def target_timer(group_id: str) -> TimerKey:
    """The timer of the next target that joins wait for."""
    return ("share-target", group_id)


def forget_waiting(group: ShareGroup, member_id: str, token: Token, result: Result) -> bool:
    """Let a request of a join no longer wait. Return False if it does not wait."""
    tokens = group.waiting.get(member_id, [])
    if token not in tokens:
        return False
    tokens.remove(token)
    if not tokens:
        del group.waiting[member_id]
        result.cancel_timer(join_timer(group.group_id, member_id))
    return True


class WaitingJoins:
    """The joins that wait, at one input to the group."""

    __slots__ = ("_input",)

    def __init__(self, share_input: ShareInput) -> None:
        self._input = share_input

    def is_coming(self, member: ShareMember, states: SharePartitionStates) -> bool:
        """Return True if partitions of the member's topics are being initialised."""
        return any(states.initializing_of(topic_id) for topic_id in self._input.topics.ids_of(member.topics))

    def may_be_assigned(self, member: ShareMember, states: SharePartitionStates) -> bool:
        return any(states.initialized_of(topic_id) for topic_id in self._input.topics.ids_of(member.topics))

    def wait(self, member_id: str, token: Token) -> bool:
        """Let a join wait. Return False if too many requests of it wait already. If the append is refused, the request
        is answered with the error."""
        group = self._input.group
        tokens = group.waiting.setdefault(member_id, [])
        if len(tokens) >= _MOST_WAITING:
            return False
        if not tokens:
            self._input.result.set_timer(
                join_timer(group.group_id, member_id), self._input.config.assignment_interval_ms + _GRACE_MS
            )
        tokens.append(token)

        def refused(error: ErrorCode, _now_ms: int) -> Result:
            result = Result()
            if forget_waiting(group, member_id, token, result):
                result.reply(token, ShareGroupHeartbeatResponse(error_code=error))
            return result

        self._input.if_refused(refused)
        return True

    def answer(self, member: ShareMember, tokens: Sequence[Token] = ()) -> None:
        """Answer all requests of the member's join that wait, and `tokens`."""
        waiting = self._input.group.waiting.pop(member.member_id, None)
        if waiting is not None:
            self._input.result.cancel_timer(join_timer(self._input.group.group_id, member.member_id))
        for token in (*(waiting or ()), *tokens):
            self._input.result.reply(token, heartbeat_response(self._input, member, with_assignment=True))

    def answer_all(self, target: ShareTarget, states: SharePartitionStates, *, but: str | None = None) -> None:
        """Answer the joins that have partitions in this target, and those that wait for none."""
        for member_id in list(self._input.group.waiting):
            member = self._input.group.members.get(member_id)
            if member_id == but or member is None:
                continue
            if target.of(member_id) or not self.is_coming(member, states):
                self.answer(self._input.take_target(member, target))

    def go_on(self, states: SharePartitionStates) -> None:
        """Compute a target for the joins that wait, now or when the assignment interval is over."""
        group = self._input.group
        if not group.waiting:
            return
        epoch = group.epoch
        if group.target_epoch >= epoch and group.has_unassigned_of(states, self._input.topics):
            epoch += 1
            self._input.write_epoch(epoch, group.metadata_hash)
            self._input.result.count(CountedEvent.SHARE_REBALANCE)
        if group.target_epoch < epoch and not self._input.may_compute_target():
            self.set_target_timer()
            return
        target = written_target(group)
        if target.epoch < epoch:
            target = self._input.compute_target(epoch, None, states)
        self.answer_all(target, states)

    def set_target_timer(self) -> None:
        group = self._input.group
        rest_ms = self._input.config.assignment_interval_ms - self._input.target_age_ms
        self._input.result.set_timer(target_timer(group.group_id), max(rest_ms, 0))

    def drop(self, member_id: str) -> None:
        """Answer the requests of a member that is removed."""
        waiting = self._input.group.waiting.pop(member_id, None)
        if waiting is None:
            return
        self._input.result.cancel_timer(join_timer(self._input.group.group_id, member_id))
        for token in waiting:
            self._input.result.reply(token, ShareGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))

    def overdue(self, member_id: str) -> None:
        """Answer a join with what there is."""
        group = self._input.group
        member = group.members.get(member_id)
        if member is None or member_id not in group.waiting:
            return
        states = group.known_states
        target = written_target(group)
        if target.epoch < group.epoch and self._input.may_compute_target():
            target = self._input.compute_target(group.epoch, None, states)
        self.answer(self._input.take_target(member, target))
        if target.epoch == group.epoch:
            self.answer_all(target, states)


def heartbeat_response(
    share_input: ShareInput, member: ShareMember, *, with_assignment: bool
) -> ShareGroupHeartbeatResponse:
    response = ShareGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=share_input.config.heartbeat_interval_ms,
    )
    if with_assignment:
        response.assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in member.assigned.items()
            ]
        )
    return response
