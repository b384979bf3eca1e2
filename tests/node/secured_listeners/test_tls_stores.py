"""New key stores and trust stores while a node runs, and certificates that expire."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import datetime
import logging
import shutil
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from pykbroker.config import silent
from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import development_profile, load
from pykbroker.metrics.registry import Metrics
from pykbroker.node.tls_stores import METRIC, TRUSTED_METRIC, TlsStores
from pykbroker.tls.authority import Authority, Issued
from pykbroker.tls.tls_client import TlsClient
from pykbroker.tls.tls_server import tls_server
from pykbroker_wire.errors import ErrorCode
from testkit.acting import acts
from testkit.certificates import NODE_HOSTS, authority, client_context, client_identity, node_identity, now
from testkit.nodes.sim import BROKER, Sim
from testkit.nodes.wire import Closed, Wire
from tests.node.secured_listeners.test_tls_listeners import LISTENERS, Secured

PATIENCE_SECONDS = 120.0
PREFIX = "listener.name.ssl."
KEYSTORE, TRUSTSTORE = f"{PREFIX}ssl.keystore.location", f"{PREFIX}ssl.truststore.location"
SECRET = "store-secret"
OTHER = "Another authority of the tests"
FAILED = (
    "Invalid value org.apache.kafka.common.config.ConfigException: Validation of dynamic config update of SSLFactory "
    "failed: {} for configuration Invalid dynamic configuration"
)


def issued(name: str = "node", issuer: str = "Authority of the tests", hosts: tuple[str, ...] = NODE_HOSTS) -> Issued:
    return authority(issuer).issue(name, now=now(), days=60, hosts=hosts)


class Folder:
    """Stores by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(exist_ok=True)
        self.key("one", node_identity())
        self.trust("trust", authority())

    def key(self, name: str, identity: Issued) -> str:
        return self._put(name, identity.pkcs12(SECRET))

    def trust(self, name: str, of: Authority) -> str:
        return self._put(name, of.truststore(SECRET))

    def _put(self, name: str, data: bytes) -> str:
        """Write it in one step, as a careful program replaces a file."""
        new = self.path / f"{name}.new"
        new.write_bytes(data)
        return str(new.replace(self.path / f"{name}.p12"))

    def junk(self, name: str) -> str:
        return self._put(name, b"no store")

    def properties(self, **more: str) -> dict[str, str]:
        return {
            **LISTENERS,
            "ssl.keystore.location": str(self.path / "one.p12"),
            "ssl.keystore.password": SECRET,
            "ssl.key.password": SECRET,
            "ssl.truststore.location": str(self.path / "trust.p12"),
            "ssl.truststore.password": SECRET,
            **more,
        }


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "stores")


