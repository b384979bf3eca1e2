"""The image's health check as a program: its exit status, and its few imports."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "docker" / "scripts" / "kafka" / "healthcheck"


def probe(path: Path, *words: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-ISE", *python, str(SCRIPT), *words],
        env={**os.environ, "KAFKA_PYKBROKER_HEALTH_SOCKET": str(path)},
        capture_output=True,
        text=True,
        timeout=60,
    )


@contextmanager
def node(path: Path, answer: bytes) -> Iterator[None]:
    """A process that sends this answer to each client."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def line(*, healthy: bool) -> bytes:
    """Return the line that node_health.py writes."""
    return json.dumps({"healthy": healthy, "problems": [], "node_id": 1}).encode() + b"\n"


@pytest.mark.parametrize(
    ("answer", "asks", "is_alive"), [(line(healthy=True), 0, 0), (line(healthy=False), 1, 0), (b"", 1, 1)]
)
def test_the_answer_of_the_node_is_the_status(tmp_path: Path, answer: bytes, asks: int, is_alive: int) -> None:
    with node(tmp_path / "s", answer):
        asked = probe(tmp_path / "s")
        assert (asked.returncode, asked.stdout) == (asks, answer.decode())
        assert probe(tmp_path / "s", "--alive").returncode == is_alive


def test_a_node_that_does_not_answer_is_not_well(tmp_path: Path) -> None:
    assert probe(tmp_path / "none").returncode == 1
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(tmp_path / "s"))
    asked = probe(tmp_path / "s")
    assert (asked.returncode, asked.stdout) == (1, f"{tmp_path / 's'}: Connection refused\n")


def test_it_imports_a_socket_and_nothing_else(tmp_path: Path) -> None:
    """An engine runs it every two seconds."""
    with node(tmp_path / "s", line(healthy=True)):
        asked = probe(tmp_path / "s", python=("-X", "importtime"))
    imported = {row.rpartition("|")[2].strip() for row in asked.stderr.splitlines()}
    assert asked.returncode == 0
    assert "_socket" in imported
    assert not imported & {"click", "json", "os", "re", "socket"}
