"""Committed offsets: permission to commit, fetch, expiry, deletion."""

from __future__ import annotations

import pytest

from pykbroker.coordinator.group import records
from pykbroker.coordinator.group.classic.classic_group import ClassicGroupState
from pykbroker.coordinator.group.offsets import Offsets
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.group.shard import GroupShard
from pykbroker.coordinator.result import Result, Token
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from pykbroker_wire.messages.offset_fetch import OffsetFetchRequestTopics
from pykbroker_wire.stored.group.offset_commit import OffsetCommitKey, OffsetCommitValue
from pykbroker_wire.stored_framing import encode_value
from tests.coordinator.group.harness import START_MS, Bench, Refused, classic_groups, subscription

RETENTION_MS = GroupSettings().offsets_retention_ms
CHECK_MS = GroupSettings().offsets_retention_check_interval_ms


def error_of(bench: Bench, token: Token) -> int:
    answer = bench.answers[token]
    if isinstance(answer, Refused):
        return answer.error_code
    errors = {partition.error_code for topic in answer.topics for partition in topic.partitions}
    assert len(errors) == 1
    return int(errors.pop())


def delete_offsets(bench: Bench, group: str, topic: str, *partitions: int) -> Token:
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
            )
        ],
    )
    return bench.run(lambda shard, token, now_ms: shard.delete_offsets(request, token, now_ms))


def delete_groups(bench: Bench, *groups: str) -> list[int]:
    answer = bench.ask(lambda shard, token, now_ms: shard.delete_groups(groups, token, now_ms))
    return [result.error_code for result in answer]


def test_a_commit_makes_a_group_and_survives_a_restart() -> None:
    bench = Bench()
    assert error_of(bench, bench.commit("g", {("t", 0): 5, ("t", 1): 6, ("u", 0): 7})) == 0
    later = bench.restart()
    assert later.committed("g") == {("t", 0): 5, ("t", 1): 6, ("u", 0): 7}
    assert classic_groups(later.shard)["g"].state is ClassicGroupState.EMPTY
    assert classic_groups(later.shard)["g"].protocol_type is None


def test_records_are_those_of_apache_kafka() -> None:
    bench = Bench()
    bench.commit("g", {("t", 1): 5}, metadata="m", leader_epoch=3, topic_id=bytes(range(16)))
    bench.commit("g", {("t", 1): 6}, metadata=None, retention_ms=1_000)
    at = START_MS.to_bytes(8, "big")
    key = b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x01"
    # Version 4: flexible, the topic id as tagged field 0.
    value = (
        b"\x00\x04"
        + (5).to_bytes(8, "big")
        + (3).to_bytes(4, "big")
        + b"\x02m"
        + at
        + b"\x01\x00\x10"
        + bytes(range(16))
    )
    assert bench.log[0] == (key, value)
    expiry = (START_MS + 1_000).to_bytes(8, "big")
    assert bench.log[1] == (key, b"\x00\x01" + (6).to_bytes(8, "big") + b"\x00\x00" + at + expiry)


def test_older_values_can_be_read() -> None:
    value = OffsetCommitValue(offset=9, metadata="m", commit_timestamp=1)
    for version in range(5):
        record = records.decode(
            b"\x00\x00\x00\x01g\x00\x01t\x00\x00\x00\x01", version.to_bytes(2, "big") + value.encode_bytes(version)
        )
        assert record is not None
        assert isinstance(record.value, bytes)
        assert records.decode_offset(record.value) == value
    assert records.decode(b"\x00\x12\x00\x01g", None) is None


