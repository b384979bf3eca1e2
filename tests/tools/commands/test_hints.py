"""Commands name what listens at a wrong address, and which topic is missing or denied."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pykbroker.__main__ import main
from pykbroker.testing import Broker, SecureBroker

pytestmark = pytest.mark.slow


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a command that fails, and return its one error line without the program's name."""
    assert main(list(words)) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pykbroker: ")
    return line.removeprefix("pykbroker: ")


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # the name of the standard library
        pass


@contextmanager
def http_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("words", [("topics", "list"), ("consume", "t")])
def test_an_http_server_is_no_broker(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with http_server() as address:
        line = said(capsys, *words, "-b", address, "-X", "request.timeout.ms=1000")
    assert line.endswith(". An HTTP server listens there, and no broker: `-b HOST:PORT` names another")


def test_a_client_without_tls_at_a_port_with_tls(capsys: pytest.CaptureFixture[str]) -> None:
    with SecureBroker(protocol="SSL") as broker:
        line = said(capsys, "topics", "list", "-b", broker.bootstrap_servers)
        assert ". TLS is spoken there: add -X security.protocol=SSL, and -X ssl.truststore.location=FILE" in line
    with SecureBroker(protocol="SASL_SSL") as broker:
        login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'
        line = said(
            capsys, "topics", "list", "-b", broker.bootstrap_servers, "-X", "security.protocol=SASL_PLAINTEXT",
            "-X", "sasl.mechanism=PLAIN", "-X", f"sasl.jaas.config={login}",
        )  # fmt: skip
        assert "add -X security.protocol=SASL_SSL" in line


def test_a_client_with_tls_at_a_port_without(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        line = said(capsys, "topics", "list", "-b", broker.bootstrap_servers, "-X", "security.protocol=SSL")
        assert line.endswith(". A broker without TLS listens there: -X security.protocol=PLAINTEXT connects to it")


def test_a_topic_that_the_cluster_does_not_create(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        at = ("-b", broker.bootstrap_servers)
        assert said(capsys, "bench", "produce", "load", "-n", "1", *at) == (
            "There is no topic 'load': the cluster does not create topics by itself, and "
            "`pykbroker topics create load` does"
        )
        assert main(["topics", "create", "orders", *at]) == 0
        capsys.readouterr()
        assert said(capsys, "consume", "ordres", *at) == "There is no topic 'ordres': did you mean 'orders'?"
        assert said(capsys, "bench", "end-to-end", "ordres", "-n", "1", *at).startswith(
            "There is no topic 'ordres': did you mean 'orders'? Otherwise the cluster does not create"
        )


def test_a_denied_read_is_a_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with SecureBroker(protocol="SASL_PLAINTEXT", acls=True) as broker:

        def options(user: str) -> list[str]:
            found = ["-b", broker.bootstrap_servers]
            for key, value in broker.java(user).items():
                found += ["-X", f"{key}={value}"]
            return found

        user = next(name for name in broker.users if name != "admin")
        assert main(["topics", "create", "orders", "payments", *options("admin")]) == 0
        assert main(["acls", "add", user, "--topic", "orders", "--allow", "describe", *options("admin")]) == 0
        (tmp_path / "record").write_text("one")
        assert main(["produce", "orders", str(tmp_path / "record"), *options("admin")]) == 0
        capsys.readouterr()
        for topic in ("orders", "payments"):  # which it may see, and which it may not
            line = said(capsys, "consume", topic, *options(user))
            assert line == f"Not authorized to access topics: [{topic}] (TOPIC_AUTHORIZATION_FAILED)"


def test_a_broker_that_is_not_there_has_no_hanging_transactions_to_find(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty list would say that nothing hangs."""
    with Broker() as broker:
        words = ("transactions", "find-hanging", "-b", broker.bootstrap_servers, "--broker")
        assert said(capsys, *words, "99") == "There is no broker '99': there are 1"
        assert main([*words, "1"]) == 0
