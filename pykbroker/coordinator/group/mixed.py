"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (KIP-848, upgrade).

Responsible for translating. A JoinGroup is a heartbeat with all fields (the embedded subscription has topics, rack and
owned partitions), a generation is the member's epoch, and an assignment is the coordinator's, encoded in the embedded
protocol. No member waits for others, because each is asked to rejoin (REBALANCE_IN_PROGRESS) on its own when it has a
step to take towards its target. There is no leader. Not responsible for the steps themselves
(consumer/consumer_heartbeat.py).

A member that was asked to rejoin, or that has joined and does not sync, is removed after its rebalance timeout.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pykbroker.coordinator.group.classic.joining import MEMBER_ID_REQUIRED_FROM, UNKNOWN_MEMBER, Client, join_refused
from pykbroker.coordinator.group.consumer.consumer_group import CONSUMER
from pykbroker.coordinator.group.consumer.consumer_heartbeat import ConsumerStep
from pykbroker.coordinator.group.consumer.consumer_member import ClassicMetadata, ConsumerMember, MemberState
from pykbroker.coordinator.group.consumer.reconcile import Goal, Owned
from pykbroker.coordinator.group.consumer.timer_keys import rejoin_timer, resync_timer, session_timer
from pykbroker.coordinator.group.migration import can_downgrade, read_subscription, to_classic, write_assignment
from pykbroker.coordinator.group.settings import Migration
from pykbroker.coordinator.result import Token
from pykbroker_wire.errors import DecodeError, ErrorCode, KafkaError
from pykbroker_wire.messages.consumer_protocol import ConsumerProtocolSubscription
from pykbroker_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykbroker_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from pykbroker_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from pykbroker_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

logger = logging.getLogger(__name__)

_UNREADABLE = "Group %s: the subscription of member %s cannot be read: %s"


