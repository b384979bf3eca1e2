"""Generated records are in Kafka as they were generated, each once, whatever happens to the broker in the meantime."""

from __future__ import annotations

from threading import Thread

import pytest

from compat_tests.conftest import FreshBroker
from example import topics
from example.generator import Workload, generate
from example.sending import Sender
from testkit.clients import wait_until
from testkit.ports import steady_port


@pytest.mark.slow
def test_every_record_is_there_once_though_the_broker_was_killed(fresh_broker: FreshBroker) -> None:
    records = generate(Workload(users=60))
    node = fresh_broker(port=steady_port())
    topics.create(node.bootstrap, partitions=3)
    sender = Sender(node.bootstrap, rate=300)
    sending = Thread(target=sender.send, args=(records,))
    sending.start()
    try:
        wait_until(lambda: len(sender.delivered) >= len(records) // 4, "a quarter is sent", timeout_s=60)
        node.kill()
        assert len(sender.delivered) < len(records), "killed on its way"
        node.start()
    finally:
        sender.rate = 0
        sending.join(120)
    assert not sending.is_alive()

    stored = {
        (topic, message.partition(), message.offset()): message
        for topic in ("clicks", "orders")
        for message in topics.read(node.bootstrap, topic)
    }
    delivered = {(one.topic, one.record.partition, one.offset): one.record for one in sender.delivered}
    assert len(stored) == len(delivered) == len(records)
    assert sorted(map(repr, delivered.values())) == sorted(map(repr, records))
    for place, record in delivered.items():
        message = stored[place]
        assert (message.key(), message.value()) == (record.key, record.value)
        assert (message.timestamp()[1], tuple(message.headers() or ())) == (record.arrival_ms, record.headers)
    # A partition is in the order of arrival. Spark's watermark needs no more slack than the difference between
    # partitions.
    for topic in ("clicks", "orders"):
        for partition in range(3):
            places = sorted(place for place in delivered if place[:2] == (topic, partition))
            arrivals = [delivered[place].arrival_ms for place in places]
            assert arrivals == sorted(arrivals)
