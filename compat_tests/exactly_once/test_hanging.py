"""The test aborts a transaction that hangs after a SIGKILL for Apache Kafka, and not for pykbroker."""

from __future__ import annotations

import pytest

from compat_tests.conftest import FreshBroker
from compat_tests.differential.scripts import asking
from compat_tests.differential.session import Session
from compat_tests.exactly_once import reading
from compat_tests.exactly_once.hanging import wait_with_mending
from compat_tests.python.confluent_client import ConfluentClient
from testkit import needs
from testkit.clients import NOW_MS, Record


def test_only_apache_kafka_is_helped_when_a_transaction_hangs(fresh_broker: FreshBroker, against: str) -> None:
    """Without verification a batch may begin a transaction that its coordinator does not have. If pykbroker waits for
    it, the test fails; Apache Kafka continues, and readers see nothing of the transaction."""
    needs.java()
    node = fresh_broker({"transaction.partition.verification.enable": "false"})
    session = Session("hanging", node.bootstrap, {})
    try:
        topic, _ = asking.hanging(session, b"lost")
    finally:
        session.close()
    ConfluentClient().produce(node.bootstrap, topic, [Record(None, b"behind", (), NOW_MS, 0)])

    def is_seen() -> bool:
        return reading.values(node.bootstrap, topic) == {0: [b"behind"]}

    if against == "apache-kafka":
        wait_with_mending(node, is_seen, "what is behind it can be read", timeout_s=3)
        return
    with pytest.raises(AssertionError, match="what is behind it can be read"):
        wait_with_mending(node, is_seen, "what is behind it can be read", timeout_s=0)
