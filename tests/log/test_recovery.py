"""A log after an unclean stop: what is checked, what damage costs, and the recovery job in a worker."""

from __future__ import annotations

import logging
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.runtime.workers import finish
from pykbroker_log import names
from pykbroker_log.disk import read_file
from pykbroker_log.log_config import AppendOrigin, LogConfig
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.producers import DEFAULT_EXPIRATION_MS
from pykbroker_log.quarantine import find_batch
from pykbroker_log.recovery_job import Recovered, Unrecovered, recover, unchecked_segments
from pykbroker_wire.records.batch import BatchHeader, iter_batches
from pykbroker_wire.records.control import end_txn_marker
from pykbroker_wire.records.record import iter_records
from testkit.logs.helpers import NOW, append, batch, check_consistent, open_log, values
from testkit.logs.prefixes import crashes

PATH = "data/t-0"
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)


def killed(segments: int = 6, config: LogConfig = CONFIG) -> tuple[MemoryDisk, dict[int, bytes]]:
    """A disk with a log that was not closed, and the log's values."""
    disk = MemoryDisk()
    log = open_log(disk, config=config)
    sequence = 0
    while len(log.files.segments) < segments:
        append(log, b"v%d" % log.log_end_offset * 5, epoch=len(log.files.segments))
        log.append_as_leader(
            batch(b"idempotent", pid=7, epoch=0, seq=sequence), leader_epoch=len(log.files.segments), now_ms=NOW
        )
        sequence += 1
    return disk.power_loss(Survive.EVERYTHING), values(log)


def recovered(disk: MemoryDisk, recovery_point: int = 0, config: LogConfig = CONFIG) -> Recovered:
    return finish(recover, disk, [unrecovered(recovery_point, config)])[0]


def unrecovered(recovery_point: int = 0, config: LogConfig = CONFIG) -> Unrecovered:
    return Unrecovered(PATH, config, recovery_point, 0, DEFAULT_EXPIRATION_MS, NOW, dense=True)


def opened_clean(disk: MemoryDisk, found: Recovered, config: LogConfig = CONFIG) -> PartitionLog:
    log = open_log(disk, config=config, clean=True, recovery_point=found.log_end_offset)
    assert log.recovery is None
    log.producers.remember(found.batches)
    log.set_high_watermark(log.log_end_offset)
    check_consistent(log)
    return log


def flip(disk: MemoryDisk, base_offset: int, position: int, count: int = 1) -> None:
    file = disk.open(f"{PATH}/{names.segment_file(base_offset, names.LOG)}")
    data = file.pread(count, position)
    file.pwritev([bytes(byte ^ 0xFF for byte in data)], position)


def kept_aside(disk: MemoryDisk) -> list[str]:
    return [name for name in disk.list(PATH) if ".corrupt-" in name]


def bases(disk: MemoryDisk) -> list[int]:
    return [int(name[:20]) for name in disk.list(PATH) if name.endswith(names.LOG)]


# -- the job ----------------------------------------------------------------------------------------------------------


def test_the_job_leaves_a_log_as_a_clean_stop_would() -> None:
    disk, expected = killed()
    here = open_log(disk.power_loss(Survive.EVERYTHING), config=CONFIG)
    found = recovered(disk)
    # Everything is durable: the power may fail now.
    log = opened_clean(disk.power_loss(), found)
    assert values(log) == expected
    assert log.epochs.entries() == here.epochs.entries()
    assert log.producers.entries[7].batches == here.producers.entries[7].batches
    assert len(log.producers.entries[7].batches) == 5
    assert found.summary == here.recovery
    assert not found.warnings


def test_a_batch_that_a_producer_repeats_after_the_recovery_is_known() -> None:
    disk, expected = killed()
    log = opened_clean(disk, recovered(disk))
    last = log.producers.entries[7].last_sequence
    info = log.append_as_leader(
        batch(b"idempotent", pid=7, epoch=0, seq=last - 4), leader_epoch=log.epochs.latest, now_ms=NOW
    )
    assert info.duplicate
    assert log.log_end_offset == len(expected)


