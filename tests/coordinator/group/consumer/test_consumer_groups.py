"""Consumer groups (KIP-848): what single heartbeats do. Whole stories are in transcripts/consumer_groups."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.coordinator.group import records
from pykbroker.coordinator.group.classic.classic_group import ClassicGroupState
from pykbroker.coordinator.group.classic.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS
from pykbroker.coordinator.group.consumer.consumer_group import ConsumerState, MemberState
from pykbroker.coordinator.group.consumer.timer_keys import session_timer
from pykbroker.coordinator.group.settings import GroupSettings, Migration
from pykbroker.coordinator.group.shard import GroupShard
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from pykbroker_wire.messages.consumer_protocol import AssignmentTopicPartition, ConsumerProtocolAssignment
from tests.coordinator.group.consumers import ConsumerBench, Partitions, embedded, given, settings, topic_id
from tests.coordinator.group.harness import Refused, classic_groups, consumer_groups

ALL = {("t", index) for index in range(4)}


@pytest.fixture
def bench() -> ConsumerBench:
    bench = ConsumerBench(settings())
    bench.create("t")
    return bench


def refused(bench: ConsumerBench, answer: Any, code: ErrorCode, words: str = "") -> None:
    assert answer == Refused(code), answer
    assert bench.last_error is not None
    assert words in bench.last_error.message


def epoch(answer: ConsumerGroupHeartbeatResponse | Refused) -> int:
    assert not isinstance(answer, Refused), answer
    return answer.member_epoch


def pair(bench: ConsumerBench) -> tuple[Partitions, Partitions]:
    """Two members that share the topic, reconciled; what each has."""
    first = bench.enter("m1")
    bench.enter("m2")
    told = bench.beat("m1", epoch(first), owned=ALL)
    kept = given(told)
    assert kept is not None
    third = bench.beat("m1", epoch(told), owned=kept)
    second = bench.beat("m2", 3)
    theirs = given(second)
    assert theirs is not None
    assert (epoch(third), epoch(second)) == (3, 3)
    assert bench.group().state is ConsumerState.STABLE
    return kept, theirs


# -- members ------------------------------------------------------------------------------------------------------


def test_the_first_member_gets_everything_at_once(bench: ConsumerBench) -> None:
    answer = bench.enter()
    assert (answer.member_epoch, answer.heartbeat_interval_ms, given(answer)) == (2, 5_000, ALL)
    assert bench.group().state is ConsumerState.STABLE
    assert given(bench.beat("m1", 2)) is None
    assert given(bench.beat("m1", 2, topics=["t"], owned=ALL, rebalance_ms=60_000)) == ALL


def test_a_member_without_an_id_is_given_one(bench: ConsumerBench) -> None:
    assert bench.enter("").member_id == "new-0"


def test_a_partition_is_given_on_when_its_owner_has_revoked_it(bench: ConsumerBench) -> None:
    bench.enter("m1")
    second = bench.enter("m2")
    assert (second.member_epoch, given(second)) == (3, set())
    assert bench.group().members["m2"].state is MemberState.UNRELEASED_PARTITIONS
    told = bench.beat("m1", 2, owned=ALL)
    kept = given(told)
    assert kept is not None
    assert (epoch(told), len(kept)) == (2, 2)
    # It has not confirmed yet.
    assert given(bench.beat("m2", 3)) is None
    assert given(bench.beat("m1", 2, owned=ALL)) is None
    assert given(bench.beat("m2", 3)) is None
    assert epoch(bench.beat("m1", 2, owned=kept)) == 3
    assert given(bench.beat("m2", 3)) == ALL - kept


def test_a_heartbeat_without_news_writes_nothing(bench: ConsumerBench) -> None:
    pair(bench)
    written = len(bench.log)
    for _ in range(3):
        assert epoch(bench.beat("m1", 3)) == 3
    assert len(bench.log) == written


def test_members_that_leave_or_die_leave_their_partitions(bench: ConsumerBench) -> None:
    pair(bench)
    assert epoch(bench.beat("m2", -1)) == -1
    assert bench.group().state is ConsumerState.ASSIGNING
    assert given(bench.beat("m1", 3)) == ALL
    bench.enter("m3")
    bench.advance(44_999)
    bench.beat("m1", 4)
    bench.advance(1)
    assert list(bench.group().members) == ["m1"]
    bench.advance(45_000)
    assert bench.group().state is ConsumerState.EMPTY
    assert bench.restart().group().state is ConsumerState.EMPTY


def test_a_member_that_does_not_revoke_in_time_is_out(bench: ConsumerBench) -> None:
    bench.enter("m1", rebalance_ms=5_000)
    bench.enter("m2")
    bench.beat("m1", 2, owned=ALL)
    bench.advance(4_999)
    bench.beat("m1", 2, owned=ALL)
    bench.advance(1)
    assert list(bench.group().members) == ["m2"]
    assert given(bench.beat("m2", 3)) == ALL


def test_the_rebalance_timeout_survives_a_failover(bench: ConsumerBench) -> None:
    bench.enter("m1", rebalance_ms=5_000)
    bench.enter("m2")
    bench.beat("m1", 2, owned=ALL)
    later = bench.restart()
    assert (("rebalance", "g", "m1"), 5_000) in later.timers()
    later.advance(5_000)
    assert list(later.group().members) == ["m2"]


def test_a_timeout_that_could_not_be_written_comes_again(bench: ConsumerBench) -> None:
    bench.enter("m1")
    bench.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    bench.advance(45_000)
    assert "m1" in bench.group().members
    bench.advance(500)
    assert bench.group().members == {}


def test_a_member_whose_leaving_could_not_be_written_is_still_watched(bench: ConsumerBench) -> None:
    """Apache Kafka forgets its session, and the member stays for ever."""
    for epoch_, options in ((-1, {}), (0, {"topics": ["t"], "owned": set(), "rebalance_ms": 1})):
        bench.enter("m1", instance="i")
        if epoch_ == 0:
            bench.beat("m1", -2, instance="i")
        bench.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
        leaver = "m1" if epoch_ else "m2"
        assert isinstance(bench.beat(leaver, epoch_, instance="i", **options), Refused)  # type: ignore[arg-type]
        bench.advance(45_000)
        assert bench.group().members == {}


def test_a_refused_append_changes_nothing(bench: ConsumerBench) -> None:
    bench.enter("m1")
    bench.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    assert bench.beat("m2", 0, topics=["t"], owned=set(), rebalance_ms=1) == Refused(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert list(bench.group().members) == ["m1"]
    assert bench.group().epoch == 2
    assert bench.enter("m2").member_epoch == 3


# -- epochs -------------------------------------------------------------------------------------------------------


def test_epochs_fence(bench: ConsumerBench) -> None:
    kept, _ = pair(bench)
    refused(bench, bench.beat("m1", 4), ErrorCode.FENCED_MEMBER_EPOCH, "greater member epoch (4)")
    refused(bench, bench.beat("m1", 1), ErrorCode.FENCED_MEMBER_EPOCH, "smaller member epoch (1)")
    # The answer with the new epoch was lost.
    assert epoch(bench.beat("m1", 2, owned=kept)) == 3
    refused(bench, bench.beat("m1", 2, owned=ALL), ErrorCode.FENCED_MEMBER_EPOCH)
    refused(bench, bench.beat("m1", 2), ErrorCode.FENCED_MEMBER_EPOCH)
    refused(bench, bench.beat("nobody", 3), ErrorCode.UNKNOWN_MEMBER_ID, "Member nobody is not a member of group g.")
    refused(bench, bench.beat("m1", 3, group="x"), ErrorCode.GROUP_ID_NOT_FOUND, "Consumer group x not found.")
    refused(bench, bench.beat("m1", -1, group="x"), ErrorCode.GROUP_ID_NOT_FOUND, "Group x not found.")
    assert epoch(bench.enter("m1")) == 3


def test_a_group_may_be_full() -> None:
    bench = ConsumerBench(settings(consumer_max_size=1))
    bench.create("t")
    bench.enter("m1")
    refused(bench, bench.beat("m2", 0), ErrorCode.GROUP_MAX_SIZE_REACHED, "maximum capacity of 1 members")
    assert epoch(bench.enter("m1")) == 2


def test_commits_and_fetches_name_an_epoch(bench: ConsumerBench) -> None:
    kept, _ = pair(bench)
    mine, other = sorted(kept)[0], sorted(ALL - kept)[0]

    def commit(where: tuple[str, int], generation: int, member: str = "m1", version: int = 9) -> ErrorCode:
        token = bench.commit("g", {where: 5}, member, generation, topic_id=topic_id("t"), version=version)
        answer = bench.answers.pop(token)
        if isinstance(answer, Refused):
            return answer.error_code
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    assert commit(mine, 3) is ErrorCode.NONE
    assert commit(mine, 4) is ErrorCode.STALE_MEMBER_EPOCH
    # Behind, and still the owner since then.
    assert commit(mine, 2) is ErrorCode.NONE
    assert commit(mine, 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(other, 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(mine, 3, "nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(mine, -1, "") is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(mine, 3, version=8) is ErrorCode.UNSUPPORTED_VERSION

    def fetch(member: str | None, generation: int) -> ErrorCode:
        answer = bench.ask(
            lambda shard, token, now_ms: shard.fetch_offsets("g", None, False, token, now_ms, member, generation)
        )
        return ErrorCode(answer.error_code)

    assert fetch(None, -1) is ErrorCode.NONE
    assert fetch("m1", 3) is ErrorCode.NONE
    assert fetch("m1", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch("nobody", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    bench.beat("m1", -1)
    bench.beat("m2", -1)
    assert commit(mine, -1, "") is ErrorCode.NONE


def test_a_transaction_does_not_know_stale_epochs(bench: ConsumerBench) -> None:
    pair(bench)
    group = bench.group()
    with pytest.raises(Exception, match="ILLEGAL_GENERATION"):
        group.check_offset_commit("m1", None, 4, transactional=True)
    check = group.check_offset_commit("m1", None, 1, transactional=True)
    assert check is not None
    with pytest.raises(Exception, match="ILLEGAL_GENERATION"):
        check("t", topic_id("t"), 0)
    assert group.check_offset_commit("", None, -1, transactional=True) is None


# -- static members -----------------------------------------------------------------------------------------------


def test_a_static_member_comes_back_to_its_partitions(bench: ConsumerBench) -> None:
    bench.enter("m1", instance="i")
    refused(bench, bench.beat("m2", 0, instance="i"), ErrorCode.UNRELEASED_INSTANCE_ID, "owned by m1 member")
    refused(bench, bench.beat("m2", 2, instance="i"), ErrorCode.FENCED_INSTANCE_ID, "fenced by member m1")
    refused(bench, bench.beat("m2", 2, instance="j"), ErrorCode.UNKNOWN_MEMBER_ID, "Instance id j is unknown.")
    assert epoch(bench.beat("m1", -2, instance="i")) == -2
    assert bench.group().epoch == 2
    back = bench.enter("m2", instance="i")
    assert (back.member_epoch, given(back)) == (2, ALL)
    assert list(bench.group().members) == ["m2"]
    assert bench.group().epoch == 2
    assert bench.restart().group().static_members == {"i": "m2"}
    assert [key for key, _ in bench.timers() if key[0] == "session"] == [("session", "g", "m2")]


def test_a_static_member_that_stays_away_is_out(bench: ConsumerBench) -> None:
    bench.enter("m1", instance="i")
    bench.beat("m1", -2, instance="i")
    bench.advance(45_000)
    assert bench.group().members == {}
    assert bench.group().partition_epochs == {}


# -- topics -------------------------------------------------------------------------------------------------------


def test_an_instance_that_its_member_gave_up_is_free_when_the_member_is_gone(bench: ConsumerBench) -> None:
    """Until then it is the member's, as in Apache Kafka, where nobody ever gets it again."""
    bench.enter("m", instance="x")
    bench.enter("m", instance="y")
    assert bench.group().static_members == {"x": "m", "y": "m"}
    for other in (bench, bench.restart()):
        refused(other, other.beat("n", 0, topics=["t"], instance="x"), ErrorCode.UNRELEASED_INSTANCE_ID)
        other.beat("m", -1, instance="y")
        for later in (other, other.restart()):
            assert later.group().static_members == {}
            refused(later, later.beat("m", -1, instance="x"), ErrorCode.UNKNOWN_MEMBER_ID)
            assert given(later.enter("n", instance="x")) == ALL


