"""Three live nodes: the answers of each for replicas that it leads, follows, or does not have.

A link is named after its node. Partition 0 of the topics here is led by node 1, partition 1 by node 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compat_tests.differential.session import NOW_MS, NodeError, Session
from pykbroker_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykbroker_wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from pykbroker_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pykbroker_wire.messages.describe_cluster import DescribeClusterRequest
from pykbroker_wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from pykbroker_wire.messages.describe_producers import DescribeProducersRequest
from pykbroker_wire.messages.describe_producers import TopicRequest as ProducersOf
from pykbroker_wire.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from pykbroker_wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from pykbroker_wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker_wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.records.batch import build_batch

NODES = ("node 1", "node 2", "node 3")
METADATA = "__cluster_metadata"


def make(s: Session, what: str, *replicas: Sequence[int], nodes: Sequence[str] = NODES, **configs: str) -> str:
    """Make a topic whose live replicas are in sync in the metadata of every live node."""
    name = s.name(what)
    topic = assigned(name, replicas, **configs)
    done = s.ask(CreateTopicsRequest(topics=[topic], timeout_ms=20_000)).topics[0]
    if done.error_code:
        raise NodeError(f"topic {name} was not made: {done.error_code} {done.error_message}")
    alive = {int(node[-1]) for node in nodes}
    asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])

    def known() -> bool:
        for node in nodes:
            found = s.ask(asked, on=node).topics[0]
            if found.error_code or len(found.partitions) != len(replicas):
                return False
            if any(set(each.isr_nodes) != set(each.replica_nodes) & alive for each in found.partitions):
                return False
        return True

    s.until(known, f"{name} is replicated")
    return name


def assigned(name: str, replicas: Sequence[Sequence[int]], **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=i, broker_ids=list(each)) for i, each in enumerate(replicas)
        ],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def write(s: Session, topic: str, values: Sequence[bytes], partition: int, leader: str) -> None:
    """Write records, one per batch, and wait until every replica in sync has them."""
    for number, value in enumerate(values):
        answer = s.ask(produce(s, topic, [partition], batch=batch(number, value)), on=leader)
        if answer.responses[0].partition_responses[0].error_code:
            raise NodeError(f"{topic}-{partition}: not written: {answer}")


def batch(number: int = 0, value: bytes = b"value") -> bytes:
    return build_batch([(b"k", value, (), NOW_MS + number * 1000)])


def any_controller(s: Session) -> None:
    """Each broker names a random broker as the controller to clients, so only the presence of one is compared."""
    for step in s.steps:
        answer = step.answered
        if step.api in ("Metadata", "DescribeCluster") and isinstance(answer, dict) and answer.get("brokers"):
            ids = [broker.get("node_id", broker.get("broker_id")) for broker in answer["brokers"]]
            if answer.get("controller_id") in ids:
                answer["controller_id"] = "one of the brokers"


def produce(
    s: Session, topic: str, partitions: Sequence[int], *, acks: int = -1, batch: bytes | None = None
) -> ProduceRequest:
    records = batch if batch is not None else build_batch([(b"k", b"v", (), NOW_MS)])
    data = [PartitionProduceData(index=index, records=records) for index in partitions]
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, topic_id=s.topic_id(topic), partition_data=data)],
    )


def fetch(s: Session, topic: str, partitions: Sequence[int], *, rack: str = "", **fields: int) -> FetchRequest:
    given: dict[str, Any] = {"partition_max_bytes": 100_000, "current_leader_epoch": -1, **fields}
    asked = [FetchPartition(partition=index, **given) for index in partitions]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1_000_000,
        rack_id=rack,
        topics=[FetchTopic(topic=topic, topic_id=s.topic_id(topic), partitions=asked)],
    )


def offsets(topic: str, partitions: Sequence[int], *, replica_id: int = -1, **fields: int) -> ListOffsetsRequest:
    asked = [
        ListOffsetsPartition(partition_index=index, **{"timestamp": -1, "current_leader_epoch": -1, **fields})
        for index in partitions
    ]
    return ListOffsetsRequest(replica_id=replica_id, topics=[ListOffsetsTopic(name=topic, partitions=asked)])


def produce_anywhere(s: Session) -> None:
    """Produce to the leader, to a follower, and to a broker without a replica: versions, hints of the leader."""
    topic = make(s, "t", [1, 2], [2, 3])
    for node in NODES:
        s.each(f"{node}: both partitions", lambda v: produce(s, topic, [0, 1]), link=node)
        for acks in (0, 1, 2):
            request = produce(s, topic, [0, 1, 7], acks=acks)
            if acks:
                s.call(f"{node}: acks {acks}", request, link=node)


def fetch_anywhere(s: Session) -> None:
    """Fetch as a consumer from the leader, a follower, and a broker without a replica: versions, racks, epochs."""
    topic = make(s, "t", [1, 2], [2, 3])
    write(s, topic, [b"a" * 100, b"b" * 200], 0, "node 1")
    write(s, topic, [b"c" * 100], 1, "node 2")
    for node, index, end in (("node 2", 0, 2), ("node 3", 1, 1)):
        # The follower gets the high watermark with its next fetch.
        s.until(
            lambda node=node, index=index, end=end: (  # type: ignore[misc]
                s.ask(fetch(s, topic, [index]), on=node).responses[0].partitions[0].high_watermark == end
            ),
            f"{node} has followed",
        )
    for node in NODES:
        s.each(f"{node}: both partitions", lambda v: fetch(s, topic, [0, 1]), link=node)
        s.each(f"{node}: a rack", lambda v: fetch(s, topic, [0, 1], rack="r"), range(11, 19), link=node)
        for epoch in (0, 1, 5):
            s.each(
                f"{node}: leader epoch {epoch}",
                lambda v, epoch=epoch: fetch(s, topic, [0, 1], current_leader_epoch=epoch),  # type: ignore[misc]
                (9, 11, 13, 17, 18),
                link=node,
            )
        for offset in (1, 2, 3, -1):
            s.each(
                f"{node}: from {offset}",
                lambda v, offset=offset: fetch(s, topic, [0, 1], fetch_offset=offset),  # type: ignore[misc]
                (10, 12, 18),
                link=node,
            )


def offsets_anywhere(s: Session) -> None:
    """ListOffsets and OffsetForLeaderEpoch at the leader, a follower, and a broker without a replica."""
    topic = make(s, "t", [1, 2], [2, 3])
    write(s, topic, [b"a", b"b", b"c"], 0, "node 1")
    s.until(
        lambda: s.ask(fetch(s, topic, [0]), on="node 2").responses[0].partitions[0].high_watermark == 3,
        "node 2 has followed",
    )

    def epochs(current: int, epoch: int, replica: int) -> OffsetForLeaderEpochRequest:
        asked = [
            OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
            for index in (0, 1, 7)
        ]
        return OffsetForLeaderEpochRequest(
            replica_id=replica, topics=[OffsetForLeaderTopic(topic=topic, partitions=asked)]
        )

    for node in NODES:
        for timestamp in (-1, -2, -3, -4, -5, 0, NOW_MS + 1000):
            s.each(
                f"{node}: timestamp {timestamp}",
                lambda v, at=timestamp: offsets(topic, [0, 1, 7], timestamp=at),  # type: ignore[misc]
                link=node,
            )
        for replica in (-2, 2, 9):
            s.call(f"{node}: as replica {replica}", offsets(topic, [0, 1], replica_id=replica), link=node)
        for epoch in (0, 1):
            s.call(f"{node}: epoch {epoch}", offsets(topic, [0, 1], current_leader_epoch=epoch), link=node)
        for current, epoch, replica in ((-1, 0, -1), (0, 0, -1), (1, 0, -1), (-1, 5, -1), (-1, 0, -2), (0, 0, 2)):
            s.each(
                f"{node}: epoch {epoch} in {current} as {replica}",
                lambda v, c=current, e=epoch, r=replica: epochs(c, e, r),  # type: ignore[misc]
                link=node,
            )


def records_anywhere(s: Session) -> None:
    """DeleteRecords and DescribeProducers at the leader, a follower, and a broker without a replica."""
    topic = make(s, "t", [1, 2])
    write(s, topic, [b"a", b"b", b"c"], 0, "node 1")
    asked = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
    for node in reversed(NODES):
        s.each(f"{node}: delete", lambda v: DeleteRecordsRequest(topics=[asked], timeout_ms=10_000), link=node)
        s.call(
            f"{node}: producers",
            DescribeProducersRequest(topics=[ProducersOf(name=topic, partition_indexes=[0, 3])]),
            link=node,
        )


def metadata_of_replicas(s: Session) -> None:
    """Metadata, DescribeTopicPartitions, DescribeCluster and DescribeLogDirs of the same things, from each node."""
    topic = make(s, "t", [1, 2], [2, 3], [3, 1])
    for index in range(3):
        write(s, topic, [b"a" * 50], index, NODES[index])
    listed = [DescribableLogDirTopic(topic=topic, partitions=[0, 1, 2])]

    def size(node: str) -> int:
        """Return the size of the smallest replica."""
        found = s.ask(DescribeLogDirsRequest(topics=listed), on=node).results[0].topics[0].partitions
        return min(int(partition.partition_size) for partition in found)

    for node in NODES:
        s.each(
            f"{node}: metadata",
            lambda v: MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False),
            link=node,
        )
        any_controller(s)
        s.call(f"{node}: partitions", DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)]), link=node)
        s.each(f"{node}: cluster", lambda v: DescribeClusterRequest(), link=node)
        any_controller(s)
        s.each(f"{node}: controllers", lambda v: DescribeClusterRequest(endpoint_type=2), link=node)
        s.until(lambda node=node: size(node) > 0, f"{node} has the record")  # type: ignore[misc]
        s.each(f"{node}: directories", lambda v: DescribeLogDirsRequest(topics=listed), link=node)


def quorum_of_three(s: Session) -> None:
    """DescribeQuorum at each node: brokers pass it on to the active controller."""

    def ask(topic: str, index: int) -> DescribeQuorumRequest:
        asked = RequestTopicData(topic_name=topic, partitions=[RequestPartitionData(partition_index=index)])
        return DescribeQuorumRequest(topics=[asked])

    for node in NODES:
        s.each(f"{node}: the quorum", lambda v: ask(METADATA, 0), link=node)
        s.each(f"{node}: another partition", lambda v: ask(METADATA, 1), link=node)
        s.each(f"{node}: another topic", lambda v: ask("t", 0), link=node)


def elections(s: Session) -> None:
    """ElectLeaders: where the preferred replica leads, where it does not, and what is not there."""
    topic = make(s, "t", [1, 2], [2, 3])
    moved = ReassignableTopic(name=topic, partitions=[ReassignablePartition(partition_index=1, replicas=[3, 2])])
    s.call("another order", AlterPartitionReassignmentsRequest(topics=[moved]), link="node 2")

    def ask(kind: int, *partitions: int, name: str = topic) -> ElectLeadersRequest:
        asked = [TopicPartitions(topic=name, partitions=list(partitions))]
        return ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=10_000)

    asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)])
    for node in NODES:
        s.until(
            lambda node=node: s.ask(asked, on=node).topics[0].partitions[1].replica_nodes == [3, 2],  # type: ignore[misc]
            "the order is another",
        )
    for kind in (1, 0):
        s.each(f"kind {kind}: none to elect", lambda v, kind=kind: ask(kind, 0))  # type: ignore[misc]
        s.each(f"kind {kind}: unknown", lambda v, kind=kind: ask(kind, 7, name="no-such"))  # type: ignore[misc]
        s.call(f"kind {kind}: unknown partition", ask(kind, 7, 0), link="node 3")
    s.call("the preferred one", ask(0, 0, 1, 9), link="node 3")
    s.until(lambda: s.ask(asked, on="node 2").topics[0].partitions[1].leader_id == 3, "node 3 leads")
    s.call("afterwards", asked, link="node 2")
    s.each("again", lambda v: ask(0, 0, 1), link="node 2")


def reassignments(s: Session) -> None:
    """AlterPartitionReassignments and ListPartitionReassignments: refused, none to do, done, factor changed or not."""
    topic = make(s, "t", [1, 2], [2, 3])

    def ask(
        index: int, replicas: list[int] | None, name: str = topic, **fields: bool
    ) -> AlterPartitionReassignmentsRequest:
        partition = ReassignablePartition(partition_index=index, replicas=replicas)
        return AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=name, partitions=[partition])], timeout_ms=10_000, **fields
        )

    for label, index, replicas in (
        ("nothing to cancel", 0, None),
        ("no broker", 0, []),
        ("one twice", 0, [1, 1]),
        ("unknown broker", 0, [1, 9]),
        ("negative broker", 0, [-1]),
        ("unknown partition", 7, [1]),
        ("the same", 0, [1, 2]),
    ):
        s.each(label, lambda v, i=index, r=replicas: ask(i, r), link="node 2")  # type: ignore[misc]
    s.each("unknown topic", lambda v: ask(0, [1], "no-such"), link="node 2")
    s.call("another factor, forbidden", ask(0, [1, 2, 3], allow_replication_factor_change=False), 1)
    s.call("another factor", ask(0, [1, 2, 3]), link="node 3")
    listed = ListPartitionReassignmentsTopics(name=topic, partition_indexes=[0, 1, 7])
    asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)])
    s.until(
        lambda: all(
            set(s.ask(asked, on=node).topics[0].partitions[0].isr_nodes) == {1, 2, 3}
            and not s.ask(ListPartitionReassignmentsRequest(topics=[listed]), on=node).topics
            for node in NODES
        ),
        "it is done",
    )
    s.call("what is left", ListPartitionReassignmentsRequest(topics=[listed]), link="node 2")
    s.call("afterwards", MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), link="node 3")
    any_controller(s)


SCRIPTS = (
    produce_anywhere,
    fetch_anywhere,
    offsets_anywhere,
    records_anywhere,
    metadata_of_replicas,
    quorum_of_three,
    elections,
    reassignments,
)
