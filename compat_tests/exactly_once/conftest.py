"""A broker that is made to be killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.node import Node, Pykbroker
from compat_tests.oracle.kafka import ApacheKafka
from compat_tests.ports import steady_port

# Who was killed is missed after two seconds, in both group protocols, and a transaction whose time is over ends soon.
QUICK = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
}


@pytest.fixture
def killable(against: str) -> Iterator[Node]:
    """A running node of one's own, on a port that it keeps."""
    # Apache Kafka 4.3.1 with eligible leader replicas and one replica: after some SIGKILLs its partitions stay without
    # a leader, for good. What is tested here does not need them.
    without = ["--feature", "eligible.leader.replicas.version=0"]
    port = steady_port()
    node: Node = (
        ApacheKafka(QUICK, port=port, format_args=without) if against == "apache-kafka" else Pykbroker(QUICK, port=port)
    )
    try:
        yield node.start()
    finally:
        node.close()
