"""Maps that fail in real workers: the worker dies of SIGBUS, its directory goes offline, the node serves the other.

Two directories; topic `a` is in the first, `b` in the second, whose segment the test cuts off while a worker has it
mapped.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_log_dirs import DescribeLogDirsRequest
from pykbroker_wire.records.batch import build_batch
from testkit.nodes.processes import Process, format_combined
from testkit.nodes.wire import BROKER, Wire, batch
from tests.node.disks.test_real_disks import move, until

pytestmark = pytest.mark.slow
LOG = "00000000000000000000.log"
#: The time that a worker runs before the test checks again which files it has mapped.
PULSE_SECONDS = 0.002


class Node:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.sound = home / "sound"
        self.failing = home / "failing"
        self.properties = format_combined(
            home,
            {
                "log.dirs": f"{self.sound},{self.failing}",
                "log.cleaner.backoff.ms": 100,
            },
        )

    @contextmanager
    def running(self, **configs: Any) -> Iterator[tuple[Process, Wire]]:
        """Yield the node, with both topics; `configs` are those of `b`."""
        with Process(self.home / "log", str(self.properties)).ready() as process, Wire(process.address) as wire:
            if not wire.metadata().topics:
                # A topic that does not exist yet is created in the directory that was set before.
                move(wire, "b", self.failing)
                wire.create("b", **configs)
                move(wire, "a", self.sound)
                wire.create("a")
                assert wire.produce("a", batch(b"before")).error_code == ErrorCode.NONE
            yield process, wire

    def offline(self, wire: Wire) -> set[str]:
        results = wire.call(DescribeLogDirsRequest(topics=None)).results
        return {result.log_dir for result in results if result.error_code == ErrorCode.KAFKA_STORAGE_ERROR}

    def lost_one_directory(self, process: Process, wire: Wire, path: Path) -> None:
        """Check that one line reports it, and that the node continues with the other directory."""
        until(lambda: self.offline(wire) == {str(self.failing)})
        lines = [line for line in process.tail(1000).splitlines() if "taken offline" in line]
        assert len(lines) == 1
        assert f"ERROR Log directory {self.failing}: taken offline: " in lines[0]
        assert "(SIGBUS)" in lines[0]
        assert str(path) in lines[0]
        assert "Traceback" not in process.tail(1000)
        until(lambda: wire.fetch("a").error_code == ErrorCode.NONE)
        assert wire.produce("a", batch(b"after")).error_code == ErrorCode.NONE
        assert wire.values("a") == [b"before", b"after"]
        assert wire.produce("b", batch(b"x")).error_code != ErrorCode.NONE
        assert process.interrupt() == 0


def worker_with(node: Process, path: Path) -> psutil.Process:
    """Return the worker that has this file mapped, stopped."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for worker in psutil.Process(node.pid).children():
            worker.suspend()
            if any(mapped.path == str(path) for mapped in worker.memory_maps()):
                return worker
            worker.resume()
        time.sleep(PULSE_SECONDS)
    raise AssertionError(f"no worker maps {path}:\n{node.tail()}")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_g_a_recovery_that_dies_of_sigbus_costs_its_directory(node: Node) -> None:
    with node.running() as (process, wire):
        assert wire.produce("b", batch(b"before")).error_code == ErrorCode.NONE
        process.kill()
    path = node.failing / "b-0" / LOG
    one = build_batch([(None, b"x" * 30, (), 1_700_000_000_000)], leader_epoch=0)
    # So many that a worker needs a hundred pulses for them.
    path.write_bytes(b"".join(struct.pack(">q", offset) + one[8:] for offset in range(300_000)))
    with node.running() as (process, wire):
        worker = worker_with(process, path)
        os.truncate(path, 0)
        worker.resume()
        node.lost_one_directory(process, wire, path)


def test_g_a_cleaning_that_dies_of_sigbus_costs_its_directory(node: Node) -> None:
    with node.running(cleanup_policy="compact", segment_bytes=1 << 20, min_cleanable_dirty_ratio=1) as (process, wire):
        # A worker reads a part, and waits for seconds before the next.
        wire.alter(BROKER, "", {"log.cleaner.io.max.bytes.per.second": "100000"})
        for number in range(30):
            keyed = build_batch([(b"%d" % (number % 3), os.urandom(100_000), (), time.time_ns() // 1_000_000)])
            assert wire.produce("b", keyed).error_code == ErrorCode.NONE
        path = node.failing / "b-0" / LOG
        wire.alter(2, "b", {"min.cleanable.dirty.ratio": "0"})
        worker = worker_with(process, path)
        os.truncate(path, 0)
        worker.resume()
        node.lost_one_directory(process, wire, path)
