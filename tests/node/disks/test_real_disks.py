"""A node on real file systems that fill up, become read-only, disappear, or refuse writes: healthy replicas continue,
and losses are reported.

There are two directories: one on the test's own disk, with the metadata log, and a small tmpfs that the test mounts,
for which it must be root and mounting must be allowed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from pykbroker_wire.messages.describe_log_dirs import DescribeLogDirsRequest
from testkit.nodes.processes import Process, format_combined, run, run_here
from testkit.nodes.wire import Wire, batch
from testkit.small_disk import mount, small_disk

pytestmark = pytest.mark.slow
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR
PATIENCE_SECONDS = 120


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small", "4m") as folder:
        yield folder


class Disks:
    """A formatted node with topic `a` on the large disk and `b` on the small one, and their contents."""

    def __init__(self, home: Path, small: Path) -> None:
        self.home = home
        self.large = home / "large"
        self.lost = small / "data"
        self.properties = format_combined(
            home,
            {
                "log.dirs": f"{self.large},{self.lost}",
                "offsets.topic.replication.factor": 1,
                "replica.high.watermark.checkpoint.interval.ms": 200,
            },
        )

    @contextmanager
    def running(self) -> Iterator[tuple[Process, Wire]]:
        """Yield the node, with both topics."""
        with Process(self.home / "log", str(self.properties)).ready() as process, Wire(process.address) as wire:
            if not wire.metadata().topics:
                for topic, path in (("a", self.large), ("b", self.lost)):
                    move(wire, topic, path)
                    wire.create(topic)
                    assert wire.produce(topic, batch(b"before")).error_code == ErrorCode.NONE
            yield process, wire

    def cluster_id(self) -> str:
        lines = (self.large / "meta.properties").read_text().splitlines()
        return next(line.removeprefix("cluster.id=") for line in lines if line.startswith("cluster.id="))

    def offline(self, wire: Wire) -> list[int]:
        """Return the error codes of the two directories."""
        results = wire.call(DescribeLogDirsRequest(topics=None)).results
        found = {result.log_dir: result.error_code for result in results}
        return [found[str(self.large)], found[str(self.lost)]]

    def is_lost(self, wire: Wire) -> None:
        """Check that `b` is offline and has no leader, and that `a` and new topics work."""
        until(lambda: self.offline(wire) == [ErrorCode.NONE, STORAGE])
        assert wire.produce("a", batch(b"goes on")).error_code == ErrorCode.NONE
        until(lambda: leader(wire, "b") == (-1, [1]))
        assert leader(wire, "a") == (1, [])
        assert refused(wire)
        wire.create("new", 3)
        for partition in range(3):
            assert wire.produce("new", batch(b"x"), partition=partition).error_code == ErrorCode.NONE
        assert sorted(path.name for path in self.large.glob("new-*")) == ["new-0", "new-1", "new-2"]
        assert wire.values("a")[:2] == [b"before", b"goes on"]

    def is_back(self, also: list[bytes] | None = None) -> None:
        """Check the state after a restart with a healthy disk."""
        with self.running() as (process, wire):
            assert self.offline(wire) == [ErrorCode.NONE, ErrorCode.NONE]
            # The node serves while it recovers from an unclean stop.
            until(lambda: all(wire.fetch(topic).error_code == ErrorCode.NONE for topic in ("a", "b")))
            assert wire.values("b")[: 1 + len(also or [])] == [b"before", *(also or [])]
            assert wire.produce("b", batch(b"after")).error_code == ErrorCode.NONE
            assert wire.values("a")[0] == b"before"
            assert process.interrupt() == 0


@pytest.fixture
def disks(tmp_path: Path, small: Path) -> Disks:
    return Disks(tmp_path, small)


def flush(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never happens"
        time.sleep(0.02)


def move(wire: Wire, topic: str, path: Path) -> int:
    wanted = AlterReplicaLogDir(path=str(path), topics=[AlterReplicaLogDirTopic(name=topic, partitions=[0])])
    answer = wire.call(AlterReplicaLogDirsRequest(dirs=[wanted]))
    return int(answer.results[0].partitions[0].error_code)


def leader(wire: Wire, topic: str) -> tuple[int, list[int]]:
    partition = wire.metadata(topic).topics[0].partitions[0]
    return partition.leader_id, partition.offline_replicas


def refused(wire: Wire) -> bool:
    code = wire.produce("b", batch(b"never")).error_code
    return code in (STORAGE, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_a_full_disk(disks: Disks) -> None:
    with disks.running() as (process, wire):
        free = os.statvfs(disks.lost).f_bavail * os.statvfs(disks.lost).f_frsize
        ballast = disks.lost / "ballast-0.0"
        ballast.write_bytes(bytes(free - 600_000))
        sent: list[bytes] = []
        while True:
            value = b"%d" % len(sent) + bytes(100_000)
            answer = wire.produce("b", batch(value))
            if answer.error_code:
                break
            sent.append(value)
        assert answer.error_code == STORAGE
        assert 2 <= len(sent) <= 6
        # Full is not broken: all of it can be read, the other disk accepts more, and so does this one when it has room.
        assert wire.values("b") == [b"before", *sent]
        assert wire.produce("a", batch(b"x" * 500_000)).error_code == ErrorCode.NONE
        assert disks.offline(wire) == [ErrorCode.NONE, ErrorCode.NONE]
        assert leader(wire, "b") == (1, [])
        ballast.unlink()
        assert wire.produce("b", batch(b"room")).error_code == ErrorCode.NONE
        assert wire.values("b") == [b"before", *sent, b"room"]
        process.kill()
    disks.is_back([*sent, b"room"])


def test_a_copy_does_not_fit_on_a_disk(disks: Disks) -> None:
    with disks.running() as (process, wire):
        for _ in range(12):
            assert wire.produce("a", batch(os.urandom(500_000))).error_code == ErrorCode.NONE
        assert move(wire, "a", disks.lost) == ErrorCode.NONE
        until(lambda: "given up" in process.tail())
        until(lambda: not list(disks.lost.glob("a-0*")))
        assert disks.offline(wire) == [ErrorCode.NONE, ErrorCode.NONE]
        assert wire.produce("b", batch(b"room")).error_code == ErrorCode.NONE
        # In the other direction there is room.
        assert move(wire, "b", disks.large) == ErrorCode.NONE
        until(lambda: (disks.large / "b-0").exists() and not list(disks.lost.glob("b-0*")))
        assert wire.values("b") == [b"before", b"room"]
        assert process.interrupt() == 0


def test_a_disk_that_becomes_read_only(disks: Disks, small: Path) -> None:
    """As ext4 does with a damaged disk: from one moment to the next nothing can be written."""
    image, folder = disks.home / "image", disks.lost
    image.write_bytes(bytes(12 << 20))
    subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", str(image)], check=True, capture_output=True)
    before = set(Path("/sys/fs/ext4").glob("*/trigger_fs_error"))
    done = mount("-o", "loop,errors=remount-ro", str(image), str(folder))
    assert done.returncode == 0, done.stderr
    try:
        (trigger,) = set(Path("/sys/fs/ext4").glob("*/trigger_fs_error")) - before
        shutil.rmtree(folder / "lost+found")
        formatted = run_here(
            "format", str(disks.properties), "--standalone", "--ignore-formatted", "-t", disks.cluster_id()
        )
        assert formatted.returncode == 0, formatted.stderr
        with disks.running() as (process, wire):
            # Read-only also means that nothing of the page cache is written.
            for path in (folder / "b-0").iterdir():
                flush(path)
            trigger.write_text("broken")
            assert wire.produce("b", batch(b"never")).error_code == STORAGE
            disks.is_lost(wire)
            assert process.interrupt() == 0
        # At the start it cannot be written either.
        with disks.running() as (process, wire):
            assert disks.offline(wire) == [ErrorCode.NONE, STORAGE]
            assert refused(wire)
            assert process.interrupt() == 0
        assert subprocess.run(["umount", str(folder)], check=False).returncode == 0
        assert mount("-o", "loop", str(image), str(folder)).returncode == 0
        disks.is_back()
    finally:
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


def test_a_disk_that_is_unmounted(disks: Disks, small: Path) -> None:
    keep = disks.home / "kept"
    keep.mkdir()
    assert mount("--bind", str(small), str(keep)).returncode == 0
    try:
        with disks.running() as (process, wire):
            assert wire.produce("b", batch(b"more")).error_code == ErrorCode.NONE
            assert subprocess.run(["umount", "-l", str(small)], check=False).returncode == 0
            disks.is_lost(wire)
            assert process.interrupt() == 0
        # An empty directory is not one of our disks: as in Apache Kafka, the node does not start on it.
        refusal = run("start", str(disks.properties))
        assert refusal.returncode == 1
        assert "No `meta.properties` found" in refusal.stderr
        assert "Traceback" not in refusal.stderr
        assert mount("--bind", str(keep), str(small)).returncode == 0
        disks.is_back([b"more"])
    finally:
        subprocess.run(["umount", "-l", str(keep)], capture_output=True, check=False)


def test_a_directory_that_nobody_may_write_to(disks: Disks) -> None:
    """Root may do everything, except what chattr forbids."""
    with disks.running() as (process, _):
        assert process.interrupt() == 0
    if subprocess.run(["chattr", "+i", str(disks.lost)], capture_output=True, check=False).returncode:
        assert mount("--bind", str(disks.lost), str(disks.lost)).returncode == 0
        assert mount("-o", "remount,ro,bind", str(disks.lost)).returncode == 0
    try:
        with disks.running() as (process, wire):
            disks.is_lost(wire)
            assert process.interrupt() == 0
    finally:
        subprocess.run(["chattr", "-i", str(disks.lost)], capture_output=True, check=False)
        subprocess.run(["umount", "-l", str(disks.lost)], capture_output=True, check=False)
    disks.is_back()


def test_directories_that_vanish_and_the_last_one_ends_the_node(disks: Disks) -> None:
    with disks.running() as (process, wire):
        disks.lost.rename(disks.lost.with_name("taken"))
        disks.is_lost(wire)
        assert "Traceback" not in process.tail(1000)
        disks.large.rename(disks.large.with_name("taken"))
        assert process.wait(PATIENCE_SECONDS) == 1
        said = [line for line in process.tail(1000).splitlines() if "Stopping" in line]
        assert len(said) == 1
        assert str(disks.large) in said[0]
        assert "Traceback" not in process.tail(1000)