def test_topics_come_grow_and_go(bench: ConsumerBench) -> None:
    bench.enter("m1", "t", "later")
    assert epoch(bench.beat("m1", 2)) == 2
    bench.create("later", partitions=1)
    assert given(bench.beat("m1", 2)) == ALL | {("later", 0)}
    bench.grow("later", partitions=2)
    assert given(bench.beat("m1", 3)) == ALL | {("later", 0), ("later", 1)}
    bench.delete("t")
    told = bench.beat("m1", 4)
    assert (epoch(told), given(told)) == (4, {("later", 0), ("later", 1)})
    assert epoch(bench.beat("m1", 4, owned={("later", 0), ("later", 1)})) == 5
    bench.create("other")
    assert epoch(bench.beat("m1", 5)) == 5


def test_racks_are_part_of_the_hash(bench: ConsumerBench) -> None:
    bench.create("r", racks=["a", "b"])
    bench.enter("m1", "r", rack="a")
    before = bench.group().metadata_hash
    assert bench.group().members["m1"].rack_id == "a"
    bench.create("r", racks=["a", "c"])
    bench.beat("m1", 2)
    assert bench.group().metadata_hash != before
    assert bench.group().epoch == 3


def test_a_changed_subscription(bench: ConsumerBench) -> None:
    bench.create("u", partitions=1)
    bench.enter("m1")
    told = bench.beat("m1", 2, topics=["u"], owned=ALL, rebalance_ms=60_000)
    assert (epoch(told), given(told)) == (2, set())
    assert given(bench.beat("m1", 2, owned=set())) == {("u", 0)}


