"""A device that does not answer delays only the readers that need it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pykbroker.testing.embedded import Broker
from pykbroker_log.os_disk.page_cache import PageCache
from testkit.nodes.wire import Wire, batch

PATIENCE_SECONDS = 120


class Device:
    """Some files have nothing in memory, and a thread that loads waits until the test lets the device answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, files: list[Path]) -> None:
        self.asked = threading.Semaphore(0)
        self.answers = threading.Event()
        inodes = {path.stat().st_ino for path in files}
        is_resident, load = PageCache.is_resident, PageCache.load

        def held(cache: PageCache, fd: int, offset: int, length: int) -> bool:
            if os.fstat(fd).st_ino in inodes and not self.answers.is_set():
                return False
            return is_resident(cache, fd, offset, length)

        def wait(cache: PageCache, fd: int, offset: int, length: int) -> None:
            self.asked.release()
            assert self.answers.wait(PATIENCE_SECONDS)
            load(cache, fd, offset, length)

        monkeypatch.setattr(PageCache, "is_resident", held)
        monkeypatch.setattr(PageCache, "load", wait)
        for path in files:
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def stop_no_other_connection(
    device: Device, readers: Sequence[Wire], warm: Wire, values: Sequence[bytes], waiting: Callable[[], None]
) -> None:
    """Let all readers wait for the topic "cold", and use "warm" in that time. `waiting` is called before the device
    answers; then each reader gets all values. The readers are closed."""
    try:
        expected = [reader.send(reader.fetch_request("cold"), 12) for reader in readers]
        for _ in range(4):  # pykbroker.max.cold.reads
            assert device.asked.acquire(timeout=PATIENCE_SECONDS)
        for number in range(20):
            assert not warm.produce("warm", batch(b"%d" % number)).error_code
            assert warm.values("warm")[-1] == b"%d" % number
        waiting()
        device.answers.set()
        for reader, (api_key, version) in zip(readers, expected, strict=True):
            records = bytes(reader.receive(api_key, version).responses[0].partitions[0].records)
            assert all(value in records for value in values)
    finally:
        device.answers.set()
        for reader in readers:
            reader.close()
    assert warm.values("cold") == list(values)


@pytest.mark.slow
def test_cold_reads_that_get_no_answer_stop_no_other_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [os.urandom(900_000) for _ in range(3)]
    with Broker(data_dir=str(tmp_path)) as broker, Wire(broker.bootstrap_servers) as warm:
        warm.create("cold")
        warm.create("warm")
        for value in values:
            assert not warm.produce("cold", batch(value)).error_code
        device = Device(monkeypatch, list(tmp_path.glob("**/cold-0/*.log")))
        # More of them than loads at once, and than threads.
        readers = [Wire(broker.bootstrap_servers, timeout=PATIENCE_SECONDS) for _ in range(9)]

        def waiting() -> None:
            # There was no fifth load, so these four still wait.
            assert not device.asked.acquire(blocking=False)

        stop_no_other_connection(device, readers, warm, values, waiting)
