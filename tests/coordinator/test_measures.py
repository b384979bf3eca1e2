"""The machine counts events and measures its work."""

from __future__ import annotations

from pykbroker.coordinator.machine import CoordinatorOperation
from pykbroker.coordinator.measures import CountedEvent
from pykbroker.coordinator.result import Result
from pykbroker_wire.errors import ErrorCode
from tests.coordinator.counter import Counter, Machine, add, read

EVENT = CountedEvent.OFFSET_COMMIT


def counted(*names: str, number: int = 1, is_atomic: bool = True) -> CoordinatorOperation[Counter]:
    def operation(shard: Counter, token: int, now_ms: int) -> Result:
        result = add(*names)(shard, token, now_ms)
        result.atomic = is_atomic
        result.count(EVENT, number)
        result.count(EVENT, 0)
        return result

    return operation


def test_events_count_once_their_records_are_written() -> None:
    machine = Machine()
    partition = machine.lead()
    counts = machine.runtime.measures.counts
    machine.submit(counted("a", number=3))
    assert counts[EVENT] == 3
    machine.submit(counted())
    assert counts[EVENT] == 4, "also without records"
    machine.submit(counted("b"), barrier=False)
    assert counts[EVENT] == 4, "these records are collected"
    machine.loop.settle()
    assert counts[EVENT] == 5
    machine.submit(counted("c", "d", is_atomic=False))
    assert counts[EVENT] == 6
    partition.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    machine.submit(counted("e"))
    assert counts[EVENT] == 6
    assert {event for event, number in counts.items() if number} == {EVENT}


def test_the_times_of_batches() -> None:
    machine = Machine()
    partition = machine.lead()
    measures = machine.runtime.measures
    partition.hold = True
    began_s = machine.loop.now
    later = machine.submit(counted("a"), barrier=False)
    machine.loop.now += 0.004
    machine.submit(counted("b"), barrier=False)
    machine.loop.settle()
    assert measures.lingers.numbers()["max"] == 4
    assert measures.flushes.total == 1
    machine.loop.now = began_s + 0.050
    partition.commit()
    assert later.done()
    assert measures.purgatory.numbers()["max"] == 46


def test_each_operation_has_a_processing_time() -> None:
    machine = Machine()
    machine.lead()
    measures = machine.runtime.measures
    machine.submit(read)
    machine.loop.cost_per_look = 0.005
    machine.submit(read)
    machine.loop.cost_per_look = 0.0
    assert measures.processing.total == 2
    assert measures.processing.numbers()["max"] == 5


def test_a_load_is_timed_from_the_election() -> None:
    machine = Machine()
    assert machine.runtime.measures.loads.average_and_most() is None
    machine.replicas.lead()
    machine.loop.now += 0.020
    machine.loop.settle()
    assert machine.runtime.measures.loads.average_and_most() == (20, 20)