def test_who_may_commit() -> None:
    bench = Bench(GroupSettings(initial_rebalance_delay_ms=0))
    offsets = {("t", 0): 1}
    assert error_of(bench, bench.commit("nobody", offsets, "m", 3, version=8)) == ErrorCode.ILLEGAL_GENERATION
    assert error_of(bench, bench.commit("nobody", offsets, "m", 3, version=9)) == ErrorCode.GROUP_ID_NOT_FOUND
    member, _ = bench.new_member()
    bench.advance(0)
    assert error_of(bench, bench.commit("g", offsets, member, 1)) == ErrorCode.REBALANCE_IN_PROGRESS
    bench.sync("g", member, 1)
    assert error_of(bench, bench.commit("g", offsets, member, 1)) == ErrorCode.NONE
    assert error_of(bench, bench.commit("g", offsets, member, 0)) == ErrorCode.ILLEGAL_GENERATION
    assert error_of(bench, bench.commit("g", offsets, "ghost", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    # A client that assigns partitions by hand, in a group with members.
    assert error_of(bench, bench.commit("g", offsets)) == ErrorCode.UNKNOWN_MEMBER_ID
    # While the group rebalances, members of the former generation may still commit their progress.
    bench.new_member()
    assert classic_groups(bench.shard)["g"].state is ClassicGroupState.PREPARING_REBALANCE
    assert error_of(bench, bench.commit("g", {("t", 0): 2}, member, 1)) == ErrorCode.NONE
    assert bench.committed("g") == {("t", 0): 2}


def test_a_commit_keeps_the_session() -> None:
    bench = Bench()
    member = bench.stable(1, session_ms=10_000)[0]
    for _ in range(5):
        bench.advance(9_000)
        bench.commit("g", {("t", 0): 1}, member, 1)
    assert classic_groups(bench.shard)["g"].state is ClassicGroupState.STABLE


def test_metadata_that_is_too_long_is_refused_for_its_partition() -> None:
    bench = Bench()
    assert (
        error_of(bench, bench.commit("g", {("t", 0): 1}, metadata="x" * 4_097)) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    )
    assert error_of(bench, bench.commit("g", {("t", 1): 1}, metadata="x" * 4_096)) == ErrorCode.NONE
    assert bench.committed("g") == {("t", 1): 1}


def test_a_refused_append_commits_nothing() -> None:
    bench = Bench()
    bench.refuse_next = ErrorCode.NOT_COORDINATOR
    assert error_of(bench, bench.commit("g", {("t", 0): 1})) == ErrorCode.NOT_COORDINATOR
    assert bench.committed("g") == {}


def test_fetch_of_named_partitions() -> None:
    bench = Bench()
    bench.commit("g", {("t", 0): 5}, metadata="m", leader_epoch=2, topic_id=b"1" * 16)
    asked = [
        OffsetFetchRequestTopics(name="t", topic_id=b"1" * 16, partition_indexes=[0, 1]),
        OffsetFetchRequestTopics(name="t", topic_id=b"2" * 16, partition_indexes=[0]),
        OffsetFetchRequestTopics(name="u", partition_indexes=[0]),
    ]
    answer = bench.ask(lambda shard, token, now_ms: shard.fetch_offsets("g", asked, True, token, now_ms))
    found = [
        [(one.committed_offset, one.committed_leader_epoch, one.metadata, one.error_code) for one in topic.partitions]
        for topic in answer.topics
    ]
    assert found == [[(5, 2, "m", 0), (-1, -1, "", 0)], [(-1, -1, "", 0)], [(-1, -1, "", 0)]]


def test_offsets_of_a_simple_group_expire_each_on_its_own_and_then_the_group() -> None:
    bench = Bench()
    bench.commit("g", {("t", 0): 1})
    bench.advance(CHECK_MS)
    bench.commit("g", {("t", 1): 2})
    bench.advance(RETENTION_MS - CHECK_MS)
    assert bench.committed("g") == {("t", 1): 2}
    bench.advance(CHECK_MS)
    assert bench.committed("g") == {}
    assert "g" not in classic_groups(bench.shard)
    assert classic_groups(bench.restart().shard) == {}


def test_an_explicit_retention_counts_instead() -> None:
    bench = Bench()
    bench.commit("g", {("t", 0): 1}, retention_ms=1_000)
    bench.commit("g", {("t", 1): 1})
    bench.advance(CHECK_MS)
    assert bench.committed("g") == {("t", 1): 1}


def test_offsets_of_a_group_with_members_do_not_expire_while_subscribed() -> None:
    bench = Bench()
    member = bench.stable(1, session_ms=1_800_000, protocols={"range": subscription("t")})[0]
    bench.commit("g", {("t", 0): 1, ("gone", 0): 1}, member, 1)
    for _ in range(RETENTION_MS // 1_200_000 + 1):
        bench.advance(1_200_000)
        bench.heartbeat("g", member, 1)
    assert bench.committed("g") == {("t", 0): 1}
    bench.leave("g", (member, None))
    bench.advance(RETENTION_MS - CHECK_MS)
    assert bench.committed("g") == {("t", 0): 1}
    bench.advance(2 * CHECK_MS)
    assert classic_groups(bench.shard) == {}


def test_offsets_of_other_protocol_types_never_expire_while_there_are_members() -> None:
    bench = Bench()
    member = bench.stable(1, session_ms=1_800_000, protocol_type="connect")[0]
    bench.commit("g", {("t", 0): 1}, member, 1)
    for _ in range(RETENTION_MS // 1_200_000 + 1):
        bench.advance(1_200_000)
        bench.heartbeat("g", member, 1)
    assert bench.committed("g") == {("t", 0): 1}


def test_expiry_is_taken_in_turns() -> None:
    bench = Bench(GroupSettings(offsets_retention_check_interval_ms=RETENTION_MS))
    for number in range(300):
        bench.commit(f"g{number}", {("t", partition): 1 for partition in range(5)})
    assert len(classic_groups(bench.shard)) == 300
    bench.advance(RETENTION_MS)
    assert classic_groups(bench.shard) == {}
    assert bench.shard.offsets.count() == 0


def test_delete_offsets() -> None:
    bench = Bench()
    assert error_of(bench, delete_offsets(bench, "nobody", "t", 0)) == ErrorCode.GROUP_ID_NOT_FOUND
    member = bench.stable(1, protocols={"range": subscription("t")})[0]
    bench.commit("g", {("t", 0): 1, ("u", 0): 1, ("u", 1): 1}, member, 1)
    assert error_of(bench, delete_offsets(bench, "g", "t", 0)) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert error_of(bench, delete_offsets(bench, "g", "u", 0, 7)) == ErrorCode.NONE
    assert bench.committed("g") == {("t", 0): 1, ("u", 1): 1}
    assert bench.restart().committed("g") == {("t", 0): 1, ("u", 1): 1}
    bench.stable(1, "other", protocol_type="connect")
    assert error_of(bench, delete_offsets(bench, "other", "t", 0)) == ErrorCode.NON_EMPTY_GROUP


def test_a_group_outlives_its_offsets_until_it_expires_also_after_a_restart() -> None:
    bench = Bench()
    bench.commit("g", {("t", 0): 1})
    delete_offsets(bench, "g", "t", 0)
    for coordinator in (bench, bench.restart()):
        assert (list(classic_groups(coordinator.shard)), coordinator.shard.offsets.count()) == (["g"], 0)
        coordinator.advance(CHECK_MS)
        assert classic_groups(coordinator.shard) == {}
        assert classic_groups(coordinator.restart().shard) == {}


def test_a_group_that_was_deleted_does_not_come_back_when_loaded() -> None:
    """Its commits are in the log before its tombstone. A later commit creates it again."""
    bench = Bench()
    for _ in range(2):
        bench.commit("g", {("t", 0): 1})
        assert list(classic_groups(bench.restart().shard)) == ["g"]
        assert delete_groups(bench, "g") == [0]
        assert classic_groups(bench.restart().shard) == {}


def test_delete_groups() -> None:
    bench = Bench()
    member = bench.stable(1)[0]
    bench.commit("g", {("t", 0): 1}, member, 1)
    bench.commit("simple", {("t", 0): 1})
    assert delete_groups(bench, "g", "simple", "nobody") == [ErrorCode.NON_EMPTY_GROUP, 0, ErrorCode.GROUP_ID_NOT_FOUND]
    bench.leave("g", (member, None))
    assert delete_groups(bench, "g") == [0]
    assert classic_groups(bench.shard) == {}
    later = bench.restart()
    assert (classic_groups(later.shard), later.shard.offsets.count()) == ({}, 0)


def test_offsets_go_with_their_topic() -> None:
    bench = Bench()
    bench.commit("g", {("t", 0): 1, ("u", 0): 1}, topic_id=b"1" * 16)
    bench.commit("g", {("t", 1): 1}, topic_id=b"2" * 16)
    bench.commit("g", {("t", 2): 1})
    bench.carry_out(bench.shard.topics_deleted([("t", b"1" * 16), ("v", b"3" * 16)], bench.now_ms), None)
    assert bench.committed("g") == {("u", 0): 1, ("t", 1): 1}


class TestTransactions:
    """Undecided offsets in the log. TxnOffsetCommit itself comes with the transaction coordinator."""

    @staticmethod
    def put(offsets: Offsets, offset: int, at: int, producer: int = -1) -> None:
        value = encode_value(OffsetCommitValue(offset=offset), 4)
        offsets.replay(OffsetCommitKey(group="g", topic="t", partition=0), value, at, producer)

    def test_undecided_offsets_are_not_served(self) -> None:
        offsets = Offsets()
        self.put(offsets, 1, 0)
        self.put(offsets, 2, 1, producer=7)
        asked = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        assert offsets.fetch("g", asked, require_stable=False)[0].partitions[0].committed_offset == 1
        assert (
            offsets.fetch("g", asked, require_stable=True)[0].partitions[0].error_code
            == ErrorCode.UNSTABLE_OFFSET_COMMIT
        )
        offsets.end_transaction(7, commit=True)
        assert offsets.fetch("g", asked, require_stable=True)[0].partitions[0].committed_offset == 2
        assert not offsets.has_open_transaction("g")

    def test_an_aborted_transaction_leaves_nothing(self) -> None:
        offsets = Offsets()
        self.put(offsets, 2, 0, producer=7)
        offsets.end_transaction(7, commit=False)
        assert offsets.get("g", "t", 0) is None
        assert not offsets.has_open_transaction("g")

    def test_the_later_commit_in_the_log_wins(self) -> None:
        offsets = Offsets()
        self.put(offsets, 2, 0, producer=7)
        self.put(offsets, 1, 1)
        offsets.end_transaction(7, commit=True)
        found = offsets.get("g", "t", 0)
        assert found is not None
        assert found.value.offset == 1

    def test_a_tombstone_takes_undecided_offsets_along(self) -> None:
        offsets = Offsets()
        self.put(offsets, 2, 0, producer=7)
        assert len(offsets.delete("g", "t", 0)) == 1
        assert len(offsets.delete_group("g")) == 1
        offsets.replay(OffsetCommitKey(group="g", topic="t", partition=0), None, 1)
        offsets.end_transaction(7, commit=True)
        assert offsets.get("g", "t", 0) is None

    def test_a_group_with_an_open_transaction_is_kept(self) -> None:
        shard = GroupShard(0, GroupSettings())
        list(shard.loaded(START_MS))
        record = records.offset_record("g", "t", 0, offset=1, leader_epoch=-1, metadata="", commit_ms=0, expire_ms=-1)
        shard.replay(record, 0, producer_id=7)
        result: Result = shard.on_timer(("expire",), None, START_MS + 2 * RETENTION_MS)
        assert result.records == []


@pytest.mark.parametrize("states", [frozenset[str](), frozenset({"stable"}), frozenset({"empty", "dead"})])
def test_list_groups_by_state(states: frozenset[str]) -> None:
    bench = Bench()
    bench.stable(1, "stable-group")
    bench.commit("simple", {("t", 0): 1})
    listed = bench.ask(lambda shard, token, now_ms: shard.list_groups(states, frozenset(), token, now_ms))
    expected = {
        ("stable-group", "consumer", "Stable", "classic"): not states or "stable" in states,
        ("simple", "", "Empty", "classic"): not states or "empty" in states,
    }
    found = {(group.group_id, group.protocol_type, group.group_state, group.group_type) for group in listed}
    assert found == {group for group, wanted in expected.items() if wanted}


def test_describe_groups() -> None:
    bench = Bench()
    members = bench.stable(2)
    asked = ["g", "nobody"]
    found = bench.ask(lambda shard, token, now_ms: shard.describe_groups(asked, 6, token, now_ms))
    assert (found[0].group_state, found[0].protocol_type, found[0].protocol_data) == ("Stable", "consumer", "range")
    assert [(member.member_id, member.client_host) for member in found[0].members] == [
        (name, "/10.0.0.1") for name in members
    ]
    assert found[0].members[0].member_metadata == subscription("t")
    assert (found[1].group_state, found[1].error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    old = bench.ask(lambda shard, token, now_ms: shard.describe_groups(["nobody"], 5, token, now_ms))
    assert (old[0].group_state, old[0].error_code) == ("Dead", 0)
