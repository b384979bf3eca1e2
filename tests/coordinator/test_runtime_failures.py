"""Failures that the machine around shards did not survive, as a review found: disks that fail within a call, bugs in a
shard."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykbroker.coordinator.machine import TIMER_REST_MS, CoordinatorOperation
from pykbroker.coordinator.result import CoordinatorRecord, Result, TimerKey
from pykbroker_wire.errors import ErrorCode, KafkaError
from tests.coordinator.counter import Counter, Machine, add, done, end, in_transaction, make, read
from tests.coordinator.fakes import FakePartition


def failing(machine: Machine) -> tuple[FakePartition, list[Any]]:
    """Let the next append unload its host. The returned requests wait there."""
    partition = machine.lead()
    partition.hold = True
    waiting = machine.submit(add("a"))
    collected = machine.submit(add("b"), barrier=False)
    partition.disk_fails = True
    return partition, [waiting, collected]


def big(shard: Counter, token: int, now_ms: int) -> Result:
    return add("x" * 300_000)(shard, token, now_ms)


@pytest.mark.parametrize(
    "ask",
    [
        lambda machine: machine.submit(lambda shard, token, now_ms: Result()),
        lambda machine: machine.submit(add("c")),
        lambda machine: machine.submit(big, barrier=False),
        lambda machine: machine.submit(in_transaction(7, 1, "c"), barrier=False),
        end,
    ],
    ids=["parked", "written", "collected", "transactional", "marker"],
)
def test_a_request_that_finds_the_disk_failing_is_answered(machine: Machine, ask: Callable[[Machine], Any]) -> None:
    """It was registered, or collected, in a host that was no longer used."""
    _, waiting = failing(machine)
    assert ask(machine) is ErrorCode.NOT_COORDINATOR
    assert {done(answer) for answer in waiting} == {ErrorCode.NOT_COORDINATOR}
    assert machine.submit(read) is ErrorCode.NOT_COORDINATOR
    assert machine.shards[0].names == ["a"]


def test_nothing_is_told_to_the_shard_of_a_host_that_a_failing_disk_ended(machine: Machine) -> None:
    failing(machine)
    told: list[Counter] = []

    def operation(shard: Counter, now_ms: int) -> Result:
        told.append(shard)
        return Result()

    machine.runtime.input_all(operation)
    assert told == []


def test_a_refused_append_that_ended_the_host_does_not_answer_the_parked_again(machine: Machine) -> None:
    """Soft state would answer all waiting requests, but they got NOT_COORDINATOR already."""
    partition = machine.lead()
    partition.hold = True
    machine.submit(add("a"))
    tokens: list[int] = []

    def park(shard: Counter, token: int, now_ms: int) -> Result:
        tokens.append(token)
        return Result()

    def write(shard: Counter, token: int, now_ms: int) -> Result:
        def failed(code: ErrorCode, now_ms: int) -> Result:
            result = Result()
            result.reply(tokens[0], code)
            return result

        result = add("b")(shard, token, now_ms)
        result.append_failed = failed
        return result

    parked = machine.submit(park)
    partition.disk_fails = True
    assert machine.submit(write) is ErrorCode.NOT_COORDINATOR
    assert done(parked) is ErrorCode.NOT_COORDINATOR


def test_the_answer_of_a_result_in_parts_comes_when_an_early_part_is_refused(machine: Machine) -> None:
    """Answers belong to the last part, which was never written then."""

    def operation(shard: Counter, token: int, now_ms: int) -> Result:
        result = add(*(f"{number}" * 100_000 for number in range(5)))(shard, token, now_ms)
        result.atomic = False
        return result

    machine.lead().refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    assert machine.submit(operation) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def make_shards(machine: Machine, shard: type[Counter]) -> None:
    def make_shard(index: int) -> Counter:
        machine.shards.append(shard())
        return machine.shards[-1]

    machine.runtime._shard_factory = make_shard


class Forgetful(Counter):
    def replay(self, record: CoordinatorRecord, at: int, producer_id: int = -1) -> None:
        if record == make("bad"):
            raise KeyError("a bug")
        super().replay(record, at, producer_id)


def test_a_load_that_dies_of_a_bug_is_no_coordinator_and_others_go_on(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """The next request made it ready with half of its state, and the loads after it stood still."""
    machine.lead()
    machine.submit(add("good", "bad", "never seen"))
    machine.replicas.lose()
    make_shards(machine, Forgetful)
    machine.replicas.lead(0)
    machine.replicas.lead(1)
    machine.loop.settle()
    assert machine.submit(read) is ErrorCode.NOT_COORDINATOR
    assert machine.submit(read) is ErrorCode.NOT_COORDINATOR
    assert machine.runtime.led() == [1]
    assert machine.runtime._hosts[1].ready
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert errors[0].exc_info is not None
    make_shards(machine, Counter)
    machine.lead()
    assert machine.submit(read) == ["good", "bad", "never seen"]


class Writing(Counter):
    """A shard that writes two records when it has seen everything."""

    def loaded(self, now_ms: int) -> Iterator[Result]:
        for name in ("one", "two"):
            yield add(name)(self, 0, now_ms)
        self.is_loaded = True


def test_a_host_that_a_failing_disk_ended_while_it_loaded_is_not_made_ready(machine: Machine) -> None:
    make_shards(machine, Writing)
    partition = machine.replicas.lead()
    partition.hold = True
    host = machine.runtime._hosts[0]
    while not host.shard.names:
        machine.runtime._loading.turn(host, 1)
    partition.disk_fails = True
    machine.loop.settle()
    assert machine.runtime.led() == []
    assert not host.ready
    assert partition.waiters == []
    assert machine.submit(read) is ErrorCode.NOT_COORDINATOR


class Refusing(Counter):
    refusals = 3

    def on_timer(self, key: TimerKey, event: Any, now_ms: int) -> Result:
        result = super().on_timer(key, event, now_ms)
        if len(self.fired) <= self.refusals:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return result


def test_a_timer_whose_input_is_refused_fires_again_and_is_told_once(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """Before the fix the timer was gone, and with it the session that it watched."""
    make_shards(machine, Refusing)
    machine.lead()

    def arm(shard: Counter, token: int, now_ms: int) -> Result:
        result = read(shard, token, now_ms)
        result.set_timer(("session", "g"), 1_000, ("from timer",))
        return result

    machine.submit(arm)
    machine.loop.advance(1)
    for attempts in (1, 2, 3):
        assert machine.shards[0].fired == [(("session", "g"), ("from timer",))] * attempts
        assert machine.submit(read) == []
        machine.loop.advance(TIMER_REST_MS / 1000)
    assert machine.submit(read) == ["from timer"]
    assert machine.loop.sleeping() == 0
    assert sum("session/g" in record.message for record in caplog.records) == 1


def telling(name: str) -> CoordinatorOperation[Counter]:
    def operation(shard: Counter, token: int, now_ms: int) -> Result:
        result = add(name)(shard, token, now_ms)
        result.tell(logging.getLogger("shard"), "%s is there", name)
        return result

    return operation


def test_a_refused_append_is_told_once_a_minute_and_not_what_it_would_have_brought(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """While a disk was full each heartbeat of a group caused three log lines, ten times a second."""
    caplog.set_level(logging.INFO)
    partition = machine.lead()
    partition.refuse = ErrorCode.KAFKA_STORAGE_ERROR
    for _ in range(61):
        assert machine.submit(telling("a")) is ErrorCode.NOT_COORDINATOR
        machine.loop.advance(1)
    assert [record.name for record in caplog.records] == ["pykbroker.coordinator.machine"] * 2
    assert "59 more lines like it were left out" in caplog.text
    partition.refuse = None
    machine.submit(telling("b"))
    assert caplog.messages[-1] == "b is there"
