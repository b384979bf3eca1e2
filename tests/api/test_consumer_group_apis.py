"""ConsumerGroupHeartbeat and ConsumerGroupDescribe as clients see them: refusals before a group is asked, the visible
groups and topics, and the cluster's features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pykbroker.api import consumer_group_describe, consumer_group_heartbeat, offset_commit, offset_fetch
from pykbroker.metadata.image import FeaturesImage
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pykbroker_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, RequestTopicPartitions
from pykbroker_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.api.test_group_apis import TOPIC_ID, Node, Only, commit


@pytest.fixture
def node() -> Node:
    node = Node()
    set_group_version(node, 1)
    return node


def set_group_version(node: Node, level: int) -> None:
    features = FeaturesImage(metadata_version=30, finalized={"group.version": level} if level else {})
    node.metadata.image = replace(node.metadata.image, features=features)


def heartbeat(**fields: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(**{"group_id": "g", "member_id": "m", **fields})


def joining(**fields: Any) -> ConsumerGroupHeartbeatRequest:
    names = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    return heartbeat(**{**names, **fields})


def test_join_commit_describe(node: Node) -> None:
    answer = node.ask(consumer_group_heartbeat.handle, joining())
    assert (answer.error_code, answer.member_epoch, answer.member_id) == (0, 2, "m")
    (topic,) = answer.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (TOPIC_ID, [0, 1])
    request = commit(("t", TOPIC_ID, (0,)))
    request.member_id, request.generation_id_or_member_epoch = "m", 2
    (committed,) = node.ask(offset_commit.handle, request).topics
    assert committed.partitions[0].error_code == ErrorCode.NONE
    for epoch, code in ((2, ErrorCode.NONE), (1, ErrorCode.STALE_MEMBER_EPOCH)):
        topics = [OffsetFetchRequestTopics(name="t", topic_id=TOPIC_ID, partition_indexes=[0])]
        asked = OffsetFetchRequestGroup(group_id="g", member_id="m", member_epoch=epoch, topics=topics)
        assert node.ask(offset_fetch.handle, OffsetFetchRequest(groups=[asked])).groups[0].error_code == code
    described = node.ask(consumer_group_describe.handle, ConsumerGroupDescribeRequest(group_ids=["g", "", "x"]))
    found = {one.group_id: one for one in described.groups}
    assert {group_id: one.error_code for group_id, one in found.items()} == {
        "": ErrorCode.INVALID_GROUP_ID,
        "g": ErrorCode.NONE,
        "x": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert found["g"].group_state == "Stable"
    assert found["g"].members[0].client_host == "/127.0.0.1"


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (joining(member_id=" "), ErrorCode.INVALID_REQUEST, "MemberId can't be empty."),
        (joining(group_id=""), ErrorCode.INVALID_REQUEST, "GroupId can't be empty."),
        (joining(instance_id=""), ErrorCode.INVALID_REQUEST, "InstanceId can't be empty."),
        (joining(rack_id=""), ErrorCode.INVALID_REQUEST, "RackId can't be empty."),
        (
            joining(rebalance_timeout_ms=-1),
            ErrorCode.INVALID_REQUEST,
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (
            joining(topic_partitions=None),
            ErrorCode.INVALID_REQUEST,
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            joining(topic_partitions=[RequestTopicPartitions(topic_id=TOPIC_ID, partitions=[0])]),
            ErrorCode.INVALID_REQUEST,
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            joining(subscribed_topic_names=None),
            ErrorCode.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        (heartbeat(member_epoch=-2), ErrorCode.INVALID_REQUEST, "InstanceId can't be null."),
        (heartbeat(member_epoch=-3), ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid."),
        (
            joining(server_assignor="best"),
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            "ServerAssignor best is not supported. Supported assignors: uniform, range.",
        ),
        (heartbeat(member_epoch=1), ErrorCode.GROUP_ID_NOT_FOUND, "Consumer group g not found."),
        (
            joining(subscribed_topic_regex="("),
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            "SubscribedTopicRegex `(` is not a valid regular expression: missing closing ).",
        ),
    ],
)
def test_refusals(node: Node, request_: ConsumerGroupHeartbeatRequest, code: ErrorCode, message: str) -> None:
    answer = node.ask(consumer_group_heartbeat.handle, request_)
    assert (answer.error_code, answer.error_message) == (code, message)


def test_an_old_client_is_given_its_member_id(node: Node) -> None:
    answer = node.ask(consumer_group_heartbeat.handle, joining(member_id=""), 0)
    assert answer.error_code == ErrorCode.NONE
    assert len(answer.member_id) == 22


def test_who_may_do_what(node: Node) -> None:
    node.ask(consumer_group_heartbeat.handle, joining())
    node.authorizer = Only((Operation.DESCRIBE, Resource.TOPIC, "t"))
    answer = node.ask(consumer_group_heartbeat.handle, joining())
    assert (answer.error_code, answer.error_message) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    (group,) = node.ask(consumer_group_describe.handle, ConsumerGroupDescribeRequest(group_ids=["g"])).groups
    assert (group.error_code, group.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    assert group.error_message == "The group has described topic(s) that the client is not authorized to describe."
    node.authorizer = Only((Operation.READ, Resource.GROUP, "g"), (Operation.DESCRIBE, Resource.GROUP, "g"))
    answer = node.ask(consumer_group_heartbeat.handle, joining())
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    (group,) = node.ask(consumer_group_describe.handle, ConsumerGroupDescribeRequest(group_ids=["g"])).groups
    assert group.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_c_a_heartbeat_on_another_connection_is_answered_with_the_assignment(node: Node) -> None:
    epoch = node.ask(consumer_group_heartbeat.handle, joining()).member_epoch
    beat = heartbeat(member_epoch=epoch)
    told = []
    for connection in (1, 1, 2, 2):
        node.connection_number = connection
        told.append(node.ask(consumer_group_heartbeat.handle, beat).assignment is not None)
    assert told == [False, False, True, False]


def test_the_feature_level_decides_without_a_restart(node: Node) -> None:
    set_group_version(node, 0)
    answer = node.ask(consumer_group_heartbeat.handle, joining())
    assert (answer.error_code, answer.error_message) == (ErrorCode.UNSUPPORTED_VERSION, None)
    (group,) = node.ask(consumer_group_describe.handle, ConsumerGroupDescribeRequest(group_ids=["g"])).groups
    assert group.error_code == ErrorCode.UNSUPPORTED_VERSION
    set_group_version(node, 1)
    assert node.ask(consumer_group_heartbeat.handle, joining()).error_code == ErrorCode.NONE


def test_heartbeats_of_one_turn_see_each_other(node: Node) -> None:
    """A commit may be collected for the rest of the loop turn; the records of a heartbeat may not."""
    node.ask(consumer_group_heartbeat.handle, joining())
    first = node.groups.consumer_heartbeat(joining(member_id="n"), "me", "127.0.0.1", 1, lambda _topic: True)
    second = node.groups.consumer_heartbeat(joining(member_id="o"), "me", "127.0.0.1", 1, lambda _topic: True)
    assert [getattr(answer, "error_code", None) for answer in (first, second)] == [0, 0]
    (group,) = node.ask(consumer_group_describe.handle, ConsumerGroupDescribeRequest(group_ids=["g"])).groups
    assert sorted(member.member_id for member in group.members) == ["m", "n", "o"]
