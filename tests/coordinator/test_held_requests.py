"""Requests that come while a shard is loaded, and wait for it."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.coordinator.held_requests import HOLD_SECONDS, MAX_HELD
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.records.batch import build_batch
from tests.coordinator.counter import Machine, add, done, read

#: More records than a request that finds its shard not loaded loads by itself.
MANY = 2_000


@pytest.fixture
def loading(machine: Machine) -> Machine:
    log = machine.lead().log
    log.append(build_batch([(f"n{number}".encode(), b"v", (), 0) for number in range(MANY)]))
    machine.replicas.lose()
    machine.loop.cost_per_look = 0.001
    machine.replicas.lead()
    assert machine.submit(read) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return machine


def hold(machine: Machine, name: str) -> Any:
    return machine.submit(add(name), barrier=False, waits_for_load=True)


def test_requests_that_wait_run_in_their_order_when_the_shard_is_loaded(loading: Machine) -> None:
    held = [hold(loading, "first"), hold(loading, "second")]
    assert not any(answer.done() for answer in held)
    loading.loop.settle()
    assert [done(answer) for answer in held] == [f"{MANY} before"] * 2
    assert loading.submit(read)[MANY:] == ["first", "second"]


def test_a_request_that_ends_the_load_runs_after_those_that_waited(loading: Machine) -> None:
    hold(loading, "first")
    answers = [hold(loading, f"n{number}") for number in range(MANY // 8)]
    loading.loop.settle()
    assert loading.submit(read)[MANY:] == ["first", *(f"n{number}" for number in range(len(answers)))]


def test_a_request_whose_client_has_left_runs_all_the_same(loading: Machine) -> None:
    hold(loading, "left").cancel()
    loading.loop.settle()
    assert loading.submit(read)[MANY:] == ["left"]


def test_a_load_that_takes_long_is_told(machine: Machine) -> None:
    machine.lead()
    machine.replicas.lose()
    partition = machine.replicas.lead(recovering=True)
    early = hold(machine, "early")
    machine.loop.advance(HOLD_SECONDS / 2)
    late = hold(machine, "late")
    machine.loop.advance(HOLD_SECONDS / 2)
    assert done(early) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not late.done()
    partition.recovered()
    machine.loop.settle()
    assert machine.submit(read) == ["late"]
    assert machine.loop.sleeping() == 0


def test_a_leadership_that_ends_refuses_what_waited_for_its_load(loading: Machine) -> None:
    held = hold(loading, "a")
    loading.replicas.lose()
    assert done(held) is ErrorCode.NOT_COORDINATOR
    assert loading.loop.sleeping() == 0


def test_what_waits_for_a_log_that_cannot_be_loaded_is_refused(machine: Machine) -> None:
    log = machine.lead().log
    log.append(build_batch([(b"\xff\xfe", b"v", (), 0)]))
    machine.replicas.lose()
    partition = machine.replicas.lead(recovering=True)
    held = hold(machine, "a")
    partition.recovered()
    machine.loop.advance(HOLD_SECONDS)
    assert done(held) is ErrorCode.NOT_COORDINATOR


def test_no_more_wait_than_one_turn_may_run(machine: Machine) -> None:
    machine.lead()
    machine.replicas.lose()
    machine.replicas.lead(recovering=True)
    held = [hold(machine, f"n{number}") for number in range(MAX_HELD + 1)]
    assert held[-1] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not any(answer.done() for answer in held[:-1])
