"""Transactions in a log: aborted ones are indexed, reach readers, and survive whatever happens to the files."""

from __future__ import annotations

import errno
import random
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pykbroker_log import names
from pykbroker_log.deletion import delete_files
from pykbroker_log.log_config import AppendOrigin, LogConfig, StorageError
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_log.open_transactions import OpenTransactions
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.producers import ProducerStates
from pykbroker_log.txn_index import AbortedTxn, TxnIndex
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.control import end_txn_marker
from testkit.logs.helpers import NOW, TOPIC_ID, append, batch, check_consistent, open_log, values
from testkit.logs.power_loss import Workload
from testkit.logs.transactions import History, read_committed
from tests.log.test_power_loss import examine_all


def send(log: PartitionLog, pid: int, *made: bytes, epoch: int = 0) -> int:
    """Append the next batch of a transactional producer."""
    entry = log.producers.entries.get(pid)
    sequence = entry.last_sequence + 1 if entry is not None and entry.epoch == epoch else 0
    data = batch(*made or (b"v",), pid=pid, epoch=epoch, seq=sequence, txn=True)
    offset = log.append_as_leader(data, leader_epoch=0, now_ms=NOW).first_offset
    log.set_high_watermark(log.log_end_offset)
    return offset


def marker_of(log: PartitionLog, pid: int, *, commit: bool, epoch: int | None = None) -> bytearray:
    entry = log.producers.entries.get(pid)
    return bytearray(
        end_txn_marker(
            commit=commit,
            producer_id=pid,
            producer_epoch=entry.epoch if epoch is None and entry is not None else epoch or 0,
            coordinator_epoch=0,
            timestamp=NOW,
        )
    )


def end(log: PartitionLog, pid: int, *, commit: bool, leader_epoch: int = 0, epoch: int | None = None) -> int:
    made = marker_of(log, pid, commit=commit, epoch=epoch)
    info = log.append_as_leader(made, leader_epoch=leader_epoch, now_ms=NOW, origin=AppendOrigin.COORDINATOR)
    log.set_high_watermark(log.log_end_offset)
    return info.first_offset


def entries(log: PartitionLog) -> list[AbortedTxn]:
    return [aborted for segment in log.files.segments for aborted in segment.txn_index.entries()]


def indexes(disk: MemoryDisk) -> list[str]:
    return [name for name in disk.list("data/t-0") if names.TXN_INDEX in name]


# -- the index


def test_an_entry_says_who_from_where_to_where_and_what_is_stable_then() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    send(log, 7)
    send(log, 8)
    assert indexes(disk) == []
    end(log, 7, commit=False)
    send(log, 7)
    end(log, 8, commit=False)
    end(log, 7, commit=True)
    assert entries(log) == [AbortedTxn(7, 0, 2, 1), AbortedTxn(8, 1, 4, 3)]
    (name,) = indexes(disk)
    file = disk.open(f"data/t-0/{name}")
    assert file.pread(1000, 0) == bytes.fromhex(
        "0000 0000000000000007 0000000000000000 0000000000000002 0000000000000001"
        "0000 0000000000000008 0000000000000001 0000000000000004 0000000000000003"
    )
    check_consistent(log)


def test_markers_without_data_and_commits_leave_no_entry() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    end(log, 7, commit=False)
    send(log, 7)
    end(log, 7, commit=True)
    assert indexes(disk) == []
    check_consistent(log)


def test_a_search_begins_in_the_middle_of_a_long_index() -> None:
    disk = MemoryDisk()
    disk.make_dirs("data")
    index = TxnIndex(disk, "data/00000000000000000000.txnindex")
    made = [AbortedTxn(number % 7, 10 * number, 10 * number + 5, 10 * number) for number in range(1000)]
    for aborted in made:
        index.append(aborted)
    found: list[AbortedTxn] = []
    assert index.collect(5003, 5021, found)
    assert found == made[500:503]
    found.clear()
    # This segment has the wanted transactions, but a later segment may have more.
    assert not index.collect(9_975, 20_000, found)
    assert found == made[997:]
    assert not index.collect(20_000, 30_000, found)
    index.truncate_to(55)
    assert index.entries() == made[:5]
    index.close()
    assert len(TxnIndex(disk, index.path)) == 5