# -- assignors, intervals -----------------------------------------------------------------------------------------


def test_the_assignor_is_the_one_that_most_ask_for() -> None:
    bench = ConsumerBench(settings(consumer_assignors=("range", "uniform")))
    bench.create("t", "u", partitions=3)
    bench.enter("m1", "t", "u")
    assert bench.group().preferred_assignor("range") == "range"
    bench.enter("m2", "t", "u", assignor="uniform")
    assert bench.group().preferred_assignor("range") == "uniform"


def test_of_two_assignors_the_asking_members_own_is_preferred(bench: ConsumerBench) -> None:
    bench.enter("m1", "t", assignor="range")
    bench.enter("m2", "t", assignor="uniform")
    group = bench.group()
    m1, m2 = group.members["m1"], group.members["m2"]
    assert group.preferred_assignor("uniform", m1, m1) == "range"
    assert group.preferred_assignor("uniform", m2, m2) == "uniform"
    assert group.preferred_assignor("uniform") == "uniform"


def test_targets_are_not_computed_too_often() -> None:
    bench = ConsumerBench(settings(assignment_interval_ms=1_000))
    bench.create("t")
    bench.enter("m1")
    late = bench.enter("m2")
    assert (late.member_epoch, given(late)) == (2, set())
    bench.enter("m3")
    assert bench.group().state is ConsumerState.ASSIGNING
    bench.advance(999)
    assert epoch(bench.beat("m1", 2)) == 2
    assert bench.group().target_epoch == 2
    bench.advance(1)
    bench.beat("m1", 2, owned=ALL)
    assert bench.group().target_epoch == 4


