"""The end of a transaction is always written in the end. Found by the simulation of whole nodes."""

from __future__ import annotations

import logging

import pytest

from pykbroker.coordinator.transaction.shard import Identity, Producer
from pykbroker.coordinator.transaction.states import COMPLETE_COMMIT, PREPARE_COMMIT, TransactionState
from pykbroker_wire.errors import ErrorCode
from tests.coordinator.transaction.transaction_bench import TransactionBench

PLACE = ("t", 0)
ELSEWHERE = 2
MINUTES = 3


def state(bench: TransactionBench) -> TransactionState:
    return bench.shard.transactions["a"].state


def prepared() -> TransactionBench:
    """Return a bench with a transaction whose end is decided, and whose marker waits for an answer."""
    bench = TransactionBench()
    bench.leader(PLACE, ELSEWHERE)
    given = bench.init("a")
    assert isinstance(given, Identity)
    producer = Producer("a", given.producer_id, given.producer_epoch)
    assert bench.add(producer, PLACE) == ErrorCode.NONE
    bench.end(producer, commit=True)
    return bench


def test_a_completion_that_a_full_disk_refused_is_written_later() -> None:
    """A full disk has the error code of a broker that is no coordinator. But no other broker will complete the
    transaction."""
    bench = prepared()
    assert state(bench) is PREPARE_COMMIT
    bench.partition.refuse = ErrorCode.KAFKA_STORAGE_ERROR
    bench.answer(ELSEWHERE)
    bench.advance(5_000)
    assert state(bench) is PREPARE_COMMIT
    bench.partition.refuse = None
    bench.advance(5_000)
    assert state(bench) is COMPLETE_COMMIT


def test_a_log_that_takes_nothing_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """The completion is tried again ten times a second, and the abort whenever transactions are looked at."""
    bench = prepared()
    given = bench.init("b")
    bench.add(Producer("b", given.producer_id, given.producer_epoch), PLACE)
    bench.partition.refuse = ErrorCode.KAFKA_STORAGE_ERROR
    with caplog.at_level(logging.INFO):
        bench.answer(ELSEWHERE)
        bench.advance(1_000 * MINUTES * 60)
    told = [record.getMessage() for record in caplog.records]
    for about in ("are written, but the record", "cannot be aborted yet"):
        lines = [line for line in told if about in line]
        assert 1 < len(lines) <= MINUTES + 1
        assert lines[-1].endswith("more lines like it were left out)")


@pytest.mark.parametrize("is_lost", [False, True])
def test_markers_that_are_on_their_way_in_a_new_epoch_of_the_same_leader(is_lost: bool) -> None:
    """They were sent in the former epoch, and no other coordinator will send them."""
    bench = prepared()
    bench.replicas.lead_on()
    if is_lost:
        bench.disconnect(ELSEWHERE)
        bench.advance(5_000)
    bench.answer(ELSEWHERE)
    assert state(bench) is COMPLETE_COMMIT


def test_an_epoch_that_was_missed_may_have_been_another_coordinators() -> None:
    """Another coordinator may have sent some of the markers, and the others were never sent again. Markers that this
    coordinator sends in its old epoch are refused, and were given up."""
    bench = prepared()
    bench.replicas.lead_on(epochs=2)
    bench.loop.settle()
    bench.answer(ELSEWHERE, {PLACE: ErrorCode.TRANSACTION_COORDINATOR_FENCED})
    bench.advance(5_000)
    assert state(bench) is PREPARE_COMMIT
    bench.answer(ELSEWHERE)
    bench.loop.settle()
    assert bench.written[-1][1].coordinator_epoch == bench.replicas.epoch
    assert state(bench) is COMPLETE_COMMIT
