"""kafka-console-consumer against a broker in this process."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pykbroker.testing import Broker
from pykbroker.tools.kafka import console_consumer


def read(bootstrap: str, count: int, group: str) -> int:
    words = ["--bootstrap-server", bootstrap, "--topic", "orders", "--group", group, "--from-beginning"]
    return console_consumer.run([*words, "--max-messages", str(count), "--timeout-ms", "60000"])


@pytest.mark.slow
def test_a_poll_that_ends_while_the_group_is_joined(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """kafka-python 3.0.12 loses a join that a change of the topic's metadata caused, if a poll ends before the join
    does. Then there is never a heartbeat or a partition. Short polls nearly always end like this."""
    with Broker() as broker:
        bootstrap = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result(60)
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(9):
            producer.produce("orders", str(number), partition=number % 3)
        assert producer.flush(60) == 0
        monkeypatch.setattr(console_consumer, "_POLL_MS", 3)
        for number in range(4):
            assert read(bootstrap, 9, f"group-{number}") == 0
            assert sorted(capfd.readouterr().out.split()) == [str(value) for value in range(9)]