# -- regular expressions ------------------------------------------------------------------------------------------


def test_a_regular_expression_is_resolved_after_the_answer(bench: ConsumerBench) -> None:
    bench.create("tea", "sugar", partitions=1)
    first = bench.enter("m1", topics=None, regex="t.*")
    assert (first.member_epoch, given(first)) == (1, set())
    bench.advance(0)
    assert bench.group().resolved["t.*"].topics == {"t", "tea"}
    assert given(bench.beat("m1", 1)) == ALL | {("tea", 0)}
    assert bench.restart().group().resolved == bench.group().resolved


def test_a_regular_expression_does_not_find_what_may_not_be_seen(bench: ConsumerBench) -> None:
    bench.create("tea", partitions=1)
    bench.enter("m1", topics=None, regex="t.*", may_describe=lambda topic: topic != "tea")
    bench.advance(0)
    assert bench.group().resolved["t.*"].topics == {"t"}


def test_regular_expressions_see_new_topics_but_not_at_every_heartbeat() -> None:
    bench = ConsumerBench(settings(consumer_regex_refresh_interval_ms=60_000))
    bench.create("t", partitions=1)
    bench.enter("m1", topics=None, regex="t.*")
    bench.advance(0)
    bench.create("tea", partitions=1)
    bench.advance(10_000)
    bench.beat("m1", 1)
    bench.advance(0)
    assert bench.group().resolved["t.*"].topics == {"t"}
    bench.advance(1)
    bench.beat("m1", 2)
    bench.advance(0)
    assert bench.group().resolved["t.*"].topics == {"t", "tea"}
    # Nothing is new, but permissions may be.
    for _ in range(2):
        bench.advance(30_000)
        bench.beat("m1", 2)
        bench.beat("m1", 3)
    bench.beat("m1", 3, may_describe=lambda topic: topic == "tea")
    bench.advance(1)
    bench.beat("m1", 3, may_describe=lambda topic: topic == "tea")
    bench.advance(0)
    assert bench.group().resolved["t.*"].topics == {"tea"}


