"""More segments than the process may have descriptors: everything is read, and no limit is met."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

SCRIPT = """
import os, random, resource, socket, struct, sys
folder, count, limit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.log_config import LogConfig
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.records.batch import build_batch, stamp

os.mkdir(folder)
value = b"v" * 70_000
sample = bytearray(build_batch([(None, value, (), 1_700_000_000_000)]))
for number in range(count):
    stamp(sample, 0, number, 0)
    # Few of them are large enough to be sent from the file; holes cost the disk nothing.
    size = len(sample)
    with open(f"{folder}/{number:020}.log", "wb") as file:
        file.write(sample[:100])
        file.truncate(size)
    open(f"{folder}/{number:020}.index", "wb").close()
    with open(f"{folder}/{number:020}.timeindex", "wb") as file:
        file.write(struct.pack(">qi", 1_700_000_000_000, 0))
disk = OsDisk()
log = PartitionLog.open(
    disk, folder, topic="t", partition=0, topic_id=bytes(16), config=LogConfig(), now_ms=1_700_000_000_000,
    clean=True, recovery_point=count,
)
assert len(log.files.segments) == count, len(log.files.segments)
assert log.log_end_offset == count, log.log_end_offset
log.set_high_watermark(count)
# As many sockets as a broker leaves room for.
pairs = [socket.socketpair() for _ in range(limit // 8)]
kept = []
choice = random.Random(1)
order = list(range(0, count, max(1, count // 20_000)))
choice.shuffle(order)
for turn, number in enumerate(order):
    result = log.read(number, 1 << 20, count, regions=True, with_aborted=True)
    assert (result.first_offset, result.next_offset) == (number, number + 1)
    if turn % 3 == 0:
        kept.append(result)  # a connection that is slow
        if len(kept) > 2 * limit:
            kept.pop(choice.randrange(len(kept)))
    if turn == 5000:
        assert log.offset_for_timestamp(1_800_000_000_000) is None
    if turn % 1000 == 0:
        descriptors = len(os.listdir("/proc/self/fd"))
        assert descriptors <= limit // 2 + 2 * len(pairs) + 20, descriptors
        maps = open("/proc/self/maps").read().count(folder)
        assert maps == 0, maps
regions = sum(not isinstance(part, bytes) for result in kept for part in result.slices)
assert 0 < regions < len(kept)
print("read", len(order))
"""


def run(folder: pathlib.Path, count: int, limit: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder / "t-0"), str(count), str(limit)],
        cwd=ROOT,
        env={"PYTHONPATH": ":".join(str(ROOT / part) for part in ("wire", "log"))},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("read ")


@pytest.mark.slow
@pytest.mark.skipif(not pathlib.Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_10_000_segments_with_256_descriptors(tmp_path: pathlib.Path) -> None:
    run(tmp_path, 10_000, 256)


@pytest.mark.long(amount="100,000 segments")
@pytest.mark.skipif(not pathlib.Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_100_000_segments_with_1024_descriptors(tmp_path: pathlib.Path) -> None:
    """More than vm.max_map_count, 65,530, and far more than `ulimit -n`."""
    run(tmp_path, 100_000, 1024)
