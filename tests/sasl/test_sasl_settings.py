"""The SASL settings of a configuration, and the one line that stops a listener that could not authenticate."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import development_profile, load
from pykbroker.config.typed_config import Config
from pykbroker.node.node import Node
from pykbroker.node.sasl_listeners import SaslListeners
from pykbroker.runtime.kafka_opts import jaas_path
from pykbroker.sasl.jaas import parse_file
from pykbroker.sasl.sasl_settings import JaasFile, SaslSettings, login_of, sasl_listeners
from pykbroker_wire.messages.api_versions import ApiVersionsResponse
from testkit.acting import acts
from testkit.nodes.sim import Sim

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECRET = "Tr0ub4dor"
LISTENERS = "PLAINTEXT://localhost:0,CONTROLLER://localhost:0,CLIENTS://localhost:0"


def config(**texts: str) -> Config:
    """Return a configuration with a SASL listener CLIENTS; `__` in a name is a dot."""
    given = {
        **development_profile("/data", 0),
        "listeners": LISTENERS,
        "advertised.listeners": LISTENERS,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN} required user_alice="{SECRET}";',
    }
    return load({**given, **{name.replace("__", "."): text for name, text in texts.items() if text}})


def settings(given: Config, file: JaasFile | None = None) -> SaslSettings:
    found = sasl_listeners(given, JaasFile() if file is None else file)
    assert list(found) == ["CLIENTS"]
    return found["CLIENTS"]


def with_file(text: str) -> JaasFile:
    return JaasFile("/etc/jaas.conf", parse_file(text))


def without_line(**texts: str) -> Config:
    given = config(**texts).overrides()
    return load({name: text for name, text in given.items() if not name.endswith("jaas.config")})


@acts(
    broker=("sasl.enabled.mechanisms", "sasl.jaas.config", "sasl.server.max.receive.size", "connections.max.reauth.ms")
)
def test_keys_and_their_prefixes() -> None:
    found = settings(config())
    assert list(found.mechanisms) == ["PLAIN"]
    plain = found.mechanisms["PLAIN"]
    assert plain.users is not None
    assert plain.users.are("alice", SECRET)
    assert not plain.users.are("alice", "other")
    assert (plain.max_reauth_ms, found.receive_bytes) == (0, 524_288)
    scram = {
        "sasl__enabled__mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener__name__clients__scram-sha-256__sasl__jaas__config": f"{SCRAM} required;",
    }
    found = settings(
        config(
            **scram,
            connections__max__reauth__ms="3",
            listener__name__clients__plain__connections__max__reauth__ms="5",
            sasl__server__max__receive__size="1000",
        )
    )
    assert {name: each.max_reauth_ms for name, each in found.mechanisms.items()} == {"PLAIN": 5, "SCRAM-SHA-256": 3}
    assert found.receive_bytes == 1000
    assert found.mechanisms["SCRAM-SHA-256"].users is None
    found = settings(
        config(
            **scram,
            listener__name__clients__sasl__enabled__mechanisms="PLAIN",
            listener__name__clients__connections__max__reauth__ms="4",
            listener__name__clients__sasl__server__max__receive__size="2000",
        )
    )
    assert {name: each.max_reauth_ms for name, each in found.mechanisms.items()} == {"PLAIN": 4}
    assert found.receive_bytes == 2000


@acts(broker=("connection.failed.authentication.delay.ms",))
def test_how_long_a_refusal_waits() -> None:
    given = config(connection__failed__authentication__delay__ms="250")
    authentication = SaslListeners(given, lambda: "cluster", dict).of("CLIENTS", lambda version: ApiVersionsResponse())
    assert authentication is not None
    assert authentication.failure_seconds == 0.25
    assert authentication.deadline_seconds == 30.0


def test_a_name_of_a_listener_may_have_dots() -> None:
    given = config().overrides()
    dotted = {name.replace("clients", "out.side"): text.replace("CLIENTS", "OUT.SIDE") for name, text in given.items()}
    dotted["listener.name.out.side.sasl.enabled.mechanisms"] = "PLAIN"
    dotted["listener.name.out.side.sasl.server.max.receive.size"] = "1000"
    found = sasl_listeners(load(dotted), JaasFile())
    assert list(found) == ["OUT.SIDE"]
    assert found["OUT.SIDE"].receive_bytes == 1000


def test_a_node_without_sasl_listeners_has_none() -> None:
    assert sasl_listeners(load(development_profile("/data", 0))) == {}


FILE = f"""
KafkaServer {{ {PLAIN} required user_bob="{SECRET}"; {SCRAM} required; }};
clients.KafkaServer {{ {PLAIN} required user_carol="{SECRET}"; }};
"""


def test_a_file_counts_where_no_key_does() -> None:
    """The context of the listener overrides the one for all listeners."""
    users = settings(without_line(), with_file(FILE)).mechanisms["PLAIN"].users
    assert users is not None
    assert users.are("carol", SECRET)
    assert not users.are("bob", SECRET)
    users = settings(config(), with_file(FILE)).mechanisms["PLAIN"].users
    assert users is not None
    assert users.are("alice", SECRET)
    users = settings(without_line(), with_file(FILE.partition("clients.")[0])).mechanisms["PLAIN"].users
    assert users is not None
    assert users.are("bob", SECRET)


REFUSED = [
    ({"sasl__enabled__mechanisms": "GSSAPI"}, "GSSAPI for configuration sasl.enabled.mechanisms: listener CLIENTS"),
    ({"sasl__enabled__mechanisms": "PLAIN,OAUTHBEARER"}, "OAUTHBEARER for configuration sasl.enabled.mechanisms"),
    (
        {"sasl__enabled__mechanisms": "PLAIN,SCRAM-SHA-512"},
        "Could not find a 'KafkaServer' or 'clients.KafkaServer'",
    ),
    ({"sasl__enabled__mechanisms": "plain"}, "plain for configuration sasl.enabled.mechanisms"),
    *[
        ({"listener__name__clients__plain__sasl__jaas__config": text}, said)
        for text, said in (
            (SECRET, "control flag not specified"),
            (f"{PLAIN} required user_alice={SECRET}", "not terminated by semi-colon"),
            (f"{PLAIN} {SECRET};", "Invalid login module control flag"),
            (f"{PLAIN} required user_alice {SECRET};", "Value not specified for key number 1"),
            (f"{SCRAM} required password={SECRET};", f"it must name {PLAIN} for PLAIN"),
            (f"com.sun.security.auth.module.JndiLoginModule required a={SECRET};", f"it must name {PLAIN} for PLAIN"),
        )
    ],
]


@pytest.mark.parametrize(("texts", "said"), REFUSED)
def test_a_listener_that_cannot_authenticate_stops_the_start(texts: dict[str, str], said: str) -> None:
    given = config(**texts)
    with pytest.raises(ConfigError) as refused:
        sasl_listeners(given, JaasFile())
    line = str(refused.value)
    assert said in line
    assert "\n" not in line
    assert SECRET not in line
    # And no node is made.
    sim = Sim()
    try:
        with pytest.raises(ConfigError) as again:
            Node(given, sim.world.runtime("other", sim.disk))
        assert str(again.value) == line
    finally:
        sim.close()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'other {{ {PLAIN} required user_a="{SECRET}"; }};', "Could not find a 'KafkaServer'"),
        (f'KafkaServer {{ {SCRAM} required a="{SECRET}"; }};', f"must name {PLAIN} for PLAIN"),
        (
            f'KafkaServer {{ {PLAIN} required a="{SECRET}"; a.Krb5LoginModule required; }};',
            "no login module",
        ),
    ],
)
def test_a_file_without_the_entry_stops_the_start(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        sasl_listeners(without_line(), with_file(text))
    assert said in str(refused.value)
    assert "/etc/jaas.conf" in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ("-Djava.security.auth.login.config=/etc/a.conf", "/etc/a.conf"),
        ("-Xmx1G -Djava.security.auth.login.config=/etc/a.conf -Da=b", "/etc/a.conf"),
        ('"-Djava.security.auth.login.config=/etc/a.conf"', "/etc/a.conf"),
        ('-Djava.security.auth.login.config="/etc/a b.conf"', "/etc/a b.conf"),
        ("-Djava.security.auth.login.config=/a -Djava.security.auth.login.config=/b", "/b"),
        ("-Xmx1G", None),
        ("", None),
    ],
)
def test_kafka_opts_name_the_file(options: str, path: str | None) -> None:
    assert jaas_path({"KAFKA_OPTS": options}) == path
    assert jaas_path({}) is None


def test_the_file_is_read_or_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "jaas.conf"
    monkeypatch.setenv("KAFKA_OPTS", f"-Djava.security.auth.login.config={file}")
    given = without_line()
    with pytest.raises(ConfigError, match=r"jaas\.conf: No such file or directory"):
        sasl_listeners(given)
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="it is not UTF-8"):
        sasl_listeners(given)
    file.write_text(f"KafkaServer {SECRET}")
    with pytest.raises(ConfigError, match="a JAAS file has contexts") as refused:
        sasl_listeners(given)
    assert SECRET not in str(refused.value)
    file.write_text(FILE)
    assert list(sasl_listeners(given)) == ["CLIENTS"]


def test_as_which_user_a_node_logs_in() -> None:
    line = f'{PLAIN} required username="admin" password="{SECRET}" user_admin="{SECRET}";'
    given = config(
        listener__name__clients__plain__sasl__jaas__config=line, sasl__mechanism__inter__broker__protocol="PLAIN"
    )
    login = login_of(given, "CLIENTS", "sasl.mechanism.inter.broker.protocol")
    assert (login.mechanism, login.user, login.password) == ("PLAIN", "admin", SECRET)
    for wrong in (config(sasl__mechanism__inter__broker__protocol="PLAIN"), config()):
        with pytest.raises(ConfigError) as refused:
            login_of(wrong, "CLIENTS", "sasl.mechanism.inter.broker.protocol")
        assert SECRET not in str(refused.value)