def test_a_bad_regular_expression(bench: ConsumerBench) -> None:
    answer = bench.beat("m1", 0, regex="(", owned=set(), rebalance_ms=1)
    refused(bench, answer, ErrorCode.INVALID_REGULAR_EXPRESSION, "SubscribedTopicRegex `(` is not a valid")
    assert bench.log == []


def test_a_refused_heartbeat_does_not_keep_others_from_resolving(bench: ConsumerBench) -> None:
    bench.enter("m1")
    group = bench.group()
    # Of a record that somebody else wrote.
    group.update_member(group.members["m1"]._replace(state=MemberState.UNKNOWN))
    refused(bench, bench.beat("m1", 2, regex="t.*"), ErrorCode.FENCED_MEMBER_EPOCH)
    assert not group.resolving
    bench.enter("m2", regex="t.*")
    bench.advance(0)
    assert group.resolved["t.*"].topics == {"t"}


def test_the_last_member_takes_its_regular_expression_along(bench: ConsumerBench) -> None:
    bench.enter("m1", topics=None, regex="t")
    bench.enter("m2", topics=["t"], regex="t")
    bench.advance(0)
    bench.beat("m1", -1)
    assert set(bench.group().resolved) == {"t"}
    bench.beat("m2", 2, regex="")
    assert bench.group().resolved == {}
    assert bench.group().subscribers == {"t": (1, 0)}


# -- groups of both kinds -----------------------------------------------------------------------------------------


def classic_pair(bench: ConsumerBench) -> list[str]:
    """Two classic members, the first of which has half of the topic."""
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
    """Two classic members get a third of the new protocol, and are among themselves again."""
    first, second = classic_pair(bench)
    bench.enter("new")
    group = bench.group()
    assert (group.epoch, group.classic_count, classic_groups(bench.shard)) == (2, 2, {})
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
    # The other one did not come back.
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
    """The session of the classic member that stays was forgotten with the group that was not written."""
    bench.enter("new")
    stays = bench.answers.pop(bench.join("g", version=3, protocols={"range": embedded("t")})).member_id
    bench.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    assert bench.beat("new", -1) == Refused(ErrorCode.NOT_ENOUGH_REPLICAS)
    sessions = {key[2] for key, _ in bench.timers() if key[0] == "session"}
    assert sessions == set(bench.group().members) == {"new", stays}


