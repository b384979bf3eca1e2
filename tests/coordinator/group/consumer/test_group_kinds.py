"""Consumer groups and classic groups that become each other (KIP-848)."""

from __future__ import annotations

import pytest

from pykbroker.coordinator.group import records
from pykbroker.coordinator.group.classic.classic_group import ClassicGroupState
from pykbroker.coordinator.group.classic.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS
from pykbroker.coordinator.group.consumer.consumer_group import ConsumerState
from pykbroker.coordinator.group.consumer.timer_keys import session_timer
from pykbroker.coordinator.group.settings import Migration
from pykbroker.coordinator.group.shard import GroupShard
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.consumer_protocol import AssignmentTopicPartition, ConsumerProtocolAssignment
from tests.coordinator.group.consumers import (
    ALL,
    ConsumerBench,
    Partitions,
    embedded,
    epoch,
    given,
    refused,
    settings,
)
from tests.coordinator.group.harness import Refused, classic_groups, consumer_groups


def classic_pair(bench: ConsumerBench) -> list[str]:
    """Return two classic members. The first has half of the topic."""
    members = bench.stable(2, protocols={"range": embedded("t")})
    half = AssignmentTopicPartition(topic="t", partitions=[0, 1])
    assignments = (ConsumerProtocolAssignment(assigned_partitions=[half]), ConsumerProtocolAssignment())
    for member, data in zip(classic_groups(bench.shard)["g"].members.values(), assignments, strict=True):
        member.assignment = b"\0\1" + data.encode_bytes(1)
    return members


def assigned(data: bytes) -> Partitions:
    message, _ = ConsumerProtocolAssignment.decode(data, 2, int.from_bytes(data[:2], "big"))
    return {(topic.topic, partition) for topic in message.assigned_partitions for partition in topic.partitions}


def test_an_empty_classic_group_gives_way(bench: ConsumerBench) -> None:
    bench.commit("g", {("t", 0): 7})
    bench.join()
    bench.enter("m1")
    assert classic_groups(bench.shard) == {}
    assert [key for key, _ in bench.timers() if key[0] == "join"] == []
    later = bench.restart()
    assert (list(classic_groups(later.shard)), list(later.group().members)) == ([], ["m1"])
    assert later.committed("g") == {("t", 0): 7}


def test_an_empty_consumer_group_gives_way(bench: ConsumerBench) -> None:
    bench.enter("m1")
    bench.beat("m1", -1)
    bench.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    token = bench.join("g", version=3)
    assert bench.answers.pop(token).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert list(consumer_groups(bench.shard)) == ["g"]
    member, token = bench.new_member("g")
    assert consumer_groups(bench.shard) == {}
    bench.advance(6_000)
    assert bench.answers.pop(token).error_code == ErrorCode.NONE
    assert list(classic_groups(bench.shard)["g"].members) == [member]
    later = bench.restart()
    assert (list(consumer_groups(later.shard)), classic_groups(later.shard)["g"].state) == ([], ClassicGroupState.EMPTY)


