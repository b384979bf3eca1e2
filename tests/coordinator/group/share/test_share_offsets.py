"""Administrators and share groups: start offsets that are altered and deleted, groups that are deleted.

The errors are those of Apache Kafka 4.3.1.
"""

from __future__ import annotations

from typing import Any

from pykbroker.coordinator.group.share.share_offsets import (
    GroupsDeletion,
    OffsetsAlteration,
    OffsetsDeletion,
    begin_alteration,
    begin_groups_deletion,
    begin_offsets_deletion,
    end_offsets_deletion,
)
from pykbroker.coordinator.group.share.share_states import ShareStart
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
from tests.coordinator.group.consumers import topic_id
from tests.coordinator.group.harness import Refused
from tests.coordinator.group.shares import INTERVAL_MS, ShareBench, share_groups, told

T = topic_id("t")


def alter(bench: ShareBench, offsets: dict[tuple[str, int], int], group: str = "g") -> OffsetsAlteration | Refused:
    topics: dict[str, AlterShareGroupOffsetsRequestTopic] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, AlterShareGroupOffsetsRequestTopic(topic_name=topic)).partitions.append(
            AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
        )
    request = AlterShareGroupOffsetsRequest(group_id=group, topics=list(topics.values()))
    answer: OffsetsAlteration | Refused = bench.ask(
        lambda shard, token, now_ms: begin_alteration(shard, request, token, now_ms)
    )
    return answer


def delete_offsets(bench: ShareBench, *topics: str, group: str = "g") -> OffsetsDeletion | Refused:
    request = DeleteShareGroupOffsetsRequest(
        group_id=group, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics]
    )
    answer: OffsetsDeletion | Refused = bench.ask(
        lambda shard, token, now_ms: begin_offsets_deletion(shard, request, token, now_ms)
    )
    return answer


def begin_deletion(bench: ShareBench, *groups: str) -> GroupsDeletion:
    found: GroupsDeletion = bench.ask(lambda shard, token, now_ms: begin_groups_deletion(shard, groups, token, now_ms))
    return found


def delete_group(bench: ShareBench, group: str = "g") -> int:
    answer = bench.ask(lambda shard, token, now_ms: shard.delete_groups([group], token, now_ms))
    code: int = answer[0].error_code
    return code


def emptied(bench: ShareBench) -> ShareBench:
    bench.come()
    bench.share_beat("m1", -1)
    return bench


def errors(alteration: OffsetsAlteration | Refused) -> dict[tuple[str, int], int]:
    assert isinstance(alteration, OffsetsAlteration)
    return {
        (topic.topic_name, partition.partition_index): partition.error_code
        for topic in alteration.response.responses
        for partition in topic.partitions
    }


def states(bench: ShareBench) -> tuple[Any, Any, Any]:
    found = bench.share().known_states
    return (
        {t: set(topic.partitions) for t, topic in found.initializing.items()},
        {t: set(topic.partitions) for t, topic in found.initialized.items()},
        set(found.deleting),
    )


def test_offsets_of_a_group_with_members_are_not_changed(bench: ShareBench) -> None:
    bench.come()
    length = len(bench.log)
    assert alter(bench, {("t", 0): 5}) == Refused(ErrorCode.NON_EMPTY_GROUP)
    assert delete_offsets(bench, "t") == Refused(ErrorCode.NON_EMPTY_GROUP)
    assert begin_deletion(bench, "g") == GroupsDeletion({}, {"g": ErrorCode.NON_EMPTY_GROUP})
    assert delete_group(bench) == ErrorCode.NON_EMPTY_GROUP
    assert len(bench.log) == length


