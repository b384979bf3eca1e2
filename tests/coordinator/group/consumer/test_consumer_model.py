"""Random conversations with a consumer group (KIP-848), compared with a model that has only the rules that must hold.

Clients behave as consumers do. They join, heartbeat, stop reading partitions that they must give up and confirm that,
lose answers, leave, vanish, and come back as static members. Some of them use the classic protocol. Topics come, grow
and go; appends are refused, coordinators replaced. These rules are checked after each step:

* no two clients read the same partition (NoDoubleClientAssignment), also in the coordinator's state;
* the target names members of the group and no partition twice (LegalTargetAssignment);
* a member's epoch is not ahead of the target's, nor that ahead of the group's (ValidMemberEpoch); epochs only rise;
* in the state Stable each member's epoch is the group's;
* a replay of the log gives the written state, down to each count;
* after enough time without disturbance all members have reached a target that shares all topics among them.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pykbroker.coordinator.group.consumer.consumer_group import ConsumerGroup, ConsumerState
from pykbroker.coordinator.group.consumer.consumer_member import LEAVE_STATIC_EPOCH
from pykbroker.coordinator.group.settings import Migration
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.consumer_protocol import ConsumerProtocolAssignment
from tests.coordinator.group.consumers import ConsumerBench, Partitions, embedded, given, settings
from tests.coordinator.group.harness import Refused, consumer_groups

pytestmark = pytest.mark.slow

TOPICS = ("t", "tea", "u")
FATAL = {
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
}
SOFT = {"resolving", "topics_refresh", "rejoin_timers", "_state"}


class Client:
    """`reads` has the partitions that it consumes, `wanted` those of its last assignment."""

    def __init__(self, number: int, instance: str | None, topics: tuple[str, ...], regex: str, classic: bool) -> None:
        self.member = "" if classic else f"m{number}"
        self.instance = instance
        self.topics = topics
        self.regex = regex
        self.classic = classic
        self.epoch = 0
        self.joined = False
        self.must_sync = False
        #: True if the last heartbeat had no answer or was refused
        self.unheard = False
        self.reads: Partitions = set()
        self.wanted: Partitions = set()

    def start_over(self) -> None:
        self.epoch = 0
        self.joined = self.must_sync = self.unheard = False
        self.reads = set()
        self.wanted = set()


class ConsumerGroups(RuleBasedStateMachine):
    clients: list[Client]

    @initialize(interval_ms=st.sampled_from([0, 1_000]), racks=st.sampled_from([(None,), ("a", "b")]))
    def start(self, interval_ms: int, racks: tuple[str | None, ...]) -> None:
        self.bench = ConsumerBench(settings(interval_ms, migration=Migration.UPGRADE, initial_rebalance_delay_ms=0))
        self.racks = racks
        self.bench.create("t", "tea", partitions=3, racks=racks)
        self.clients = []
        self.count = 0
        self.group_epoch = 0
        self.member_epochs: dict[str, int] = {}

    # -- what clients do ----------------------------------------------------------------------------------------------

    @rule(
        instance=st.sampled_from([None, None, None, "a", "b"]),
        topics=st.sampled_from([("t",), ("t", "tea"), ("u", "tea")]),
        regex=st.sampled_from(["", "", "t.*", "u|t"]),
        classic=st.sampled_from([False, False, True]),
    )
    def appear(self, instance: str | None, topics: tuple[str, ...], regex: str, classic: bool) -> None:
        if len(self.clients) < 6:
            if instance is not None:
                # An instance id has one process, so the former one has died.
                self.clients = [client for client in self.clients if client.instance != instance]
            self.count += 1
            self.clients.append(Client(self.count, instance, topics, "" if classic else regex, classic))

    @rule(which=st.integers(0, 5), says=st.booleans(), lost=st.sampled_from([False, False, False, True]))
    def heartbeat(self, which: int, says: bool, lost: bool) -> None:
        client = self._pick(which)
        if client is not None:
            self._turn(client, says=says, lost=lost)

    @rule(which=st.integers(0, 5))
    def reconcile(self, which: int) -> None:
        """Stop reading partitions that must be given up, and begin with the others."""
        client = self._pick(which)
        if client is not None:
            client.reads = set(client.wanted)

    @rule(which=st.integers(0, 5), topics=st.sampled_from([("t",), ("t", "tea"), ("u",)]))
    def subscribe(self, which: int, topics: tuple[str, ...]) -> None:
        client = self._pick(which)
        if client is not None and client.joined:
            client.topics = topics
            if client.classic:
                self._join_classic(client, lost=False)
            else:
                self._beat(client, says=True, lost=False)

    @rule(which=st.integers(0, 5), for_good=st.booleans())
    def leave(self, which: int, for_good: bool) -> None:
        client = self._pick(which)
        if client is None or not client.joined:
            return
        client.reads = set()
        self.clients.remove(client)
        if client.classic:
            self.bench.answers.pop(self.bench.leave("g", (client.member, client.instance)))
        elif for_good or client.instance is None:
            self.bench.beat(client.member, -1, instance=client.instance)
        else:
            self.bench.beat(client.member, LEAVE_STATIC_EPOCH, instance=client.instance)

    @rule(which=st.integers(0, 5))
    def vanish(self, which: int) -> None:
        client = self._pick(which)
        if client is not None:
            self.clients.remove(client)

    def _pick(self, which: int) -> Client | None:
        return self.clients[which % len(self.clients)] if self.clients else None

    def _turn(self, client: Client, *, says: bool, lost: bool) -> None:
        if not client.classic:
            self._beat(client, says=says, lost=lost)
        elif not client.joined:
            self._join_classic(client, lost=lost)
        elif client.must_sync:
            self._sync_classic(client, lost=lost)
        else:
            token = self.bench.heartbeat("g", client.member, client.epoch, client.instance)
            error = self.bench.answers.pop(token).error_code
            if error == ErrorCode.REBALANCE_IN_PROGRESS:
                self._join_classic(client, lost=lost)
            elif error in FATAL:
                client.start_over()

    def _beat(self, client: Client, *, says: bool, lost: bool) -> None:
        full = says or not client.joined
        answer = self.bench.beat(
            client.member,
            client.epoch,
            instance=client.instance,
            topics=client.topics if full else None,
            regex=client.regex if full else None,
            owned=(client.reads if client.joined else set()) if full or client.reads != client.wanted else None,
            rebalance_ms=5_000 if full else -1,
            rack="a" if full else None,
        )
        client.unheard = lost or isinstance(answer, Refused)
        if lost:
            return
        if isinstance(answer, Refused):
            if answer.error_code in FATAL:
                client.start_over()
            return
        if client.joined:
            assert answer.member_epoch >= client.epoch
        client.epoch = answer.member_epoch
        client.joined = client.epoch > 0
        told = given(answer)
        if told is not None:
            client.wanted = told

    def _join_classic(self, client: Client, *, lost: bool) -> None:
        if "g" not in consumer_groups(self.bench.shard) or not self.bench.group().members:
            # Another model tests groups of classic members alone.
            return
        metadata = embedded(*client.topics, owned=client.reads)
        protocols = {"range": metadata}
        token = self.bench.join(
            "g", client.member, instance=client.instance, protocols=protocols, rebalance_ms=5_000, session_ms=45_000
        )
        answer = self.bench.answers.pop(token)
        if lost:
            return
        error = answer.error_code
        if error == ErrorCode.MEMBER_ID_REQUIRED:
            client.member = answer.member_id
        elif error == ErrorCode.NONE:
            client.member = answer.member_id
            client.epoch = answer.generation_id
            client.joined = client.must_sync = True
        elif error in FATAL:
            client.start_over()
            client.member = ""

    def _sync_classic(self, client: Client, *, lost: bool) -> None:
        answer = self.bench.answers.pop(self.bench.sync("g", client.member, client.epoch, instance=client.instance))
        if lost:
            return
        if answer.error_code == ErrorCode.NONE:
            client.must_sync = False
            data = answer.assignment
            message, _ = ConsumerProtocolAssignment.decode(data, 2, int.from_bytes(data[:2], "big"))
            client.wanted = {
                (topic.topic, partition) for topic in message.assigned_partitions for partition in topic.partitions
            }
        elif answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            client.must_sync = False
        elif answer.error_code in FATAL:
            client.start_over()

    # -- the world ----------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0, 1, 4, 11, 30, 46]))
    def time_passes(self, seconds: int) -> None:
        self.bench.advance(seconds * 1_000)
        group = consumer_groups(self.bench.shard).get("g")
        for client in self.clients:
            # The group removes a member only after a long silence, in which the client has stopped by itself.
            if client.joined and (group is None or client.member not in group.members):
                client.start_over()

    @rule(topic=st.sampled_from(TOPICS), partitions=st.integers(1, 5))
    def topics_change(self, topic: str, partitions: int) -> None:
        known = self.bench.topics.image.topics.by_name.get(topic)
        if known is None or partitions >= len(known.partitions):
            self.bench.create(topic, partitions=partitions, racks=self.racks)

    @rule(topic=st.sampled_from(TOPICS))
    def a_topic_goes(self, topic: str) -> None:
        if self.bench.topics.exists(topic):
            self.bench.delete(topic)

    @rule()
    def fail_over(self) -> None:
        self.bench = self.bench.restart()

    @rule(which=st.integers(0, 5))
    def append_is_refused(self, which: int) -> None:
        client = self._pick(which)
        if client is not None:
            self.bench.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
            self._turn(client, says=True, lost=False)
            self.bench.refuse_next = None

    @rule()
    def everybody_does_what_it_should(self) -> None:
        """Let all clients do the right thing for long enough, until nothing is left to do."""
        for _ in range(40):
            self.bench.advance(2_000)
            for client in self.clients:
                if client.joined:
                    client.reads = set(client.wanted)
                # A client without an answer sends all fields again, as Apache Kafka's consumer does.
                self._turn(client, says=client.unheard, lost=False)
                if client.joined and client.reads != client.wanted:
                    client.reads = set(client.wanted)
                    if not client.classic:
                        self._beat(client, says=True, lost=False)
        # Clients that vanished are removed by now, and those whose instances were taken have started over.
        self.partitions_have_one_reader()
        group = consumer_groups(self.bench.shard).get("g")
        if group is None or len(group.members) == group.subscriptions.classic_count:
            # Heartbeats of the classic protocol compute no target. A group that may not be downgraded waits for another
            # member to join, as in Apache Kafka.
            return
        assert group.state is ConsumerState.STABLE, [
            (member.member_id, member.epoch, member.state) for member in group.members.values()
        ]
        read = set().union(*(client.reads for client in self.clients))
        image = self.bench.topics.image.topics.by_name
        assert read == {
            (name, partition)
            for name in group.subscriptions.subscribers
            if name in image
            for partition in image[name].partitions
        }

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def partitions_have_one_reader(self) -> None:
        readers: dict[tuple[str, int], Client] = {}
        for client in self.clients:
            for partition in client.reads:
                assert partition not in readers, partition
                readers[partition] = client

    @invariant()
    def the_group_is_whole(self) -> None:
        group = consumer_groups(self.bench.shard).get("g")
        if group is None:
            return
        owned: dict[tuple[bytes, int], str] = {}
        for member in group.members.values():
            for assigned in (member.assigned, member.revoking):
                for topic_id, partitions in assigned.items():
                    for partition in partitions:
                        assert (topic_id, partition) not in owned
                        owned[topic_id, partition] = member.member_id
                        assert group.partition_epochs.of(topic_id, partition) == member.epoch
            assert member.epoch == LEAVE_STATIC_EPOCH or 0 <= member.epoch <= group.target_epoch <= group.epoch
        assert sum(map(len, group.partition_epochs.by_topic.values())) == len(owned)
        targets = [
            (topic_id, partition)
            for target in group.target.values()
            for topic_id, partitions in target.items()
            for partition in partitions
        ]
        assert len(targets) == len(set(targets))
        assert group.target.keys() <= group.members.keys()
        if group.state is ConsumerState.STABLE:
            assert {member.epoch for member in group.members.values()} == {group.epoch}
        assert set(group.static_members.values()) == {
            member.member_id for member in group.members.values() if member.instance_id is not None
        }
        watched = {key[2] for key, _ in self.bench.timers() if key[0] == "session"}
        assert group.members.keys() <= watched

    @invariant()
    def epochs_only_rise(self) -> None:
        group = consumer_groups(self.bench.shard).get("g")
        if group is None:
            self.group_epoch = 0
            self.member_epochs = {}
            return
        assert group.epoch >= self.group_epoch
        self.group_epoch = group.epoch
        for name, member in group.members.items():
            assert member.epoch == LEAVE_STATIC_EPOCH or member.epoch >= self.member_epochs.get(name, 0)
        self.member_epochs = {name: member.epoch for name, member in group.members.items()}

    @invariant()
    def the_log_says_what_the_state_says(self) -> None:
        other = self.bench.restart()
        assert {name: _state(group) for name, group in consumer_groups(other.shard).items()} == {
            name: _state(group) for name, group in consumer_groups(self.bench.shard).items()
        }


def _state(group: ConsumerGroup) -> dict[str, Any]:
    """Return what must be the same after a restart, with each part of the group as the values of its slots."""
    found = {name: getattr(group, name) for name in ConsumerGroup.__slots__ if name not in SOFT}
    for name in ("partition_epochs", "subscriptions"):
        part = found.pop(name)
        found[name] = {slot: getattr(part, slot) for slot in type(part).__slots__}
    return found | {"state": group.state}


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = hypothesis_settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
