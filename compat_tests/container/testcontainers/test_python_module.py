"""Testcontainers for Python: its stock KafkaContainer, with nothing but the name of the image changed."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from compat_tests.container.containers import PATIENCE_S
from compat_tests.container.host_clients import consume, produce

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("in_this_process")]


@pytest.mark.parametrize("kraft", [False, True], ids=["as it is", "with_kraft"])
def test_kafka_container(kraft: bool, tagged: str, used: ExitStack) -> None:
    from testcontainers.community.kafka import KafkaContainer

    kafka = KafkaContainer(tagged)
    if kraft:
        kafka.with_kraft()
    used.callback(kafka.stop)
    kafka.start(timeout=int(PATIENCE_S))
    produce(kafka.get_bootstrap_server(), "orders", ["one", "two", "three"])
    assert consume(kafka.get_bootstrap_server(), "orders", 3) == ["one", "two", "three"]
    # The module's answer to what the image logs is no second start of the node.
    stdout, _ = kafka.get_logs()
    assert stdout.count(b"Kafka Server started") == 1
