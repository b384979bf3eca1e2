"""The memory of a cleaning: the offset map and little more, however many keys there are."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from pykbroker_log.log_config import LogConfig
from pykbroker_log.os_disk.disk import OsDisk
from testkit.logs.helpers import open_log
from tests.log.compacting import contents, newest, put

CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=1 << 20)
MIB = 1 << 20
#: A separate process, so that its memory is that of the cleaning and nothing else.
PROGRAM = """
import sys
from pykbroker_log.compaction import CleanerMemory
from pykbroker_log.os_disk.disk import OsDisk
from tests.log.compacting import compact
from testkit.logs.helpers import open_log
from tests.log.test_compaction_memory import CONFIG

def memory():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon:")) * 1024

log = open_log(OsDisk(), config=CONFIG, path=sys.argv[1], clean=True, recovery_point=1 << 60)
log.set_high_watermark(log.log_end_offset)
before, seen, passes, at = memory(), [], 0, 0
while cleaned := compact(
    log, at, memory=CleanerMemory(map_bytes=int(sys.argv[2])), between=lambda: seen.append(memory())
):
    at, passes = cleaned.end_offset, passes + 1
log.close(clean=True)
print(passes, max(seen) - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux says how much memory a process has")
@pytest.mark.parametrize(
    ("keys", "map_bytes", "passes", "most"),
    # 24 bytes for each key, of which nine tenths of the map are used; and buffers.
    [(30_000, MIB // 8, range(6, 20), MIB // 8 + 4 * MIB), (2000, 128 * MIB, range(1, 2), 4 * MIB + 2000 * 4096)],
    ids=["many keys in a small map", "few keys in a large one"],
)
def test_the_offset_map_bounds_the_memory_of_a_cleaning(
    tmp_path: Path, keys: int, map_bytes: int, passes: range, most: int
) -> None:
    rng = random.Random(keys)
    path = f"{tmp_path}/t-0"
    log = open_log(OsDisk(), config=CONFIG, path=path)
    for _ in range(60):
        put(log, *((b"key-%d" % rng.randrange(keys), rng.randbytes(20)) for _ in range(1000)))
    log.roll(0)
    put(log, (b"end", b""))
    expected = newest(list(contents(log).items()))
    log.close(clean=True)
    command = [sys.executable, "-c", PROGRAM, path, str(map_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    passed, grown = map(int, done.stdout.split())
    assert passed in passes
    assert grown < most
    log = open_log(OsDisk(), config=CONFIG, path=path, clean=True)
    log.set_high_watermark(log.log_end_offset)
    found = contents(log)
    assert len(found) == len(expected)
    assert newest(list(found.items())) == expected
    log.close(clean=True)
