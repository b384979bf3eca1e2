"""A view of a running pipeline from outside: it reads the lake's log and Spark's checkpoints, which are files."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from example.sending import Delivered
from pipeline.lake import commits

#: Topic and partition -> the offset after the last record.
Ends = dict[tuple[str, int], int]


def offsets(file: Path) -> Ends:
    """Return the end offsets of a batch as Spark has planned it; the smallest where a query reads a topic twice."""
    ends: Ends = {}
    for line in file.read_text().splitlines()[2:]:  # after the version and the metadata
        for topic, partitions in (json.loads(line) if line.startswith("{") else {}).items():
            for partition, offset in partitions.items():
                place = topic, int(partition)
                ends[place] = min(offset, ends.get(place, offset))
    return ends


def batches(checkpoint: Path, folder: str) -> list[int]:
    """Return the batches that have a file in `offsets` (planned) or `commits` (done)."""
    return sorted(int(path.name) for path in checkpoint.glob(f"{folder}/*") if path.name.isdigit())


def ends_of_delivered(delivered: Iterable[Delivered]) -> Ends:
    ends: Ends = {}
    for one in delivered:
        place = one.topic, one.record.partition
        ends[place] = max(ends.get(place, 0), one.offset + 1)
    return ends


def has_read(checkpoint: Path, ends: Mapping[tuple[str, int], int]) -> bool:
    """Return True if a query has committed everything up to these ends."""
    done = batches(checkpoint, "commits")
    if not done:
        return False
    read = offsets(checkpoint / "offsets" / str(done[-1]))
    return all(read.get(place, 0) >= end for place, end in ends.items())


class LakeWatch:
    """Records when each batch was committed to the lake, and with how many files."""

    def __init__(self, lake: Path) -> None:
        self._log = lake / "_delta_log"
        self.committed_at_ms: dict[int, int] = {}
        self.files_written = 0
        self.compactions = 0
        self.files: set[str] = set()  # the files that the lake consists of now
        self._next = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lake-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._stopping.wait(0.02):
            self._look()

    def _look(self) -> None:
        while True:
            try:
                commit = commits.decode(self._next, (self._log / f"{self._next:020d}.json").read_text())
            except FileNotFoundError:
                return
            self._next += 1
            self.files.update(file.path for file in commit.adds)
            self.files.difference_update(commit.removes)
            note = commit.note
            if note is not None and note.kind == commits.BATCH and note.state.position is not None:
                self.committed_at_ms[note.state.position.batch] = time.time_ns() // 1_000_000
                self.files_written += len(commit.adds)
            self.compactions += note is not None and note.kind == commits.COMPACTION

    def freshness_s(self, checkpoint: Path, delivered: Iterable[Delivered]) -> Iterator[float]:
        """Yield for each delivered record the seconds until its batch was in the lake."""
        waiting = sorted(delivered, key=lambda one: one.offset)
        for batch, at_ms in sorted(self.committed_at_ms.items()):
            ends = offsets(checkpoint / "offsets" / str(batch))
            rest = []
            for one in waiting:
                if one.offset < ends.get((one.topic, one.record.partition), 0):
                    yield (at_ms - one.at_ms) / 1000
                else:
                    rest.append(one)
            waiting = rest
