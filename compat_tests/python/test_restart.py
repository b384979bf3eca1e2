"""The node stops and restarts, and stock clients notice only a pause."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Producer

from compat_tests.conftest import FreshBroker
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.topics import Topics
from testkit.clients import NOW_MS, PATIENCE_S, Record, wait_until
from testkit.ports import steady_port


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_producer_and_a_group_go_on_after_a_restart(fresh_broker: FreshBroker, how: str) -> None:
    node = fresh_broker(port=steady_port())
    client = ConfluentClient()
    topic = Topics(node.bootstrap).create(partitions=2)
    group = f"group-{topic}"
    failed: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": node.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )

    def write(start: int, count: int) -> None:
        for i in range(start, start + count):
            producer.produce(
                topic,
                b"%d" % i,
                partition=i % 2,
                timestamp=NOW_MS + i,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert producer.flush(PATIENCE_S) == 0

    write(0, 300)
    member = client.member(node.bootstrap, topic, group)
    wait_until(lambda: len(member.records()) == 300, "the group has read the first 300")
    member.leave()
    write(300, 100)

    node.stop() if how == "stop" else node.kill()
    node.start()
    write(400, 100)
    assert not failed

    stored = client.consume(node.bootstrap, topic)
    assert sorted((r.partition, r.offset, r.value) for r in stored) == sorted(
        (i % 2, i // 2, b"%d" % i) for i in range(500)
    )
    again = client.member(node.bootstrap, topic, group)
    wait_until(lambda: len(again.records()) >= 200, "the group reads what it had not read")
    assert sorted(int(r.value or b"") for r in again.records()) == list(range(300, 500))
    again.leave()


def test_topics_configs_and_groups_are_the_same_after_a_restart(fresh_broker: FreshBroker) -> None:
    node = fresh_broker()
    topics = Topics(node.bootstrap)
    topic = topics.create(partitions=3, config={"retention.ms": "1234567", "cleanup.policy": "compact"})
    gone = topics.create()
    ConfluentClient().produce(node.bootstrap, topic, [Record(b"k", b"v", (), NOW_MS, 2)])
    topics.delete(gone)
    before = topics.describe(topic)
    node.stop()
    node.start()
    after = Topics(node.bootstrap)
    wait_until(lambda: after.led(topic, 3), "the topic is led again")
    assert after.describe(topic) == before
    assert gone not in after.admin.list_topics(timeout=30).topics
