"""Waits for a node that may have left a transaction open for good, as Apache Kafka 4.3.1 does after some SIGKILLs.

Apache Kafka is killed as hard as pykbroker is. Its own tool finds the transactions that hang after a kill, and they are
ended as its operators do it (KIP-664): `kafka-transactions find-hanging`, then `abort`. pykbroker gets no such help.
"""

from __future__ import annotations

from collections.abc import Callable

from compat_tests.kafka_tools.conftest import table
from compat_tests.node import Reached
from compat_tests.tool_server import run_shared
from testkit.clients import wait_until
from testkit.oracle.kafka import ApacheKafka

_TOOL = "org.apache.kafka.tools.TransactionsCommand"

#: topic, partition, start offset
Place = tuple[str, str, str]


def wait_with_mending(
    node: Reached, what: Callable[[], object], why: str, *, timeout_s: float, every_s: float = 0.1
) -> None:
    """Do `wait_until`. If a transaction hangs in Apache Kafka, abort it and wait for the same time again."""
    try:
        wait_until(what, why, timeout_s=timeout_s, every_s=every_s)
    except AssertionError:
        if not isinstance(node, ApacheKafka):
            raise
        ended = _end_what_hangs(node.bootstrap)
        if not ended:
            raise
        print(f"Apache Kafka had left transactions open in {ended}, which its own tool has aborted")
        wait_until(what, why, timeout_s=timeout_s, every_s=every_s)


def _end_what_hangs(bootstrap: str) -> set[Place]:
    # Twice, because a transaction that ended between two requests of the tool looks as if it hung.
    hanging = _find(bootstrap) & _find(bootstrap)
    for topic, partition, offset in hanging:
        _run(bootstrap, "abort", "--topic", topic, "--partition", partition, "--start-offset", offset)
    return hanging


def _find(bootstrap: str) -> set[Place]:
    said = _run(bootstrap, "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "-1")
    return {(row["Topic"], row["Partition"], row["StartOffset"]) for row in table(said)}


def _run(bootstrap: str, *args: str) -> str:
    return run_shared(_TOOL, ["--bootstrap-server", bootstrap, *args]).out
