"""Groups that are kept for another coordinator: streams groups."""

from __future__ import annotations

import pytest

from pykbroker.coordinator.group.records import encode
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.result import CoordinatorRecord
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.group.streams_group_current_member_assignment import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
)
from pykbroker_wire.stored.group.streams_group_member_metadata import StreamsGroupMemberMetadataKey
from pykbroker_wire.stored.group.streams_group_metadata import StreamsGroupMetadataKey, StreamsGroupMetadataValue
from tests.coordinator.group.consumers import ConsumerBench
from tests.coordinator.group.harness import Refused

DAY_MS = 86_400_000
#: a value of a later release, with a version that this one cannot read
LATER = b"\x00\x63whatever"


class KeptBench(ConsumerBench):
    def stored(self, key: TopLevel, value: TopLevel | bytes | None) -> None:
        """Add a record of another coordinator."""
        self.log.append(encode(CoordinatorRecord(key, value)))

    @property
    def listed(self) -> dict[str, tuple[str, str, str]]:
        found = self.ask(lambda shard, token, now_ms: shard.list_groups(frozenset(), frozenset(), token, now_ms))
        return {each.group_id: (each.group_type, each.protocol_type, each.group_state) for each in found}

    def delete_group(self, group: str) -> int:
        answer = self.ask(lambda shard, token, now_ms: shard.delete_groups([group], token, now_ms))
        code: int = answer[0].error_code
        return code


@pytest.fixture
def bench() -> KeptBench:
    """`streams` has a member, `streamed` has none. Offsets came before and after."""
    bench = KeptBench(GroupSettings(offsets_retention_ms=DAY_MS))
    bench.create("t")
    bench.answers.pop(bench.commit("streams", {("t", 0): 5}))
    for group in ("streams", "streamed"):
        bench.stored(StreamsGroupMemberMetadataKey(group_id=group, member_id="m"), LATER)
        bench.stored(StreamsGroupMetadataKey(group_id=group), StreamsGroupMetadataValue(epoch=1))
        bench.stored(
            StreamsGroupCurrentMemberAssignmentKey(group_id=group, member_id="m"),
            StreamsGroupCurrentMemberAssignmentValue(member_epoch=3),
        )
    for key in (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupMemberMetadataKey):
        bench.stored(key(group_id="streamed", member_id="m"), None)
    return bench.restart()


def test_they_are_listed_by_their_kinds(bench: KeptBench) -> None:
    assert bench.listed == {
        "streams": ("streams", "streams", "Unknown"),
        "streamed": ("streams", "streams", "Empty"),
    }


@pytest.mark.parametrize("group", ["streams", "streamed"])
def test_members_of_other_kinds_are_refused_and_nothing_is_written(bench: KeptBench, group: str) -> None:
    before = list(bench.log)
    for member in ("", "m"):
        assert bench.answers.pop(bench.join(group, member)) == Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    for token in (bench.sync(group, "m", 1), bench.heartbeat(group, "m", 1), bench.leave(group, ("m", None))):
        assert bench.answers.pop(token) == Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    for epoch in (0, 1, -1):
        assert bench.beat("m", epoch, group=group) == Refused(ErrorCode.GROUP_ID_NOT_FOUND)
    assert bench.log == before


def test_nothing_of_theirs_expires_or_is_deleted(bench: KeptBench) -> None:
    before = list(bench.log)
    for _ in range(5):
        bench.advance(DAY_MS)
    assert bench.log == before
    assert bench.delete_group("streams") == ErrorCode.NON_EMPTY_GROUP
    assert bench.delete_group("streamed") == ErrorCode.UNSUPPORTED_VERSION
    assert bench.log == before
    assert bench.shard.offsets.size("streams") == 1


def test_members_of_a_streams_group_commit_with_their_epoch(bench: KeptBench) -> None:
    def committed(member: str, epoch: int, group: str = "streams") -> object:
        return bench.answers.pop(bench.commit(group, {("t", 0): 9}, member=member, generation=epoch))

    assert committed("", -1) == Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert committed("other", 3) == Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert committed("m", 2) == Refused(ErrorCode.STALE_MEMBER_EPOCH)
    assert not isinstance(committed("m", 3), Refused)
    # An administrator commits for a group without members.
    assert not isinstance(committed("", -1, "streamed"), Refused)


def test_an_epoch_that_cannot_be_read_is_no_epoch(bench: KeptBench) -> None:
    bench.stored(StreamsGroupCurrentMemberAssignmentKey(group_id="streams", member_id="m"), LATER)
    bench = bench.restart()
    refused = bench.answers.pop(bench.commit("streams", {("t", 0): 9}, member="m", generation=3))
    assert refused == Refused(ErrorCode.STALE_MEMBER_EPOCH)


def test_a_group_goes_with_its_own_tombstone(bench: KeptBench) -> None:
    bench.stored(StreamsGroupMetadataKey(group_id="streamed"), None)
    bench = bench.restart()
    assert bench.listed.keys() == {"streams"}
    # Its id is free for a group of another kind.
    token = bench.join("streamed", version=3)
    assert token not in bench.answers, "it waits for other members"
    assert bench.listed["streamed"][0] == "classic"
