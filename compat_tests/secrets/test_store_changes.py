"""Apache Kafka and pykbroker accept and refuse the same new stores of a TLS listener in AlterConfigs."""

from __future__ import annotations

import datetime
import shutil
import socket
import ssl
import time
from pathlib import Path

import pytest
from cryptography import x509

from compat_tests.node import Pykbroker
from testkit.certificates import NODE_HOSTS, authority, now
from testkit.nodes.wire import BROKER, Wire
from testkit.oracle.kafka import ApacheKafka
from testkit.ports import steady_port

PASSWORD = "store-secret"
KEYSTORE, TRUSTSTORE = "listener.name.ssl.ssl.keystore.location", "listener.name.ssl.ssl.truststore.location"
#: name of a store -> subject, issuer, hosts
KEYS = {
    "one": ("node", "Authority of the tests", NODE_HOSTS),
    "two": ("node", "Authority of the tests", NODE_HOSTS),
    "name": ("other", "Authority of the tests", NODE_HOSTS),
    "hosts": ("node", "Authority of the tests", ("127.0.0.1",)),
    "issuer": ("node", "Another authority", NODE_HOSTS),
}
#: The changes, and True if the text of the answer is the same too.
CHANGES: tuple[tuple[str, dict[str, str | None], bool], ...] = (
    ("1", {KEYSTORE: "two"}, True),
    ("1", {KEYSTORE: "two"}, True),
    ("1", {KEYSTORE: "name"}, True),
    ("1", {KEYSTORE: "hosts"}, True),
    ("1", {KEYSTORE: "issuer"}, False),
    ("1", {TRUSTSTORE: "issuer-trust"}, False),
    ("1", {KEYSTORE: "issuer", TRUSTSTORE: "issuer-trust"}, False),
    ("1", {KEYSTORE: "junk"}, False),
    ("1", {KEYSTORE: "gone"}, False),
    ("1", {"listener.name.ssl.ssl.keystore.password": "wrong"}, False),
    ("1", {"listener.name.ssl.ssl.keystore.type": "PEM"}, False),
    ("1", {"ssl.keystore.location": "two"}, True),
    ("1", {"ssl.allow.dn.changes": "true"}, True),
    ("", {KEYSTORE: "two"}, True),
    ("1", {KEYSTORE: "one"}, True),
    ("1", {KEYSTORE: None}, True),
)


def stores(folder: Path) -> None:
    for name, (subject, issuer, hosts) in KEYS.items():
        issued = authority(issuer).issue(subject, now=now(), days=60, hosts=hosts)
        (folder / f"{name}.p12").write_bytes(issued.pkcs12(PASSWORD))
    for name, issuer in (("trust", "Authority of the tests"), ("issuer-trust", "Another authority")):
        (folder / f"{name}.p12").write_bytes(authority(issuer).truststore(PASSWORD))
    (folder / "junk.p12").write_bytes(b"junk")


def config(folder: Path, plain: int, secured: int, between: str) -> dict[str, str]:
    return {
        "listeners": f"PLAINTEXT://localhost:{plain},SSL://localhost:{secured},CONTROLLER://localhost:{plain + 1}",
        "advertised.listeners": f"PLAINTEXT://localhost:{plain},SSL://localhost:{secured}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": between,
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(folder / "one.p12"),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(folder / "trust.p12"),
        "ssl.truststore.password": PASSWORD,
    }


