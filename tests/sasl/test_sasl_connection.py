"""A connection of a SASL listener: the frames that its client may send before authentication, and after."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker.net.connection import Connection
from pykbroker.net.connection_home import Limits
from pykbroker.net.connection_state import ConnectionState
from pykbroker.net.listener import Listener
from pykbroker.runtime import Runtime
from pykbroker.sasl.plain_server import PlainServer, PlainUsers
from pykbroker.sasl.sasl_client import Login, ScramClient
from pykbroker.sasl.sasl_connection import ListenerAuthentication
from pykbroker.sasl.scram import SHA_256, salted_password, stored_keys
from pykbroker.sasl.scram_server import Decoys, ScramServer
from pykbroker.sasl.server_authenticator import MAX_FRAMES, ListenerRules, Mechanism
from pykbroker.security.stored_keys import StoredKeys
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.headers import decode_response
from pykbroker_wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pykbroker_wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pykbroker_wire.primitives import TopLevel
from testkit.nodes.wire import frame_of
from tests.net.fakes import FakeLoop, FakeRuntime, FakeTransport, connect, feed, frame, make_listener

PASSWORDS = {"user_alice": "alice-secret", "user_bob": "bob-secret"}
KEYS = stored_keys(SHA_256, salted_password(SHA_256, "carol-secret", b"salt", 4096), b"salt", 4096)
NONCE = "servernonce"


def find(mechanism: int, user: str) -> StoredKeys | None:
    return KEYS if (mechanism, user) == (1, "carol") else None


@dataclass
class World:
    """One connection, its client's bytes, and the frames of the dispatcher."""

    reauth_ms: int = 0
    failure_seconds: float = 0.1
    frame_bytes: int = 4096
    seen: list[bytes] = field(default_factory=list)
    listener: Listener = field(init=False)
    connection: Connection = field(init=False)
    transport: FakeTransport = field(init=False)
    taken: int = 0

    def __post_init__(self) -> None:
        decoys = Decoys("cluster")
        mechanisms = {
            "PLAIN": Mechanism(lambda: PlainServer(PlainUsers(PASSWORDS)), self.reauth_ms),
            "SCRAM-SHA-256": Mechanism(lambda: ScramServer(SHA_256, find, decoys, lambda: NONCE), self.reauth_ms),
        }
        rules = ListenerRules(
            mechanisms, lambda version: ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, max_version=1)])
        )
        authentication = ListenerAuthentication(rules, self.frame_bytes, self.failure_seconds, 60.0)
        self.listener = make_listener(self.dispatch, Limits(frame_bytes=1_000_000), authentication)
        self.connection, self.transport = connect(self.listener)

    @property
    def loop(self) -> FakeLoop:
        return cast(FakeLoop, self.listener.loop)

    def dispatch(self, connection: Connection, data: memoryview) -> Any:
        assert connection.session.principal != "User:ANONYMOUS"
        assert connection.state is ConnectionState.READY
        self.seen.append(bytes(data))
        return [frame(b"answer")]

    def send(self, data: bytes) -> None:
        if not self.transport.closed:
            feed(self.connection, data)

    def answers(self) -> Iterator[bytes]:
        """Yield the frames that were written since the last call."""
        written = bytes(self.transport.written)
        while self.taken < len(written):
            size = int.from_bytes(written[self.taken : self.taken + 4], "big")
            yield written[self.taken + 4 : self.taken + 4 + size]
            self.taken += 4 + size

    def ask(self, message: TopLevel, version: int) -> Any:
        """Return the response to one request, or None if there is none."""
        list(self.answers())
        self.send(request(message, version))
        found = list(self.answers())
        assert len(found) <= 1
        return decoded(message.API_KEY, version, found[0]) if found else None

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
        return cast(SaslHandshakeResponse, self.ask(SaslHandshakeRequest(mechanism=mechanism), version))

    def authenticate(self, token: bytes, version: int = 2) -> SaslAuthenticateResponse | None:
        return cast("SaslAuthenticateResponse | None", self.ask(SaslAuthenticateRequest(auth_bytes=token), version))

    def log_in(self, user: str = "alice") -> SaslAuthenticateResponse:
        assert self.handshake().error_code == ErrorCode.NONE
        answer = self.authenticate(f"\0{user}\0{user}-secret".encode())
        assert answer is not None
        return answer


def decoded(api_key: int, version: int, data: bytes) -> Any:
    return decode_response(api_key, version, data)[1]


def request(message: TopLevel, version: int) -> bytes:
    return frame_of(message, version, correlation_id=7, client_id="client")


