"""Key stores, trust stores and JAAS files of a Java client's properties, as the Python client uses them."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from pykbroker.config.kinds import ConfigError
from pykbroker.tools.cluster.client_security import ClientSecurity, security_of
from pykbroker.tools.cluster.client_tls import client_context
from pykbroker.tools.cluster.failure import NotServed
from testkit.certificates import authority, client_identity, in_one_line, node_identity

GOLDEN = Path(__file__).parents[2] / "golden" / "key_stores"
PASSWORD = "storesecret"


def store(folder: Path, name: str, data: bytes) -> str:
    path = folder / name
    path.write_bytes(data)
    return str(path)


def trust(folder: Path, form: str) -> dict[str, str]:
    match form:
        case "PEM":
            return {"ssl.truststore.location": store(folder, "trust.pem", authority().certificate_pem)}
        case "PKCS12":
            data = authority().truststore(PASSWORD)
            # With any file name, because the first bytes of a file show its format.
            return {"ssl.truststore.location": store(folder, "trust.jks", data), "ssl.truststore.password": PASSWORD}
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": in_one_line(authority().certificate_pem)}


def own_key(folder: Path, form: str) -> dict[str, str]:
    alice = client_identity("alice")
    match form:
        case "PEM":
            return {"ssl.keystore.location": store(folder, "alice.pem", alice.key_pem + alice.chain_pem)}
        case "PKCS12":
            data = alice.pkcs12(PASSWORD)
            return {"ssl.keystore.location": store(folder, "alice.p12", data), "ssl.keystore.password": PASSWORD}
    return {
        "ssl.keystore.key": in_one_line(alice.key_pem),
        "ssl.keystore.certificate.chain": in_one_line(alice.chain_pem),
    }


def shake_hands(client: ssl.SSLContext, folder: Path, host: str = "localhost") -> ssl.SSLObject:
    """Make a handshake with a server that requires a certificate; returns the server's side of it."""
    accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    node = node_identity()
    accepting.load_cert_chain(store(folder, "node.pem", node.key_pem + node.chain_pem))
    accepting.load_verify_locations(cadata=authority().certificate_pem.decode())
    accepting.verify_mode = ssl.CERT_REQUIRED
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        accepting.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(6):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
    return sides[1]


@pytest.mark.parametrize("form", ["PEM", "PKCS12", "text"])
def test_stores_in_each_form(form: str, tmp_path: Path) -> None:
    server = shake_hands(client_context({**trust(tmp_path, form), **own_key(tmp_path, form)}), tmp_path)
    assert (("commonName", "alice"),) in server.getpeercert()["subject"]  # type: ignore[index]


def test_the_name_of_the_node_is_checked(tmp_path: Path) -> None:
    properties = {**trust(tmp_path, "PEM"), **own_key(tmp_path, "PEM")}
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(client_context(properties), tmp_path, "elsewhere")
    shake_hands(client_context({**properties, "ssl.endpoint.identification.algorithm": ""}), tmp_path, "elsewhere")


def test_an_authority_that_is_not_trusted(tmp_path: Path) -> None:
    other = store(tmp_path, "other.pem", authority("Another").certificate_pem)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(client_context({"ssl.truststore.location": other, **own_key(tmp_path, "PEM")}), tmp_path)


def test_stores_of_javas_keytool() -> None:
    context = client_context({
        "ssl.truststore.location": str(GOLDEN / "trust.jks"), "ssl.truststore.password": PASSWORD,
        "ssl.keystore.location": str(GOLDEN / "key.jks"), "ssl.keystore.password": PASSWORD,
        "ssl.key.password": "keysecret",
    })  # fmt: skip
    assert context.cert_store_stats()["x509"] == 1


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"ssl.truststore.location": "trust.jks", "ssl.truststore.password": "wrong-secret"}, "trust.jks"),
        ({"ssl.keystore.location": "key.p12", "ssl.keystore.password": "wrong-secret"}, "the password is wrong"),
        ({"ssl.keystore.location": "certificate.pem"}, "0 private keys"),
        ({"ssl.cipher.suites": "TLS_NONE"}, "TLS_NONE is not served"),
    ],
)
def test_what_cannot_be_used_is_one_line_without_secrets(properties: dict[str, str], reason: str) -> None:
    placed = {key: str(GOLDEN / text) if key.endswith("location") else text for key, text in properties.items()}
    with pytest.raises(ConfigError, match=reason) as caught:
        client_context(placed)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_versions_of_tls() -> None:
    context = client_context({"ssl.enabled.protocols": "TLSv1.1, TLSv1.2"})
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
    context = client_context({})
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    with pytest.raises(NotServed, match=r"TLSv1\.1 is not supported"):
        client_context({"ssl.enabled.protocols": "TLSv1.1"})


def test_a_jaas_file_of_kafka_opts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "client.jaas"
    file.write_text('KafkaClient { x.PlainLoginModule required username="bob" password="s"; };')
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    monkeypatch.setenv("KAFKA_OPTS", f"-Dx=y -Djava.security.auth.login.config={file}")
    assert user_of(security_of(properties)) == "bob"
    line = 'x.PlainLoginModule required username="line" password="s";'
    assert user_of(security_of({**properties, "sasl.jaas.config": line})) == "line"
    file.write_text('Other { x.PlainLoginModule required username="bob" password="s"; };')
    with pytest.raises(ConfigError, match="has 0 login modules for KafkaClient"):
        security_of(properties)


def user_of(security: ClientSecurity) -> str | None:
    return None if security.login is None else security.login.user
