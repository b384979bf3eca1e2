"""`pykbroker reassign execute`: the throttles of a plan that the cluster refuses, or may have begun."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykbroker.__main__ import main
from pykbroker.testing import Broker
from pykbroker.tools.cluster import moving
from pykbroker.tools.cluster.asked_cluster import AskedCluster, ClusterSettings

pytestmark = pytest.mark.slow
NO_THROTTLE = {
    "follower.replication.throttled.replicas": None,
    "leader.replication.throttled.replicas": None,
}
NO_RATE = dict.fromkeys((*sorted(moving.RATES), moving.DIRECTORY_RATE))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("t", partitions=2)
        yield broker


@pytest.fixture
def plan(broker: Broker, tmp_path: Path) -> Iterator[str]:
    """A plan that moves nothing, and its rates."""
    file = tmp_path / "plan.json"
    moves = [{"topic": "t", "partition": number, "replicas": [1]} for number in range(2)]
    file.write_text(json.dumps({"version": 1, "partitions": moves}))
    yield str(file)
    broker.faults.clear()
    assert main(["reassign", "verify", str(file), "-b", broker.bootstrap_servers]) == 0


def execute(broker: Broker, plan: str, *words: str) -> int:
    return main(["reassign", "execute", plan, "--throttle", "7000000", *words, "-b", broker.bootstrap_servers])


def throttles(broker: Broker) -> list[dict[str, str | None]]:
    """Return the throttles of the topic and of the broker."""
    with AskedCluster(ClusterSettings((broker.bootstrap_servers,))) as cluster:
        return list(moving.throttles_before(cluster, ["t"], [1]).values())


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        (None, "(CLUSTER_AUTHORIZATION_FAILED)"),
        ("t", "t-0: Cluster authorization failed.; t-1: Cluster authorization failed."),
    ],
)
def test_a_plan_that_is_refused_leaves_no_throttle(
    broker: Broker, plan: str, topic: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Throttles come before the first move, as in Apache Kafka's tool."""
    broker.faults.add("AlterPartitionReassignments", topic=topic, error="CLUSTER_AUTHORIZATION_FAILED")
    assert execute(broker, plan) == 1
    assert said in capsys.readouterr().err
    assert throttles(broker) == [NO_THROTTLE, NO_RATE]


def test_a_plan_that_is_refused_leaves_the_throttles_of_before(broker: Broker, plan: str) -> None:
    assert execute(broker, plan) == 0
    before = throttles(broker)
    assert before[1]["leader.replication.throttled.rate"] == "7000000"
    assert before[0]["leader.replication.throttled.replicas"] == "0:1,1:1"
    broker.faults.add("AlterPartitionReassignments", topic="t", error="INVALID_REPLICA_ASSIGNMENT")
    assert execute(broker, plan, "--additional", "--throttle", "8000000") == 1
    assert throttles(broker) == before


def test_a_plan_that_has_begun_in_part_keeps_its_throttles(
    broker: Broker, plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.faults.add("AlterPartitionReassignments", topic="t", partition=1, error="INVALID_REPLICA_ASSIGNMENT")
    assert execute(broker, plan) == 1
    assert "; the other moves have begun: 1" in capsys.readouterr().err
    assert throttles(broker)[1]["leader.replication.throttled.rate"] == "7000000"


def test_a_request_without_an_answer_may_have_begun_the_moves(broker: Broker, plan: str) -> None:
    broker.faults.add("AlterPartitionReassignments", error="REQUEST_TIMED_OUT")
    assert execute(broker, plan) == 1
    assert throttles(broker)[1]["leader.replication.throttled.rate"] == "7000000"


def test_throttles_that_are_refused_in_part_are_put_back(broker: Broker, plan: str) -> None:
    """The topic has its throttle before the broker refuses its own."""
    fault = broker.faults.add("IncrementalAlterConfigs", error="INVALID_CONFIG", nth=2)
    assert execute(broker, plan) == 1
    assert fault.acted == 1
    assert throttles(broker) == [NO_THROTTLE, NO_RATE]