def test_an_alteration_sets_the_start_of_an_emptied_group(bench: ShareBench) -> None:
    emptied(bench)
    answer = alter(bench, {("t", 1): 7, ("t", 9): 1, ("u", 0): 1})
    assert errors(answer) == {
        ("t", 1): ErrorCode.NONE,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert isinstance(answer, OffsetsAlteration)
    # The group epoch rises, so that a leader that still has the old state is fenced.
    assert answer.starts == [ShareStart(T, 1, 4, 7)]
    assert bench.share().epoch == bench.share().target_epoch == 4
    assert [topic.topic_id for topic in answer.response.responses] == [T, bytes(16)]
    assert states(bench) == ({T: {1}}, {T: {0, 1, 2, 3}}, set())
    bench.answer_states({(T, 1): ErrorCode.NONE}, asked_by_member=False)
    assert states(bench) == ({}, {T: {0, 1, 2, 3}}, set())


def test_each_alteration_has_a_state_epoch_of_its_own(bench: ShareBench) -> None:
    """A member that has left may still fetch in its share session. The leader that has loaded the first new state for
    it must not write over the second one."""
    emptied(bench)
    epochs = []
    for offset in (5, 0):
        answer = alter(bench, {("t", 0): offset})
        assert isinstance(answer, OffsetsAlteration)
        epochs += [start.state_epoch for start in answer.starts]
        bench.answer_states({(T, 0): ErrorCode.NONE}, asked_by_member=False)
    assert epochs == [4, 5]
    # The next member gets its partitions at once.
    assert bench.come("m2")[0] == 6


def test_an_alteration_makes_a_group_that_does_not_exist(bench: ShareBench) -> None:
    answer = alter(bench, {("t", 0): 7})
    assert isinstance(answer, OffsetsAlteration)
    assert answer.starts == [ShareStart(T, 0, 1, 7)]
    bench.answer_states({(T, 0): ErrorCode.NONE}, asked_by_member=False)
    bench = bench.restart()
    assert bench.share().state_name == "Empty"
    assert bench.initialized() == {("t", 0)}
    # The others are new partitions of a topic that the group knows.
    assert bench.come()[1] == {("t", 0)}
    bench.advance(INTERVAL_MS)
    assert told(bench.share_beat("m1", 2))[1] == {("t", partition) for partition in range(4)}
    assert bench.asked == [("t", partition, 0) for partition in (1, 2, 3)]


def test_an_alteration_of_unknown_topics_makes_nothing(bench: ShareBench) -> None:
    assert errors(alter(bench, {("u", 0): 1, ("t", 4): 1})) == {
        ("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", 4): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert share_groups(bench) == {}
    assert bench.log == []


def test_an_alteration_that_fails_leaves_the_partition_as_it_was(bench: ShareBench) -> None:
    emptied(bench)
    alter(bench, {("t", 1): 7})
    bench.answer_states({(T, 1): ErrorCode.COORDINATOR_NOT_AVAILABLE}, asked_by_member=False)
    assert states(bench) == ({}, {T: {0, 1, 2, 3}}, set())


def test_an_alteration_that_fails_in_part_keeps_the_rest(bench: ShareBench) -> None:
    alter(bench, {("t", 1): 7, ("t", 2): 7})
    bench.answer_states({(T, 1): ErrorCode.NONE, (T, 2): ErrorCode.NETWORK_EXCEPTION}, asked_by_member=False)
    assert states(bench) == ({}, {T: {1}}, set())


def test_offsets_of_another_kind_of_group(bench: ShareBench) -> None:
    bench.enter("c1", group="c")
    assert alter(bench, {("t", 0): 5}, "c") == Refused(ErrorCode.GROUP_ID_NOT_FOUND)
    assert delete_offsets(bench, "t", group="c") == Refused(ErrorCode.GROUP_ID_NOT_FOUND)
    assert delete_offsets(bench, "t", group="missing") == Refused(ErrorCode.GROUP_ID_NOT_FOUND)
    assert begin_deletion(bench, "c", "missing") == GroupsDeletion({}, {})


def test_offsets_are_deleted_in_two_halves(bench: ShareBench) -> None:
    bench.create("u", "v", partitions=1)
    bench.come("m1", "t", "u")
    bench.share_beat("m1", -1)
    answer = delete_offsets(bench, "t", "v", "nowhere", "t")
    assert isinstance(answer, OffsetsDeletion)
    assert answer.partitions == [(T, partition) for partition in range(4)]
    assert [(topic.topic_name, topic.error_code, topic.error_message) for topic in answer.failed] == [
        ("v", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete."),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.message),
    ]
    assert states(bench) == ({}, {topic_id("u"): {0}}, {T})
    # The first half alone may be repeated.
    again = delete_offsets(bench, "t")
    assert again == OffsetsDeletion([(T, partition) for partition in range(4)], [])
    bench.ask(lambda shard, token, now_ms: end_offsets_deletion(shard, "g", [T], token, now_ms))
    assert states(bench) == ({}, {topic_id("u"): {0}}, set())
    # The topic is new to the group again.
    bench.asked.clear()
    bench.come("m2", "t")
    assert {offset for _, _, offset in bench.asked} == {-1}


def test_a_topic_that_is_deleting_may_begin_again(bench: ShareBench) -> None:
    emptied(bench)
    delete_offsets(bench, "t")
    assert bench.come("m2")[1] == {("t", partition) for partition in range(4)}
    assert states(bench) == ({}, {T: {0, 1, 2, 3}}, set())


def test_a_group_without_states_has_no_offsets_to_delete(bench: ShareBench) -> None:
    bench.share_beat("m1", topics=["unknown"])
    bench.share_beat("m1", -1)
    assert delete_offsets(bench, "t") == OffsetsDeletion([], [])
    assert begin_deletion(bench, "g") == GroupsDeletion({}, {})
    assert delete_group(bench) == ErrorCode.NONE


def test_a_group_is_deleted_in_two_halves(bench: ShareBench) -> None:
    emptied(bench)
    assert begin_deletion(bench, "g") == GroupsDeletion({"g": [(T, partition) for partition in range(4)]}, {})
    assert states(bench) == ({}, {}, {T})
    assert begin_deletion(bench, "g") == GroupsDeletion({"g": [(T, partition) for partition in range(4)]}, {})
    assert delete_group(bench) == ErrorCode.NONE
    assert delete_group(bench) == ErrorCode.GROUP_ID_NOT_FOUND
    other = bench.restart()
    assert share_groups(other) == {}
    latest = dict(bench.log)
    assert [key for key, value in latest.items() if value is not None] == []
    # A late answer of share coordinators makes nothing.
    bench.answer_states({(T, 0): ErrorCode.NONE}, asked_by_member=False)
    assert share_groups(bench) == {}


def test_states_that_are_being_initialised_are_deleted_too(bench: ShareBench) -> None:
    bench.send(topics=["t"])
    bench.share_beat("m1", -1)
    assert begin_deletion(bench, "g").partitions == {"g": [(T, partition) for partition in range(4)]}
    # The answer comes after the deletion began, and the partitions are not taken back.
    bench.initialize()
    assert states(bench) == ({}, {}, {T})
