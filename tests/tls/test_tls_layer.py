"""TLS between a transport and a connection, in memory: Python's own TLS is the peer, and bytes come in any pieces."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker.net.connection import Connection
from pykbroker.net.connection_home import Limits
from pykbroker.net.connection_state import ConnectionState
from pykbroker.net.listener import Listener
from pykbroker.net.peer_security import SecuredProtocol
from pykbroker.net.promise import Promise
from pykbroker.runtime import Runtime
from pykbroker.security.peer_session import PeerSession
from pykbroker.tls.handshakes import RUNNING_AT_ONCE, Handshakes, Side
from pykbroker.tls.principal_mapping import PrincipalMapper
from pykbroker.tls.tls_layer import TlsLayer
from pykbroker.tls.tls_listener import TlsListener
from pykbroker.tls.tls_server import TlsServer
from pykbroker.tls.tls_stream import HANDSHAKE_BYTES, TlsStream
from testkit.certificates import client_context, client_identity, node_identity
from tests.net.fakes import FakeLoop, FakeTransport, frame


class SteppedRuntime:
    """Runs blocking calls when the loop turns, and counts those that run at once."""

    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.running = self.most_running = 0

    def run_blocking(self, function: Callable[[], object]) -> asyncio.Future[object]:
        future = self.loop.create_future()
        self.running += 1
        self.most_running = max(self.running, self.most_running)

        def run() -> None:
            self.running -= 1
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001  # it is the result
                future.set_exception(error)

        self.loop.call_soon(run)
        return future


class Above:
    """The connection above a layer: keeps the bytes that it gets, in a buffer that is overwritten each time."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.secured_with: list[bytes | None] = []
        self.reasons: list[str] = []
        self.finished = False
        self.paused = False
        self.lost = False
        self._buffer = bytearray(5000)
        self.transport: TlsLayer | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(TlsLayer, transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        assert self.secured_with, "a byte came before the handshake was done"
        self.received += self._buffer[:nbytes]

    def eof_received(self) -> bool | None:
        self.finished = True
        return None

    def pause_writing(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_writing(self) -> None:
        assert self.paused
        self.paused = False

    def secured(self, certificate: bytes | None) -> None:
        assert not self.secured_with
        self.secured_with.append(certificate)

    def insecure(self, reason: str) -> None:
        self.reasons.append(reason)


class Below(FakeTransport):
    """Full after some bytes, until they are taken; then it reports that, as a transport does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer: TlsLayer | None = None
        self.is_full = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        assert not self.closed
        super().write(data)
        if not self.is_full and self.high is not None and len(self.written) > self.high:
            self.is_full = True
            assert self.layer is not None
            self.layer.pause_writing()

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def is_closing(self) -> bool:
        return self.closed

    def take(self) -> bytes:
        data = bytes(self.written)
        self.written.clear()
        if self.is_full:
            self.is_full = False
            assert self.layer is not None
            self.layer.resume_writing()
        return data


class Pair:
    """A layer on one side, Python's TLS on the other."""

    def __init__(
        self,
        peer: ssl.SSLContext,
        own: ssl.SSLContext,
        above: SecuredProtocol | None = None,
        below: Below | None = None,
    ) -> None:
        self.runtime = SteppedRuntime()
        self.loop = self.runtime.loop
        self.above = above if above is not None else Above()
        self.below = below if below is not None else Below()
        self.layer = TlsLayer(
            cast(asyncio.AbstractEventLoop, self.loop),
            self.above,
            own,
            Handshakes(cast(Runtime, self.runtime)),
            memoryview(bytearray(64 * 1024)),
        )
        self.below.layer = self.layer
        self.layer.connection_made(self.below)
        self._to_peer, self._from_peer = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.peer = peer.wrap_bio(self._to_peer, self._from_peer, server_hostname="localhost")

    def feed(self, data: bytes, cut: Callable[[], int] = lambda: 65536) -> None:
        """Pass received bytes as a transport does, in pieces."""
        while data and not self.below.closed:
            if not self.below.reading:
                self.loop.turn()
                if not self.below.reading:
                    # The connection wants no more for now.
                    self.held = data
                    return
            buffer = self.layer.get_buffer(-1)
            count = max(1, min(len(buffer), len(data), cut()))
            buffer[:count] = data[:count]
            data = data[count:]
            self.layer.buffer_updated(count)
        self.loop.turn()

    held = b""

    def handshake(self, cut: Callable[[], int] = lambda: 65536) -> None:
        for _ in range(10):
            done = True
            try:
                self.peer.do_handshake()
            except ssl.SSLWantReadError:
                done = False
            self.feed(self._from_peer.read(), cut)
            self._to_peer.write(self.below.take())
            if done:
                return
        raise AssertionError("the handshake does not end")

    def send(self, data: bytes) -> bytes:
        """Return the bytes that the peer would send."""
        if data:
            self.peer.write(data)
        return self._from_peer.read()

    def close_notify(self) -> bytes:
        with pytest.raises(ssl.SSLWantReadError):
            self.peer.unwrap()
        return self._from_peer.read()

    def receive(self) -> bytes:
        """Return the peer's plaintext of all sent bytes."""
        out = bytearray()
        while True:
            self.loop.turn()
            taken = self.below.take()
            out += self.peer_receives(taken)
            if not taken:
                return bytes(out)

    def peer_receives(self, taken: bytes) -> bytes:
        """Return the peer's plaintext when these bytes have come."""
        self._to_peer.write(taken)
        out = bytearray()
        try:
            while piece := self.peer.read(65536):
                out += piece
        except ssl.SSLWantReadError:
            pass
        return bytes(out)


def server_context(*, client_auth: ssl.VerifyMode = ssl.CERT_NONE) -> ssl.SSLContext:
    from pykbroker.tls.contexts import Material, server_context
    from pykbroker.tls.settings import TlsSettings
    from pykbroker.tls.stores import StorePasswords, read_key, read_trusted
    from testkit.certificates import authority

    identity = node_identity()
    material = Material(
        read_key(identity.key_pem + identity.chain_pem, StorePasswords(), "the test's"),
        read_trusted(authority().certificate_pem, None, "the test's"),
    )
    auth = {ssl.CERT_NONE: "none", ssl.CERT_OPTIONAL: "requested", ssl.CERT_REQUIRED: "required"}[client_auth]
    return server_context(
        TlsSettings(
            "SSL", None, None, auth, ("TLSv1.2", "TLSv1.3"), (), "DEFAULT", checks_host_names=True, is_below_sasl=False
        ),
        material,
    )


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return client_context(tmp_path_factory.mktemp("client"), client_identity()), server_context()


Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_what_goes_in_comes_out_in_any_pieces(contexts: Contexts, data: st.DataObject) -> None:
    pair = Pair(*contexts)
    above = cast(Above, pair.above)
    cuts = data.draw(st.lists(st.integers(1, 2000), min_size=1, max_size=5))
    turn = iter(range(10**9))

    def cut() -> int:
        return cuts[next(turn) % len(cuts)]

    pair.handshake(cut)
    pair.feed(pair.send(b""), cut)
    assert len(above.secured_with) == 1
    sent, answered, read = bytearray(), bytearray(), bytearray()
    for message in data.draw(st.lists(st.binary(max_size=40_000), max_size=4)):
        sent += message
        is_paused = data.draw(st.booleans())
        if is_paused:
            pair.layer.pause_reading()
        pair.feed(pair.send(message), cut)
        if is_paused:
            before = len(above.received)
            pair.loop.turn()
            assert len(above.received) == before
            pair.layer.resume_reading()
            pair.loop.turn()
            held, pair.held = pair.held, b""
            pair.feed(held, cut)
        assert above.received == sent
        for answer in data.draw(st.lists(st.binary(max_size=100_000), max_size=3)):
            pair.layer.write(answer)
            answered += answer
        read += pair.receive()
    assert read == answered
    assert not above.paused
    assert not above.reasons


def test_no_more_is_encrypted_than_the_transport_below_takes(contexts: Contexts) -> None:
    pair = Pair(*contexts)
    above = cast(Above, pair.above)
    pair.handshake()
    pair.layer.set_write_buffer_limits(high=1 << 20)
    answer = bytes(range(256)) * 4096 * 8
    pair.layer.write(answer)
    pair.loop.turn()
    assert above.paused
    assert len(pair.below.written) < 512 * 1024
    assert pair.layer.get_write_buffer_size() > 7 << 20
    assert pair.receive() == answer
    assert not above.paused


def test_a_bound_smaller_than_one_answer_stops_nothing(contexts: Contexts) -> None:
    pair = Pair(*contexts)
    pair.handshake()
    pair.layer.set_write_buffer_limits(high=1000)
    answer = b"0123456789" * 100_000
    for _ in range(3):
        pair.layer.write(answer)
        assert cast(Above, pair.above).paused
        assert pair.receive() == answer
        assert not cast(Above, pair.above).paused


@pytest.mark.parametrize(
    "plain",
    [b"\x00\x00\x00\x14" + bytes(20), b"GET / HTTP/1.1\r\n\r\n", b"\x15\x03\x01", b"\x16\x03\x01\xff\xff"],
    ids=["Kafka", "HTTP", "alert", "too long"],
)
def test_a_peer_without_tls_costs_no_tls(contexts: Contexts, plain: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(*contexts)
    monkeypatch.setattr(TlsStream, "begin", lambda stream: pytest.fail("a TLS object was made"))
    pair.feed(plain)
    above = cast(Above, pair.above)
    assert len(above.reasons) == 1
    assert pair.below.closed
    assert not above.received


def test_a_handshake_that_has_no_end_is_given_up(contexts: Contexts) -> None:
    """TLS records without content: empty ones would be taken without end."""
    pair = Pair(*contexts)
    with pytest.raises(ssl.SSLWantReadError):
        pair.peer.do_handshake()
    pair.feed(pair.send(b""))
    fed = 0
    # Change cipher spec, which TLS 1.3 ignores until the handshake is done, or OpenSSL has had enough.
    while not pair.below.closed:
        pair.feed(b"\x14\x03\x03\x00\x01\x01" * 2000)
        fed += 12_000
        assert fed <= HANDSHAKE_BYTES + 12_000
    assert len(cast(Above, pair.above).reasons) == 1


@settings(max_examples=60, deadline=None)
@given(position=st.integers(0, 100_000), flip=st.integers(1, 255))
def test_changed_bytes_end_the_connection_once(contexts: Contexts, position: int, flip: int) -> None:
    pair = Pair(*contexts)
    pair.handshake()
    message = b"0123456789abcdef" * 3000
    wire = bytearray(pair.send(message))
    wire[position % len(wire)] ^= flip
    pair.feed(bytes(wire))
    above = cast(Above, pair.above)
    assert message.startswith(bytes(above.received))
    assert len(above.received) < len(message)
    # It may still wait for a longer record.
    assert len(above.reasons) == (1 if pair.below.closed else 0)


def test_close_notify_is_the_end_of_the_stream_and_is_answered(contexts: Contexts) -> None:
    pair = Pair(*contexts)
    pair.handshake()
    pair.feed(pair.send(b"last") + pair.close_notify())
    above = cast(Above, pair.above)
    assert above.received == b"last"
    assert above.finished
    assert pair.below.closed
    pair._to_peer.write(bytes(pair.below.written))
    # The peer has got close_notify, so nothing is missing.
    pair.peer.unwrap()


def test_close_sends_what_was_written_first(contexts: Contexts) -> None:
    pair = Pair(*contexts)
    pair.handshake()
    answer = b"x" * (3 << 20)
    pair.layer.write(answer)
    pair.layer.close()
    assert not pair.below.closed
    assert pair.receive() == answer
    assert pair.below.closed


@pytest.mark.parametrize("after", [0, 1])
def test_a_connection_that_is_lost_during_a_step_is_told_once(contexts: Contexts, after: int) -> None:
    pair = Pair(*contexts)
    with pytest.raises(ssl.SSLWantReadError):
        pair.peer.do_handshake()
    hello = pair.send(b"")
    buffer = pair.layer.get_buffer(-1)
    buffer[: len(hello)] = hello
    pair.layer.buffer_updated(len(hello))
    assert not pair.below.reading
    for _ in range(after):
        (callback, args), *pair.loop.ready = pair.loop.ready
        callback(*args)
    pair.layer.connection_lost(None)
    pair.loop.turn()
    above = cast(Above, pair.above)
    assert above.lost
    assert not above.secured_with
    assert not above.reasons


def test_only_so_many_handshakes_take_threads_at_once(contexts: Contexts) -> None:
    pairs = [Pair(*contexts) for _ in range(10)]
    handshakes = pairs[0].layer._handshakes
    runtime = pairs[0].runtime
    for pair in pairs:
        pair.layer._handshakes = handshakes
        with pytest.raises(ssl.SSLWantReadError):
            pair.peer.do_handshake()
        hello = pair.send(b"")
        pair.layer.get_buffer(-1)[: len(hello)] = hello
        pair.layer.buffer_updated(len(hello))
    # A handshake whose connection is gone at its turn takes no place.
    pairs[5].layer.connection_lost(None)
    runtime.loop.turn()
    assert runtime.most_running == RUNNING_AT_ONCE
    assert [bool(pair.below.written) for pair in pairs] == [index != 5 for index in range(10)]


def test_handshakes_with_other_nodes_take_turns_with_those_of_clients() -> None:
    """No number of clients without authentication keeps nodes from reaching each other."""
    runtime = SteppedRuntime()
    handshakes = Handshakes(cast(Runtime, runtime))
    done: list[str] = []

    def run(name: str, *, wanted: bool = True) -> None:
        side = Side("own" if name == "gone" else name.split()[0])
        handshakes.run(lambda: done.append(name), lambda error: None, lambda: wanted, side)

    for number in range(100):
        run(f"client {number}")
    run("gone", wanted=False)
    for number in range(2):
        run(f"own {number}")
    for number in range(3):
        run(f"node {number}")
    runtime.loop.turn()
    # The handshakes that ran when they came, and then one of each queue.
    order = ["client 0", "client 1", "own 0", "node 0", "client 2", "own 1", "node 1", "client 3", "node 2", "client 4"]
    assert done[: len(order)] == order
    assert len(done) == 105


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_are_refused(version: ssl.TLSVersion, tmp_path: Path) -> None:
    peer = client_context(tmp_path)
    peer.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSVersion"):
        peer.minimum_version = peer.maximum_version = version
    pair = Pair(peer, server_context())
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"):
        pair.handshake()
    above = cast(Above, pair.above)
    assert len(above.reasons) == 1
    assert "unsupported protocol" in above.reasons[0]


# With the connection of a listener on top.


class Waiting:
    """A response that is not there yet."""

    def __init__(self) -> None:
        self.future = Promise()

    def encode(self, result: object) -> list[bytes]:
        return [b"late"]


class Served:
    """A TLS listener without a socket, and the frames that its connection dispatched."""

    def __init__(self, peer: ssl.SSLContext, own: ssl.SSLContext, rules: str = "DEFAULT") -> None:
        self.frames: list[bytes] = []
        self.answers: list[Waiting] = []
        runtime = cast(Runtime, SteppedRuntime())
        self.listener = Listener(
            runtime,
            "SSL",
            Limits(frame_seconds=10),
            security_protocol="SSL",
            tls=TlsListener(runtime, TlsServer(own, PrincipalMapper(rules)), Handshakes(runtime)),
        )
        self.listener.answer_with(self._dispatch)
        self.connection = Connection(self.listener)
        self.pair = Pair(peer, own, self.connection)

    def _dispatch(self, connection: Connection, frame: memoryview) -> list[bytes] | Waiting:
        assert connection.state is ConnectionState.READY
        self.frames.append(bytes(frame))
        if self.answers:
            return self.answers.pop()
        return [b"answer to " + bytes(frame[:10])]


@settings(max_examples=40, deadline=None)
@given(
    bodies=st.lists(st.binary(min_size=1, max_size=30_000), max_size=5),
    cuts=st.lists(st.integers(1, 3000), min_size=1, max_size=4),
)
def test_frames_are_dispatched_only_through_tls(contexts: Contexts, bodies: list[bytes], cuts: list[int]) -> None:
    served = Served(*contexts)
    turn = iter(range(10**9))

    def cut() -> int:
        return cuts[next(turn) % len(cuts)]

    assert served.connection.state is ConnectionState.HANDSHAKING
    served.pair.handshake(cut)
    assert not served.frames
    served.pair.feed(served.pair.send(b"".join(map(frame, bodies))), cut)
    assert served.frames == bodies
    assert served.pair.receive() == b"".join(b"answer to " + body[:10] for body in bodies)


@settings(max_examples=100, deadline=None)
@given(data=st.binary(min_size=1, max_size=400))
def test_plain_frames_reach_no_handler(contexts: Contexts, data: bytes) -> None:
    served = Served(*contexts)
    served.pair.feed(frame(data) + data)
    served.pair.feed(data)
    assert not served.frames
    assert served.connection.state is ConnectionState.CLOSING


def test_what_is_not_tls_ends_a_connection_that_has_answers_to_send(contexts: Contexts) -> None:
    """Formerly OpenSSL could not encrypt them, which ended the connection a second time while it was being ended."""
    served = Served(*contexts)
    served.pair.handshake()
    waiting = [Waiting(), Waiting()]
    served.answers = list(waiting)
    served.pair.feed(served.pair.send(frame(b"one") + frame(b"two")))
    for one in waiting:
        one.future.set_result(None)
    served.pair.layer.get_buffer(-1)[:10] = b"GET / HTTP"
    served.pair.layer.buffer_updated(10)
    assert str(served.connection.end).startswith("what it sent is not TLS")
    assert served.pair.below.closed


def test_the_principal_is_the_subject_by_the_rules(tmp_path: Path) -> None:
    own = server_context(client_auth=ssl.CERT_OPTIONAL)
    for identity, rules, principal in (
        (client_identity(), "DEFAULT", "User:CN=alice"),
        (client_identity(), "RULE:^CN=(.*)$/$1/U", "User:ALICE"),
        (None, "DEFAULT", "User:ANONYMOUS"),
    ):
        served = Served(client_context(tmp_path, identity), own, rules)
        served.pair.handshake()
        assert served.connection.session == PeerSession(principal)
        metrics = served.connection.listener.metrics
        assert (metrics.authenticated.value, metrics.without_renewal.value, metrics.refused.value) == (1, 1, 0)
        served.pair.feed(served.pair.send(frame(b"a")))
        assert served.frames == [b"a"]


def test_a_client_without_a_principal_is_not_served(tmp_path: Path) -> None:
    own = server_context(client_auth=ssl.CERT_REQUIRED)
    served = Served(client_context(tmp_path, client_identity()), own, "RULE:^CN=bob$/bob/")
    served.pair.handshake()
    served.pair.feed(served.pair.send(frame(b"a")))
    assert served.connection.end is not None
    assert "no rule" in served.connection.end.reason
    assert served.connection.listener.metrics.refused.value == 1
    assert not served.frames


@pytest.mark.parametrize("issuer", [None, "Another authority"])
def test_a_client_that_must_prove_itself_and_cannot_is_not_served(issuer: str | None, tmp_path: Path) -> None:
    identity = None if issuer is None else client_identity("alice", issuer)
    served = Served(client_context(tmp_path, identity), server_context(client_auth=ssl.CERT_REQUIRED))
    served.pair.handshake()
    served.pair.feed(served.pair.send(frame(b"a")))
    assert served.connection.end is not None
    assert "handshake failed" in served.connection.end.reason
    assert not served.frames
    metrics = served.connection.listener.metrics
    assert (metrics.authenticated.value, metrics.refused.value) == (0, 1)


def test_a_handshake_has_a_deadline_unless_it_waits_for_admission(contexts: Contexts) -> None:
    served = Served(*contexts)
    loop = cast(FakeLoop, served.listener.loop)
    served.connection.mute()
    assert not served.pair.below.reading
    served.connection.tidy(loop.now + 1000)
    assert served.connection.end is None
    loop.now += 1000
    served.connection.unmute()
    assert served.pair.below.reading
    served.connection.tidy(loop.now + 9)
    assert served.connection.end is None
    served.connection.tidy(loop.now + 11)
    assert served.connection.end is not None
    assert "handshake was not done within 10 s" in served.connection.end.reason


def test_a_listener_without_tls_says_that_a_client_speaks_it() -> None:
    from tests.net.fakes import connect, feed, make_listener

    connection, _ = connect(make_listener(lambda connection, frame: pytest.fail("dispatched")))
    feed(connection, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    assert connection.end is not None
    assert connection.end.reason == (
        "the client speaks TLS, which this listener does not. Its security.protocol has to be PLAINTEXT here, or it "
        "needs a listener with TLS"
    )
