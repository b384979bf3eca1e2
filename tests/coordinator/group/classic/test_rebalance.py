"""Edges of the classic protocol, each by name. Whole conversations are in tests/transcripts/groups."""

from __future__ import annotations

import logging

import pytest

from pykbroker.coordinator.group.classic.classic_group import TRANSITIONS, ClassicGroup, ClassicGroupState
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker_wire.errors import ErrorCode
from tests.coordinator.group.harness import Bench, Refused, classic_groups, subscription


def group(bench: Bench, name: str = "g") -> ClassicGroup:
    return classic_groups(bench.shard)[name]


def test_a_transition_outside_the_table_is_a_bug() -> None:
    for source, targets in TRANSITIONS.items():
        for target in set(ClassicGroupState) - targets:
            value = ClassicGroup("g", 0)
            value.state = source
            with pytest.raises(AssertionError):
                value.move_to(target, 0)


def test_members_that_start_together_share_one_rebalance() -> None:
    bench = Bench(GroupSettings(initial_rebalance_delay_ms=3_000))
    joined = [bench.new_member()]
    for _ in range(9):
        bench.advance(1_000)
        joined.append(bench.new_member())
    assert group(bench).state is ClassicGroupState.PREPARING_REBALANCE
    bench.advance(6_000)
    answers = [bench.answers[token] for _, token in joined]
    assert {answer.generation_id for answer in answers} == {1}
    assert [len(answer.members) for answer in answers] == [10] + [0] * 9


def test_the_initial_delay_ends_at_the_rebalance_timeout() -> None:
    bench = Bench(GroupSettings(initial_rebalance_delay_ms=3_000))
    bench.new_member(rebalance_ms=7_000)
    for _ in range(6):
        bench.advance(1_000)
        bench.new_member(rebalance_ms=7_000)
    assert group(bench).state is ClassicGroupState.PREPARING_REBALANCE
    bench.advance(1_000)
    assert group(bench).state is ClassicGroupState.COMPLETING_REBALANCE
    assert group(bench).generation == 1


def test_without_a_delay_the_first_member_is_alone_in_the_first_generation() -> None:
    bench = Bench(GroupSettings(initial_rebalance_delay_ms=0))
    _, token = bench.new_member()
    bench.advance(0)
    assert bench.answers[token].generation_id == 1


def test_the_first_join_writes_the_group_down() -> None:
    bench = Bench()
    bench.join()
    assert len(bench.log) == 1
    assert classic_groups(bench.restart().shard)["g"].state is ClassicGroupState.EMPTY


def test_a_member_that_never_returns_with_its_id_is_forgotten() -> None:
    bench = Bench()
    bench.join(session_ms=6_000)
    assert len(group(bench).pending_join) == 1
    bench.advance(6_000)
    assert not group(bench).pending_join


def test_old_clients_get_their_member_id_with_the_join() -> None:
    bench = Bench(GroupSettings(initial_rebalance_delay_ms=0))
    token = bench.join(version=3)
    bench.advance(0)
    assert bench.answers[token].member_id.startswith("client-")


def test_a_parked_join_of_an_old_client_is_given_up_after_five_minutes() -> None:
    bench = Bench()
    members = bench.stable(2, rebalance_ms=1_000_000, session_ms=1_000_000)
    token = bench.join(version=3, rebalance_ms=1_000_000)
    assert token not in bench.answers
    bench.advance(300_000)
    assert bench.answers[token].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(group(bench).members) == members


@pytest.mark.parametrize(
    ("votes", "chosen"),
    [
        ([("a", "b"), ("b", "a"), ("b", "a")], "b"),
        ([("a", "b"), ("b",)], "b"),
        ([("a", "b", "c"), ("c", "b"), ("b", "c")], "b"),
    ],
)
def test_protocols_are_chosen_by_votes_among_the_common_ones(votes: list[tuple[str, ...]], chosen: str) -> None:
    bench = Bench(GroupSettings(initial_rebalance_delay_ms=10))
    tokens = [bench.new_member(protocols=dict.fromkeys(names, b""))[1] for names in votes]
    bench.advance(20)
    assert {bench.answers[token].protocol_name for token in tokens} == {chosen}


def test_a_member_without_a_common_protocol_is_refused() -> None:
    bench = Bench()
    bench.stable(1)
    assert bench.answers[bench.join(protocols={"other": b""})].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.answers[bench.join(protocol_type="connect")].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.answers[bench.join("new", protocols={})].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.answers[bench.join("newer", protocol_type="")].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_repeated_join_is_answered_with_the_same_generation() -> None:
    bench = Bench()
    leader, follower = bench.stable(2)
    again = bench.answers[bench.join(member=follower)]
    assert (again.error_code, again.generation_id, again.members) == (0, 1, [])
    bench.join(member=leader)
    assert group(bench).state is ClassicGroupState.PREPARING_REBALANCE