METADATA = request(MetadataRequest(topics=None), 9)
VERSIONS = ApiVersionsRequest(client_software_name="a", client_software_version="1")


def test_plain_by_requests() -> None:
    world = World()
    answer = world.ask(VERSIONS, 3)
    assert [(one.api_key, one.max_version) for one in answer.api_keys] == [(3, 1)]
    answer = world.handshake()
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.NONE, ["PLAIN", "SCRAM-SHA-256"])
    assert world.connection.state is ConnectionState.AUTHENTICATING
    answer = world.authenticate(b"\0alice\0alice-secret")
    assert answer is not None
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (ErrorCode.NONE, "", b"")
    assert answer.session_lifetime_ms == 0
    assert world.connection.session.principal == "User:alice"
    assert (world.connection.client_software_name, world.connection.client_software_version) == ("a", "1")
    world.send(METADATA)
    assert world.seen == [METADATA[4:]]
    assert list(world.answers()) == [b"answer"]
    # The session lasts as long as the connection.
    world.loop.pass_seconds(10_000)
    world.send(METADATA)
    assert len(world.seen) == 2


@pytest.mark.parametrize("version", [0, 1, 2])
def test_scram_by_requests(version: int) -> None:
    world = World()
    world.handshake("SCRAM-SHA-256")
    client = ScramClient(Login("SCRAM-SHA-256", "carol", "carol-secret"), SHA_256)
    first = world.authenticate(client.first(), version)
    assert first is not None
    assert world.connection.state is ConnectionState.AUTHENTICATING
    proof = client.evaluate(first.auth_bytes)
    assert proof is not None
    last = world.authenticate(proof, version)
    assert last is not None
    client.evaluate(last.auth_bytes)
    assert client.is_complete
    assert world.connection.session.principal == "User:carol"


def test_bare_tokens_behind_handshake_0() -> None:
    world = World()
    world.handshake("SCRAM-SHA-256", 0)
    client = ScramClient(Login("SCRAM-SHA-256", "carol", "carol-secret"), SHA_256)
    world.send(frame(client.first()))
    (challenge,) = world.answers()
    proof = client.evaluate(challenge)
    assert proof is not None
    world.send(frame(proof) + METADATA)
    last, answer = world.answers()
    client.evaluate(last)
    assert client.is_complete
    assert answer == b"answer"
    plain = World()
    plain.handshake("PLAIN", 0)
    plain.send(frame(b"\0alice\0alice-secret"))
    assert list(plain.answers()) == [b""]
    assert plain.connection.state is ConnectionState.READY


def test_a_frame_behind_the_last_token_may_be_as_large_as_any() -> None:
    world = World(frame_bytes=200)
    large = frame(b"x" * 100_000)
    world.send(
        request(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        + request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret"), 2)
        + large
    )
    assert world.seen == [large[4:]]


# Failures.


def check_refused(world: World, code: ErrorCode | None = None) -> Any:
    """Check that the connection ends after the delay for failures, and not before; return the response if there is
    one."""
    assert not world.transport.closed
    assert list(world.answers()) == []
    world.send(METADATA)
    assert not world.transport.closed
    world.loop.pass_seconds(world.failure_seconds - 0.01)
    assert list(world.answers()) == []
    world.loop.pass_seconds(0.02)
    found = list(world.answers())
    # A client has a moment to read it.
    assert world.transport.closed == (code is None)
    world.loop.pass_seconds(0.3)
    assert world.transport.closed
    assert world.seen == []
    assert list(world.answers()) == []
    assert len(found) == (0 if code is None else 1)
    return found[0] if found else None


@pytest.mark.parametrize("token", [b"\0alice\0wrong", b"\0nobody\0alice-secret"])
def test_a_wrong_password_and_an_unknown_user_get_one_answer(token: bytes) -> None:
    world = World()
    world.handshake()
    assert world.authenticate(token) is None
    data = check_refused(world, ErrorCode.SASL_AUTHENTICATION_FAILED)
    answer = decoded(ApiKey.SASL_AUTHENTICATE, 2, data)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"


@pytest.mark.parametrize("user", ["carol", "nobody"])
def test_scram_fails_at_the_last_step_with_one_answer(user: str) -> None:
    world = World()
    world.handshake("SCRAM-SHA-256")
    client = ScramClient(Login("SCRAM-SHA-256", user, "wrong"), SHA_256)
    first = world.authenticate(client.first())
    assert first is not None
    assert first.error_code == ErrorCode.NONE
    proof = client.evaluate(first.auth_bytes)
    assert proof is not None
    assert world.authenticate(proof) is None
    answer = decoded(ApiKey.SASL_AUTHENTICATE, 2, check_refused(world, ErrorCode.SASL_AUTHENTICATION_FAILED))
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )


