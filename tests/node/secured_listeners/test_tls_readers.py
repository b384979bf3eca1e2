"""Readers over TLS on a node in a process: the memory for those that read nothing, and the data that all of them
get."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from pykbroker_log.os_disk.files import OsRegion
from pykbroker_wire.headers import decode_response
from testkit.certificates import client_context, node_properties
from testkit.nodes.processes import Process, format_combined
from testkit.nodes.wire import Wire, batch
from tests.node.disks.test_cold_reads import PATIENCE_SECONDS, Device, stop_no_other_connection
from tests.node.secured_listeners.test_tls_listeners import Secured, pattern

MB = 1 << 20
READERS = 100
VALUE_BYTES = 900_000
VALUES = 10
#: The bytes of one reader: a piece of its response, its TLS object, the connection.
READER_BYTES = 512 * 1024


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="there is no /proc to ask")
def test_a_node_holds_little_for_readers_that_take_nothing(tmp_path: Path) -> None:
    """Without a bound each of these readers would cost 9 MB, for 82 bytes of request."""
    properties = format_combined(
        tmp_path,
        {
            "listeners": "SSL://localhost:0,CONTROLLER://localhost:0",
            "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "SSL",
            "log.dirs": tmp_path / "data",
            "socket.send.buffer.bytes": 65536,
            **node_properties(),
        },
    )
    tls = client_context(tmp_path)
    values = [pattern(VALUE_BYTES, index + 1) for index in range(VALUES)]
    with Process(tmp_path / "log", str(properties)) as node:
        node.ready()
        with Wire(node.address, tls=tls) as wire:
            wire.create("large")
            for value in values:
                assert not wire.produce("large", batch(value)).error_code
            assert wire.values("large") == values
            readers = [Wire(node.address, timeout=60, receive_buffer=4096, tls=tls) for _ in range(READERS)]
            try:
                before = resident_bytes(node.pid)
                asked = [reader.send(reader.fetch_request("large"), 12) for reader in readers]
                # Each response has begun to leave.
                sizes = [int.from_bytes(reader.read(4)) for reader in readers]
                assert min(sizes) > VALUES * VALUE_BYTES
                assert resident_bytes(node.pid) - before < READERS * READER_BYTES
                for reader, size, (api_key, version) in list(zip(readers, sizes, asked, strict=True))[::10]:
                    answer: Any = decode_response(api_key, version, reader.read(size))[1]
                    records = bytes(answer.responses[0].partitions[0].records)
                    assert all(value in records for value in values)
            finally:
                for reader in readers:
                    reader.close()


@pytest.mark.slow
def test_cold_segments_leave_through_tls_and_stop_no_other_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [os.urandom(VALUE_BYTES) for _ in range(3)]
    tls = client_context(tmp_path)
    with Secured(tmp_path / "data", node_properties()) as node, Wire(node.address(), tls=tls) as warm:
        warm.create("cold")
        warm.create("warm")
        for value in values:
            assert not warm.produce("cold", batch(value)).error_code
        device = Device(monkeypatch, list(tmp_path.glob("**/cold-0/*.log")))
        loop_reads: list[str] = []
        pread = OsRegion.pread

        def reads(region: OsRegion, size: int, position: int) -> bytes:
            if not device.answers.is_set():
                loop_reads.append(threading.current_thread().name)
            return pread(region, size, position)

        monkeypatch.setattr(OsRegion, "pread", reads)
        readers = [Wire(node.address(), timeout=PATIENCE_SECONDS, tls=tls) for _ in range(9)]

        def waiting() -> None:
            # No region was read while its bytes were not in memory.
            assert not loop_reads

        stop_no_other_connection(device, readers, warm, values, waiting)
