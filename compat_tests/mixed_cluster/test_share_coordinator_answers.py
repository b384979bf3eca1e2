"""One leader's and one group coordinator's requests to the share coordinator: both implementations answer the same.

Each asks a node of its own, with share.version 0 and 1. The answers do not depend on the level. They are those of
Apache Kafka 4.4, which refuses negative epochs and never moves a start offset back by a write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.mixed_cluster.conftest import NewCluster
from compat_tests.mixed_cluster.members import Kind, Member
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import delete_share_group_state as deleting
from pykbroker_wire.messages import initialize_share_group_state as beginning
from pykbroker_wire.messages import read_share_group_state as reading
from pykbroker_wire.messages import read_share_group_state_summary as summing
from pykbroker_wire.messages import write_share_group_state as writing
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.primitives import TopLevel, uuid_to_str
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import Wire
from testkit.oracle.kafka import NEWEST, kafka_libs

pytestmark = pytest.mark.slow

SHARE = 2
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
NOT_YET = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
Batch = tuple[int, int, int, int]
#: a start offset that is written without batches
RESOLVED = 12_345


def initialize(topic: bytes, partition: int, state_epoch: int, start: int, group: str = "g") -> TopLevel:
    data = beginning.PartitionData(partition=partition, state_epoch=state_epoch, start_offset=start)
    topics = [beginning.InitializeStateData(topic_id=topic, partitions=[data])]
    return beginning.InitializeShareGroupStateRequest(group_id=group, topics=topics)


def read(topic: bytes, partition: int, leader_epoch: int) -> TopLevel:
    data = reading.PartitionData(partition=partition, leader_epoch=leader_epoch)
    topics = [reading.ReadStateData(topic_id=topic, partitions=[data])]
    return reading.ReadShareGroupStateRequest(group_id="g", topics=topics)


def summary(topic: bytes, partition: int = 0) -> TopLevel:
    data = summing.PartitionData(partition=partition, leader_epoch=-1)
    topics = [summing.ReadStateSummaryData(topic_id=topic, partitions=[data])]
    return summing.ReadShareGroupStateSummaryRequest(group_id="g", topics=topics)


def delete(topic: bytes, partition: int = 0) -> TopLevel:
    topics = [deleting.DeleteStateData(topic_id=topic, partitions=[deleting.PartitionData(partition=partition)])]
    return deleting.DeleteShareGroupStateRequest(group_id="g", topics=topics)


def write(
    topic: bytes, partition: int, leader_epoch: int, state_epoch: int, start: int, complete: int, *batches: Batch
) -> TopLevel:
    data = writing.PartitionData(
        partition=partition,
        leader_epoch=leader_epoch,
        state_epoch=state_epoch,
        start_offset=start,
        delivery_complete_count=complete,
        state_batches=[
            writing.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in batches
        ],
    )
    topics = [writing.WriteStateData(topic_id=topic, partitions=[data])]
    return writing.WriteShareGroupStateRequest(group_id="g", topics=topics)


def questions(topic: bytes) -> Iterator[tuple[TopLevel, int | None]]:
    """Yield requests in their order, with a version if it is not the newest."""
    # A share partition that does not exist, a partition that cannot exist, and one that the topic does not have.
    yield summary(topic), None
    for partition in (0, -1, 9):
        yield read(topic, partition, 0), None
        yield write(topic, partition, 0, 0, 0, 0), None
        yield delete(topic, partition), None
        yield summary(topic, partition), None
    for partition in (-1, 9):
        yield initialize(topic, partition, 1, -1), None
    yield initialize(topic, 0, 1, -1, group=""), None

    yield initialize(topic, 0, 2, -1), None
    yield summary(topic), None
    yield read(topic, 0, 0), None
    # The start that a leader has resolved by share.auto.offset.reset.
    yield write(topic, 0, 0, 2, RESOLVED, 0), None
    yield summary(topic), None
    yield read(topic, 0, 0), None
    # A write with a lower start moves nothing back, and one with the same start never lowers the count.
    yield write(topic, 0, 0, 2, 0, 4, (0, 9, 0, 1), (4, 5, 2, 1)), None
    yield summary(topic), None
    yield write(topic, 0, 7, 2, RESOLVED + 3, 5, (RESOLVED, RESOLVED + 12, 4, 2)), None
    yield write(topic, 0, 7, 2, RESOLVED + 3, 2, (RESOLVED + 20, RESOLVED + 21, 0, 1)), None
    yield read(topic, 0, -1), None
    yield read(topic, 0, 0), None
    yield summary(topic), None

    # epochs
    yield read(topic, 0, 4), None
    yield read(topic, 0, 3), None
    yield write(topic, 0, 3, 2, -1, 0), None
    yield write(topic, 0, 4, 1, -1, 0), None
    yield write(topic, 0, -2, 2, -1, 6), None
    yield write(topic, 0, -1, -1, -1, 7), None
    yield summary(topic), None
    yield write(topic, 0, 4, 2, -1, 9), 0
    yield summary(topic), None

    # The state begins anew, and the epochs stay. A start offset may go back.
    yield initialize(topic, 0, 1, 0), None
    yield initialize(topic, 0, 5, 7), None
    yield summary(topic), None
    yield read(topic, 0, -1), None
    yield read(topic, 0, 3), None
    yield write(topic, 0, 4, 5, 1, 0), None
    yield summary(topic), None
    yield delete(topic), None
    yield summary(topic), None


def answers(cluster_of: NewCluster, kind: Kind, level: int) -> list[Any]:
    feature = ("--feature", f"share.version={level}")
    cluster = cluster_of({1: Member(kind)}, *feature, quorum="static", settings=SETTINGS, kafka=NEWEST)
    with cluster:
        cluster.start_all()
        cluster.serving(1)
        cluster.create("t", (1,))
        with Wire(cluster.address(1)) as wire:
            topic = wire.metadata("t").topics[0].topic_id
            text = uuid_to_str(topic)

            def find(key: str) -> int:
                request = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key])
                code: int = wire.call(request).coordinators[0].error_code
                return code

            found: list[Any] = [find(f"g:{text}:0")]
            eventually("the share coordinator is there", lambda: find(f"g:{text}:0") == 0)
            for key in ("g", "g:x:0", f"g:{text}:-1", f"g:{text}==:+3:", f" :{text}:0", f"a:b:{text}:0"):
                found.append(find(key))
            for request, version in questions(topic):

                def ask(asked: TopLevel = request, at: int | None = version) -> list[Any] | None:
                    results = wire.call(asked, at).results
                    parts = [part for result in results for part in result.partitions]
                    return None if any(part.error_code in NOT_YET for part in parts) else [results]

                (results,) = eventually("the share coordinator answers", ask)
                found.append([plain(part) for result in results for part in result.partitions])
        assert not cluster.complaints()
    return found


def plain(part: Any) -> dict[str, Any]:
    """Return the fields of a result. Both have their own text for a code, and one text for a rule."""
    fields = {name: getattr(part, name) for name in type(part).__slots__ if name != "state_batches"}
    if part.error_code != ErrorCode.INVALID_REQUEST:
        fields["error_message"] = part.error_message is not None
    fields["batches"] = [
        (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in getattr(part, "state_batches", ())
    ]
    return fields


def test_the_same_answers_with_and_without_the_feature(new_cluster: NewCluster) -> None:
    kafka_libs(NEWEST)
    expected = answers(new_cluster, "kafka", 0)
    assert len(expected) > 40
    stored = [part for results in expected if isinstance(results, list) for part in results]
    assert [part["batches"] for part in stored if part.get("start_offset") == RESOLVED][:2] == [[], []]
    for level in (0, 1):
        assert answers(new_cluster, "pykbroker", level) == expected
