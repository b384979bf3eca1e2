"""The metrics of share sessions, share fetches and leaders of share partitions are those of Apache Kafka: the same
names, and the same counts after the same session of a member."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.metrics.kafkas_metrics import kafkas_metrics, sorted_tags
from pykbroker.testing import Broker
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    PartitionData,
)
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_wire.primitives import uuid_to_str
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import Wire, batch
from testkit.oracle.kafka import ApacheKafka
from testkit.share_requests import ACCEPT, REJECT, RELEASE, RENEW, acquired, share_acknowledges, share_fetches

pytestmark = pytest.mark.slow

SHARE_PARTITION = "kafka.server:type=SharePartitionMetrics,name="
SESSIONS = "kafka.server:type=ShareSessionCache,name="
TOPICS = "kafka.server:type=BrokerTopicMetrics,name="
PATTERNS = (
    "kafka.server:type=ShareGroupMetrics,*",
    "kafka.server:type=SharePartitionMetrics,*",
    "kafka.server:type=ShareSessionCache,*",
    "kafka.server:type=DelayedShareFetchMetrics,*",
    "kafka.server:type=DelayedOperationPurgatory,name=*,delayedOperation=ShareFetch",
    "kafka.server:type=BrokerTopicMetrics,name=*Share*,*",
)
_OURS = re.compile(
    "kafka.server:type=((Share(Group|Partition)Metrics|ShareSessionCache|DelayedShareFetchMetrics),"
    "|DelayedOperationPurgatory,.*delayedOperation=ShareFetch|BrokerTopicMetrics,name=.*Share)"
)
_LEFT_OUT = re.compile("name=FetchLock(TimeMs|Ratio)(-count)?,")
_REQUESTS_AND_SESSIONS = re.compile("type=(BrokerTopicMetrics|ShareSessionCache)")
#: Times of Apache Kafka and of pykbroker differ, and so does the number of tries to acquire.
_NOT_COMPARED = re.compile("TimeMs|DelayedOperationPurgatory")
LOCK_MS = 8_000
CONFIG = {
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.min.record.lock.duration.ms": str(LOCK_MS),
    "group.share.record.lock.duration.ms": str(LOCK_MS),
}
#: Parentheses are quoted in the names of metrics.
GROUP = "g(1)"
TAGS = f',group="{GROUP}",topic=t,partition=0'

Read = Callable[[], dict[str, float]]


class Acts:
    """A member of a group on one broker, and the metrics after each part of its session. `read` returns the
    metrics of the broker."""

    def __init__(self, bootstrap: str, read: Read) -> None:
        self.bootstrap = bootstrap
        self.read = read
        self.topic_id = b""
        self.after: dict[str, dict[str, float]] = {}

    def run(self) -> None:
        with Wire(self.bootstrap) as wire:
            wire.create("t", partitions=1)
            wire.produce("t", batch(*[b"x"] * 4))
            wire.produce("t", batch(*[b"x"] * 4))
            topics = wire.call(MetadataRequest(topics=None)).topics
            self.topic_id = next(topic.topic_id for topic in topics if topic.name == "t")
            self.prepare(wire)
            self.acknowledge(wire)
            self.after["acknowledgements"] = self.read()
            self.after["time-outs"] = eventually("the locks have ended", self.timed_out)
            assert wire.call(self.acknowledges({}, epoch=-1)).error_code == 0
            self.after["close"] = self.read()
            self.fail(wire)
            self.after["failures"] = self.read()
        self.after["eviction"] = eventually("the session is evicted", self.evicted)

    def prepare(self, wire: Wire) -> None:
        """Let the group start at offset 0."""
        find = FindCoordinatorRequest(key_type=2, coordinator_keys=[f"{GROUP}:{uuid_to_str(self.topic_id)}:0"])
        eventually("a share coordinator", lambda: wire.call(find).coordinators[0].error_code == 0)
        data = PartitionData(partition=0, state_epoch=1, start_offset=0)
        states = [InitializeStateData(topic_id=self.topic_id, partitions=[data])]
        request = InitializeShareGroupStateRequest(group_id=GROUP, topics=states)
        eventually("a state", lambda: wire.call(request).results[0].partitions[0].error_code == 0)

    def acknowledge(self, wire: Wire) -> None:
        """Fetch, accept, release, reject, renew, and acknowledge in vain."""

        def outcome(epoch: int, *ranges: tuple[int, int, int], **fields: Any) -> int:
            answer = wire.call(self.acknowledges({0: list(ranges)}, epoch=epoch, **fields))
            return int(answer.responses[0].partitions[0].error_code)

        assert acquired(wire.call(self.fetches(0, max_wait_ms=20_000))) == {0: [(0, 7, 1)]}
        assert outcome(1, (0, 1, ACCEPT), (2, 2, RELEASE), (3, 3, REJECT)) == 0
        assert outcome(2, (4, 7, RENEW), is_renew_ack=True) == 0
        assert outcome(3, (0, 100, ACCEPT)) != 0, "the leader refuses it"
        assert outcome(4, (0, 1, 9)) != 0, "it does not reach the leader"
        again = wire.call(self.fetches(epoch=5, acks={0: [(4, 4, ACCEPT)]}, max_wait_ms=20_000))
        assert acquired(again) == {0: [(2, 2, 2)]}
        nothing = wire.call(self.fetches(epoch=6, max_wait_ms=200))
        assert nothing.responses == []
        assert wire.call(self.fetches(epoch=7, max_records=0)).responses == []

    def fail(self, wire: Wire) -> None:
        """Fetch in a group that has no state, and open a session that ends with this connection."""
        failed = wire.call(self.fetches(0, group_id="h", max_wait_ms=500))
        assert failed.responses[0].partitions[0].error_code != 0
        # Apache Kafka evicts only the last session of a connection.
        assert wire.call(self.fetches(epoch=-1, group_id="h")).error_code == 0
        wire.call(self.fetches(0, member_id="n", max_wait_ms=20_000))

    def fetches(self, *indexes: int, **fields: Any) -> Any:
        return share_fetches(self.topic_id, *indexes, **{"group_id": GROUP, **fields})

    def acknowledges(self, acks: Any, **fields: Any) -> Any:
        return share_acknowledges(self.topic_id, acks, **{"group_id": GROUP, **fields})

    def timed_out(self) -> dict[str, float] | None:
        """Offset 2 was acquired again, and 5 to 7 were renewed."""
        found = self.read()
        return found if found[sorted_tags(f"{SHARE_PARTITION}AcquisitionLockTimeoutPerSec{TAGS}")] == 4 else None

    def evicted(self) -> dict[str, float] | None:
        found = self.read()
        return found if found[sorted_tags(f"{SESSIONS}ShareSessionEvictionsPerSec")] > 0 else None


def test_the_metrics_are_kafkas(kafka: ApacheKafka, broker: Broker) -> None:
    def theirs() -> dict[str, float]:
        return kafkas_metrics(kafka.pid, PATTERNS)

    def ours() -> dict[str, float]:
        return {sorted_tags(name): value for name, value in broker.metrics().items() if _OURS.match(name)}

    mine = Acts(broker.bootstrap_servers, ours)
    mine.run()
    found = Acts(kafka.bootstrap, theirs)
    found.run()
    for part in ("acknowledgements", "time-outs"):
        expected = {name: value for name, value in found.after[part].items() if not _LEFT_OUT.search(name)}
        assert mine.after[part].keys() == expected.keys()
        compared = {name for name in expected if not _NOT_COMPARED.search(name)}
        assert {name: mine.after[part][name] for name in compared} == {name: expected[name] for name in compared}
    first = found.after["acknowledgements"]
    assert any(_LEFT_OUT.search(name) for name in first)
    assert not any(",group=" in name for name in mine.after["close"]), "Apache Kafka keeps them"
    for part in ("close", "failures", "eviction"):
        # Each load of the failed fetch fails. Apache Kafka then answers at its deadline, so there it expires too.
        expected, got = (
            {name: value for name, value in acts.after[part].items() if _REQUESTS_AND_SESSIONS.search(name)}
            for acts in (found, mine)
        )
        assert got == expected
    assert mine.after["failures"][sorted_tags(f"{TOPICS}FailedShareFetchRequestsPerSec,topic=t")] == 1
