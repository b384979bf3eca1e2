"""A broker that is made to be killed."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator, Mapping

import pytest

from compat_tests.conftest import FreshBroker
from compat_tests.node import Node, Pykbroker
from compat_tests.oracle.kafka import ApacheKafka

# Below what Linux gives to connections that ask for any port: nobody else is there when the broker comes back.
PORTS = range(20_000, 30_000, 2)


def steady_port() -> int:
    """A free port whose next one, where pykbroker's controller listens, is free as well."""

    def free(port: int) -> bool:
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                return False
            return True

    return next(port for port in random.sample(PORTS, len(PORTS)) if free(port) and free(port + 1))


@pytest.fixture
def killable(against: str) -> Iterator[FreshBroker]:
    """`killable({"key": "value"})`: a node of its own, on a port that it keeps."""
    made: list[Node] = []

    def make(config: Mapping[str, str] | None = None, *, port: int | None = None) -> Node:
        port = port if port is not None else steady_port()
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
