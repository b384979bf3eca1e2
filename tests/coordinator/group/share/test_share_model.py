"""Random conversations with a share group (KIP-932), compared with a model that has only the rules that must hold.

Clients behave as share consumers do: they join, heartbeat, lose answers, change their subscriptions, leave and vanish.
Share coordinators answer late, or with errors, or never. Topics come, grow and go; appends are refused, coordinators
replaced, and administrators alter and delete offsets. These rules are checked after each step:

* no member has a partition whose state a share coordinator has not confirmed;
* a state that was confirmed is never replaced, unless an administrator asks for it or the topic is new again;
* the target names members of the group, and each member has only topics of its subscription;
* a member's epoch is not ahead of the target's, nor that ahead of the group's; epochs only rise;
* each request is answered in time, and each member has a session that can end;
* a replay of the log gives the written state;
* after enough time without disturbance each partition has a member, and the members' shares are even.

The bugs in `PLANTED` are found by it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from pykbroker.coordinator.group.share import share_input, share_step, waiting_joins
from pykbroker.coordinator.group.share.share_group import ShareGroup
from pykbroker.coordinator.group.share.share_member import SharedPartitions, ShareMember
from pykbroker.coordinator.group.share.share_offsets import (
    OffsetsAlteration,
    OffsetsDeletion,
    begin_alteration,
    begin_offsets_deletion,
    end_offsets_deletion,
)
from pykbroker.coordinator.group.share.share_partition_states import NamedPartitions, SharePartitionStates
from pykbroker.coordinator.group.share.share_states import ShareStart, TopicIdPartition
from pykbroker.coordinator.group.share.share_step import ShareStep, SharesToInitialize
from pykbroker.coordinator.result import Token
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from pykbroker_wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from tests.coordinator.group.consumers import Partitions, topic_id, topic_name
from tests.coordinator.group.harness import Refused
from tests.coordinator.group.shares import ShareBench, share_groups, share_settings

TOPICS = ("t", "tea", "u", "v")
SUBSCRIPTIONS = st.sampled_from([("t",), ("t",), ("t", "tea"), ("u", "tea", "v")])
FATAL = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
SOFT = {"topics_refresh_ms", "refreshed_epoch", "initializing_since_ms", "waiting", "_has_unassigned"}
#: A join waits for the assignment interval and this time.
GRACE_MS = 200


class Client:
    def __init__(self, number: int, topics: tuple[str, ...]) -> None:
        self.member = f"m{number}"
        self.topics = topics
        self.epoch = 0
        self.partitions: Partitions = set()
        #: requests of its join that are not answered yet, with the time at which they were sent
        self.waiting: dict[Token, int] = {}

    def start_over(self) -> None:
        self.epoch = 0
        self.partitions = set()


class ShareGroups(RuleBasedStateMachine):
    clients: list[Client]

    @initialize(interval_ms=st.sampled_from([0, 1_000]))
    def start(self, interval_ms: int) -> None:
        self.interval_ms = interval_ms
        self.bench = ShareBench(share_settings(interval_ms))
        self.bench.create("t", "tea", partitions=3)
        self.clients = []
        self.count = 0
        self.group_epoch = 0
        self.member_epochs: dict[str, int] = {}
        #: topics that were deleted
        self.gone: set[str] = set()
        #: requests of clients that have gone
        self.orphans: set[Token] = set()
        #: members whose second join waited for an assignment when its coordinator failed
        self.interrupted: set[str] = set()
        #: what share coordinators were asked and have not answered
        self.asked: list[ShareStart] = []
        #: share partitions that have a state, as share coordinators see it
        self.confirmed: set[TopicIdPartition] = set()

    # -- clients ------------------------------------------------------------------------------------------------------

    @rule(topics=SUBSCRIPTIONS)
    def appear(self, topics: tuple[str, ...]) -> None:
        if len(self.clients) < 5:
            self.count += 1
            self.clients.append(Client(self.count, topics))
            self._beat(self.clients[-1])

    @rule(which=st.integers(0, 4), lost=st.sampled_from([False, False, True]))
    def heartbeat(self, which: int, lost: bool) -> None:
        client = self._pick(which)
        if client is not None:
            self._beat(client, lost=lost)

    @rule(which=st.integers(0, 4), topics=SUBSCRIPTIONS)
    def subscribe(self, which: int, topics: tuple[str, ...]) -> None:
        client = self._pick(which)
        if client is not None and not client.waiting:
            client.topics = topics
            self._beat(client, says=True)

    @rule(which=st.integers(0, 4), leaves=st.booleans())
    def go(self, which: int, leaves: bool) -> None:
        client = self._pick(which)
        if client is None:
            return
        self.clients.remove(client)
        if leaves:
            self.bench.answers.pop(self.bench.send(client.member, -1))
            self._take_answers(client)
            assert not client.waiting, "a leave ends the wait of a join"
        self.orphans |= client.waiting.keys()

    def _pick(self, which: int) -> Client | None:
        return self.clients[which % len(self.clients)] if self.clients else None

    def _beat(self, client: Client, *, says: bool = False, lost: bool = False) -> None:
        joins = client.epoch == 0
        group = share_groups(self.bench).get("g")
        states = SharePartitionStates() if group is None else group.known_states
        token = self.bench.send(client.member, client.epoch, topics=client.topics if joins or says else None)
        client.waiting[token] = self.bench.now_ms
        if lost:
            self.bench.answers.pop(token, None)
            self.orphans.add(token)
            del client.waiting[token]
        if self.bench.refuse_next is None:
            self.interrupted.discard(client.member)
        self._take_answers(client)
        assert joins or lost or token not in client.waiting, "only a join may wait"
        self._collect(states)

    def _take_answers(self, client: Client) -> None:
        for token in [token for token in client.waiting if token in self.bench.answers]:
            del client.waiting[token]
            answer = self.bench.answers.pop(token)
            code = answer.error_code
            if code in FATAL:
                client.start_over()
            if isinstance(answer, Refused) or code:
                continue
            assert answer.member_epoch >= client.epoch
            client.epoch = answer.member_epoch
            if answer.assignment is not None:
                client.partitions = {
                    (topic_name(topic.topic_id), partition)
                    for topic in answer.assignment.topic_partitions
                    for partition in topic.partitions
                }

    # -- share coordinators -------------------------------------------------------------------------------------------

    def _collect(self, before: SharePartitionStates) -> None:
        """Take what the group asks of share coordinators after a heartbeat. `before` are the states before it."""
        effects, self.bench.effects = self.bench.effects, []
        for effect in effects:
            assert isinstance(effect, SharesToInitialize)
            for start in effect.starts:
                initialized = before.initialized.get(start.topic_id, NamedPartitions("", frozenset())).partitions
                assert start.partition not in initialized, "the state would be replaced"
                # Only partitions that are new to a group that knows their topic start at 0, and all of these do.
                assert start.start_offset in (-1, 0)
                assert start.start_offset == -1 or before.knows(start.topic_id)
                assert start.start_offset == 0 or not initialized
            self.asked += effect.starts

    @rule(count=st.integers(1, 9), fails=st.sampled_from([False, False, True]))
    def share_coordinators_answer(self, count: int, fails: bool) -> None:
        now, self.asked = self.asked[:count], self.asked[count:]
        if not now:
            return
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if fails else ErrorCode.NONE
        if not fails:
            self.confirmed |= {(start.topic_id, start.partition) for start in now}
        self.bench.answer_states({(start.topic_id, start.partition): code for start in now})

    @rule()
    def share_coordinators_never_answer(self) -> None:
        self.asked = []

    # -- the world ----------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0, 0.5, 1, 2, 5, 31, 46]))
    def time_passes(self, seconds: float) -> None:
        self.bench.advance(int(seconds * 1_000))
        group = share_groups(self.bench).get("g")
        for client in self.clients:
            self._take_answers(client)
            if client.epoch and (group is None or client.member not in group.members):
                client.start_over()

    @rule(topic=st.sampled_from(TOPICS), partitions=st.integers(1, 4))
    def topics_change(self, topic: str, partitions: int) -> None:
        known = self.bench.topics.image.topics.by_name.get(topic)
        if topic not in self.gone and (known is None or partitions >= len(known.partitions)):
            self.bench.create(topic, partitions=partitions)

    @rule(topic=st.sampled_from(TOPICS))
    def a_topic_goes(self, topic: str) -> None:
        """Delete a topic. It does not come back, because the bench would give it the same id."""
        if self.bench.topics.exists(topic):
            self.gone.add(topic)
            self.bench.delete(topic)
            self.confirmed = {place for place in self.confirmed if place[0] != topic_id(topic)}
            self.asked = [start for start in self.asked if start.topic_id != topic_id(topic)]

    @rule()
    def fail_over(self) -> None:
        group = share_groups(self.bench).get("g")
        if group is not None:
            self.interrupted |= group.waiting.keys()
        self.bench = self.bench.restart()
        self.orphans = set()
        for client in self.clients:
            client.waiting = {}

    @rule(which=st.integers(0, 4))
    def append_is_refused(self, which: int) -> None:
        client = self._pick(which)
        if client is not None:
            self.bench.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
            self._beat(client, says=True)
            self.bench.refuse_next = None

    @rule(topic=st.sampled_from(TOPICS), partition=st.integers(0, 3), fails=st.booleans())
    def an_administrator_alters_offsets(self, topic: str, partition: int, fails: bool) -> None:
        request = AlterShareGroupOffsetsRequest(
            group_id="g",
            topics=[
                AlterShareGroupOffsetsRequestTopic(
                    topic_name=topic,
                    partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=5)],
                )
            ],
        )
        answer = self.bench.ask(lambda shard, token, now_ms: begin_alteration(shard, request, token, now_ms))
        if isinstance(answer, OffsetsAlteration):
            self.asked += answer.starts
            if answer.starts and not fails:
                self.share_coordinators_answer(len(self.asked), False)

    @rule(topic=st.sampled_from(TOPICS), ends=st.booleans())
    def an_administrator_deletes_offsets(self, topic: str, ends: bool) -> None:
        request = DeleteShareGroupOffsetsRequest(
            group_id="g", topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic)]
        )
        answer = self.bench.ask(lambda shard, token, now_ms: begin_offsets_deletion(shard, request, token, now_ms))
        if isinstance(answer, OffsetsDeletion) and answer.partitions and ends:
            self.confirmed -= set(answer.partitions)
            gone = [topic_id(topic)]
            self.bench.ask(lambda shard, token, now_ms: end_offsets_deletion(shard, "g", gone, token, now_ms))

    @rule()
    def everybody_does_what_it_should(self) -> None:
        """Let all clients do the right thing for long enough, until nothing is left to do."""
        for _ in range(20):
            self.bench.advance(5_000)
            for client in self.clients:
                self._take_answers(client)
                self._beat(client)
            self.share_coordinators_answer(len(self.asked), False)
            for client in self.clients:
                self._take_answers(client)
        group = share_groups(self.bench).get("g")
        if not self.clients:
            assert group is None or not group.members
            return
        assert group is not None
        assert group.members.keys() == {client.member for client in self.clients}
        assert group.epoch == group.target_epoch
        image = self.bench.topics.image.topics.by_name
        every = {
            (name, partition)
            for client in self.clients
            for name in client.topics
            if name in image
            for partition in image[name].partitions
        }
        assert set().union(*(client.partitions for client in self.clients)) == every
        for client in self.clients:
            assert client.epoch == group.epoch
            assert {name for name, _ in client.partitions} <= set(client.topics)
        if len({frozenset(client.topics) for client in self.clients}) == 1 and every:
            members = len(self.clients)
            most = ceil(ceil(members / len(every)) * len(every) / members)
            assert all(len(client.partitions) <= most for client in self.clients)

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def the_group_is_whole(self) -> None:
        group = share_groups(self.bench).get("g")
        if group is None:
            return
        for member in group.members.values():
            assert 0 <= member.epoch <= group.target_epoch <= group.epoch
            for topic, partitions in member.assigned.items():
                # A member whose second join waits has its new topics and its old partitions, also over a failure.
                assert topic_name(topic) in member.topics or member.member_id in {*group.waiting, *self.interrupted}
                assert topic_name(topic) in self.gone or {(topic, one) for one in partitions} <= self.confirmed
        assert group.target.keys() <= group.members.keys()
        initialized = {
            (topic, partition)
            for topic, found in group.known_states.initialized.items()
            for partition in found.partitions
        }
        assert initialized <= self.confirmed
        watched = {key[2] for key, _ in self.bench.timers() if key[0] == "session"}
        # A refused join may have set a timer, which does nothing.
        assert group.members.keys() <= watched
        counts: dict[str, int] = {}
        for member in group.members.values():
            for name in member.topics:
                counts[name] = counts.get(name, 0) + 1
        assert group.subscribers == counts
        topics = self.bench.topics
        assert group.has_unassigned(topics) == group.has_unassigned_of(group.known_states, topics)

    @invariant()
    def requests_are_answered_in_time(self) -> None:
        group = share_groups(self.bench).get("g")
        waiting = {token: member for member, tokens in group.waiting.items() for token in tokens} if group else {}
        if group is not None:
            assert group.waiting.keys() <= group.members.keys()
            timed = {key[2] for key, _ in self.bench.timers() if key[0] == "share-join"}
            assert group.waiting.keys() == timed
        for client in self.clients:
            self._take_answers(client)
            for token, since_ms in client.waiting.items():
                assert waiting.get(token) == client.member, "a request is lost"
                assert self.bench.now_ms <= since_ms + self.interval_ms + GRACE_MS
        for token in [token for token in self.orphans if token in self.bench.answers]:
            self.orphans.discard(token)
            del self.bench.answers[token]
        assert not self.bench.answers

    @invariant()
    def epochs_only_rise(self) -> None:
        group = share_groups(self.bench).get("g")
        if group is None:
            self.group_epoch = 0
            self.member_epochs = {}
            return
        assert group.epoch >= self.group_epoch
        self.group_epoch = group.epoch
        for name, member in group.members.items():
            assert member.epoch >= self.member_epochs.get(name, 0)
        self.member_epochs = {name: member.epoch for name, member in group.members.items()}

    @invariant()
    def the_log_says_what_the_state_says(self) -> None:
        other = self.bench.restart()
        assert {name: _state(group) for name, group in share_groups(other).items()} == {
            name: _state(group) for name, group in share_groups(self.bench).items()
        }


def _state(group: ShareGroup) -> dict[str, Any]:
    """Return what must be the same after a restart."""
    return {name: getattr(group, name) for name in ShareGroup.__slots__ if name not in SOFT}


def play(examples: int, steps: int, **options: Any) -> None:
    settings = hypothesis_settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        **options,
    )
    run_state_machine_as_test(ShareGroups, settings=settings)


@pytest.mark.slow
def test_share_groups_against_the_model() -> None:
    play(50, 40)


@pytest.mark.long(amount="3,000 lives of 60 steps")
@pytest.mark.timeout(1800)
def test_share_groups_against_the_model_for_long() -> None:
    play(3_000, 60)


# -- bugs that it has to find -----------------------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]


def states_begin_again(patch: pytest.MonkeyPatch) -> None:
    """A heartbeat asks for states that are there, so that their offsets are lost."""
    patch.setattr(SharePartitionStates, "initialized_of", lambda self, _topic_id: frozenset())


def failures_count_as_success(patch: pytest.MonkeyPatch) -> None:
    right = ShareStep.states_answered
    patch.setattr(
        ShareStep,
        "states_answered",
        lambda self, answers, asked_by_member: right(
            self, dict.fromkeys(answers, ErrorCode.NONE), asked_by_member=asked_by_member
        ),
    )


def late_answers_bring_topics_back(patch: pytest.MonkeyPatch) -> None:
    def confirm(self: SharePartitionStates, topics: dict[bytes, NamedPartitions]) -> SharePartitionStates:
        return SharePartitionStates(self.initializing, {**self.initialized, **topics}, self.deleting)

    patch.setattr(SharePartitionStates, "confirm", confirm)


def a_leave_forgets_the_join(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(waiting_joins.WaitingJoins, "drop", lambda self, member_id: None)


def a_refused_join_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(waiting_joins, "forget_waiting", lambda *_: False)


def a_join_has_no_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(waiting_joins.WaitingJoins, "overdue", lambda self, member_id: None)


def members_keep_topics_that_they_left(patch: pytest.MonkeyPatch) -> None:
    def with_target(member: ShareMember, epoch: int, target: SharedPartitions, *_: Any, **_also: Any) -> ShareMember:
        return member._replace(epoch=epoch, previous_epoch=member.epoch, assigned={**member.assigned, **target})

    patch.setattr(share_input, "with_target", with_target)


def new_partitions_are_not_found(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShareGroup, "has_unassigned_of", lambda self, states, topics: False)


def sessions_of_a_loaded_group_never_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShareStep, "resume", lambda self: None)


def new_partitions_start_by_the_configuration(patch: pytest.MonkeyPatch) -> None:
    """Apache Kafka 4.3.1's way."""
    patch.setattr(share_step, "_first_offset", lambda *_: -1)


def all_partitions_start_at_the_beginning(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(share_step, "_first_offset", lambda *_: 0)


def retries_are_never_due(patch: pytest.MonkeyPatch) -> None:
    right = share_step.ShareStep._without_state

    def without_state(self: ShareStep, names: Any) -> Any:
        self.group.initializing_since_ms.update(dict.fromkeys(self.group.known_states.initializing, self.now_ms))
        return right(self, names)

    patch.setattr(ShareStep, "_without_state", without_state)


PLANTED: tuple[Plant, ...] = (
    states_begin_again,
    failures_count_as_success,
    late_answers_bring_topics_back,
    a_leave_forgets_the_join,
    a_refused_join_waits,
    a_join_has_no_end,
    members_keep_topics_that_they_left,
    new_partitions_are_not_found,
    sessions_of_a_loaded_group_never_end,
    new_partitions_start_by_the_configuration,
    all_partitions_start_at_the_beginning,
    retries_are_never_due,
)


@pytest.mark.long(amount="twelve bugs, at most 1,000 lives each")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_planted_bugs_are_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        play(1_000, 40, database=None, derandomize=True, phases=[Phase.generate], print_blob=False)
