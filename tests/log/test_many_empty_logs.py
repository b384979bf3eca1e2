"""Logs without records: their memory, their files, and that objects shared by empty logs never mix their state. A node
has thousands of them."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest

from pykbroker_log.log_config import LogConfig
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_log.os_disk.disk import OsDisk
from testkit.logs.helpers import NOW, TOPIC_ID, append, batch, open_log
from tests.log.test_transactions import end, send

_LOG, _INDEX, _TIMES = (f"{0:020}.{suffix}" for suffix in ("log", "index", "timeindex"))
#: 2.0 KB today, with the descriptor of the file and the directory's entries for the log.
_MOST_BYTES = 2_600


def test_an_empty_log_has_no_index_before_it_needs_one_and_both_after_a_clean_stop() -> None:
    disk = MemoryDisk()
    log = open_log(disk, clean=True)
    assert {_LOG, _INDEX, _TIMES} & set(disk.list(log.path)) == {_LOG}
    log.flush()
    log.retire(NOW)
    log.purge(NOW)
    assert not log.read(0, 100, 0).joined()
    assert {_LOG, _INDEX, _TIMES} & set(disk.list(log.path)) == {_LOG}
    log.close(clean=True)
    # Apache Kafka recovers a segment without these files.
    assert {_LOG, _INDEX, _TIMES} <= set(disk.list(log.path))
    again = open_log(disk, clean=True)
    assert again.recovery is None
    assert append(again, b"first") == 0


@pytest.mark.slow
def test_what_an_empty_log_takes(tmp_path: Path) -> None:
    directory = LogDir.open(OsDisk(), str(tmp_path), TOPIC_ID, NOW)
    config, count = LogConfig(), 200

    def opened(first: int) -> None:
        for partition in range(first, first + count):
            directory.open_log("t", partition, TOPIC_ID, config, NOW)

    # Objects that the first logs create for all.
    opened(0)
    gc.collect()
    tracemalloc.start()
    try:
        opened(count)
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] / count
    finally:
        tracemalloc.stop()
        directory.close(clean=False)
    assert taken < _MOST_BYTES


def test_what_one_log_holds_no_other_log_shows() -> None:
    disk = MemoryDisk()
    log, other = open_log(disk, path="data/t-0"), open_log(disk, path="data/t-1")
    append(log, b"v0")
    assert log.read(0, 100, 1).joined()
    log.append_as_leader(batch(b"v1", pid=3, epoch=0, seq=0), leader_epoch=4, now_ms=NOW)
    send(log, 7)
    log.producers.begin_verification(8, 0, 0, supports_epoch_bump=True, now_ms=NOW)
    log.roll(NOW)
    log.flush()
    assert (list(log.producers.entries), log.producers.transactions.first_unstable) == ([3, 7], 2)
    assert (log.epochs.latest, len(log.producers.verifications), log.files.side.snapshots) == (4, 1, (3,))
    end(log, 7, commit=True)
    for empty in (other, open_log(disk, path="data/t-2")):
        assert not empty.producers.entries
        assert not empty.producers.verifications
        assert empty.producers.transactions.first_unstable == -1
        assert (empty.epochs.entries(), empty.files.side.snapshots, empty.last_stable_offset) == ([], (), 0)
        assert not empty.read(0, 100, 0).joined()
    # From there on the logs are independent.
    send(other, 7)
    log.producers.clear(0)
    assert list(other.producers.entries) == [7]
    assert other.producers.transactions.first_unstable == 0
