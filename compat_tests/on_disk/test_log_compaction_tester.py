"""Apache Kafka's own LogCompactionTester, unchanged: it writes random keys with deletes into compacted topics, reads
everything back, and compares the newest value of each key.

4.3.1's test jars no longer have it, so it comes from those of 4.1.1 and runs on 4.3.1's clients.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from compat_tests.conftest import FreshBroker
from pykbroker_log.checkpoints import decode_offsets
from testkit.clients import wait_until
from testkit.oracle.kafka import java_command, kafka_libs, resolved

POM = Path(__file__).with_name("log_compaction_tester.xml")
CONFIG = {
    "log.segment.bytes": "1048576",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.initial.task.delay.ms": "100",
}
TOPICS, MESSAGES = 2, 80_000


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["none", pytest.param("zstd", marks=pytest.mark.long(amount="one codec"))])
def test_kafkas_own_compaction_tester_is_content(fresh_broker: FreshBroker, compression: str) -> None:
    kafka_libs()
    command = java_command("kafka.tools.LogCompactionTester", extra_classpath=[resolved(POM) / "*"])
    node = fresh_broker(CONFIG)
    options = {
        "bootstrap-server": node.bootstrap,
        "messages": MESSAGES,
        "topics": TOPICS,
        "percent-deletes": 20,
        "duplicates": 20,
        "compression-type": compression,
        # Seconds between writing and reading, in which the cleaner finishes.
        "sleep": 10,
    }
    arguments = [f"--{name}={value}" for name, value in options.items()]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=300)
    said = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, said
    assert "Data verification is completed" in said
    validated = re.search(r"Validated (\d+) values, 0 mismatches", said)
    assert validated, said
    assert int(validated[1]) > 5_500, "of 8,000 keys a fifth ends with a delete"
    counts = re.search(r"(\d+) rows of data produced, (\d+) rows of data consumed", said)
    assert counts, said
    assert int(counts[1]) == TOPICS * MESSAGES
    if compression == "none":
        # With compression, everything is in one segment, which is not compacted.
        assert int(counts[2]) < 0.8 * int(counts[1]), said

        def is_cleaned() -> bool:
            path = node.data_dir / "cleaner-offset-checkpoint"
            found = decode_offsets(path.read_bytes()) if path.exists() else {}
            mine = [offset for (topic, _), offset in found.items() if topic.startswith("log-cleaner-test-")]
            return len(mine) == TOPICS and min(mine) > MESSAGES // 2

        wait_until(is_cleaned, "both topics are compacted")
