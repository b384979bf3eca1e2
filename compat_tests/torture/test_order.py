"""A producer that is not idempotent may have another order in its log than that in which it was given its records.

librdkafka with one request in flight has built the next one when the answer comes. If a broker refuses the first, the
next one is sent at once, and the records of the first come again after it. The broker has no part in this: a proxy
sends the refusal, and the same happens in front of Apache Kafka. The Java client with one request in flight waits.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from compat_tests.exactly_once import reading
from compat_tests.flaky import FlakyProxy
from compat_tests.topics import Topics
from testkit.torture.attempts import SAYS_ITS_REQUESTS, Account, Fate, listening

COUNT = 3000


@pytest.mark.parametrize("idempotent", [False, True])
def test_librdkafka_sends_what_was_refused_behind_the_next_request(flaky: FlakyProxy, idempotent: bool) -> None:
    bootstrap = f"localhost:{flaky.port}"
    topic = Topics(bootstrap).create()
    account = Account()
    settings = {"bootstrap.servers": bootstrap, "max.in.flight": 1, "batch.num.messages": 20, "retry.backoff.ms": 20}
    producer = Producer(
        {**settings, **SAYS_ITS_REQUESTS, "enable.idempotence": idempotent}, logger=listening("reorders", account)
    )
    flaky.refuse(1)
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(60) == 0
    found = [int(value) for value in reading.values(bootstrap, topic, committed=False)[0]]
    assert sorted(found) == list(range(COUNT))
    if idempotent:
        assert found == list(range(COUNT))
        return
    first, second, *_ = account.attempts
    assert first.fate is Fate.REFUSED
    assert found[: len(second.numbers)] == list(second.numbers)
    assert min(second.numbers) > max(first.numbers)
    taken = [number for attempt in account.attempts if attempt.fate is Fate.DELIVERED for number in attempt.numbers]
    assert found == taken
