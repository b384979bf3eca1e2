"""A connection that breaks fails the differential test, although both nodes break it; the nodes here are fakes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import pytest

from compat_tests.differential import session
from compat_tests.differential.compare import Script, compare, run
from compat_tests.differential.link import Link, Verdict
from compat_tests.differential.nodes import Side
from compat_tests.differential.session import NodeError, Session
from pykbroker_wire.headers import encode_response
from pykbroker_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

Answer = Callable[[socket.socket, bytes], bool]
"""The reaction of a node to a request; False closes the connection."""


class FakeNode:
    """Listens on loopback and does the same with each request."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            while True:
                size = connection.recv(4, socket.MSG_WAITALL)
                if not size:
                    break
                request = connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
                if not self._answer(connection, request):
                    break
            connection.close()
            self.closed.set()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        assert not self._thread.is_alive()


def answers(connection: socket.socket, request: bytes) -> bool:
    correlation_id = int.from_bytes(request[4:8], "big")
    connection.sendall(b"".join(encode_response(18, 0, correlation_id, ApiVersionsResponse().encode(0))))
    return True


def answers_and_closes(connection: socket.socket, request: bytes) -> bool:
    answers(connection, request)
    return False


def closes(connection: socket.socket, request: bytes) -> bool:
    return False


def is_silent(connection: socket.socket, request: bytes) -> bool:
    return True


def talks_nonsense(connection: socket.socket, request: bytes) -> bool:
    connection.sendall(b"\0\0\0\5" + request[4:8] + b"\7")
    return True


def asks(s: Session) -> None:
    s.call("ask", ApiVersionsRequest(), 0)


def expects_the_end(s: Session) -> None:
    s.call("ask", ApiVersionsRequest(), 0, closes=True)


def sends_bytes(s: Session) -> None:
    s.raw("bytes", s.frame(ApiVersionsRequest(), 0))


def expects_the_end_of_bytes(s: Session) -> None:
    s.raw("bytes", s.frame(ApiVersionsRequest(), 0), closes=True)


def asks_each(s: Session) -> None:
    s.each("ask", lambda version: ApiVersionsRequest(), [0])


def cannot_go_on(s: Session) -> None:
    raise NodeError("not within 30 s: what a script needs")


def told(script: Script, theirs: Answer, ours: Answer) -> str:
    """Return the differences that the test would report for this script against two such nodes."""
    nodes = [FakeNode(theirs), FakeNode(ours)]
    try:
        return "\n".join(compare(*(run(script, Side("node", node.address)) for node in nodes)))
    finally:
        for node in nodes:
            node.close()


@pytest.mark.parametrize("script", [asks, asks_each, sends_bytes])
def test_a_broken_connection_fails_although_both_nodes_break_it(script: Script) -> None:
    assert told(script, answers, answers) == ""
    said = told(script, closes, closes)
    assert "Kafka: the connection was closed, which the script does not expect" in said
    assert "pykbroker: the connection was closed, which the script does not expect" in said


@pytest.mark.parametrize("script", [expects_the_end, expects_the_end_of_bytes])
def test_where_the_script_says_so_both_nodes_must_close(script: Script) -> None:
    assert told(script, closes, closes) == ""
    for theirs, ours, at_fault in (
        (answers, answers, ("Kafka", "pykbroker")),
        (closes, answers, ("pykbroker",)),
        (answers, closes, ("Kafka",)),
    ):
        said = told(script, theirs, ours)
        for name in ("Kafka", "pykbroker"):
            assert (f"{name}: the connection had to be closed, and was not" in said) == (name in at_fault)


def test_silence_fails_although_both_nodes_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ANSWER_TIMEOUT_S", 0.05)
    assert "pykbroker: no answer, which the script does not expect" in told(asks, is_silent, is_silent)
    assert "pykbroker: the connection had to be closed, and was not" in told(expects_the_end, is_silent, is_silent)


def test_an_answer_that_cannot_be_decoded_fails_although_both_are_the_same() -> None:
    assert "pykbroker: not decodable" in told(asks, talks_nonsense, talks_nonsense)


def test_a_script_that_cannot_go_on_fails_although_it_is_so_on_both_nodes() -> None:
    said = told(cannot_go_on, answers, answers)
    assert "Kafka: not within 30 s" in said
    assert "pykbroker: not within 30 s" in said


def test_a_connection_that_breaks_behind_the_last_answer_fails() -> None:
    node = FakeNode(answers_and_closes)

    def script(s: Session) -> None:
        asks(s)
        assert node.closed.wait(10)

    try:
        steps = run(script, Side("node", node.address))
    finally:
        node.close()
    assert "connections that the node has closed" in "\n".join(compare(steps, steps))


def test_a_request_is_not_sent_again_on_a_new_connection() -> None:
    """A node that closed its connection before the request must not look as if it had answered."""
    node = FakeNode(answers_and_closes)
    host, _, port = node.address.rpartition(":")
    link = Link(host, int(port))
    request = Session("s", node.address, {}).frame(ApiVersionsRequest(), 0)
    try:
        link.send(request)
        assert isinstance(link.receive(10), bytes)
        assert node.closed.wait(10)
        link.send(request)
        assert link.receive(10) == Verdict.CLOSED
    finally:
        link.close()
        node.close()
