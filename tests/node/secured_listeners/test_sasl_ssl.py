"""A listener whose protocol is SASL_SSL, with TLS first, then SASL, whose user is the principal."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykbroker.sasl.sasl_client import Login
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from pykbroker_wire.messages.sasl_handshake import SaslHandshakeRequest
from testkit.certificates import client_context, client_identity, node_properties
from testkit.nodes.wire import Closed, Wire, batch
from tests.node.secured_listeners.test_tls_listeners import LISTENERS, Secured

#: The listener with the name SSL uses SASL as well.
BELOW_SASL = {
    **LISTENERS,
    **node_properties(),
    "listener.security.protocol.map": "SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.ssl.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="alice-secret";',
}


def log_in(wire: Wire, password: str = "alice-secret") -> ErrorCode:
    """Log in as alice, by PLAIN."""
    assert wire.call(SaslHandshakeRequest(mechanism="PLAIN")).error_code == ErrorCode.NONE
    token = Login("PLAIN", "alice", password).begin().first()
    return ErrorCode(wire.call(SaslAuthenticateRequest(auth_bytes=token)).error_code)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("node"), BELOW_SASL) as node:
        yield node


def test_tls_then_sasl_then_requests(node: Secured, tmp_path: Path) -> None:
    with Wire(node.address(), tls=client_context(tmp_path)) as wire:
        assert log_in(wire) == ErrorCode.NONE
        assert node.principals() == ["User:alice"]
        wire.create("t")
        # More than one record of TLS, in each direction.
        values = [bytes([index]) * 300_000 for index in range(3)]
        for value in values:
            assert wire.produce("t", batch(value)).error_code == ErrorCode.NONE
        assert wire.values("t") == values


@pytest.mark.slow
def test_a_wrong_password_is_refused(node: Secured, tmp_path: Path) -> None:
    with Wire(node.address(), tls=client_context(tmp_path)) as wire:
        assert log_in(wire, "wrong") == ErrorCode.SASL_AUTHENTICATION_FAILED
        with pytest.raises(Closed):
            wire.metadata()


def test_tls_alone_is_not_enough(node: Secured, tmp_path: Path) -> None:
    with Wire(node.address(), tls=client_context(tmp_path)) as wire, pytest.raises(Closed):
        wire.metadata()


def test_sasl_without_tls_gets_no_answer(node: Secured) -> None:
    with Wire(node.address()) as wire, pytest.raises(Closed):
        log_in(wire)


@pytest.mark.slow
def test_only_the_key_of_the_listener_asks_for_certificates(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`ssl.client.auth` without a prefix does not, as in Apache Kafka, and a log line reports it."""
    with (
        caplog.at_level(logging.WARNING),
        Secured(tmp_path / "one", {**BELOW_SASL, "ssl.client.auth": "required"}) as node,
        Wire(node.address(), tls=client_context(tmp_path)) as wire,
    ):
        assert log_in(wire) == ErrorCode.NONE
    (line,) = [line for line in caplog.messages if "ssl.client.auth" in line]
    assert "has no effect on SASL_SSL" in line
    required = {
        **BELOW_SASL,
        "listener.name.ssl.ssl.client.auth": "required",
        # A rule that matches no subject, because it is not used.
        "ssl.principal.mapping.rules": "RULE:^nothing$/x/",
    }
    with Secured(tmp_path / "two", required) as node:
        with (
            pytest.raises((ssl.SSLError, Closed)),
            Wire(node.address(), tls=client_context(tmp_path)) as wire,
        ):
            log_in(wire)
        with Wire(node.address(), tls=client_context(tmp_path, client_identity("bob"))) as wire:
            assert log_in(wire) == ErrorCode.NONE
            assert node.principals()[-1] == "User:alice"
