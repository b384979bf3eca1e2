"""Random conversations with a coordinator, compared with a model that has only the rules that must hold.

Clients behave as consumers do: join, sync, heartbeat, commit their partitions, sometimes die, come back or start twice.
Appends are refused and coordinators replaced at random. These rules are checked after each step:

* a partition has at most one owner per generation;
* the generation rises, and has one leader;
* a fetch returns the commits, also from the next coordinator;
* a replay of the log gives the written state.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pykbroker.coordinator.group.classic.classic_group import ClassicGroupState
from pykbroker.coordinator.group.classic.classic_records import group_tombstone
from pykbroker.coordinator.group.records import encode
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.result import Token
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.join_group import JoinGroupResponse
from pykbroker_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from pykbroker_wire.messages.sync_group import SyncGroupResponse
from tests.coordinator.group.harness import Bench, Refused, classic_groups, subscription

pytestmark = pytest.mark.slow

PARTITIONS = range(4)
GROUP = "g"
GROUP_KEY = encode(group_tombstone(GROUP))[0]


class Consumer:
    """A client. `token` names its one outstanding request."""

    def __init__(self, number: int, instance: str | None, version: int) -> None:
        self.number = number
        self.instance = instance
        self.version = version
        self.member = ""
        self.generation = -1
        self.to_assign: list[str] = []
        self.owns: frozenset[int] = frozenset()
        self.token: Token | None = None
        self.joined = False


class Groups(RuleBasedStateMachine):
    consumers: list[Consumer]

    @initialize(
        delay_ms=st.sampled_from([0, 3_000]),
        max_size=st.sampled_from([2, 100]),
        instances=st.lists(st.sampled_from([None, "a", "b"]), min_size=1, max_size=4),
    )
    def start(self, delay_ms: int, max_size: int, instances: list[str | None]) -> None:
        self.bench = Bench(GroupSettings(initial_rebalance_delay_ms=delay_ms, max_size=max_size))
        self.consumers = [Consumer(number, instance, 9) for number, instance in enumerate(instances)]
        self.generation = 0
        self.acknowledged: dict[int, int] = {}
        #: commits that the log refused, which must not appear
        self.next_offset = 0
        self.owners: dict[tuple[int, int], str] = {}
        #: days that passed altogether: offsets are kept for seven days after the group became empty
        self.idle_days = 0
        self.written = 0

    # -- what clients do ----------------------------------------------------------------------------------------------

    @rule(instance=st.sampled_from([None, None, "a", "b"]), version=st.sampled_from([3, 4, 8, 9]))
    def appear(self, instance: str | None, version: int) -> None:
        if len(self.consumers) < 6:
            self.consumers.append(Consumer(len(self.consumers), instance, version))

    @rule(which=st.integers(0, 5), changed=st.booleans())
    def join(self, which: int, changed: bool) -> None:
        consumer = self._pick(which)
        if consumer is not None:
            self._do_join(consumer, changed)

    def _do_join(self, consumer: Consumer, changed: bool) -> None:
        consumer.owns = frozenset()
        consumer.joined = False
        consumer.token = self.bench.join(
            GROUP,
            consumer.member,
            instance=consumer.instance,
            version=consumer.version,
            protocols={"range": subscription("t", "u") if changed else subscription("t")},
        )

    @rule(which=st.integers(0, 5))
    def sync(self, which: int) -> None:
        consumer = self._pick(which)
        if consumer is not None and consumer.joined:
            self._do_sync(consumer)

    def _do_sync(self, consumer: Consumer) -> None:
        assignments: dict[str, bytes] = {}
        for partition in PARTITIONS if consumer.to_assign else ():
            owner = consumer.to_assign[partition % len(consumer.to_assign)]
            assignments[owner] = assignments.get(owner, b"") + bytes([partition])
        consumer.token = self.bench.sync(
            GROUP, consumer.member, consumer.generation, assignments, instance=consumer.instance
        )

    @rule(rounds=st.integers(1, 6))
    def everybody_does_what_it_should(self, rounds: int) -> None:
        """Let all members do the right thing for several rounds, so that the group becomes stable. Random steps alone
        rarely get there."""
        for _ in range(rounds):
            for which in range(len(self.consumers)):
                consumer = self._pick(which)
                if consumer is None:
                    continue
                if consumer.owns:
                    self._do_heartbeat(consumer)
                    self._do_commit(consumer, min(consumer.owns, default=None), refused=False)
                elif consumer.joined:
                    self._do_sync(consumer)
                else:
                    self._do_join(consumer, changed=False)
            for consumer in list(self.consumers):
                self._hear(consumer)
            self.bench.advance(3_000)

    @rule(which=st.integers(0, 5))
    def heartbeat(self, which: int) -> None:
        consumer = self._pick(which)
        if consumer is not None and consumer.member:
            self._do_heartbeat(consumer)

    def _do_heartbeat(self, consumer: Consumer) -> None:
        answer = self.bench.answers.pop(
            self.bench.heartbeat(GROUP, consumer.member, consumer.generation, consumer.instance)
        )
        if answer.error_code != ErrorCode.NONE:
            self._forget(consumer, answer.error_code)

    @rule(which=st.integers(0, 5), partition=st.sampled_from(PARTITIONS), refused=st.booleans())
    def commit(self, which: int, partition: int, refused: bool) -> None:
        consumer = self._pick(which)
        if consumer is not None and partition in consumer.owns:
            self._do_commit(consumer, partition, refused)

    def _do_commit(self, consumer: Consumer, partition: int | None, refused: bool) -> None:
        if partition is None:
            return
        self.next_offset += 1
        if not refused:
            self.bench.refuse_next = None
        if refused:
            self.bench.refuse_next = ErrorCode.COORDINATOR_NOT_AVAILABLE
        token = self.bench.commit(
            GROUP,
            {("t", partition): self.next_offset},
            consumer.member,
            consumer.generation,
            instance=consumer.instance,
        )
        answer = self.bench.answers.pop(token)
        if isinstance(answer, Refused):
            self.bench.refuse_next = None
            self._forget(consumer, answer.error_code)
        else:
            assert not refused
            self.acknowledged[partition] = self.next_offset

    @rule(which=st.integers(0, 5))
    def leave(self, which: int) -> None:
        consumer = self._pick(which)
        if consumer is not None and consumer.member:
            self.bench.answers.pop(self.bench.leave(GROUP, (consumer.member, consumer.instance)))
            self.consumers.remove(consumer)

    @rule(which=st.integers(0, 5), restarts=st.booleans())
    def die(self, which: int, restarts: bool) -> None:
        if which < len(self.consumers):
            consumer = self.consumers.pop(which)
            if restarts:
                self.consumers.append(Consumer(consumer.number, consumer.instance, consumer.version))

    # -- what happens to them -----------------------------------------------------------------------------------------

    @rule(milliseconds=st.sampled_from([0, 1, 3_000, 9_000, 11_000, 61_000]))
    def wait(self, milliseconds: int) -> None:
        self.bench.advance(milliseconds)

    @rule()
    def refuse(self) -> None:
        self.bench.refuse_next = ErrorCode.COORDINATOR_NOT_AVAILABLE

    # -- what administrators do, and time -----------------------------------------------------------------------------

    @rule(partition=st.sampled_from(PARTITIONS), back=st.integers(0, 5))
    def reset(self, partition: int, back: int) -> None:
        """kafka-consumer-groups --reset-offsets: a commit without a member, which only an empty group accepts."""
        empty = self._is_empty()
        token = self.bench.commit(GROUP, {("t", partition): back})
        answer = self.bench.answers.pop(token)
        if isinstance(answer, Refused):
            assert not empty or answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE, answer
        else:
            assert empty
            self.acknowledged[partition] = back

    @rule(partition=st.sampled_from(PARTITIONS))
    def delete_offset(self, partition: int) -> None:
        request = OffsetDeleteRequest(
            group_id=GROUP,
            topics=[
                OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=partition)])
            ],
        )
        answer = self.bench.ask(lambda shard, token, now_ms: shard.delete_offsets(request, token, now_ms))
        if isinstance(answer, Refused):
            return
        if answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
            self.acknowledged.pop(partition, None)
        else:
            assert not self._is_empty()

    @rule()
    def delete_group(self) -> None:
        empty, there = self._is_empty(), GROUP in classic_groups(self.bench.shard)
        answer = self.bench.ask(lambda shard, token, now_ms: shard.delete_groups([GROUP], token, now_ms))
        if isinstance(answer, Refused):
            return
        code = answer[0].error_code
        if not there:
            assert code == ErrorCode.GROUP_ID_NOT_FOUND
        elif empty:
            assert code == ErrorCode.NONE
            self._forget_offsets()
        else:
            assert code == ErrorCode.NON_EMPTY_GROUP

    @rule(days=st.sampled_from([1, 6, 16]))
    def let_days_pass(self, days: int) -> None:
        """Let all members expire at once. Offsets expire after a week, counted from that time."""
        self.bench.refuse_next = None
        self.bench.advance(days * 86_400_000)
        for consumer in self.consumers:
            self._hear(consumer)
            consumer.owns = frozenset()
        self.idle_days += days
        kept = self.bench.committed(GROUP)
        if self.idle_days < 7:
            assert kept == {("t", partition): offset for partition, offset in self.acknowledged.items()}
        if days == 16:
            assert not kept
        self.acknowledged = {partition: offset for (_, partition), offset in kept.items()}
        if GROUP not in classic_groups(self.bench.shard):
            assert not kept
            self._forget_offsets()
        else:
            assert kept

    def _is_empty(self) -> bool:
        group = classic_groups(self.bench.shard).get(GROUP)
        return group is None or group.state is ClassicGroupState.EMPTY

    def _forget_offsets(self) -> None:
        """Forget the offsets, which are deleted with the group."""
        self.acknowledged.clear()
        self.owners.clear()

    @rule()
    def fail_over(self) -> None:
        """Replace the coordinator. Requests that wait are lost with the old one, and clients find the new one."""
        self.bench = self.bench.restart()
        for consumer in self.consumers:
            consumer.token = None
            consumer.joined = False
        group = classic_groups(self.bench.shard).get(GROUP)
        self.generation = group.generation if group is not None else 0
        self.owners = {key: member for key, member in self.owners.items() if key[0] <= self.generation}

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _pick(self, which: int) -> Consumer | None:
        """Return a consumer that is not waiting for an answer."""
        if which >= len(self.consumers):
            return None
        consumer = self.consumers[which]
        self._hear(consumer)
        return consumer if consumer.token is None else None

    def _hear(self, consumer: Consumer) -> None:
        if consumer.token is None or consumer.token not in self.bench.answers:
            return
        answer: Any = self.bench.answers.pop(consumer.token)
        consumer.token = None
        if isinstance(answer, JoinGroupResponse) and answer.error_code == ErrorCode.NONE:
            consumer.member = answer.member_id
            consumer.generation = answer.generation_id
            consumer.to_assign = [member.member_id for member in answer.members] if not answer.skip_assignment else []
            consumer.joined = True
            assert (answer.leader == answer.member_id) or not answer.members
        elif isinstance(answer, SyncGroupResponse) and answer.error_code == ErrorCode.NONE:
            consumer.owns = frozenset(answer.assignment)
            for partition in consumer.owns:
                self._own(consumer, partition)
        elif answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            consumer.member = answer.member_id
        else:
            self._forget(consumer, answer.error_code)

    def _own(self, consumer: Consumer, partition: int) -> None:
        key = (consumer.generation, partition)
        group = classic_groups(self.bench.shard)[GROUP]
        before = self.owners.get(key)
        # A static member passes its partitions on to its next incarnation within a generation.
        if before is not None and before != consumer.member:
            assert before not in group.members, f"{key} belongs to {before} and to {consumer.member}"
        self.owners[key] = consumer.member

    def _forget(self, consumer: Consumer, code: int) -> None:
        consumer.owns = frozenset()
        consumer.joined = False
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED):
            consumer.member = ""
        if code == ErrorCode.FENCED_INSTANCE_ID and consumer in self.consumers:
            self.consumers.remove(consumer)

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def the_generation_rises(self) -> None:
        written, self.written = self.bench.log[self.written :], len(self.bench.log)
        if any(key == GROUP_KEY and value is None for key, value in written):
            # The group was empty and without offsets when the expiry came. Another one with its name begins again.
            self.generation = 0
            self.owners.clear()
        group = classic_groups(self.bench.shard).get(GROUP)
        if group is not None:
            assert group.generation >= self.generation
            self.generation = group.generation

    @invariant()
    def the_group_is_whole(self) -> None:
        group = classic_groups(self.bench.shard).get(GROUP)
        if group is None:
            return
        assert (group.leader is None) == (not group.members)
        assert group.leader is None or group.leader in group.members
        assert (group.state is ClassicGroupState.EMPTY) <= (not group.members)
        assert set(group.static_members.values()) == {
            member.member_id for member in group.members.values() if member.instance_id is not None
        }
        for member in group.members.values():
            assert member.awaiting_sync is None or group.state is ClassicGroupState.COMPLETING_REBALANCE
            assert member.awaiting_join is None or group.state is ClassicGroupState.PREPARING_REBALANCE
        # Each member that may expire has a timer, unless its request waits here.
        watched = {key[2] for key, _ in self.bench.timers() if key[0] == "session"}
        for member in group.members.values():
            assert member.member_id in watched or member.excused_from_heartbeat
        assert group.pending_join <= watched
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            assert any(key[0] == "join" for key, _ in self.bench.timers())
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            assert any(key[0] == "sync" for key, _ in self.bench.timers())

    @invariant()
    def partitions_have_one_owner(self) -> None:
        for consumer in list(self.consumers):
            self._hear(consumer)
        group = classic_groups(self.bench.shard).get(GROUP)
        if group is not None and group.state is ClassicGroupState.STABLE:
            owned = [partition for member in group.members.values() for partition in member.assignment]
            assert len(owned) == len(set(owned))

    @invariant()
    def nothing_that_was_committed_is_lost(self) -> None:
        expected = {("t", partition): offset for partition, offset in self.acknowledged.items()}
        assert self.bench.committed(GROUP) == expected

    @invariant()
    def the_log_says_what_the_state_says(self) -> None:
        other = self.bench.restart()
        stored = {
            name: group.stored for name, group in classic_groups(self.bench.shard).items() if group.stored is not None
        }
        assert {
            name: group.stored for name, group in classic_groups(other.shard).items() if group.stored is not None
        } == stored
        assert other.committed(GROUP) == self.bench.committed(GROUP)


TestGroups = Groups.TestCase
TestGroups.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