def test_a_transaction_may_be_aborted_many_segments_later() -> None:
    log = open_log()
    send(log, 7, b"gone")
    for number in range(5):
        log.roll(NOW)
        append(log, b"%d" % number)
    assert read_committed(log, 0, 1 << 20) == {}
    end(log, 7, commit=False)
    assert entries(log) == [AbortedTxn(7, 0, 6, 7)]
    assert [aborted.producer_id for aborted in log.read(0, 1, 7, with_aborted=True).aborted] == [7]
    assert read_committed(log, 0, 1) == {number + 1: b"%d" % number for number in range(5)}
    check_consistent(log)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("suffix", [".log", ".txnindex"])
def test_a_marker_whose_write_failed_counts_for_nothing(suffix: str, code: int) -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    send(log, 7)
    end(log, 7, commit=False)
    send(log, 7)
    disk.fail_next("pwritev", code, path_contains=suffix)
    with pytest.raises(StorageError):
        end(log, 7, commit=False)
    assert (log.log_end_offset, log.last_stable_offset, entries(log)) == (3, 2, [AbortedTxn(7, 0, 1, 2)])
    check_consistent(log)
    assert end(log, 7, commit=False) == 3
    assert entries(log) == [AbortedTxn(7, 0, 1, 2), AbortedTxn(7, 2, 3, 4)]
    check_consistent(log)
    check_consistent(open_log(disk.power_loss(Survive.EVERYTHING)))


def test_an_entry_that_cannot_be_taken_back_ends_the_log() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    send(log, 7)
    disk.fail_next("pwritev", path_contains=".log")
    disk.fail_next("truncate", path_contains=".txnindex")
    with pytest.raises(StorageError):
        end(log, 7, commit=False)
    with pytest.raises(StorageError):
        end(log, 7, commit=True)
    check_consistent(open_log(disk.power_loss(Survive.EVERYTHING)))


def test_a_malformed_index_is_made_again_at_a_clean_start() -> None:
    disk = MemoryDisk()
    disk.make_dirs("data")
    log = open_log(disk)
    for _ in range(3):
        send(log, 7)
        end(log, 7, commit=False)
    log.roll(NOW)
    append(log, b"more")
    expected = entries(log)
    log.close(clean=True)
    disk.open(f"data/t-0/{indexes(disk)[0]}").truncate(40)
    again = open_log(disk, clean=True, recovery_point=7, high_watermark=7)
    assert again.recovery is not None
    assert entries(again) == expected
    check_consistent(again)


def test_indexes_of_retired_segments_go_with_them() -> None:
    disk = MemoryDisk()
    log = open_log(disk, config=LogConfig(file_delete_delay_ms=0, retention_ms=-1))
    send(log, 7)
    end(log, 7, commit=False)
    log.roll(NOW)
    append(log, b"more")
    log.delete_records_before(2)
    log.retire(NOW)
    delete_files(disk, log.purge(NOW + 1))
    assert indexes(disk) == []
    check_consistent(log)


def test_the_index_is_durable_where_a_scan_will_not_look() -> None:
    """The active segment's index was not part of a flush, and then the segment was sealed and needed no flush."""
    disk = MemoryDisk()
    disk.make_dirs("data")
    disk.fsync_dir(".")
    log = open_log(disk)
    send(log, 7)
    end(log, 7, commit=False)
    log.flush()
    log.roll(NOW)
    log.files.segments[0].offset_index.fsync()
    log.files.segments[0].time_index.fsync()
    disk.fsync_dir("data/t-0")
    again = open_log(disk.power_loss(Survive.NOTHING), recovery_point=2, high_watermark=2)
    assert entries(again) == [AbortedTxn(7, 0, 1, 2)]


def test_what_is_left_of_an_index_of_another_past_is_not_read() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, b"a", b"b")
    index = TxnIndex(disk, f"data/t-0/{names.segment_file(2, names.TXN_INDEX)}")
    index.append(AbortedTxn(9, 2, 5, 6))
    index.close()
    log.roll(NOW)
    send(log, 7)
    end(log, 7, commit=False)
    assert entries(log) == [AbortedTxn(7, 2, 3, 4)]


