"""The machine around pure state while it loads its log: in turns, with a slow device, with a lost leadership."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykbroker.runtime.cold_reads import ColdReads
from pykbroker_log.log_config import StorageError
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.records.batch import build_batch
from pykbroker_wire.records.control import end_txn_marker
from tests.coordinator.counter import (
    Machine,
    add,
    done,
    end,
    read,
)
from tests.coordinator.fakes import Log, as_runtime


def test_the_next_leader_loads_what_is_in_the_log(machine: Machine) -> None:
    machine.lead()
    machine.submit(add("a", "b"))
    machine.submit(add("c"))
    machine.replicas.lose()
    machine.lead()
    assert machine.shards[1].is_loaded
    assert machine.submit(read) == ["a", "b", "c"]
    assert machine.shards[1].offsets == [0, 1, 2]


def test_a_small_log_is_loaded_by_the_first_request(machine: Machine) -> None:
    machine.lead()
    machine.submit(add("a"))
    machine.replicas.lose()
    machine.replicas.lead()
    assert machine.submit(read) == ["a"]


def reload_cold(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> tuple[Log, list[asyncio.Future[None]]]:
    """Make a log of three batches whose next read waits for a device. Return it with the future of each load."""
    partition = machine.lead()
    for name in ("a", "b", "c"):
        machine.submit(add(name))
    machine.replicas.lose()
    loads: list[asyncio.Future[None]] = []

    def run_blocking(function: Any, *arguments: Any) -> asyncio.Future[None]:
        loads.append(machine.loop.create_future())
        loads[-1].add_done_callback(lambda done: setattr(partition.log, "is_cold", False))
        return loads[-1]

    monkeypatch.setattr(as_runtime(machine.world), "run_blocking", run_blocking, raising=False)
    machine.replicas.logs.cold_reads = ColdReads(as_runtime(machine.world))
    machine.runtime._loading._cold_reads = machine.replicas.logs.cold_reads
    partition.log.is_cold = True
    machine.replicas.lead()
    return partition.log, loads


def test_a_log_that_is_not_in_memory_is_loaded_without_waiting_for_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, loads = reload_cold(machine, monkeypatch)
    machine.loop.settle()
    assert len(loads) == 1
    assert machine.submit(read) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert log.waits == 0
    loads[0].set_result(None)
    machine.loop.settle()
    assert machine.submit(read) == ["a", "b", "c"]
    assert log.waits == 0


def test_a_leadership_that_is_lost_while_its_log_is_read_loads_no_more(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, loads = reload_cold(machine, monkeypatch)
    machine.loop.settle()
    machine.replicas.lose()
    loads[0].set_result(None)
    machine.loop.settle()
    assert machine.shards[-1].names == []
    machine.lead()
    assert machine.submit(read) == ["a", "b", "c"]


def test_a_log_that_cannot_be_read_is_told_as_ever(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log, loads = reload_cold(machine, monkeypatch)
    machine.loop.settle()
    log.fails = StorageError("d0", OSError(5, "broken"))
    loads[0].set_result(None)
    machine.loop.settle()
    assert "cannot be loaded" in caplog.text
    assert machine.submit(read) is not None
    assert not machine.shards[-1].is_loaded


def test_what_was_not_committed_before_loading_is_not_shown_until_it_is(machine: Machine) -> None:
    machine.lead().hold = True
    machine.submit(add("a"))
    machine.replicas.lose()
    partition = machine.replicas.lead()
    partition.high_watermark = 0
    machine.loop.settle()
    reading = machine.submit(read)
    assert not reading.done()
    partition.commit()
    assert done(reading) == ["a"]


def test_loading_takes_turns(machine: Machine) -> None:
    log = machine.lead().log
    for start in range(0, 2_000, 200):
        log.append(build_batch([(f"n{number}".encode(), b"v", (), 0) for number in range(start, start + 200)]))
    machine.replicas.lose()
    machine.loop.cost_per_look = 0.001
    machine.replicas.lead()
    assert machine.submit(read) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    turns = 0
    while not machine.shards[1].is_loaded:
        before = machine.loop.now
        machine.loop.turn()
        assert machine.loop.now - before < 0.006
        turns += 1
    assert turns > 10
    machine.loop.settle()
    assert machine.submit(read) == [f"n{number}" for number in range(2_000)]


@pytest.mark.parametrize(("busy_seconds", "turns"), [(0.0, 2_000), (0.010, 40), (10.0, 4)])
def test_a_busy_loop_loads_more_in_a_turn(machine: Machine, busy_seconds: float, turns: int) -> None:
    log = machine.lead().log
    for number in range(2_000):
        log.append(build_batch([(f"n{number}".encode(), b"v", (), 0)]))
    machine.replicas.lose()
    machine.replicas.lead()
    count = 0
    while not machine.shards[1].is_loaded:
        machine.loop.now += busy_seconds
        machine.loop.turn()
        count += 1
    # The reads of the log have turns of their own.
    assert turns <= count < 1.2 * turns + 2


def test_losing_the_lead_while_loading_ends_it(machine: Machine) -> None:
    machine.lead()
    machine.submit(add("a"))
    machine.replicas.lose()
    machine.replicas.lead()
    machine.replicas.lose()
    machine.loop.settle()
    assert not machine.shards[1].is_loaded
    assert machine.submit(read) is ErrorCode.NOT_COORDINATOR


def test_a_log_that_cannot_be_read_is_no_coordinator(machine: Machine) -> None:
    log = machine.lead().log
    log.append(build_batch([(b"\xff\xfe", b"v", (), 0)]))
    machine.replicas.lose()
    machine.lead()
    assert machine.submit(read) is ErrorCode.NOT_COORDINATOR
    assert machine.runtime.led() == []


def test_unknown_records_are_skipped_and_markers_are_heard(machine: Machine) -> None:
    log = machine.lead().log
    log.append(build_batch([(b"a", b"v", (), 0), (b"unknown", b"v", (), 0)]))
    log.append(end_txn_marker(commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=0))
    log.append(end_txn_marker(commit=False, producer_id=8, producer_epoch=0, coordinator_epoch=0, timestamp=0))
    machine.replicas.lose()
    machine.lead()
    assert machine.submit(read) == ["a"]
    assert machine.shards[1].ended == [(7, True), (8, False)]


def test_loading_waits_for_a_log_that_is_being_recovered(machine: Machine) -> None:
    log = machine.lead().log
    log.append(build_batch([(b"n", b"v", (), 0)]))
    machine.replicas.lose()
    partition = machine.replicas.lead(recovering=True)
    machine.loop.settle()
    assert machine.submit(read) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert end(machine) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    partition.recovered()
    machine.loop.settle()
    assert machine.submit(read) == ["n"]


def test_a_leadership_that_ends_before_the_log_is_recovered(machine: Machine) -> None:
    partition = machine.replicas.lead(recovering=True)
    machine.replicas.lose()
    partition.recovered()
    machine.loop.settle()
    assert machine.submit(read) is ErrorCode.NOT_COORDINATOR


def test_no_marker_while_the_log_is_loaded(machine: Machine) -> None:
    log = machine.lead().log
    log.append(build_batch([(f"n{number}".encode(), b"v", (), 0) for number in range(2_000)]))
    machine.replicas.lose()
    machine.loop.cost_per_look = 0.001
    machine.replicas.lead()
    assert end(machine) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert len(log.batches) == 1
