"""Whatever the side files contain, a log that is opened returns the same records.

Indexes, snapshots, checkpoints and leftovers of compaction are torn, flipped, emptied, removed or exchanged for those
of another log. Reads, and searches by offset and by time, must return what the batches contain. A whole file without a
checksum counts as true: a log start or an epoch that another program wrote there.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import hypothesis
import pytest
from hypothesis import strategies as st

from pykbroker_log import names
from pykbroker_log.log_config import AppendOrigin, LogConfig
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.records.batch import build_batch
from pykbroker_wire.records.control import end_txn_marker
from testkit.logs.helpers import NOW, TOPIC_ID, values
from testkit.logs.prefixes import copy_of

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100, retention_ms=-1)
FOLDER = "data/t-0"
TXN, PLAIN = 7, 8
#: the number of aborted transactions in the log
ABORTED = 2
#: the age of the newest record to search for, in milliseconds before NOW
TIMES = range(-12, 90)


class Told(NamedTuple):
    """The results of all reads and searches."""

    records: dict[int, bytes]
    found: list[tuple[int, int]]
    by_time: list[tuple[int, int, int] | None]
    newest: tuple[int, int, int] | None
    end: int
    aborted: list[set[tuple[int, int]]]


def ask(log: PartitionLog, start: int) -> Told:
    """Read from `start` on: a lost log start brings back deleted records of its segment."""
    log.set_high_watermark(log.log_end_offset)
    log.delete_records_before(start)
    end = log.log_end_offset
    reads = [log.read(offset, 1, end, with_aborted=True) for offset in range(start, end)]
    return Told(
        values(log),
        [(read.first_offset, read.next_offset) for read in reads],
        [log.offset_for_timestamp(NOW + time) for time in TIMES],
        log.offset_of_max_timestamp(),
        end,
        [{(aborted.producer_id, aborted.first_offset) for aborted in read.aborted} for read in reads],
    )


def open_directory(disk: MemoryDisk) -> tuple[LogDir, PartitionLog]:
    log_dir = LogDir.open(disk, "data", bytes(16), NOW)
    return log_dir, log_dir.open_log("t", 0, TOPIC_ID, CONFIG, NOW)


@functools.cache
def written(seed: int, *, clean: bool) -> MemoryDisk:
    """A directory with a log of some segments; another seed is another log with the same offsets."""
    disk = MemoryDisk(record=False)
    disk.make_dirs("data")
    log_dir, log = open_directory(disk)
    sequences = {TXN: 0, PLAIN: 0}
    for number in range(40):
        pid = TXN if number % 4 == 0 else PLAIN
        time = NOW + number * 2 + (-11, 0, 3)[(number + seed) % 3]
        body = b"%d.%d" % (seed, number) + b"." * ((number * 7 + seed * 5) % 30)
        made = build_batch(
            [(None, body, (), time)],
            producer_id=pid,
            producer_epoch=0,
            base_sequence=sequences[pid],
            transactional=pid == TXN,
        )
        log.append_as_leader(bytearray(made), leader_epoch=number // 15, now_ms=NOW)
        sequences[pid] += 1
        if number % 8 == 4:
            marker = end_txn_marker(
                commit=number % 16 == 4, producer_id=TXN, producer_epoch=0, coordinator_epoch=0, timestamp=time
            )
            log.append_as_leader(
                bytearray(marker), leader_epoch=number // 15, now_ms=NOW, origin=AppendOrigin.COORDINATOR
            )
        log.set_high_watermark(log.log_end_offset)
        if number == 30:
            log.flush()
            log.delete_records_before(3)
            log_dir.checkpoints.write_all()
    if clean:
        log_dir.close(clean=True)
    return disk.power_loss(Survive.EVERYTHING)


@functools.cache
def told(*, clean: bool) -> tuple[int, Told]:
    _, log = open_directory(copy_of(written(0, clean=clean)))
    start = log.log_start_offset
    return start, ask(log, start)


def content(disk: MemoryDisk, path: str) -> bytes:
    return dict(disk.contents())[path]


def put(disk: MemoryDisk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.pwritev([data], 0)
    file.close()


#: Damage that cannot always be found from the batches that are read anyway is left out. Texts have no checksum, as
#: Apache Kafka writes them: a flipped digit is another number. A whole entry in a time index or among the aborted
#: transactions cannot be checked, and a segment without aborted transactions has no file for them.
WAYS = {
    names.LOG_START_OFFSETS: ("gone", "zeros", "cut", "noise", "longer"),
    names.LEADER_EPOCHS: ("gone", "zeros", "cut", "noise", "longer"),
    names.SNAPSHOT: ("gone", "zeros", "cut", "noise", "longer", "flipped"),
    names.TIME_INDEX: ("gone", "zeros", "torn"),
    names.TXN_INDEX: ("torn",),
}


def side_files(disk: MemoryDisk) -> list[str]:
    return [
        path
        for path, _ in disk.contents()
        if not path.endswith((names.LOG, names.LOCK, names.CLEAN_SHUTDOWN, names.PARTITION_METADATA))
    ]


def kind_of(path: str) -> str:
    name = path.rpartition("/")[2]
    return name[20:] if name[:20].isdigit() else name


@st.composite
def damages(draw: st.DrawFn) -> tuple[bool, list[tuple[str, bytes | None]]]:
    """Draw whether the stop was clean, and the new contents of the files; None for a file that is gone."""
    clean = draw(st.booleans())
    disk = written(0, clean=clean)
    others = {path: data for seed in (0, 1) for path, data in written(seed, clean=not clean).contents()}
    done: list[tuple[str, bytes | None]] = []
    for path in draw(st.lists(st.sampled_from(side_files(disk)), min_size=1, max_size=3, unique=True)):
        data = content(disk, path)
        ways = WAYS.get(kind_of(path), ("gone", "zeros", "cut", "noise", "longer", "flipped", "another"))
        match draw(st.sampled_from(ways)):
            case "gone":
                done.append((path, None))
            case "torn":
                done.append((path, data[: draw(st.integers(0, max(0, len(data) // 2 - 1))) * 2 + 1]))
            case "cut":
                done.append((path, data[: draw(st.integers(0, len(data)))]))
            case "noise":
                done.append((path, draw(st.binary(max_size=2 * len(data) + 24))))
            case "zeros":
                done.append((path, bytes(len(data))))
            case "longer":
                done.append((path, data + draw(st.binary(min_size=1, max_size=30))))
            case "flipped" if data:
                at = draw(st.integers(0, 8 * len(data) - 1))
                done.append((path, data[: at // 8] + bytes([data[at // 8] ^ 1 << at % 8]) + data[at // 8 + 1 :]))
            case _:
                alike = sorted(other for other in others if kind_of(other) == kind_of(path))
                done.append((path, others[draw(st.sampled_from(alike))]))
    left = draw(st.sampled_from(["", names.CLEANED, names.DELETED, ".index" + names.SWAP]))
    if left:
        name = names.segment_file(draw(st.integers(0, 40)), names.LOG if left[1:6] != "index" else "") + left
        done.append((f"{FOLDER}/{name}", draw(st.binary(max_size=80))))
    return clean, done


def begun_before(end: int, aborted: set[tuple[int, int]]) -> set[tuple[int, int]]:
    return {(producer_id, first) for producer_id, first in aborted if first < end}


def check(case: tuple[bool, list[tuple[str, bytes | None]]]) -> None:
    clean, done = case
    disk = copy_of(written(0, clean=clean))
    for path, data in done:
        if data is None:
            disk.unlink(path)
        else:
            put(disk, path, data)
    start, expected = told(clean=clean)
    _, log = open_directory(disk)
    assert log.log_start_offset <= start
    found = ask(log, start)
    assert found[:-1] == expected[:-1]
    real = set().union(*expected.aborted)
    assert len(real) == ABORTED
    for (_, end), told_of, named in zip(expected.found, expected.aborted, found.aborted, strict=True):
        # A missing transaction shows aborted records, and an extra one hides records that were not aborted.
        assert begun_before(end, named) == begun_before(end, told_of)
        # An index with fewer entries returns some that begin after the read, as in Apache Kafka, but only real ones.
        assert named <= real


SETTINGS = hypothesis.settings(
    deadline=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck), database=None
)


@pytest.mark.slow
@hypothesis.settings(SETTINGS, max_examples=80)
@hypothesis.given(damages())
def test_a_log_says_the_same_whatever_lies_beside_it(case: tuple[bool, list[tuple[str, bytes | None]]]) -> None:
    check(case)


@pytest.mark.long(amount="20,000 damages")
@pytest.mark.timeout(3600)
@hypothesis.settings(SETTINGS, max_examples=20_000)
@hypothesis.given(damages())
def test_a_log_says_the_same_whatever_lies_beside_it_for_longer(
    case: tuple[bool, list[tuple[str, bytes | None]]],
) -> None:
    check(case)
