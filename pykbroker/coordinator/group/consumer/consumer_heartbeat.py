"""ConsumerGroupHeartbeat (KIP-848): join, heartbeat, leave, and the timers of members.

Responsible for the order of one input: the order of checks, the order of records, and the answer. Pure: requests and
timers come in as values, `Result` goes out. Not responsible for members of the classic protocol (mixed.py), for turning
groups into groups of the other kind (migration.py), for finding the topics of regular expressions (resolving.py), nor
for checks that need no group (service.py).

Unlike in Apache Kafka, the answer has a member's whole assignment if its heartbeat comes on another connection than the
one on which its last assignment was sent.

A heartbeat takes these steps, each of which may write a record:

1. the member with its new values;
2. its regular expression;
3. the group epoch, if subscriptions or topics changed;
4. the target assignment, if the group epoch is ahead of it (but not more often than
   group.consumer.assignment.interval.ms);
5. the member's next step towards its target.

All decisions read the group as it is, and replaying the records changes it. Timers and `refresh_…` are soft state. They
run ahead of the log, and after a refused append they still let the next heartbeat decide the same again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pykbroker.coordinator.group.consumer.assign import ASSIGNORS
from pykbroker.coordinator.group.consumer.consumer_group import ConsumerGroup, DeadlineAndEpoch
from pykbroker.coordinator.group.consumer.consumer_member import (
    LEAVE_STATIC_EPOCH,
    NO_TARGET,
    NOTHING,
    AssignedPartitions,
    ConsumerMember,
    MemberState,
    TargetAssignment,
)
from pykbroker.coordinator.group.consumer.consumer_records import (
    current_record,
    epoch_record,
    member_record,
    partition_metadata_tombstone,
    regex_tombstone,
    removed_member,
    target_epoch_record,
    target_record,
)
from pykbroker.coordinator.group.consumer.reconcile import Goal, Owned, next_step
from pykbroker.coordinator.group.consumer.resolving import FoundTopics, RegexResolving
from pykbroker.coordinator.group.consumer.target import compute_target
from pykbroker.coordinator.group.consumer.timer_keys import (
    rebalance_timer,
    rejoin_timer,
    resync_timer,
    session_timer,
)
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.group.topics import GroupTopics
from pykbroker.coordinator.measures import CountedEvent
from pykbroker.coordinator.result import AppendFailed, Result, TimerKey, Token
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)

if TYPE_CHECKING:
    from pykbroker.coordinator.group.classic.classic_group import ClassicGroup

logger = logging.getLogger(__name__)

#: After this time a group looks at its topics again, even if the metadata reports no change of them.
_TOPICS_REFRESH_MS: Final = 2**31 - 1
_RETRY_MS: Final = 500


class ConsumerClient(NamedTuple):
    """The sender of a request. `new_member_id` is a new uuid for the case that an id is needed."""

    client_id: str
    client_host: str
    new_member_id: str
    #: returns True for topics that the client may describe; a regular expression matches only these
    may_describe: Callable[[str], bool]
    #: the connection on which the request came, None if it is unknown
    connection: int | None = None


class ConsumerStep:
    """One input to one consumer group (a `Step`, with mixed.py). It holds the values of the input and lives as long as
    it."""

    __slots__ = ("becomes", "group", "now_ms", "regexes", "result", "settings", "topics")

    def __init__(
        self, group: ConsumerGroup, settings: GroupSettings, topics: GroupTopics, now_ms: int, result: Result
    ) -> None:
        self.group = group
        self.settings = settings
        self.topics = topics
        self.now_ms = now_ms
        self.result = result
        #: the classic group that replaces `group` once the records of this input are replayed (mixed.py)
        self.becomes: ClassicGroup | None = None
        self.regexes = RegexResolving(group, settings, topics, now_ms, result)

    # -- join and heartbeat -------------------------------------------------------------------------------------------

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, client: ConsumerClient, token: Token) -> None:
        """A member joins with `member_epoch` 0 and continues with any other epoch."""
        group = self.group
        group_id = group.group_id
        joins = request.member_epoch == 0
        member_id = request.member_id
        self.check_room(member_id)
        member_id = member_id or client.new_member_id
        owned: Owned = None
        if request.topic_partitions is not None:
            owned = [(topic.topic_id, topic.partitions) for topic in request.topic_partitions]
        if request.instance_id is None:
            member = self._dynamic_member(member_id, request.member_epoch, owned, joins=joins)
        else:
            member = self.static_member(
                member_id, request.instance_id, joins=joins, classic=False, epoch=request.member_epoch, owned=owned
            )
        updated = _updated(member, request, client)
        changed = self.write_member(member, updated)
        regex = self.regexes.update(member, updated, client.may_describe)
        epoch = group.epoch
        bump = changed or regex.resolved or self._assignor_changes(member, updated)
        if bump or group.topics_are_stale(self.now_ms):
            epoch = self.refresh_epoch(member, updated, bump=bump)
        target_epoch, target = self.update_target(epoch, member, updated)
        updated = self.reconcile(updated, Goal(target_epoch, target, changed or regex.changed), owned)
        config = self.settings.consumer_config(group_id)
        self.result.set_timer(session_timer(group_id, updated.member_id), config.session_timeout_ms)
        self.regexes.start()
        response = ConsumerGroupHeartbeatResponse(
            member_id=updated.member_id,
            member_epoch=updated.epoch,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
        )
        is_full = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and owned is not None
        )
        if (
            joins
            or is_full
            or member.assigned != updated.assigned
            or self._may_have_missed_its_assignment(updated.member_id, client)
        ):
            response.assignment = _assignment(updated.assigned)
            self._note_answer(updated.member_id, client)
        self.result.reply(token, response)

    def _may_have_missed_its_assignment(self, member_id: str, client: ConsumerClient) -> bool:
        """Return True if another connection or another coordinator sent the last assignment. Apache Kafka has no such
        check, so a client that sends only changes never gets the assignment again (docs/decisions/0015)."""
        return client.connection is not None and self.group.answered_on.get(member_id) != client.connection

    def _note_answer(self, member_id: str, client: ConsumerClient) -> None:
        if client.connection is None:
            return
        answered_on = self.group.answered_on
        answered_on[member_id] = client.connection
        before = self.result.append_failed

        def not_answered(error: ErrorCode, now_ms: int) -> Result:
            answered_on.pop(member_id, None)
            return Result() if before is None else before(error, now_ms)

        self.result.append_failed = not_answered

    def check_room(self, member_id: str) -> None:
        group = self.group
        limit = self.settings.consumer_max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def _dynamic_member(self, member_id: str, epoch: int, owned: Owned, *, joins: bool) -> ConsumerMember:
        group = self.group
        if joins and member_id not in group.members:
            self.result.tell(logger, "Group %s: member %s joins", group.group_id, member_id)
            return ConsumerMember(member_id)
        member = group.member(member_id)
        _check_epoch(member, epoch, owned)
        return member

    def static_member(
        self, member_id: str, instance_id: str, *, joins: bool, classic: bool, epoch: int, owned: Owned
    ) -> ConsumerMember:
        group = self.group
        existing = group.static_member(instance_id)
        if not joins:
            existing = self.check_static(existing, member_id, instance_id)
            if not classic:
                _check_epoch(existing, epoch, owned)
            return existing
        if existing is None:
            self.result.tell(logger, "Group %s: member %s of instance %s joins", group.group_id, member_id, instance_id)
            return group.members.get(member_id) or ConsumerMember(member_id)
        if not classic and existing.classic is None and existing.epoch != LEAVE_STATIC_EPOCH:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
                f"instance id is owned by {existing.member_id} member.",
            )
        self.result.tell(
            logger,
            "Group %s: the member with instance id %s has joined again, and member id %s replaces %s",
            group.group_id,
            instance_id,
            member_id,
            existing.member_id,
        )
        member = existing._replace(member_id=member_id, epoch=0, previous_epoch=0)
        # The old member id is removed with its timers, and the new id gets the member's state.
        self.forget(existing.member_id)
        self._watch_again_if_refused()
        records = self.result.records
        records += removed_member(group.group_id, existing.member_id)
        records.append(member_record(group.group_id, member))
        records.append(target_record(group.group_id, member_id, group.target.get(existing.member_id, NO_TARGET)))
        records.append(current_record(group.group_id, member))
        return member

    def check_static(self, existing: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
        if existing is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        self.check_fenced(existing, member_id, instance_id)
        return existing

    def check_fenced(self, existing: ConsumerMember, member_id: str, instance_id: str) -> None:
        if existing.member_id != member_id:
            logger.info(
                "Group %s: member %s is fenced, because its instance id %s belongs to member %s now",
                self.group.group_id,
                member_id,
                instance_id,
                existing.member_id,
            )
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {existing.member_id}.",
            )

    # -- steps, which mixed.py takes as well --------------------------------------------------------------------------

    def write_member(self, member: ConsumerMember, updated: ConsumerMember) -> bool:
        """Write the member's record if it changed. Return True if it subscribes to other names than before."""
        if updated == member:
            return False
        self.result.records.append(member_record(self.group.group_id, updated))
        return updated.topics != member.topics

    def _assignor_changes(self, member: ConsumerMember, updated: ConsumerMember) -> bool:
        """Return True if the group gets another assignor by this change of a member, so that a new target is due. In
        Apache Kafka this is so from 4.4 on."""
        if updated.assignor == member.assignor:
            return False
        default = self.settings.consumer_assignors[0]
        subscriptions = self.group.subscriptions
        after = subscriptions.preferred_assignor(default, member, updated)
        return after != subscriptions.preferred_assignor(default)

    def refresh_epoch(self, member: ConsumerMember, updated: ConsumerMember, *, bump: bool) -> int:
        """Return the group epoch, which rises if the topics changed, or if a new target is due for another reason
        (`bump`)."""
        group = self.group
        epoch = group.epoch
        metadata_hash = self.topics.metadata_hash(group.subscriptions.after(member, updated))
        if bump or metadata_hash != group.metadata_hash:
            epoch += 1
            self._write_epoch(epoch, metadata_hash)
            self.result.count(CountedEvent.CONSUMER_REBALANCE)
        self._topics_are_fresh(epoch)
        if group.has_partition_metadata:
            self.result.records.append(partition_metadata_tombstone(group.group_id))
        return epoch

    def _topics_are_fresh(self, epoch: int) -> None:
        self.group.topics_refresh = DeadlineAndEpoch(self.now_ms + _TOPICS_REFRESH_MS, epoch)

    def _write_epoch(self, epoch: int, metadata_hash: int) -> None:
        self.result.records.append(epoch_record(self.group.group_id, epoch, metadata_hash))
        self.result.tell(
            logger,
            "Group %s: the group epoch is %d now, with metadata hash %d",
            self.group.group_id,
            epoch,
            metadata_hash,
        )

    def update_target(
        self, epoch: int, member: ConsumerMember, updated: ConsumerMember
    ) -> tuple[int, TargetAssignment]:
        """Return the epoch of the target assignment, and the part of it that belongs to `updated`."""
        group = self.group
        if group.target_epoch >= epoch or not self._may_compute_target():
            return group.target_epoch, group.target_of(updated.member_id, updated.instance_id)
        name = group.subscriptions.preferred_assignor(self.settings.consumer_assignors[0], member, updated)
        records, target = compute_target(group, epoch, updated, ASSIGNORS[name], self.topics, self.now_ms)
        self.result.tell(
            logger, "Group %s: the target assignment of epoch %d was made by assignor %s", group.group_id, epoch, name
        )
        self.result.records += records
        return epoch, target

    def _may_compute_target(self) -> bool:
        """Return False for a while after the last target, so that members that start together get one target. If the
        clock was set back, or the clock of a new coordinator is behind, the group does not wait until it reaches the
        old time."""
        interval_ms = self.settings.consumer_config(self.group.group_id).assignment_interval_ms
        last_ms = self.group.target_timestamp_ms
        return last_ms == 0 or not 0 <= self.settings.jumps().age_ms(self.now_ms, last_ms) < interval_ms

    def reconcile(self, member: ConsumerMember, goal: Goal, owned: Owned) -> ConsumerMember:
        if not goal.subscription_changed and member.is_reconciled_to(goal.target_epoch):
            return member
        group_id = self.group.group_id
        updated = next_step(self.group, member, goal, owned, self.topics)
        if updated == member:
            return member
        self.result.records.append(current_record(group_id, updated))
        if updated.classic is None:
            if updated.state is MemberState.UNREVOKED_PARTITIONS:
                self._expect_revocation(updated)
            else:
                self.result.cancel_timer(rebalance_timer(group_id, updated.member_id))
        return updated

    def _expect_revocation(self, member: ConsumerMember) -> None:
        self.result.set_timer(
            rebalance_timer(self.group.group_id, member.member_id), member.rebalance_timeout_ms, member.epoch
        )

    # -- leave --------------------------------------------------------------------------------------------------------

    def leave(self, request: ConsumerGroupHeartbeatRequest, token: Token) -> None:
        """`member_epoch` -1 leaves for good, -2 lets a static member leave until it comes back."""
        group = self.group
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        instance_id = request.instance_id
        if instance_id is None:
            member = group.member(request.member_id)
        else:
            member = self.check_static(group.static_member(instance_id), request.member_id, instance_id)
            if request.member_epoch == LEAVE_STATIC_EPOCH:
                self.result.tell(
                    logger,
                    "Group %s: member %s with instance id %s has left and may come back",
                    group.group_id,
                    member.member_id,
                    instance_id,
                )
                away = member._replace(
                    epoch=LEAVE_STATIC_EPOCH,
                    assigned={topic_id: dict.fromkeys(numbers, 0) for topic_id, numbers in member.assigned.items()},
                    revoking=NOTHING,
                )
                self.result.records.append(current_record(group.group_id, away))
                self.result.reply(token, response)
                return
        self.result.tell(logger, "Group %s: member %s left", group.group_id, member.member_id)
        self.fence([member])
        self.result.reply(token, response)

    def fence(self, members: Sequence[ConsumerMember]) -> None:
        """Remove these members. The other members get their partitions at their next heartbeats."""
        if not members:
            return
        group = self.group
        group_id = group.group_id
        result = self.result
        self._watch_again_if_refused()
        if self.gives_way_without(members):
            return
        for member in members:
            result.records += removed_member(group_id, member.member_id)
        counts: dict[str, int] = {}
        for member in members:
            if member.regex:
                counts[member.regex] = counts.get(member.regex, 0) + 1
        gone = [regex for regex, count in counts.items() if group.subscriptions.regexes.get(regex) == count]
        result.records += (regex_tombstone(group_id, regex) for regex in gone)
        epoch = group.epoch + 1
        self._write_epoch(epoch, self.topics.metadata_hash(group.subscriptions.without(members, gone)))
        if len(members) == len(group.members):
            # The target of an empty group is up to date. Without a time the next member gets its target at once.
            result.records.append(target_epoch_record(group_id, epoch, 0))
        for member in members:
            self.forget(member.member_id)

    def gives_way_without(self, leaving: Sequence[ConsumerMember]) -> bool:
        """Return True if the members that stay form a group of another kind. The Result then has the records of that
        group (mixed.py)."""
        return False

    def forget(self, member_id: str) -> None:
        """Drop the soft state of a member that leaves, or that another member replaces under the same id or a new
        id."""
        group_id = self.group.group_id
        for key in (session_timer, rebalance_timer, rejoin_timer, resync_timer):
            self.result.cancel_timer(key(group_id, member_id))
        self.group.rejoin_timers.discard(member_id)
        self.group.answered_on.pop(member_id, None)

    def _watch_again_if_refused(self) -> None:
        """Set the session timers again if the append is refused. Timers move even if an append is refused, and each
        member needs a session that can end."""
        group, timeout_ms = self.group, self.settings.consumer_config(self.group.group_id).session_timeout_ms

        def watch(_error: ErrorCode, _now_ms: int) -> Result:
            result = Result()
            for member_id in group.members:
                result.set_timer(session_timer(group.group_id, member_id), timeout_ms)
            return result

        self.result.append_failed = watch

    # -- timers -------------------------------------------------------------------------------------------------------

    def timer(self, key: TimerKey, event: object) -> None:
        kind = key[0]
        if kind == "regex":
            assert isinstance(event, tuple)
            found = self.regexes.resolve(*event)
            if found is not None:
                self._topics_found(found)
            return
        if len(key) != 3:
            # The timer was set when this group was a classic group.
            return
        member = self.group.members.get(key[2])
        if member is None or (kind == "rebalance" and member.epoch != event):
            return
        self.result.tell(
            logger, "Group %s: member %s is removed, because %s", self.group.group_id, member.member_id, _REASONS[kind]
        )
        self.group.rejoin_timers.discard(member.member_id)
        self.fence([member])
        self.result.append_failed = _again(key, event, self.result.append_failed)

    def _topics_found(self, found: FoundTopics) -> None:
        metadata_hash = self.topics.metadata_hash(found.subscribers)
        if found.changed or metadata_hash != self.group.metadata_hash:
            epoch = self.group.epoch + 1
            self._write_epoch(epoch, metadata_hash)
            self.result.count(CountedEvent.CONSUMER_REBALANCE)
            self._topics_are_fresh(epoch)

    # -- failover -----------------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Start the sessions of all members after loading, because no member has sent a request to this coordinator
        yet."""
        group = self.group
        timeout_ms = self.settings.consumer_config(group.group_id).session_timeout_ms
        for member in group.members.values():
            self.result.set_timer(session_timer(group.group_id, member.member_id), timeout_ms)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self._expect_revocation(member)


_REASONS: Final = {
    "session": "it sent no heartbeat in time",
    "rebalance": "it did not revoke its partitions in time",
    "rejoin": "it did not rejoin in time",
    "resync": "it did not sync in time",
}


def _again(key: TimerKey, event: object, before: AppendFailed | None) -> AppendFailed:
    """Let the timer fire again if its decision could not be written."""

    def retry(error: ErrorCode, now_ms: int) -> Result:
        result = Result() if before is None else before(error, now_ms)
        result.set_timer(key, _RETRY_MS, event)
        return result

    return retry


def _check_epoch(member: ConsumerMember, epoch: int, owned: Owned) -> None:
    if epoch == 0:
        return
    if epoch > member.epoch:
        relation = "greater"
    elif epoch < member.epoch and not (epoch == member.previous_epoch and _is_part_of(owned, member.assigned)):
        # The previous epoch is accepted if the member owns only partitions that it was given, because the answer with
        # the new epoch may have been lost.
        relation = "smaller"
    else:
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_part_of(owned: Owned, assigned: AssignedPartitions) -> bool:
    if owned is None:
        return False
    return all(
        topic_id in assigned and all(partition in assigned[topic_id] for partition in partitions)
        for topic_id, partitions in owned
    )


def _updated(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, client: ConsumerClient) -> ConsumerMember:
    """Return the member with the values of the request. Fields that the request leaves out keep their values."""
    names = request.subscribed_topic_names
    if (
        names is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms == -1
        and request.rack_id is None
        and request.server_assignor is None
        and request.instance_id == member.instance_id
        and member.client_id == client.client_id
        and member.client_host == client.client_host
        and member.classic is None
    ):
        return member
    return member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        topics=member.topics if names is None else frozenset(names),
        regex=member.regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
        client_id=client.client_id,
        client_host=client.client_host,
        classic=None,
    )


def _assignment(assigned: AssignedPartitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            ResponseTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assigned.items()
        ]
    )
