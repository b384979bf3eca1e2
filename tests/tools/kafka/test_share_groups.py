"""kafka-share-groups on a cluster whose answers are scripted: errors of one partition, and of the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pykbroker.tools.cluster import share_groups
from pykbroker.tools.cluster.asked_cluster import AskedCluster, ClusterNode
from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.cluster.resettable import ShareStarts
from pykbroker.tools.cluster.share_groups import SharePosition
from pykbroker.tools.kafka import share_groups as tool
from pykbroker.tools.kafka.group_tables import coordinator_of
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from pykbroker_wire.messages.share_group_describe import DescribedGroup, ShareGroupDescribeResponse


class Scripted(AskedCluster):
    """A cluster with one share group, which has two partitions. The second one has no leader."""

    def __init__(self) -> None:
        self.tries = 0
        self.asked: list[Any] = []

    def close(self) -> None:
        pass

    def coordinators(self, keys: Iterable[str], *, of_transactions: bool = False) -> dict[str, int]:
        return dict.fromkeys(keys, 7)

    def settled(self, attempt: Callable[[], Any]) -> Any:
        self.tries += 1
        return attempt()

    def ask(self, message: Any, answer: Any, **limits: Any) -> Any:
        self.asked.append(message)
        if answer is ShareGroupDescribeResponse:
            return ShareGroupDescribeResponse(groups=[DescribedGroup(group_id="g", group_state="Empty")])
        known = DescribeShareGroupOffsetsResponsePartition(partition_index=0, start_offset=4, lag=6)
        unknown = DescribeShareGroupOffsetsResponsePartition(
            partition_index=1, error_code=ErrorCode.LEADER_NOT_AVAILABLE, error_message="none"
        )
        topic = DescribeShareGroupOffsetsResponseTopic(topic_name="t", partitions=[known, unknown])
        return DescribeShareGroupOffsetsResponse(groups=[DescribeShareGroupOffsetsResponseGroup(topics=[topic])])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    cluster = Scripted()
    monkeypatch.setattr(tool, "opened", lambda given, **more: cluster)
    return cluster


AT = ["--bootstrap-server", "localhost:9092"]


def test_a_partition_without_a_leader_hides_no_other(cluster: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    found = share_groups.positions(cluster, "g")
    assert found["t", 0] == SharePosition(4, 6, 0)
    refused = found["t", 1]
    assert isinstance(refused, AskFailed)
    assert refused.code == ErrorCode.LEADER_NOT_AVAILABLE
    assert tool.run([*AT, "--describe", "--group", "g"]) == 0
    out, err = capsys.readouterr()
    assert [line.split() for line in out.splitlines()[2:]] == [["g", "t", "0", "4", "6"]]
    assert "WARN Skipping return offset for t-1 due to error 5: none." in err.splitlines()


def test_a_reset_leaves_no_partition_out(cluster: Scripted) -> None:
    with pytest.raises(AskFailed, match="none"):
        ShareStarts(cluster, "g").known(None)


def test_only_the_partitions_of_a_reset_are_asked_for(cluster: Scripted) -> None:
    share_groups.positions(cluster, "g", [("t", 0), ("u", 3), ("t", 0)])
    (request,) = cluster.asked
    (group,) = request.groups
    assert [(topic.topic_name, topic.partitions) for topic in group.topics] == [("t", [0]), ("u", [3])]
    assert ShareStarts(cluster, "g").known([]) == {}
    assert len(cluster.asked) == 1, "there is nothing to ask for"
    assert ShareStarts(cluster, "g", is_new=True).known(None) == {}
    assert len(cluster.asked) == 1, "no share coordinator is asked about a group that does not exist"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--reset-offsets --group a --group b --all-topics --to-latest --dry-run", "Found multiple arguments for"),
        ("--delete-offsets --group a --group b --topic t", "Found multiple arguments for"),
        ("--reset-offsets --group g --all-topics --to-offset x --dry-run", "Cannot parse argument 'x' of option"),
        ("--list --timeout x", "Cannot parse argument 'x' of option"),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_arguments_that_are_read_late(words: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Apache Kafka's tool prints them like a failure of a request, and ends with 0."""
    assert tool.run([*AT, *words.split()]) == 0
    assert capsys.readouterr().out.startswith(f"\nError: Executing share group command failed due to {reason}")


def test_a_coordinator_that_has_left() -> None:
    nodes = [ClusterNode(1, "h", 9092)]
    assert [coordinator_of(nodes, number) for number in (1, 2)] == ["h:9092  (1)", "(2)"]
