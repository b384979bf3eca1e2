"""The APIs of share groups over the real service, the real machine, a partition in memory and share coordinators that
the test controls: authorization, versions, answers that wait.

tests/coordinator/group/share tests the decisions of groups. The errors are those of Apache Kafka 4.3.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import pytest

from pykbroker.api import (
    alter_share_group_offsets,
    delete_groups,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_group_describe,
    share_group_heartbeat,
)
from pykbroker.config.live import LiveConfig
from pykbroker.coordinator.group.service import GroupService
from pykbroker.coordinator.group.share.share_group import ShareGroup
from pykbroker.coordinator.group.share.share_states import ShareStart, ShareSummary, TopicIdPartition
from pykbroker.metadata.features import SHARE_VERSION
from pykbroker.runtime.later import Later
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from pykbroker_wire.messages.delete_groups import DeleteGroupsRequest
from pykbroker_wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from pykbroker_wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from pykbroker_wire.messages.share_group_describe import ShareGroupDescribeRequest
from pykbroker_wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.api.test_group_apis import TOPIC_ID, Node, Only
from tests.coordinator.fakes import as_replicas, as_runtime
from tests.deny_all import DenyAll

T = TypeVar("T")


class ShareCoordinators:
    """Share coordinators that answer at once, or when the test calls `answer`."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        #: (group, topic id, partition) -> (state epoch, start offset)
        self.states: dict[tuple[str, bytes, int], tuple[int, int]] = {}
        self.waits = False
        self.code = ErrorCode.NONE
        #: the errors of single partitions
        self.codes: dict[int, ErrorCode] = {}
        #: (group, topic id, partition) of each summary that was asked for
        self.summaries: list[tuple[str, bytes, int]] = []
        self._waiting: list[tuple[asyncio.Future[Any], Callable[[], Any]]] = []

    def _later(self, act: Callable[[], list[T]]) -> Later[list[T]]:
        if not self.waits:
            return act()
        future: asyncio.Future[list[T]] = self._loop.create_future()
        self._waiting.append((future, act))
        return future

    def answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future, act in waiting:
            future.set_result(act())
        self._loop.settle()

    def _code(self, partition: int) -> ErrorCode:
        return self.codes.get(partition, self.code)

    def initialize(self, group_id: str, starts: Sequence[ShareStart]) -> Later[list[ErrorCode]]:
        def act() -> list[ErrorCode]:
            for start in starts:
                if not self._code(start.partition):
                    place = (group_id, start.topic_id, start.partition)
                    self.states[place] = (start.state_epoch, start.start_offset)
            return [self._code(start.partition) for start in starts]

        return self._later(act)

    def delete(self, group_id: str, partitions: Sequence[TopicIdPartition]) -> Later[list[ErrorCode]]:
        def act() -> list[ErrorCode]:
            for topic_id, partition in partitions:
                if not self._code(partition):
                    self.states.pop((group_id, topic_id, partition), None)
            return [self._code(partition) for _, partition in partitions]

        return self._later(act)

    def read_summaries(self, group_id: str, partitions: Sequence[TopicIdPartition]) -> Later[list[ShareSummary]]:
        def summary(topic_id: bytes, partition: int) -> ShareSummary:
            if self._code(partition):
                return ShareSummary(self._code(partition))
            known = self.states.get((group_id, topic_id, partition))
            return ShareSummary() if known is None else ShareSummary(ErrorCode.NONE, known[1], 4, 2)

        self.summaries += [(group_id, *place) for place in partitions]
        return self._later(lambda: [summary(*place) for place in partitions]) if partitions else []


class Ends:
    """Each partition ends at 100, except those of `codes`."""

    def __init__(self) -> None:
        self.codes: dict[tuple[str, int], ErrorCode] = {}

    def latest(self, partitions: Sequence[tuple[str, int]]) -> Later[list[tuple[ErrorCode, int]]]:
        return [(self.codes.get(place, ErrorCode.NONE), 100) for place in partitions]


class ShareNode(Node):
    """A broker half that serves share groups."""

    def make_groups(self, live: LiveConfig) -> GroupService:
        self.share_coordinators = ShareCoordinators(self.world.loop)
        self.ends = Ends()
        self.set_share_version(1)
        return GroupService(
            as_runtime(self.world),
            live,
            1,
            as_replicas(self.replicas),
            cast(Any, self.metadata),
            self.share_coordinators,
            self.ends,
        )

    def set_share_version(self, level: int) -> None:
        image = self.metadata.image
        features = replace(image.features, finalized={**image.features.finalized, SHARE_VERSION: level})
        self.metadata.image = replace(image, features=features)

    def group(self, name: str = "g") -> ShareGroup:
        for host in self.groups.coordinator._hosts.values():
            group = host.shard.groups.get(name)
            if group is not None:
                assert isinstance(group, ShareGroup)
                return group
        raise KeyError(name)

    def waiting_requests(self) -> int:
        return sum(len(host.requests) for host in self.groups.coordinator._hosts.values())


