"""Apache Kafka's DumpLogSegments finds no fault in logs after a loss of power, checked on a sample of recovered
folders.

The losses are those of tests/log/test_power_loss.py; here the files of the memory disk are written to real files.
"""

from __future__ import annotations

import random
from pathlib import Path

from compat_tests.tool_server import run_shared
from compat_tests.torture.test_kills import COMPLAINTS
from testkit import needs
from testkit.logs.power_loss import Workload, start_directory
from testkit.logs.prefixes import crashes
from testkit.oracle.kafka import kafka_libs

SAMPLE = 12


def test_the_tool_reads_what_was_recovered(tmp_path: Path) -> None:
    needs.java()
    kafka_libs()
    files: list[Path] = []
    rng = random.Random(5)
    workload = Workload(5)
    workload.run(55)
    for crash in rng.sample(list(crashes(workload.disk.calls, rng)), SAMPLE):
        opened = start_directory(crash.disk)
        if opened is None:
            continue
        opened[0].close(clean=True)
        folder = tmp_path / str(crash.calls)
        folder.mkdir()
        for path, data in crash.disk.contents():
            name = path.rpartition("/")[2]
            if path.startswith("data/t-0/") and name.endswith((".log", ".index", ".timeindex", ".snapshot")):
                (folder / name).write_bytes(data)
                files.append(folder / name)
    assert len(files) > 3 * SAMPLE
    said = run_shared("org.apache.kafka.tools.DumpLogSegments", ["--files", ",".join(map(str, files))])
    for complaint in COMPLAINTS:
        assert complaint not in said.out + said.err, said.out[-3000:] + said.err[-3000:]
    assert said.out.count("isvalid: true") > SAMPLE
