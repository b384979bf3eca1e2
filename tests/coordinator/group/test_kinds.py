"""A kind of group that pykbroker does not serve, as small as possible. The shard has no branch that must know it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pytest

from pykbroker.coordinator.group import records
from pykbroker.coordinator.group.classic.joining import Client, join_refused
from pykbroker.coordinator.group.contract import GroupKind
from pykbroker.coordinator.group.group_kinds import KINDS
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.group.shard import GroupShard
from pykbroker.coordinator.group.topics import GroupTopics
from pykbroker.coordinator.result import CoordinatorRecord, Result, TimerKey, Token
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.heartbeat import HeartbeatRequest
from pykbroker_wire.messages.join_group import JoinGroupRequest
from pykbroker_wire.messages.leave_group import LeaveGroupRequest
from pykbroker_wire.messages.sync_group import SyncGroupRequest
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.group.share_group_metadata import ShareGroupMetadataKey, ShareGroupMetadataValue
from tests.coordinator.group.consumers import ConsumerBench, settings
from tests.coordinator.group.harness import Refused


class SharedGroup:
    """A group that has only an epoch, which is 0 if it is empty."""

    kind: Final = "share"
    protocol_type: Final = "share"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.topics_seen: set[str] = set()

    @property
    def state_name(self) -> str:
        return "Stable" if self.epoch else "Empty"

    @property
    def newest_epoch(self) -> int:
        return self.epoch

    @property
    def is_empty(self) -> bool:
        return self.epoch == 0

    def is_subscribed(self, topic: str) -> bool:
        return False

    def topics_changed(self, names: Collection[str]) -> None:
        self.topics_seen.update(names)

    def offsets_expire_from_ms(self) -> int | None:
        return None

    def session_after_commit(self, member_id: str) -> int | None:
        return None

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool = False,
        api_version: int = -1,
    ) -> None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)

    def check_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)

    def check_offset_delete(self) -> None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)

    def check_delete(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)


class SharedStep:
    becomes = None

    def __init__(
        self, group: SharedGroup, settings: GroupSettings, topics: GroupTopics, now_ms: int, result: Result
    ) -> None:
        self.group = group
        self.result = result

    def resume(self) -> None:
        self.result.set_timer(("session", self.group.group_id, "m"), 1_000)

    def timer(self, key: TimerKey, event: object) -> None:
        """Write that the one member is gone."""
        self.result.records.append(share_record(self.group.group_id, 0))

    def join(self, request: JoinGroupRequest, client: Client, token: Token) -> None:
        self.result.reply(token, join_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))

    def sync(self, request: SyncGroupRequest, token: Token) -> None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def classic_heartbeat(self, request: HeartbeatRequest, token: Token) -> None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def classic_leave(self, request: LeaveGroupRequest, token: Token) -> None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)


def share_record(group_id: str, epoch: int) -> CoordinatorRecord:
    return CoordinatorRecord(ShareGroupMetadataKey(group_id=group_id), ShareGroupMetadataValue(epoch=epoch))


def group_id_of(key: TopLevel) -> str:
    assert isinstance(key, ShareGroupMetadataKey)
    return key.group_id


def replay(group: SharedGroup | None, record: CoordinatorRecord) -> SharedGroup | None:
    if record.value is None:
        return None
    assert isinstance(record.value, ShareGroupMetadataValue)
    group = group or SharedGroup(group_id_of(record.key))
    group.epoch = record.value.epoch
    return group


SHARE: Final[GroupKind[SharedGroup]] = GroupKind(
    group=SharedGroup,
    keys=(ShareGroupMetadataKey,),
    group_id_of_key=group_id_of,
    replay_record=replay,
    tombstones_of=lambda group: [CoordinatorRecord(ShareGroupMetadataKey(group_id=group.group_id), None)],
    raised_to=lambda group, epoch: [share_record(group.group_id, epoch)],
    step_of=SharedStep,
)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ConsumerBench:
    """Return a bench with a share group `s` that has members, a consumer group `c` and a classic one `k`."""
    monkeypatch.setitem(KINDS, "share", SHARE)
    monkeypatch.setitem(records._TYPES, ShareGroupMetadataKey.API_KEY, (ShareGroupMetadataKey, ShareGroupMetadataValue))
    bench = ConsumerBench(settings())
    bench.create("t")
    written = Result()
    written.records.append(share_record("s", 1))
    bench.carry_out(written, None)
    bench.enter("m", group="c")
    bench.stable(1, "k")
    return bench


def test_another_kind_of_group_is_listed_described_and_deleted(bench: ConsumerBench) -> None:
    def listed(types: frozenset[str] = frozenset()) -> set[tuple[str, str, str]]:
        found = bench.ask(lambda shard, token, now_ms: shard.list_groups(frozenset(), types, token, now_ms))
        return {(group.group_id, group.group_state, group.group_type) for group in found}

    assert ("s", "Stable", "share") in listed()
    assert listed(frozenset({"share"})) == {("s", "Stable", "share")}
    classic = bench.ask(lambda shard, token, now_ms: shard.describe_groups(["s"], 6, token, now_ms))
    assert [group.error_message for group in classic] == ["Group s is not a classic group."]
    consumer = bench.ask(lambda shard, token, now_ms: shard.describe_consumer_groups(["s"], token, now_ms))
    assert [group.error_message for group in consumer] == ["Group s is not a consumer group."]

    def delete() -> int:
        answer = bench.ask(lambda shard, token, now_ms: shard.delete_groups(["s"], token, now_ms))
        code: int = answer[0].error_code
        return code

    assert delete() == ErrorCode.NON_EMPTY_GROUP
    later = bench.restart()
    later.advance(1_000)
    bench = later
    assert listed(frozenset({"share"})) == {("s", "Empty", "share")}
    assert delete() == ErrorCode.NONE
    assert delete() == ErrorCode.GROUP_ID_NOT_FOUND
    assert "s" not in bench.restart().shard.groups


def test_members_of_other_protocols_find_no_way_into_another_kind_of_group(bench: ConsumerBench) -> None:
    before = len(bench.log)
    assert bench.answers.pop(bench.join("s")).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    for token in (bench.sync("s", "m", 1), bench.heartbeat("s", "m", 1), bench.leave("s", ("m", None))):
        assert bench.answers.pop(token) == Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    for epoch in (0, 1, -1):
        assert bench.beat("m", epoch, group="s") == Refused(ErrorCode.GROUP_ID_NOT_FOUND)
    assert bench.answers.pop(bench.commit("s", {("t", 0): 1})) == Refused(ErrorCode.GROUP_ID_NOT_FOUND)
    assert len(bench.log) == before


def test_another_kind_of_group_hears_of_topics(bench: ConsumerBench) -> None:
    bench.create("u")
    group = bench.shard.groups["s"]
    assert isinstance(group, SharedGroup)
    assert group.topics_seen == {"u"}


def test_groups_that_are_loaded_are_raised_to_an_epoch(bench: ConsumerBench) -> None:
    """A cluster that was put back to an earlier state hands out no generation and no epoch a second time."""
    before = {name: group.newest_epoch for name, group in bench.shard.groups.items()}
    shard = GroupShard(0, bench.settings, bench.topics, epochs_from=50)
    for key, value in bench.log:
        record = records.decode(key, value)
        assert record is not None
        shard.replay(record, 0)
    for result in shard.loaded(bench.now_ms):
        for record in result.records:
            shard.replay(record, 0)
    assert {name: group.newest_epoch for name, group in shard.groups.items()} == dict.fromkeys(before, 50)
    # The members stay, and learn the new epoch by their next request.
    assert not any(group.is_empty for group in shard.groups.values())