def test_the_leader_that_missed_its_answer_gets_the_members_again() -> None:
    bench = Bench()
    joined = [bench.new_member() for _ in range(2)]
    bench.advance(6_000)
    again = bench.answers[bench.join(member=joined[0][0])]
    assert [member.member_id for member in again.members] == [member for member, _ in joined]
    assert group(bench).state is ClassicGroupState.COMPLETING_REBALANCE


def test_a_repeated_sync_is_answered_with_the_same_assignment() -> None:
    bench = Bench()
    members = bench.stable(2)
    for member in members:
        assert bench.answers[bench.sync("g", member, 1)].assignment == member.encode()


def test_followers_that_sync_first_wait_for_the_leader() -> None:
    bench = Bench()
    joined = [bench.new_member() for _ in range(2)]
    bench.advance(6_000)
    (leader, _), (follower, _) = joined
    waiting = bench.sync("g", follower, 1)
    assert waiting not in bench.answers
    assert bench.answers[bench.sync("g", leader, 1, {follower: b"f"})].assignment == b""
    assert bench.answers[waiting].assignment == b"f"


def test_a_sync_that_waits_is_told_when_a_rebalance_begins() -> None:
    bench = Bench()
    joined = [bench.new_member() for _ in range(2)]
    bench.advance(6_000)
    waiting = bench.sync("g", joined[1][0], 1)
    bench.new_member()
    assert bench.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_session_that_ended_while_its_sync_was_parked_is_watched_again() -> None:
    """Found by test_classic_model.py: nothing would ever have removed this member."""
    bench = Bench()
    joined = [bench.new_member() for _ in range(2)]
    bench.advance(6_000)
    (leader, _), (follower, _) = joined
    bench.sync("g", follower, 1)
    for _ in range(2):
        bench.advance(9_000)
        bench.heartbeat("g", leader, 1)
    bench.join(member=leader, protocols={"range": b"changed"})
    assert group(bench).state is ClassicGroupState.PREPARING_REBALANCE
    bench.advance(10_000)
    assert list(group(bench).members) == [leader]


def test_a_sync_that_waits_is_answered_when_its_member_leaves() -> None:
    bench = Bench()
    joined = [bench.new_member() for _ in range(2)]
    bench.advance(6_000)
    waiting = bench.sync("g", joined[1][0], 1)
    bench.leave("g", (joined[1][0], None))
    assert bench.answers[waiting].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_join_that_is_repeated_while_parked_answers_the_first() -> None:
    bench = Bench()
    member, first = bench.new_member()
    bench.join(member=member)
    assert bench.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_sync_names_another_protocol() -> None:
    bench = Bench()
    member = bench.stable(1)[0]
    for options in ({"protocol_type": "connect"}, {"protocol_name": "roundrobin"}):
        answer = bench.answers[bench.sync("g", member, 1, **options)]  # type: ignore[arg-type]
        assert answer == Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def test_heartbeats_in_every_state() -> None:
    bench = Bench(GroupSettings(initial_rebalance_delay_ms=0))
    unknown = Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert bench.answers[bench.heartbeat("g", "m", 1)] == unknown
    member, _ = bench.new_member()
    assert bench.answers[bench.heartbeat("g", member, 0)].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    bench.advance(0)
    assert group(bench).state is ClassicGroupState.COMPLETING_REBALANCE
    assert bench.answers[bench.heartbeat("g", member, 1)].error_code == ErrorCode.NONE
    bench.sync("g", member, 1)
    assert group(bench).state is ClassicGroupState.STABLE
    assert bench.answers[bench.heartbeat("g", member, 1)].error_code == ErrorCode.NONE
    assert bench.answers[bench.heartbeat("g", member, 0)] == Refused(ErrorCode.ILLEGAL_GENERATION)
    bench.join(member=member)
    bench.leave("g", (member, None))
    assert group(bench).state is ClassicGroupState.EMPTY
    assert bench.answers[bench.heartbeat("g", member, 1)] == unknown


def test_a_member_without_heartbeats_is_removed_after_its_session() -> None:
    bench = Bench()
    leader, follower = bench.stable(2, session_ms=10_000)
    bench.advance(9_999)
    bench.heartbeat("g", follower, 1)
    bench.advance(1)
    assert list(group(bench).members) == [follower]
    assert group(bench).leader == follower
    assert group(bench).state is ClassicGroupState.PREPARING_REBALANCE
    assert leader not in group(bench).members


def test_the_last_member_leaves_an_empty_group_in_the_log() -> None:
    bench = Bench()
    bench.stable(1)
    bench.advance(10_000)
    assert group(bench).state is ClassicGroupState.EMPTY
    assert (group(bench).generation, group(bench).protocol_type, group(bench).protocol_name) == (2, "consumer", None)
    later = classic_groups(bench.restart().shard)["g"]
    assert (later.state, later.generation, later.protocol_type) == (ClassicGroupState.EMPTY, 2, "consumer")


