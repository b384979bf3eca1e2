"""Brokers that use TLS between each other: replication, coordinators, and peers with wrong certificates."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import development_profile, load
from pykbroker.net.client import BrokerConnection, Disconnected
from pykbroker.node.node import Node
from pykbroker.node.ways_to_nodes import way_to_brokers, way_to_controllers
from pykbroker.runtime import OsRuntime
from pykbroker.tls.handshakes import Handshakes
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest
from pykbroker_wire.messages.metadata import MetadataRequest
from testkit.acting import acts
from testkit.certificates import authority, client_context, client_identity, in_one_line, node_properties, now
from testkit.nodes.nodes import eventually_holds
from testkit.nodes.trio import NUMBERS, REPLICATED, Trio
from testkit.nodes.wire import Wire, batch
from tests.node.secured_listeners.test_tls_listeners import Secured

PATIENCE_MS = 60_000
#: The listener is named PLAINTEXT, like that of `Trio`, and uses TLS.
SECURED_BETWEEN = {
    **node_properties(),
    "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "ssl.client.auth": "required",
}


@pytest.mark.slow
def test_three_nodes_replicate_over_tls_alone(tmp_path: Path) -> None:
    """Acknowledged records are there after the leader is gone."""
    context = client_context(tmp_path, client_identity())
    with Trio(tmp_path, "static", {**REPLICATED, **SECURED_BETWEEN}) as trio:
        with Wire(trio.address(1), tls=context, timeout=60) as wire:
            wire.create("t", replication=3)
            leader = trio_leader(wire)
        with Wire(trio.address(leader), tls=context, timeout=60) as wire:
            for number in range(5):
                answer = wire.produce("t", batch(b"%d" % number * 100_000), acks=-1)
                assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number)
        trio.kill(leader)
        other = next(number for number in NUMBERS if number != leader)
        with Wire(trio.address(other), tls=context, timeout=60) as wire:
            led = trio_leader(wire, not_by=leader)
        with Wire(trio.address(led), tls=context, timeout=60) as wire:
            eventually_holds(wire, "t", [b"%d" % number * 100_000 for number in range(5)])


def trio_leader(wire: Wire, not_by: int = -1) -> int:
    """Return the leader of the only partition, once it has one."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while time.monotonic() < deadline:
        (topic,) = wire.metadata("t").topics
        if topic.error_code == ErrorCode.NONE:
            (partition,) = topic.partitions
            if partition.leader_id not in (-1, not_by):
                return int(partition.leader_id)
        time.sleep(0.05)
    raise AssertionError("the partition has no leader")


async def ask(runtime: OsRuntime, port: int, host: str, properties: dict[str, str]) -> object:
    """Send one request over TLS, by the rules of a broker with these properties."""
    config = load({**development_profile("/nowhere", 0), **SECURED_BETWEEN, **properties})
    setup = way_to_brokers(config, runtime, Handshakes(runtime)).setup
    connection = BrokerConnection(runtime, host, port, "test", setup)
    try:
        return await connection.send(MetadataRequest(topics=[]), PATIENCE_MS)
    finally:
        connection.close()


@acts(broker=("ssl.endpoint.identification.algorithm",))
def test_a_peer_must_be_what_its_certificate_says(tmp_path: Path) -> None:
    identity = authority().issue("elsewhere", now=now(), days=1, hosts=["elsewhere.example.com"])
    own = {
        **node_properties(),
        "ssl.keystore.key": in_one_line(identity.key_pem),
        "ssl.keystore.certificate.chain": in_one_line(identity.chain_pem),
    }

    async def scenario(port: int) -> None:
        runtime = OsRuntime(asyncio.get_running_loop())
        try:
            with pytest.raises(Disconnected, match="Hostname mismatch"):
                await ask(runtime, port, "localhost", {})
            assert await ask(runtime, port, "localhost", {"ssl.endpoint.identification.algorithm": ""})
            other = in_one_line(authority("Another authority").certificate_pem)
            with pytest.raises(Disconnected, match="not trusted"):
                await ask(
                    runtime,
                    port,
                    "localhost",
                    {"ssl.endpoint.identification.algorithm": "", "ssl.truststore.certificates": other},
                )
        finally:
            runtime.close()

    with Secured(tmp_path / "data", own) as node:
        asyncio.run(scenario(int(node.address().rpartition(":")[2])))


def test_a_peer_without_tls_is_given_up(tmp_path: Path) -> None:
    async def scenario(port: int) -> None:
        runtime = OsRuntime(asyncio.get_running_loop())
        try:
            with pytest.raises(Disconnected):
                await ask(runtime, port, "localhost", {})
        finally:
            runtime.close()

    with Secured(tmp_path / "data", node_properties()) as node:
        asyncio.run(scenario(int(node.address("PLAINTEXT").rpartition(":")[2])))


@pytest.mark.slow
def test_the_usual_file_of_one_node_with_nothing_but_tls(tmp_path: Path) -> None:
    """security.inter.broker.protocol=SSL; the controller's listener is plain, and the node reaches it in memory."""
    properties = {
        "listeners": "SSL://localhost:0,CONTROLLER://localhost:0",
        "advertised.listeners": "SSL://localhost:0,CONTROLLER://localhost:0",
        "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": None,
        "security.inter.broker.protocol": "SSL",
    }
    config = {**development_profile(str(tmp_path / "data"), 0), **node_properties(), **properties}
    whole = {key: value for key, value in config.items() if value is not None}
    with (
        Secured(tmp_path / "data", {}, config=whole) as node,
        Wire(node.address(), tls=client_context(tmp_path), timeout=60) as wire,
    ):
        wire.create("t")
        assert wire.produce("t", batch(b"a")).error_code == ErrorCode.NONE
        assert wire.values("t") == [b"a"]
        answer = wire.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
        assert answer.error_code == ErrorCode.NONE


def test_a_listener_of_controllers_in_small_letters_keeps_its_protection() -> None:
    """Apache Kafka's broker finds no protocol for it and does not start. It must not be used without TLS."""
    config = load(
        {
            **node_properties(),
            "process.roles": "broker",
            "node.id": "2",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "controller.listener.names": "controller",
            "listeners": "PLAINTEXT://localhost:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL",
            "listener.name.controller.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain."
            'PlainLoginModule required username="node" password="node-secret";',
            "sasl.mechanism.controller.protocol": "PLAIN",
        }
    )
    loop = asyncio.new_event_loop()
    runtime = OsRuntime(loop)
    try:
        setup = way_to_controllers(config, runtime, Handshakes(runtime)).setup
    finally:
        runtime.close()
        loop.close()
    assert setup.tls is not None
    assert setup.login is not None


def test_stores_for_peers_that_cannot_be_used_stop_the_start(tmp_path: Path) -> None:
    texts = {**SECURED_BETWEEN, "ssl.truststore.certificates": "verysecret"}
    loop = asyncio.new_event_loop()
    runtime = OsRuntime(loop)
    try:
        with pytest.raises(ConfigError, match="no store of PEM") as refused:
            Node(load({**development_profile(str(tmp_path / "data"), 0), **texts}), runtime)
    finally:
        runtime.close()
        loop.close()
    assert "verysecret" not in str(refused.value)
