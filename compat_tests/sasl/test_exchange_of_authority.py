"""A certificate authority is exchanged without a restart, while three nodes and their clients run. New trust and new
keys come first, and then the old authority is withdrawn. The brokers use SASL_SSL and the controllers SSL, and both
sides of each connection have certificates."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer
from cryptography import x509

from compat_tests.sasl.test_change_to_sasl_ssl import Writing
from pykbroker.tls.authority import Issued
from pykbroker_wire.errors import ErrorCode
from testkit.background import InBackground
from testkit.certificates import NODE_HOSTS, authority, now
from testkit.clients import PATIENCE_S, wait_until
from testkit.nodes.secured_trio import BROKERS, CONTROLLERS, MECHANISM, log_in
from testkit.nodes.trio import NUMBERS, Trio
from testkit.nodes.wire import BROKER, Wire

pytestmark = pytest.mark.slow
OLD: Final = "Old authority"
NEW: Final = "New authority"
LISTENERS: Final = ("plaintext", "controller")
#: ApiVersions, version 0. Each listener answers it to a client whose certificate it accepts.
ASKED: Final = b"\0\0\0\x0d\0\x12\0\0\0\0\0\1\0\3abc"


def issued(issuer: str, name: str, *, hosts: tuple[str, ...] = ()) -> Issued:
    return authority(issuer).issue(name, now=now(), days=30, hosts=hosts)


def trusted(*authorities: str) -> bytes:
    return b"".join(authority(name).certificate_pem for name in authorities)


class ChangingStores(Trio):
    """Three nodes, each with a key store and a trust store of its own, in files. At first both have only the old
    authority."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        own: dict[int, dict[str, object]] = {}
        for number in NUMBERS:
            self.put(number, "truststore", trusted(OLD))
            self.put_key(number, OLD)
            own[number] = {f"ssl.{kind}.type": "PEM" for kind in ("keystore", "truststore")}
            own[number] |= {f"ssl.{kind}.location": self.store(number, kind) for kind in ("keystore", "truststore")}
        settings = {
            **{key: value for key, value in BROKERS.items() if not key.startswith("ssl.")},
            **CONTROLLERS["mTLS"],
            "listener.name.plaintext.ssl.client.auth": "required",
        }
        users = [f"{MECHANISM}=[name=node,password=node-secret]"]
        super().__init__(folder, "static", settings, own, users)

    def store(self, number: int, kind: str) -> Path:
        return self.folder / f"{kind}-{number}.pem"

    def put(self, number: int, kind: str, pem: bytes) -> None:
        new = self.folder / "new.pem"
        new.write_bytes(pem)
        new.replace(self.store(number, kind))

    def put_key(self, number: int, issuer: str) -> int:
        """Write a new key into the key store, and return the serial number of its certificate."""
        identity = issued(issuer, "node", hosts=NODE_HOSTS)
        self.put(number, "keystore", identity.key_pem + identity.chain_pem)
        return identity.certificate.serial_number

    def take(self, number: int, kind: str, client: ssl.SSLContext) -> None:
        """Make the node read the store again, for both of its listeners, without a restart."""
        values: dict[str, str | None] = {
            f"listener.name.{listener}.ssl.{kind}.location": str(self.store(number, kind)) for listener in LISTENERS
        }
        with Wire(self.address(number), tls=client, timeout=60) as wire:
            log_in(wire, "node", "node-secret")
            answer = wire.alter(BROKER, str(number), values)
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)

    def addresses(self) -> Iterator[tuple[str, int]]:
        """Yield the address of each listener of each node."""
        for number in NUMBERS:
            yield "127.0.0.1", self.ports[number]
            yield "127.0.0.1", self.controller_ports[number]


class Client:
    """A certificate, and what a client with this certificate trusts."""

    def __init__(self, folder: Path, issuer: str) -> None:
        identity = issued(issuer, "client")
        self.certificate = folder / f"client of {issuer}.pem"
        self.certificate.write_bytes(identity.key_pem + identity.chain_pem)
        self.trusted = folder / "trusted by clients.pem"
        self.trusted.write_bytes(trusted(OLD, NEW))

    def context(self, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.trusted)
        context.load_cert_chain(self.certificate)
        context.maximum_version = newest
        return context

    def settings(self, bootstrap: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.trusted),
            "ssl.certificate.location": str(self.certificate),
            "ssl.key.location": str(self.certificate),
            "sasl.mechanism": MECHANISM,
            "sasl.username": "node",
            "sasl.password": "node-secret",
        }


