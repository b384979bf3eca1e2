"""The tools over TLS and SASL, with one file for --command-config of both tools."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from compat_tests.node import make_node
from compat_tests.our_tools.both import CLASSES, BothTools, ours
from compat_tests.sasl.secured import MODULES, USERS, add_users
from compat_tests.tool_server import ToolServer
from testkit import needs
from testkit.certificates import authority, client_identity, node_identity
from testkit.ports import steady_port

SECRET = "storesecret"
LISTENERS = ("PLAINTEXT", "CONTROLLER", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True)
class SecuredTools:
    """The tools, and their settings for each listener."""

    server: ToolServer
    ports: dict[str, int]
    folder: Path

    def words(self, protocol: str, properties: dict[str, str]) -> list[str]:
        file = self.folder / "client.properties"
        lines = {"security.protocol": protocol, **properties}
        file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return ["--bootstrap-server", f"localhost:{self.ports[protocol]}", "--command-config", str(file)]

    def agree(self, protocol: str, properties: dict[str, str], tool: str, *words: str) -> str:
        given = [*words, *self.words(protocol, properties)]
        return BothTools("", self.server).agree(tool, *given, where=False).out

    def file(self, name: str) -> str:
        return str(self.folder / name)

    def trust(self, form: str) -> dict[str, str]:
        if form == "PEM":
            return {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.file("trust.pem")}
        # Java's JKS opens PKCS12 as well.
        return {
            "ssl.truststore.type": form,
            "ssl.truststore.location": self.file(f"trust.{form.lower()}"),
            "ssl.truststore.password": SECRET,
        }

    def own_key(self, form: str) -> dict[str, str]:
        if form == "PEM":
            return {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.file("alice.pem")}
        return {
            "ssl.keystore.type": form,
            "ssl.keystore.location": self.file(f"alice.{form.lower()}"),
            "ssl.keystore.password": SECRET,
            "ssl.key.password": SECRET,
        }


@pytest.fixture(scope="module")
def secured(against: str, tool_server: ToolServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredTools]:
    folder = tmp_path_factory.mktemp("tools")
    node, alice = node_identity(), client_identity("alice")
    for name, data in {
        "node.p12": node.pkcs12(SECRET),
        "trust.pem": authority().certificate_pem,
        "trust.pkcs12": authority().truststore(SECRET),
        "alice.pem": alice.key_pem + alice.chain_pem,
        "alice.pkcs12": alice.pkcs12(SECRET),
    }.items():
        (folder / name).write_bytes(data)
    for name in ("trust", "alice"):
        run_keytool(
            "-importkeystore",
            *("-srckeystore", str(folder / f"{name}.pkcs12"), "-srcstorepass", SECRET),
            *("-destkeystore", str(folder / f"{name}.jks"), "-deststorepass", SECRET, "-deststoretype", "JKS"),
        )
    ports = {name: steady_port() for name in LISTENERS}
    listeners = {name: f"{name}://localhost:{port}" for name, port in ports.items()}
    name, password = USERS["PLAIN"]
    started = make_node(
        against,
        {
            "listeners": ",".join(listeners.values()),
            "advertised.listeners": ",".join(text for each, text in listeners.items() if each != "CONTROLLER"),
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": ",".join(
                f"{each}:{'PLAINTEXT' if each == 'CONTROLLER' else each}" for each in LISTENERS
            ),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(folder / "node.p12"),
            "ssl.keystore.password": SECRET,
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(folder / "trust.pkcs12"),
            "ssl.truststore.password": SECRET,
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(MODULES),
            **{
                f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config": (
                    f'{module} required user_{name}="{password}";' if mechanism == "PLAIN" else f"{module} required;"
                )
                for listener in ("sasl_plaintext", "sasl_ssl")
                for mechanism, module in MODULES.items()
            },
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": ";".join(
                ["User:ANONYMOUS", "User:CN=alice", *(f"User:{user}" for user, _ in USERS.values())]
            ),
        },
        port=ports["PLAINTEXT"],
    )
    try:
        add_users(started.start())
        yield SecuredTools(tool_server, ports, folder)
    finally:
        started.close()


def run_keytool(*words: str) -> None:
    subprocess.run([needs.program("keytool"), *words], capture_output=True, timeout=60, check=True)


def login(mechanism: str, password: str | None = None) -> dict[str, str]:
    user, right = USERS[mechanism]
    line = f'{MODULES[mechanism]} required username="{user}" password="{password or right}";'
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": line}


def check_tools(secured: SecuredTools, protocol: str, properties: dict[str, str]) -> None:
    out = secured.agree(protocol, properties, "acls", "--list")
    assert out == ""
    secured.agree(protocol, properties, "topics", "--list")
    secured.agree(protocol, properties, "configs", "--describe", "--entity-type", "users")


@pytest.mark.parametrize("form", ["PEM", "PKCS12", "JKS"])
def test_tls_with_a_certificate(secured: SecuredTools, form: str) -> None:
    check_tools(secured, "SSL", {**secured.trust(form), **secured.own_key(form)})


@pytest.mark.parametrize("mechanism", [*USERS])
def test_sasl(secured: SecuredTools, mechanism: str) -> None:
    check_tools(secured, "SASL_PLAINTEXT", login(mechanism))


@pytest.mark.parametrize("mechanism", [*USERS])
def test_sasl_over_tls(secured: SecuredTools, mechanism: str) -> None:
    check_tools(secured, "SASL_SSL", {**login(mechanism), **secured.trust("PKCS12")})


def test_a_wrong_password(secured: SecuredTools) -> None:
    """Apache Kafka's client logs it, too."""
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        words = [*secured.words("SASL_PLAINTEXT", login(mechanism, "not-it")), "--list"]
        theirs, mine = secured.server.run(CLASSES["acls"], words), ours("acls", words)
        assert (mine.status, mine.out) == (theirs.status, f"{theirs.out.splitlines()[0]}\n")
        assert "SaslAuthenticationException: Authentication failed" in mine.out
        assert "not-it" not in mine.out
