"""A log against a trivial model, a dictionary of offsets: random appends, rolls, cuts, reads, deletions, restarts."""

from __future__ import annotations

import pathlib
import random
from dataclasses import replace

import pytest

from pykbroker_log.deletion import delete_files
from pykbroker_log.disk import Disk
from pykbroker_log.log_config import LogConfig
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.batch import build_batch, iter_batches
from pykbroker_wire.records.record import iter_records
from testkit.logs.helpers import NOW, check_consistent, open_log, values

STEPS = 120


class Model:
    """The expected log: (offset, timestamp, value, first offset of its batch, size of its batch) in order."""

    def __init__(self, disk: Disk, path: str, rng: random.Random) -> None:
        self.disk = disk
        self.path = path
        self.rng = rng
        self.config = LogConfig(
            segment_bytes=rng.choice([700, 1500, 5000]),
            index_interval_bytes=rng.choice([0, 100, 4096]),
            segment_index_bytes=rng.choice([64, 10 << 20]),
            segment_ms=rng.choice([200, 1 << 40]),
            retention_bytes=rng.choice([-1, 1500]),
            retention_ms=rng.choice([-1, 500]),
            file_delete_delay_ms=rng.choice([0, 100]),
        )
        self.records: dict[int, tuple[int, bytes]] = {}
        self.batches: list[tuple[int, int, int]] = []  # first offset, last offset, size
        self.start = self.end = self.epoch = 0
        self.now = NOW
        self.log = self.open(clean=False)

    def open(self, *, clean: bool) -> PartitionLog:
        log = open_log(
            self.disk,
            path=self.path,
            config=self.config,
            clean=clean,
            recovery_point=self.end if clean else 0,
            log_start_offset=self.start,
            high_watermark=self.end,
            now_ms=self.now,
        )
        assert clean is False or log.recovery is None
        return log

    # -- operations

    def append(self) -> None:
        count = self.rng.randrange(1, 5)
        # Not always in order, and sometimes without a timestamp.
        timestamp = self.now + self.rng.randrange(-100, 100) if self.rng.randrange(10) else -1
        made = [
            b"%d.%d" % (self.end, self.rng.randrange(1 << 30)) + b"." * self.rng.randrange(100) for _ in range(count)
        ]
        data = bytearray(
            build_batch(
                [(None, value, (), timestamp + i if timestamp >= 0 else -1) for i, value in enumerate(made)],
                codec=self.rng.randrange(0, 5),
            )
        )
        info = self.log.append_as_leader(data, leader_epoch=self.epoch, now_ms=self.now)
        assert (info.first_offset, info.last_offset) == (self.end, self.end + count - 1)
        self.add(made, timestamp, info.byte_count)

    def append_as_follower(self) -> None:
        parts = []
        end = self.end
        for _ in range(self.rng.randrange(1, 4)):
            count = self.rng.randrange(1, 4)
            made = [b"f%d" % self.rng.randrange(1 << 30) for _ in range(count)]
            data = build_batch(
                [(None, value, (), self.now) for value in made], base_offset=self.end, leader_epoch=self.epoch
            )
            parts.append(data)
            self.add(made, self.now, len(data), step=0)
        info = self.log.append_as_follower(b"".join(parts) + parts[0][: self.rng.randrange(50)])
        assert (info.first_offset, info.last_offset) == (end, self.end - 1)
        self.log.set_high_watermark(self.end)

    def add(self, made: list[bytes], timestamp: int, size: int, step: int = 1) -> None:
        self.batches.append((self.end, self.end + len(made) - 1, size))
        for index, value in enumerate(made):
            self.records[self.end] = (timestamp + index * step if timestamp >= 0 else -1, value)
            self.end += 1
        if step:
            self.log.set_high_watermark(self.end)

    def roll(self) -> None:
        self.log.roll(self.now)

    def next_epoch(self) -> None:
        self.epoch += 1

    def truncate(self) -> None:
        target = self.rng.randrange(max(self.start, self.end - 8), self.end + 1)
        self.log.truncate_to(target)
        while self.batches and self.batches[-1][1] >= target:
            first, last, _ = self.batches.pop()
            for offset in range(first, last + 1):
                del self.records[offset]
            self.end = first
        if self.end < self.start:
            # The cut went through the batch that contains the log start.
            self.end = self.start
            self.batches.clear()
            self.records.clear()
        self.check_bounds()

    def truncate_fully(self) -> None:
        if self.rng.randrange(4):
            return
        target = self.rng.randrange(self.end + 10)
        self.log.truncate_fully_and_start_at(target)
        self.start = self.end = target
        self.records.clear()
        self.batches.clear()

    def delete_records(self) -> None:
        target = self.rng.randrange(self.start, self.end + 1)
        self.log.delete_records_before(target)
        self.start = max(self.start, target)
        with pytest.raises(KafkaError):
            self.log.delete_records_before(self.end + 1)

    def reconfigure(self) -> None:
        """Change the configuration while the log is open; later operations follow the new one."""
        self.config = replace(
            self.config,
            segment_bytes=self.rng.choice([700, 1500, 5000]),
            segment_index_bytes=self.rng.choice([64, 10 << 20]),
            segment_ms=self.rng.choice([200, 1 << 40]),
            segment_jitter_ms=self.rng.choice([0, 150]),
            retention_bytes=self.rng.choice([-1, -1, 0, 1500, 4000]),
            retention_ms=self.rng.choice([-1, -1, 0, 500]),
            file_delete_delay_ms=self.rng.choice([0, 100]),
            cleanup_policy=frozenset(self.rng.choice([("delete",), ()])),
        )
        self.log.config = self.config

    def retire(self) -> None:
        self.start = self.expected_start()
        self.log.retire(self.now)
        self.check_bounds()
        delete_files(self.disk, self.log.purge(self.now))

    def expected_start(self) -> int:
        """In three passes, like Apache Kafka: segments below the log start, then too many bytes, then too old ones."""
        segments = list(self.log.files.segments)
        ends = [segment.base_offset for segment in segments[1:]] + [self.end]
        left = [(segment, end) for segment, end in zip(segments, ends, strict=True) if segment.size or end != self.end]
        active = segments[-1]
        start = self.start
        while left and left[0][0] is not active and left[0][1] <= start:
            left.pop(0)
        if self.config.delete:
            excess = sum(segment.size for segment, _ in left) - self.config.retention_bytes
            while left and self.config.retention_bytes >= 0 and excess >= left[0][0].size:
                segment, end = left.pop(0)
                excess -= segment.size
                start = max(start, end)
            while left and self.config.retention_ms >= 0:
                segment, end = left[0]
                newest = max(self.records[offset][0] for offset in range(segment.base_offset, end))
                if newest < 0:
                    newest = self.disk.modified_ms(segment.path(".log"))
                if self.now - newest <= self.config.retention_ms:
                    break
                left.pop(0)
                start = max(start, end)
        return start

    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    def restart(self) -> None:
        clean = bool(self.rng.randrange(2))
        self.log.close(clean=clean)
        if isinstance(self.disk, MemoryDisk):
            self.disk = self.disk.power_loss(Survive.EVERYTHING)
        self.log = self.open(clean=clean)

    # -- comparisons

    def check_bounds(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)

    def read(self) -> None:
        if self.start == self.end:
            return
        offset = self.rng.randrange(self.start, self.end)
        upper = self.rng.choice([self.end, *(first for first, _, _ in self.batches if first > offset)])
        limit = self.rng.choice([0, 1, 100, 500, 1 << 20])
        min_one = bool(self.rng.randrange(2))
        result = self.log.read(offset, limit, upper, min_one=min_one)
        data = result.joined()
        assert len(data) == result.size
        found = list(iter_batches(data))
        expected = [entry for entry in self.batches if entry[1] >= offset and entry[1] < upper]
        first = expected[0] if expected else None
        if first is None or (first[2] > limit and not min_one):
            assert not found
            return
        assert found[0][1].base_offset == first[0] == result.first_offset
        assert [header.size_in_bytes for _, header in found] == [size for _, _, size in expected[: len(found)]]
        assert result.size <= limit or len(found) == 1
        assert result.next_offset == found[-1][1].next_offset
        for position, header in found:
            for record in iter_records(data, position, header):
                assert bytes(record.value or b"") == self.records[record.offset][1]

    def read_out_of_range(self) -> None:
        for offset in (self.start - 1, self.end + 1):
            with pytest.raises(KafkaError) as error:
                self.log.read(offset, 1, self.end)
            assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert self.log.read(self.end, 100, self.end).size == 0

    def by_time(self) -> None:
        live = {offset: self.records[offset][0] for offset in self.records if offset >= self.start}
        target = self.now + self.rng.randrange(-2000, 150)
        expected = next((offset for offset, timestamp in live.items() if timestamp >= target), None)
        found = self.log.offset_for_timestamp(target)
        assert (found[0] if found else None) == expected
        if found:
            assert found[1] == live[found[0]]

    def newest(self) -> None:
        timestamps = [
            timestamp for timestamp, _ in (self.records[offset] for offset in self.records if offset >= self.start)
        ]
        found = self.log.offset_of_max_timestamp()
        if found is not None and max(timestamps, default=-1) == found[1]:
            assert self.records[found[0]][0] == found[1]

    def run(self) -> None:
        operations = [
            (self.append, 30), (self.append_as_follower, 6), (self.roll, 3), (self.next_epoch, 2), (self.truncate, 3),
            (self.truncate_fully, 1), (self.delete_records, 3), (self.retire, 5), (self.reconfigure, 3),
            (self.flush, 3), (self.restart, 3),
            (self.read, 20), (self.read_out_of_range, 2), (self.by_time, 6), (self.newest, 2),
        ]  # fmt: skip
        names, weights = zip(*operations, strict=True)
        for _ in range(STEPS):
            self.now += self.rng.randrange(40)
            self.rng.choices(names, weights)[0]()
            self.check_bounds()
        check_consistent(self.log)
        assert values(self.log) == {o: value for o, (_, value) in self.records.items() if o >= self.start}
        self.log.close(clean=True)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_in_memory(block: int) -> None:
    for seed in range(block * 25, block * 25 + 25):
        try:
            Model(MemoryDisk(record=False), "data/t-0", random.Random(seed)).run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.slow
def test_on_disk(tmp_path: pathlib.Path) -> None:
    for seed in range(200, 210):
        try:
            Model(OsDisk(), f"{tmp_path}/{seed}/t-0", random.Random(seed)).run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
