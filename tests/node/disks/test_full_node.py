"""The only disk of a node fills up. The node serves reads, refuses writes, and accepts them again, in one run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from testkit.acting import acts
from testkit.nodes.processes import Process, format_combined
from testkit.nodes.wire import Wire, batch
from testkit.small_disk import small_disk
from tests.node.disks.test_real_disks import until

pytestmark = pytest.mark.slow
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR
TOPIC = 2
RESERVE_BYTES = 1_048_576
RESERVE = "__cluster_metadata-0/pykbroker.reserve"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small", "24m") as folder:
        yield folder


def lines(process: Process) -> list[str]:
    """Return the log lines about the full disk."""
    return [line for line in process.tail(10_000).splitlines() if "the disk is" in line or "room again" in line]


def fill(wire: Wire, topic: str) -> list[bytes]:
    """Produce until the disk is full, then until not even a small record fits."""
    sent: list[bytes] = []
    for size in (400_000, 10_000, 10):
        while True:
            value = b"%d " % len(sent) + bytes(size)
            if code := wire.produce(topic, batch(value)).error_code:
                assert code == STORAGE
                break
            sent.append(value)
    return sent


def take_the_rest(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        piece = bytes(4096)
        while True:
            try:
                file.write(piece)
            except OSError:
                break
    assert os.statvfs(path).f_bavail == 0


@acts(broker=("pykbroker.metadata.reserve.bytes",))
def test_a_node_whose_only_disk_is_full_goes_on_without_a_restart(tmp_path: Path, small: Path) -> None:
    data = small / "data"
    properties = format_combined(
        tmp_path,
        {
            "log.dirs": data,
            "log.segment.bytes": 1_048_576,
            "log.initial.task.delay.ms": 100,
            "log.retention.check.interval.ms": 100,
            "log.segment.delete.delay.ms": 0,
            "offsets.topic.replication.factor": 1,
            "pykbroker.metadata.reserve.bytes": RESERVE_BYTES,
        },
    )
    with Process(tmp_path / "log", str(properties)).ready() as process, Wire(process.address) as wire:
        assert (data / RESERVE).stat().st_size == RESERVE_BYTES
        wire.create("t")
        sent = fill(wire, "t")
        assert len([line for line in lines(process) if "Writes are refused" in line]) == 1, process.tail()
        # A record of the controller itself may be the first in the reserve.
        assert len(lines(process)) <= 2, process.tail()
        # Changes of the metadata continue in the reserved space; appends do not get it.
        for number in range(100):
            assert wire.alter(TOPIC, "t", {"retention.ms": str(10**9 + number)}).error_code == ErrorCode.NONE
            assert wire.produce("t", batch(b"small")).error_code == STORAGE
        assert not (data / RESERVE).exists()
        assert int(wire.try_create("new", 1, 1, {}).error_code) == STORAGE
        # Another program takes the rest: changes are refused too, and the node continues.
        ballast = small / "ballast"
        take_the_rest(ballast)
        for number in range(100):
            assert wire.alter(TOPIC, "t", {"retention.ms": str(10**8 + number)}).error_code == STORAGE
        assert wire.values("t") == sent
        assert len(lines(process)) <= 2
        ballast.unlink()
        assert wire.alter(TOPIC, "t", {"retention.ms": str(10**9)}).error_code == ErrorCode.NONE
        # Space is freed, and everything is as before.
        trim = DeleteRecordsPartition(partition_index=0, offset=len(sent) // 2)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[trim])], timeout_ms=10_000)
        assert wire.call(request).topics[0].partitions[0].error_code == ErrorCode.NONE
        until(lambda: (data / RESERVE).exists() and (data / RESERVE).stat().st_size == RESERVE_BYTES)
        until(lambda: wire.produce("t", batch(b"again")).error_code == ErrorCode.NONE)
        until(lambda: wire.try_create("new", 1, 1, {}).error_code == ErrorCode.NONE)
        assert wire.fetch("t", len(sent) - 1).error_code == ErrorCode.NONE
        until(lambda: any("room again" in line for line in lines(process)))
        said = process.tail(10_000)
        assert "Traceback" not in said
        assert len(lines(process)) <= 4, said
        assert process.interrupt() == 0
    # The next start finds the reserve, and the acknowledged records.
    with Process(tmp_path / "log2", str(properties)).ready() as process, Wire(process.address) as wire:
        assert wire.metadata("new").topics[0].error_code == ErrorCode.NONE
        assert wire.fetch("t", len(sent) - 1).error_code == ErrorCode.NONE
        assert process.interrupt() == 0
