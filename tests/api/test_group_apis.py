"""The group APIs over the real service, the real machine and a partition in memory: authorization, versions, topics.

tests/coordinator tests the decisions of groups; compat_tests/differential compares them with Apache Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykbroker.api import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from pykbroker.config.live import LiveConfig
from pykbroker.config.load import load
from pykbroker.coordinator.group.service import OFFSETS_TOPIC, GroupService
from pykbroker.coordinator.java import hash_map_order, java_hash, partition_for, topic_partition_hash
from pykbroker.dispatch.context import RequestContext
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import BrokerImage, Endpoint, MetadataImage, PartitionImage, TopicImage, TopicsImage
from pykbroker.security.authorizer import AllowAll, Asker, Operation, Resource
from pykbroker.security.peer_session import ANONYMOUS, PeerSession
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.delete_groups import DeleteGroupsRequest
from pykbroker_wire.messages.describe_groups import DescribeGroupsRequest
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.heartbeat import HeartbeatRequest
from pykbroker_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykbroker_wire.messages.leave_group import LeaveGroupRequest
from pykbroker_wire.messages.list_groups import ListGroupsRequest
from pykbroker_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from pykbroker_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from pykbroker_wire.messages.sync_group import SyncGroupRequest
from tests.coordinator.fakes import Replicas, World, as_replicas, as_runtime
from tests.deny_all import DenyAll

TOPIC_ID = b"t" * 16
PARTITIONS = 5


def topic(name: str, topic_id: bytes, partitions: int) -> TopicImage:
    partition = PartitionImage((1,), (bytes(16),), (1,), (), (), (), (), 1, 0, 0, 0)
    return TopicImage(name, topic_id, dict.fromkeys(range(partitions), partition))


class Only(AllowAll):
    """Allows everything except these (operation, resource, name)."""

    def __init__(self, *denied: tuple[Operation, Resource, str]) -> None:
        self.denied = denied

    def authorize(self, asker: Asker, operation: Operation, resource: Resource, name: str, quiet: bool = False) -> bool:
        return (operation, resource, name) not in self.denied


class Node:
    """The broker half, as far as the group APIs need it."""

    connection_number = 1

    def __init__(self) -> None:
        self.world = World()
        self.replicas = Replicas()
        topics = [topic(OFFSETS_TOPIC, b"o" * 16, PARTITIONS), topic("t", TOPIC_ID, 2), topic("u", b"u" * 16, 1)]
        broker = BrokerImage(
            1, 0, bytes(16), {"PLAINTEXT": Endpoint("PLAINTEXT", "h", 9092, 0)}, None, False, False, (), {}
        )
        self.metadata = SimpleNamespace(
            image=MetadataImage(
                topics=TopicsImage({one.name: one for one in topics}, {one.id: one for one in topics}),
                brokers={1: broker},
            )
        )
        config = load(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": "1@localhost:9093",
                "group.initial.rebalance.delay.ms": "0",
            }
        )
        self.groups = self.make_groups(LiveConfig(config))
        for index in range(PARTITIONS):
            self.replicas.lead(index)
        self.world.loop.settle()
        self.authorizer: Any = AllowAll()

    def make_groups(self, live: LiveConfig) -> GroupService:
        nothing: Any = None  # these groups have no share partitions
        return GroupService(
            as_runtime(self.world), live, 1, as_replicas(self.replicas), cast(Any, self.metadata), nothing, nothing
        )

    def ask(self, handle: Callable[[RequestContext[Any], Any], Any], request: Any, version: int | None = None) -> Any:
        """Return the response; if it came at once, it is encoded in its version and decoded again."""
        version = request.MAX_VERSION if version is None else version
        peer = SimpleNamespace(
            session=ANONYMOUS,
            client_host="127.0.0.1",
            listener_name="PLAINTEXT",
            security_protocol="PLAINTEXT",
            connection_number=self.connection_number,
        )
        ctx = RequestContext(cast(Any, peer), cast(Any, self), request.API_KEY, version, 0, "me", 0)
        answer = handle(ctx, request)
        self.world.loop.settle()
        if isinstance(answer, asyncio.Future):
            if not answer.done():
                return answer
            answer = answer.result()
        return type(answer).decode(answer.encode_bytes(version), 0, version)[0]


@pytest.fixture
def node() -> Node:
    return Node()


def join(group: str = "g", member: str = "", session_ms: int = 10_000) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        member_id=member,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def commit(*topics: tuple[str, bytes, tuple[int, ...]], group: str = "g") -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=7) for index in partitions
                ],
            )
            for name, topic_id, partitions in topics
        ],
    )


def errors(answer: Any) -> list[tuple[str, list[tuple[int, int]]]]:
    return [
        (one.name, [(partition.partition_index, partition.error_code) for partition in one.partitions])
        for one in answer.topics
    ]


REQUESTS: list[tuple[Callable[[RequestContext[Any], Any], Any], Any]] = [
    (join_group.handle, join()),
    (sync_group.handle, SyncGroupRequest(group_id="g", protocol_type="consumer", protocol_name="range")),
    (heartbeat.handle, HeartbeatRequest(group_id="g")),
    (leave_group.handle, LeaveGroupRequest(group_id="g")),
    (offset_delete.handle, OffsetDeleteRequest(group_id="g")),
]


@pytest.mark.parametrize(("handle", "request_"), REQUESTS, ids=lambda value: type(value).__name__)
def test_whoever_may_not_is_told_so_in_every_version(
    node: Node, handle: Callable[[RequestContext[Any], Any], Any], request_: Any
) -> None:
    node.authorizer = DenyAll()
    for version in range(request_.MIN_VERSION, request_.MAX_VERSION + 1):
        assert node.ask(handle, request_, version).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert not any(partition.log.batches for partition in node.replicas.partitions.values())


def test_groups_keep_their_coordinators_when_the_offsets_topic_grows(node: Node) -> None:
    groups = [f"group {number}" for number in range(20)]
    node.groups.start()
    before = [node.groups.partition_of(group) for group in groups]
    old = node.metadata.image
    offsets = topic(OFFSETS_TOPIC, b"o" * 16, 3 * PARTITIONS)
    new = replace(
        old,
        topics=TopicsImage(
            {**old.topics.by_name, OFFSETS_TOPIC: offsets},
            {**old.topics.by_id, offsets.id: offsets},
        ),
    )
    node.metadata.image = new
    node.groups.publish(MetadataDelta(old), old, new)
    assert [node.groups.partition_of(group) for group in groups] == before


def test_denied_per_group_and_per_topic(node: Node) -> None:
    node.authorizer = DenyAll()
    failed = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert errors(node.ask(offset_commit.handle, commit(("t", TOPIC_ID, (0,))), 9)) == [("t", [(0, failed)])]
    assert node.ask(list_groups.handle, ListGroupsRequest()).groups == []
    assert node.ask(describe_groups.handle, DescribeGroupsRequest(groups=["g"])).groups[0].error_code == failed
    assert node.ask(delete_groups.handle, DeleteGroupsRequest(groups_names=["g"])).results[0].error_code == failed
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    assert node.ask(offset_fetch.handle, fetch, 9).groups[0].error_code == failed
    old = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
    assert node.ask(offset_fetch.handle, old, 2).error_code == failed
    assert errors(node.ask(offset_fetch.handle, old, 1)) == [("t", [(0, failed)])]
    found = node.ask(find_coordinator.handle, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    assert found.coordinators[0].error_code == failed
    found = node.ask(find_coordinator.handle, FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]))
    assert found.coordinators[0].error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_topics_that_may_not_be_read_or_seen(node: Node) -> None:
    node.ask(offset_commit.handle, commit(("t", TOPIC_ID, (0,)), ("u", b"u" * 16, (0,))), 9)
    node.authorizer = Only((Operation.READ, Resource.TOPIC, "u"), (Operation.DESCRIBE, Resource.TOPIC, "u"))
    answer = node.ask(offset_commit.handle, commit(("t", TOPIC_ID, (0,)), ("u", b"u" * 16, (0,))), 9)
    assert errors(answer) == [("u", [(0, 29)]), ("t", [(0, 0)])]
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    assert [one.name for one in node.ask(offset_fetch.handle, everything, 9).groups[0].topics] == ["t"]
    named = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id="g", topics=[OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in "ut"]
            )
        ]
    )
    assert errors(node.ask(offset_fetch.handle, named, 9).groups[0]) == [("t", [(0, 0)]), ("u", [(0, 29)])]
    delete = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            for name in "tu"
        ],
    )
    assert errors(node.ask(offset_delete.handle, delete)) == [("u", [(0, 29)]), ("t", [(0, 0)])]


def test_groups_are_listed_for_whoever_may_describe_the_cluster_or_them(node: Node) -> None:
    for group in "abc":
        node.ask(offset_commit.handle, commit(("t", TOPIC_ID, (0,)), group=group), 9)
    node.authorizer = Only((Operation.DESCRIBE, Resource.GROUP, "b"))
    assert {one.group_id for one in node.ask(list_groups.handle, ListGroupsRequest()).groups} == {"a", "b", "c"}
    node.authorizer = Only(
        (Operation.DESCRIBE, Resource.GROUP, "b"), (Operation.DESCRIBE, Resource.CLUSTER, "kafka-cluster")
    )
    assert {one.group_id for one in node.ask(list_groups.handle, ListGroupsRequest()).groups} == {"a", "c"}


def test_authorized_operations_of_a_group(node: Node) -> None:
    node.ask(offset_commit.handle, commit(("t", TOPIC_ID, (0,))), 9)
    node.authorizer = Only((Operation.DELETE, Resource.GROUP, "g"))
    request = DescribeGroupsRequest(groups=["g", "nobody"], include_authorized_operations=True)
    found = {one.group_id: one.authorized_operations for one in node.ask(describe_groups.handle, request, 6).groups}
    bits = sum(1 << operation for operation in (3, 8, 10, 11))
    assert found == {"g": bits, "nobody": -(2**31)}


def test_a_life_in_every_version(node: Node) -> None:
    for version in range(10):
        group = f"g{version}"
        joined = node.ask(join_group.handle, join(group), version)
        if version >= 4:
            assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
            joined = node.ask(join_group.handle, join(group, joined.member_id), version)
        assert isinstance(joined, asyncio.Future)
        node.world.loop.advance(0)
        answer = joined.result()
        assert (answer.error_code, answer.generation_id) == (0, 1)
        sync = SyncGroupRequest(
            group_id=group, member_id=answer.member_id, generation_id=1, protocol_type="consumer", protocol_name="range"
        )
        if version < 5:
            sync.protocol_type = sync.protocol_name = None
        assert node.ask(sync_group.handle, sync, min(version, 5)).error_code == 0
        beat = HeartbeatRequest(group_id=group, member_id=answer.member_id, generation_id=1)
        assert node.ask(heartbeat.handle, beat, min(version, 4)).error_code == 0
        if version < 3:
            leave = LeaveGroupRequest(group_id=group, member_id=answer.member_id)
            assert node.ask(leave_group.handle, leave, version).error_code == 0
            assert node.ask(leave_group.handle, leave, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_must_name_the_protocol_from_version_5(node: Node) -> None:
    request = SyncGroupRequest(group_id="g", member_id="m", protocol_type="consumer")
    assert node.ask(sync_group.handle, request, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, 0, -1])
def test_session_timeouts_have_limits(node: Node, session_ms: int) -> None:
    answer = node.ask(join_group.handle, join(session_ms=session_ms))
    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_commits_of_topics_that_are_not_there(node: Node) -> None:
    request = commit(("t", TOPIC_ID, (0, 9)), ("nothing", b"n" * 16, (0,)))
    assert errors(node.ask(offset_commit.handle, request, 9)) == [("t", [(9, 3), (0, 0)]), ("nothing", [(0, 3)])]
    answer = node.ask(offset_commit.handle, request, 10)
    found = {one.topic_id: [partition.error_code for partition in one.partitions] for one in answer.topics}
    assert found == {TOPIC_ID: [3, 0], b"n" * 16: [100]}


def test_fetch_by_topic_id(node: Node) -> None:
    node.ask(offset_commit.handle, commit(("t", TOPIC_ID, (0,))), 10)
    asked = [OffsetFetchRequestTopics(topic_id=one, partition_indexes=[0, 1]) for one in (TOPIC_ID, b"n" * 16)]
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="g", topics=asked),
            OffsetFetchRequestGroup(group_id="g", topics=None),
            OffsetFetchRequestGroup(group_id="other", topics=None),
        ]
    )
    answer = node.ask(offset_fetch.handle, request, 10)
    found = [
        [(one.topic_id, [(part.committed_offset, part.error_code) for part in one.partitions]) for one in group.topics]
        for group in answer.groups
    ]
    assert found == [[(TOPIC_ID, [(7, 0), (-1, 0)]), (b"n" * 16, [(-1, 100), (-1, 100)])], [(TOPIC_ID, [(7, 0)])], []]


def test_offsets_go_with_their_topic(node: Node) -> None:
    node.ask(offset_commit.handle, commit(("t", TOPIC_ID, (0,)), ("u", b"u" * 16, (0,))), 9)
    gone = {TOPIC_ID: node.metadata.image.topics.by_name["t"]}
    delta = SimpleNamespace(topics=SimpleNamespace(changed={}, deleted=gone))
    node.groups.publish(cast(Any, delta), node.metadata.image, node.metadata.image)
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    assert [one.name for one in node.ask(offset_fetch.handle, request, 9).groups[0].topics] == ["u"]


def test_partitions_that_are_led_elsewhere(node: Node) -> None:
    index = node.groups.partition_of("g")
    node.replicas.lose(index)
    code = ErrorCode.NOT_COORDINATOR
    assert node.ask(join_group.handle, join()).error_code == code
    assert errors(node.ask(offset_commit.handle, commit(("t", TOPIC_ID, (0,))), 9)) == [("t", [(0, code)])]
    assert node.ask(describe_groups.handle, DescribeGroupsRequest(groups=["g"])).groups[0].error_code == code
    assert node.ask(delete_groups.handle, DeleteGroupsRequest(groups_names=["g"])).results[0].error_code == code
    assert node.ask(list_groups.handle, ListGroupsRequest()).error_code == 0


def test_while_a_partition_loads(node: Node) -> None:
    index = node.groups.partition_of("g")
    for _ in range(500):
        node.ask(offset_commit.handle, commit(("t", TOPIC_ID, (0,))), 9)
    node.replicas.lose(index)
    node.world.loop.cost_per_look = 0.001
    node.replicas.lead(index)
    peer = SimpleNamespace(
        session=PeerSession(""), client_host="h", listener_name="PLAINTEXT", security_protocol="PLAINTEXT"
    )
    ctx = RequestContext(cast(Any, peer), cast(Any, node), 12, 4, 0, "me", 0)
    beat = cast(Any, heartbeat.handle(ctx, HeartbeatRequest(group_id="g", member_id="m", generation_id=1)))
    assert beat.error_code == ErrorCode.NONE
    listed = cast(Any, list_groups.handle(ctx, ListGroupsRequest()))
    assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    joined = cast(Any, join_group.handle(ctx, join()))
    assert joined.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_the_coordinator_of_a_group(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in range(7):
        request = (
            FindCoordinatorRequest(key="g") if version < 4 else FindCoordinatorRequest(coordinator_keys=["g", "h"])
        )
        answer = node.ask(find_coordinator.handle, request, version)
        for found in answer.coordinators if version >= 4 else [answer]:
            assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "h", 9092)
    unknown = node.ask(find_coordinator.handle, FindCoordinatorRequest(key_type=5, coordinator_keys=["g"]))
    assert unknown.coordinators[0].error_code == ErrorCode.INVALID_REQUEST
    created: list[str] = []
    monkeypatch.setattr(find_coordinator, "ensure_topic", lambda services, name: created.append(name))
    node.metadata.image = MetadataImage()
    answer = node.ask(find_coordinator.handle, FindCoordinatorRequest(coordinator_keys=["g"]))
    assert answer.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert created == [OFFSETS_TOPIC]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("polygenelubricants", -(2**31)),
        ("naïve-Ω", 1_842_520_999),
        ("😀", 1_772_899),
    ],
)
def test_hashes_are_those_of_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_partitions_are_those_of_kafka() -> None:
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("", 50) == 0
    assert partition_for("group", 50) == 47


def test_hash_maps_are_walked_as_java_does() -> None:
    assert hash_map_order(["range", "sticky", "roundrobin"], java_hash) == ["sticky", "range", "roundrobin"]
    assert topic_partition_hash("t", 3) == 31 * (31 + 3) + 116
