"""Share groups (KIP-932): epochs, assignments, sessions, and the states of share partitions.

The errors and epochs are those of Apache Kafka 4.3.1, except where a test says so.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from pykbroker.coordinator.group import records
from pykbroker.coordinator.group.share.share_partition_states import NamedPartitions
from pykbroker.coordinator.group.topics import GroupTopics
from pykbroker.metadata.image import TopicImage, TopicsImage
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.stored.group.share_group_current_member_assignment import ShareGroupCurrentMemberAssignmentKey
from pykbroker_wire.stored.group.share_group_member_metadata import ShareGroupMemberMetadataKey
from pykbroker_wire.stored.group.share_group_metadata import ShareGroupMetadataKey
from pykbroker_wire.stored.group.share_group_state_partition_metadata import ShareGroupStatePartitionMetadataKey
from pykbroker_wire.stored.group.share_group_target_assignment_member import ShareGroupTargetAssignmentMemberKey
from pykbroker_wire.stored.group.share_group_target_assignment_metadata import ShareGroupTargetAssignmentMetadataKey
from tests.coordinator.group.consumers import topic_id
from tests.coordinator.group.harness import Refused
from tests.coordinator.group.shares import INTERVAL_MS, ShareBench, share_groups, share_settings, told

ALL = {("t", partition) for partition in range(4)}


def refused(bench: ShareBench, answer: object, code: ErrorCode, words: str = "") -> None:
    assert answer == Refused(code), answer
    assert bench.last_error is not None
    assert words in bench.last_error.message


def written(bench: ShareBench, since: int = 0) -> list[tuple[type, bool]]:
    """Return the types of the records that were written, and whether they have a value."""
    found = []
    for key, value in bench.log[since:]:
        record = records.decode(key, value)
        assert record is not None
        found.append((type(record.key), value is not None))
    return found


# -- members and epochs -----------------------------------------------------------------------------------------------


def test_the_first_member_gets_all_partitions(bench: ShareBench) -> None:
    assert bench.come() == (2, ALL)
    assert bench.asked == [("t", partition, -1) for partition in range(4)]
    assert bench.share().epoch == bench.share().target_epoch == 2


def test_the_records_of_a_first_join(bench: ShareBench) -> None:
    bench.come()
    assert written(bench) == [
        (ShareGroupMemberMetadataKey, True),
        (ShareGroupMetadataKey, True),
        (ShareGroupStatePartitionMetadataKey, True),
        (ShareGroupStatePartitionMetadataKey, True),
        (ShareGroupTargetAssignmentMemberKey, True),
        (ShareGroupTargetAssignmentMetadataKey, True),
        (ShareGroupCurrentMemberAssignmentKey, True),
    ]


def test_a_second_member_shares_the_partitions(bench: ShareBench) -> None:
    bench.come("m1")
    bench.advance(INTERVAL_MS)
    epoch, second = bench.come("m2")
    assert epoch == 3
    assert told(bench.share_beat("m1", 2))[1] | second == ALL
    assert len(second) == 2


def test_members_share_partitions_if_there_are_too_few(bench: ShareBench) -> None:
    bench.create("one", partitions=1)
    for number in range(3):
        bench.advance(INTERVAL_MS)
        assert bench.come(f"m{number}", "one")[1] == {("one", 0)}


def test_a_heartbeat_without_news_has_no_assignment(bench: ShareBench) -> None:
    bench.come()
    length = len(bench.log)
    answer = bench.share_beat("m1", 2)
    assert not isinstance(answer, Refused)
    assert (answer.member_epoch, answer.heartbeat_interval_ms, answer.assignment) == (2, 5_000, None)
    assert told(bench.share_beat("m1", 2, topics=["t"])) == (2, ALL)
    assert len(bench.log) == length


def test_the_previous_epoch_is_accepted_and_others_are_not(bench: ShareBench) -> None:
    bench.come("m1")
    bench.advance(INTERVAL_MS)
    bench.come("m2")
    assert told(bench.share_beat("m1", 2))[0] == 3
    # The answer with the new epoch may have been lost, and with it the assignment. Apache Kafka sends only the epoch.
    assert told(bench.share_beat("m1", 2)) == (3, {("t", 2), ("t", 3)})
    refused(bench, bench.share_beat("m1", 4), ErrorCode.FENCED_MEMBER_EPOCH, "greater member epoch (4)")
    refused(bench, bench.share_beat("m1", 1), ErrorCode.FENCED_MEMBER_EPOCH, "smaller member epoch (1)")


def test_unknown_groups_and_members(bench: ShareBench) -> None:
    for epoch in (1, -1):
        refused(bench, bench.share_beat("m1", epoch), ErrorCode.GROUP_ID_NOT_FOUND, "not found")
    bench.come("m1")
    for epoch in (1, -1):
        refused(bench, bench.share_beat("m2", epoch), ErrorCode.UNKNOWN_MEMBER_ID, "Member m2 is not a member")


def test_a_member_that_leaves_gives_its_partitions_to_the_others(bench: ShareBench) -> None:
    bench.come("m1")
    bench.advance(INTERVAL_MS)
    bench.come("m2")
    assert told(bench.share_beat("m1", 2))[0] == 3
    answer = bench.share_beat("m2", -1)
    assert not isinstance(answer, Refused)
    assert (answer.member_epoch, answer.member_id, answer.assignment) == (-1, "m2", None)
    bench.advance(INTERVAL_MS)
    assert told(bench.share_beat("m1", 3)) == (4, ALL)
    assert bench.share_beat("m1", -1) != Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert bench.share().state_name == "Empty"
    assert not bench.timers() or [key[0] for key, _ in bench.timers()] == ["expire"]


def test_an_empty_group_never_expires(bench: ShareBench) -> None:
    bench.come()
    bench.share_beat("m1", -1)
    for _ in range(5):
        bench.advance(10 * 86_400_000)
    assert bench.share().state_name == "Empty"
    assert bench.initialized() == ALL


def test_a_member_without_heartbeats_is_removed(bench: ShareBench) -> None:
    bench.come("m1")
    bench.advance(44_999)
    assert "m1" in bench.share().members
    bench.share_beat("m1", 2)
    bench.advance(44_999)
    bench.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    bench.advance(1)
    # The append was refused, so that the timer fires again.
    assert "m1" in bench.share().members
    bench.advance(500)
    assert "m1" not in bench.share().members
    assert bench.share().epoch == 3


def test_sessions_begin_anew_with_another_coordinator(bench: ShareBench) -> None:
    bench.come("m1")
    bench.advance(30_000)
    other = bench.restart()
    other.advance(44_999)
    assert "m1" in other.share().members
    other.advance(1)
    assert "m1" not in other.share().members


def test_a_group_has_a_greatest_size() -> None:
    bench = ShareBench(share_settings(0, share_max_size=2))
    bench.create("t")
    bench.come("m1")
    assert bench.come("m2")[0] == 3
    refused(bench, bench.share_beat("m3", 0, topics=["t"]), ErrorCode.GROUP_MAX_SIZE_REACHED, "capacity of 2 members")
    assert told(bench.share_beat("m1", 2))[0] == 3
    assert told(bench.share_beat("m2", 0, topics=["t"]))[0] == 3


def test_a_member_that_changes_its_subscription(bench: ShareBench) -> None:
    bench.create("u", partitions=1)
    bench.come("m1")
    bench.advance(INTERVAL_MS)
    # No state of `u` yet: the member keeps its epoch order and loses `t` at once.
    assert told(bench.share_beat("m1", 2, topics=["u"])) == (3, set())
    bench.initialize()
    bench.advance(INTERVAL_MS)
    assert told(bench.share_beat("m1", 3)) == (4, {("u", 0)})


def test_a_refused_first_join_leaves_nothing(bench: ShareBench) -> None:
    bench.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    token = bench.send("m1", topics=["t"])
    assert bench.answers.pop(token).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert (bench.log, bench.effects, share_groups(bench)) == ([], [], {})
    assert bench.come() == (2, ALL)


# -- states of share partitions ---------------------------------------------------------------------------------------


def test_only_partitions_with_a_state_are_assigned(bench: ShareBench) -> None:
    bench.come()
    bench.advance(INTERVAL_MS)
    bench.grow("t", partitions=6)
    bench.share_beat("m1", 2)
    bench.take_asked()
    bench.answer_states({(topic_id("t"), 4): ErrorCode.COORDINATOR_NOT_AVAILABLE, (topic_id("t"), 5): ErrorCode.NONE})
    bench.advance(INTERVAL_MS)
    assert told(bench.share_beat("m1", 3)) == (4, ALL | {("t", 5)})
    # That heartbeat has tried the other one again, and the next one finds it.
    bench.initialize()
    assert bench.asked[4:] == [("t", 4, 0), ("t", 5, 0), ("t", 4, 0)]
    bench.advance(INTERVAL_MS)
    assert told(bench.share_beat("m1", 4)) == (5, ALL | {("t", 4), ("t", 5)})


def test_the_first_partitions_of_a_topic_fail_together(bench: ShareBench) -> None:
    """Otherwise the group would know the topic, and a `latest` group would get all records of the rest."""
    token = bench.send(topics=["t"])
    assert {start.state_epoch for start in bench.take_asked()} == {2}
    codes = {0: ErrorCode.NONE, 1: ErrorCode.COORDINATOR_NOT_AVAILABLE, 2: ErrorCode.NONE, 3: ErrorCode.NONE}
    bench.answer_states({(topic_id("t"), partition): code for partition, code in codes.items()})
    assert told(bench.answers.pop(token)) == (2, set())
    bench.asked.clear()
    bench.advance(INTERVAL_MS)
    bench.share_beat("m1", 2)
    bench.initialize()
    assert bench.asked == [("t", partition, -1) for partition in range(4)]
    assert told(bench.share_beat("m1", 2)) == (3, ALL)


def test_an_initialisation_without_an_answer_is_tried_again(bench: ShareBench) -> None:
    bench.answers.pop(bench.send(topics=["t"]), None)
    first = bench.take_asked()
    bench.advance(29_999)
    bench.share_beat("m1", 2)
    assert bench.take_asked() == []
    bench.advance(1)
    bench.share_beat("m1", 2)
    assert [start.partition for start in bench.take_asked()] == [start.partition for start in first]
    # A first initialisation that is tried again does not make the partitions new.
    assert {offset for _, _, offset in bench.asked} == {-1}


def test_another_coordinator_tries_again_after_the_same_time(bench: ShareBench) -> None:
    bench.send(topics=["t"])
    other = bench.restart()
    other.advance(29_999)
    other.send("m1", 0, topics=["t"])
    assert other.take_asked() == []
    other.advance(1)
    other.send("m1", 0, topics=["t"])
    assert len(other.take_asked()) == 4


def test_a_new_partition_of_a_known_topic_starts_at_its_beginning(bench: ShareBench) -> None:
    """Apache Kafka 4.3.1 initialises it at -1, and 4.4 at 0."""
    bench.come()
    bench.advance(INTERVAL_MS)
    bench.grow("t", partitions=5)
    answer = bench.share_beat("m1", 2)
    assert not isinstance(answer, Refused)
    assert (answer.member_epoch, answer.assignment) == (3, None)
    bench.initialize()
    assert bench.asked[4:] == [("t", 4, 0)]
    bench.advance(INTERVAL_MS)
    assert told(bench.share_beat("m1", 3)) == (4, ALL | {("t", 4)})


def test_an_unknown_topic_is_taken_up_when_it_comes(bench: ShareBench) -> None:
    assert told(bench.share_beat("m1", topics=["later"])) == (2, set())
    assert bench.take_asked() == []
    bench.advance(INTERVAL_MS)
    bench.create("later", partitions=1)
    answer = bench.share_beat("m1", 2)
    assert not isinstance(answer, Refused)
    assert answer.member_epoch == 3
    bench.initialize()
    assert bench.asked == [("later", 0, -1)]
    bench.advance(INTERVAL_MS)
    assert told(bench.share_beat("m1", 3)) == (4, {("later", 0)})


def test_a_deleted_topic_leaves_the_assignment(bench: ShareBench) -> None:
    bench.create("u", partitions=1)
    bench.come("m1", "t", "u")
    bench.advance(INTERVAL_MS)
    bench.delete("t")
    assert told(bench.share_beat("m1", 2)) == (3, {("u", 0)})
    assert bench.initialized() == {("u", 0)}
    # An answer that comes too late adds nothing.
    bench.answer_states({(topic_id("t"), 0): ErrorCode.NONE})
    assert bench.initialized() == {("u", 0)}


def test_a_deleted_topic_leaves_the_assignment_even_if_an_answer_is_lost(bench: ShareBench) -> None:
    """In Apache Kafka the member keeps the partitions of the topic: the lost answer had the only news of them."""
    bench.create("tea", partitions=1)
    epoch, _ = bench.come("m1", "t", "tea")
    bench.delete("tea")
    bench.share_beat("m1", epoch)
    bench.advance(INTERVAL_MS)
    assert told(bench.share_beat("m1", epoch)) == (epoch + 1, ALL)


def test_the_states_of_a_topic_have_its_name(bench: ShareBench) -> None:
    bench.come()
    assert bench.share().known_states.initialized == {topic_id("t"): NamedPartitions("t", frozenset(range(4)))}


def test_a_topic_that_was_deleted_without_a_coordinator_and_made_anew_is_assigned_once(bench: ShareBench) -> None:
    """In Apache Kafka 4.3.1 each heartbeat raises the group epoch then."""
    bench.come()
    bench.advance(INTERVAL_MS)
    # The next coordinator has the metadata without the old topic, and the states of it in its log.
    image = bench.topics.image
    new = TopicImage("t", b"n" * 16, image.topics.by_name["t"].partitions)
    bench.topics = GroupTopics(replace(image, topics=TopicsImage({"t": new}, {new.id: new})))
    other = bench.restart()
    assert told(other.share_beat("m1", 2, topics=["t"]))[0] == 3
    other.initialize()
    for _ in range(3):
        other.advance(INTERVAL_MS)
        answer = other.share_beat("m1", 3)
        assert not isinstance(answer, Refused)
        assert answer.member_epoch == 4
    assert other.share().members["m1"].assigned == {new.id: frozenset(range(4))}


# -- joins that wait --------------------------------------------------------------------------------------------------


def test_a_join_waits_for_share_coordinators(bench: ShareBench) -> None:
    token = bench.send(topics=["t"])
    bench.advance(INTERVAL_MS + 199)
    assert token not in bench.answers
    bench.initialize()
    assert told(bench.answers.pop(token)) == (2, ALL)


def test_a_join_that_waits_too_long_is_answered_without_partitions(bench: ShareBench) -> None:
    token = bench.send(topics=["t"])
    bench.advance(INTERVAL_MS + 200)
    assert told(bench.answers.pop(token)) == (2, set())
    bench.initialize()
    bench.advance(INTERVAL_MS)
    assert told(bench.share_beat("m1", 2)) == (3, ALL)


def test_joins_together_get_one_target(bench: ShareBench) -> None:
    first = bench.come("m0")
    assert first == (2, ALL)
    tokens = [bench.send(f"m{number}", topics=["t"]) for number in range(1, 4)]
    bench.advance(INTERVAL_MS - 1)
    assert not bench.answers
    bench.advance(1)
    answers = [told(bench.answers.pop(token)) for token in tokens]
    assert {epoch for epoch, _ in answers} == {5}
    assert [len(own) for _, own in answers] == [1, 1, 1]


def test_a_heartbeat_of_another_member_answers_a_join(bench: ShareBench) -> None:
    bench.come("m1")
    bench.advance(INTERVAL_MS - 100)
    token = bench.send("m2", topics=["t"])
    bench.now_ms += 100
    assert told(bench.share_beat("m1", 2))[0] == 3
    assert told(bench.answers.pop(token))[0] == 3
    assert "share-join" not in {key[0] for key, _ in bench.timers()}


def test_a_join_is_answered_at_once_if_nothing_can_be_assigned(bench: ShareBench) -> None:
    assert told(bench.share_beat("m1", topics=["unknown"])) == (2, set())
    # The next one comes within the assignment interval.
    assert told(bench.share_beat("m2", topics=["unknown"])) == (2, set())


def test_a_repeated_join_gets_the_same_answer(bench: ShareBench) -> None:
    tokens = [bench.send(topics=["t"]), bench.send(topics=["t"])]
    bench.initialize()
    first, second = (told(bench.answers.pop(token)) for token in tokens)
    assert first == second == (2, ALL)
    assert told(bench.share_beat("m1", 0, topics=["t"])) == (2, ALL)


def test_a_repeated_join_does_not_wait_longer(bench: ShareBench) -> None:
    first = bench.send(topics=["t"])
    bench.advance(1_000)
    second = bench.send(topics=["t"])
    bench.advance(200)
    assert told(bench.answers.pop(first)) == told(bench.answers.pop(second)) == (2, set())


def test_only_so_many_repeated_joins_wait(bench: ShareBench) -> None:
    tokens = [bench.send(topics=["t"]) for _ in range(9)]
    assert {told(bench.answers.pop(token))[1] == set() for token in tokens} == {True}
    assert not bench.share().waiting


def test_a_leave_ends_the_wait(bench: ShareBench) -> None:
    token = bench.send(topics=["t"])
    answer = bench.share_beat("m1", -1)
    assert not isinstance(answer, Refused)
    assert bench.answers.pop(token).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert not bench.share().waiting
    bench.initialize()
    bench.advance(10_000)
    assert not bench.answers


def test_a_waiting_join_ends_with_its_session() -> None:
    bench = ShareBench(share_settings(10_000, session_ms=3_000))
    bench.create("t")
    token = bench.send(topics=["t"])
    bench.advance(3_000)
    assert bench.answers.pop(token).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_refused_join_of_a_known_group_does_not_wait(bench: ShareBench) -> None:
    bench.come("m1")
    bench.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    token = bench.send("m2", topics=["t"])
    assert bench.answers.pop(token).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert not bench.share().waiting
    assert "m2" not in bench.share().members


def test_initialisation_that_fails_ends_the_wait(bench: ShareBench) -> None:
    token = bench.send(topics=["t"])
    bench.initialize(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert told(bench.answers.pop(token)) == (2, set())
    bench.share_beat("m1", 2)
    assert len(bench.take_asked()) == 4


def test_a_waiting_join_does_not_survive_its_coordinator(bench: ShareBench) -> None:
    bench.send(topics=["t"])
    other = bench.restart()
    assert not other.share().waiting
    token = other.send(topics=["t"])
    other.answer_states({(topic_id("t"), partition): ErrorCode.NONE for partition in range(4)})
    assert told(other.answers.pop(token)) == (2, ALL)


# -- other protocols --------------------------------------------------------------------------------------------------


def test_other_protocols_find_no_way_into_a_share_group(bench: ShareBench) -> None:
    bench.come()
    length = len(bench.log)
    for member in ("", "m1"):
        assert bench.answers.pop(bench.join("g", member)) == Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    for token in (bench.sync("g", "m1", 1), bench.heartbeat("g", "m1", 1), bench.leave("g", ("m1", None))):
        assert bench.answers.pop(token) == Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    for epoch in (0, 1, -1):
        assert bench.beat("m1", epoch, group="g") == Refused(ErrorCode.GROUP_ID_NOT_FOUND)
    assert bench.answers.pop(bench.commit("g", {("t", 0): 1})) == Refused(ErrorCode.GROUP_ID_NOT_FOUND)
    assert bench.committed("g") == {}
    assert len(bench.log) == length


@pytest.mark.parametrize("empty", [False, True])
def test_groups_of_other_kinds_are_no_share_groups(bench: ShareBench, empty: bool) -> None:
    bench.enter("c1", group="c")
    bench.stable(1, "k")
    if empty:
        bench.beat("c1", -1, group="c")
    for group in ("c", "k"):
        for epoch in (0, 1, -1):
            answer = bench.share_beat("m1", epoch, group=group, topics=["t"])
            refused(bench, answer, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group} is not a share group.")
        assert bench.described(group).error_message == f"Group {group} is not a share group."


def test_a_share_group_is_listed_and_described(bench: ShareBench) -> None:
    bench.come("m1")
    listed = bench.ask(lambda shard, token, now_ms: shard.list_groups(frozenset(), frozenset(), token, now_ms))
    assert [(each.group_id, each.group_type, each.protocol_type, each.group_state) for each in listed] == [
        ("g", "share", "share", "Stable")
    ]
    group = bench.described()
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
        "Stable",
        2,
        2,
        "simple",
    )
    [member] = group.members
    assert (member.member_id, member.member_epoch, member.client_id, member.client_host) == (
        "m1",
        2,
        "client",
        "/10.0.0.1",
    )
    assert member.subscribed_topic_names == ["t"]
    assert [(topic.topic_name, topic.partitions) for topic in member.assignment.topic_partitions] == [
        ("t", [0, 1, 2, 3])
    ]
    missing = bench.described("other")
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group other not found.")
