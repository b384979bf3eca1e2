"""Fault rules over HTTP, as a test in any language uses them, and the requests that are refused."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import development_profile, load
from pykbroker.config.typed_config import Config
from pykbroker.testing.faults.rule_set import MOST_RULES
from pykbroker.testing.faults_api import MOST_BODY_BYTES
from pykbroker.testing.faults_server import MOST_CONNECTIONS, FaultsServer, require_servable
from pykbroker_wire.messages.metadata import MetadataRequest
from testkit.nodes.processes import Process, run
from testkit.nodes.wire import Closed, Wire

PATIENCE_SECONDS = 120
RULE = {"api": "Produce", "topic": "orders", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}


def config(**more: object) -> Config:
    return load(
        {**development_profile("/nowhere", 0), **{key.replace("_", "."): str(one) for key, one in more.items()}}
    )


@pytest.fixture(scope="module")
def shared_server() -> Iterator[FaultsServer]:
    server = FaultsServer("127.0.0.1:0")
    server.start()
    yield server
    server.close()


@pytest.fixture
def server(shared_server: FaultsServer) -> Iterator[FaultsServer]:
    yield shared_server
    shared_server.faults.clear()


def ask(
    address: str, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    """Return the status, and the JSON of the answer. A body that is not bytes is sent as JSON."""
    with closing(http.client.HTTPConnection(address, timeout=PATIENCE_SECONDS)) as connection:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None


def test_rules_come_are_shown_and_go(server: FaultsServer) -> None:
    status, made = ask(server.address, "POST", "/faults", RULE)
    assert status == 201
    assert made == {"id": made["id"], "rule": RULE, "matched": 0, "acted": 0}
    one = f"/faults/{made['id']}"
    assert ask(server.address, "GET", one) == (200, made)
    assert ask(server.address, "GET", "/faults") == (200, {"faults": [made]})
    assert ask(server.address, "DELETE", one) == (204, None)
    assert ask(server.address, "GET", one)[0] == 404
    for _ in range(2):
        ask(server.address, "POST", "/faults", RULE)
    assert ask(server.address, "DELETE", "/faults") == (204, None)
    assert ask(server.address, "GET", "/faults") == (200, {"faults": []})


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("POST", "/faults", b"{", 400, "this is no JSON"),
        ("POST", "/faults", b"\xff\xfe", 400, "this is no JSON"),
        ("POST", "/faults", b"[" * 60_000, 400, "this is no JSON"),
        ("POST", "/faults", b"", 400, "this is no JSON"),
        ("POST", "/faults", [RULE], 400, "a fault rule is a JSON object"),
        ("POST", "/faults", {"apis": 1}, 400, "has no 'apis'"),
        ("POST", "/faults", {"api": "Produce", "error": "NO"}, 400, "there is no error 'NO'"),
        ("POST", "/faults", {"api": {"a": 1}}, 400, "there is no API"),
        ("POST", "/faults", b" " * (MOST_BODY_BYTES + 1), 413, "at most 65536 bytes"),
        ("POST", "/faults/1", RULE, 404, "rules are added at /faults"),
        ("GET", "/", None, 404, "there are /faults"),
        ("GET", "/faults/999", None, 404, "there is no fault 999"),
        ("GET", "/faults/9999999999999", None, 404, "there are /faults"),
        ("DELETE", "/faults/999", None, 404, "there is no fault 999"),
        ("PUT", "/faults", RULE, 501, "PUT"),
        ("OPTIONS", "/faults", None, 501, "OPTIONS"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    server: FaultsServer, method: str, path: str, body: Any, status: int, words: str
) -> None:
    found, answer = ask(server.address, method, path, body)
    assert found == status
    assert words in answer["error"]
    assert "\n" not in answer["error"]
    assert len(server.faults) == 0


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:9405"}, 200),
        ({"Host": "LOCALHOST"}, 200),
        ({"Host": "localhost", "Origin": "http://localhost:3000"}, 200),
        ({"Host": "rebound.example:9405"}, 403),
        ({"Host": "127.0.0.1.example"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "localhost, rebound.example"}, 403),
        ({"Origin": "http://localhost, http://rebound.example"}, 403),
        ({"Origin": "http://rebound.example"}, 403),
        ({"Origin": "http://localhost.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "file://localhost"}, 403),
    ],
)
def test_a_web_page_from_elsewhere_is_refused(server: FaultsServer, headers: dict[str, str], status: int) -> None:
    assert ask(server.address, "GET", "/faults", headers=headers)[0] == status
    expected = 201 if status == 200 else status
    assert ask(server.address, "POST", "/faults", RULE, headers=headers)[0] == expected
    assert len(server.faults) == (status == 200)


def test_a_form_of_a_web_page_is_refused(server: FaultsServer) -> None:
    found, answer = ask(server.address, "POST", "/faults", RULE, headers={"Content-Type": "text/plain"})
    assert (found, answer) == (415, {"error": "a request is sent as application/json"})


@pytest.mark.parametrize(
    "head", [b"GET /faults HTTP/1.1\r\n\r\n", b"GET /faults HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"]
)
def test_a_request_names_one_host(server: FaultsServer, head: bytes) -> None:
    host, _, port = server.address.rpartition(":")
    with closing(socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)) as sock:
        sock.sendall(head)
        assert sock.recv(100).startswith(b"HTTP/1.1 400 ")


def test_two_origins_are_refused(server: FaultsServer) -> None:
    head = b"GET /faults HTTP/1.1\r\nHost: localhost\r\nOrigin: http://a\r\nOrigin: http://localhost\r\n\r\n"
    host, _, port = server.address.rpartition(":")
    with closing(socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)) as sock:
        sock.sendall(head)
        assert sock.recv(100).startswith(b"HTTP/1.1 403 ")


def test_a_connection_may_have_several_requests(server: FaultsServer) -> None:
    with closing(http.client.HTTPConnection(server.address, timeout=PATIENCE_SECONDS)) as connection:
        for number in range(3):
            connection.request("POST", "/faults", json.dumps(RULE), {"Content-Type": "application/json; charset=utf-8"})
            answer = connection.getresponse()
            assert (answer.status, json.loads(answer.read())["acted"]) == (201, 0)
            assert len(server.faults) == number + 1


def test_a_rule_may_come_in_chunks(server: FaultsServer) -> None:
    with closing(http.client.HTTPConnection(server.address, timeout=PATIENCE_SECONDS)) as connection:
        chunks = iter([b'{"api": ', b'"Produce"}'])
        connection.request("POST", "/faults", chunks, {"Content-Type": "application/json"}, encode_chunked=True)
        assert connection.getresponse().status == 201


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"junk\r\n\r\n", b"400"),
        (b"GET /faults SOMETHING/9\r\n\r\n", b"400"),
        (b"GET /" + b"a" * 70_000, b"431"),
        (b"GET /faults HTTP/1.1\r\n" + b"A: b\r\n" * 5000, b"431"),
        # It waits for the end of the body until the server gives up.
        pytest.param(
            b"POST /faults HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\r\n",
            b"400",
            marks=pytest.mark.slow,
        ),
        (b"POST /faults HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", b"400"),
    ],
)
def test_what_is_no_request(server: FaultsServer, sent: bytes, status: bytes) -> None:
    host, _, port = server.address.rpartition(":")
    with closing(socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)) as sock:
        sock.sendall(sent)
        answer = b""
        try:
            while data := sock.recv(65536):
                answer += data
        except ConnectionResetError:
            pass  # the connection was reset after the answer, because the server did not read everything
    assert status in answer.splitlines()[0]
    assert json.loads(answer.rpartition(b"\r\n\r\n")[2])["error"]
    assert ask(server.address, "GET", "/faults")[0] == 200


def test_there_are_no_more_rules_than_the_bound(server: FaultsServer) -> None:
    for _ in range(MOST_RULES):
        server.faults.add("Produce")
    assert ask(server.address, "POST", "/faults", RULE) == (400, {"error": "there are 100 fault rules already"})


def test_there_are_no_more_connections_than_the_bound() -> None:
    server = FaultsServer("127.0.0.1:0", request_seconds=PATIENCE_SECONDS)
    server.start()
    host, _, port = server.address.rpartition(":")

    def connect() -> socket.socket:
        return socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)

    places = [connect() for _ in range(MOST_CONNECTIONS)]
    with closing(connect()) as another:
        assert another.recv(1) == b""
    for place in places:
        place.sendall(b"GET /faults HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        with closing(place), place.makefile("rb") as answer:
            assert b" 200 " in answer.readline()
            answer.read()
    server.close()


@pytest.mark.slow
@pytest.mark.parametrize("head", [b"", b"GET /faults HTTP/1.1\r\nX: ", b"POST /faults HTTP/1.1\r\nHost: localhost\r\n"
                                  b"Content-Type: application/json\r\nContent-Length: 60000\r\n\r\n"])  # fmt: skip
def test_a_request_that_never_ends_has_its_time_and_no_more(head: bytes) -> None:
    """However slowly it comes: a client that sends a byte from time to time would otherwise keep its place."""
    server = FaultsServer("127.0.0.1:0", request_seconds=0.5)
    server.start()
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=0.05) as connection:
        connection.sendall(head)
        deadline = time.monotonic() + PATIENCE_SECONDS
        is_open = True
        while is_open:
            assert time.monotonic() < deadline
            try:
                connection.sendall(b"x")
                is_open = connection.recv(4096) != b""
            except TimeoutError:
                pass
            except ConnectionError:
                is_open = False
    server.close()


def test_waiting(server: FaultsServer) -> None:
    fault = server.faults.add("Produce")
    path = f"/faults/{fault.number}/wait"
    status, answer = ask(server.address, "GET", f"{path}?timeout_ms=0")
    assert status == 408
    assert "matched 0 requests in 0 s, not 1" in answer["error"]
    for query in ("count=x", "count=-1", "timeout_ms=99999999", "what=1"):
        assert ask(server.address, "GET", f"{path}?{query}")[0] == 400
    assert ask(server.address, "GET", f"{path}?count=0")[0] == 200
    found: list[tuple[int, Any]] = []
    waiting = threading.Thread(target=lambda: found.append(ask(server.address, "GET", path)))
    waiting.start()
    fault.remove()
    waiting.join(PATIENCE_SECONDS)
    assert found[0][0] in (404, 408)


@pytest.mark.parametrize(
    ("address", "hosts", "words"),
    [
        ("9405", (), "--faults wants HOST:PORT"),
        ("127.0.0.1:x", (), "--faults wants HOST:PORT"),
        ("127.0.0.1:99999", (), "--faults wants HOST:PORT"),
        ("0.0.0.0:9405", (), "can be reached from other machines"),
        (":9405", (), "can be reached from other machines"),
        ("[::]:9405", (), "can be reached from other machines"),
        ("10.1.2.3:9405", ("localhost",), "can be reached from other machines"),
    ],
)
def test_what_does_not_start(address: str, hosts: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        FaultsServer(address, hosts)
    assert words in str(raised.value)


def test_a_broker_with_an_authorizer_has_no_fault_rules_over_http() -> None:
    require_servable(config())
    with pytest.raises(ConfigError, match="go without an authorizer"):
        require_servable(config(authorizer_class_name="org.example.Authorizer"))


def test_other_machines_reach_it_under_the_names_that_are_given() -> None:
    server = FaultsServer("0.0.0.0:0", ("kafka",))
    server.start()
    address = server.address.replace("0.0.0.0", "127.0.0.1")
    for host, status in (("kafka:9405", 200), ("localhost", 200), ("other:9405", 403), ("0.0.0.0", 403)):
        assert ask(address, "GET", "/faults", headers={"Host": host})[0] == status
    server.close()


def test_one_address_is_taken_once(server: FaultsServer) -> None:
    other = FaultsServer(server.address)
    for _ in range(2):
        with pytest.raises(OSError, match=r"Fault rules cannot be taken at 127\.0\.0\.1"):
            other.start()
    other.close()


def test_what_keeps_it_from_serving_is_raised_by_the_start() -> None:
    """The name of the host is longer than names can be, which is not an OSError."""
    before = threading.active_count()
    server = FaultsServer(f"{'x' * 70}:0", ("kafka",))
    with pytest.raises(UnicodeError):
        server.start()
    server.close()
    assert threading.active_count() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--faults", "0.0.0.0:0"), "give the name under which they reach it with --faults-host"),
        (("--faults-host", "kafka"), "--faults-host goes with --faults"),
        (("--faults", "127.0.0.1:0", "--brokers", "3"), "faults_over_http of pykbroker.testing.Cluster"),
        (("--faults", "127.0.0.1:0", "--set", "authorizer.class.name=org.example.A"), "authorizer.class.name"),
    ],
)
def test_a_start_that_is_refused(arguments: tuple[str, ...], words: str) -> None:
    done = run("start", "--ephemeral", "--port", "0", *arguments, timeout=PATIENCE_SECONDS)
    assert done.returncode == 1
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_faults_of_a_broker_in_another_process(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Process(log, "--ephemeral", "--port", "0", "--faults", "127.0.0.1:0") as process:
        process.ready(PATIENCE_SECONDS)
        (address,) = re.findall(r"Fault rules are taken at http://(\S+)/faults", log.read_text())
        _, refused = ask(address, "POST", "/faults", RULE)
        _, dropped = ask(address, "POST", "/faults", {"api": "Metadata", "client_id": "test", "disconnect": True})
        reports: list[Any] = []
        producer = confluent_kafka.Producer({"bootstrap.servers": process.address, "retry.backoff.ms": 20})
        producer.produce("orders", b"one", callback=lambda *report: reports.append(report))
        status, waited = ask(address, "GET", f"/faults/{refused['id']}/wait?count=3&timeout_ms=60000")
        assert (status, waited["matched"], waited["acted"]) == (200, 3, 2)
        assert producer.flush(PATIENCE_SECONDS) == 0
        assert reports[0][0] is None
        with Wire(process.address, timeout=PATIENCE_SECONDS) as wire, pytest.raises(Closed):
            wire.call(MetadataRequest(topics=[]))
        assert ask(address, "GET", f"/faults/{dropped['id']}")[1]["acted"] == 1
        ask(address, "DELETE", "/faults")
        with Wire(process.address, timeout=PATIENCE_SECONDS) as wire:
            assert wire.call(MetadataRequest(topics=[])).brokers
