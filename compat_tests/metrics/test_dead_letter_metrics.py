"""The metrics of dead letters are those of Apache Kafka 4.4: the same names, attributes and counts after one session.

The letters of two records are written. The topic of the next record is not enabled. The last topic is too small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from compat_tests.metrics.kafkas_metrics import kafkas_metrics, sorted_tags
from pykbroker.testing import Broker
from testkit import needs
from testkit.nodes.nodes import eventually
from testkit.nodes.rejecting_member import RejectingMember, enable_letters
from testkit.nodes.wire import TOPIC as TOPIC_CONFIGS
from testkit.nodes.wire import Wire, batch
from testkit.oracle.kafka import NEWEST, ApacheKafka, kafka_libs
from testkit.share_requests import ACCEPT, REJECT

pytestmark = pytest.mark.slow

CONFIG = {"share.coordinator.state.topic.num.partitions": "1"}
#: Parentheses are quoted in the names of metrics.
GROUP = "g(1)"
LETTERS = "kafka.server:type=ShareGroupMetrics,name=DeadLetterQueue"
TAGS = f',group="{GROUP}"'

Read = Callable[[], dict[str, float]]


@pytest.fixture(scope="module")
def newest() -> Iterator[ApacheKafka]:
    needs.java()
    kafka_libs(NEWEST)
    with ApacheKafka(CONFIG, version=NEWEST, format_args=["--feature", "share.version=2"]) as node:
        yield node


def after_a_session(bootstrap: str, read: Read) -> dict[str, float]:
    """Reject records for three queues, and return the metrics of dead letters when all have their end."""

    def count(name: str) -> float:
        return read().get(sorted_tags(f"{LETTERS}{name}{TAGS}"), 0)

    with Wire(bootstrap) as wire:
        for topic in ("t", "dlq.g", "dlq.closed", "dlq.small"):
            wire.create(topic, partitions=1)
        enable_letters(wire, "dlq.g")
        enable_letters(wire, "dlq.small")
        # Not even a letter without a copy fits.
        wire.alter(TOPIC_CONFIGS, "dlq.small", {"max.message.bytes": "100"})
        # Apache Kafka has a call for each record of a batch, and pykbroker one for each range.
        for _ in range(5):
            wire.produce("t", batch(b"x"))
        member = RejectingMember(wire, GROUP, "t")
        member.begin()
        member.queue("dlq.g")
        assert sum(last - first + 1 for first, last, _ in member.acquire()) == 5
        member.acknowledge((0, 0, REJECT), (1, 1, ACCEPT), (2, 2, REJECT))
        eventually("the letters are written", lambda: count("RecordCount") == 2)
        member.queue("dlq.closed")
        member.acknowledge((3, 3, REJECT))
        member.queue("dlq.small")
        member.acknowledge((4, 4, REJECT))
        eventually("the last letters are given up", lambda: count("FailedProduceRequestsPerSec") == 1)
        eventually("all records are archived", lambda: member.is_done(5))
        return read()


def test_the_metrics_of_dead_letters_are_kafkas(newest: ApacheKafka) -> None:
    def theirs() -> dict[str, float]:
        return kafkas_metrics(newest.pid, [f"{LETTERS}*,*"])

    with Broker(CONFIG) as broker:

        def ours() -> dict[str, float]:
            return {sorted_tags(name): value for name, value in broker.metrics().items() if name.startswith(LETTERS)}

        mine = after_a_session(broker.bootstrap_servers, ours)
    found = after_a_session(newest.bootstrap, theirs)
    assert len(found) == 3
    assert mine == found