def test_a_failure_behind_handshake_0_has_no_answer() -> None:
    world = World()
    world.handshake("PLAIN", 0)
    world.send(frame(b"\0alice\0wrong"))
    check_refused(world)


def test_an_unsupported_mechanism_hears_of_the_others() -> None:
    world = World()
    assert world.handshake("GSSAPI") is None
    answer = decoded(ApiKey.SASL_HANDSHAKE, 1, check_refused(world, ErrorCode.UNSUPPORTED_SASL_MECHANISM))
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256"]


@pytest.mark.parametrize(
    "data",
    [
        METADATA,
        request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret"), 2),
        frame(b"\0alice\0alice-secret"),
        frame(b"\x60\x82"),
        frame(b"\xff" * 30),
        frame(request(SaslHandshakeRequest(mechanism="PLAIN"), 1)[4:-3]),
        frame((17).to_bytes(2, "big") + (9).to_bytes(2, "big") + bytes(20)),
    ],
)
def test_what_is_no_handshake_gets_no_answer(data: bytes) -> None:
    world = World()
    world.send(data)
    check_refused(world)


def test_api_versions_comes_once_and_may_be_refused_first() -> None:
    world = World()
    assert world.ask(ApiVersionsRequest(client_software_name="a b"), 3).error_code == ErrorCode.INVALID_REQUEST
    data = request(VERSIONS, 3)
    world.send(data[:6] + (99).to_bytes(2, "big") + data[8:])
    answer = decoded(ApiKey.API_VERSIONS, 0, next(world.answers()))
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(one.api_key, one.max_version) for one in answer.api_keys] == [(18, 5)]
    assert world.ask(VERSIONS, 0).error_code == ErrorCode.NONE
    assert world.ask(VERSIONS, 0) is None
    check_refused(world)


@pytest.mark.parametrize(
    ("message", "version", "code"),
    [
        (SaslHandshakeRequest(mechanism="PLAIN"), 1, ErrorCode.ILLEGAL_SASL_STATE),
        (VERSIONS, 3, ErrorCode.ILLEGAL_SASL_STATE),
        (MetadataRequest(topics=None), 9, None),
    ],
)
def test_another_request_where_a_token_is_due(message: TopLevel, version: int, code: ErrorCode | None) -> None:
    world = World()
    world.handshake()
    assert world.ask(message, version) is None
    data = check_refused(world, code)
    if code is not None:
        assert decoded(message.API_KEY, version, data).error_code == code


def test_there_are_few_requests_before_authentication() -> None:
    world = World()
    for _ in range(MAX_FRAMES):
        assert world.ask(ApiVersionsRequest(client_software_name="a b"), 3).error_code == ErrorCode.INVALID_REQUEST
    assert world.handshake() is None
    check_refused(world)


@pytest.mark.parametrize("size", [4097, 0, -1, 2**31 - 1])
def test_a_request_before_authentication_is_small(size: int, caplog: pytest.LogCaptureFixture) -> None:
    """sasl.server.max.receive.size"""
    caplog.set_level(logging.INFO)
    world = World()
    world.send(size.to_bytes(4, "big", signed=True))
    assert world.transport.closed
    assert f"invalid request size {size}, allowed is 1 to 4096 (sasl.server.max.receive.size)" in caplog.text


