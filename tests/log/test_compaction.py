"""Compaction of one log: the records that stay and go, and that the log is whole afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pykbroker_log.compaction import CleanerMemory, SegmentSizes, Uncleanable, clean, group
from pykbroker_log.dirty_segments import cleanable
from pykbroker_log.log_config import MAX_INT64, AppendOrigin, LogConfig
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.records.batch import DELETE_HORIZON, BatchHeader
from pykbroker_wire.records.compression import Codec
from pykbroker_wire.records.control import end_txn_marker
from pykbroker_wire.records.dedupe import SLOT_SIZE
from testkit.logs.helpers import NOW, open_log, read_all
from tests.log.compacting import SEED, compact, contents, put, records

COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), index_interval_bytes=100)
DAY = 86_400_000


def compacted_log(**changes: object) -> PartitionLog:
    return open_log(config=replace(COMPACT, **changes))  # type: ignore[arg-type]


def mark(log: PartitionLog, pid: int, *, commit: bool, epoch: int = 0) -> int:
    info = log.append_as_leader(
        bytearray(
            end_txn_marker(commit=commit, producer_id=pid, producer_epoch=epoch, coordinator_epoch=0, timestamp=NOW)
        ),
        leader_epoch=0,
        now_ms=NOW,
        origin=AppendOrigin.COORDINATOR,
    )
    log.set_high_watermark(log.log_end_offset)
    return info.first_offset


def headers(log: PartitionLog) -> list[BatchHeader]:
    return [header for header, _ in read_all(log)]


def reopened(log: PartitionLog) -> PartitionLog:
    """Open the log again as after a crash of the process."""
    assert isinstance(log.files.disk, MemoryDisk)
    return open_log(log.files.disk, config=log.config, high_watermark=log.high_watermark)


def test_of_each_key_the_newest_record_stays_at_its_offset() -> None:
    log = compacted_log()
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", b"2"), (b"c", b"1"))
    log.roll(NOW)
    put(log, (b"b", b"2"))
    log.roll(NOW)
    put(log, (b"a", b"3"))
    assert compact(log) is not None
    assert contents(log) == {2: (b"a", b"2"), 3: (b"c", b"1"), 4: (b"b", b"2"), 5: (b"a", b"3")}, "the active one stays"
    assert [segment.base_offset for segment in log.files.segments] == [0, 5], "neighbours became one"
    assert contents(reopened(log)) == contents(log)


def test_a_batch_of_which_everything_stays_is_not_touched() -> None:
    log = compacted_log()
    put(log, (b"a", b"1"), (b"b", b"1"), codec=Codec.GZIP)
    log.roll(NOW)
    before = [data for _, data in read_all(log)]
    cleaned = compact(log)
    assert cleaned is not None
    assert cleaned.end_offset == 2
    assert [data for _, data in read_all(log)] == before
    assert not [name for name in log.files.disk.list(log.path) if name.endswith((".cleaned", ".deleted"))], (
        "nothing changed"
    )


@pytest.mark.parametrize("codec", list(Codec))
def test_a_thinned_batch_keeps_its_range_codec_and_times(codec: Codec) -> None:
    log = compacted_log()
    put(log, *((b"%d" % (n % 3), b"v%d" % n) for n in range(9)), codec=codec, headers=[("h", b"x")])
    put(log, (b"1", b"last"))
    log.roll(NOW)
    compact(log)
    thinned = headers(log)[0]
    assert (thinned.base_offset, thinned.last_offset, thinned.record_count) == (0, 8, 2)
    assert thinned.compression is codec
    assert (thinned.base_timestamp, thinned.max_timestamp) == (NOW + 6, NOW + 8)
    kept = [record for header, record in records(log) if header.base_offset == 0]
    assert [(record.offset, record.timestamp, record.headers) for record in kept] == [
        (6, NOW + 6, [("h", b"x")]),
        (8, NOW + 8, [("h", b"x")]),
    ]


def test_a_tombstone_stays_until_its_delete_horizon() -> None:
    log = compacted_log(delete_retention_ms=DAY)
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", None), (b"c", b"1"))
    log.roll(NOW)
    put(log, (b"z", b"1"))
    first = compact(log)
    assert first is not None
    assert contents(log) == {1: (b"b", b"1"), 2: (b"a", None), 3: (b"c", b"1"), 4: (b"z", b"1")}
    stamped = headers(log)[1]
    assert stamped.has_delete_horizon
    assert stamped.base_timestamp == NOW + DAY
    assert [record.timestamp for header, record in records(log)] == [NOW + 1, NOW, NOW + 1, NOW]
    # A later cleaning does not move the horizon, and a cleaning after the horizon removes the tombstone.
    for now_ms, there in ((NOW + 5, True), (NOW + DAY - 1, True), (NOW + DAY, False)):
        log.roll(NOW)
        put(log, (b"z", b"%d" % now_ms))
        log.roll(NOW)
        put(log, (b"z", b"end"))
        compact(log, log.files.segments[0].base_offset + 4, now_ms=now_ms)
        assert ((b"a", None) in contents(log).values()) is there, now_ms
        assert (b"c", b"1") in contents(log).values()
    assert headers(log)[1].attributes & DELETE_HORIZON


def test_a_retention_of_for_ever_is_no_horizon_in_the_past() -> None:
    log = compacted_log(delete_retention_ms=MAX_INT64)
    put(log, (b"a", None))
    log.roll(NOW)
    compact(log)
    compact(log, 0, now_ms=NOW + 100 * DAY)
    assert contents(log) == {0: (b"a", None)}


def test_records_of_aborted_transactions_go_and_markers_follow_when_nothing_needs_them() -> None:
    log = compacted_log(delete_retention_ms=DAY)
    put(log, (b"a", b"old"))
    put(log, (b"a", b"aborted"), (b"x", b"aborted"), pid=1, epoch=0, seq=0, txn=True)
    put(log, (b"b", b"committed"), pid=2, epoch=0, seq=0, txn=True)
    abort = mark(log, 1, commit=False)
    commit = mark(log, 2, commit=True)
    log.roll(NOW)
    put(log, (b"b", b"new"))
    log.roll(NOW)
    put(log, (b"z", b"z"))
    compact(log)
    assert contents(log) == {0: (b"a", b"old"), 6: (b"b", b"new"), 7: (b"z", b"z")}
    kept = {header.base_offset: header for header in headers(log)}
    # Neither producer has expired: their last batches stay without records.
    assert {offset: header.record_count for offset, header in kept.items()} == {
        0: 1, 1: 0, 3: 0, abort: 1, commit: 1, 6: 1, 7: 1,
    }  # fmt: skip
    assert (kept[1].last_offset, kept[1].last_sequence, kept[1].is_transactional) == (2, 1, True)
    result = log.read(0, 1 << 20, log.log_end_offset, with_aborted=True)
    assert [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in result.aborted] == [(1, 1, abort)]
    assert contents(reopened(log)) == contents(log)
    # The producers are forgotten: the empty batches go, then the markers get a horizon, then they go.
    log.producers.entries.clear()
    compact(log, 0, now_ms=NOW)
    assert [header.base_offset for header in headers(log)] == [0, abort, commit, 6, 7]
    assert not any(header.has_delete_horizon for header in headers(log))
    compact(log, 0, now_ms=NOW + 1)
    assert all(header.base_timestamp == NOW + 1 + DAY for header in headers(log) if header.is_control)
    compact(log, 0, now_ms=NOW + DAY)
    assert [header.base_offset for header in headers(log)] == [0, abort, commit, 6, 7]
    compact(log, 0, now_ms=NOW + 1 + DAY)
    assert [header.base_offset for header in headers(log)] == [0, 6, 7]
    assert log.read(0, 1 << 20, log.log_end_offset, with_aborted=True).aborted == []


def test_a_marker_stays_for_the_epoch_of_a_producer_without_data() -> None:
    log = compacted_log(delete_retention_ms=0)
    put(log, (b"a", b"1"), pid=1, epoch=0, seq=0, txn=True)
    marker = mark(log, 1, commit=True, epoch=1)
    put(log, (b"a", b"2"))
    log.roll(NOW)
    for _ in range(3):
        compact(log, 0)
    assert [(header.base_offset, header.record_count) for header in headers(log)] == [(marker, 0), (2, 1)]
    assert [entry.epoch for entry in log.producers.entries.values()] == [1]


def test_the_last_offset_of_what_was_cleaned_stays_known() -> None:
    log = compacted_log(cleanup_policy=frozenset({"delete"}))
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"), (b"b", b"1"))
    put(log, (None, b"no key"))
    log.roll(NOW)
    # The topic is compacted from now on: records without a key go, as in Apache Kafka.
    log.config = COMPACT
    cleaned = compact(log)
    assert cleaned is not None
    assert cleaned.stats.invalid_messages == 1
    last = headers(log)[-1]
    assert (last.base_offset, last.last_offset, last.record_count) == (3, 3, 0)
    assert reopened(log).log_end_offset == 4


def test_a_small_map_takes_several_passes() -> None:
    log = compacted_log()
    for n in range(40):
        put(log, (b"%d" % (n % 20), b"v%d" % n), (b"%d" % (n * 7 % 20), b"w%d" % n))
        if n % 5 == 4:
            log.roll(NOW)
    put(log, (b"end", b""))
    expected = {key: offset for offset, (key, _) in sorted(contents(log).items())}
    memory = CleanerMemory(map_bytes=6 * SLOT_SIZE, load_factor=0.9, io_buffer_bytes=64)
    passes, at = 0, 0
    while at < 80:
        cleaned = compact(log, at, memory=memory)
        assert cleaned is not None
        assert at < cleaned.end_offset <= 80, "every pass gets on"
        assert cleaned.stats.buffer_utilization <= 0.9
        at = cleaned.end_offset
        passes += 1
    assert passes > 3
    # Every pass removes records older than those in its map; the newest record of each key is never lost.
    now = contents(log)
    assert {key: offset for offset, (key, _) in sorted(now.items())} == expected
    compact(log, 0)
    assert {offset: key for offset, (key, _) in contents(log).items()} == {o: k for k, o in expected.items()}


def test_damage_makes_a_log_uncleanable_and_says_where() -> None:
    log = compacted_log()
    put(log, (b"a", b"1"))
    position = log.files.segments[0].size
    put(log, (b"b", b"value"))
    log.roll(NOW)
    found = cleanable(log, None, NOW)
    log.flush()
    log.files.segments[0].file.pwritev([b"X"], position + 70)
    replacement = log.begin_replacement(found, memory=CleanerMemory(), seed=SEED, now_ms=NOW)
    with pytest.raises(Uncleanable, match=rf"00000\.log at position {position}: the checksum does not match"):
        list(clean(log.files.disk, replacement.cleaning))
    assert not [name for name in log.files.disk.list(log.path) if name.endswith(".cleaned")]


def test_what_is_cleanable() -> None:
    log = compacted_log(min_compaction_lag_ms=1000)
    put(log, (b"a", b"1"), timestamp=NOW - 2000)
    log.roll(NOW)
    put(log, (b"a", b"2"), timestamp=NOW - 500)
    log.roll(NOW)
    put(log, (b"a", b"3"), timestamp=NOW - 5000)
    log.roll(NOW)
    sizes = [segment.size for segment in log.files.segments]
    found = cleanable(log, None, NOW)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 1)
    assert (found.clean_bytes, found.cleanable_bytes, found.ratio) == (0, sizes[0], 1.0)
    log.config = replace(log.config, min_compaction_lag_ms=0)
    found = cleanable(log, 1, NOW)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (1, 3)
    assert (found.clean_bytes, found.cleanable_bytes) == (sizes[0], sizes[1] + sizes[2])
    assert not found.must_be_cleaned
    log.config = replace(log.config, max_compaction_lag_ms=400)
    assert cleanable(log, 1, NOW).delay_ms == 4600, "of the oldest one that is dirty"
    assert cleanable(log, 3, NOW).delay_ms == 0
    assert cleanable(log, 3, NOW).cleanable_bytes == 0
    # An undecided transaction, or a record that is not replicated, ends the cleanable part.
    put(log, (b"t", b"1"), pid=1, epoch=0, seq=0, txn=True)
    log.roll(NOW)
    put(log, (b"a", b"4"))
    log.roll(NOW)
    assert cleanable(log, 1, NOW).first_uncleanable_offset == 3
    for checkpoint, invalid in ((99, "behind the log's end"), (-1, "before the log's start")):
        found = cleanable(log, checkpoint, NOW)
        assert found.first_dirty_offset == 0
        assert invalid in found.invalid_checkpoint


def test_groups_are_no_more_than_a_segment() -> None:
    config = LogConfig(segment_bytes=100, segment_index_bytes=50)
    segments = [
        SegmentSizes(0, 60, 8, 12),
        SegmentSizes(10, 40, 8, 12),
        SegmentSizes(20, 1, 8, 12),
        SegmentSizes(30, 1, 40, 12),
        SegmentSizes(40, 0, 8, 40),
        SegmentSizes(50, 1, 0, 0),
        SegmentSizes((1 << 31) + 40, 0, 0, 0),
        SegmentSizes((1 << 31) + 41, 1, 0, 0),
    ]
    assert group(segments, config, (1 << 31) + 100) == [2, 2, 3, 1]
    assert group([], config, 0) == []