@pytest.fixture
def node() -> ShareNode:
    return ShareNode()


def beat(
    epoch: int = 0, member: str = "m1", topics: list[str] | None = None, group: str = "g", rack: str | None = None
) -> ShareGroupHeartbeatRequest:
    names = ["t"] if topics is None and epoch == 0 else topics
    return ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=names, rack_id=rack
    )


def alter(offsets: dict[tuple[str, int], int], group: str = "g") -> AlterShareGroupOffsetsRequest:
    topics: dict[str, AlterShareGroupOffsetsRequestTopic] = {}
    for (name, partition), offset in offsets.items():
        topics.setdefault(name, AlterShareGroupOffsetsRequestTopic(topic_name=name)).partitions.append(
            AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
        )
    return AlterShareGroupOffsetsRequest(group_id=group, topics=list(topics.values()))


def delete_offsets(*topics: str, group: str = "g") -> DeleteShareGroupOffsetsRequest:
    return DeleteShareGroupOffsetsRequest(
        group_id=group, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    )


def describe_offsets(topics: dict[str, list[int]] | None = None, group: str = "g") -> DescribeShareGroupOffsetsRequest:
    asked = None
    if topics is not None:
        asked = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
    return DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=asked)]
    )


def offsets_of(answer: Any) -> dict[tuple[str, int], tuple[int, int, int, int]]:
    """Return (start offset, leader epoch, lag, error) of each partition."""
    [group] = answer.groups
    assert group.error_code == ErrorCode.NONE
    return {
        (topic.topic_name, one.partition_index): (one.start_offset, one.leader_epoch, one.lag, one.error_code)
        for topic in group.topics
        for one in topic.partitions
    }


def emptied(node: ShareNode) -> None:
    node.ask(share_group_heartbeat.handle, beat())
    node.ask(share_group_heartbeat.handle, beat(-1))


def codes_of(node: ShareNode) -> list[int]:
    """Return the error of each API of share groups."""
    described = node.ask(share_group_describe.handle, ShareGroupDescribeRequest(group_ids=["g"]))
    offsets = node.ask(describe_share_group_offsets.handle, describe_offsets({"t": [0]}))
    return [
        node.ask(share_group_heartbeat.handle, beat()).error_code,
        described.groups[0].error_code,
        offsets.groups[0].error_code,
        node.ask(alter_share_group_offsets.handle, alter({("t", 0): 1})).error_code,
        node.ask(delete_share_group_offsets.handle, delete_offsets("t")).error_code,
    ]


def test_without_the_feature_share_groups_are_not_served(node: ShareNode) -> None:
    node.set_share_version(0)
    assert codes_of(node) == [ErrorCode.UNSUPPORTED_VERSION] * 5


