"""Idempotent producers: new, repeated and refused batches; and the snapshot's bytes."""

from __future__ import annotations

import pytest

from pykbroker_log.disk import read_file
from pykbroker_log.log_config import AppendOrigin, LogConfig
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.producers import (
    BatchMetadata,
    CorruptProducerSnapshot,
    ProducerDecision,
    ProducerStates,
    decode_snapshot,
)
from pykbroker_log.validate import Validated, validate_and_assign
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.control import end_txn_marker
from testkit.logs.helpers import NOW, batch, open_log, values

MAX = 2**31 - 1


def send(
    log: PartitionLog, seq: int, count: int = 1, *, pid: int = 7, epoch: int = 0, txn: bool = False
) -> tuple[int, bool]:
    made = batch(*[b"v"] * count, pid=pid, epoch=epoch, seq=seq, txn=txn)
    info = log.append_as_leader(made, leader_epoch=0, now_ms=NOW)
    log.set_high_watermark(log.log_end_offset)
    return info.first_offset, info.duplicate


def refused(log: PartitionLog, seq: int, count: int = 1, *, epoch: int = 0, txn: bool = False) -> ErrorCode:
    end = log.log_end_offset
    with pytest.raises(KafkaError) as error:
        send(log, seq, count, epoch=epoch, txn=txn)
    assert log.log_end_offset == end
    return error.value.code


def marker(log: PartitionLog, *, commit: bool, pid: int = 7, epoch: int = 0, coordinator_epoch: int = 1) -> None:
    data = end_txn_marker(
        commit=commit, producer_id=pid, producer_epoch=epoch, coordinator_epoch=coordinator_epoch, timestamp=NOW
    )
    log.append_as_leader(bytearray(data), leader_epoch=0, now_ms=NOW, origin=AppendOrigin.COORDINATOR)


