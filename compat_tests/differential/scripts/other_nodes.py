"""Three nodes: coordinators on another node, configurations of another node, and the cluster after node 3 is stopped
(`ONE_STOPPED`)."""

from __future__ import annotations

from compat_tests.differential.scripts import replicas, requests
from compat_tests.differential.scripts.asking import (
    NOBODYS_ID,
    Producer,
    add_offsets,
    add_partitions,
    commit_offsets,
    end,
    init,
)
from compat_tests.differential.scripts.consumers import join as join_modern
from compat_tests.differential.session import Session
from pykbroker_wire.messages import alter_configs
from pykbroker_wire.messages.alter_configs import AlterConfigsRequest
from pykbroker_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykbroker_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.delete_groups import DeleteGroupsRequest
from pykbroker_wire.messages.describe_cluster import DescribeClusterRequest
from pykbroker_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker_wire.messages.describe_groups import DescribeGroupsRequest
from pykbroker_wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from pykbroker_wire.messages.describe_transactions import DescribeTransactionsRequest
from pykbroker_wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.heartbeat import HeartbeatRequest
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from pykbroker_wire.messages.unregister_broker import UnregisterBrokerRequest

GROUP, TRANSACTION = 0, 1
TOPIC, BROKER, LOGGER = 2, 4, 8
LIVING = ("node 1", "node 2")