def shown(port: int) -> int:
    """Return the serial number of the certificate that a new connection gets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("localhost", port), timeout=60) as plain, context.wrap_socket(plain) as secured:
        der = secured.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


def becomes(port: int, serial: int) -> None:
    deadline = time.monotonic() + 60
    while shown(port) != serial:
        assert time.monotonic() < deadline, "the listener has no new certificate"
        time.sleep(0.05)


def serial_of(store: Path) -> int:
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    found = load_pkcs12(store.read_bytes(), PASSWORD.encode()).cert
    assert found is not None
    return found.certificate.serial_number


@pytest.mark.parametrize("between", ["PLAINTEXT", "SSL"])
def test_the_same_changes_are_taken_and_refused(between: str, tmp_path: Path) -> None:
    answers = []
    stores(tmp_path)
    for make in (ApacheKafka, Pykbroker):
        folder = tmp_path / make.__name__
        shutil.copytree(tmp_path, folder, ignore=lambda path, names: [each for each in names if "." not in each])
        plain, secured = steady_port(), steady_port()
        node = make(config(folder, plain, secured, between), port=plain)
        said = []
        try:
            with Wire(node.start().bootstrap, timeout=60) as wire:
                for name, values, is_same in CHANGES:
                    texts = {
                        key: str(folder / f"{text}.p12") if text and key.endswith("location") else text
                        for key, text in values.items()
                    }
                    answer = wire.alter(BROKER, name, texts)
                    said.append((answer.error_code, answer.error_message if is_same else ""))
                    store = values.get(KEYSTORE)
                    if not answer.error_code and store:
                        becomes(secured, serial_of(folder / f"{store}.p12"))
                # The same path with another file.
                assert wire.alter(BROKER, "1", {KEYSTORE: str(folder / "two.p12")}).error_code == 0
                becomes(secured, serial_of(folder / "two.p12"))
                shutil.copy(folder / "one.p12", folder / "two.p12")
                assert wire.alter(BROKER, "1", {KEYSTORE: str(folder / "two.p12")}).error_code == 0
                becomes(secured, serial_of(folder / "one.p12"))
        finally:
            node.close()
        answers.append(said)
    assert answers[0] == answers[1]


ENDS, STARTS = True, False
#: The listener between brokers, the key store, the other keys that are set, where an empty text removes a key, and what
#: Apache Kafka does.
CASES: tuple[tuple[str, str, dict[str, str], bool], ...] = (
    ("PLAINTEXT", "issuer", {}, STARTS),
    ("SSL", "issuer", {}, ENDS),
    ("SSL", "ended", {}, ENDS),
    ("SSL", "one", {"ssl.truststore.location": "", "ssl.truststore.password": ""}, ENDS),
    ("SSL", "issuer", {"ssl.truststore.location": "issuer-trust"}, STARTS),
)
#: A start of Apache Kafka takes ten times as much as one of pykbroker.
BY = [Pykbroker, pytest.param(ApacheKafka, marks=pytest.mark.long(amount="the judge of the same start"))]


@pytest.mark.parametrize("make", BY)
@pytest.mark.parametrize(("between", "key", "more", "ends"), CASES)
def test_the_same_stores_stop_the_start(
    make: type[Pykbroker | ApacheKafka], between: str, key: str, more: dict[str, str], ends: bool, tmp_path: Path
) -> None:
    """The stores of the listener between brokers must trust themselves."""
    stores(tmp_path)
    ended = authority().issue("node", now=now() - datetime.timedelta(days=9), days=8, hosts=NODE_HOSTS)
    (tmp_path / "ended.p12").write_bytes(ended.pkcs12(PASSWORD))
    plain, secured = steady_port(), steady_port()
    changed = {name: str(tmp_path / f"{text}.p12") if text else "" for name, text in more.items()}
    whole = config(tmp_path, plain, secured, between) | {"ssl.keystore.location": str(tmp_path / f"{key}.p12")}
    node = make({name: text for name, text in (whole | changed).items() if text}, port=plain)
    said = ""
    try:
        node.start()
    except RuntimeError as refused:
        # Apache Kafka writes a lot while it ends.
        said = f"{refused}{node.log_file.read_text()}"
    finally:
        node.close()
    assert ("can't connect to a server SSLEngine created with those settings" in said) == ends, said[-3000:]
    assert bool(said) == ends, said[-3000:]