# -- the last stable offset


def test_the_last_stable_offset_of_a_log_that_was_opened_again() -> None:
    """Markers below the high watermark counted as not replicated until the high watermark moved."""
    disk = MemoryDisk()
    log = open_log(disk)
    send(log, 7)
    end(log, 7, commit=True)
    again = open_log(disk.power_loss(Survive.EVERYTHING), high_watermark=2)
    assert (again.high_watermark, again.last_stable_offset) == (2, 2)


def test_thousands_of_open_transactions_end_in_any_order() -> None:
    transactions = OpenTransactions()
    rng = random.Random(1)
    undecided: set[int] = set()
    decided: dict[int, int] = {}
    watermark = 0
    for offset in range(1, 5_001):
        if rng.random() < 0.55:
            undecided.add(offset)
            transactions.begin(offset)
        elif undecided:
            first = rng.choice(sorted(undecided)[:50])
            undecided.remove(first)
            decided[first] = offset
            transactions.decide(first, offset)
        if rng.random() < 0.2:
            watermark = rng.randrange(watermark, offset + 1)
            decided = {first: marker for first, marker in decided.items() if marker >= watermark}
            transactions.replicated(watermark)
        assert transactions.first_undecided() == min(undecided, default=-1)
        assert transactions.first_unstable == min([*undecided, *decided], default=-1)


# -- followers


def test_a_follower_that_gets_much_at_once_indexes_the_same() -> None:
    leader = open_log()
    for number in range(6):
        send(leader, number % 2 + 7, b"v%d" % number)
        end(leader, number % 2 + 7, commit=number % 3 == 0)
        append(leader, b"plain")
    follower = open_log()
    data = leader.read(0, 1 << 20, leader.log_end_offset).joined()
    follower.append_as_follower(data)
    follower.set_high_watermark(follower.log_end_offset)
    assert entries(follower) == entries(leader)
    check_consistent(follower)
    follower.truncate_to(8)
    check_consistent(follower)
    follower.append_as_follower(leader_bytes(leader, 8))
    follower.set_high_watermark(follower.log_end_offset)
    assert entries(follower) == entries(leader)
    check_consistent(follower)


def leader_bytes(leader: PartitionLog, offset: int) -> bytes:
    return leader.read(offset, 1 << 20, leader.log_end_offset).joined()


# -- expiration


def test_verifications_that_came_to_nothing_are_forgotten() -> None:
    log = open_log()
    producers = log.producers
    guard = producers.begin_verification(7, 0, 0, supports_epoch_bump=False, now_ms=NOW)
    producers.remove_expired(NOW + producers.expiration_ms - 1)
    assert producers.verifications.is_current(7, guard)
    producers.remove_expired(NOW + producers.expiration_ms)
    assert not producers.verifications.is_current(7, guard)


# -- power


class TransactionalWorkload(Workload):
    """The workload of test_power_loss with transactions in it."""

    def append(self) -> None:
        if self.rng.random() < 0.4:
            super().append()
            return
        begun = len(self.disk.calls)
        log = self.log
        pid = 100 + self.rng.randrange(3)
        entry = log.producers.entries.get(pid)
        is_open = entry is not None and entry.txn_first_offset >= 0
        if is_open and self.rng.random() < 0.5:
            epoch = entry.epoch + self.rng.randrange(2) if entry is not None else 0
            offset = end(log, pid, commit=self.rng.random() < 0.3, leader_epoch=self.epoch, epoch=epoch)
            self.records[offset] = bytes(6)
        else:
            made = [b"%d.%d" % (log.log_end_offset, len(self.disk.calls)) + b"y" * self.rng.randrange(60)]
            epoch = entry.epoch if entry is not None else 0
            sequence = entry.last_sequence + 1 if entry is not None else 0
            data = batch(*made, timestamp=self.now, pid=pid, epoch=epoch, seq=sequence, txn=True)
            offset = log.append_as_leader(data, leader_epoch=self.epoch, now_ms=self.now).first_offset
            log.set_high_watermark(log.log_end_offset)
            self.records[offset] = made[0]
        self.moment(begun)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_every_prefix_of_transactions(seed: int) -> None:
    examine_all(TransactionalWorkload(seed))


