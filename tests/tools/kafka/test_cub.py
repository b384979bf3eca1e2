"""cub's commands, by which scripts wait for a cluster and for other servers, and the image's `nc -z`."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from pykbroker.testing import Broker
from pykbroker.tools.kafka import cub

NC = Path(__file__).parents[3] / "docker" / "scripts" / "bin" / "nc"


@pytest.fixture
def listener() -> Iterator[int]:
    """A port that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed() -> int:
    """A port that refuses connections."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def test_kafka_ready_waits_for_so_many_brokers(tmp_path: Path, closed: int, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=PLAINTEXT\n")
    with Broker() as broker:
        assert cub.run(["kafka-ready", "-b", broker.bootstrap_servers, "1", "20"]) == 0
        assert cub.run(["kafka-ready", "1", "20", "-b", broker.bootstrap_servers, "-c", str(config)]) == 0
        assert cub.run(["kafka-ready", "-b", broker.bootstrap_servers, "2", "0"]) == 1
    assert capsys.readouterr().err == "Expected 2 brokers but found only 1\n"
    assert cub.run(["kafka-ready", "-b", f"127.0.0.1:{closed}", "1", "0"]) == 1
    assert f"127.0.0.1:{closed}" in capsys.readouterr().err


def test_a_config_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"^cub: .*none\.properties"):
        cub.run(["kafka-ready", "-b", "localhost:1", "-c", str(tmp_path / "none.properties"), "1", "0"])


def test_it_is_tried_again_until_it_is_so(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    answers = iter(["no", "not yet", None])
    assert cub._waited(lambda left: next(answers), 60) is None
    assert len(slept) == 2
    assert cub._waited(lambda left: "never", 0) == "never"


@pytest.mark.parametrize("words", [["wait", "127.0.0.1", "{port}", "0"], ["zk-ready", "127.0.0.1:{port}/kafka", "0"]])
def test_wait_needs_a_port_that_takes_connections(words: list[str], listener: int, closed: int) -> None:
    assert cub.run([word.format(port=listener) for word in words]) == 0
    assert cub.run([word.format(port=closed) for word in words]) == 1


def test_zk_ready_needs_one_of_its_addresses(listener: int, closed: int) -> None:
    assert cub.run(["zk-ready", f"127.0.0.1:{closed},127.0.0.1:{listener}", "0"]) == 0


def test_other_servers_answer_over_http(closed: int, capsys: pytest.CaptureFixture[str]) -> None:
    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/config" else 503)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        port = str(server.server_address[1])
        assert cub.run(["sr-ready", "127.0.0.1", port, "0"]) == 0
        assert cub.run(["connect-ready", "127.0.0.1", port, "0"]) == 1
        server.shutdown()
        thread.join()
    assert "answers GET /connectors with 503" in capsys.readouterr().err
    assert cub.run(["kr-ready", "127.0.0.1", str(closed), "0"]) == 1


def test_ensure_and_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KAFKA_A", "1")
    assert cub.run(["ensure", "KAFKA_A"]) == 0
    assert cub.run(["ensure", "KAFKA_A", "KAFKA_NOT_SET"]) == 1
    assert cub.run(["path", str(tmp_path), "writable"]) == 0
    assert cub.run(["path", str(tmp_path / "none"), "existence"]) == 1


def test_words_that_are_none() -> None:
    for words in ([], ["listeners"], ["kafka-ready", "1", "20"]):
        with pytest.raises(SystemExit) as ended:
            cub.run(words)
        assert ended.value.code == 2


def nc(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-IS", str(NC), *words], capture_output=True, text=True, timeout=60)


def test_nc_tries_a_port(listener: int, closed: int) -> None:
    assert nc("-z", "127.0.0.1", str(listener)).returncode == 0
    tried = nc("-vzw5", "-4", "localhost", str(closed))
    assert tried.returncode == 1
    assert tried.stderr.startswith(f"Connection to localhost {closed} port [tcp] failed: ")
    assert "succeeded" in nc("-z", "-v", "-w", "2", "127.0.0.1", f"{listener}-{listener}").stderr


def test_nc_does_nothing_else() -> None:
    for words in (["-l", "9092"], ["localhost", "9092"], ["-z", "localhost"], ["-z", "localhost", "http"], ["-w"]):
        refused = nc(*words)
        assert refused.returncode == 1
        assert refused.stderr.startswith("nc: this image has only `nc -z")
        assert len(refused.stderr.splitlines()) == 1
