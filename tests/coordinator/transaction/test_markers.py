"""The queue of markers: cases that no transcript shows."""

from __future__ import annotations

import pytest

from pykbroker.coordinator.transaction.markers import MarkerJob, MarkerQueue
from pykbroker.coordinator.transaction.shard import Decided, Producer
from pykbroker_wire.errors import ErrorCode

HERE = 1


def job(partitions: int) -> MarkerJob:
    places = frozenset(("t", index) for index in range(partitions))
    return MarkerJob(0, 0, Decided(Producer("x", 1000, 0), True, 2, places))


def test_partitions_led_elsewhere_are_not_searched_for_among_those_led_here() -> None:
    """6,000 partitions took 232 ms of one turn. The test uses no clock: a search compares names, and it counts the
    comparisons."""
    compared = 0

    class Topic(str):
        __slots__ = ()

        def __hash__(self) -> int:
            return super().__hash__()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return super().__eq__(other)

    places = frozenset((Topic("t"), index) for index in range(400))
    many = MarkerJob(0, 0, Decided(Producer("x", 1000, 0), True, 2, places))
    queue = MarkerQueue(lambda partition: HERE + partition[1] % 2, HERE)
    compared = 0
    led_here = queue.add(many)
    assert compared < 20 * len(places)
    assert led_here == [("t", index) for index in range(0, 400, 2)]
    (sent,) = queue.take(HERE + 1)
    assert sent.partitions == [("t", index) for index in range(1, 400, 2)]


def test_a_refusal_that_nobody_expects_is_told_once_and_rests_longer(caplog: pytest.LogCaptureFixture) -> None:
    """Before, it caused an error line for each partition, twenty times a second, without end."""
    queue = MarkerQueue(lambda partition: HERE, HERE)
    refused = job(3)
    places = queue.add(refused)
    for _ in range(5):
        for place in places:
            queue.settle(refused, place, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        assert (queue.rests, queue.rests_long) == (False, True)
        queue.rouse()
        assert queue.brokers() == []
        queue.rouse_refused()
        assert [sent.partitions for sent in queue.take(HERE)] == [places]
        queue.answered(HERE, [], {})
    assert len(caplog.records) == 1
    queue.settle(refused, places[0], ErrorCode.UNKNOWN_SERVER_ERROR)
    assert len(caplog.records) == 2
    queue.settle(refused, places[1], ErrorCode.NOT_ENOUGH_REPLICAS)
    assert (queue.rests, queue.rests_long) == (True, True)
    assert len(caplog.records) == 2
