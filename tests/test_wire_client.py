"""The tests' own client: exact bytes, and an answer, CLOSED or SILENT."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pykbroker_wire.errors import DecodeError
from pykbroker_wire.headers import RequestHeader, encode_response
from pykbroker_wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from testkit.certificates import authority, client_context, now
from testkit.nodes.fake_node import FakeNode, Reaction
from testkit.nodes.wire import CLOSED, SILENT, Closed, Wire, any_header, frame_of, framed

REQUEST = ApiVersionsRequest()
ANSWER = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=4)])
SHORTLY = 0.05


def answer_to(request: bytes, correlation_id: int | None = None) -> bytes:
    header, _ = RequestHeader.decode(request)
    number = header.correlation_id if correlation_id is None else correlation_id
    return b"".join(encode_response(number, header.api_key, header.version, ANSWER.encode(header.version)))


def answers(connection: socket.socket, request: bytes) -> bool:
    connection.sendall(answer_to(request))
    return True


def answers_another(connection: socket.socket, request: bytes) -> bool:
    connection.sendall(answer_to(request, 77))
    return True


def answers_and_closes(connection: socket.socket, request: bytes) -> bool:
    answers(connection, request)
    return False


def closes(connection: socket.socket, request: bytes) -> bool:
    return False


def closes_within(connection: socket.socket, request: bytes) -> bool:
    connection.sendall(answer_to(request)[:-1])
    return False


def is_silent(connection: socket.socket, request: bytes) -> bool:
    return True


def is_silent_within(connection: socket.socket, request: bytes) -> bool:
    connection.sendall(answer_to(request)[:-1])
    return True


def echoes(connection: socket.socket, request: bytes) -> bool:
    connection.sendall(framed(request))
    return True


@pytest.fixture
def connected() -> Iterator[Callable[[Reaction], tuple[Wire, FakeNode]]]:
    """A function that connects to a node with this reaction."""
    made: list[tuple[Wire, FakeNode]] = []

    def connect(react: Reaction) -> tuple[Wire, FakeNode]:
        node = FakeNode(react)
        made.append((Wire(node.address), node))
        return made[-1]

    yield connect
    for wire, node in made:
        wire.close()
        node.close()


ToNode = Callable[[Reaction], tuple[Wire, FakeNode]]


def test_a_request_has_an_answer(connected: ToNode) -> None:
    wire, _ = connected(answers)
    for version in (0, 4, None):
        assert wire.call(REQUEST, version) == ANSWER
        assert wire.ask(REQUEST, version) == ANSWER


def test_pipelined_requests_are_received_in_their_order(connected: ToNode) -> None:
    wire, _ = connected(answers)
    wire.send_bytes(wire.frame(REQUEST, 0) + wire.frame(REQUEST, 3))
    assert wire.answer() == answer_to(frame_of(REQUEST, 0, correlation_id=1)[4:])[4:]
    assert wire.receive(18, 3) == ANSWER


@pytest.mark.parametrize("react", [closes, closes_within])
def test_a_connection_that_ends_is_closed(connected: ToNode, react: Reaction) -> None:
    wire, _ = connected(react)
    assert wire.ask(REQUEST) is CLOSED
    assert wire.answer() is CLOSED
    with pytest.raises(Closed):
        wire.read_frame()


@pytest.mark.parametrize("react", [closes, answers_and_closes])
def test_bytes_for_a_closed_connection_are_no_error(connected: ToNode, react: Reaction) -> None:
    """The first piece may be reset, and the next ones find the connection broken."""
    wire, node = connected(react)
    wire.send_bytes(frame_of(REQUEST))
    assert node.closed.wait(10)
    while wire.answer() is not CLOSED:
        pass
    for _ in range(3):
        wire.send_bytes(frame_of(REQUEST))
        assert wire.answer() is CLOSED


@pytest.mark.parametrize("react", [is_silent, is_silent_within])
def test_silence_is_no_end(connected: ToNode, react: Reaction) -> None:
    wire, _ = connected(react)
    assert wire.ask(REQUEST, timeout_s=SHORTLY) is SILENT
    assert wire.socket.gettimeout() == 60
    assert not wire.has_ended()


def test_a_client_may_have_a_short_time_for_all_its_answers(connected: ToNode) -> None:
    _, node = connected(is_silent)
    # The listener takes the connection, although the node serves another one.
    with Wire(node.address, timeout=SHORTLY) as wire:
        assert wire.ask(REQUEST) is SILENT
        with pytest.raises(TimeoutError):
            wire.call(REQUEST)


def test_the_answer_to_another_request_is_refused(connected: ToNode) -> None:
    wire, _ = connected(answers_another)
    for ask in (wire.call, wire.ask):
        with pytest.raises(DecodeError, match="has correlation id 77, the request has"):
            ask(REQUEST)


def test_exact_bytes_arrive(connected: ToNode) -> None:
    wire, _ = connected(echoes)
    for data in (b"", b"\xff" * 4, any_header(9999, -1, client_id_size=-2), bytes(3_000_000)):
        wire.send_bytes(framed(data)[:2])
        wire.send_bytes(framed(data)[2:])
        assert wire.answer() == data


def test_a_frame_has_the_client_id_of_its_connection(connected: ToNode) -> None:
    wire, _ = connected(answers)
    for number, name in enumerate(("test", "another", "", None), 1):
        if number > 1:
            wire.client_id = name
        header, _ = RequestHeader.decode(wire.frame(REQUEST)[4:])
        assert (header.api_key, header.version, header.correlation_id, header.client_id) == (18, 5, number, name)


@pytest.mark.parametrize("flexible", [False, True])
def test_a_header_that_can_be_is_as_the_protocol_has_it(flexible: bool) -> None:
    version = 3 if flexible else 2
    whole = frame_of(REQUEST, version, correlation_id=7, client_id="me")
    head = any_header(18, version, client_id=b"me", flexible=flexible)
    assert whole == framed(head + b"".join(REQUEST.encode(version)))


def test_what_has_arrived_is_seen_without_waiting(connected: ToNode) -> None:
    wire, node = connected(answers_and_closes)
    assert not wire.is_readable()
    assert not wire.has_ended()
    wire.send(REQUEST)
    assert node.closed.wait(10)
    assert wire.is_readable()
    assert not wire.has_ended()
    assert wire.receive(18, 4) == ANSWER
    assert wire.is_readable()
    assert wire.has_ended()


def test_a_client_has_the_address_that_it_chose() -> None:
    with FakeNode(answers) as node, Wire(node.address, source="127.0.0.3") as wire:
        assert wire.call(REQUEST) == ANSWER
        assert wire.socket.getsockname()[0] == "127.0.0.3"


def test_the_certificate_of_an_ipv6_address_is_checked_without_brackets(tmp_path: Path) -> None:
    identity = authority().issue("node", now=now(), days=1, hosts=("::1",))
    file = tmp_path / "node.pem"
    file.write_bytes(identity.key_pem + identity.chain_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with context.wrap_socket(connection, server_side=True) as node:
            answers(node, node.recv(1000)[4:])

    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener, ThreadPoolExecutor(1) as thread:
        listener.settimeout(10)
        served = thread.submit(serve, listener)
        with Wire(f"[::1]:{listener.getsockname()[1]}", tls=client_context(tmp_path)) as wire:
            assert wire.call(REQUEST) == ANSWER
        served.result(10)
