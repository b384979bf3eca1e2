"""Well-formed requests with impossible values: the error code of Apache Kafka 4.3.1, or a better one that is listed
here."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import alter_configs, incremental_alter_configs
from pykbroker_wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pykbroker_wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from pykbroker_wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from pykbroker_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykbroker_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pykbroker_wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from pykbroker_wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from pykbroker_wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from pykbroker_wire.messages.end_txn import EndTxnRequest
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.heartbeat import HeartbeatRequest
from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest
from pykbroker_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykbroker_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker_wire.messages.share_group_describe import ShareGroupDescribeRequest
from pykbroker_wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from pykbroker_wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from pykbroker_wire.messages.sync_group import SyncGroupRequest
from pykbroker_wire.primitives import TopLevel
from testkit.nodes.wire import CLOSED
from tests.badinput.asking import Asker
from tests.badinput.watched import WatchedNode

BAD_NAMES = ["../../etc/passwd", "..", ".", "", "x" * 250, "a\nb", "a b"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_topic_names(name: str, node: WatchedNode) -> None:
    with Asker(node.port) as asker:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        for version in (4, 9, 13):
            assert asker.ask(asked, version).topics[0].error_code == 17
        made = asker.ask(
            CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
        )
        assert made.topics[0].error_code == 17
        assert not asker.said_in(node.log_file)
    assert not any("etc/passwd" in line for line in node.log())


def test_create_topics(node: WatchedNode) -> None:
    with Asker(node.port) as asker:

        def verdict(name: str, partitions: int, factor: int) -> int:
            topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor)
            return int(asker.ask(CreateTopicsRequest(topics=[topic], validate_only=True)).topics[0].error_code)

        assert verdict("p0", 0, 1) == 37
        assert verdict("pmax", 2**31 - 1, 1) == 44
        assert verdict("rf3", 1, 3) == 38
        assert verdict("__cluster_metadata", 1, 1) == 42


def test_fetch(node: WatchedNode) -> None:
    with Asker(node.port) as asker:
        topic = asker.make_topic("fetched")

        def verdict(name: str = topic, partition: int = 0, offset: int = 0, version: int = 11, **fields: Any) -> int:
            limit = fields.pop("partition_max_bytes", 1000)
            asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=limit)
            answer = asker.ask(
                FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=name, partitions=[asked])], **fields), version
            )
            return int(answer.error_code or answer.responses[0].partitions[0].error_code)

        assert verdict(offset=10**9) == 1
        assert verdict(offset=-1) == 1
        assert verdict("no-such-topic") == 3
        assert verdict(partition=99) == 3
        assert verdict(replica_id=5) == 6
        # Better: Apache Kafka answers some of these with -1.
        assert verdict(max_bytes=-1) == 0
        assert verdict(partition_max_bytes=-5) == 0
        assert verdict(isolation_level=7) == 42


@pytest.mark.slow
def test_a_fetch_that_waits_forever_leaves_with_its_client(node: WatchedNode) -> None:
    with Asker(node.port) as maker:
        topic = maker.make_topic("fetched")
    before = node.holds()
    asked = FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)])
    askers = [Asker(node.port) for _ in range(30)]
    for asker in askers:
        request = FetchRequest(max_wait_ms=2**31 - 1, min_bytes=2**31 - 1, session_epoch=-1, topics=[asked])
        asker.send(request, 11)
    held = node.settles({"parked_fetches": before["parked_fetches"] - 1}, 0.5)
    assert held["parked_fetches"] == before["parked_fetches"] + 30
    for asker in askers:
        asker.close()
    goal = {name: before[name] for name in ("parked_fetches", "connections", "unanswered", "sockets")}
    held = node.settles(goal)
    assert all(held[name] <= goal[name] for name in goal), (held, goal)


def test_offsets(node: WatchedNode) -> None:
    with Asker(node.port) as asker:
        topic = asker.make_topic("fetched")

        def listed(timestamp: int) -> int:
            asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(timestamp=timestamp)])
            return int(asker.ask(ListOffsetsRequest(replica_id=-1, topics=[asked])).topics[0].partitions[0].error_code)

        def deleted(offset: int) -> int:
            asked = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(offset=offset)])
            return int(
                asker.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=1000)).topics[0].partitions[0].error_code
            )

        assert listed(-99) == 35
        assert listed(-1) == 0
        assert deleted(10**6) == 1
        assert deleted(-5) == 1


def test_groups(node: WatchedNode) -> None:
    with Asker(node.port) as asker:
        asker.make_coordinator()
        topic = asker.make_topic("fetched")
        assert asker.ask(FindCoordinatorRequest(key="g", key_type=5), 3).error_code == 42
        assert asker.ask(FindCoordinatorRequest(key="", key_type=0), 3).error_code == 0

        def joined(
            group: str = "g",
            member: str = "",
            session_ms: int = 10000,
            version: int = 5,
            kind: str = "consumer",
            metadata: bytes = b"",
        ) -> int:
            request = JoinGroupRequest(
                group_id=group,
                member_id=member,
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=1000,
                protocol_type=kind,
                protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)] if kind != "none" else [],
            )
            return int(asker.ask(request, version).error_code)

        assert joined("") == 24
        assert joined(session_ms=1) == 26
        assert joined(session_ms=2**31 - 1) == 26
        assert joined(member="ghost") == 25
        assert joined(version=4) == 79
        assert joined(kind="") == 23
        assert joined(kind="none") == 23
        assert joined(metadata=bytes(10_000_000)) == 79
        assert asker.ask(HeartbeatRequest(group_id="none", generation_id=1, member_id="m")).error_code == 25
        assert asker.ask(SyncGroupRequest(group_id="none", generation_id=1, member_id="m"), 3).error_code == 25
        left = asker.ask(LeaveGroupRequest(group_id="none", members=[MemberIdentity(member_id="m")]))
        assert (left.error_code or left.members[0].error_code) == 25

        def committed(
            group: str = "g",
            name: str = topic,
            offset: int = 1,
            metadata: str = "",
            generation: int = -1,
            member: str = "",
        ) -> int:
            part = OffsetCommitRequestPartition(committed_offset=offset, committed_metadata=metadata)
            request = OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=generation,
                member_id=member,
                topics=[OffsetCommitRequestTopic(name=name, partitions=[part])],
            )
            return int(asker.ask(request, 8).topics[0].partitions[0].error_code)

        assert committed(offset=-5) == 0
        assert committed(group="") == 0
        assert committed(metadata="x" * 4097) == 12
        assert committed(name="no-such-topic") == 3
        assert committed(generation=7, member="ghost") == 25
        assert committed("no-such-group", generation=7, member="ghost") == 22
        assert not asker.said_in(node.log_file)


def test_producer_ids(node: WatchedNode) -> None:
    with Asker(node.port) as asker:
        assert asker.ask(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)).error_code == 42
        assert asker.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)).error_code == 0


def test_configs(node: WatchedNode) -> None:
    with Asker(node.port) as asker:
        topic = asker.make_topic("fetched")

        def set_to(key: str, value: str) -> int:
            made = alter_configs.AlterConfigsResource(
                resource_type=2, resource_name=topic, configs=[alter_configs.AlterableConfig(name=key, value=value)]
            )
            return int(asker.ask(alter_configs.AlterConfigsRequest(resources=[made])).responses[0].error_code)

        assert set_to("retention.ms", "x") == 40
        assert set_to("no.such.key", "x") == 40
        # Better: Apache Kafka never answers the first, and -1 to the second.
        twice = alter_configs.AlterConfigsResource(resource_type=2, resource_name=topic)
        assert {
            r.error_code for r in asker.ask(alter_configs.AlterConfigsRequest(resources=[twice, twice])).responses
        } == {42}
        strange = incremental_alter_configs.AlterableConfig(name="retention.ms", config_operation=9, value="5")
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=2, resource_name=topic, configs=[strange]
        )
        answer = asker.ask(incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource]))
        assert answer.responses[0].error_code == 42


def test_never_minus_one(node: WatchedNode) -> None:
    """Apache Kafka answers UNKNOWN_SERVER_ERROR to these, although a client could know that they are wrong."""
    with Asker(node.port) as asker:
        topic = asker.make_topic("fetched")
        for count in (10_003, 2**31 - 1):
            asked = CreatePartitionsTopic(name=topic, count=count, assignments=None)
            answer = asker.ask(CreatePartitionsRequest(topics=[asked], timeout_ms=1000, validate_only=True))
            assert answer.results[0].error_code == 44
        described = asker.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="")]))
        assert described.topics[0].error_code == 17
        for version in (12, 13):
            answer = asker.ask(MetadataRequest(topics=[MetadataRequestTopic(topic_id=bytes(16), name=None)]), version)
            assert [found.error_code for found in answer.topics] in ([], [17], [100])


def test_transactions(node: WatchedNode) -> None:
    with Asker(node.port) as asker:
        topic = asker.make_topic("transactions")
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=["t"])
        while asker.ask(request).coordinators[0].error_code:
            pass
        for timeout_ms in (0, -1, 2**31 - 1):
            asked = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=timeout_ms)
            assert asker.ask(asked).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        longest = InitProducerIdRequest(transactional_id="x" * 32_767, transaction_timeout_ms=1000)
        assert asker.ask(longest, 5).error_code == 0
        unknown: list[tuple[TopLevel, int]] = [
            (AddOffsetsToTxnRequest(transactional_id="nobody", producer_id=1, group_id="g"), 4),
            (EndTxnRequest(transactional_id="nobody", producer_id=1, producer_epoch=0, committed=True), 5),
        ]
        for asked_of_nobody, version in unknown:
            answer = asker.ask(asked_of_nobody, version)
            assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="nobody",
            v3_and_below_producer_id=1,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        (answer,) = asker.ask(added, 3).results_by_topic_v3_and_below
        assert answer.results_by_partition[0].partition_error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        identity = asker.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000))
        assert identity.error_code == 0
        ended = EndTxnRequest(
            transactional_id="t", producer_id=identity.producer_id + 1, producer_epoch=0, committed=True
        )
        assert asker.ask(ended).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        asker.is_served()


def test_heartbeats_of_consumer_groups(node: WatchedNode) -> None:
    with Asker(node.port) as asker:
        asker.make_coordinator()
        fine: dict[str, Any] = {"group_id": "modern", "member_id": "m", "subscribed_topic_names": ["nowhere"]}
        fine |= {"rebalance_timeout_ms": 1000, "topic_partitions": []}
        for field, value, code in (
            ("group_id", "", ErrorCode.INVALID_REQUEST),
            ("member_id", "", ErrorCode.INVALID_REQUEST),
            ("member_epoch", -3, ErrorCode.INVALID_REQUEST),
            ("member_epoch", 7, ErrorCode.GROUP_ID_NOT_FOUND),
            ("server_assignor", "ghost", ErrorCode.UNSUPPORTED_ASSIGNOR),
            ("subscribed_topic_regex", "(", ErrorCode.INVALID_REGULAR_EXPRESSION),
        ):
            answer = asker.ask(ConsumerGroupHeartbeatRequest(**{"member_epoch": 0, **fine, field: value}), 1)
            assert answer.error_code == code, field
        asker.is_served()


def test_share_groups(node: WatchedNode) -> None:
    """Apache Kafka answers DescribeShareGroupOffsets without a group id with UNKNOWN_SERVER_ERROR, and about a
    partition that does not exist after half a minute."""
    with Asker(node.port) as asker:
        asker.make_coordinator()
        topic = asker.make_topic("shared")
        fine: dict[str, Any] = {"group_id": "bad-share", "member_id": "m", "subscribed_topic_names": ["nowhere"]}
        for field, value, code in (
            ("group_id", "", ErrorCode.INVALID_REQUEST),
            ("group_id", "  ", ErrorCode.INVALID_REQUEST),
            ("member_id", "", ErrorCode.INVALID_REQUEST),
            ("member_id", "m" * 37, ErrorCode.INVALID_REQUEST),
            ("member_id", "m" * 30_000, ErrorCode.INVALID_REQUEST),
            ("rack_id", "", ErrorCode.INVALID_REQUEST),
            ("subscribed_topic_names", None, ErrorCode.INVALID_REQUEST),
            ("subscribed_topic_names", [], ErrorCode.INVALID_REQUEST),
            ("member_epoch", -(2**31), ErrorCode.INVALID_REQUEST),
            ("member_epoch", 2**31 - 1, ErrorCode.GROUP_ID_NOT_FOUND),
        ):
            answer = asker.ask(ShareGroupHeartbeatRequest(**{"member_epoch": 0, **fine, field: value}), 1)
            assert answer.error_code == code, field
        described = asker.ask(ShareGroupDescribeRequest(group_ids=["", "nowhere", "g" * 30_000]), 1).groups
        assert [group.error_code for group in described] == [
            ErrorCode.INVALID_GROUP_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ]
        partition = AlterShareGroupOffsetsRequestPartition(partition_index=-1, start_offset=-(2**63))
        topics = [
            AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=[partition] * 2)
            for name in (topic, topic, "nowhere", "")
        ]
        altered = asker.ask(AlterShareGroupOffsetsRequest(group_id="bad-share", topics=topics), 0)
        codes = {each.error_code for topic in altered.responses for each in topic.partitions}
        assert (altered.error_code, codes) == (ErrorCode.NONE, {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
        deleted = asker.ask(DeleteShareGroupOffsetsRequest(group_id="", topics=[]), 0)
        assert deleted.error_code == ErrorCode.INVALID_GROUP_ID
        asked = DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[-1, 2**31 - 1])
        groups = [
            DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=[asked])
            for group in ("", "nowhere", "nowhere")
        ]
        offsets = asker.ask(DescribeShareGroupOffsetsRequest(groups=groups), 1).groups
        # Apache Kafka answers a repeated entry each time.
        assert [group.error_code for group in offsets] == [ErrorCode.INVALID_GROUP_ID, ErrorCode.NONE]
        assert {each.start_offset for each in offsets[1].topics[0].partitions} == {-1}
        asker.is_served()


def test_what_is_not_served_is_refused(node: WatchedNode) -> None:
    """Streams groups are not served, and their requests are not advertised."""
    with Asker(node.port) as asker:
        assert asker.ask(StreamsGroupHeartbeatRequest(group_id="g", member_id="m"), 0) is CLOSED
        assert len(asker.said_in(node.log_file)) == 1