class MixedStep(ConsumerStep):
    """One input to a consumer group that may have members of the classic protocol."""

    __slots__ = ()

    # -- groups without members of the new protocol -------------------------------------------------------------------

    def gives_way_without(self, leaving: Sequence[ConsumerMember]) -> bool:
        """Turn the group into a classic group if all members that stay use the classic protocol."""
        group = self.group
        if not can_downgrade(group, leaving, self.settings):
            return False
        try:
            self.becomes = to_classic(group, self.topics, self.settings, self.now_ms, self.result, leaving=leaving)
        except KafkaError as error:
            # The members that leave are removed, even if the group stays a consumer group.
            logger.warning("Group %s stays a consumer group: %s", group.group_id, error)
            return False
        return True

    # -- JoinGroup ----------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, client: Client, token: Token) -> None:
        group = self.group
        if self.settings.migration is Migration.DISABLED:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        is_unknown = request.member_id == UNKNOWN_MEMBER
        member_id = client.member_suffix if is_unknown else request.member_id
        instance_id = request.group_instance_id
        self.check_room(member_id)
        if not group.supports_classic(request.protocol_type, [protocol.name for protocol in request.protocols]):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if is_unknown and instance_id is None and client.api_version >= MEMBER_ID_REQUIRED_FROM:
            self.result.reply(token, join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id))
            return
        replaced = group.static_member(instance_id)
        if instance_id is None:
            member = group.members.get(member_id) or ConsumerMember(member_id)
        else:
            member = self.static_member(member_id, instance_id, joins=is_unknown, classic=True, epoch=-1, owned=None)
        downgrade = (
            replaced is not None
            and replaced.classic is None
            and can_downgrade(group, [replaced], self.settings, joining=1)
        )
        subscription = _subscription(request)
        updated = _updated(member, request, subscription, client)
        changed = self.write_member(member, updated)
        # If regular expressions of other members are due, they are resolved too, with the rights of this client.
        regex = self.regexes.update(member, updated, client.may_describe)
        changed = changed or regex.changed
        epoch = group.epoch
        if changed or group.topics_are_stale(self.now_ms):
            epoch = self.refresh_epoch(member, updated, bump=changed)
        owned = self._owned(subscription)
        if downgrade:
            rebalance = group.target_epoch < epoch
            if not rebalance:
                target = group.target_of(updated.member_id, updated.instance_id)
                updated = self.reconcile(updated, Goal(group.target_epoch, target, changed), owned)
            self.becomes = to_classic(
                group, self.topics, self.settings, self.now_ms, self.result, joining=updated, rebalance=rebalance
            )
        else:
            target_epoch, target = self.update_target(epoch, member, updated)
            updated = self.reconcile(updated, Goal(target_epoch, target, changed), owned)
            group_id = group.group_id
            self.result.cancel_timer(rejoin_timer(group_id, updated.member_id))
            group.rejoin_timers.discard(updated.member_id)
            self.result.set_timer(session_timer(group_id, updated.member_id), request.session_timeout_ms)
            self.result.set_timer(resync_timer(group_id, updated.member_id), request.rebalance_timeout_ms)
            self.regexes.start()
        self.result.reply(
            token,
            JoinGroupResponse(
                generation_id=updated.epoch,
                protocol_type=CONSUMER,
                protocol_name=request.protocols[0].name,
                member_id=updated.member_id,
            ),
        )

    def _owned(self, subscription: ConsumerProtocolSubscription) -> Owned:
        return [
            (topic_id, owned.partitions)
            for owned in subscription.owned_partitions
            if (topic_id := self.topics.id_of(owned.topic)) is not None
        ]

    # -- SyncGroup ----------------------------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, token: Token) -> None:
        group = self.group
        member, metadata = self._classic_member(request)
        name, subscription = metadata.protocols[0]
        if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, name):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_rejoin(member)
            self.result.reply(token, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
            return
        self.result.cancel_timer(resync_timer(group.group_id, member.member_id))
        self.result.set_timer(session_timer(group.group_id, member.member_id), metadata.session_timeout_ms)
        try:
            assignment = write_assignment(member.assigned.items(), self.topics, subscription)
        except DecodeError as error:
            logger.warning(_UNREADABLE, group.group_id, member.member_id, error)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
        self.result.reply(
            token,
            SyncGroupResponse(
                protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
            ),
        )

    # -- Heartbeat ----------------------------------------------------------------------------------------------------

    def classic_heartbeat(self, request: HeartbeatRequest, token: Token) -> None:
        group = self.group
        member, metadata = self._classic_member(request)
        self.result.set_timer(session_timer(group.group_id, member.member_id), metadata.session_timeout_ms)
        has_news = (
            member.epoch < group.target_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
        )
        if has_news:
            self._expect_rejoin(member)
        self.result.reply(
            token, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if has_news else ErrorCode.NONE)
        )

    def _expect_rejoin(self, member: ConsumerMember) -> None:
        """Start the rejoin timer when a member is asked to rejoin for the first time."""
        group = self.group
        if member.member_id not in group.rejoin_timers:
            group.rejoin_timers.add(member.member_id)
            self.result.set_timer(rejoin_timer(group.group_id, member.member_id), member.rebalance_timeout_ms)

    def _classic_member(self, request: SyncGroupRequest | HeartbeatRequest) -> tuple[ConsumerMember, ClassicMetadata]:
        group = self.group
        member_id, instance_id = request.member_id, request.group_instance_id
        if instance_id is None:
            member = group.member(member_id)
        else:
            member = self.check_static(group.static_member(instance_id), member_id, instance_id)
        if member.classic is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
        if request.generation_id != member.epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return member, member.classic

    # -- LeaveGroup ---------------------------------------------------------------------------------------------------

    def classic_leave(self, request: LeaveGroupRequest, token: Token) -> None:
        """Remove members, also those of the consumer protocol, because administrators remove them in this way."""
        answers: list[MemberResponse] = []
        left: dict[str, ConsumerMember] = {}
        for leaver in request.members:
            answer = MemberResponse(member_id=leaver.member_id, group_instance_id=leaver.group_instance_id)
            answers.append(answer)
            try:
                member = self._leaver(leaver)
            except KafkaError as error:
                answer.error_code = error.code
                continue
            logger.info(
                "Group %s: member %s left: %s",
                self.group.group_id,
                member.member_id,
                leaver.reason or "no reason given",
            )
            left[member.member_id] = member
        self.fence(list(left.values()))
        self.result.reply(token, LeaveGroupResponse(members=answers))

    def _leaver(self, leaver: MemberIdentity) -> ConsumerMember:
        if leaver.group_instance_id is None:
            return self.group.member(leaver.member_id)
        member = self.group.static_member(leaver.group_instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if leaver.member_id != UNKNOWN_MEMBER:
            self.check_fenced(member, leaver.member_id, leaver.group_instance_id)
        return member


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    try:
        return read_subscription(request.protocols[0].metadata)
    except DecodeError as error:
        logger.warning(_UNREADABLE, request.group_id, request.member_id, error)
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from None


def _updated(
    member: ConsumerMember, request: JoinGroupRequest, subscription: ConsumerProtocolSubscription, client: Client
) -> ConsumerMember:
    return member._replace(
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        topics=frozenset(subscription.topics),
        regex="",
        client_id=client.client_id,
        client_host=client.client_host,
        classic=ClassicMetadata(
            request.session_timeout_ms,
            tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        ),
    )