def test_upgrade_and_downgrade_with_members(bench: ConsumerBench) -> None:
    """A member of the new protocol joins two classic members and leaves again."""
    first, second = classic_pair(bench)
    bench.enter("new")
    group = bench.group()
    assert (group.epoch, group.subscriptions.classic_count, classic_groups(bench.shard)) == (2, 2, {})
    owned: dict[str, Partitions] = {first: {("t", 0), ("t", 1)}, second: set()}
    generation = dict.fromkeys(owned, 1)
    for _ in range(3):
        for member in owned:
            if bench.answers.pop(bench.heartbeat("g", member, generation[member])).error_code == ErrorCode.NONE:
                continue
            metadata = embedded("t", owned=owned[member])
            joined = bench.answers.pop(bench.join("g", member, protocols={"range": metadata}))
            assert joined.error_code == ErrorCode.NONE
            generation[member] = joined.generation_id
            synced = bench.answers.pop(bench.sync("g", member, generation[member]))
            assert synced.error_code == ErrorCode.NONE
            owned[member] = assigned(synced.assignment)
    mine = given(bench.beat("new", 2, topics=["t"], owned=set(), rebalance_ms=60_000))
    assert mine is not None
    assert sorted(map(len, (mine, *owned.values()))) == [1, 1, 2]
    assert mine.union(*owned.values()) == ALL
    assert group.state is ConsumerState.STABLE
    other = bench.restart()
    assert other.group().members == group.members

    bench.beat("new", -1)
    classic = classic_groups(bench.shard)["g"]
    assert (consumer_groups(bench.shard), classic.generation, classic.state) == (
        {},
        2,
        ClassicGroupState.PREPARING_REBALANCE,
    )
    for member in owned:
        assert bench.answers.pop(bench.heartbeat("g", member, 2)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert list(classic_groups(bench.restart().shard)["g"].members) == [first, second]
    tokens = [bench.join("g", member, protocols={"range": embedded("t")}) for member in owned]
    assert {bench.answers.pop(token).generation_id for token in tokens} == {3}


def test_parked_requests_are_answered_when_a_group_is_upgraded(bench: ConsumerBench) -> None:
    first, second = classic_pair(bench)
    token = bench.join("g", first, protocols={"range": embedded("t")})
    assert token not in bench.answers
    bench.enter("new")
    assert bench.answers.pop(token).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert [key for key, _ in bench.timers() if key == ("join", "g")] == []
    assert {second} < set(bench.group().members)


def test_a_group_that_was_not_upgraded_waits_on_for_its_members(bench: ConsumerBench) -> None:
    first, second = classic_pair(bench)
    token = bench.join("g", first, protocols={"range": embedded("t")})
    for member in (None, first):
        if member is not None:
            bench.join("g", member, protocols={"range": embedded("t")})
        bench.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
        refused_answer = bench.beat("new", 0, topics=["t"], owned=set(), rebalance_ms=60_000)
        assert refused_answer == Refused(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert (("join", "g"), 60_000) in bench.timers()
    assert bench.answers.pop(token) == Refused(ErrorCode.NOT_ENOUGH_REPLICAS)
    bench.heartbeat("g", first, 1)
    token = bench.join("g", first, protocols={"range": embedded("t")})
    for _ in range(12):
        bench.advance(5_000)
        bench.heartbeat("g", second, 1)
    # The other member did not come back.
    joined = bench.answers.pop(token)
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 2)
    bench.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    bench.beat("new", 0, topics=["t"], owned=set(), rebalance_ms=60_000)
    assert (("sync", "g"), 60_000) in bench.timers()


def test_a_new_group_that_was_not_upgraded_begins_its_first_rebalance_again(bench: ConsumerBench) -> None:
    member, first = bench.new_member("g", protocols={"range": embedded("t")})
    bench.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    bench.beat("new", 0, topics=["t"], owned=set(), rebalance_ms=60_000)
    assert bench.answers.pop(first) == Refused(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert (session_timer("g", member), NEW_MEMBER_JOIN_TIMEOUT_MS) in bench.timers()
    token = bench.join("g", member, protocols={"range": embedded("t")})
    bench.advance(bench.settings.initial_rebalance_delay_ms)
    assert bench.answers.pop(token).error_code == ErrorCode.NONE


def test_members_of_a_group_that_was_not_downgraded_are_watched_on(bench: ConsumerBench) -> None:
    """The session of the classic member that stays was dropped with the group that was not written."""
    bench.enter("new")
    stays = bench.answers.pop(bench.join("g", version=3, protocols={"range": embedded("t")})).member_id
    bench.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    assert bench.beat("new", -1) == Refused(ErrorCode.NOT_ENOUGH_REPLICAS)
    sessions = {key[2] for key, _ in bench.timers() if key[0] == "session"}
    assert sessions == set(bench.group().members) == {"new", stays}


@pytest.mark.parametrize("leaves", [False, True])
def test_a_group_that_cannot_become_classic_still_loses_its_member(bench: ConsumerBench, leaves: bool) -> None:
    """When a member joins, only its first protocol is read. The protocol that all support is another one."""
    bench.enter("new")
    both = {"range": embedded("t"), "x": b""}
    members = [
        bench.answers.pop(bench.join("g", version=3, protocols=protocols, session_ms=90_000, rebalance_ms=90_000))
        for protocols in (both, {"x": embedded("t")})
    ]
    if leaves:
        assert epoch(bench.beat("new", -1)) == -1
    else:
        bench.advance(60_000)
    assert set(bench.group().members) == {member.member_id for member in members}
    assert bench.group().partition_epochs.by_topic == {}
    assert bench.restart().group().members == bench.group().members


@pytest.mark.parametrize("policy", list(Migration))
def test_migration_is_as_free_as_the_policy_says(policy: Migration) -> None:
    bench = ConsumerBench(settings(migration=policy))
    bench.create("t")
    classic_pair(bench)
    answer = bench.beat("new", 0, topics=["t"], owned=set(), rebalance_ms=60_000)
    if not policy.upgrades:
        refused(bench, answer, ErrorCode.GROUP_ID_NOT_FOUND, "online upgrade is disabled")
        assert list(classic_groups(bench.shard)) == ["g"]
    else:
        assert epoch(answer) == 2
    bench.enter("m", group="h")
    join = bench.answers.pop(bench.join("h", version=3, protocols={"range": embedded("t")}))
    if policy is Migration.DISABLED:
        assert join == Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return
    assert join.error_code == ErrorCode.NONE
    bench.beat("m", -1, group="h")
    assert ("h" in classic_groups(bench.shard)) == policy.downgrades


def test_a_custom_assignor_cannot_be_upgraded(bench: ConsumerBench) -> None:
    member, _ = bench.new_member("g", protocols={"mine": embedded("t")})
    bench.advance(6_000)
    assignment = ConsumerProtocolAssignment(user_data=b"x")
    bench.sync("g", member, 1, {member: b"\0\0" + assignment.encode_bytes(0)})
    refused(bench, bench.beat("new", 0), ErrorCode.GROUP_ID_NOT_FOUND, "an unsupported custom assignor is in use")
    assert classic_groups(bench.shard)["g"].state is ClassicGroupState.STABLE


def test_a_classic_member_that_does_not_rejoin_is_out(bench: ConsumerBench) -> None:
    bench.enter("new")
    answer = bench.answers.pop(bench.join("g", version=3, protocols={"range": embedded("t")}, rebalance_ms=9_000))
    member = answer.member_id
    assert (("resync", "g", member), 9_000) in bench.timers()
    bench.sync("g", member, answer.generation_id)
    bench.enter("newer")
    assert bench.answers.popitem()[1].error_code == ErrorCode.NONE
    told = bench.answers.pop(bench.heartbeat("g", member, answer.generation_id))
    assert told.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    bench.advance(5_000)
    bench.heartbeat("g", member, answer.generation_id)
    assert (("rejoin", "g", member), 4_000) in bench.timers()
    bench.advance(4_000)
    assert member not in bench.group().members


def test_a_group_may_become_classic_while_loading_ends(bench: ConsumerBench) -> None:
    """Loading has pauses, in which timers run."""
    bench.enter("new")
    bench.join("g", version=3, protocols={"range": embedded("t")})
    bench.enter("m", group="h")
    shard = GroupShard(0, bench.settings, bench.topics)
    for at, (key, value) in enumerate(bench.log):
        record = records.decode(key, value)
        assert record is not None
        shard.replay(record, at)
    slices = shard.loaded(bench.now_ms)
    next(slices)
    for record in shard.on_timer(session_timer("g", "new"), None, bench.now_ms).records:
        shard.replay(record, len(bench.log))
    assert [timer.key for result in slices for timer in result.timers] == [session_timer("h", "m"), ("expire",)]
    assert (list(classic_groups(shard)), list(consumer_groups(shard))) == (["g"], ["h"])
