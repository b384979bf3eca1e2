"""One partition and transactions: guards, markers, and the result of a read-committed read."""

from __future__ import annotations

import pytest

from pykbroker.replica.partition import Partition
from pykbroker_log.producers import ActiveProducer
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.record import iter_records
from testkit.acting import acts
from tests.replica.world import NOW_MS, World, batch

PID = 1000


def send(
    partition: Partition, *values: bytes, pid: int = PID, epoch: int = 0, seq: int = 0, guard: object | None = None
) -> int:
    made = batch(*values or (b"x",), producer_id=pid, producer_epoch=epoch, base_sequence=seq, transactional=True)
    return partition.append(made, required_acks=-1, now_ms=NOW_MS, verification=guard).first_offset


def begin(
    partition: Partition, *values: bytes, pid: int = PID, epoch: int = 0, seq: int = 0, bumps: bool = False
) -> int:
    guard = partition.start_verification(pid, epoch, seq, supports_epoch_bump=bumps)
    assert guard is not None
    return send(partition, *values, pid=pid, epoch=epoch, seq=seq, guard=guard)


def end(
    partition: Partition,
    *,
    commit: bool,
    pid: int = PID,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    version: int = 0,
) -> int:
    return partition.append_marker(
        producer_id=pid,
        producer_epoch=epoch,
        commit=commit,
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
        now_ms=NOW_MS,
    ).first_offset


def read(partition: Partition, offset: int = 0) -> tuple[list[bytes], list[tuple[int, int]]]:
    """Return values and aborted transactions, as a read-committed consumer gets them."""
    found = partition.read(offset, 1 << 20, read_committed=True, min_one=True)
    data = found.joined()
    return (
        [
            bytes(record.value or b"")
            for position, header in iter_batches(data)
            if not header.is_control
            for record in iter_records(data, position, header)
        ],
        [(aborted.producer_id, aborted.first_offset) for aborted in found.aborted],
    )


def refused(code: ErrorCode) -> pytest.RaisesExc[KafkaError]:
    return pytest.RaisesExc(KafkaError, check=lambda error: error.code == code)


def test_a_reader_sees_decided_transactions_and_is_told_which_were_aborted() -> None:
    partition = World().create("t")
    assert begin(partition, b"a") == 0
    assert read(partition) == ([], [])
    assert end(partition, commit=True) == 1
    assert begin(partition, b"b", seq=1) == 2
    assert begin(partition, b"c", pid=PID + 1) == 3
    assert read(partition) == ([b"a"], [])
    assert end(partition, commit=False) == 4
    assert read(partition) == ([b"a", b"b"], [(PID, 2)])
    assert end(partition, commit=True, pid=PID + 1) == 5
    assert read(partition) == ([b"a", b"b", b"c"], [(PID, 2)])
    assert read(partition, 5) == ([], [])


def test_a_marker_counts_when_it_is_replicated() -> None:
    partition = World().create("t", replicas=(1, 2))
    begin(partition, b"a")
    partition.note_fetched(2, 1)
    end(partition, commit=True)
    assert (partition.high_watermark, partition.log.last_stable_offset) == (1, 0)
    partition.note_fetched(2, 2)
    assert (partition.high_watermark, partition.log.last_stable_offset) == (2, 2)


def test_a_transaction_begins_with_the_guard_of_its_verification() -> None:
    partition = World().create("t")
    with refused(ErrorCode.INVALID_TXN_STATE):
        send(partition)
    guard = partition.start_verification(PID, 0, 0, supports_epoch_bump=False)
    with refused(ErrorCode.INVALID_TXN_STATE):
        send(partition, guard=object())
    assert send(partition, guard=guard) == 0
    # The transaction is open now: there is nothing to verify, and the guard is used up.
    assert partition.start_verification(PID, 0, 1, supports_epoch_bump=False) is None
    assert send(partition, seq=1) == 1
    end(partition, commit=False)
    with refused(ErrorCode.INVALID_TXN_STATE):
        send(partition, seq=2, guard=guard)