def test_a_client_without_rights_on_the_group_gets_nothing(node: ShareNode) -> None:
    node.authorizer = DenyAll()
    assert codes_of(node) == [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 5


@pytest.mark.parametrize(
    ("operation", "denied"),
    [
        (Operation.READ, [0, 3]),
        (Operation.DESCRIBE, [1, 2]),
        (Operation.DELETE, [4]),
    ],
    ids=["read", "describe", "delete"],
)
def test_the_operation_on_the_group_that_each_api_needs(
    node: ShareNode, operation: Operation, denied: list[int]
) -> None:
    node.authorizer = Only((operation, Resource.GROUP, "g"))
    codes = codes_of(node)
    assert [index for index, code in enumerate(codes) if code == ErrorCode.GROUP_AUTHORIZATION_FAILED] == denied


def test_rights_on_topics(node: ShareNode) -> None:
    emptied(node)
    node.authorizer = Only((Operation.DESCRIBE, Resource.TOPIC, "u"), (Operation.READ, Resource.TOPIC, "u"))
    answer = node.ask(share_group_heartbeat.handle, beat(topics=["t", "u"]))
    assert (answer.error_code, answer.assignment) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    answer = node.ask(describe_share_group_offsets.handle, describe_offsets({"t": [0], "u": [0]}))
    assert offsets_of(answer) == {
        ("t", 0): (-1, 4, -1 + 1 - 1, 0),
        ("u", 0): (-1, 0, -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    }
    altered = node.ask(alter_share_group_offsets.handle, alter({("t", 0): 3, ("u", 0): 3}))
    assert [(topic.topic_name, topic.partitions[0].error_code) for topic in altered.responses] == [
        ("u", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("t", ErrorCode.NONE),
    ]
    deleted = node.ask(delete_share_group_offsets.handle, delete_offsets("u", "t"))
    assert [(topic.topic_name, topic.error_code) for topic in deleted.responses] == [
        ("u", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("t", ErrorCode.NONE),
    ]


def test_a_group_with_an_error_has_no_topics(node: ShareNode) -> None:
    node.authorizer = Only((Operation.DESCRIBE, Resource.TOPIC, "u"))
    [group] = node.ask(describe_share_group_offsets.handle, describe_offsets({"t": [0], "u": [0]}, "")).groups
    assert (group.error_code, group.topics) == (ErrorCode.INVALID_GROUP_ID, [])


def test_a_group_with_a_hidden_topic_is_not_described(node: ShareNode) -> None:
    node.ask(share_group_heartbeat.handle, beat())
    node.authorizer = Only((Operation.DESCRIBE, Resource.TOPIC, "t"))
    [group] = node.ask(share_group_describe.handle, ShareGroupDescribeRequest(group_ids=["g"])).groups
    assert (group.error_code, group.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    assert offsets_of(node.ask(describe_share_group_offsets.handle, describe_offsets())) == {}


@pytest.mark.parametrize("member", ["", "x" * 37], ids=["empty", "too-long"])
def test_a_wrong_member_id(node: ShareNode, member: str) -> None:
    answer = node.ask(share_group_heartbeat.handle, beat(member=member))
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, None)
    assert node.ask(share_group_heartbeat.handle, beat(member="x" * 36)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (beat(topics=[]), "SubscribedTopicNames must be set in first request."),
        (beat(member=" "), "MemberId can't be empty."),
        (beat(group=" "), "GroupId can't be empty."),
        (beat(rack=" "), "RackId can't be empty."),
        (beat(-2), "MemberEpoch is invalid."),
    ],
    ids=["no-topics", "blank-member", "blank-group", "blank-rack", "epoch"],
)
def test_wrong_heartbeats(node: ShareNode, request_: ShareGroupHeartbeatRequest, message: str) -> None:
    answer = node.ask(share_group_heartbeat.handle, request_)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, message)


def test_errors_have_their_words(node: ShareNode) -> None:
    answer = node.ask(share_group_heartbeat.handle, beat(1))
    assert (answer.error_code, answer.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Share group g not found.")
    deleted = node.ask(delete_share_group_offsets.handle, delete_offsets("t"))
    assert (deleted.error_code, deleted.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found.")
    node.ask(share_group_heartbeat.handle, beat())
    for answer in (
        node.ask(alter_share_group_offsets.handle, alter({("t", 0): 1})),
        node.ask(delete_share_group_offsets.handle, delete_offsets("t")),
    ):
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.NON_EMPTY_GROUP,
            ErrorCode.NON_EMPTY_GROUP.message,
        )


def test_a_group_id_is_needed(node: ShareNode) -> None:
    for answer in (
        node.ask(alter_share_group_offsets.handle, alter({("t", 0): 1}, group="")),
        node.ask(delete_share_group_offsets.handle, delete_offsets("t", group="")),
        node.ask(share_group_describe.handle, ShareGroupDescribeRequest(group_ids=[""])).groups[0],
        node.ask(describe_share_group_offsets.handle, describe_offsets({"t": [0]}, "")).groups[0],
        node.ask(describe_share_group_offsets.handle, describe_offsets(None, "")).groups[0],
    ):
        assert answer.error_code == ErrorCode.INVALID_GROUP_ID


def test_another_coordinator_is_named_by_its_absence(node: ShareNode) -> None:
    for index in list(node.replicas.partitions):
        node.replicas.lose(index)
    # Only DescribeShareGroupOffsets of named topics needs no group.
    assert codes_of(node) == [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NONE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_COORDINATOR,
    ]
    answer = node.ask(describe_share_group_offsets.handle, describe_offsets())
    assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR


# -- joins that wait --------------------------------------------------------------------------------------------------


def test_a_join_is_answered_when_share_coordinators_have_answered(node: ShareNode) -> None:
    node.share_coordinators.waits = True
    waiting = node.ask(share_group_heartbeat.handle, beat())
    assert isinstance(waiting, asyncio.Future)
    node.share_coordinators.answer()
    answer = waiting.result()
    assert answer.member_epoch == 2
    assert [(topic.topic_id, topic.partitions) for topic in answer.assignment.topic_partitions] == [(TOPIC_ID, [0, 1])]
    assert node.share_coordinators.states == {("g", TOPIC_ID, partition): (2, -1) for partition in (0, 1)}
    assert node.waiting_requests() == 0


def test_a_join_waits_for_the_commit_of_its_assignment(node: ShareNode) -> None:
    for partition in node.replicas.partitions.values():
        partition.hold = True
    waiting = node.ask(share_group_heartbeat.handle, beat())
    # Share coordinators are asked when the join is committed, and their answers are a second append.
    assert node.share_coordinators.states == {}
    for _ in range(2):
        assert not waiting.done()
        for partition in node.replicas.partitions.values():
            partition.commit()
        node.world.loop.settle()
    assert waiting.result().member_epoch == 2


def test_a_join_that_waits_ends_with_its_connection(node: ShareNode) -> None:
    node.share_coordinators.waits = True
    gone = node.ask(share_group_heartbeat.handle, beat())
    stays = node.ask(share_group_heartbeat.handle, beat())
    gone.cancel()
    node.world.loop.settle()
    assert [len(tokens) for tokens in node.group().waiting.values()] == [1]
    assert node.waiting_requests() == 1
    node.share_coordinators.answer()
    assert stays.result().member_epoch == 2
    assert node.waiting_requests() == 0


def test_a_join_that_waits_ends_with_its_coordinator(node: ShareNode) -> None:
    node.share_coordinators.waits = True
    waiting = node.ask(share_group_heartbeat.handle, beat())
    node.replicas.lose(node.groups.partition_of("g"))
    node.world.loop.settle()
    assert waiting.result().error_code == ErrorCode.NOT_COORDINATOR
    # The late answer of share coordinators finds no group.
    node.share_coordinators.answer()
    node.replicas.lead(node.groups.partition_of("g"))
    node.world.loop.settle()
    assert node.group().known_states.initialized == {}


def test_a_refused_join_is_answered_with_the_error(node: ShareNode) -> None:
    partition = node.replicas.partitions[node.groups.partition_of("g")]
    partition.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    node.share_coordinators.waits = True
    answer = node.ask(share_group_heartbeat.handle, beat())
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert node.waiting_requests() == 0
    partition.refuse = None
    assert isinstance(node.ask(share_group_heartbeat.handle, beat()), asyncio.Future)


def test_the_states_of_a_deleted_topic_are_forgotten(node: ShareNode) -> None:
    node.ask(share_group_heartbeat.handle, beat())
    node.groups.shares.topics_deleted([TOPIC_ID])
    assert node.group().known_states.initialized == {}


# -- administrators ---------------------------------------------------------------------------------------------------


def test_offsets_are_described_with_their_lag(node: ShareNode) -> None:
    emptied(node)
    node.ask(alter_share_group_offsets.handle, alter({("t", 1): 7}))
    answer = node.ask(describe_share_group_offsets.handle, describe_offsets())
    assert offsets_of(answer) == {("t", 0): (-1, 4, -1, 0), ("t", 1): (7, 4, 100 - 7 - 2, 0)}
    node.ends.codes[("t", 1)] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer = node.ask(describe_share_group_offsets.handle, describe_offsets({"t": [1]}))
    assert offsets_of(answer) == {("t", 1): (0, 0, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER)}
    # Version 0 has no lag.
    old = node.ask(describe_share_group_offsets.handle, describe_offsets({"t": [0]}), 0)
    assert offsets_of(old) == {("t", 0): (-1, 4, -1, 0)}


@pytest.mark.parametrize("waits", [False, True], ids=["now", "later"])
def test_a_group_that_is_described_many_times_is_answered_once(node: ShareNode, waits: bool) -> None:
    emptied(node)
    node.ask(alter_share_group_offsets.handle, alter({("t", 1): 7}))
    node.share_coordinators.waits = waits

    def entry(group: str, partitions: list[int] | None) -> DescribeShareGroupOffsetsRequestGroup:
        return describe_offsets(None if partitions is None else {"t": partitions}, group).groups[0]

    kinds = [entry("g", [0]), entry("h", [0]), entry("g", [1]), entry("g", [0, 1]), entry("g", None)]
    request = DescribeShareGroupOffsetsRequest(groups=[*kinds, *kinds[::-1]] * 1_000)
    answer = node.ask(describe_share_group_offsets.handle, request)
    if waits:
        node.share_coordinators.answer()
        answer = answer.result()
    expected = [("g", [0]), ("h", [0]), ("g", [1]), ("g", [0, 1]), ("g", [0, 1])]
    found = [
        (group.group_id, [one.partition_index for topic in group.topics for one in topic.partitions])
        for group in answer.groups
    ]
    assert found == expected
    places = [(group, TOPIC_ID, partition) for group, partitions in expected for partition in partitions]
    assert sorted(node.share_coordinators.summaries) == sorted(places)


def test_absent_offsets_are_no_error(node: ShareNode) -> None:
    absent = (-1, 0, -1, 0)
    answer = node.ask(describe_share_group_offsets.handle, describe_offsets({"t": [0, 99], "nowhere": [3]}, "none"))
    assert offsets_of(answer) == {("t", 0): absent, ("t", 99): absent, ("nowhere", 3): absent}
    assert offsets_of(node.ask(describe_share_group_offsets.handle, describe_offsets(group="none"))) == {}
    assert offsets_of(node.ask(describe_share_group_offsets.handle, describe_offsets({}))) == {}
    # No share coordinator is asked about a partition that does not exist.
    node.share_coordinators.waits = True
    assert offsets_of(node.ask(describe_share_group_offsets.handle, describe_offsets({"t": [99]}))) == {
        ("t", 99): absent
    }
    node.share_coordinators.waits = False
    node.share_coordinators.code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer = node.ask(describe_share_group_offsets.handle, describe_offsets({"t": [0]}))
    assert offsets_of(answer) == {("t", 0): absent}


def test_an_alteration_that_fails_for_one_partition(node: ShareNode) -> None:
    node.share_coordinators.codes[1] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer = node.ask(alter_share_group_offsets.handle, alter({("t", 0): 3, ("t", 1): 3, ("t", 9): 3}))
    assert answer.error_code == ErrorCode.NONE
    assert [one.error_code for one in answer.responses[0].partitions] == [
        ErrorCode.NONE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    states = node.group().known_states
    assert {topic: set(found.partitions) for topic, found in states.initialized.items()} == {TOPIC_ID: {0}}
    assert states.initializing == {}


def test_a_deletion_of_offsets_that_fails_may_be_repeated(node: ShareNode) -> None:
    emptied(node)
    node.share_coordinators.codes[1] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    [topic] = node.ask(delete_share_group_offsets.handle, delete_offsets("t")).responses
    assert (topic.topic_name, topic.error_code) == ("t", ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert node.group().known_states.deleting == {TOPIC_ID: "t"}
    node.share_coordinators.codes.clear()
    [topic] = node.ask(delete_share_group_offsets.handle, delete_offsets("t")).responses
    assert (topic.topic_id, topic.error_code, topic.error_message) == (TOPIC_ID, ErrorCode.NONE, None)
    assert node.group().known_states.deleting == {}
    assert node.share_coordinators.states == {}


def test_a_share_group_is_deleted_with_its_states(node: ShareNode) -> None:
    node.ask(share_group_heartbeat.handle, beat())

    def delete(*groups: str) -> dict[str, int]:
        answer = node.ask(delete_groups.handle, DeleteGroupsRequest(groups_names=list(groups)))
        return {result.group_id: result.error_code for result in answer.results}

    assert delete("g", "none") == {"g": ErrorCode.NON_EMPTY_GROUP, "none": ErrorCode.GROUP_ID_NOT_FOUND}
    node.ask(share_group_heartbeat.handle, beat(-1))
    node.share_coordinators.code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert delete("g") == {"g": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert node.group().state_name == "Empty"
    node.share_coordinators.code = ErrorCode.NONE
    assert delete("g") == {"g": ErrorCode.NONE}
    assert node.share_coordinators.states == {}
    with pytest.raises(KeyError):
        node.group()


def test_a_member_that_joins_while_its_group_is_deleted_keeps_the_group(node: ShareNode) -> None:
    emptied(node)
    node.share_coordinators.waits = True
    deleting = node.ask(delete_groups.handle, DeleteGroupsRequest(groups_names=["g"]))
    joining = node.ask(share_group_heartbeat.handle, beat(member="m2"))
    node.share_coordinators.answer()
    [result] = deleting.result().results
    assert result.error_code == ErrorCode.NON_EMPTY_GROUP
    # The assignment interval since the target of the member before.
    node.world.loop.advance(1)
    assert joining.result().error_code == ErrorCode.NONE
