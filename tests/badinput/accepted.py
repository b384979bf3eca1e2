"""Requests with many elements that exist, so that they are carried out: their table, and the node's state.

Responsible for the requests and for their preparation. test_accepted_elements.py judges their cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple

from pykbroker.metadata.image import BrokerImage, TopicImage
from pykbroker.net.client import BrokerConnection
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import add_partitions_to_txn as add_partitions
from pykbroker_wire.messages import alter_configs as legacy
from pykbroker_wire.messages import alter_partition as isr
from pykbroker_wire.messages import alter_partition_reassignments as reassign
from pykbroker_wire.messages import alter_replica_log_dirs as move
from pykbroker_wire.messages import alter_user_scram_credentials as scram
from pykbroker_wire.messages import assign_replicas_to_dirs as assign
from pykbroker_wire.messages import (
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    fetch,
    list_offsets,
    metadata,
    produce,
    sync_group,
)
from pykbroker_wire.messages import delete_records as records
from pykbroker_wire.messages import describe_configs as configs
from pykbroker_wire.messages import describe_log_dirs as dirs
from pykbroker_wire.messages import describe_producers as producers
from pykbroker_wire.messages import describe_topic_partitions as described
from pykbroker_wire.messages import elect_leaders as elect
from pykbroker_wire.messages import incremental_alter_configs as incremental
from pykbroker_wire.messages import join_group as join
from pykbroker_wire.messages import list_partition_reassignments as listed
from pykbroker_wire.messages import offset_commit as commit
from pykbroker_wire.messages import offset_delete as forget
from pykbroker_wire.messages import offset_fetch as fetch_offsets
from pykbroker_wire.messages import offset_for_leader_epoch as epochs
from pykbroker_wire.messages import txn_offset_commit as txn_commit
from pykbroker_wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pykbroker_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykbroker_wire.messages.delete_groups import DeleteGroupsRequest
from pykbroker_wire.messages.describe_groups import DescribeGroupsRequest
from pykbroker_wire.messages.end_txn import EndTxnRequest
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest
from pykbroker_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.records.batch import build_batch
from pykbroker_worlds.simulated.sim_node import PORT
from testkit.nodes.sim import TOPIC, Sim

_TIMEOUT_MS = 60_000
#: Seconds, in which a decision is published.
_FOLLOWED_SECONDS = 0.1
#: Seconds, in which a node opens the logs of new topics.
_SETTLED_SECONDS = 5
#: Members of a group: each is compared with all others when the group is balanced.
MEMBERS = 50


class Standing:
    """A node with `count` topics of one partition and one topic, `wide`, of `count` partitions."""

    def __init__(self, sim: Sim, count: int) -> None:
        self.sim = sim
        self.count = count
        self._fresh = 0
        self._runtime = sim.world.runtime("accepted", sim.disk)
        self._broker = self._connect(PORT)
        self._controller = self._connect(PORT + 1)
        self.producer = (-1, -1)

    def _connect(self, port: int) -> BrokerConnection:
        return BrokerConnection(self._runtime, "localhost", port, "accepted")

    async def begin(self) -> None:
        topics = [new_topic(f"t-{number}") for number in range(self.count)]
        await self.ask(create_topics.CreateTopicsRequest(topics=topics, timeout_ms=_TIMEOUT_MS))
        await self.sim.create("wide", partitions=self.count)
        for kind, key in ((0, "g"), (1, "x")):
            await self.send(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))
        await asyncio.sleep(_SETTLED_SECONDS)
        made = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=_TIMEOUT_MS)
        answer = await self.ask(made)
        self.producer = answer.producer_id, answer.producer_epoch

    async def send(self, request: TopLevel, version: int | None = None, *, to_controller: bool = False) -> Any:
        """Return the response, when its immediate effects are done, too."""
        connection = self._controller if to_controller else self._broker
        answer = await connection.send(request, _TIMEOUT_MS, version)
        await asyncio.sleep(_FOLLOWED_SECONDS)
        return answer

    async def ask(self, request: TopLevel, version: int | None = None, *, to_controller: bool = False) -> Any:
        """Send a request before the measurement. Raises AssertionError if anything in it was refused."""
        answer = await self.send(request, version, to_controller=to_controller)
        assert_accepted(answer)
        await asyncio.sleep(_SETTLED_SECONDS)
        return answer

    def fresh(self, count: int) -> list[str]:
        """Return names that were never used."""
        self._fresh += 1
        return [f"new-{self._fresh}-{number}" for number in range(count)]

    def names(self, count: int) -> list[str]:
        return [f"t-{number}" for number in range(count)]

    def topics(self, count: int) -> Iterator[TopicImage]:
        by_name = self.sim.node.loader.image.topics.by_name
        return (by_name[name] for name in self.names(count))

    @property
    def broker(self) -> BrokerImage:
        (broker,) = self.sim.node.loader.image.brokers.values()
        return broker

    async def made(self, count: int, configs: int = 0) -> list[str]:
        """Create topics and return their names."""
        names = self.fresh(count)
        topics = [new_topic(name) for name in names]
        await self.ask(create_topics.CreateTopicsRequest(topics=topics, timeout_ms=_TIMEOUT_MS))
        return names

    async def joined(self, group: str, protocols: int = 1, instance: str | None = None) -> Callable[[], Awaitable[Any]]:
        """Return a call that joins a group."""
        request = join.JoinGroupRequest(
            group_id=group,
            group_instance_id=instance,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[join.JoinGroupRequestProtocol(name=f"p-{number}") for number in range(protocols)],
        )
        if instance is None:
            request.member_id = (await self.send(request)).member_id
        # A member that waits for others blocks its connection.
        connection = self._connect(PORT)
        return lambda: connection.send(request, _TIMEOUT_MS)


def new_topic(name: str) -> create_topics.CreatableTopic:
    return create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)


def assert_accepted(answer: Any) -> None:
    refused = set(_codes(answer)) - {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED}
    assert not refused, (type(answer).__name__, refused)


def _codes(message: Any) -> Iterator[int]:
    """Yield all error codes of a response."""
    for name in type(message).__slots__:
        value = getattr(message, name, None)
        if name.endswith("error_code"):
            yield int(value or 0)
        elif isinstance(value, list) and value and hasattr(type(value[0]), "__slots__"):
            for each in value:
                yield from _codes(each)


class Case(NamedTuple):
    """`request` makes a request of this many elements; if it needs preparation, it returns the request after that."""

    request: Callable[[Standing, int], TopLevel | Awaitable[TopLevel | Callable[[], Awaitable[Any]]]]
    few: int = 0
    version: int | None = None
    to_controller: bool = False


# Topics.


async def _delete(on: Standing, count: int) -> TopLevel:
    names = await on.made(count)
    return delete_topics.DeleteTopicsRequest(
        topics=[delete_topics.DeleteTopicState(name=name) for name in names], timeout_ms=_TIMEOUT_MS
    )


async def _widen(on: Standing, count: int) -> TopLevel:
    names = await on.made(count)
    return create_partitions.CreatePartitionsRequest(
        topics=[create_partitions.CreatePartitionsTopic(name=name, count=2, assignments=None) for name in names],
        timeout_ms=_TIMEOUT_MS,
    )


def _create(on: Standing, count: int) -> TopLevel:
    setting = create_topics.CreatableTopicConfig(name="retention.ms", value="5000")
    topics = [new_topic(name) for name in on.fresh(count)]
    for topic in topics:
        topic.configs = [setting]
    return create_topics.CreateTopicsRequest(topics=topics, timeout_ms=_TIMEOUT_MS)


def _create_wide(on: Standing, count: int) -> TopLevel:
    topic = new_topic(on.fresh(1)[0])
    topic.num_partitions = count
    return create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)


def _legacy_configs(on: Standing, count: int) -> TopLevel:
    setting = legacy.AlterableConfig(name="retention.ms", value=str(10**10 + count))
    resources = [
        legacy.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[setting])
        for name in on.names(count)
    ]
    return legacy.AlterConfigsRequest(resources=resources)


def _configs(on: Standing, count: int) -> TopLevel:
    setting = incremental.AlterableConfig(name="retention.bytes", value=str(10**10 + count))
    resources = [
        incremental.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[setting])
        for name in on.names(count)
    ]
    return incremental.IncrementalAlterConfigsRequest(resources=resources)


def _reassign(on: Standing, count: int) -> TopLevel:
    part = reassign.ReassignablePartition(partition_index=0, replicas=[on.broker.id])
    topics = [reassign.ReassignableTopic(name=name, partitions=[part]) for name in on.names(count)]
    return reassign.AlterPartitionReassignmentsRequest(topics=topics)


def _isr(on: Standing, count: int) -> TopLevel:
    in_sync = isr.BrokerState(broker_id=on.broker.id, broker_epoch=on.broker.epoch)
    topics = [
        isr.RequestTopicData(
            topic_id=topic.id,
            partitions=[
                isr.RequestPartitionData(
                    leader_epoch=topic.partitions[0].leader_epoch,
                    partition_epoch=topic.partitions[0].partition_epoch,
                    new_isr_with_epochs=[in_sync],
                )
            ],
        )
        for topic in on.topics(count)
    ]
    return isr.AlterPartitionRequest(broker_id=on.broker.id, broker_epoch=on.broker.epoch, topics=topics)


def _directories(on: Standing, count: int) -> TopLevel:
    part = assign.RequestPartitionData(partition_index=0)
    topics = [assign.RequestTopicData(topic_id=topic.id, partitions=[part]) for topic in on.topics(count)]
    directory = assign.RequestDirectoryData(id=on.broker.directories[0], topics=topics)
    return assign.AssignReplicasToDirsRequest(
        broker_id=on.broker.id, broker_epoch=on.broker.epoch, directories=[directory]
    )


# Users.


def _acl(name: str) -> create_acls.AclCreation:
    return create_acls.AclCreation(
        resource_type=TOPIC, resource_name=name, principal="User:a", host="*", operation=3, permission_type=3
    )


async def _forget_acls(on: Standing, count: int) -> TopLevel:
    names = on.fresh(count)
    await on.ask(create_acls.CreateAclsRequest(creations=[_acl(name) for name in names]))
    filters = [
        delete_acls.DeleteAclsFilter(
            resource_type_filter=TOPIC,
            resource_name_filter=name,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        for name in names
    ]
    return delete_acls.DeleteAclsRequest(filters=filters)


def _users(on: Standing, count: int) -> TopLevel:
    fields: dict[str, Any] = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32}
    upsertions = [scram.ScramCredentialUpsertion(name=name, **fields) for name in on.fresh(count)]
    return scram.AlterUserScramCredentialsRequest(upsertions=upsertions)


# Groups.


def _commit(on: Standing, count: int, **member: Any) -> TopLevel:
    part = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [commit.OffsetCommitRequestTopic(topic_id=topic.id, partitions=[part]) for topic in on.topics(count)]
    return commit.OffsetCommitRequest(**{"group_id": "g", "topics": topics, **member})


async def _commit_as_member(on: Standing, count: int) -> TopLevel:
    (group,) = on.fresh(1)
    member = await (await on.joined(group))()
    fields: dict[str, Any] = {"group_id": group, "member_id": member.member_id}
    await on.ask(
        sync_group.SyncGroupRequest(
            generation_id=member.generation_id, protocol_type="consumer", protocol_name="p-0", **fields
        )
    )
    return _commit(on, count, generation_id_or_member_epoch=member.generation_id, **fields)


async def _committed(on: Standing, count: int) -> TopLevel:
    await on.ask(_commit(on, count))
    topics = [fetch_offsets.OffsetFetchRequestTopics(topic_id=t.id, partition_indexes=[0]) for t in on.topics(count)]
    return fetch_offsets.OffsetFetchRequest(groups=[fetch_offsets.OffsetFetchRequestGroup(group_id="g", topics=topics)])


async def _forget(on: Standing, count: int) -> TopLevel:
    await on.ask(_commit(on, count))
    part = forget.OffsetDeleteRequestPartition(partition_index=0)
    topics = [forget.OffsetDeleteRequestTopic(name=name, partitions=[part]) for name in on.names(count)]
    return forget.OffsetDeleteRequest(group_id="g", topics=topics)


async def _groups(on: Standing, count: int) -> list[str]:
    names = on.fresh(count)
    await asyncio.gather(*(on.send(_commit(on, 1, group_id=name)) for name in names))
    return names


async def _describe_groups(on: Standing, count: int) -> TopLevel:
    return DescribeGroupsRequest(groups=await _groups(on, count))


async def _delete_groups(on: Standing, count: int) -> TopLevel:
    return DeleteGroupsRequest(groups_names=await _groups(on, count))


async def _sync(on: Standing, count: int) -> TopLevel:
    (group,) = on.fresh(1)
    member = await (await on.joined(group))()
    ids = [member.member_id, *on.fresh(count)]
    return sync_group.SyncGroupRequest(
        group_id=group,
        member_id=member.member_id,
        generation_id=member.generation_id,
        protocol_type="consumer",
        protocol_name="p-0",
        assignments=[sync_group.SyncGroupRequestAssignment(member_id=each, assignment=b"a") for each in ids],
    )


async def _leave(on: Standing, count: int) -> TopLevel:
    (group,) = on.fresh(1)
    members = [await on.joined(group, instance=f"i-{number}") for number in range(count)]
    await asyncio.gather(*(member() for member in members))
    return LeaveGroupRequest(
        group_id=group, members=[MemberIdentity(group_instance_id=f"i-{number}") for number in range(count)]
    )


def _subscribe(on: Standing, count: int) -> TopLevel:
    return ConsumerGroupHeartbeatRequest(
        group_id=on.fresh(1)[0],
        member_id="m",
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=on.names(count),
        topic_partitions=[],
    )


# Transactions.


def _end(on: Standing) -> TopLevel:
    identity, epoch = on.producer
    return EndTxnRequest(transactional_id="x", producer_id=identity, producer_epoch=epoch, committed=True)


def _add(on: Standing, topics: list[add_partitions.AddPartitionsToTxnTopic]) -> TopLevel:
    identity, epoch = on.producer
    return add_partitions.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=identity,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=topics,
    )


async def _add_many(on: Standing, count: int) -> TopLevel:
    await on.ask(_add(on, [add_partitions.AddPartitionsToTxnTopic(name="t-0", partitions=[0])]), 3)
    await on.ask(_end(on), 4)
    return _add(on, [add_partitions.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in on.names(count)])


async def _end_many(on: Standing, count: int) -> TopLevel:
    await on.ask(_add(on, [add_partitions.AddPartitionsToTxnTopic(name="wide", partitions=[*range(count)])]), 3)
    return _end(on)


async def _commit_in_transaction(on: Standing, count: int) -> TopLevel:
    identity, epoch = on.producer
    await on.ask(
        AddOffsetsToTxnRequest(transactional_id="x", producer_id=identity, producer_epoch=epoch, group_id="g"), 3
    )
    part = txn_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return txn_commit.TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=identity,
        producer_epoch=epoch,
        topics=[txn_commit.TxnOffsetCommitRequestTopic(name=name, partitions=[part]) for name in on.names(count)],
    )


# Records.


def _produce(on: Standing, count: int) -> TopLevel:
    part = produce.PartitionProduceData(index=0, records=build_batch([(None, b"value", (), on.sim.world.now_ms())]))
    data = [produce.TopicProduceData(topic_id=topic.id, partition_data=[part]) for topic in on.topics(count)]
    return produce.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=data)


def _fetch(on: Standing, count: int) -> TopLevel:
    part = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [fetch.FetchTopic(topic_id=topic.id, partitions=[part]) for topic in on.topics(count)]
    return fetch.FetchRequest(session_epoch=0, topics=topics)


def _offsets(on: Standing, count: int) -> TopLevel:
    part = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=1)
    topics = [list_offsets.ListOffsetsTopic(name=name, partitions=[part]) for name in on.names(count)]
    return list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics)


def _cut(on: Standing, count: int) -> TopLevel:
    part = records.DeleteRecordsPartition(partition_index=0, offset=-1)
    topics = [records.DeleteRecordsTopic(name=name, partitions=[part]) for name in on.names(count)]
    return records.DeleteRecordsRequest(topics=topics, timeout_ms=_TIMEOUT_MS)


def _epochs(on: Standing, count: int) -> TopLevel:
    part = epochs.OffsetForLeaderPartition(partition=0)
    topics = [epochs.OffsetForLeaderTopic(topic=name, partitions=[part]) for name in on.names(count)]
    return epochs.OffsetForLeaderEpochRequest(topics=topics)


CASES: Final[dict[str, Case]] = {
    "CreateTopics": Case(_create),
    "CreateTopics with partitions": Case(_create_wide),
    "DeleteTopics": Case(_delete),
    "CreatePartitions": Case(_widen),
    "AlterConfigs": Case(_legacy_configs),
    "IncrementalAlterConfigs": Case(_configs),
    "DescribeConfigs": Case(
        lambda on, count: configs.DescribeConfigsRequest(
            resources=[
                configs.DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None)
                for name in on.names(count)
            ]
        )
    ),
    "AlterPartitionReassignments": Case(_reassign),
    "ListPartitionReassignments": Case(
        lambda on, count: listed.ListPartitionReassignmentsRequest(
            topics=[
                listed.ListPartitionReassignmentsTopics(name=name, partition_indexes=[0]) for name in on.names(count)
            ]
        )
    ),
    "ElectLeaders": Case(
        lambda on, count: elect.ElectLeadersRequest(
            topic_partitions=[elect.TopicPartitions(topic=name, partitions=[0]) for name in on.names(count)]
        )
    ),
    "AlterPartition": Case(_isr, to_controller=True),
    "AssignReplicasToDirs": Case(_directories, to_controller=True),
    "AlterReplicaLogDirs": Case(
        lambda on, count: move.AlterReplicaLogDirsRequest(
            dirs=[
                move.AlterReplicaLogDir(
                    path="/data",
                    topics=[move.AlterReplicaLogDirTopic(name=name, partitions=[0]) for name in on.names(count)],
                )
            ]
        )
    ),
    "DescribeLogDirs": Case(
        lambda on, count: dirs.DescribeLogDirsRequest(
            topics=[dirs.DescribableLogDirTopic(topic=name, partitions=[0]) for name in on.names(count)]
        )
    ),
    "Metadata by names": Case(
        lambda on, count: metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=name) for name in on.names(count)]
        )
    ),
    "Metadata by ids": Case(
        lambda on, count: metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(topic_id=topic.id, name=None) for topic in on.topics(count)]
        )
    ),
    "DescribeTopicPartitions": Case(
        lambda on, count: described.DescribeTopicPartitionsRequest(
            topics=[described.TopicRequest(name=name) for name in on.names(count)]
        )
    ),
    "DescribeProducers": Case(
        lambda on, count: producers.DescribeProducersRequest(
            topics=[producers.TopicRequest(name=name, partition_indexes=[0]) for name in on.names(count)]
        )
    ),
    "CreateAcls": Case(
        lambda on, count: create_acls.CreateAclsRequest(creations=[_acl(name) for name in on.fresh(count)])
    ),
    "DeleteAcls": Case(_forget_acls),
    "AlterUserScramCredentials": Case(_users),
    "OffsetCommit": Case(_commit),
    "OffsetCommit of a member": Case(_commit_as_member),
    "OffsetFetch": Case(_committed),
    "OffsetDelete": Case(_forget),
    "JoinGroup": Case(lambda on, count: on.joined(on.fresh(1)[0], count)),
    "SyncGroup": Case(_sync),
    "LeaveGroup": Case(_leave, few=MEMBERS),
    "DescribeGroups": Case(_describe_groups),
    "DeleteGroups": Case(_delete_groups),
    "ConsumerGroupHeartbeat": Case(_subscribe),
    "FindCoordinator": Case(lambda on, count: FindCoordinatorRequest(key_type=0, coordinator_keys=on.fresh(count))),
    "AddPartitionsToTxn": Case(_add_many, version=3),
    "EndTxn": Case(_end_many, version=4),
    "TxnOffsetCommit": Case(_commit_in_transaction, version=3),
    "Produce": Case(_produce),
    "Fetch": Case(_fetch),
    "ListOffsets": Case(_offsets),
    "OffsetForLeaderEpoch": Case(_epochs),
    "DeleteRecords": Case(_cut),
}