def test_a_marker_takes_the_guard_away_for_which_the_coordinator_was_asked_before_it() -> None:
    partition = World().create("t")
    guard = partition.start_verification(PID, 0, 0, supports_epoch_bump=False)
    end(partition, commit=False)
    with refused(ErrorCode.INVALID_TXN_STATE):
        send(partition, guard=guard)


def test_a_later_batch_does_not_overtake_one_whose_verification_is_to_be_tried_again() -> None:
    partition = World().create("t")
    guard = partition.start_verification(PID, 0, 0, supports_epoch_bump=False)
    assert partition.start_verification(PID, 0, 1, supports_epoch_bump=False) is guard
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        send(partition, seq=1, guard=guard)
    assert send(partition, seq=0, guard=guard) == 0
    assert send(partition, seq=1) == 1


def test_with_an_epoch_per_transaction_the_first_batch_has_sequence_number_0() -> None:
    partition = World().create("t")
    guard = partition.start_verification(PID, 0, 3, supports_epoch_bump=True)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        send(partition, seq=3, guard=guard)
    assert begin(partition, bumps=True) == 0
    end(partition, commit=True, epoch=1, version=2)
    guard = partition.start_verification(PID, 1, 1, supports_epoch_bump=True)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        send(partition, epoch=1, seq=1, guard=guard)
    assert begin(partition, epoch=1, bumps=True) == 2
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        partition.start_verification(PID, 0, 0, supports_epoch_bump=True)


@acts(broker=("transaction.partition.verification.enable",))
def test_nothing_is_verified_where_that_is_switched_off() -> None:
    world = World()
    partition = world.create("t")
    with refused(ErrorCode.INVALID_TXN_STATE):
        send(partition)
    world.replicas.reconfigure(world.config_with({"transaction.partition.verification.enable": "false"}))
    assert send(partition) == 0
    assert partition.log.last_stable_offset == 0


def test_epochs_of_markers() -> None:
    partition = World().create("t")
    begin(partition, epoch=3)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        end(partition, commit=True, epoch=2)
    # transaction.version 2: a marker with the epoch of the data is a late one.
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        end(partition, commit=True, epoch=3, version=2)
    assert end(partition, commit=True, epoch=4, coordinator_epoch=7, version=2) == 1
    # Its repetition after a lost answer does no harm.
    assert end(partition, commit=True, epoch=4, coordinator_epoch=7, version=2) == 2
    with refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        end(partition, commit=True, epoch=4, coordinator_epoch=6)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        end(partition, commit=True, epoch=3, coordinator_epoch=7, version=2)
    assert end(partition, commit=True, epoch=4, coordinator_epoch=8) == 3


def test_a_producer_that_has_used_up_its_epochs_is_ended_with_its_last_one() -> None:
    partition = World().create("t")
    begin(partition, epoch=32767)
    assert end(partition, commit=False, epoch=32767, version=2) == 1
    assert read(partition) == ([b"x"], [(PID, 0)])


def test_markers_ask_for_enough_replicas() -> None:
    world = World()
    partition = world.create("t", replicas=(1, 2), min_insync_replicas="2")
    world.change(partition, isr=[1])
    with refused(ErrorCode.NOT_ENOUGH_REPLICAS):
        end(partition, commit=True)


def test_a_marker_asks_for_no_more_replicas_than_there_are() -> None:
    partition = World().create("t", min_insync_replicas="2")
    begin(partition)
    assert end(partition, commit=True) == 1


def test_active_producers() -> None:
    partition = World().create("t")
    begin(partition, b"a", b"b", epoch=2)
    assert partition.active_producers() == [ActiveProducer(PID, 2, 1, NOW_MS, -1, 0)]
    end(partition, commit=True, epoch=2, coordinator_epoch=5)
    assert partition.active_producers() == [ActiveProducer(PID, 2, 1, NOW_MS, 5, -1)]
    end(partition, commit=False, epoch=3, coordinator_epoch=5)
    assert partition.active_producers() == [ActiveProducer(PID, 3, -1, NOW_MS, 5, -1)]