def test_repetitions_of_the_last_five_batches_answer_the_original_offset() -> None:
    log = open_log()
    offsets = [send(log, seq, 2)[0] for seq in range(0, 14, 2)]
    assert offsets == [0, 2, 4, 6, 8, 10, 12]
    for seq, offset in list(zip(range(0, 14, 2), offsets, strict=True))[-5:]:
        assert send(log, seq, 2) == (offset, True)
    assert refused(log, 2, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 14


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment_bytes", [300, 1 << 20])
def test_repetitions_of_the_last_five_batches_are_known_after_a_restart(clean: bool, segment_bytes: int) -> None:
    """A snapshot has one batch per producer: a client with five batches in flight could not continue."""
    disk = MemoryDisk()
    config = LogConfig(segment_bytes=segment_bytes)
    log = open_log(disk, config=config)
    offsets = []
    for seq in range(0, 14, 2):
        offsets.append(send(log, seq, 2)[0])
        send(log, seq // 2, pid=8)
    end = log.log_end_offset
    log.close(clean=clean)
    log = open_log(disk, config=config, clean=clean, recovery_point=end if clean else 0, high_watermark=end)
    for seq, offset in list(zip(range(0, 14, 2), offsets, strict=True))[-5:]:
        assert send(log, seq, 2) == (offset, True)
    assert refused(log, 2, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(log, 5, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == end
    assert send(log, 14, 2) == (end, False)


def test_gaps_and_overlaps_are_refused() -> None:
    log = open_log()
    send(log, 0, 3)
    assert refused(log, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(log, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 3) == (3, False)


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert send(open_log(), 1000) == (0, False)


def test_sequences_wrap() -> None:
    log = open_log()
    send(log, MAX - 1, 2)
    assert send(log, 0, 2) == (2, False)
    assert send(log, 0, 2) == (2, True)
    assert send(log, MAX - 1, 2) == (0, True)

    across = open_log()
    send(across, MAX - 1, 4)  # ..., MAX, 0, 1
    assert send(across, MAX - 1, 4) == (0, True)
    assert send(across, 2) == (4, False)


def test_epochs() -> None:
    log = open_log()
    send(log, 0, 2)
    assert refused(log, 5, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, epoch=1) == (2, False)
    assert refused(log, 2, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, 0, 2, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, 1, epoch=1) == (3, False)


def test_expiration() -> None:
    log = open_log()
    send(log, 0)
    log.producers.remove_expired(NOW + log.producers.expiration_ms - 1)
    assert len(log.producers) == 1
    log.producers.remove_expired(NOW + log.producers.expiration_ms)
    assert len(log.producers) == 0
    send(log, 5, txn=True)
    log.producers.remove_expired(NOW + 10 * log.producers.expiration_ms)
    assert len(log.producers) == 1


def test_transactions_hold_the_last_stable_offset() -> None:
    log = open_log()
    send(log, 0)
    send(log, 1, txn=True)
    assert (log.high_watermark, log.last_stable_offset) == (2, 1)
    assert refused(log, 2, txn=False) is ErrorCode.INVALID_TXN_STATE
    send(log, 0, pid=8, txn=True)
    marker(log, commit=True)
    # Decided, but the marker is not replicated yet; later the other transaction is the first unstable one.
    assert log.last_stable_offset == 1
    log.set_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 2
    marker(log, commit=False, pid=8)
    log.set_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.high_watermark == 5
    with pytest.raises(KafkaError) as error:
        marker(log, commit=True, coordinator_epoch=0)
    assert error.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_state_survives_restarts_of_both_kinds() -> None:
    disk = MemoryDisk()
    disk.make_dirs("data")
    disk.fsync_dir(".")
    log = open_log(disk)
    for seq in range(8):
        send(log, seq)
    send(log, 0, pid=9, txn=True)
    killed = open_log(disk.power_loss(Survive.EVERYTHING), high_watermark=9)
    assert send(killed, 4) == (4, True)
    assert killed.last_stable_offset == 8
    log.close(clean=True)
    after = disk.power_loss()
    clean = open_log(after, clean=True, recovery_point=9, high_watermark=9)
    assert clean.recovery is None
    assert send(clean, 7) == (7, True)
    # A snapshot has only the last batch of each producer, the log has more.
    assert send(clean, 6) == (6, True)
    assert clean.last_stable_offset == 8
    assert send(clean, 8) == (9, False)


def test_a_truncation_takes_producers_back() -> None:
    log = open_log()
    for seq in range(6):
        send(log, seq)
        if seq == 2:
            log.roll(NOW)
    log.truncate_to(4)
    assert send(log, 3) == (3, True)
    assert refused(log, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 4) == (4, False)
    log.truncate_to(1)
    assert send(log, 1) == (1, False)


@pytest.mark.parametrize("flushed", [False, True])
def test_crashes_take_no_producer_away_whose_batches_were_deleted(flushed: bool) -> None:
    """Producers below the log's start in a file that still exists, and those in the snapshot of a roll."""
    disk = MemoryDisk()
    log = open_log(disk)
    send(log, 0)
    log.roll(NOW)
    send(log, 0, 2, pid=8)
    send(log, 0, 2, pid=9)
    if flushed:
        log.flush()
    log.delete_records_before(5)
    assert log.retire(NOW) == 1
    log.purge(NOW)
    send(log, 1)
    for _ in range(2):
        disk = disk.power_loss(Survive.EVERYTHING)
        after = open_log(disk, recovery_point=log.recovery_point, log_start_offset=5)
        assert after.producers.encode() == log.producers.encode()
        assert send(after, 0, 2, pid=9) == (3, True)


@pytest.mark.parametrize("clean", [False, True])
def test_no_second_crash_takes_a_producer_away_that_only_a_snapshot_tells_of(clean: bool) -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    send(log, 0)
    log.roll(NOW)
    send(log, 0, pid=8)
    log.delete_records_before(1)
    assert log.retire(NOW) == 1
    log.purge(NOW)
    if clean:
        log.close(clean=True)
    for is_clean in (clean, False):
        disk = disk.power_loss(Survive.EVERYTHING)
        point = log.recovery_point
        after = open_log(disk, clean=is_clean, recovery_point=point, log_start_offset=1)
        assert after.producers.encode() == log.producers.encode()


@pytest.mark.parametrize("at_the_start", [True, False])
def test_a_damaged_snapshot_is_written_again(at_the_start: bool) -> None:
    """The start or the truncation that finds it does so, because the batches with the same data may be deleted next."""
    disk = MemoryDisk()
    log = open_log(disk)
    disk.fsync_dir(".")
    send(log, 0)
    log.roll(NOW)
    log.flush()
    send(log, 0, pid=8)
    send(log, 1, pid=8)
    snapshot = "data/t-0/00000000000000000001.snapshot"
    disk.open(snapshot).pwritev((b"\xff",), 8)
    if at_the_start:
        disk = disk.power_loss(Survive.EVERYTHING)
        log = open_log(disk, recovery_point=1)
        log.flush()
    else:
        log.truncate_to(2)
        # Durable on return, like everything that a truncation does.
        written = read_file(disk, snapshot)
        disk = disk.power_loss(Survive.NOTHING)
        assert read_file(disk, snapshot) == written
        log = open_log(disk, recovery_point=1)
    assert disk.exists(snapshot)
    send(log, 0, pid=9)
    log.delete_records_before(1)
    assert log.retire(NOW) == 1
    log.purge(NOW)
    after = open_log(disk.power_loss(Survive.EVERYTHING), recovery_point=log.recovery_point, log_start_offset=1)
    assert after.producers.encode() == log.producers.encode()
    assert refused(after, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_stop_forgets_producers_when_nothing_is_left() -> None:
    for clean in (True, False):
        disk = MemoryDisk()
        log = open_log(disk)
        send(log, 0, 2)
        log.delete_records_before(2)
        # The running log still knows the producer.
        assert refused(log, 7) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        log.close(clean=clean)
        disk = disk.power_loss(Survive.EVERYTHING)
        after = open_log(disk, clean=clean, recovery_point=2 if clean else 0, log_start_offset=2)
        assert not len(after.producers)
        assert send(after, 7) == (2, False)


def test_followers_take_what_the_leader_accepted() -> None:
    leader = open_log()
    for seq in range(3):
        send(leader, seq)
    follower = open_log()
    follower.append_as_follower(leader.read(0, 1 << 20, 3).joined())
    assert values(follower) == values(leader)
    assert send(follower, 2) == (2, True)


def checked(seq: int, offset: int, *, epoch: int = 0, txn: bool = False) -> Validated:
    made = bytearray(batch(b"v", pid=7, epoch=epoch, seq=seq, txn=txn))
    return validate_and_assign(made, LogConfig(), offset=offset, leader_epoch=0, now_ms=NOW)


def test_a_decision_changes_no_producer_before_it_is_applied() -> None:
    states = ProducerStates()
    first = states.judge(checked(0, 10), AppendOrigin.CLIENT)
    assert first is not None
    assert not first.is_repetition
    assert not len(states)
    states.apply(first)
    assert states.entries[7].batches == [first.batch] == [BatchMetadata(0, 10, 0, NOW)]
    before = states.encode()
    begins = states.judge(checked(1, 11, txn=True), AppendOrigin.CLIENT)
    assert begins is not None
    assert (states.encode(), states.transactions.first_unstable) == (before, -1)
    states.apply(begins)
    assert states.transactions.first_unstable == 11


def test_the_decision_about_a_repetition_has_the_batch_that_the_log_has() -> None:
    states = ProducerStates()
    for seq in range(2):
        decision = states.judge(checked(seq, seq), AppendOrigin.CLIENT)
        assert decision is not None
        states.apply(decision)
    again = states.judge(checked(0, 2), AppendOrigin.CLIENT)
    assert again is not None
    assert (again.is_repetition, again.batch.first_offset) == (True, 0)
    # A batch of the log's own leader is not looked up.
    with pytest.raises(KafkaError):
        states.judge(checked(0, 2, epoch=-1), AppendOrigin.COORDINATOR)


def test_the_decision_about_a_marker_has_the_transaction_that_it_aborts() -> None:
    states = ProducerStates()
    begins = states.judge(checked(0, 3, txn=True), AppendOrigin.CLIENT)
    assert begins is not None
    states.apply(begins)
    data = bytearray(end_txn_marker(commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp=NOW))
    ends = validate_and_assign(data, LogConfig(), offset=4, leader_epoch=0, now_ms=NOW, origin=AppendOrigin.COORDINATOR)
    decision = states.judge(ends, AppendOrigin.COORDINATOR)
    assert decision is not None
    assert decision.aborted is not None
    assert (decision.aborted.first_offset, decision.aborted.last_offset) == (3, 4)
    assert states.entries[7].txn_first_offset == 3
    states.apply(decision)
    assert states.entries[7].txn_first_offset == -1


def test_snapshot_bytes() -> None:
    states = ProducerStates()
    assert states.encode() == bytes.fromhex("0001 48674bc7 00000000")
    states.apply(ProducerDecision(7, 1, BatchMetadata(5, 12, 2, NOW), True))
    data = states.encode()
    assert len(data) == 10 + 46
    (entry,) = decode_snapshot(data)
    assert (entry.producer_id, entry.epoch, entry.last_sequence, entry.last_offset) == (7, 1, 5, 12)
    assert (entry.batches[0].first_offset, entry.txn_first_offset, entry.coordinator_epoch) == (10, 10, -1)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        with pytest.raises(CorruptProducerSnapshot):
            list(decode_snapshot(bytes(damaged)))
        with pytest.raises(CorruptProducerSnapshot):
            list(decode_snapshot(data[:position]))