@contextmanager
def connected(
    address: tuple[str, int], context: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> Iterator[ssl.SSLSocket]:
    with (
        socket.create_connection(address, timeout=60) as plain,
        context.wrap_socket(plain, server_hostname=address[0], session=session) as wrapped,
    ):
        yield wrapped


def is_let_in(address: tuple[str, int], context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> bool:
    """Return True if the node answers. With TLS 1.3 a client learns of a refusal only with the first answer."""
    try:
        with connected(address, context, session) as connection:
            connection.sendall(ASKED)
            return connection.read(4) != b""
    except (ssl.SSLError, ConnectionError):
        return False


def is_refused(address: tuple[str, int], context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> bool:
    return not is_let_in(address, context, session)


def shows(address: tuple[str, int], context: ssl.SSLContext, serial: int) -> bool:
    """Return True if a new connection gets the certificate with this serial number."""
    with connected(address, context) as connection:
        der = connection.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der).serial_number == serial


class Reading(InBackground):
    """A consumer of a group that reads in a thread of its own. `values` are in order."""

    def __init__(self, settings: dict[str, Any], topic: str) -> None:
        super().__init__(PATIENCE_S)
        self.values: list[bytes] = []
        self.failed: list[str] = []
        self._consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0})
        self._consumer.subscribe([topic])

    @contextmanager
    def going_on(self) -> Iterator[None]:
        try:
            with super().going_on():
                yield
        finally:
            self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            record = self._consumer.poll(0.1)
            if record is None:
                continue
            error = record.error()
            if error is None:
                self.values.append(record.value() or b"")
            elif error.fatal():
                self.failed.append(str(error))


def test_an_authority_is_exchanged_while_clients_run(tmp_path: Path) -> None:
    old, new = Client(tmp_path, OLD), Client(tmp_path, NEW)
    with ChangingStores(tmp_path) as trio:
        addresses = list(trio.addresses())
        with Wire(trio.address(1), tls=old.context(), timeout=60) as wire:
            log_in(wire, "node", "node-secret")
            for name in ("first", "second"):
                wire.create(name, replication=3)
        # TLS 1.2 can resume these; a listener that asks for certificates gives out no tickets of TLS 1.3.
        before = old.context(ssl.TLSVersion.TLSv1_2)
        sessions = {}
        for address in addresses:
            with connected(address, before) as connection:
                sessions[address] = connection.session
            assert is_let_in(address, before, sessions[address])
            assert not is_let_in(address, new.context())
        first = Writing(old.settings(trio.bootstrap), "first")
        second = Writing(new.settings(trio.bootstrap), "second")
        reading = Reading(new.settings(trio.bootstrap), "second")

        def both_go_on() -> None:
            for writing in (first, second):
                writing.is_at(len(writing.acknowledged) + 10)

        with ExitStack() as readers, ExitStack() as writers:
            with first.going_on():
                first.is_at(10)
                for number in NUMBERS:
                    trio.put(number, "truststore", trusted(OLD, NEW))
                    trio.take(number, "truststore", old.context())
                for address in addresses:
                    wait_until(partial(is_let_in, address, new.context()), f"{address} trusts both")
                    assert is_let_in(address, old.context())
                writers.enter_context(second.going_on())
                readers.enter_context(reading.going_on())
                both_go_on()
                for number in NUMBERS:
                    serial = trio.put_key(number, NEW)
                    trio.take(number, "keystore", new.context())
                    for port in (trio.ports[number], trio.controller_ports[number]):
                        wait_until(partial(shows, ("127.0.0.1", port), new.context(), serial), "the new key is shown")
                both_go_on()
                for number in NUMBERS:
                    trio.put(number, "truststore", trusted(NEW))
                    trio.take(number, "truststore", new.context())
                for address in addresses:
                    wait_until(partial(is_refused, address, old.context()), f"{address} trusts one")
                    assert is_let_in(address, new.context())
                    assert is_refused(address, before)
                    assert is_refused(address, before, sessions[address])
                # Connections that exist continue, as in Apache Kafka.
                both_go_on()
            # Each node connects to each other node again, and trusts only what the new authority has signed.
            for number in NUMBERS:
                assert trio.stop(number) == 0
                trio.start(number).ready(PATIENCE_S)
                second.is_at(len(second.acknowledged) + 10)
            writers.close()
            wait_until(lambda: set(reading.values) >= set(second.acknowledged), "the consumer has read everything")
        assert reading.failed == []
        # A group whose partitions move may read again what it has not committed.
        assert list(dict.fromkeys(reading.values)) == second.acknowledged
        for name, writing in (("first", first), ("second", second)):
            with Wire(trio.address(1), tls=new.context(), timeout=60) as wire:
                log_in(wire, "node", "node-secret")
                leader = wire.metadata(name).topics[0].partitions[0].leader_id
            with Wire(trio.address(leader), tls=new.context(), timeout=60) as wire:
                log_in(wire, "node", "node-secret")
                assert wire.values(name) == writing.acknowledged, name
            assert len(writing.acknowledged) > 30
