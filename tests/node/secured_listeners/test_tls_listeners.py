"""Listeners whose protocol is SSL, on a node with real sockets and Python's own TLS as the client."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

import pykbroker
from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import development_profile, load
from pykbroker.node.node import Node
from pykbroker.node.start_options import StartOptions
from pykbroker.runtime import OsRuntime
from pykbroker_wire.errors import ErrorCode
from testkit.acting import acts, note
from testkit.certificates import (
    authority,
    client_context,
    client_identity,
    in_one_line,
    node_identity,
    node_properties,
)
from testkit.nodes.processes import run, write_properties
from testkit.nodes.wire import Closed, Wire, batch

MB = 1 << 20
PATIENCE_SECONDS = 120.0
LISTENERS = {
    "listeners": "SSL://localhost:0,PLAINTEXT://localhost:0,CONTROLLER://localhost:0",
    "advertised.listeners": "SSL://localhost:0,PLAINTEXT://localhost:0,CONTROLLER://localhost:0",
    "listener.security.protocol.map": "SSL:SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
}


class Secured:
    """A node with an SSL listener and a plain one, in a separate thread."""

    def __init__(
        self,
        data: Path,
        properties: dict[str, str],
        new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
        *,
        config: dict[str, str] | None = None,
    ) -> None:
        """`config`: all properties, instead of a few over the development profile."""
        self._config = load(config or {**development_profile(str(data), 0), **LISTENERS, **properties})
        self._new_loop = new_loop
        self.failure: BaseException | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(PATIENCE_SECONDS)
        if self.failure is not None:
            self._thread.join(PATIENCE_SECONDS)
            raise self.failure

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=self._new_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        runtime = OsRuntime(self.loop)
        try:
            node = Node(self._config, runtime, options=StartOptions(may_format=True))
            try:
                await node.start()
                self.node = node
                self._ready.set()
                await self._stop.wait()
            finally:
                await node.stop()
        except Exception as error:  # noqa: BLE001  # raised again where the node was to start
            self.failure = error
        finally:
            runtime.close()
            self._ready.set()

    def metrics(self) -> dict[str, float]:
        samples = asyncio.run_coroutine_threadsafe(self.node.samples(), self.loop).result(PATIENCE_SECONDS)
        return {sample.name: sample.value for sample in samples}

    def address(self, listener: str = "SSL") -> str:
        return next(f"localhost:{each.port}" for each in self.node.listeners if each.name == listener)

    def principals(self) -> list[str]:
        """Return those of the connections to the SSL listener."""
        (listener,) = (each for each in self.node.listeners if each.name == "SSL")
        return [connection.session.principal for connection in list(listener.connections)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        assert self.failure is None


def uvloop_or_plain() -> list[Callable[[], asyncio.AbstractEventLoop]]:
    import uvloop

    return [uvloop.new_event_loop, asyncio.new_event_loop]


def pattern(size: int, seed: int) -> bytes:
    """Return bytes in which a misplaced piece is visible."""
    return b"".join(number.to_bytes(4, "big") for number in range(seed << 24, (seed << 24) + size // 4))


@pytest.mark.slow
@pytest.mark.parametrize("new_loop", uvloop_or_plain(), ids=["uvloop", "asyncio"])
def test_large_messages_and_large_answers(new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path) -> None:
    properties = {**node_properties(), "message.max.bytes": str(12 * MB)}
    with Secured(tmp_path / "data", properties, new_loop) as node:
        values = [pattern(size, index + 1) for index, size in enumerate((100_000, MB, 10 * MB, 4))]
        with Wire(node.address(), tls=client_context(tmp_path)) as wire:
            wire.create("large")
            for number, value in enumerate(values):
                answer = wire.produce("large", batch(value))
                assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number)
            assert len(wire.fetch("large", 0).records) > 10 * MB
            assert wire.values("large") == values
            # A client that reads nothing for a while loses nothing.
            asked = [wire.send(wire.fetch_request("large", 0), 12) for _ in range(3)]
            for each in asked:
                answer = wire.receive(*each).responses[0].partitions[0]
                assert len(answer.records) > 10 * MB
        with Wire(node.address("PLAINTEXT")) as wire:
            assert wire.values("large") == values


@pytest.fixture(scope="module")
def plain_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("node"), node_properties()) as node:
        yield node


def test_a_client_with_another_authority_refuses_the_node(plain_key: Secured, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        Wire(plain_key.address(), tls=client_context(tmp_path, trusts=authority("Another authority")))


def test_plain_bytes_end_the_connection_with_one_line(plain_key: Secured, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pykbroker.net"), Wire(plain_key.address()) as wire, pytest.raises(Closed):
        wire.metadata()
    (line,) = [record.getMessage() for record in caplog.records if "does not speak TLS" in record.getMessage()]
    assert "on SSL" in line


def test_tls_to_a_plain_listener_ends_with_one_line(
    plain_key: Secured, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level(logging.INFO, "pykbroker.net"), pytest.raises(OSError):
        Wire(plain_key.address("PLAINTEXT"), tls=client_context(tmp_path))
    (line,) = [record.getMessage() for record in caplog.records if "speaks TLS" in record.getMessage()]
    assert "on PLAINTEXT" in line


def test_a_client_without_a_certificate_is_anonymous(plain_key: Secured, tmp_path: Path) -> None:
    with Wire(plain_key.address(), tls=client_context(tmp_path, client_identity())) as wire:
        wire.metadata()
        assert plain_key.principals() == ["User:ANONYMOUS"]


@pytest.mark.slow
def test_silent_clients_end_and_count_before_their_handshake(tmp_path: Path) -> None:
    """The bounds and the deadline of the listener also hold for clients that send nothing."""
    properties = {
        **node_properties(),
        "pykbroker.connection.request.receive.timeout.ms": "500",
        "max.connections.per.ip": "2",
    }
    with Secured(tmp_path / "data", properties) as node:
        host, _, port = node.address().rpartition(":")
        silent = [socket.create_connection((host, int(port)), PATIENCE_SECONDS) for _ in range(3)]
        # The third is one too many; the others had their time.
        started = time.monotonic()
        assert silent[2].recv(1) == b""
        silent[1].sendall(b"\x16\x03\x01\x01")
        for each in silent:
            assert each.recv(1) == b""
            each.close()
        assert time.monotonic() - started < PATIENCE_SECONDS


# The effects of the keys.


def encrypted_key() -> bytes:
    protection = BestAvailableEncryption(b"keysecret")
    return node_identity().key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection)


def file(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


@acts(broker=("ssl.keystore.type", "ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.key.password"))
def test_the_key_is_given_as_text(tmp_path: Path) -> None:
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": in_one_line(encrypted_key()),
        "ssl.keystore.certificate.chain": in_one_line(node_identity().chain_pem),
        "ssl.key.password": "keysecret",
    }
    with Secured(tmp_path / "data", properties) as node, Wire(node.address(), tls=client_context(tmp_path)) as wire:
        assert wire.metadata().brokers


@acts(broker=("ssl.keystore.location", "ssl.keystore.password"))
def test_the_key_is_in_a_store(tmp_path: Path) -> None:
    properties = {
        "ssl.keystore.location": file(tmp_path / "key.p12", node_identity().pkcs12("storesecret")),
        "ssl.keystore.password": "storesecret",
    }
    with Secured(tmp_path / "data", properties) as node, Wire(node.address(), tls=client_context(tmp_path)) as wire:
        assert wire.metadata().brokers


@pytest.mark.slow
@acts(broker=("ssl.client.auth", "ssl.truststore.location", "ssl.truststore.password", "ssl.principal.mapping.rules"))
def test_clients_must_prove_who_they_are(tmp_path: Path) -> None:
    properties = {
        **{key: value for key, value in node_properties().items() if "truststore" not in key},
        "ssl.client.auth": "required",
        "ssl.truststore.location": file(tmp_path / "trust.p12", authority().truststore("storesecret")),
        "ssl.truststore.password": "storesecret",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/U,DEFAULT",
    }
    with Secured(tmp_path / "data", properties) as node:
        with Wire(node.address(), tls=client_context(tmp_path, client_identity())) as wire:
            assert wire.metadata().brokers
            assert node.principals() == ["User:ALICE"]
        for identity in (None, client_identity("alice", "Another authority")):
            # With TLS 1.3 a client gets the error when it reads.
            with (
                pytest.raises((ssl.SSLError, Closed)),
                Wire(node.address(), tls=client_context(tmp_path, identity)) as wire,
            ):
                wire.metadata()


@acts(broker=("ssl.truststore.type", "ssl.truststore.certificates"))
def test_a_certificate_may_be_asked_for_and_not_be_there(tmp_path: Path) -> None:
    properties = {**node_properties(), "listener.name.ssl.ssl.client.auth": "requested"}
    with Secured(tmp_path / "data", note(properties)) as node:  # type: ignore[arg-type]
        for identity, principal in ((client_identity(), "User:CN=alice"), (None, "User:ANONYMOUS")):
            with Wire(node.address(), tls=client_context(tmp_path, identity)) as wire:
                wire.metadata()
                assert principal in node.principals()


@acts(broker=("ssl.enabled.protocols",))
def test_a_version_that_is_not_enabled_is_refused(tmp_path: Path) -> None:
    with Secured(tmp_path / "data", {**node_properties(), "ssl.enabled.protocols": "TLSv1.3"}) as node:
        client = client_context(tmp_path)
        with Wire(node.address(), tls=client) as wire:
            assert isinstance(wire.socket, ssl.SSLSocket)
            assert wire.socket.version() == "TLSv1.3"
        client.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError):
            Wire(node.address(), tls=client)


@acts(broker=("ssl.cipher.suites",))
def test_only_the_cipher_suites_that_are_named_are_used(tmp_path: Path) -> None:
    """None of them is one of TLS 1.3, so that is off."""
    suites = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    properties = {**node_properties(), "ssl.cipher.suites": suites}
    with Secured(tmp_path / "data", properties) as node, Wire(node.address(), tls=client_context(tmp_path)) as wire:
        assert isinstance(wire.socket, ssl.SSLSocket)
        assert wire.socket.cipher() == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2", 128)


REFUSED = [
    ({}, "listener SSL: TLS needs a certificate"),
    ({"ssl.keystore.location": "/nowhere.p12", "ssl.keystore.password": "verysecret"}, "/nowhere.p12 cannot be read"),
    ({"ssl.keystore.location": "/etc/passwd", "ssl.keystore.password": "verysecret"}, "no store of PEM"),
    ({"ssl.keystore.location": "/nowhere.p12"}, "ssl.keystore.password is not set"),
    ({"ssl.keystore.password": "verysecret"}, "ssl.keystore.location is not set"),
    ({"ssl.keystore.key": "verysecret"}, "need ssl.keystore.type=PEM"),
    ({"ssl.keystore.type": "PEM", "ssl.keystore.key": "verysecret"}, "certificate.chain is not set"),
    ({"ssl.keystore.certificate.chain": "verysecret"}, "ssl.keystore.key is not set"),
    ({"ssl.keystore.type": "BKS"}, "BKS is not served"),
    ({**node_properties(), "ssl.keystore.password": "verysecret"}, "ssl.keystore.password is set as well"),
    ({**node_properties(), "ssl.truststore.location": "/nowhere"}, "ssl.truststore.location is set as well"),
    ({**node_properties(), "ssl.key.password": "verysecret", "ssl.keystore.key": in_one_line(encrypted_key())}, "key"),
    ({**node_properties(), "ssl.truststore.certificates": "verysecret"}, "no store of PEM"),
    ({**node_properties(), "ssl.truststore.type": "PKCS11"}, "PKCS11 is not served"),
    (
        {
            **{key: value for key, value in node_properties().items() if "truststore" not in key},
            "ssl.client.auth": "requested",
        },
        "needs a trust store",
    ),
    ({**node_properties(), "ssl.enabled.protocols": "TLSv1.1,TLSv1"}, "is not safe, so it is not served"),
    ({**node_properties(), "ssl.enabled.protocols": "TLSv1.4"}, "no version of TLS"),
    ({**node_properties(), "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "all suites of TLS 1.3 or none"),
    ({**node_properties(), "ssl.cipher.suites": "TLS_RSA_WITH_NULL_SHA256"}, "is not served"),
    (
        {
            **node_properties(),
            "ssl.enabled.protocols": "TLSv1.3",
            "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        },
        "has no suite for TLSv1.3",
    ),
    ({**node_properties(), "ssl.principal.mapping.rules": "RULE:a"}, "does not begin with a rule"),
]
REFUSED_VALUES = {
    "ssl.engine.factory.class": "com.example.Factory",
    "ssl.provider": "BC",
    "ssl.protocol": "TLSv1.1",
    "ssl.keymanager.algorithm": "IbmX509",
    "ssl.trustmanager.algorithm": "Own",
    "ssl.endpoint.identification.algorithm": "ldaps",
}


@pytest.mark.parametrize(("properties", "reason"), REFUSED, ids=[reason[:30] for _, reason in REFUSED])
def test_what_cannot_be_honoured_stops_the_start(properties: dict[str, str], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused, pykbroker.Broker({**LISTENERS, **properties}, data_dir=tmp_path / "d"):
        pass
    line = str(refused.value)
    assert reason in line
    assert "\n" not in line
    assert "verysecret" not in line
    assert not (tmp_path / "d").exists()


@acts(
    broker=(
        "ssl.engine.factory.class",
        "ssl.provider",
        "ssl.protocol",
        "ssl.keymanager.algorithm",
        "ssl.trustmanager.algorithm",
    )
)
def test_an_engine_of_another_kind_stops_the_start() -> None:
    for key, value in REFUSED_VALUES.items():
        for prefix in ("", "listener.name.ssl."):
            with (
                pytest.raises(ConfigError, match=f"{key}: {value} "),
                pykbroker.Broker({**LISTENERS, **node_properties(), prefix + key: value}),
            ):
                pass


def test_the_key_of_another_listener_is_not_that_of_this_one(tmp_path: Path) -> None:
    """A listener's own keys have priority over those for all."""
    properties = {
        **node_properties(),
        "listener.name.ssl.ssl.keystore.type": "PKCS12",
        "listener.name.ssl.ssl.keystore.location": "/nowhere.p12",
        "listener.name.ssl.ssl.keystore.password": "verysecret",
    }
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.type=PEM"), pykbroker.Broker({**LISTENERS, **properties}):
        pass


@pytest.mark.slow
def test_the_command_line_says_it_in_one_line(tmp_path: Path) -> None:
    properties = {
        **development_profile(str(tmp_path / "data"), 0),
        **LISTENERS,
        "ssl.keystore.location": file(tmp_path / "key.p12", node_identity().pkcs12("storesecret")),
        "ssl.keystore.password": "verysecret",
    }
    done = run("start", "--format", str(write_properties(tmp_path / "server.properties", properties)))
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "the password is wrong" in line
    assert "secret" not in line
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_a_plain_node_loads_nothing_of_tls(tmp_path: Path) -> None:
    import subprocess
    import sys

    program = (
        "import sys, pykbroker\n"
        "with pykbroker.Broker() as broker: pass\n"
        "print([name for name in sys.modules if name.startswith(('cryptography', 'pykbroker.tls.'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    # The queue of handshakes is there, and nobody waits in it.
    assert done.stdout.strip() == "['pykbroker.tls.handshakes']"