def test_only_what_reaches_past_the_recovery_point_is_read() -> None:
    disk, expected = killed()
    third = bases(disk)[2]
    flip(disk, 0, 70)
    assert sum(unchecked_segments(disk, PATH, third)) == sum(
        size for name, size in disk.scan(PATH) if name.endswith(names.LOG) and int(name[:20]) >= third
    )
    # (The segment that ends exactly there would be read too, because its index may not have been flushed.)
    found = recovered(disk, recovery_point=third + 1)
    assert f"in 4 segments from offset {third}" in (found.summary or "")
    assert found.log_end_offset == len(expected)


def test_progress_is_the_bytes_that_were_checked() -> None:
    disk, _ = killed()
    seen: list[int] = []
    finish(recover, disk, [unrecovered()], on_progress=seen.append)
    assert sum(seen) == sum(unchecked_segments(disk, PATH, 0))


def test_a_batch_larger_than_what_is_read_at_once() -> None:
    disk = MemoryDisk()
    config = LogConfig(max_message_bytes=4 << 20)
    log = open_log(disk, config=config)
    large = bytes(3 << 20)
    for value in (b"before", large, b"between", large, b"after"):
        log.append_as_leader(batch(value), leader_epoch=0, now_ms=NOW)
    after = disk.power_loss(Survive.EVERYTHING)
    found = recovered(after, config=config)
    assert found.log_end_offset == log.log_end_offset
    assert values(opened_clean(after, found, config)) == values(log)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [names.OFFSET_INDEX, names.TIME_INDEX])
def test_half_of_an_index_that_recovery_was_writing_is_not_taken_for_all_of_it(lost: str) -> None:
    """The segment is below the recovery point, so it would not be checked again. The end of its time index gives the
    age of its records, and the transaction index the aborted ones. The power fails at any point of the recovery."""
    disk = MemoryDisk()
    log = open_log(disk, config=CONFIG)
    for number in range(6):
        at = NOW + number
        log.append_as_leader(
            batch(b"dirty", pid=7, epoch=0, seq=number, txn=True, timestamp=at), leader_epoch=0, now_ms=at
        )
        abort = end_txn_marker(commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=at)
        log.append_as_leader(bytearray(abort), leader_epoch=0, now_ms=at, origin=AppendOrigin.COORDINATOR)
    assert len(log.files.segments) == 2
    log.flush()
    end, first = log.log_end_offset, names.segment_file(0, "")
    disk.unlink(f"{PATH}/{first}{lost}")
    left, start = disk.power_loss(Survive.EVERYTHING), disk.power_loss(Survive.EVERYTHING)
    open_log(start, config=CONFIG, recovery_point=end)
    for seed in range(5):
        for crash in crashes(start.calls, random.Random(seed), base=left):
            check_consistent(open_log(crash.disk, config=CONFIG, recovery_point=end))
    assert not [name for name in start.list(PATH) if name.endswith(".tmp")]


# -- damage -----------------------------------------------------------------------------------------------------------


def test_a_torn_end_is_cut_off_and_nothing_is_kept() -> None:
    disk, expected = killed()
    last = bases(disk)[-1]
    file = disk.open(f"{PATH}/{names.segment_file(last, names.LOG)}")
    torn = bytes(batch(b"never acknowledged" * 10))[:100]
    file.pwritev([torn], file.size())
    found = recovered(disk)
    assert found.log_end_offset == len(expected)
    assert f"cut 100 bytes off {names.segment_file(last, names.LOG)}" in (found.summary or "")
    assert not found.warnings
    assert not kept_aside(disk)


