"""A connection that breaks fails the differential test, although both nodes break it; the nodes here are fakes."""

from __future__ import annotations

import socket

import pytest

from compat_tests.differential import session
from compat_tests.differential.compare import Script, compare, run
from compat_tests.differential.nodes import Side
from compat_tests.differential.session import NodeError, Session
from pykbroker_wire.headers import encode_response
from pykbroker_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from testkit.nodes.fake_node import FakeNode, Reaction
from testkit.nodes.wire import frame_of


def answers(connection: socket.socket, request: bytes) -> bool:
    correlation_id = int.from_bytes(request[4:8], "big")
    connection.sendall(b"".join(encode_response(correlation_id, 18, 0, ApiVersionsResponse().encode(0))))
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
    s.raw("bytes", frame_of(ApiVersionsRequest(), 0))


def expects_the_end_of_bytes(s: Session) -> None:
    s.raw("bytes", frame_of(ApiVersionsRequest(), 0), closes=True)


def asks_each(s: Session) -> None:
    s.each("ask", lambda version: ApiVersionsRequest(), [0])


def cannot_go_on(s: Session) -> None:
    raise NodeError("not within 30 s: what a script needs")


def told(script: Script, theirs: Reaction, ours: Reaction) -> str:
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
    s = Session("s", node.address, {})
    try:
        asks(s)
        assert node.closed.wait(10)
        asks(s)
    finally:
        s.close()
        node.close()
    assert [step.fault for step in s.steps] == ["", "the connection was closed, which the script does not expect"]


def test_after_an_answer_that_did_not_come_the_connection_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late answer must not be taken for the next one."""
    monkeypatch.setattr(session, "ANSWER_TIMEOUT_S", 0.05)
    asked = 0

    def answers_late(connection: socket.socket, request: bytes) -> bool:
        nonlocal asked
        asked += 1
        return asked == 1 or answers(connection, request)

    node = FakeNode(answers_late)
    s = Session("s", node.address, {})
    try:
        asks(s)
        assert node.closed.wait(10)
        monkeypatch.setattr(session, "ANSWER_TIMEOUT_S", 10)
        asks(s)
    finally:
        s.close()
        node.close()
    assert [step.fault for step in s.steps] == ["no answer, which the script does not expect", ""]
