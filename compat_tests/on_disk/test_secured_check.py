"""`pykbroker migrate check` on nodes of Apache Kafka whose listeners are SASL_SSL, with ACLs and an isolated
controller: what the user of the check needs, and that no secret is printed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from compat_tests.mixed_cluster.members import Cluster, Kind, Member
from compat_tests.rolls import ways_in
from compat_tests.rolls.configurations import Configuration
from compat_tests.rolls.load import Access
from pykbroker.__main__ import main
from testkit import needs
from testkit.nodes.nodes import eventually
from testkit.oracle.kafka import KAFKA, kafka_libs

pytestmark = pytest.mark.slow

CONTROLLER, BROKER = 1, 11
CLUSTER, DESCRIBE = 4, 8


@dataclass(frozen=True, slots=True)
class OneOfEach(Configuration):
    """A controller and a broker: the fewest nodes that are isolated."""

    def members(self, kind: Kind) -> dict[int, Member]:
        return {CONTROLLER: Member(kind, "controller"), BROKER: Member(kind, "broker")}

    @property
    def settings(self) -> Mapping[str, str]:
        factors = ("default", "offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        return {f"{name}.replication.factor": "1" for name in factors}


@pytest.fixture
def reached() -> Iterator[tuple[Cluster, Access]]:
    needs.java()
    kafka_libs(KAFKA)
    configuration = OneOfEach("isolated", "dynamic", True, 1, KAFKA, "directory")
    with ways_in.make_cluster(configuration) as cluster, ways_in.reached(cluster, configuration) as (access, _):
        cluster.start_all()
        yield cluster, access


def test_nodes_of_a_secured_cluster_are_checked_by_its_brokers(
    reached: tuple[Cluster, Access], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A controller does not know partitions, groups and transactions, so the check of its node asks brokers too."""
    cluster, access = reached
    client = tmp_path / "client.properties"
    client.write_text(access.java)

    def check(number: int, level: str) -> list[str]:
        capsys.readouterr()
        words = ["-c", str(cluster.properties(number)), "-b", access.bootstrap, "--command-config", str(client)]
        status = main(["migrate", "check", *words, "-o", "json"])
        said = capsys.readouterr()
        assert "-secret" not in said.out + said.err
        rows: list[dict[str, Any]] = json.loads(said.out)
        assert status == (1 if any(row["level"] == "stop" for row in rows) else 0)
        return [row["what"] for row in rows if row["level"] == level]

    ways_in.let_alice_in(cluster)
    words = ["topics", "create", "orders", "-p", "2", "-b", access.bootstrap, "--command-config", str(client)]
    assert main(words) == 0
    eventually(
        "alice may not describe the cluster",
        lambda: any(line.startswith("The cluster gave no answer about the quorum") for line in check(BROKER, "warn")),
    )
    ways_in.let_alice(cluster, DESCRIBE, {CLUSTER: "kafka-cluster"})

    def is_answered() -> bool:
        return not any("gave no answer" in line for line in check(CONTROLLER, "warn"))

    eventually("alice may describe the cluster", is_answered)
    for number in (CONTROLLER, BROKER):
        assert check(number, "stop") == []
        found = check(number, "ok")
        assert "The node runs on the directory, and the cluster has it" in found
        assert "The cluster can do without this node for a moment" in found
    # Both partitions are on the broker.
    assert any("2 partitions only on this node: orders-0, orders-1" in line for line in check(BROKER, "warn"))
    assert not any("only on this node" in line for line in check(CONTROLLER, "warn"))