@pytest.mark.long(amount="197 workloads, power lost after each call")
@pytest.mark.timeout(1800)
def test_every_prefix_of_many_workloads_with_transactions() -> None:
    for seed in range(3, 200):
        examine_all(TransactionalWorkload(seed))


# -- the model


class Model(RuleBasedStateMachine):
    """One log, its directory's checkpoints, four transactional producers, and everything that can happen to them."""

    @initialize(
        segment_bytes=st.sampled_from([400, 900, 1 << 20]),
        interval=st.sampled_from([0, 100, 4096]),
        retention_bytes=st.sampled_from([-1, 1500]),
    )
    def start(self, segment_bytes: int, interval: int, retention_bytes: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            retention_ms=-1,
            retention_bytes=retention_bytes,
            file_delete_delay_ms=0,
        )
        self.disk = MemoryDisk(record=False)
        self.disk.make_dirs("data")
        self.disk.fsync_dir(".")
        #: value -> whether its transaction is committed (None: undecided), in the order of the log
        self.outcomes: dict[bytes, bool | None] = {}
        self.open_values: dict[int, list[bytes]] = {}
        self.number = 0
        self.open()

    def open(self) -> None:
        self.dir = LogDir.open(self.disk, "data", b"d" * 16, NOW)
        self.log = self.dir.open_log("t", 0, TOPIC_ID, self.config, NOW)
        self.log.set_high_watermark(self.log.log_end_offset)

    def fresh(self) -> bytes:
        self.number += 1
        return b"%d" % self.number + b"." * (self.number * 7 % 50)

    @rule()
    def plain(self) -> None:
        value = self.fresh()
        append(self.log, value)
        self.outcomes[value] = True

    @rule(pid=st.integers(1, 4))
    def data(self, pid: int) -> None:
        value = self.fresh()
        entry = self.log.producers.entries.get(pid)
        send(self.log, pid, value, epoch=entry.epoch if entry is not None else 0)
        self.outcomes[value] = None
        self.open_values.setdefault(pid, []).append(value)

    @rule(pid=st.integers(1, 4), commit=st.booleans(), bump=st.integers(0, 1))
    def decide(self, pid: int, commit: bool, bump: int) -> None:
        entry = self.log.producers.entries.get(pid)
        end(self.log, pid, commit=commit, epoch=(entry.epoch if entry is not None else 0) + bump)
        for value in self.open_values.pop(pid, []):
            self.outcomes[value] = commit

    @rule(what=st.lists(st.tuples(st.integers(1, 4), st.sampled_from("vvvca")), min_size=3, max_size=12))
    def many(self, what: list[tuple[int, str]]) -> None:
        for pid, step in what:
            if step == "v":
                self.data(pid=pid)
            else:
                self.decide(pid=pid, commit=step == "c", bump=0)

    @rule(pid=st.integers(1, 4))
    def zombie(self, pid: int) -> None:
        entry = self.log.producers.entries.get(pid)
        if entry is None or entry.epoch == 0:
            return
        before = self.log.log_end_offset
        with pytest.raises(KafkaError) as error:
            end(self.log, pid, commit=True, epoch=entry.epoch - 1)
        assert error.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        with pytest.raises(KafkaError) as error:
            send(self.log, pid, b"zombie", epoch=entry.epoch - 1)
        assert error.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        assert self.log.log_end_offset == before

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW)

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule()
    def checkpoint(self) -> None:
        self.dir.checkpoints.write_all()

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        log = self.log
        log.truncate_to(log.log_start_offset + int(part * (log.log_end_offset - log.log_start_offset)))
        log.set_high_watermark(log.log_end_offset)
        self.look_again()

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        log = self.log
        target = log.log_start_offset + int(part * (log.last_stable_offset - log.log_start_offset))
        # The start moves to between transactions: a restart may forget a transaction that began before the log's start,
        # and a lost checkpoint may bring it back, as in Apache Kafka.
        for txn in reversed(History.of(log).txns):
            if txn.first_offset < target <= txn.marker:
                target = txn.first_offset
        log.delete_records_before(max(target, log.log_start_offset))
        self.dir.checkpoints.write_all()
        log.retire(NOW)

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        before, start = _state(self.log.producers), self.log.log_start_offset
        if clean:
            self.dir.close(clean=True)
        self.disk = self.disk.power_loss(Survive.NOTHING if clean else Survive.EVERYTHING)
        self.open()
        if self.log.log_start_offset == start:
            # T9: snapshots and log restore what the running log knew, for everything that is still there.
            after = _state(self.log.producers)
            # A recovery reads the whole segment, so it may restore a producer from before the log's start that a
            # truncation had removed, as in Apache Kafka.
            assert all(pid in before or state[2] < start for pid, state in after.items()), (before, after, start)
            for pid, state in before.items():
                if state[2] >= start:
                    assert after[pid][:3] == state[:3]
                    # For a marker before the log's start both are possible, as in Apache Kafka.
                    assert after[pid][3] == state[3] or -1 in (after[pid][3], state[3])
                    assert after[pid][4] == state[4]
                    # Retention may have deleted its first record. A snapshot has the old offset, a recovery the first
                    # one that is left,
                    # as in Apache Kafka. Readers see neither before the log's start.
                    begins = [max(first, start) if first >= 0 else -1 for first in (after[pid][-1], state[-1])]
                    assert begins[0] == begins[1]
        elif self.log.log_start_offset < start:
            # Retention was about to delete a segment, which is back again.
            self.look_again()
        assert self.log.last_stable_offset >= self.log.log_start_offset

    @rule(choices=st.randoms(use_true_random=False), torn=st.booleans())
    def power_loss(self, choices: random.Random, torn: bool) -> None:
        self.disk = self.disk.power_loss(Survive.CHOSEN, torn=torn, choose=choices.randrange)
        if not self.disk.exists("data"):
            self.disk.make_dirs("data")
        self.open()
        self.look_again()

    def look_again(self) -> None:
        """Compute the outcomes again after the log's end was lost or its beginning came back."""
        history = History.of(self.log)
        self.outcomes = {
            value: True if txn is None else None if txn.marker < 0 else not txn.aborted
            for _, value, txn in history.values
        }
        self.open_values = {}
        for txn in history.txns:
            if txn.marker < 0:
                self.open_values[txn.producer_id] = [value for _, value, owner in history.values if owner is txn]

    @invariant()
    @precondition(lambda self: hasattr(self, "log"))
    def readers_see_what_was_committed(self) -> None:
        log = self.log
        seen = read_committed(log, log.log_start_offset, 250)
        everything = values(log)
        for offset, value in everything.items():
            outcome = self.outcomes.get(value)
            if value in self.outcomes and offset < log.last_stable_offset:
                assert outcome is not None, "undecided, and below the last stable offset"
                assert (offset in seen) is outcome
        assert all(offset < log.last_stable_offset for offset in seen)
        undecided = [offset for offset, value in everything.items() if self.outcomes.get(value, True) is None]
        # A transaction that began before the log's start, and lost its marker to a truncation, is open from the start
        # on.
        assert log.last_stable_offset in (min([*undecided, log.log_end_offset]), log.log_start_offset)

    @invariant()
    @precondition(lambda self: hasattr(self, "log"))
    def files_agree(self) -> None:
        if self.number % 5 == 0:
            check_consistent(self.log)


def _state(producers: ProducerStates) -> dict[int, tuple[Any, ...]]:
    return {
        pid: (
            entry.epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.coordinator_epoch,
            entry.last_timestamp,
            entry.txn_first_offset,
        )
        for pid, entry in producers.entries.items()
    }


@pytest.mark.slow
def test_model() -> None:
    _run(examples=100, steps=40, derandomize=True)


@pytest.mark.long(amount="3,000 lives of 80 steps")
@pytest.mark.timeout(3_600)
def test_model_for_long() -> None:
    _run(examples=3_000, steps=80)


def _run(*, examples: int, steps: int, derandomize: bool = False) -> None:
    settings = hypothesis.settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, derandomize=derandomize
    )
    run_state_machine_as_test(Model, settings=settings)
