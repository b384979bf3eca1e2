"""Consumer groups (KIP-848): the effect of single heartbeats. Whole stories are in transcripts/consumer_groups."""

from __future__ import annotations

import pytest

from pykbroker.coordinator.group import records
from pykbroker.coordinator.group.consumer.consumer_group import ConsumerState
from pykbroker.coordinator.group.consumer.consumer_member import MemberState
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker_wire.errors import ErrorCode
from tests.coordinator.group.consumers import (
    ALL,
    ConsumerBench,
    epoch,
    given,
    pair,
    refused,
    settings,
    topic_id,
)
from tests.coordinator.group.harness import Refused, consumer_groups

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
    """Apache Kafka forgets its session, and then the member stays without end."""
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
    # An older epoch, and the member has owned the partition since then.
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


@pytest.mark.parametrize(("version", "stale"), [(5, "ILLEGAL_GENERATION"), (6, "STALE_MEMBER_EPOCH")])
def test_a_transaction_knows_stale_epochs_from_version_6_on(bench: ConsumerBench, version: int, stale: str) -> None:
    pair(bench)
    group = bench.group()
    with pytest.raises(Exception, match=stale):
        group.check_offset_commit("m1", None, 4, transactional=True, api_version=version)
    check = group.check_offset_commit("m1", None, 1, transactional=True, api_version=version)
    assert check is not None
    with pytest.raises(Exception, match=stale):
        check("t", topic_id("t"), 0)
    assert group.check_offset_commit("", None, -1, transactional=True, api_version=version) is None


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
    assert bench.group().partition_epochs.by_topic == {}


# -- topics -------------------------------------------------------------------------------------------------------


def test_an_instance_that_its_member_gave_up_is_free_when_the_member_is_gone(bench: ConsumerBench) -> None:
    """Until then it is the member's. In Apache Kafka no other member ever gets it again."""
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
    assert bench.group().subscriptions.preferred_assignor("range") == "range"
    bench.enter("m2", "t", "u", assignor="uniform")
    assert bench.group().subscriptions.preferred_assignor("range") == "uniform"


def test_of_two_assignors_the_asking_members_own_is_preferred(bench: ConsumerBench) -> None:
    bench.enter("m1", "t", assignor="range")
    bench.enter("m2", "t", assignor="uniform")
    group = bench.group()
    m1, m2 = group.members["m1"], group.members["m2"]
    assert group.subscriptions.preferred_assignor("uniform", m1, m1) == "range"
    assert group.subscriptions.preferred_assignor("uniform", m2, m2) == "uniform"
    assert group.subscriptions.preferred_assignor("uniform") == "uniform"


def test_an_assignor_that_a_heartbeat_changes_gives_a_new_target(bench: ConsumerBench) -> None:
    bench.enter("m1", "t", assignor="uniform")
    assert epoch(bench.beat("m1", 2, assignor="range")) == 3
    assert epoch(bench.beat("m1", 3, assignor="range")) == 3
    # Two assignors have one vote each. No heartbeat changes that, so the epoch stays.
    bench.enter("m2", "t", assignor="uniform")
    before = bench.group().epoch
    for _ in range(3):
        bench.beat("m1", 3)
        bench.beat("m2", before)
    assert bench.group().epoch == before


def test_the_target_of_an_emptied_group_is_up_to_date() -> None:
    """And the next member does not wait for the assignment interval."""
    bench = ConsumerBench(settings(assignment_interval_ms=1_000))
    bench.create("t", partitions=2)
    bench.enter("m1", "t")
    bench.beat("m1", -1)
    group = bench.group()
    assert (group.epoch, group.target_epoch, group.target_timestamp_ms) == (3, 3, 0)
    assert given(bench.beat("m2", 0, topics=["t"]))


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


def test_a_clock_that_goes_back_does_not_keep_the_next_target() -> None:
    """If the clock goes back by an hour, or a coordinator's clock lags by an hour, the group would wait for that
    hour."""
    bench = ConsumerBench(settings(assignment_interval_ms=1_000))
    bench.create("t")
    bench.enter("m1")
    bench.enter("m2")
    bench.advance(-3_600_000)
    bench.beat("m1", 2, owned=ALL)
    assert bench.group().target_epoch == 3


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


@pytest.mark.slow
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
    # No member subscribes to u.
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
    """If the log of a deleted group were compacted, nothing would remain."""
    bench.enter("m1", topics=["t"], regex="t.*", instance="i")
    bench.advance(0)
    bench.beat("m1", -1, instance="i")
    bench.ask(lambda shard, token, now_ms: shard.delete_groups(["g"], token, now_ms))
    latest = dict(bench.log)
    assert [records.decode(key, None) for key, value in latest.items() if value is not None] == []