@pytest.mark.parametrize("leaves", [False, True])
def test_a_group_that_cannot_become_classic_still_loses_its_member(bench: ConsumerBench, leaves: bool) -> None:
    """Only the first protocol of a member is looked at when it joins; the one that all support is another one."""
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
    assert bench.group().partition_epochs == {}
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
    """There are pauses in it, and timers run."""
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


# -- administration -----------------------------------------------------------------------------------------------


def test_what_administrators_see(bench: ConsumerBench) -> None:
    bench.enter("m1", rack="r", instance="i")
    bench.stable(1, "old")

    def listed(states: str = "", types: str = "") -> list[tuple[str, str, str]]:
        found = bench.ask(
            lambda shard, token, now_ms: shard.list_groups(
                frozenset(states.split()), frozenset(types.split()), token, now_ms
            )
        )
        return [(group.group_id, group.group_state, group.group_type) for group in found]

    assert listed() == [("g", "Stable", "consumer"), ("old", "Stable", "classic")]
    assert listed(types="consumer") == [("g", "Stable", "consumer")]
    assert listed(states="assigning") == []
    found = bench.ask(lambda shard, token, now_ms: shard.describe_consumer_groups(["g", "old", "x"], token, now_ms))
    assert [(one.error_code, one.error_message) for one in found[1:]] == [
        (ErrorCode.GROUP_ID_NOT_FOUND, "Group old is not a consumer group."),
        (ErrorCode.GROUP_ID_NOT_FOUND, "Group x not found."),
    ]
    (member,) = found[0].members
    assert (found[0].group_epoch, found[0].assignment_epoch, found[0].assignor_name) == (2, 2, "uniform")
    assert (member.instance_id, member.rack_id, member.member_type) == ("i", "r", 1)
    assert [topic.partitions for topic in member.assignment.topic_partitions] == [[0, 1, 2, 3]]
    classic = bench.ask(lambda shard, token, now_ms: shard.describe_groups(["g"], 6, token, now_ms))
    assert classic[0].error_message == "Group g is not a classic group."
    assert classic[0].group_state == "Dead"


def test_deleting_and_expiry(bench: ConsumerBench) -> None:
    bench.enter("m1")
    bench.commit("g", {("t", 0): 7, ("u", 0): 8}, "m1", 2)

    def delete() -> ErrorCode:
        (answer,) = bench.ask(lambda shard, token, now_ms: shard.delete_groups(["g"], token, now_ms))
        return ErrorCode(answer.error_code)

    assert delete() is ErrorCode.NON_EMPTY_GROUP
    keep = GroupSettings().offsets_retention_ms
    for _ in range((keep + 600_000) // 40_000 + 1):
        bench.advance(40_000)
        bench.beat("m1", 2)
    # Nobody subscribes to u.
    assert bench.committed("g") == {("t", 0): 7}
    bench.beat("m1", -1)
    bench.advance(600_000)
    assert consumer_groups(bench.shard) == {}
    assert consumer_groups(bench.restart().shard) == {}
    bench.enter("m1")
    bench.beat("m1", -1)
    assert delete() is ErrorCode.NONE
    assert consumer_groups(bench.shard) == {}


def test_tombstones_take_everything(bench: ConsumerBench) -> None:
    """What is left of a deleted group, were its log compacted: nothing."""
    bench.enter("m1", topics=["t"], regex="t.*", instance="i")
    bench.advance(0)
    bench.beat("m1", -1, instance="i")
    bench.ask(lambda shard, token, now_ms: shard.delete_groups(["g"], token, now_ms))
    latest = dict(bench.log)
    assert [records.decode(key, None) for key, value in latest.items() if value is not None] == []