def test_members_that_do_not_rejoin_in_time_are_removed() -> None:
    bench = Bench()
    leader, follower = bench.stable(2, rebalance_ms=30_000, session_ms=100_000)
    token = bench.join(member=follower, rebalance_ms=30_000, protocols={"range": b"changed"})
    bench.advance(30_000)
    answer = bench.answers[token]
    assert (answer.generation_id, answer.leader) == (2, follower)
    assert leader not in group(bench).members


def test_members_that_do_not_sync_in_time_are_removed() -> None:
    bench = Bench()
    joined = [bench.new_member(session_ms=1_000_000) for _ in range(2)]
    bench.advance(6_000)
    (leader, _), (follower, _) = joined
    bench.sync("g", leader, 1, {})
    assert group(bench).state is ClassicGroupState.STABLE
    bench.advance(60_000)
    assert group(bench).state is ClassicGroupState.PREPARING_REBALANCE
    assert follower not in group(bench).members


def test_static_members_keep_their_place_and_their_assignment() -> None:
    bench = Bench(GroupSettings(initial_rebalance_delay_ms=0))
    joined = [bench.join(instance=f"i{number}") for number in range(2)]
    bench.advance(0)
    members = [bench.answers[token].member_id for token in joined]
    bench.sync("g", members[0], 1, {members[1]: b"mine"}, instance="i0")
    writes = len(bench.log)
    back = bench.answers[bench.join(instance="i1", version=5)]
    assert (back.error_code, back.generation_id) == (0, 1)
    assert back.member_id != members[1]
    assert group(bench).state is ClassicGroupState.STABLE
    assert len(bench.log) == writes + 1
    assert bench.answers[bench.sync("g", back.member_id, 1, instance="i1")].assignment == b"mine"
    fenced = Refused(ErrorCode.FENCED_INSTANCE_ID)
    assert bench.answers[bench.heartbeat("g", members[1], 1, "i1")] == fenced
    assert bench.answers[bench.sync("g", members[1], 1, instance="i1")] == fenced
    assert bench.answers[bench.commit("g", {("t", 0): 1}, members[1], 1, instance="i1")] == fenced
    assert bench.answers[bench.join(member=members[1], instance="i1")].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert bench.answers[bench.leave("g", (members[1], "i1"))].members[0].error_code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize(("version", "skip", "count"), [(8, False, 0), (9, True, 2)])
def test_a_static_leader_that_returns_need_not_assign(version: int, skip: bool, count: int) -> None:
    bench = Bench(GroupSettings(initial_rebalance_delay_ms=0))
    joined = [bench.join(instance=f"i{number}") for number in range(2)]
    bench.advance(0)
    old = bench.answers[joined[0]].member_id
    bench.sync("g", old, 1, {}, instance="i0")
    back = bench.answers[bench.join(instance="i0", version=version)]
    assert (back.skip_assignment, len(back.members)) == (skip, count)
    assert back.leader == (back.member_id if skip else old)
    assert group(bench).leader == back.member_id


def test_a_duplicate_of_a_parked_static_member_is_fenced() -> None:
    bench = Bench()
    first = bench.join(instance="i")
    second = bench.join(instance="i")
    assert bench.answers[first].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert second not in bench.answers
    bench.advance(6_000)
    assert bench.answers[second].generation_id == 1


def test_a_static_member_with_other_protocols_starts_a_rebalance() -> None:
    bench = Bench(GroupSettings(initial_rebalance_delay_ms=0))
    token = bench.join(instance="i", protocols={"range": b""})
    bench.advance(0)
    bench.sync("g", bench.answers[token].member_id, 1, {}, instance="i")
    back = bench.join(instance="i", protocols={"range": b"", "sticky": b""})
    assert bench.answers[back].generation_id == 1
    assert bench.answers[bench.join(instance="i", protocols={"sticky": b"", "range": b""})].generation_id == 2


def test_static_members_stay_through_a_rebalance_that_they_miss() -> None:
    bench = Bench(GroupSettings(initial_rebalance_delay_ms=0))
    joined = [bench.join(instance=f"i{number}", session_ms=1_000_000, rebalance_ms=10_000) for number in range(2)]
    bench.advance(0)
    members = [bench.answers[token].member_id for token in joined]
    bench.sync("g", members[0], 1, {}, instance="i0")
    bench.sync("g", members[1], 1, {}, instance="i1")
    token = bench.join(member=members[1], instance="i1", protocols={"range": b"changed"}, rebalance_ms=10_000)
    bench.advance(10_000)
    assert bench.answers[token].generation_id == 2
    assert bench.answers[token].leader == members[1]
    assert list(group(bench).members) == members


