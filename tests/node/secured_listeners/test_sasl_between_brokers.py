"""Brokers that authenticate to each other: replication with sessions that end, and settings that stop the start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pykbroker.sasl.sasl_client import Login
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from pykbroker_wire.messages.sasl_handshake import SaslHandshakeRequest
from testkit.acting import acts, note
from testkit.nodes.nodes import eventually_holds
from testkit.nodes.processes import run, write_properties
from testkit.nodes.trio import NUMBERS, REPLICATED, Trio
from testkit.nodes.wire import Wire, batch
from tests.node.secured_listeners.test_tls_between_brokers import trio_leader

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
USER = 'username="node" password="node-secret"'
#: The listener is named PLAINTEXT, like that of `Trio`, and uses SASL.
BETWEEN = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM} required {USER};",
    "listener.name.plaintext.plain.sasl.jaas.config": f'{PLAIN} required {USER} user_alice="alice-secret";',
}


def wire_of_alice(trio: Trio, number: int) -> Wire:
    wire = Wire(trio.address(number), timeout=60)
    assert wire.call(SaslHandshakeRequest(mechanism="PLAIN")).error_code == ErrorCode.NONE
    token = Login("PLAIN", "alice", "alice-secret").begin().first()
    assert wire.call(SaslAuthenticateRequest(auth_bytes=token)).error_code == ErrorCode.NONE
    return wire


@pytest.mark.slow
@acts(broker=("sasl.mechanism.inter.broker.protocol",))
def test_three_nodes_replicate_with_sessions_that_end(tmp_path: Path) -> None:
    """Acknowledged records are there after the leader is gone."""
    sessions = {"listener.name.plaintext.scram-sha-256.connections.max.reauth.ms": 1500}
    settings = note({**REPLICATED, **BETWEEN, **sessions})
    with Trio(tmp_path, "static", settings, users=["SCRAM-SHA-256=[name=node,password=node-secret]"]) as trio:
        with wire_of_alice(trio, 1) as wire:
            wire.create("t", replication=3)
            leader = trio_leader(wire)
        renewed = 0
        with wire_of_alice(trio, leader) as wire:
            # Until followers have renewed their sessions more than once.
            while renewed < 8:
                answer = wire.produce("t", batch(b"%d" % renewed * 1000), acks=-1)
                assert answer.error_code == ErrorCode.NONE
                renewed += 1
                wire.fetch("t", answer.base_offset + 1, max_wait_ms=500)
        trio.kill(leader)
        other = next(number for number in NUMBERS if number != leader)
        with wire_of_alice(trio, other) as wire:
            led = trio_leader(wire, not_by=leader)
        with wire_of_alice(trio, led) as wire:
            eventually_holds(wire, "t", [b"%d" % number * 1000 for number in range(8)])
        text = "".join((tmp_path / f"{number}.log").read_text() for number in NUMBERS)
        assert "authentication of this node" not in text
        assert "was not renewed" not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"}, "sasl.enabled.mechanisms must contain it"),
        (
            {"sasl.mechanism.inter.broker.protocol": "GSSAPI", "sasl.enabled.mechanisms": "GSSAPI"},
            "Invalid value GSSAPI",
        ),
        (
            {"listener.name.plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;"},
            "it has no username and password",
        ),
    ],
)
def test_a_login_that_cannot_be_stops_the_start(changed: dict[str, str], said: str, tmp_path: Path) -> None:
    file = write_properties(
        tmp_path / "server.properties",
        {
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "log.dirs": tmp_path / "data",
            **BETWEEN,
            **changed,
        },
    )
    done = run("start", "--format", str(file))
    assert done.returncode == 1
    assert re.search(said, done.stderr)
    assert "node-secret" not in done.stderr
