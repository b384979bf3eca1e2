"""ShareGroupHeartbeat (KIP-932): join, heartbeat, leave, and the timers of a share group.

Responsible for the order of one input: the order of checks, the order of records, the answer, and whether a join waits
for an assignment. Pure: requests, timers and answers of share coordinators come in as values, `Result` goes out. Not
responsible for finding the group (share_operations.py), for the offsets of a group (share_offsets.py), nor for asking
share coordinators, which follows an effect of the Result (`SharesToInitialize`).

A heartbeat takes these steps, each of which may write a record:

1. the member with its new values;
2. the group epoch, if subscriptions, topics or the partitions that may be assigned changed;
3. the target assignment, if the group epoch is ahead of it (but not more often than
   share.assignment.interval.ms);
4. the member with its part of the target;
5. the share partitions that need a state. When the records are committed, share coordinators are asked.

Two things differ from Apache Kafka 4.3.1, where the first member of a group gets its partitions with its second
heartbeat, after 5 s:

* The answer to a join waits until there is a target with partitions for the member, at most for the assignment interval
  and 200 ms (waiting_joins.py). It comes at once if none of the member's partitions may be assigned soon. Until then
  the member has epoch 0. The first target of a group waits too, because a target without partitions would start the
  assignment interval. Apache Kafka's clients take the later epoch as any other.
* A partition that is new to the group while its topic is not starts at offset 0, as in Apache Kafka 4.4. There, 4.3.1
  starts by share.auto.offset.reset and so loses records of a `latest` group.

A third one is small: a heartbeat with the previous epoch is answered with the assignment, which was in the lost answer.

All decisions read the group as it is, and replaying the records changes it. Timers and `waiting` are soft state.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from pykbroker.coordinator.group.share.share_input import ShareInput
from pykbroker.coordinator.group.share.share_member import JOIN_EPOCH, ShareMember
from pykbroker.coordinator.group.share.share_partition_states import (
    NamedPartitions,
    SharePartitionStates,
    TopicStates,
    topic_states,
)
from pykbroker.coordinator.group.share.share_records import (
    member_record,
    removed_member,
    states_record,
    target_epoch_record,
)
from pykbroker.coordinator.group.share.share_states import UNSET_OFFSET, ShareStart, TopicIdPartition
from pykbroker.coordinator.group.share.share_target import (
    written_target,
)
from pykbroker.coordinator.group.share.waiting_joins import WaitingJoins, heartbeat_response
from pykbroker.coordinator.measures import CountedEvent
from pykbroker.coordinator.result import Result, TimerKey, Token
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.heartbeat import HeartbeatRequest
from pykbroker_wire.messages.join_group import JoinGroupRequest
from pykbroker_wire.messages.leave_group import LeaveGroupRequest
from pykbroker_wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from pykbroker_wire.messages.sync_group import SyncGroupRequest

logger = logging.getLogger(__name__)

#: After this time a group looks at its topics again, even if the metadata reports no change of them.
_TOPICS_REFRESH_MS: Final = 2**31 - 1
_RETRY_MS: Final = 500


class ShareClient(NamedTuple):
    """The sender of a request, as far as a group stores it."""

    client_id: str
    client_host: str


class SharesToInitialize(NamedTuple):
    """An effect: share coordinators are to initialise these share partitions. Their answers are the input
    `states_answered`."""

    group_id: str
    starts: Sequence[ShareStart]


def session_timer(group_id: str, member_id: str) -> TimerKey:
    return ("session", group_id, member_id)


class ShareStep(ShareInput):
    """One input to one share group (a `Step`). It holds the values of the input and lives as long as it."""

    becomes = None

    __slots__ = ()

    @property
    def _joins(self) -> WaitingJoins:
        return WaitingJoins(self)

    # -- join and heartbeat -------------------------------------------------------------------------------------------

    def heartbeat(self, request: ShareGroupHeartbeatRequest, client: ShareClient, token: Token) -> None:
        """A member joins with `member_epoch` 0 and continues with any other epoch. Raises KafkaError."""
        group = self.group
        joins = request.member_epoch == JOIN_EPOCH
        self._check_room(request.member_id)
        member = self._member(request.member_id, request.member_epoch)
        updated = _updated(member, request, client)
        if updated != member:
            self.result.records.append(member_record(group.group_id, updated))
        epoch, subscribers = self._refresh_epoch(member, updated)
        begun = self._without_state(subscribers)
        states = group.known_states.begin(begun)
        is_coming = joins and self._joins.is_coming(updated, states)
        may_be_assigned = joins and self._joins.may_be_assigned(updated, states)
        target = written_target(group)
        # A target without partitions for the first members would only start the assignment interval.
        is_early = is_coming and not may_be_assigned and not target.of(updated.member_id)
        if target.epoch < epoch and not is_early and self.may_compute_target():
            target = self.compute_target(epoch, updated, states)
        self._set_session(updated.member_id)
        has_to_wait = may_be_assigned and target.epoch < epoch
        waits = has_to_wait or (is_coming and not target.of(updated.member_id))
        if waits and self._joins.wait(updated.member_id, token):
            if has_to_wait:
                self._joins.set_target_timer()
        else:
            updated = self.take_target(updated, target, changed=updated.topics != member.topics)
            if joins:
                self._joins.answer(updated, [token])
            else:
                has_news = (
                    request.subscribed_topic_names is not None
                    or member.assigned != updated.assigned
                    or request.member_epoch != member.epoch
                )
                self.result.reply(token, heartbeat_response(self, updated, with_assignment=has_news))
        if target.epoch == epoch:
            self._joins.answer_all(target, states, but=updated.member_id)
        self._initialize(begun, epoch)

    def _check_room(self, member_id: str) -> None:
        limit = self.settings.share_max_size
        if len(self.group.members) >= limit and member_id not in self.group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {limit} members.",
            )

    def _member(self, member_id: str, epoch: int) -> ShareMember:
        group = self.group
        if epoch == JOIN_EPOCH:
            found = group.members.get(member_id)
            if found is None:
                self.result.tell(logger, "Group %s: member %s joins", group.group_id, member_id)
                return ShareMember(member_id)
            return found
        member = group.member(member_id)
        if epoch > member.epoch:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The share group member has a greater member epoch ({epoch}) than the one known by the group "
                f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
            )
        # The previous epoch is accepted, because the answer with the new epoch may have been lost.
        if epoch < member.epoch and epoch != member.previous_epoch:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The share group member has a smaller member epoch ({epoch}) than the one known by the group "
                f"coordinator ({member.epoch}), and it does not match the previous member epoch "
                f"({member.previous_epoch}). The member must abandon all its partitions and rejoin.",
            )
        return member

    def _refresh_epoch(self, member: ShareMember, updated: ShareMember) -> tuple[int, Mapping[str, int]]:
        """Return the group epoch, which may rise, and the subscribers of each topic after this input."""
        group = self.group
        epoch = group.epoch
        bump = updated.topics != member.topics
        if group.target_epoch >= epoch:
            # As long as a target is due, the partitions that may be assigned will be in it.
            bump = bump or group.has_unassigned(self.topics)
        if not bump and not group.topics_are_stale(self.now_ms):
            return epoch, group.subscribers
        subscribers = group.subscribers_after(member, updated)
        metadata_hash = self.topics.metadata_hash(subscribers)
        if bump or metadata_hash != group.metadata_hash:
            epoch += 1
            self.write_epoch(epoch, metadata_hash)
            self.result.count(CountedEvent.SHARE_REBALANCE)
        group.topics_refresh_ms = self.now_ms + _TOPICS_REFRESH_MS
        group.refreshed_epoch = epoch
        return epoch, subscribers

    # -- share coordinators -------------------------------------------------------------------------------------------

    def _without_state(self, names: Collection[str]) -> TopicStates:
        """Return the partitions of these topics that share coordinators have to initialise now."""
        group = self.group
        states = group.known_states
        retry_ms = self.settings.share_initialize_retry_interval_ms
        found: dict[bytes, NamedPartitions] = {}
        for name in sorted(names):
            topic_id = self.topics.id_of(name)
            if topic_id is None:
                continue
            asked_ms = group.initializing_since_ms.get(topic_id)
            under_way: frozenset[int] = frozenset()
            if asked_ms is not None and asked_ms <= self.now_ms < asked_ms + retry_ms:
                under_way = states.initializing_of(topic_id)
            count = self.topics.partition_count(topic_id)
            initialized = states.initialized_of(topic_id)
            if len(initialized) + len(under_way) < count:
                found[topic_id] = NamedPartitions(name, frozenset(range(count)) - initialized - under_way)
        return found

    def _initialize(self, begun: TopicStates, epoch: int) -> None:
        """Write that these partitions are being initialised, and ask for it."""
        if not begun:
            return
        group = self.group
        states = group.known_states
        self.result.records.append(states_record(group.group_id, states.begin(begun)))
        group.initializing_since_ms.update(dict.fromkeys(begun, self.now_ms))
        starts = [
            ShareStart(topic_id, partition, epoch, _first_offset(states, topic_id, partition))
            for topic_id, found in begun.items()
            for partition in sorted(found.partitions)
        ]
        self.result.effects.append(SharesToInitialize(group.group_id, starts))

    def states_answered(self, answers: Mapping[TopicIdPartition, ErrorCode], *, asked_by_member: bool) -> None:
        """Take the answers of share coordinators to the initialisation of these share partitions. The next heartbeat
        tries those again that failed.

        The first partitions of a topic that members ask for fail together, because the group would know the topic
        otherwise, and the rest would start at offset 0."""
        group = self.group
        states = group.known_states
        names = {topic_id: found.name for topic_id, found in states.everything().items()}
        together = {
            topic_id
            for (topic_id, _), code in answers.items()
            if code and asked_by_member and not states.initialized_of(topic_id)
        }
        done = topic_states((place for place, code in answers.items() if not code and place[0] not in together), names)
        failed = topic_states((place for place, code in answers.items() if code or place[0] in together), names)
        after = states.confirm(done).give_up(failed)
        if after != states:
            self.result.records.append(states_record(group.group_id, after))
        if failed:
            codes = sorted({code.name for code in answers.values() if code})
            self.result.tell(
                logger,
                "Group %s: %d share partitions could not be initialised and are tried again: %s",
                group.group_id,
                sum(len(found.partitions) for found in failed.values()),
                ", ".join(codes),
            )
        self._joins.go_on(after)

    # -- leave --------------------------------------------------------------------------------------------------------

    def leave(self, request: ShareGroupHeartbeatRequest, token: Token) -> None:
        """Raises KafkaError if there is no such member."""
        member = self.group.member(request.member_id)
        self.result.tell(logger, "Group %s: member %s left", self.group.group_id, member.member_id)
        self._fence(member)
        self.result.reply(
            token, ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        )

    def _fence(self, member: ShareMember) -> None:
        """Remove a member. The other members get its partitions at their next heartbeats."""
        group = self.group
        group_id = group.group_id
        self._watch_again_if_refused(member.member_id)
        self.result.records += removed_member(group_id, member.member_id)
        subscribers = group.subscribers_after(member, None)
        epoch = group.epoch + 1
        self.write_epoch(epoch, self.topics.metadata_hash(subscribers))
        if len(group.members) == 1:
            # The target of an empty group is up to date. Without a time the next member gets its target at once.
            self.result.records.append(target_epoch_record(group_id, epoch, 0))
        self.result.cancel_timer(session_timer(group_id, member.member_id))
        self._joins.drop(member.member_id)

    def _watch_again_if_refused(self, member_id: str) -> None:
        """Set the session timer again if the append is refused, because timers move even then."""

        def watch(_error: ErrorCode, _now_ms: int) -> Result:
            result = Result()
            timeout_ms = self.config.session_timeout_ms
            result.set_timer(session_timer(self.group.group_id, member_id), timeout_ms)
            return result

        self.if_refused(watch)

    # -- timers -------------------------------------------------------------------------------------------------------

    def _set_session(self, member_id: str) -> None:
        timeout_ms = self.config.session_timeout_ms
        self.result.set_timer(session_timer(self.group.group_id, member_id), timeout_ms)

    def timer(self, key: TimerKey, event: object) -> None:
        kind = key[0]
        if kind == "share-target":
            self._joins.go_on(self.group.known_states)
        elif kind == "share-join":
            self._joins.overdue(key[2])
        elif kind == "session" and len(key) == 3:
            member = self.group.members.get(key[2])
            if member is None:
                return
            self.result.tell(
                logger,
                "Group %s: member %s is removed, because it sent no heartbeat in time",
                self.group.group_id,
                member.member_id,
            )
            self._fence(member)

            def again(_error: ErrorCode, _now_ms: int) -> Result:
                result = Result()
                result.set_timer(key, _RETRY_MS, event)
                return result

            self.result.append_failed = again

    def resume(self) -> None:
        """Start the sessions of all members after loading, because no member has sent a request to this coordinator
        yet. The former coordinator may have asked share coordinators for states a moment ago."""
        group = self.group
        for member_id in group.members:
            self._set_session(member_id)
        group.initializing_since_ms = dict.fromkeys(group.known_states.initializing, self.now_ms)

    # -- members of the classic protocol ------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, client: object, token: Token) -> None:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def sync(self, request: SyncGroupRequest, token: Token) -> None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def classic_heartbeat(self, request: HeartbeatRequest, token: Token) -> None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def classic_leave(self, request: LeaveGroupRequest, token: Token) -> None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)


def _first_offset(states: SharePartitionStates, topic_id: bytes, partition: int) -> int:
    """Return 0 for a partition that is new to the group while its topic is not. All records of it came after the group
    began with the topic. If the first initialisation of a topic is tried again, its partitions are not new."""
    is_new = bool(states.initialized_of(topic_id)) or partition not in states.initializing_of(topic_id)
    return 0 if states.knows(topic_id) and is_new else UNSET_OFFSET


def _updated(member: ShareMember, request: ShareGroupHeartbeatRequest, client: ShareClient) -> ShareMember:
    """Return the member with the values of the request. Fields that the request leaves out keep their values."""
    names = request.subscribed_topic_names
    return member._replace(
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        topics=member.topics if names is None else frozenset(names),
        client_id=client.client_id,
        client_host=client.client_host,
    )
