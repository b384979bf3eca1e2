"""The helpers under Spark's names work like those of Spark's tests. compat_tests/spark tests reading through Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka.errors import TopicAlreadyExistsError

from pykbroker.testing import Broker
from pykbroker.testing.kafka_test_utils import KafkaTestUtils, KafkaUtils


@pytest.fixture(scope="module")
def utils() -> Iterator[KafkaTestUtils]:
    utils = KafkaTestUtils()
    utils.setup()
    yield utils
    utils.teardown()


def test_topics_come_grow_and_go(utils: KafkaTestUtils) -> None:
    utils.createTopic("grows", 2)
    with pytest.raises(TopicAlreadyExistsError):
        utils.createTopic("grows")
    utils.addPartitions("grows", 5)
    assert ("grows", 5) in utils.getAllTopicsAndPartitionSize()
    utils.sendMessages("grows", ["x"], 0)
    utils.createTopic("grows", 1, overwrite=True)
    assert ("grows", 1) in utils.getAllTopicsAndPartitionSize()
    assert utils.getLatestOffsets(["grows"]) == {("grows", 0): 0}
    utils.deleteTopic("grows")
    utils.deleteTopic("grows")
    assert "grows" not in dict(utils.getAllTopicsAndPartitionSize())


def test_messages_and_offsets(utils: KafkaTestUtils) -> None:
    utils.createTopic("sent", 2)
    sent = utils.sendMessages("sent", {"a": 2, "b": 1}, 1)
    assert [(message, metadata.partition, metadata.offset) for message, metadata in sent] == [
        ("a", 1, 0),
        ("a", 1, 1),
        ("b", 1, 2),
    ]
    utils.waitUntilOffsetAppears("sent", 1, 3)
    assert utils.getEarliestOffsets(["sent"]) == {("sent", 0): 0, ("sent", 1): 0}
    assert utils.getLatestOffsets(["sent"]) == {("sent", 0): 0, ("sent", 1): 3}
    assert utils.brokerAddress == utils.broker


@pytest.mark.slow
def test_over_a_broker_that_runs_already() -> None:
    with Broker() as broker:
        utils = KafkaUtils(broker)
        with pytest.raises(RuntimeError, match="setup"):
            KafkaUtils().producer  # noqa: B018
        for _ in range(2):
            utils.setup()
            utils.create_topics(["pairs"])
            utils.send_messages("pairs", [("k", 1), (None, "v")])
            assert utils.broker == broker.bootstrap_servers
            utils.teardown()
            assert not utils.initialized
        with KafkaUtils(broker) as again:
            assert again.broker == broker.bootstrap_servers
        assert not again.initialized
        assert [(record.key, record.value) for record in broker.records("pairs")] == [(b"k", b"1"), (None, b"v")] * 2


def test_what_becomes_so_in_time() -> None:
    utils = KafkaUtils()
    numbers = iter((1, 2, 3))
    utils.assert_eventually(lambda: next(numbers), 3, interval=0)
    with pytest.raises(AssertionError, match="the result is 1, not 2"):
        utils.assert_eventually(lambda: 1, 2, timeout=0, interval=0)


class Query:
    """A streaming query that begins at the third call of `status`, or fails."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.looks = 0
        self.failure = failure

    @property
    def status(self) -> dict[str, bool]:
        self.looks += 1
        return {"isDataAvailable": self.looks >= 5, "isTriggerActive": False}

    def exception(self) -> Exception | None:
        return self.failure


def test_a_query_that_begins_and_one_that_fails() -> None:
    utils = KafkaUtils()
    query = Query()
    utils.wait_for_query_alive(query, interval=0)
    assert query.looks >= 5
    with pytest.raises(ValueError, match="broken"):
        utils.wait_for_query_alive(Query(ValueError("broken")), interval=0)