def serial(node: Secured, listener: str = "SSL") -> int:
    """Return that of the certificate that a new connection gets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with connected(node, context, listener=listener) as connection:
        der = connection.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der).serial_number


def connected(
    node: Secured, context: ssl.SSLContext, session: ssl.SSLSession | None = None, listener: str = "SSL"
) -> ssl.SSLSocket:
    host, _, port = node.address(listener).rpartition(":")
    plain = socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)
    return context.wrap_socket(plain, server_hostname=host, session=session)


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alter(node: Secured, values: dict[str, str | None], name: str = "1") -> tuple[ErrorCode, str | None]:
    with Wire(node.address("PLAINTEXT")) as wire:
        answer = wire.alter(BROKER, name, values)
    return ErrorCode(answer.error_code), answer.error_message


def use(node: Secured, values: dict[str, str | None], identity: Issued) -> None:
    """Change the configuration, and wait for the certificate."""
    assert alter(node, values) == (ErrorCode.NONE, None)
    wait(lambda: serial(node) == identity.certificate.serial_number)


@pytest.mark.slow
def test_new_connections_get_the_new_store_and_old_ones_go_on(folder: Folder, tmp_path: Path) -> None:
    two, three = issued(), issued()
    context = client_context(tmp_path)
    with Secured(tmp_path / "data", folder.properties()) as node:
        assert serial(node) == node_identity().certificate.serial_number
        with Wire(node.address(), tls=context) as wire:
            use(node, {KEYSTORE: folder.key("two", two)}, two)
            # The same path again makes the node read the file again.
            folder.key("two", three)
            assert serial(node) == two.certificate.serial_number
            use(node, {KEYSTORE: str(folder.path / "two.p12")}, three)
            # Without the key, that of the properties file is used again.
            use(node, {KEYSTORE: None}, node_identity())
            use(node, {KEYSTORE: str(folder.path / "two.p12")}, three)
            wire.create("t")
            assert wire.metadata("t").topics[0].error_code == ErrorCode.NONE
    # A node that starts again uses the configuration in the metadata.
    with Secured(tmp_path / "data", folder.properties()) as node:
        assert serial(node) == three.certificate.serial_number


@pytest.mark.slow
def test_a_store_that_cannot_be_used_changes_nothing(
    folder: Folder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Secured(tmp_path / "data", folder.properties()) as node:
        before = serial(node)
        other = folder.key("other", issued("other"))
        assert alter(node, {KEYSTORE: other}) == (
            ErrorCode.INVALID_REQUEST,
            FAILED.format(
                "org.apache.kafka.common.config.ConfigException: Keystore DistinguishedName does not match:  "
                "existing={alias=key, DN=CN=node}, new={alias=key, DN=CN=other}"
            ),
        )
        fewer = folder.key("fewer", issued(hosts=("127.0.0.1",)))
        assert alter(node, {KEYSTORE: fewer, f"{PREFIX}ssl.key.password": SECRET}) == (
            ErrorCode.INVALID_REQUEST,
            FAILED.format(
                "org.apache.kafka.common.config.ConfigException: Keystore SubjectAltNames do not match:  "
                "existing={alias=key, SAN=[[2, localhost], [7, 127.0.0.1]]}, new={alias=key, SAN=[[7, 127.0.0.1]]}"
            ),
        )
        for values in (
            {KEYSTORE: folder.junk("junk")},
            {KEYSTORE: str(folder.path / "gone.p12")},
            {TRUSTSTORE: str(folder.path / "gone.p12")},
            {f"{PREFIX}ssl.keystore.password": "wrong"},
            {f"{PREFIX}ssl.keystore.type": "PEM"},
        ):
            code, message = alter(node, dict(values))
            assert code == ErrorCode.INVALID_REQUEST
            assert message is not None
            assert "Validation of dynamic config update of SSLFactory failed: " in message
            assert SECRET not in message
        # The path stays, and the file is no store: the change is accepted, the store is not.
        use(node, {KEYSTORE: folder.key("two", node_identity())}, node_identity())
        folder.junk("two")
        caplog.clear()
        assert alter(node, {KEYSTORE: str(folder.path / "two.p12")})[0] == ErrorCode.NONE
        wait(lambda: "the old ones stay" in caplog.text)
        (line,) = (each for each in caplog.messages if "the old ones stay" in each)
        assert line.startswith("Listener SSL: the new stores cannot be used, so the old ones stay in use: ")
        assert "two.p12" in line
        assert serial(node) == before


@pytest.mark.slow
@acts(broker=("ssl.allow.dn.changes", "ssl.allow.san.changes"))
def test_names_and_hosts_may_change_where_it_is_allowed(folder: Folder, tmp_path: Path) -> None:
    allowed = {"ssl.allow.dn.changes": "true", f"{PREFIX}ssl.allow.san.changes": "true"}
    other = issued("other", hosts=("localhost",))
    with Secured(tmp_path / "data", folder.properties(**allowed)) as node:
        use(node, {KEYSTORE: folder.key("other", other)}, other)


def node_texts(tmp_path: Path) -> dict[str, str]:
    return development_profile(str(tmp_path / "unused"), 0)


@pytest.mark.slow
def test_between_brokers_old_and_new_stores_must_trust_each_other(folder: Folder, tmp_path: Path) -> None:
    two, strange = issued(), issued(issuer=OTHER)
    both = folder._put("both", authority().truststore(SECRET))
    with Secured(
        tmp_path / "data",
        folder.properties(**{"inter.broker.listener.name": "SSL", "ssl.client.auth": "required"}),
    ) as node:
        between = node.node.broker.side.ways.to_brokers
        assert between is not None
        client = between.tls
        assert client is not None
        for values in (
            {KEYSTORE: folder.key("strange", strange)},
            {TRUSTSTORE: folder.trust("strange-trust", authority(OTHER))},
            {KEYSTORE: str(folder.path / "strange.p12"), TRUSTSTORE: str(folder.path / "strange-trust.p12")},
        ):
            code, message = alter(node, dict(values))
            assert code == ErrorCode.INVALID_REQUEST
            assert message is not None
            assert "javax.net.ssl.SSLHandshakeException" in message
        assert alter(node, {KEYSTORE: folder.key("two", two), TRUSTSTORE: both})[0] == ErrorCode.NONE
        # The connections that this broker makes have the new key as well.
        wait(lambda: key_of(client) == two.certificate.serial_number)


@pytest.mark.slow
def test_after_a_restart_the_last_stores_count_and_not_the_way_to_them(folder: Folder, tmp_path: Path) -> None:
    """An authority that was replaced stays withdrawn, also when an earlier store with both authorities is gone."""
    properties = folder.properties(**{"inter.broker.listener.name": "SSL", "ssl.client.auth": "required"})
    two = issued(issuer=OTHER)
    both = folder._put("both", authority().certificate_pem + authority(OTHER).certificate_pem)
    with Secured(tmp_path / "data", properties) as node:
        for values in (
            {TRUSTSTORE: both},
            {KEYSTORE: folder.key("two", two)},
            {TRUSTSTORE: folder.trust("other", authority(OTHER))},
        ):
            assert alter(node, dict(values)) == (ErrorCode.NONE, None)
    Path(both).unlink()
    with Secured(tmp_path / "data", properties) as node:
        assert serial(node) == two.certificate.serial_number
        theirs = client_context(tmp_path, client_identity("bob", OTHER), trusts=authority(OTHER))
        assert is_let_in(node, theirs, None)
        assert not is_let_in(node, client_context(tmp_path, client_identity(), trusts=authority(OTHER)), None)


def key_of(client: TlsClient) -> int:
    """Return the serial number of its certificate."""
    assert client.stores is not None
    assert client.stores.material.key is not None
    return x509.load_der_x509_certificate(client.stores.material.key.chain[0]).serial_number


@pytest.mark.slow
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_session_is_resumed_after_a_change(version: ssl.TLSVersion, folder: Folder, tmp_path: Path) -> None:
    two = issued()
    context = client_context(tmp_path)
    context.maximum_version = version

    def session(given: ssl.SSLSession | None = None) -> tuple[bool, ssl.SSLSession]:
        with connected(node, context, given) as connection:
            # Tickets of TLS 1.3 come after the handshake, with the first response.
            connection.sendall(b"\0\0\0\x0d\0\x12\0\0\0\0\0\1\0\3abc")
            connection.read(4)
            assert connection.session is not None
            return bool(connection.session_reused), connection.session

    with Secured(tmp_path / "data", folder.properties()) as node:
        _, first = session()
        reused, second = session(first)
        assert reused
        use(node, {KEYSTORE: folder.key("two", two)}, two)
        reused, third = session(second)
        assert not reused
        assert session(third)[0]


@pytest.mark.slow
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_an_authority_that_is_withdrawn_lets_no_one_in(version: ssl.TLSVersion, folder: Folder, tmp_path: Path) -> None:
    context = client_context(tmp_path, client_identity())
    context.maximum_version = version
    stranger = client_context(tmp_path, client_identity("bob", OTHER))
    with Secured(tmp_path / "data", folder.properties(**{"ssl.client.auth": "required"})) as node:
        with Wire(node.address(), tls=context) as wire:
            assert isinstance(wire.socket, ssl.SSLSocket)
            wire.metadata()
            session = wire.socket.session
            assert alter(node, {TRUSTSTORE: folder.trust("other", authority(OTHER))}) == (ErrorCode.NONE, None)

            def taken() -> bool:
                try:
                    with Wire(node.address(), tls=stranger) as other:
                        other.metadata()
                except (ssl.SSLError, Closed, ConnectionError):
                    return False
                return True

            wait(taken)
            # The existing connection continues, as in Apache Kafka; a new one is refused, a resumed one too.
            wire.metadata()
        for given in (None, session):
            assert not is_let_in(node, context, given)


def is_let_in(node: Secured, context: ssl.SSLContext, session: ssl.SSLSession | None) -> bool:
    """Return True if the node accepts the client. In TLS 1.3 a client gets a refusal with the first response."""
    try:
        with connected(node, context, session) as connection:
            connection.sendall(b"\0\0\0\x0d\0\x12\0\0\0\0\0\1\0\3abc")
            return connection.read(4) != b""
    except (ssl.SSLError, ConnectionError):
        return False


@pytest.mark.slow
@acts(broker=("pykbroker.ssl.store.watch.interval.ms",))
def test_a_file_that_changes_is_read_again(folder: Folder, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    two, three = issued(), issued()
    with Secured(tmp_path / "data", folder.properties(**{"pykbroker.ssl.store.watch.interval.ms": "20"})) as node:
        folder.key("one", two)
        wait(lambda: serial(node) == two.certificate.serial_number)
        folder.junk("one")
        wait(lambda: "the old ones stay" in caplog.text)
        assert serial(node) == two.certificate.serial_number
        shutil.move(folder.key("three", three), folder.path / "one.p12")
        wait(lambda: serial(node) == three.certificate.serial_number)
    assert sum("the old ones stay" in line for line in caplog.messages) == 1


def unread_by_openssl() -> bytes:
    """Return a trust store in PEM that cryptography reads and OpenSSL does not, because a name in it is not UTF-8."""
    der = authority().certificate.public_bytes(serialization.Encoding.DER)
    encoded = base64.encodebytes(der.replace(b"Authority of", b"\xffuthority of"))
    return b"-----BEGIN CERTIFICATE-----\n" + encoded + b"-----END CERTIFICATE-----\n"


def with_strange_hosts() -> bytes:
    """Return a key store whose certificate has invalid subject alternative names."""
    identity = node_identity()
    builder = (
        x509.CertificateBuilder(identity.certificate.issuer, identity.certificate.subject)
        .public_key(identity.key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(identity.certificate.not_valid_before_utc)
        .not_valid_after(identity.certificate.not_valid_after_utc)
        .add_extension(x509.UnrecognizedExtension(x509.SubjectAlternativeName.oid, b"none"), critical=False)
    )
    certificate = builder.sign(authority()._key, hashes.SHA256())
    return dataclasses.replace(identity, certificate=certificate).pkcs12(SECRET)


def with_strange_key() -> bytes:
    """Return a key store in PEM whose key has a curve that does not exist."""
    der = node_identity().key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    encoded = base64.encodebytes(der.replace(bytes.fromhex("2a8648ce3d030107"), bytes.fromhex("2a8648ce3d030177")))
    return b"-----BEGIN PRIVATE KEY-----\n" + encoded + b"-----END PRIVATE KEY-----\n" + node_identity().chain_pem


STRANGE = {
    "its algorithm is not served": ("one", with_strange_key),
    "the subject alternative names of a certificate cannot be read": ("one", with_strange_hosts),
    "OpenSSL does not take a certificate of the trust store": ("trust", unread_by_openssl),
}


@pytest.mark.slow
@pytest.mark.parametrize("reason", STRANGE)
def test_a_store_that_no_library_expects_is_refused_as_any_other(
    reason: str, folder: Folder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """When it is named, when its file changes, and when it is in use at the start; the next good one is accepted."""
    name, make = STRANGE[reason]
    key = KEYSTORE if name == "one" else TRUSTSTORE
    strange, two = folder._put("strange", make()), issued()
    given = {"pykbroker.ssl.store.watch.interval.ms": "20", "ssl.client.auth": "required"}
    with Secured(tmp_path / "data", folder.properties(**given)) as node:
        code, message = alter(node, {key: strange})
        assert code == ErrorCode.INVALID_REQUEST
        assert message is not None
        assert reason in message
        good = (folder.path / f"{name}.p12").read_bytes()
        folder._put(name, make())
        wait(lambda: "the old ones stay" in caplog.text)
        folder._put(name, good)
        folder.key("one", two)
        wait(lambda: serial(node) == two.certificate.serial_number)
    (line,) = (each for each in caplog.messages if "the old ones stay" in each)
    assert reason in line
    if "alternative" not in reason:
        folder._put(name, make())
        with pytest.raises(ConfigError, match=reason), Secured(tmp_path / "data", folder.properties(**given)):
            pass


@pytest.mark.slow
@pytest.mark.parametrize("trust", ["another authority", "the system's"])
@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_brokers_that_would_not_trust_each_other_do_not_start(
    trust: str, protocol: str, folder: Folder, tmp_path: Path
) -> None:
    """Only on the listener between brokers, whatever clients must prove, as in Apache Kafka's SslFactory."""
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required username=n password=p user_n=p;"
    given = {
        "listener.security.protocol.map": f"SSL:{protocol},PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    if protocol == "SASL_SSL":
        given["listener.name.ssl.plain.sasl.jaas.config"] = plain
    properties = folder.properties(**given)
    if trust == "another authority":
        folder.trust("trust", authority(OTHER))
    else:
        del properties["ssl.truststore.location"], properties["ssl.truststore.password"]
    with Secured(tmp_path / "data", properties) as node:
        assert serial(node) == node_identity().certificate.serial_number
    text = "listener SSL: A client SSLEngine created with the provided settings can't connect to a server SSLEngine"
    between = {**properties, "inter.broker.listener.name": "SSL"}
    with pytest.raises(ConfigError, match=text), Secured(tmp_path / "data", between):
        pass


@pytest.mark.slow
def test_the_name_of_a_listener_may_have_dots(folder: Folder, tmp_path: Path) -> None:
    """Its keys count, also new ones while the node runs; no client gets their passwords."""
    two = issued()
    listeners = "SSL.IN.SIDE://localhost:0,PLAINTEXT://localhost:0,CONTROLLER://localhost:0"
    properties = folder.properties(
        **{
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "SSL.IN.SIDE:SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
    )
    prefix = "listener.name.ssl.in.side."
    for key in ("keystore.location", "keystore.password"):
        properties[f"{prefix}ssl.{key}"] = properties.pop(f"ssl.{key}")
    config = {**development_profile(str(tmp_path / "data"), 0), **properties}
    with Secured(tmp_path / "data", {}, config=config) as node:
        assert serial(node, "SSL.IN.SIDE") == node_identity().certificate.serial_number
        assert alter(node, {f"{prefix}ssl.keystore.location": folder.key("two", two)}) == (ErrorCode.NONE, None)
        wait(lambda: serial(node, "SSL.IN.SIDE") == two.certificate.serial_number)
        with Wire(node.address("PLAINTEXT")) as wire:
            entries = wire.describe(BROKER, "1")
        assert entries[f"{prefix}ssl.keystore.location"].value == str(folder.path / "two.p12")
        assert entries[f"{prefix}ssl.keystore.password"].value is None


@pytest.mark.slow
def test_what_cannot_change_while_a_node_runs_is_refused(folder: Folder, tmp_path: Path) -> None:
    """Apache Kafka accepts most of these, and they have no effect before the next start."""
    with Secured(tmp_path / "data", folder.properties()) as node:
        for key, value in (
            (f"{PREFIX}ssl.client.auth", "required"),
            (f"{PREFIX}ssl.enabled.protocols", "TLSv1.3"),
            (f"{PREFIX}ssl.cipher.suites", "TLS_AES_256_GCM_SHA384"),
            (f"{PREFIX}ssl.principal.mapping.rules", "DEFAULT"),
            (f"{PREFIX}ssl.allow.dn.changes", "true"),
            ("listener.name.SSL.ssl.keystore.location", str(folder.path / "one.p12")),
            ("listener.name.plaintext.ssl.keystore.location", str(folder.path / "one.p12")),
            ("listener.name.other.ssl.keystore.location", str(folder.path / "one.p12")),
        ):
            assert alter(node, {key: value})[0] == ErrorCode.INVALID_CONFIG, key
        assert alter(node, {"ssl.keystore.location": str(folder.path / "one.p12")}) == (
            ErrorCode.INVALID_REQUEST,
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            "[ssl.keystore.location]",
        )
        assert alter(node, {KEYSTORE: str(folder.path / "one.p12")}, "") == (
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs at default cluster level, broker id must be specified: [{KEYSTORE}]",
        )


DAY_SECONDS = 86_400.0


def test_the_end_of_a_certificate_is_told_each_day(
    folder: Folder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """From 30 days before it, in the log and in a metric, and after it."""
    sim = Sim()
    try:
        runtime = sim.world.runtime("stores", sim.disk)
        begin = datetime.datetime.fromtimestamp(runtime.now_ms() / 1000, datetime.UTC)
        long = Authority.create("Long", now=begin, days=400)
        folder.key("one", long.issue("node", now=begin, days=31.5, hosts=NODE_HOSTS))
        folder.trust("trust", Authority.create("Short", now=begin, days=90))
        config = load({**node_texts(tmp_path), **folder.properties()})
        metrics = Metrics()
        stores = TlsStores(config, runtime, metrics, {"SSL": [tls_server(config, "SSL")]}, ["SSL"])

        async def days(number: float) -> list[str]:
            caplog.clear()
            await asyncio.sleep(number * DAY_SECONDS)
            return caplog.messages

        async def play() -> None:
            stores.start()
            assert metrics.snapshot() == {
                METRIC + "SSL": pytest.approx(31.5 * DAY_SECONDS, abs=5),
                TRUSTED_METRIC + "SSL": pytest.approx(90 * DAY_SECONDS, abs=5),
            }
            assert await days(1.5) == []
            # The next look comes after two days, and then there is one each day.
            (line,) = await days(1)
            assert line.startswith("Listener SSL: the certificate of CN=node ends in 29 days (")
            assert len(await days(10)) == 10
            assert "has ended: clients refuse it" in (await days(20))[-1]
            assert metrics.snapshot()[METRIC + "SSL"] < 0
            lines = await days(58)
            assert next(line for line in lines if "certificate of CN=Short" in line).startswith(
                "Listener SSL: the trusted certificate of CN=Short ends in "
            )
            assert "trusted certificate of CN=Short has ended: the certificates that it has issued" in lines[-1]
            assert metrics.snapshot()[TRUSTED_METRIC + "SSL"] < 0
            stores.close()
            assert await days(5) == []

        with caplog.at_level(logging.WARNING, "pykbroker.node.tls_stores"):
            sim.world.loop.run_until_complete(play())
    finally:
        sim.close()


@pytest.mark.slow
def test_a_certificate_that_has_ended_is_told_at_the_start(
    folder: Folder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.key("one", authority().issue("node", now=now() - datetime.timedelta(days=9), days=8, hosts=NODE_HOSTS))
    with Secured(tmp_path / "data", folder.properties()) as node:
        assert "Listener SSL: the certificate of CN=node has ended: clients refuse it" in caplog.text
        assert node.metrics()[METRIC + "SSL"] < -DAY_SECONDS / 2


def test_keys_of_tls_act_where_a_listener_speaks_it(folder: Folder, tmp_path: Path) -> None:
    assert silent.warnings(load({**node_texts(tmp_path), **folder.properties()})) == []