def _coordinator(s: Session, kind: int, key: str) -> str:
    """Return the link to the node that coordinates the key."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    s.until(lambda: s.ask(request).coordinators[0].error_code == 0, f"{key} has a coordinator")
    return f"node {s.ask(request).coordinators[0].node_id}"


def find_coordinators(s: Session) -> None:
    """FindCoordinator at each node, for keys of coordinators on either node."""
    for kind in (GROUP, TRANSACTION):
        for number in range(4):
            key = s.name(f"key-{number}")
            _coordinator(s, kind, key)
            for node in replicas.NODES:
                s.each(
                    f"{node}: {kind} {number}",
                    lambda v, kind=kind, key=key: FindCoordinatorRequest(  # type: ignore[misc]
                        key=key if v < 4 else "", key_type=kind, coordinator_keys=[key] if v >= 4 else []
                    ),
                    range(1, 7),
                    link=node,
                )


def groups_of_another(s: Session) -> None:
    """Every request of a group at the node that does not coordinate it, and at the one that follows its partition."""
    topic = replicas.make(s, "t", [1, 2, 3])
    ids = {topic: s.topic_id(topic)}
    group = s.name("g")
    home = _coordinator(s, GROUP, group)
    deleted = OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    for node in (each for each in replicas.NODES if each != home):
        s.each(f"{node}: join", lambda v: requests.join(group, version=v), link=node)
        s.each(f"{node}: sync", lambda v: requests.sync(group, 1, "m"), link=node)
        s.each(
            f"{node}: heartbeat",
            lambda v: HeartbeatRequest(group_id=group, generation_id=1, member_id="m"),
            link=node,
        )
        s.each(
            f"{node}: leave",
            lambda v: (
                LeaveGroupRequest(group_id=group, member_id="m")
                if v < 3
                else LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="m")])
            ),
            link=node,
        )
        s.each(
            f"{node}: commit",
            lambda v: requests.commit(group, (topic, [(0, 1, None)]), ids=ids, generation_id_or_member_epoch=-1),
            link=node,
        )
        s.each(f"{node}: fetch", lambda v: requests.fetch(group, (topic, [0]), version=v, ids=ids), link=node)
        s.each(
            f"{node}: fetch everything",
            lambda v: requests.fetch(group, version=v, everything=True) if v >= 2 else None,
            link=node,
        )
        s.each(f"{node}: describe", lambda v: DescribeGroupsRequest(groups=[group]), link=node)
        s.each(f"{node}: delete", lambda v: DeleteGroupsRequest(groups_names=[group]), link=node)
        s.each(f"{node}: offset delete", lambda v: OffsetDeleteRequest(group_id=group, topics=[deleted]), link=node)
        s.each(f"{node}: a consumer", lambda v: join_modern(group, "m" * 22, [topic]), link=node)
        s.each(f"{node}: describe a consumer", lambda v: ConsumerGroupDescribeRequest(group_ids=[group]), link=node)


def transactions_of_another(s: Session) -> None:
    """Every request of a transaction at the node that does not coordinate it."""
    topic = replicas.make(s, "t", [1, 2, 3])
    p = Producer(s.name("t"), NOBODYS_ID, 0)
    home = _coordinator(s, TRANSACTION, p.name)
    for node in (each for each in replicas.NODES if each != home):
        s.each(f"{node}: init", lambda v: init(p.name), link=node)
        s.each(f"{node}: partitions", lambda v: add_partitions(p, (topic, [0])), range(4), link=node)
        s.each(f"{node}: offsets", lambda v: add_offsets(p, s.name("g")), link=node)
        s.each(f"{node}: end", lambda v: end(p), link=node)
        s.each(f"{node}: describe", lambda v: DescribeTransactionsRequest(transactional_ids=[p.name]), link=node)
    group = s.name("g")
    for node in (each for each in replicas.NODES if each != _coordinator(s, GROUP, group)):
        s.each(
            f"{node}: commit offsets",
            lambda v: commit_offsets(p, group, (topic, [(0, 1)]), ids={topic: s.topic_id(topic)}),
            link=node,
        )


def configs_of_another(s: Session) -> None:
    """DescribeConfigs of brokers and their loggers, at each node: only the broker itself answers."""
    for node in replicas.NODES:
        for kind in (BROKER, LOGGER):
            for name in ("", "1", "2", "9"):
                # Each implementation has its own loggers.
                resource = DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=["log.cleaner.threads"]
                )
                s.call(f"{node}: {kind} {name}", DescribeConfigsRequest(resources=[resource]), link=node)


def alter_configs_of_another(s: Session) -> None:
    """IncrementalAlterConfigs and AlterConfigs of brokers and their loggers, at each node: what is refused, and that
    the rest of the request is carried out."""
    topic = replicas.make(s, "t", [1, 2, 3])
    for node in replicas.NODES:
        for kind, name in ((BROKER, ""), (BROKER, "1"), (BROKER, "2"), (BROKER, "9"), (BROKER, "x"), (LOGGER, "2")):
            incremental = AlterableConfig(name="log.cleaner.threads", value="1")
            at_once = [
                AlterConfigsResource(resource_type=kind, resource_name=name, configs=[incremental]),
                AlterConfigsResource(
                    resource_type=TOPIC,
                    resource_name=topic,
                    configs=[AlterableConfig(name="retention.ms", value="9000000")],
                ),
            ]
            for resources in (at_once, at_once[:1]):
                request = IncrementalAlterConfigsRequest(resources=resources, validate_only=True)
                s.each(f"{node}: {kind} {name}", lambda v, request=request: request, link=node)  # type: ignore[misc]
            old = alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[alter_configs.AlterableConfig(name="log.cleaner.threads", value="1")],
            )
            replaced = AlterConfigsRequest(resources=[old], validate_only=True)
            s.each(f"{node}: {kind} {name} replaced", lambda v, request=replaced: request, link=node)  # type: ignore[misc]


def one_stopped(s: Session) -> None:
    """Node 3 is stopped: topics that had or get replicas on it, below min.insync.replicas, and without a leader."""
    two = replicas.make(s, "two", [1, 3], [3, 2], nodes=LIVING, min_insync_replicas="2")
    three = replicas.make(s, "three", [3, 1, 2], nodes=LIVING, min_insync_replicas="2")
    asked = [MetadataRequestTopic(name=name) for name in (two, three)]
    described = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in sorted((two, three))])
    for node in LIVING:
        s.each(f"{node}: metadata", lambda v: MetadataRequest(topics=list(asked)), link=node)
        replicas.any_controller(s)
        s.call(f"{node}: partitions", described, link=node)
        s.each(f"{node}: produce", lambda v: replicas.produce(s, two, [0, 1]), link=node)
        s.call(f"{node}: produce for the leader", replicas.produce(s, two, [0, 1], acks=1), link=node)
        s.call(f"{node}: produce to two of three", replicas.produce(s, three, [0]), link=node)
        s.each(f"{node}: fetch", lambda v: replicas.fetch(s, two, [0, 1]), (4, 10, 11, 12, 13, 18), link=node)
        s.each(f"{node}: offsets", lambda v: replicas.offsets(two, [0, 1]), link=node)
        s.each(f"{node}: cluster", lambda v: DescribeClusterRequest(include_fenced_brokers=v >= 2), link=node)
        replicas.any_controller(s)
    for kind in (0, 1):
        for name in (two, three):
            elected = [TopicPartitions(topic=name, partitions=[0, 1])]
            request = ElectLeadersRequest(election_type=kind, topic_partitions=elected, timeout_ms=10_000)
            s.each(f"elect {kind}", lambda v, request=request: request, range(1, 3), link="node 2")  # type: ignore[misc]

    def move(index: int, broker_ids: list[int] | None) -> AlterPartitionReassignmentsRequest:
        partition = ReassignablePartition(partition_index=index, replicas=broker_ids)
        return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=two, partitions=[partition])])

    s.call("move to it", move(0, [3]), link="node 2")
    s.call("call it back", move(0, None), link="node 2")
    s.call("afterwards", DescribeTopicPartitionsRequest(topics=[TopicRequest(name=two)]), link="node 1")
    every = CreatableTopic(name=s.name("every"), num_partitions=1, replication_factor=3)
    s.call("a factor of 3", CreateTopicsRequest(topics=[every], timeout_ms=10_000, validate_only=True), link="node 2")
    only = CreateTopicsRequest(topics=[replicas.assigned(s.name("only"), [[3]])], timeout_ms=10_000)
    s.call("on it alone", only, link="node 1")
    s.call("unregister a broker that is not there", UnregisterBrokerRequest(broker_id=9), link="node 2")


SCRIPTS = (
    find_coordinators,
    groups_of_another,
    transactions_of_another,
    configs_of_another,
    alter_configs_of_another,
)
ONE_STOPPED = (one_stopped,)