@pytest.mark.parametrize("apart", [True, False])
def test_whole_batches_behind_a_damaged_one_are_kept_aside(apart: bool, caplog: pytest.LogCaptureFixture) -> None:
    disk, expected = killed()
    second, third = bases(disk)[1:3]
    path = f"{PATH}/{names.segment_file(second, names.LOG)}"
    before = read_file(disk, path)
    (position, damaged), *_ = list(iter_batches(before))[1:]
    flip(disk, second, position + 70)
    damaged_file = read_file(disk, path)
    others = {base: read_file(disk, f"{PATH}/{names.segment_file(base, names.LOG)}") for base in bases(disk)[2:]}
    if apart:
        found = recovered(disk)
        warnings = found.warnings
        log = opened_clean(disk.power_loss(), found)
    else:
        with caplog.at_level(logging.WARNING):
            log = open_log(disk, config=CONFIG)
        warnings = caplog.messages
    assert log.log_end_offset == damaged.base_offset
    assert values(log) == {offset: value for offset, value in expected.items() if offset < damaged.base_offset}
    # The operator's warning names the file, the position, and the file with the rest.
    aside = f"{names.segment_file(second, names.LOG)}.{position}.corrupt-{NOW}"
    segment = names.segment_file(second, names.LOG)
    assert f"{segment} is damaged at position {position}, offset {damaged.base_offset}" in warnings[0]
    assert "the checksum does not match" in warnings[0]
    assert aside in warnings[0]
    assert names.segment_file(third, names.LOG) in warnings[1]
    assert read_file(disk, f"{PATH}/{aside}") == damaged_file[position:]
    for base, data in others.items():
        assert read_file(disk, f"{PATH}/{names.segment_file(base, names.LOG)}.0.corrupt-{NOW}") == data
    # They are not taken for segments, and the next start logs nothing about them.
    again = open_log(disk, config=CONFIG)
    assert again.log_end_offset == damaged.base_offset
    assert len(kept_aside(disk)) == 1 + len(others)
    again.delete_files()
    assert not disk.exists(PATH)


def test_what_is_kept_aside_can_be_read() -> None:
    disk, expected = killed()
    flip(disk, 0, 70)
    found = recovered(disk)
    assert found.log_end_offset == 0
    first = kept_aside(disk)[0]
    data = read_file(disk, f"{PATH}/{first}")
    rescued = {
        record.offset: record.value
        for position, header in iter_batches(data)
        if position
        for record in iter_records(data, position, header)
    }
    assert rescued
    assert rescued.items() <= expected.items()


def test_a_destroyed_header_does_not_hide_the_batches_behind_it() -> None:
    disk, _ = killed()
    data = read_file(disk, f"{PATH}/{names.segment_file(0, names.LOG)}")
    position = list(iter_batches(data))[2][0]
    flip(disk, 0, position, 61)
    found = recovered(disk)
    assert "not a batch" in found.warnings[0]
    assert f".log.{position}.corrupt-" in found.warnings[0]


def test_a_full_disk_destroys_nothing() -> None:
    disk, _ = killed()
    flip(disk, 0, 70)
    before = {name: read_file(disk, f"{PATH}/{name}") for name in disk.list(PATH) if name.endswith(names.LOG)}
    disk.fail_next("pwritev", 28, path_contains=".corrupt-")
    with pytest.raises(OSError, match="told to fail"):
        recovered(disk)
    for name, data in before.items():
        assert read_file(disk, f"{PATH}/{name}") == data
    assert recovered(disk).warnings


@given(st.binary(max_size=300), st.integers(0, 5))
def test_a_batch_is_found_behind_anything(noise: bytes, count: int) -> None:
    batches = b""
    for index in range(count):
        made = batch(b"%d" % index)
        made[:8] = (1000 + index).to_bytes(8, "big")
        batches += made
    disk = MemoryDisk()
    file = disk.open("f", create=True)
    file.pwritev([noise + batches], 0)
    steps = find_batch(file, 0, file.size(), range(1000, 2000))
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found = end.value
    if count:
        assert found >= 0
        assert BatchHeader.parse(file.pread(61, found)).base_offset == 1000
    else:
        assert found == -1
