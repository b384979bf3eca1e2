"""A broker that is made to be killed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from compat_tests.conftest import FreshBroker
from compat_tests.node import Node, Pykbroker
from compat_tests.oracle.kafka import ApacheKafka, free_ports


@pytest.fixture
def killable(against: str) -> Iterator[FreshBroker]:
    """`killable({"key": "value"})`: a node of its own, on a port that it keeps."""
    made: list[Node] = []

    def make(config: Mapping[str, str] | None = None, *, port: int | None = None) -> Node:
        port = port if port is not None else free_ports(1)[0]
        # Apache Kafka 4.3.1 with eligible leader replicas and one replica: after some SIGKILLs its partitions stay
        # without a leader, for good. What is tested here does not need them.
        without = ["--feature", "eligible.leader.replicas.version=0"]
        node: Node = (
            ApacheKafka(config, port=port, format_args=without)
            if against == "apache-kafka"
            else Pykbroker(config, port=port)
        )
        made.append(node)
        return node.start()

    yield make
    for node in made:
        node.close()
