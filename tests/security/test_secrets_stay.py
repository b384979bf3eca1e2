"""Secrets are in no output: logs at DEBUG, standard output and error, DescribeConfigs, texts of objects, tracebacks.

The test plants texts in every key for a password, in stores, users and dynamic configurations, of nodes that start and
of nodes that cannot.
"""

from __future__ import annotations

import base64
import gc
import logging
import os
import select
import signal
import subprocess
import traceback
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from hypothesis import given, settings
from hypothesis import strategies as st

import pykbroker
from pykbroker.config.key_table import STATIC_KEYS
from pykbroker.config.kinds import PASSWORD
from pykbroker.config.load import development_profile
from pykbroker.config.start_up import start_config
from pykbroker.sasl.sasl_client import Login
from pykbroker.sasl.sasl_settings import sasl_listeners
from pykbroker.tls.contexts import client_context as outgoing_context
from pykbroker.tls.contexts import read_material, server_context
from pykbroker.tls.settings import settings_of
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from pykbroker_wire.messages.sasl_handshake import SaslHandshakeRequest
from testkit.certificates import authority, node_identity
from testkit.nodes.processes import READY, command, environment, run, write_properties
from testkit.nodes.sim import BROKER
from testkit.nodes.wire import Wire

BROKER_LOGGER = 8
#: The text to search for, which no text of the program contains.
PLANTED = "plAnted5ecret"
STORE, KEY, ALICE, ADMIN, DYNAMIC, WRONG = (f"{PLANTED}-{each}" for each in ("st", "key", "al", "adm", "dyn", "bad"))
SCRAM_KEY = PLANTED.encode().ljust(64, b"-")
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def secured(folder: Path) -> dict[str, str]:
    """Return a node with TLS, SASL, and a secret in each place that takes one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "node.p12").write_bytes(node_identity().pkcs12(STORE))
    (folder / "trust.p12").write_bytes(authority().truststore(STORE))
    return {
        **development_profile(str(folder / "data"), 0),
        "listeners": "PLAINTEXT://localhost:0,SSL://localhost:0,CLIENTS://localhost:0,CONTROLLER://localhost:0",
        "advertised.listeners": "PLAINTEXT://localhost:0,SSL://localhost:0,CLIENTS://localhost:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "ssl.keystore.location": str(folder / "node.p12"),
        "ssl.keystore.password": STORE,
        "ssl.key.password": STORE,
        "ssl.truststore.location": str(folder / "trust.p12"),
        "ssl.truststore.password": STORE,
        "ssl.client.auth": "requested",
        "listener.name.clients.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN_MODULE} required username="admin" password="{ADMIN}" '
        f'user_alice="{ALICE}";',
        "listener.name.clients.scram-sha-256.sasl.jaas.config": f'{SCRAM_MODULE} required username="admin" '
        f'password="{ADMIN}";',
        "listener.name.unused.ssl.key.password": KEY,
        "unknown.password": KEY,
    }


class Process:
    """`pykbroker start` with everything logged."""

    def __init__(self, properties: Path, log: Path) -> None:
        self._log = log.open("wb")
        self.process = subprocess.Popen(
            command("start", "--log-level", "DEBUG", "--format", str(properties)),
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment({"PYTHONFAULTHANDLER": "1"}),
        )
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], 60)[0], log.read_text()
        self.said = os.read(self.process.stdout.fileno(), 4096).decode()
        assert READY in self.said, log.read_text()

    def end(self, number: signal.Signals) -> str:
        self.process.send_signal(number)
        rest, _ = self.process.communicate(timeout=60)
        self._log.close()
        return self.said + rest.decode()


def log_in(wire: Wire, password: str) -> ErrorCode:
    assert wire.call(SaslHandshakeRequest(mechanism="PLAIN")).error_code == ErrorCode.NONE
    token = Login("PLAIN", "alice", password).begin().first()
    return ErrorCode(wire.call(SaslAuthenticateRequest(auth_bytes=token)).error_code)


def use(wire: Wire) -> str:
    """Send the requests that deal with secrets; return all responses as text."""
    told = [
        wire.alter(BROKER_LOGGER, "1", {"kafka.request.logger": "TRACE"}),
        wire.alter(BROKER, "1", {"listener.name.ssl.ssl.key.password": DYNAMIC}),
        wire.alter(BROKER, "1", {"listener.name.other.ssl.keystore.password": DYNAMIC}),
        wire.alter(BROKER, "1", {"listener.name.other.plain.sasl.jaas.config": DYNAMIC}),
        wire.alter(BROKER, "", {"ssl.truststore.password": DYNAMIC, "listener.name.ssl.ssl.keystore.key": DYNAMIC}),
        wire.alter(BROKER, "1", {"own.password": DYNAMIC, "num.io.threads": DYNAMIC[:1]}),
        wire.alter(BROKER, "1", {"own.password": DYNAMIC}),
        wire.call(
            AlterUserScramCredentialsRequest(
                deletions=[],
                upsertions=[
                    ScramCredentialUpsertion(
                        name="bob", mechanism=1, iterations=4096, salt=SCRAM_KEY, salted_password=SCRAM_KEY
                    ),
                    ScramCredentialUpsertion(
                        name="eve", mechanism=9, iterations=4096, salt=SCRAM_KEY, salted_password=SCRAM_KEY
                    ),
                ],
            )
        ),
        wire.alter(BROKER_LOGGER, "1", {"kafka.request.logger": None}),
        wire.describe(BROKER, "1"),
        wire.describe(BROKER, ""),
    ]
    entries = [entry for answer in told[-2:] for entry in answer.values()]
    values = [entry.value for entry in entries] + [each.value for entry in entries for each in entry.synonyms]
    return repr((told, values))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGABRT])
def test_a_node_that_runs_says_none_of_it(number: signal.Signals, tmp_path: Path) -> None:
    """Also if it dies and writes the stacks of its threads."""
    file = write_properties(tmp_path / "server.properties", secured(tmp_path))
    log = tmp_path / "log"
    node = Process(file, log)
    address = node.said.split(READY)[1].split()[0].split(",")[0]
    try:
        with Wire(address) as wire:
            answers = use(wire)
            wire.create("t")
        # Bytes that are no requests, with a secret in them.
        with Wire(address) as wire:
            wire.socket.sendall(b"\0\0\0\x40" + SCRAM_KEY)
            assert wire.closed_by_the_broker()
    finally:
        said = node.end(number)
    assert PLANTED not in answers
    for text in (said, log.read_text(errors="replace")):
        assert PLANTED not in text
        assert SCRAM_KEY.hex() not in text
        assert base64.b64encode(SCRAM_KEY).decode()[:40] not in text
    assert "[KafkaServer id=1] started" in log.read_text()
    assert log.read_text().count("Completed request:") > 5


@pytest.mark.slow
def test_logs_dump_says_none_of_it(tmp_path: Path) -> None:
    file = write_properties(
        tmp_path / "server.properties", {**development_profile(str(tmp_path / "data"), 0), "num.partitions": 3}
    )
    node = Process(file, tmp_path / "log")
    address = node.said.split(READY)[1].split()[0].split(",")[0]
    with Wire(address) as wire:
        wire.try_create("shown", 1, 1, {"retention.ms": "77777"})
        use(wire)
    node.end(signal.SIGTERM)
    data = tmp_path / "data"
    kept = b"".join(path.read_bytes() for path in (data / "__cluster_metadata-0").glob("*.log"))
    # The metadata log has it, as in Apache Kafka.
    assert DYNAMIC.encode() in kept
    done = run("logs", "dump", str(data / "__cluster_metadata-0"), "--cluster-metadata-decoder")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(redacted)") > 3
    assert '"name":"bob"' in done.stdout
    assert "77777" in done.stdout
    for text in (PLANTED, base64.b64encode(SCRAM_KEY).decode()[:40]):
        assert text not in done.stdout + done.stderr
    # Without the decoder records are printed as text; also those of a file that was copied elsewhere.
    (copied,) = (data / "__cluster_metadata-0").glob("*.log")
    (tmp_path / copied.name).write_bytes(kept)
    for words in (
        ["logs", "dump", "--print-data-log", str(data / "__cluster_metadata-0")],
        ["logs", "dump", "--print-data-log", str(tmp_path / copied.name)],
        ["logs", "dump", "--value-decoder-class", "--print-data-log", str(copied)],
        ["dump-log", "--print-data-log", "--files", str(copied)],
    ):
        plain = run(*words)
        assert plain.returncode == 0, plain.stderr
        assert plain.stdout.count("payload: (redacted)") >= 2
        assert "77777" in plain.stdout
        assert PLANTED not in plain.stdout + plain.stderr
    assert {oct(path.stat().st_mode & 0o777) for path in (data, data / "__cluster_metadata-0")} == {"0o700"}


@pytest.mark.slow
def test_no_text_of_an_object_has_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """This holds for every object of ours that lives while a node runs and a user is logged in."""
    with caplog.at_level(logging.DEBUG), pykbroker.Broker(secured(tmp_path), data_dir=tmp_path / "data") as broker:
        bound = broker._node.listeners
        clients = next(f"localhost:{each.port}" for each in bound if each.name == "CLIENTS")
        with Wire(broker.bootstrap_servers) as wire, Wire(clients) as user, Wire(clients) as other:
            answers = use(wire)
            assert log_in(user, ALICE) == ErrorCode.NONE
            assert log_in(other, WRONG) == ErrorCode.SASL_AUTHENTICATION_FAILED
            shown = set()
            for each in gc.get_objects():
                kind = type(each)
                if str(kind.__module__).startswith("pykbroker") and "__repr__" in dir_of(kind):
                    name = f"{kind.__module__}.{kind.__qualname__}"
                    assert PLANTED not in text_of(each), name
                    shown.add(name)
    assert {"pykbroker.config.typed_config.Config", "pykbroker.metadata.image.MetadataImage"} <= shown
    assert PLANTED not in answers + caplog.text


def dir_of(kind: type) -> set[str]:
    """Return the names that its classes define, without those of `object`."""
    return {name for each in kind.__mro__[:-1] for name in vars(each)}


def text_of(each: object) -> str:
    try:
        return repr(each)
    except Exception:  # noqa: BLE001  # an object that is being made
        return ""


def bad_texts(folder: Path) -> dict[str, dict[str, str]]:
    """Return changes with which a node cannot start."""
    key = node_identity().key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(STORE.encode()))
    pem = {
        "ssl.keystore.location": "",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": f"{PLANTED} no key",
        "ssl.keystore.certificate.chain": f"{PLANTED} no chain",
    }
    own = key.decode().replace("\n", " ")
    jaas = "listener.name.clients.plain.sasl.jaas.config"
    (folder / "damaged.p12").write_bytes(node_identity().pkcs12(STORE)[:-40])
    (folder / "text.p12").write_text(f"-----BEGIN PRIVATE KEY-----\n{PLANTED}=\n-----END PRIVATE KEY-----\n")
    return {
        "store": {"ssl.keystore.password": WRONG},
        "key": {"ssl.key.password": WRONG},
        "trust": {"ssl.truststore.password": WRONG},
        "damaged": {"ssl.keystore.location": str(folder / "damaged.p12")},
        "text": {"ssl.keystore.location": str(folder / "text.p12")},
        "gone": {"ssl.keystore.location": str(folder / "gone.p12")},
        "pem": pem,
        "pem key": {**pem, "ssl.keystore.key": own, "ssl.key.password": WRONG},
        "pem chain": {**pem, "ssl.keystore.key": own},
        "pem store": {"ssl.keystore.type": "PEM"},
        "jaas module": {jaas: f'{PLANTED} required user_alice="{ALICE}";'},
        "jaas text": {jaas: f'{PLAIN_MODULE} required user_alice="{ALICE}'},
        "jaas flag": {jaas: f'{PLAIN_MODULE} {PLANTED} user_alice="{ALICE}";'},
        "jaas two": {jaas: f'{PLAIN_MODULE} required user_alice="{ALICE}"; {PLAIN_MODULE} required;'},
        "jaas of another": {jaas: f'{SCRAM_MODULE} required user_alice="{ALICE}";'},
        "refused": {"delegation.token.secret.key": PLANTED, "listener.name.clients.ssl.key.password": WRONG},
        "wrong": {"num.partitions": "many"},
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores")


CASES = (
    *("store", "key", "trust", "damaged", "text", "gone", "pem", "pem key", "pem chain", "pem store", "refused"),
    *("jaas module", "jaas text", "jaas flag", "jaas two", "jaas of another", "wrong"),
)


@pytest.mark.parametrize("name", CASES)
def test_a_node_that_cannot_start_says_none_of_it(
    name: str, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = secured(folder)
    bad = bad_texts(folder)
    assert bad.keys() == set(CASES)
    texts = {key: text for key, text in {**good, **bad[name]}.items() if text}
    with caplog.at_level(logging.DEBUG), pytest.raises(ValueError) as stopped:  # noqa: SIM117
        with pykbroker.Broker(texts, data_dir=tmp_path / "data"):
            pass
    assert_silent(stopped.value)
    assert PLANTED not in caplog.text


def assert_silent(error: BaseException) -> None:
    """Check its text, its traceback, and those of its causes."""
    seen: BaseException | None = error
    while seen is not None:
        assert PLANTED not in str(seen) + repr(seen) + repr(seen.args)
        seen = seen.__cause__ or seen.__context__
    # The lines of this file's own code are no output of a node.
    lines = [line for line in traceback.format_exception(error) if "tests/security" not in line]
    assert PLANTED not in "".join(lines)


PASSWORD_KEYS = sorted(name for name, key in STATIC_KEYS.items() if key.type is PASSWORD)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    changes=st.dictionaries(
        st.sampled_from(
            [
                *PASSWORD_KEYS,
                *(f"listener.name.ssl.{key}" for key in PASSWORD_KEYS if key.startswith("ssl.")),
                "listener.name.clients.plain.sasl.jaas.config",
                "listener.name.clients.scram-sha-256.sasl.jaas.config",
                "ssl.keystore.type",
                "ssl.truststore.type",
                "ssl.keystore.location",
                "ssl.truststore.location",
            ]
        ),
        st.sampled_from(
            [
                None,
                "PEM",
                "JKS",
                PLANTED,
                f"{PLANTED};",
                f'{PLAIN_MODULE} required user_a="{PLANTED}"',
                f"-----BEGIN PRIVATE KEY----- {PLANTED} -----END PRIVATE KEY-----",
                f"-----BEGIN CERTIFICATE----- {PLANTED} -----END CERTIFICATE-----",
            ]
        ),
        max_size=4,
    )
)
def test_whatever_is_wrong_no_error_says_it(changes: dict[str, str | None], folder: Path) -> None:
    """The keys for secrets may be in any state: an error describes the key, and never has its value."""
    places = ("type", "location")
    texts = secured(folder)
    for key, text in changes.items():
        if text is None or (key.endswith(places) and PLANTED in text):
            texts.pop(key, None)
        else:
            texts[key] = text
    try:
        config = start_config(texts)
        assert PLANTED not in repr(config) + repr(sasl_listeners(config))
        tls = settings_of(config, "SSL")
        assert PLANTED not in repr(tls)
        material = read_material(tls)
        assert PLANTED not in repr(material)
        server_context(tls, material)
        outgoing_context(tls, material)
    except ValueError as error:
        assert_silent(error)
