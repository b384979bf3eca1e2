"""A librdkafka producer may have its records in another order than that in which it was given them, or twice.

Without idempotence and with one request in flight, librdkafka has built the next one when the answer comes. If a broker
refuses the first, the next one is sent at once, and the records of the first come again after it. With idempotence and
several requests in flight, records come twice if a broker takes requests again too soon. The broker has no part in
this: a proxy sends the refusals, and the same happens in front of Apache Kafka. The Java client does neither.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from compat_tests.exactly_once import reading
from compat_tests.flaky import FlakyProxy
from compat_tests.topics import Topics
from testkit.clients import wait_until
from testkit.torture.attempts import SAYS_ITS_REQUESTS, Account, Fate, listening
from testkit.torture.clients import delivery_report
from testkit.torture.epochs import SAYS_ITS_EPOCHS
from testkit.torture.journal import Found, Journal, Violation, author_of, value_of

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


class Idempotent:
    """An idempotent producer behind the proxy, with one record in a request, and its journal."""

    def __init__(self, flaky: FlakyProxy) -> None:
        self.flaky = flaky
        self.bootstrap = f"localhost:{flaky.port}"
        self.topic = Topics(self.bootstrap).create()
        self.journal = Journal(self.topic)
        self.written = self.journal.writer("repeats", exactly_once=True)

    def write(self, count: int) -> None:
        """Write these records. The answer to the first one is lost before the client has the others."""
        settings = {"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 1, "retry.backoff.ms": 20}
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, **settings, **SAYS_ITS_EPOCHS},
            logger=listening("repeats", self.written.repeats),
        )
        self.flaky.lose(1)
        for number in range(count):
            self.written.sent += 1
            report = delivery_report(self.journal, self.written, number)
            producer.produce(self.topic, value_of("repeats", number), partition=0, on_delivery=report)
            if number == 0:
                wait_until(lambda: not producer.poll(0.05) and self.flaky.lost == 1, "the answer to record 0 is lost")
        assert producer.flush(60) == 0

    def read(self) -> list[Found]:
        placed = reading.placed(self.bootstrap, self.topic, committed=False)[0]
        return [Found(offset, None, value) for offset, value in placed]


def numbers_of(found: list[Found]) -> list[int]:
    return [author_of(one.value or b"")[1] for one in found]


def test_librdkafka_writes_again_in_a_new_epoch_what_had_no_answer(flaky: FlakyProxy) -> None:
    """The answer to record 0 is lost. Then its new leader refuses it and record 1 once more, and takes requests from
    record 2 on. The client answers the gap in the sequence with a new epoch, in which it sends record 0 again.

    Once librdkafka's issue 4953 is mended, this fails, and testkit/torture/epochs.py can go.
    """
    client = Idempotent(flaky)
    flaky.refuse(2, held=True)
    client.write(5)
    found = client.read()
    assert numbers_of(found) == [0, 0, 1, 2, 3, 4]
    written = client.written
    assert written.repeats.by_epoch == [{0}]
    assert written.acknowledged[0] == 1
    client.journal.judge(found, 0, 6)
    written.repeats.by_epoch.clear()
    with pytest.raises(Violation, match="record 0 was acknowledged at 1 and is at 0"):
        client.journal.judge(found, 0, 6)


def test_librdkafka_acknowledges_without_an_offset_what_a_later_request_proves(flaky: FlakyProxy) -> None:
    """The answer to record 0 is lost. Then its new leader refuses it once more, and takes record 1. The sequence has no
    gap, so record 0 was written, and the client does not learn where."""
    client = Idempotent(flaky)
    flaky.refuse(1, held=True)
    client.write(3)
    found = client.read()
    assert numbers_of(found) == [0, 1, 2]
    assert client.written.acknowledged == {0: -1, 1: 1, 2: 2}
    client.journal.judge(found, 0, 3)
