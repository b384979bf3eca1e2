"""A client that does anything, in any order and any pieces, to a listener of each kind: only proven users are served.

`AnyClient.check` is the oracle: it follows the client's frames, and does not use the connection's states.
"""

from __future__ import annotations

import functools
import logging
import ssl
import tempfile
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pykbroker.net.connection_state import ConnectionState
from pykbroker.sasl.sasl_client import Login, LoginRefused, ScramClient
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.headers import decode_response
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from pykbroker_wire.messages.sasl_handshake import SaslHandshakeRequest
from pykbroker_wire.primitives import DecodeError, TopLevel
from testkit.certificates import client_context, client_identity
from testkit.nodes.wire import frame_of
from tests.net.any_client import DEADLINE_SECONDS, FRAME_BYTES, MECHANISMS, PASSWORDS, SCRAM, AnyClient, SentFrame
from tests.tls.test_tls_layer import server_context

USERS = st.sampled_from(sorted(PASSWORDS))


@functools.cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the listener's, which asks for a certificate only on SSL, and the client's."""
    with tempfile.TemporaryDirectory() as folder:
        return server_context(client_auth=ssl.CERT_REQUIRED), client_context(Path(folder), client_identity())


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class ConnectionMachine(RuleBasedStateMachine):
    KIND = ""
    IS_CONTROLLERS = False
    #: over all runs: frames of proven users
    dispatched = renewed = 0

    def __init__(self) -> None:
        super().__init__()
        #: preconditions read only this, because a run also depends on nonces
        self.steps = 0
        self.errors = _Errors()
        logging.getLogger("pykbroker").addHandler(self.errors)

    @initialize(
        reauth_ms=st.sampled_from([5_000, 0]),
        good=st.sampled_from([0, 0, 3, 6, 10]),
        mechanism=st.sampled_from(MECHANISMS),
        version=st.integers(0, 1),
    )
    def connect(self, reauth_ms: int, good: int, mechanism: str, version: int) -> None:
        own, peer = contexts()
        self.client = AnyClient(self.KIND, reauth_ms, own, peer, self.IS_CONTROLLERS)
        self.number = 0
        self.version = 1
        self.scram: ScramClient | None = None
        for _ in range(good):
            self.go_on(mechanism, "alice", version, 400)

    @property
    def is_over(self) -> bool:
        return self.client.lost or self.client.below.closed

    # -- frames -------------------------------------------------------------------------------------------------------

    def request(self, message: TopLevel, version: int) -> bytes:
        self.number += 1
        return frame_of(message, version, correlation_id=self.number, client_id="client")[4:]

    def token(self, data: bytes, version: int, proves: str = "") -> None:
        if self.version == 1:
            data = self.request(SaslAuthenticateRequest(auth_bytes=data), version)
        self.client.send(SentFrame(data, proves=proves))

    @rule(padding=st.integers(0, 6000))
    def send_request(self, padding: int) -> None:
        message = MetadataRequest(topics=None)
        self.client.send(SentFrame(self.request(message, 9) + bytes(padding) + self.number.to_bytes(2, "little")))

    @rule(version=st.integers(0, 4), software=st.sampled_from(["a", "a b"]))
    def send_versions(self, version: int, software: str) -> None:
        message = ApiVersionsRequest(client_software_name=software, client_software_version="1")
        self.client.send(SentFrame(self.request(message, version)))

    @rule(mechanism=st.sampled_from([*MECHANISMS, "GSSAPI", "plain", ""]), version=st.integers(0, 1))
    def send_handshake(self, mechanism: str, version: int) -> None:
        self.version = version
        self.scram = None
        handshake = self.request(SaslHandshakeRequest(mechanism=mechanism), version)
        self.client.send(SentFrame(handshake, mechanism=mechanism if mechanism in MECHANISMS else ""))

    @rule(user=USERS, right=st.booleans(), version=st.integers(0, 2))
    def send_password(self, user: str, right: bool, version: int) -> None:
        password = PASSWORDS[user] if right else "none of these"
        self.token(f"\0{user}\0{password}".encode(), version, user if right else "")

    @rule(data=st.binary(max_size=40), version=st.integers(0, 2))
    def send_any_token(self, data: bytes, version: int) -> None:
        self.token(data, version)

    @rule(data=st.binary(min_size=1, max_size=60))
    def send_any_frame(self, data: bytes) -> None:
        # The first byte prevents a request that begins an exchange by chance.
        self.client.send(SentFrame(b"\xff" + data))

    @rule(mechanism=st.sampled_from(sorted(SCRAM)), user=USERS, right=st.booleans())
    def send_scram_first(self, mechanism: str, user: str, right: bool) -> None:
        login = Login(mechanism, user, PASSWORDS[user] if right else "none of these")
        self.scram = ScramClient(login, SCRAM[mechanism])
        self.scram_proves = user if right else ""
        self.client.deliver(1 << 20)
        self.client.answers()
        self.token(self.scram.first(), 2)

    @rule(keeps=st.booleans())
    def send_scram_final(self, keeps: bool) -> None:
        """It is right if the challenge has come; otherwise it is one that the client cannot know."""
        self.client.deliver(1 << 20)
        answers = self.client.answers()
        if self.scram is None or not answers:
            self.token(f"c=biws,r=abc,p={'A' * 43}=".encode(), 2)
            return
        try:
            challenge = answers[-1]
            if self.version == 1:
                answer: Any = decode_response(ApiKey.SASL_AUTHENTICATE, 2, challenge)[1]
                challenge = answer.auth_bytes
            final = self.scram.evaluate(challenge)
        except (LoginRefused, DecodeError, ValueError, AttributeError):
            final = None
        if final is not None:
            self.token(final, 2, self.scram_proves)
        if not keeps:
            self.scram = None

    @rule(count=st.integers(1, 12))
    def send_refused_versions(self, count: int) -> None:
        for _ in range(count):
            self.send_versions(3, "a b")

    @rule(mechanism=st.sampled_from(MECHANISMS), user=USERS, version=st.integers(0, 1), cut=st.integers(1, 500))
    def go_on(self, mechanism: str, user: str, version: int, cut: int) -> None:
        """Act as a well-behaved client does; renew the session if required."""
        client = self.client
        expected = client.check()
        if client.is_tls and not client.is_handshaken:
            client.start_tls()
        elif expected.needs == "handshake":
            self.send_handshake(mechanism, version)
        elif expected.needs == "first" and expected.mechanism == "PLAIN":
            self.send_password(expected.proven or user, True, 2)
        elif expected.needs == "first":
            self.send_scram_first(expected.mechanism, expected.proven or user, True)
        elif expected.needs == "final":
            self.send_scram_final(False)
        else:
            self.send_request(cut)
        self.deliver([cut, 8000])

    @rule(mechanism=st.sampled_from(MECHANISMS), user=USERS, version=st.integers(0, 1), cut=st.integers(1, 500))
    def go_on_for_longer(self, mechanism: str, user: str, version: int, cut: int) -> None:
        for _ in range(4):
            self.go_on(mechanism, user, version, cut)

    @rule(same=st.booleans(), mechanism=st.sampled_from(MECHANISMS), user=USERS, version=st.integers(0, 1))
    def renew(self, same: bool, mechanism: str, user: str, version: int) -> None:
        """Run a whole exchange; of the same user, by the same mechanism, or not."""
        expected = self.client.check()
        if not expected.proven or expected.needs:
            return
        mechanism = (same and expected.mechanism) or mechanism
        self.client.pass_seconds(1)
        self.send_handshake(mechanism, version)
        if mechanism == "PLAIN":
            self.send_password(user, True, 2)
        else:
            self.send_scram_first(mechanism, user, True)
            self.send_scram_final(False)
        self.send_request(0)
        self.client.deliver(8000)

    # -- other bytes --------------------------------------------------------------------------------------------------

    @rule()
    def start_tls(self) -> None:
        self.client.start_tls()

    @rule(size=st.sampled_from([0, -1, FRAME_BYTES + 1, 2**31 - 1, -(2**31), 0x16030100]), body=st.binary(max_size=20))
    @precondition(lambda self: self.steps > 3)
    def send_impossible_size(self, size: int, body: bytes) -> None:
        self.client.send_garbled(size.to_bytes(4, "big", signed=True) + body)

    @rule(data=st.binary(min_size=1, max_size=50))
    @precondition(lambda self: self.steps > 3)
    def send_bytes(self, data: bytes) -> None:
        self.client.send_garbled(data)

    @rule(
        data=st.binary(min_size=1, max_size=50),
        head=st.sampled_from([b"\0\0\0\x02ab", b"", b"\x16\x03\x01", b"\x17\x03\x03"]),
    )
    def send_past_tls(self, head: bytes, data: bytes) -> None:
        self.client.send_below(head + data)

    @rule(position=st.integers(0, 10_000), flip=st.integers(1, 255))
    def corrupt(self, position: int, flip: int) -> None:
        self.client.corrupt(position, flip)

    # -- network, time, and other parts of the node -------------------------------------------------------------------

    @rule(cuts=st.lists(st.integers(1, 8000), min_size=1, max_size=4))
    def deliver(self, cuts: list[int]) -> None:
        for cut in cuts:
            self.client.deliver(cut)

    @rule()
    def answer_parked(self) -> None:
        self.client.answer_parked()

    @rule(seconds=st.sampled_from([0.0, 0.05, 0.2, 1.0, 4.0, 6.0, 11.0, 61.0]))
    def pass_seconds(self, seconds: float) -> None:
        self.client.pass_seconds(seconds)

    @rule()
    @precondition(lambda self: self.steps > 5)
    def lose(self) -> None:
        self.client.lose()

    @rule()
    @precondition(lambda self: self.steps > 5)
    def finish(self) -> None:
        self.client.finish()

    @rule()
    def mute_for_a_moment(self) -> None:
        """Mute it, as quotas do."""
        if not self.is_over:
            self.client.connection.mute()
            self.client.deliver(5000)
            self.client.connection.unmute()

    @rule()
    @precondition(lambda self: self.steps > 5)
    def close(self) -> None:
        self.client.connection.close("the test closes it")

    # -- invariants ---------------------------------------------------------------------------------------------------

    @invariant()
    def only_proven_users_are_served(self) -> None:
        self.steps += 1
        if hasattr(self, "client"):
            self.client.check()
            assert self.errors.lines == []

    def teardown(self) -> None:
        try:
            if hasattr(self, "client"):
                self._check_the_end()
        finally:
            logging.getLogger("pykbroker").removeHandler(self.errors)

    def _check_the_end(self) -> None:
        """Every connection ends, or serves."""
        client = self.client
        for _ in range(6):
            client.deliver(1 << 20)
            client.answer_parked()
        for _ in range(4):
            client.pass_seconds(DEADLINE_SECONDS / 3)
        client.check()
        assert client.connection.state in (ConnectionState.READY, ConnectionState.CLOSED)
        assert client.connection.state is not ConnectionState.READY or not client.connection._flow.mutes
        type(self).dispatched += len(client.dispatched)
        type(self).renewed += sum(1 for sent in client.sent if sent.proves) > 1
        for _ in range(8):
            # Frames that waited for parked responses may be parked in their turn.
            while client.parked:
                client.answer_parked()
            client.pass_seconds(300)
        assert client.connection.state is ConnectionState.CLOSED
        assert client.listener.memory.used == 0
        assert not client.listener.connections
        assert not [timer for timer in client.loop.timers if not timer.cancelled]
        assert self.errors.lines == []


KINDS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def run(kind: str, examples: int, *, is_controllers: bool = False) -> None:
    fields = {"KIND": kind, "IS_CONTROLLERS": is_controllers}
    machine: Any = type(f"{kind}Machine", (ConnectionMachine,), fields)
    settings = hypothesis.settings(
        max_examples=examples,
        stateful_step_count=30,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    run_state_machine_as_test(machine, settings=settings)
    # The machine gets in if it has the right to.
    assert machine.dispatched > examples / 10
    assert machine.renewed or not kind.startswith("SASL")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_only_proven_users_are_served_whatever_a_client_does(kind: str) -> None:
    run(kind, 200)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_only_proven_users_are_served_by_controllers(kind: str) -> None:
    run(kind, 60, is_controllers=True)


@pytest.mark.long(amount="5,000 connections of each kind")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_only_proven_users_are_served_for_longer(kind: str) -> None:
    run(kind, 5000)
    if kind.startswith("SASL"):
        run(kind, 5000, is_controllers=True)
