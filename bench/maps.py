"""Maps compared with reads (docs/decisions/0017-what-is-mapped.md): the scans of workers, and one look-up in an index.

    python bench/maps.py

Each figure is the least CPU time of some rounds, and the two sides take turns.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / part) for part in ("", "wire", "log", "raft")]

from bench.libraries import least, show  # noqa: E402
from pykbroker.runtime.workers import finish  # noqa: E402
from pykbroker.tools.dump.verify import DirectoryVerifier  # noqa: E402
from pykbroker_log.compaction import CleanerMemory, CleaningJob, SegmentSource, clean  # noqa: E402
from pykbroker_log.log_config import LogConfig  # noqa: E402
from pykbroker_log.os_disk.disk import OsDisk  # noqa: E402
from pykbroker_log.os_disk.files import OsFile  # noqa: E402
from pykbroker_log.partition_log import PartitionLog  # noqa: E402
from pykbroker_log.recovery_job import Unrecovered, recover  # noqa: E402
from pykbroker_wire.records.batch import build_batch  # noqa: E402

_ROUNDS = 7
_NOW_MS = 1_700_000_000_000
_CONFIG = LogConfig(segment_bytes=64 << 20, cleanup_policy=frozenset({"compact"}))
#: (megabytes, records in a batch, bytes of a value)
_SHAPES = [(24, 1, 100), (96, 50, 100), (128, 16, 1000), (256, 1, 512 << 10)]
_INDEX_BYTES = 2 << 20
_PAGE = 4096
_LOOK_UPS = 20_000


def cpu_ms(work: Callable[[], object]) -> Callable[[], float]:
    def run() -> float:
        begin = time.process_time()
        work()
        return (time.process_time() - begin) * 1000

    return run


def fill(path: str, megabytes: int, records: int, value_bytes: int) -> tuple[int, tuple[SegmentSource, ...]]:
    """Where the log ends, and its segments."""
    log = PartitionLog.open(
        OsDisk(), path, topic="t", partition=0, topic_id=bytes(range(16)), config=_CONFIG, now_ms=_NOW_MS
    )
    rng = random.Random(1)
    value = rng.randbytes(value_bytes)
    keys = (megabytes << 20) // (value_bytes + 80) // 2 + 1
    while log.size_bytes < megabytes << 20:
        batch = build_batch([(b"%016d" % rng.randrange(keys), value, (), _NOW_MS) for _ in range(records)])
        log.append_as_leader(bytearray(batch), leader_epoch=0, now_ms=_NOW_MS)
    sources = tuple(SegmentSource(segment.base_offset, segment.size) for segment in log.files.segments)
    end = log.log_end_offset
    log.close(clean=True)
    return end, sources


def scans(folder: str) -> None:
    for shape in _SHAPES:
        path = f"{folder}/{shape[1]}-{shape[2]}/t-0"
        end, sources = fill(path, *shape)
        unrecovered = Unrecovered(path, _CONFIG, 0, 0, 86_400_000, _NOW_MS, True)
        cleaning = CleaningJob(path, sources, (), 0, end, {}, _CONFIG, CleanerMemory(), bytes(16), _NOW_MS)
        batches = f"{shape[0]} MB of batches of {shape[1]} x {shape[2]} B"
        scan(f"recovery, {batches}", partial(recovered, [unrecovered]))
        scan(f"dump-log --verify, {batches}", partial(verified, path))
        scan(f"compaction, {batches}", partial(cleaned, cleaning))


def recovered(logs: list[Unrecovered], disk: OsDisk) -> object:
    return finish(recover, disk, logs)


def verified(path: str, disk: OsDisk) -> object:
    return list(DirectoryVerifier(disk).verify(path))


def cleaned(job: CleaningJob, disk: OsDisk) -> object:
    return finish(clean, disk, job)


def scan(title: str, work: Callable[[OsDisk], object]) -> None:
    read = cpu_ms(lambda: work(OsDisk()))
    mapped = cpu_ms(lambda: work(OsDisk(on_map=lambda path: None)))
    show(title, "ms", least(_ROUNDS, read=read, map=mapped))


class _Page:
    """The ways to read one page of an index."""

    def __init__(self, file: OsFile) -> None:
        self._file = file
        self._disk = OsDisk()
        self._map = mmap.mmap(file.take().fd, 0, access=mmap.ACCESS_READ)
        private = mmap.mmap(file.take().fd, 0, access=mmap.ACCESS_COPY)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(private))
        self._mincore = ctypes.CDLL(None).mincore
        self._mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
        self._present = ctypes.create_string_buffer(1)

    def read(self, position: int) -> bytes:
        return self._file.pread(_PAGE, position)

    def slice(self, position: int) -> bytes:
        return self._map[position : position + _PAGE]

    def asked(self, position: int) -> bytes:
        """Return a slice of the map if the page is in memory, otherwise read it, as a broker would have to."""
        if self._mincore(self._address + position, _PAGE, self._present) or not self._present.raw[0] & 1:
            return self._file.pread(_PAGE, position)
        return self._map[position : position + _PAGE]


def look_ups(folder: str) -> None:
    path = f"{folder}/index"
    Path(path).write_bytes(os.urandom(_INDEX_BYTES))
    disk = OsDisk()
    file = disk.open(path)
    page = _Page(file)
    rng = random.Random(1)
    positions = [rng.randrange(_INDEX_BYTES // _PAGE) * _PAGE for _ in range(_LOOK_UPS)]

    def each(look: Callable[[int], bytes]) -> Callable[[], float]:
        def work() -> None:
            for position in positions:
                look(position)

        run = cpu_ms(work)
        return lambda: run() * 1000 / _LOOK_UPS

    def hurried(position: int) -> bytes:
        with disk.without_waiting():
            return file.pread(_PAGE, position)

    show(
        "one page of an index, warm",
        "us",
        least(_ROUNDS, read=each(page.read), hurried=each(hurried), slice=each(page.slice), asked=each(page.asked)),
    )


def cold_look_ups(folder: str) -> None:
    """Measure the first page of an index that is not in memory, with a new map and with an open file."""
    path = f"{folder}/cold"
    Path(path).write_bytes(os.urandom(_INDEX_BYTES))
    file = OsDisk().open(path)
    file.fsync()

    def forget() -> None:
        os.posix_fadvise(file.take().fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def by_map() -> None:
        with mmap.mmap(file.take().fd, 0, access=mmap.ACCESS_READ) as mapped:
            _ = mapped[_PAGE : 2 * _PAGE]

    def after(work: Callable[[], object]) -> Callable[[], float]:
        def run() -> float:
            forget()
            return cpu_ms(work)() * 1000

        return run

    show(
        "one page of an index, cold",
        "us",
        least(50, read=after(lambda: file.pread(_PAGE, _PAGE)), map=after(by_map)),
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        look_ups(where)
        cold_look_ups(where)
        scans(where)