def test_the_whole_exchange_has_a_deadline() -> None:
    """It ends the exchange, however steadily bytes arrive."""
    world = World()
    data = request(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    for byte in data[:-1]:
        world.send(bytes([byte]))
        world.loop.pass_seconds(60.0 / len(data))
    assert not world.transport.closed
    world.loop.pass_seconds(60.0)
    assert world.transport.closed
    done = World()
    done.log_in()
    done.loop.pass_seconds(600.0)
    assert not done.transport.closed


def test_no_line_has_what_a_client_sent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for token in (b"\0alice\0Tr0ub4dor", b"Tr0ub4dor", b"\0Tr0ub4dor\0x", b"a\0b\0c\0Tr0ub4dor"):
        world = World()
        world.handshake()
        world.authenticate(token)
        world.loop.pass_seconds(1)
        assert world.transport.closed
    world = World()
    world.handshake("Tr0ub4dor")
    world.loop.pass_seconds(1)
    world = World()
    world.handshake("SCRAM-SHA-256")
    world.authenticate(b"n,,n=Tr0ub4dor,x")
    world.loop.pass_seconds(1)
    assert caplog.text.count("INFO") == caplog.text.count("authentication failed") / 2 == 6
    assert "Tr0ub4dor" not in caplog.text


# A session that ends (KIP-368).


def test_a_session_is_renewed() -> None:
    world = World(reauth_ms=10_000)
    assert world.log_in().session_lifetime_ms == 10_000
    world.send(METADATA)
    world.loop.pass_seconds(9)
    assert world.log_in().session_lifetime_ms == 10_000
    world.loop.pass_seconds(9)
    world.send(METADATA)
    assert len(world.seen) == 2
    world.loop.pass_seconds(2)
    # Too late, but a renewal is still allowed.
    world.log_in()
    world.send(METADATA)
    assert len(world.seen) == 3


def test_a_request_behind_the_end_of_the_session_ends_the_connection() -> None:
    world = World(reauth_ms=10_000)
    world.log_in()
    world.loop.pass_seconds(10.1)
    assert not world.transport.closed
    world.send(METADATA)
    assert world.transport.closed
    assert world.seen == []


def test_nothing_is_dispatched_in_the_middle_of_a_renewal() -> None:
    world = World(reauth_ms=10_000)
    world.log_in()
    world.handshake()
    assert world.connection.state is ConnectionState.AUTHENTICATING
    world.send(METADATA)
    check_refused(world)


def test_a_renewal_is_of_the_same_user(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    world = World(reauth_ms=10_000)
    world.log_in()
    world.handshake()
    assert world.authenticate(b"\0bob\0bob-secret") is None
    answer = decoded(ApiKey.SASL_AUTHENTICATE, 2, check_refused(world, ErrorCode.SASL_AUTHENTICATION_FAILED))
    assert answer.error_message == ("Cannot change principals during re-authentication from User.alice: User.bob")
    # The log has no name that a client has chosen.
    assert "authentication failed: re-authentication as another user" in caplog.text
    assert "bob" not in caplog.text


def test_a_renewal_is_by_the_same_mechanism() -> None:
    world = World(reauth_ms=10_000)
    world.log_in()
    assert world.handshake("SCRAM-SHA-256").error_code == ErrorCode.NONE
    assert world.authenticate(b"n,,n=carol,r=abc") is None
    check_refused(world)


def test_a_renewal_that_fails_ends_the_connection() -> None:
    world = World(reauth_ms=10_000)
    world.log_in()
    world.handshake()
    assert world.authenticate(b"\0alice\0wrong") is None
    check_refused(world, ErrorCode.SASL_AUTHENTICATION_FAILED)


def test_a_second_renewal_within_a_second_is_an_ordinary_request() -> None:
    """As in Apache Kafka; the dispatcher answers ILLEGAL_SASL_STATE."""
    world = World(reauth_ms=10_000)
    world.log_in()
    world.log_in()
    handshake = request(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    world.send(handshake)
    assert world.seen == [handshake[4:]]
    world.loop.pass_seconds(1)
    world.log_in()


def test_without_a_lifetime_a_handshake_is_an_ordinary_request() -> None:
    world = World()
    world.log_in()
    handshake = request(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    world.send(handshake)
    assert world.seen == [handshake[4:]]


# Any order, any split.

LOGIN = [
    request(SaslHandshakeRequest(mechanism="PLAIN"), 1),
    request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret"), 2),
]
#: none of these proves anything, in any order; the first half of LOGIN is among them
UNPROVEN = [
    METADATA,
    request(VERSIONS, 3),
    request(VERSIONS, 0),
    LOGIN[0],
    request(SaslHandshakeRequest(mechanism="PLAIN"), 0),
    request(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1),
    request(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0),
    request(SaslHandshakeRequest(mechanism="OTHER"), 1),
    request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-Secret"), 2),
    request(SaslAuthenticateRequest(auth_bytes=b"n,,n=carol,r=c"), 2),
    request(SaslAuthenticateRequest(auth_bytes=f"c=biws,r=c{NONCE},p={'A' * 43}=".encode()), 2),
    request(SaslAuthenticateRequest(auth_bytes=b""), 0),
    frame(b"\0alice\0wrong"),
    frame(b"n,,n=carol,r=c"),
    frame(f"c=biws,r=c{NONCE},p={'A' * 43}=".encode()),
    frame(b"\xff\xff"),
]
FRAMES = st.one_of(st.sampled_from(UNPROVEN), st.binary(min_size=1, max_size=60).map(frame))


def feed_split(world: World, stream: bytes, cuts: list[int], seconds: list[float]) -> None:
    position = turn = 0
    while position < len(stream) and not world.transport.closed:
        size = cuts[turn % len(cuts)]
        world.send(stream[position : position + size])
        world.loop.pass_seconds(seconds[turn % len(seconds)])
        position += size
        turn += 1


CUTS = st.lists(st.integers(1, 300), min_size=1, max_size=8)
SECONDS = st.lists(st.sampled_from([0.0, 0.0, 0.05, 0.2]), min_size=1, max_size=5)


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(FRAMES, max_size=12), CUTS, SECONDS)
def test_no_byte_of_a_client_without_proof_reaches_the_dispatcher(
    frames: list[bytes], cuts: list[int], seconds: list[float]
) -> None:
    """`World.dispatch` asserts for each frame that a user is known."""
    world = World()
    feed_split(world, b"".join(frames), cuts, seconds)
    assert world.seen == []
    assert world.connection.session.principal == "User:ANONYMOUS"
    assert world.connection.state is not ConnectionState.READY
    world.loop.pass_seconds(120)
    assert world.transport.closed
    assert not any(not timer.cancelled for timer in world.loop.timers)


@pytest.mark.slow
@settings(max_examples=200)
@given(
    st.lists(st.sampled_from([VERSIONS]), max_size=1),
    st.lists(st.binary(min_size=1, max_size=400).filter(lambda data: data[:2] != b"\0\x11"), max_size=8),
    CUTS,
)
def test_what_follows_the_proof_reaches_it_whole_however_it_is_split(
    versions: list[ApiVersionsRequest], bodies: list[bytes], cuts: list[int]
) -> None:
    world = World(reauth_ms=10_000_000)
    before = [request(one, 3) for one in versions] + LOGIN
    feed_split(world, b"".join([*before, *map(frame, bodies)]), cuts, [0.0])
    assert world.seen == bodies
    assert len(list(world.answers())) == len(before) + len(bodies)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(FRAMES, min_size=1, max_size=6), CUTS)
def test_a_renewal_lets_nothing_through_until_it_succeeds(frames: list[bytes], cuts: list[int]) -> None:
    world = World(reauth_ms=10_000)
    world.log_in()
    world.send(LOGIN[0])
    feed_split(world, b"".join(frames), cuts, [0.0])
    assert world.seen == []
    assert world.connection.session.principal == "User:alice"


# Apache Kafka's socket-server-metrics.


def counted(world: World) -> dict[str, int]:
    metrics = world.listener.metrics
    return {name: counter.value for name in metrics.__slots__ if (counter := getattr(metrics, name)).value}


def test_what_is_counted_of_a_session() -> None:
    world = World(reauth_ms=10_000)
    world.log_in()
    assert counted(world) == {"opened": 1, "authenticated": 1}
    world.loop.pass_seconds(9)
    world.log_in()
    assert counted(world) == {"opened": 1, "authenticated": 1, "renewed": 1}
    world.loop.pass_seconds(10.1)
    world.send(METADATA)
    assert counted(world) == {"opened": 1, "authenticated": 1, "renewed": 1, "expired": 1}


def test_what_is_counted_of_refusals() -> None:
    world = World(reauth_ms=10_000)
    world.handshake()
    world.authenticate(b"\0alice\0wrong")
    assert counted(world) == {"opened": 1, "refused": 1}
    world = World(reauth_ms=10_000)
    world.log_in()
    world.handshake()
    world.authenticate(b"\0alice\0wrong")
    assert counted(world) == {"opened": 1, "authenticated": 1, "renewal_refused": 1}
    world = World()
    world.loop.pass_seconds(61)
    assert counted(world) == {"opened": 1, "refused": 1}


@pytest.mark.parametrize(("version", "is_renewable"), [(0, False), (1, True), (2, True)])
def test_clients_that_cannot_renew_are_counted(version: int, is_renewable: bool) -> None:
    world = World()
    world.handshake()
    world.authenticate(b"\0alice\0alice-secret", version)
    assert counted(world).get("without_renewal", 0) == (0 if is_renewable else 1)


def test_a_listener_and_its_authentication_agree() -> None:
    world = World()
    authentication = world.listener.authentication
    for protocol, given_one in (("SASL_PLAINTEXT", None), ("PLAINTEXT", authentication)):
        listener = Listener(cast(Runtime, FakeRuntime()), "L", Limits(), security_protocol=protocol)
        with pytest.raises(RuntimeError, match="do not agree"):
            listener.answer_with(world.dispatch, given_one)