def test_leave_of_many_answers_each() -> None:
    bench = Bench()
    members = bench.stable(2)
    pending = bench.answers[bench.join()].member_id
    answer = bench.answers[bench.leave("g", (members[0], None), ("ghost", None), (pending, None), ("", "nobody"))]
    assert [member.error_code for member in answer.members] == [0, 25, 0, 25]
    assert group(bench).state is ClassicGroupState.PREPARING_REBALANCE
    assert list(group(bench).members) == [members[1]]


def test_an_administrator_removes_a_static_member_by_its_instance() -> None:
    bench = Bench(GroupSettings(initial_rebalance_delay_ms=0))
    bench.join(instance="i")
    bench.advance(0)
    answer = bench.answers[bench.leave("g", ("", "i"))]
    assert [(member.member_id, member.error_code) for member in answer.members] == [("", 0)]
    assert group(bench).state is ClassicGroupState.EMPTY


def test_a_full_group_refuses_members() -> None:
    bench = Bench(GroupSettings(max_size=2))
    bench.stable(2)
    answer = bench.answers[bench.join()]
    assert (answer.error_code, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")


def test_a_group_that_is_larger_than_a_lowered_limit_shrinks_after_loading() -> None:
    bench = Bench()
    members = bench.stable(3, session_ms=100_000)
    bench.settings = GroupSettings(max_size=2)
    bench = bench.restart()
    assert group(bench).state is ClassicGroupState.PREPARING_REBALANCE
    tokens = [bench.join(member=member) for member in members]
    assert bench.answers[tokens[2]].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [bench.answers[token].generation_id for token in tokens[:2]] == [2, 2]


def test_a_refused_assignment_begins_another_rebalance() -> None:
    bench = Bench()
    joined = [bench.new_member() for _ in range(2)]
    bench.advance(6_000)
    (leader, _), (follower, _) = joined
    waiting = bench.sync("g", follower, 1)
    bench.refuse_next = ErrorCode.COORDINATOR_NOT_AVAILABLE
    failed = bench.sync("g", leader, 1, {follower: b"f"})
    assert bench.answers[failed] == bench.answers[waiting] == Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert group(bench).state is ClassicGroupState.PREPARING_REBALANCE
    assert {member.assignment for member in group(bench).members.values()} == {b""}


def test_assignments_that_are_refused_again_and_again_are_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """As while a disk is full: the member joined again at once, and caused two log lines each second."""
    caplog.set_level(logging.INFO)
    bench = Bench(GroupSettings(initial_rebalance_delay_ms=0))
    member, token = bench.new_member()
    bench.advance(0)
    for second in range(61):
        bench.refuse_next = ErrorCode.NOT_COORDINATOR
        bench.sync("g", member, bench.answers[token].generation_id, {member: b"m"})
        token = bench.join(member=member)
        bench.advance(1_000)
        assert bench.answers[token].generation_id == second + 2
    told = [line for line in caplog.messages if "could not be written" in line]
    assert len(told) == 2
    assert len([line for line in caplog.messages if "has 1 members" in line]) <= 3


def test_a_refused_return_of_a_static_member_gives_the_place_back() -> None:
    bench = Bench(GroupSettings(initial_rebalance_delay_ms=0))
    token = bench.join(instance="i")
    bench.advance(0)
    member = bench.answers[token].member_id
    bench.sync("g", member, 1, {member: b"mine"}, instance="i")
    bench.refuse_next = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.answers[bench.join(instance="i")] == Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert bench.answers[bench.heartbeat("g", member, 1, "i")].error_code == ErrorCode.NONE
    assert group(bench).members[member].assignment == b"mine"


def test_a_new_coordinator_knows_members_and_assignments() -> None:
    bench = Bench()
    members = bench.stable(2)
    later = bench.restart()
    assert group(later).state is ClassicGroupState.STABLE
    assert later.answers[later.sync("g", members[1], 1)].assignment == members[1].encode()
    assert later.answers[later.heartbeat("g", members[0], 1)].error_code == ErrorCode.NONE
    later.advance(10_000)
    assert group(later).state is ClassicGroupState.EMPTY
    assert group(later).stored == group(later.restart()).stored


def test_joins_with_an_id_need_a_group() -> None:
    bench = Bench()
    answer = bench.answers[bench.join("nobody", "ghost")]
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "ghost")
    assert "nobody" not in classic_groups(bench.shard)


def test_subscriptions_that_cannot_be_read_count_as_everything() -> None:
    bench = Bench()
    bench.stable(1, protocols={"range": b"\x00\x00\x7f"})
    assert group(bench).subscribed_topics is None
    assert group(bench).is_subscribed("anything")
    bench.stable(1, group="other", protocols={"range": subscription("t", "u")})
    assert group(bench, "other").subscribed_topics == frozenset({"t", "u"})
