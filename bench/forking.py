"""Measures `pykbroker fork --link`: 1,000 partitions, each with three closed segments and a tail of 8 KB.

    python -m bench.forking [--partitions N] [FOLDER]

The source is made in a temporary folder (below FOLDER, if it is given) and forked several times. Each fork has a name
of its own, and all are removed at the end, because ext4 is slow to create files for half a minute after many were
deleted. Cold means that the page cache and the names in memory were dropped before, which needs root.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time

from pykbroker.storage.forks import ForkReport, Pair, Wanted, fork
from pykbroker_log import names
from pykbroker_log.checkpoints import encode_properties
from pykbroker_log.disk import write_new
from pykbroker_log.log_config import LogConfig
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.os_disk.volatile import VolatileDisk
from pykbroker_raft.metadata_storage import DIRECTORY
from pykbroker_wire.primitives import uuid_to_str
from pykbroker_wire.records.batch import build_batch

_NOW_MS = 1_700_000_000_000
_VALUE_BYTES = 8192
_BATCHES = 3 * 7 + 1
_CLUSTER_ID = uuid_to_str(b"c" * 16)
_DROP_CACHES = "/proc/sys/vm/drop_caches"


def make_source(path: str, partitions: int) -> None:
    disk = VolatileDisk()
    disk.make_dirs(f"{path}/{DIRECTORY}")
    own = {"cluster.id": _CLUSTER_ID, "directory.id": uuid_to_str(b"d" * 16), "node.id": "1", "version": "1"}
    write_new(disk, f"{path}/{names.META_PROPERTIES}", encode_properties(own, _NOW_MS))
    log_dir = LogDir.open(disk, path, b"d" * 16, _NOW_MS)
    config = LogConfig(segment_bytes=64 * 1024)
    for partition in range(partitions):
        log = log_dir.open_log("t", partition, b"t" * 16, config, _NOW_MS)
        for number in range(_BATCHES):
            records = [(None, os.urandom(_VALUE_BYTES), (), _NOW_MS)]
            data = build_batch(records, producer_id=1, producer_epoch=0, base_sequence=number)
            log.append_as_leader(bytearray(data), leader_epoch=0, now_ms=_NOW_MS)
        log.set_high_watermark(log.log_end_offset)
        assert len(log.files.segments) == 4
    log_dir.close(clean=True)
    os.sync()


def measure(source: str, target: str) -> tuple[float, ForkReport]:
    wanted = Wanted([Pair(source, target)], uuid_to_str(b"n" * 16), may_link=True, now_ms=_NOW_MS)
    start = time.perf_counter()
    report = fork(OsDisk(), wanted, lambda addresses: ())
    return time.perf_counter() - start, report


def drop_caches() -> bool:
    os.sync()
    try:
        with open(_DROP_CACHES, "w") as file:
            file.write("3")
    except OSError:
        return False
    return True


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--partitions", type=int, default=1000)
    words.add_argument("folder", nargs="?")
    given = words.parse_args()
    folder = tempfile.mkdtemp(prefix="forking-", dir=given.folder)
    try:
        source = f"{folder}/source"
        make_source(source, given.partitions)
        for number in range(5):
            seconds, report = measure(source, f"{folder}/warm-{number}")
            done = report.forked
            print(
                f"warm: {seconds:.2f} s, {done.linked_files} linked, {done.copied_files} copied, "
                f"{done.written_bytes / 1e6:.1f} MB written",
                flush=True,
            )
        for number in range(2):
            if not drop_caches():
                print("cold: not measured, because the caches cannot be dropped here")
                break
            print(f"cold: {measure(source, f'{folder}/cold-{number}')[0]:.2f} s", flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
