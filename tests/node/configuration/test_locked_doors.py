"""A setting that promises protection which does not exist stops the start. A setting without effect is named."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pykbroker
from pykbroker.config import protection
from pykbroker.config.dynamic import DynamicConfigs
from pykbroker.config.kinds import STANDARD_AUTHORIZER, ConfigError
from pykbroker.config.load import development_profile, load
from pykbroker.controller.result import Result
from pykbroker.metadata.image import ConfigResource
from pykbroker.node.node import Node
from pykbroker.node.shared import StartError
from pykbroker_log.memory_disk import Survive
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import alter_configs as legacy
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker_wire.stored.metadata import ConfigRecord
from pykbroker_wire.stored.metadata.client_quota_record import ClientQuotaRecord, EntityData
from testkit.nodes.processes import command, environment, run, write_properties
from testkit.nodes.sim import BROKER, TOPIC, Sim
from testkit.nodes.wire import Wire
from testkit.ports import steady_port

PLAIN_CONTROLLER = "CONTROLLER://localhost:0"
#: a supported listener for clients
SASL = {
    "listeners": f"PLAINTEXT://localhost:0,SASL://localhost:0,{PLAIN_CONTROLLER}",
    "advertised.listeners": f"PLAINTEXT://localhost:0,SASL://localhost:0,{PLAIN_CONTROLLER}",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="alice-secret";',
}
#: row -> properties over the development profile, and the key=value in the log line
PROMISES: dict[str, list[tuple[dict[str, str], str]]] = {
    "listener.name.<listener>.ssl.*": [
        ({f"listener.name.{name}.ssl.{rest}": value}, f"listener.name.{name}.ssl.{rest}={shown}")
        for name, rest, value, shown in (
            ("plaintext", "client.auth", "required", "required"),
            ("plaintext", "keystore.password", "secret", r"\[hidden\]"),
            ("controller", "keystore.location", "/nowhere.jks", "/nowhere.jks"),
            ("plaintext", "of.an.engine", "1", r"\[hidden\]"),
        )
    ],
    "listener.name.<listener>[.<mechanism>].sasl.*": [
        (
            {"listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN"},
            "listener.name.plaintext.sasl.enabled.mechanisms=PLAIN",
        ),
        (
            {"listener.name.plaintext.plain.sasl.jaas.config": "secret"},
            r"listener.name.plaintext.plain.sasl.jaas.config=\[hidden\]",
        ),
        # A supported listener does not support every setting.
        (
            {**SASL, "listener.name.sasl.plain.sasl.server.callback.handler.class": "com.example.One"},
            "listener.name.sasl.plain.sasl.server.callback.handler.class=com.example.One",
        ),
        ({**SASL, "listener.name.sasl.sasl.jaas.config": "secret"}, r"listener.name.sasl.sasl.jaas.config=\[hidden\]"),
        (
            {**SASL, "listener.name.sasl.sasl.kerberos.service.name": "kafka"},
            "listener.name.sasl.sasl.kerberos.service.name=kafka",
        ),
    ],
    "listener.name.<listener>[.<mechanism>].connections.max.reauth.ms": [
        (
            {"listener.name.plaintext.connections.max.reauth.ms": "5000"},
            "listener.name.plaintext.connections.max.reauth.ms=5000",
        )
    ],
    "listener.name.<listener>.principal.builder.class": [
        (
            {"listener.name.plaintext.principal.builder.class": "com.example.Builder"},
            "listener.name.plaintext.principal.builder.class=com.example.Builder",
        )
    ],
    **{
        key: [({**SASL, key: "com.example.One"}, f"{key}=com.example.One")]
        for key in (
            "sasl.server.callback.handler.class",
            "sasl.client.callback.handler.class",
            "sasl.login.callback.handler.class",
            "sasl.login.class",
        )
    },
    "remote.log.storage.system.enable": [
        ({"remote.log.storage.system.enable": "true"}, "remote.log.storage.system.enable=true")
    ],
    "delegation.token.secret.key": [({"delegation.token.secret.key": "x"}, r"delegation.token.secret.key=\[hidden\]")],
    **{
        key: [({key: "com.example.One"}, f"{key}=com.example.One")]
        for key in (
            "authorizer.class.name",
            "principal.builder.class",
            "create.topic.policy.class.name",
            "alter.config.policy.class.name",
            "client.quota.callback.class",
            "security.providers",
            "config.providers",
        )
    },
}
#: rows that are refused only if they are set while the node runs
LATE = {
    "listeners",
    "advertised.listeners",
    "controller.listener.names",
    "listener.security.protocol.map",
    "security.inter.broker.protocol",
}
CASES = [pytest.param(texts, named, id=named) for cases in PROMISES.values() for texts, named in cases]
LINE = "This version does not give the protection that is set: "


def properties(folder: Path, texts: dict[str, str]) -> dict[str, str]:
    return {**development_profile(str(folder), 0), **texts}


def test_every_row_has_a_start_that_fails() -> None:
    assert {key for row in protection.TABLE for key in row.keys} == PROMISES.keys() | LATE


@pytest.mark.slow
@pytest.mark.parametrize(("texts", "named"), CASES)
def test_a_promise_that_is_not_kept_stops_the_start(texts: dict[str, str], named: str, tmp_path: Path) -> None:
    file = write_properties(tmp_path / "server.properties", properties(tmp_path / "data", texts))
    check_refused(run("start", "--format", str(file)), named)
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_format_and_set_are_refused_as_well(tmp_path: Path) -> None:
    key = "authorizer.class.name"
    file = write_properties(tmp_path / "server.properties", properties(tmp_path / "data", {key: "com.example.One"}))
    check_refused(run("format", str(file)), key)
    check_refused(run("start", "--data-dir", str(tmp_path / "data"), "--set", f"{key}=com.example.One"), key)
    assert not (tmp_path / "data").exists()


def check_refused(done: subprocess.CompletedProcess[str], named: str) -> None:
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert re.match(re.escape(f"pykbroker: {LINE}") + ".*" + named + r"[^ ]* \(", line), line


@pytest.mark.parametrize(("texts", "named"), CASES)
def test_a_broker_inside_another_process_is_refused_too(texts: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named), pykbroker.Broker(texts):
        pass


@pytest.mark.parametrize(("texts", "named"), CASES)
def test_a_node_with_such_a_configuration_is_never_made(texts: dict[str, str], named: str, tmp_path: Path) -> None:
    """This holds whatever read the configuration. Some do not even load, because Apache Kafka's own rules refuse
    them."""
    sim = Sim()
    try:
        with pytest.raises(ConfigError):
            Node(load(properties(tmp_path, texts)), sim.world.runtime("other", sim.disk))
    finally:
        sim.close()


def test_one_line_names_everything(tmp_path: Path) -> None:
    texts = {
        "authorizer.class.name": "com.example.One",
        "listener.name.plaintext.ssl.client.auth": "required",
        "delegation.token.secret.key": "secret",
        "client.quota.callback.class": "a" * 1_000,
        "security.providers": "two\nlines",
    }
    with pytest.raises(ConfigError) as refused:
        protection.refuse(properties(tmp_path, texts))
    line = str(refused.value)
    assert "\n" not in line
    assert "secret" not in line.replace("secret.key", "")
    assert len(line) < 1_000
    for key in texts:
        assert f"{key}=" in line


@pytest.mark.parametrize(
    "texts",
    [
        {"ssl.keystore.location": "/nowhere.jks", "sasl.enabled.mechanisms": "PLAIN", "ssl.client.auth": "required"},
        {"listener.name.other.ssl.client.auth": "required"},
        SASL,
        {**SASL, "listener.name.sasl.connections.max.reauth.ms": "5000"},
        {**SASL, "listener.name.sasl.plain.connections.max.reauth.ms": "5000"},
        {**SASL, "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN"},
        {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,UNUSED:SASL_SSL"},
        {"principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"},
        {"listener.name.plaintext.connections.max.reauth.ms": "0"},
        {"authorizer.class.name": "", "config.providers": "", "remote.log.storage.system.enable": "false"},
        {"authorizer.class.name": STANDARD_AUTHORIZER},
    ],
)
def test_what_promises_nothing_here_does_not_stop_the_start(texts: dict[str, str], tmp_path: Path) -> None:
    """Apache Kafka also ignores ssl.* and sasl.* with plain listeners."""
    config = {**development_profile(str(tmp_path), 0), **texts}
    assert not protection.promises(config)
    protection.refuse(config)


def test_the_name_of_a_listener_may_have_dots(tmp_path: Path) -> None:
    names = {
        "listeners": f"OUT.SIDE://localhost:0,{PLAIN_CONTROLLER}",
        "listener.security.protocol.map": "OUT.SIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    for key in ("listener.name.out.side.ssl.client.auth", "listener.name.out.side.plain.sasl.jaas.config"):
        assert [promise.key for promise in protection.promises({**names, key: "required"})] == [key]
    assert not protection.promises({**names, "listener.name.out.ssl.client.auth": "required"})
    # Also if the name of a listener looks like a key.
    names = {name: text.replace("OUT.SIDE", "OUT.SSL.SIDE") for name, text in names.items()}
    for key in ("listener.name.out.ssl.side.principal.builder.class", "listener.name.out.ssl.side.sasl.jaas.config"):
        assert [promise.key for promise in protection.promises({**names, key: "com.example.One"})] == [key]


def test_a_listener_has_no_principal_builder_of_its_own(tmp_path: Path) -> None:
    """One class makes the principals of all listeners, so a different one for one listener is refused."""
    ours, default = "python:tests.Ours", "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
    key = "principal.builder.class"
    for of_all, of_one, is_refused in (
        (None, ours, True),
        (None, default, False),
        (ours, default, True),
        (ours, ours, False),
    ):
        texts = {f"listener.name.plaintext.{key}": of_one, **({key: of_all} if of_all else {})}
        found = protection.promises({**development_profile(str(tmp_path), 0), **texts})
        assert [promise.key for promise in found] == ([f"listener.name.plaintext.{key}"] if is_refused else [])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sasl.enabled.mechanisms", "SCRAM-SHA-256"),
        ("sasl.mechanism.inter.broker.protocol", "PLAIN"),
        ("listener.name.sasl.sasl.enabled.mechanisms", "SCRAM-SHA-256"),
        ("listener.name.sasl.plain.sasl.jaas.config", "secret"),
        ("listener.name.sasl.connections.max.reauth.ms", "1"),
        ("listeners", f"SASL://localhost:1,{PLAIN_CONTROLLER}"),
        ("listener.security.protocol.map", "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"),
    ],
)
def test_authentication_is_as_the_properties_file_says_it(key: str, value: str, tmp_path: Path) -> None:
    """Neither AlterConfigs nor the metadata log can change it, because the change would have no effect."""
    config = load(properties(tmp_path, SASL))
    dynamic = DynamicConfigs(broker={key: value}, cluster={})
    for found in (
        protection.promises_of_change(config, {key: value}, ["SASL", "PLAINTEXT"]),
        protection.promises_of_layers(config, dynamic),
    ):
        # With other listeners the line names their security.
        assert key in {one.key for one in found} or (key == "listeners" and found)


@pytest.mark.parametrize(
    "written",
    [
        {"listener.name.elsewhere.plain.sasl.jaas.config": "secret"},
        {"sasl.login.class": "com.example.One"},
    ],
)
def test_a_change_is_not_refused_for_what_the_properties_file_has(written: dict[str, str], tmp_path: Path) -> None:
    """The start accepted it, because no listener here uses it."""
    config = load({**development_profile(str(tmp_path), 0), **written})
    assert not protection.promises(config.overrides())
    assert not protection.promises_of_change(config, {"log.cleaner.threads": "2"}, ["PLAINTEXT"])
    (key,) = written
    # As a change it is refused, also with the same value.
    assert [one.key for one in protection.promises_of_change(config, written, ["PLAINTEXT"])] == [key]
    listeners = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,ELSEWHERE:SASL_PLAINTEXT"}
    assert protection.promises_of_change(config, listeners, ["PLAINTEXT", "ELSEWHERE"])


@pytest.mark.parametrize(
    "key",
    [
        "sasl.kerberos.min.time.before.relogin",
        "sasl.login.refresh.buffer.seconds",
        "listener.name.sasl.sasl.kerberos.ticket.renew.jitter",
        "listener.name.sasl.plain.sasl.login.refresh.window.factor",
    ],
)
def test_the_times_of_logins_promise_no_protection(key: str, tmp_path: Path) -> None:
    config = load(properties(tmp_path, SASL))
    assert not protection.promises_of_change(config, {key: "1"}, ["SASL", "PLAINTEXT"])
    assert not protection.promises_of_layers(config, DynamicConfigs(broker={key: "1"}, cluster={}))
    assert not protection.promises({**config.overrides(), key: "1"})


def test_policies_count_where_apache_kafka_has_them() -> None:
    policy = {"create.topic.policy.class.name": "com.example.One"}
    assert protection.promises({**policy, "process.roles": "controller"})
    assert not protection.promises({**policy, "process.roles": "broker"})


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_plain_socket_gets_nothing(protocol: str, tmp_path: Path) -> None:
    """As long as the process lives, every attempt to connect is refused."""
    port = steady_port()
    texts = {
        "listeners": f"{protocol}://127.0.0.1:{port},{PLAIN_CONTROLLER}",
        "advertised.listeners": f"{protocol}://127.0.0.1:{port},{PLAIN_CONTROLLER}",
        "inter.broker.listener.name": protocol,
        "listener.security.protocol.map": f"{protocol}:{protocol},CONTROLLER:PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "ssl.keystore.location": "/nowhere.jks",
    }
    file = write_properties(tmp_path / "server.properties", properties(tmp_path / "data", texts))
    attempts: list[int] = []
    process = subprocess.Popen(
        command("start", "--format", str(file)),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def knock() -> None:
        while process.poll() is None:
            with socket.socket() as one:
                attempts.append(one.connect_ex(("127.0.0.1", port)))

    knocking = threading.Thread(target=knock)
    knocking.start()
    out, err = process.communicate(timeout=30)
    knocking.join()
    assert process.returncode == 1
    assert out == ""
    assert err.count("\n") == 1
    assert attempts
    assert 0 not in attempts


# Through the APIs.

#: keys and values that AlterConfigs of a broker must not set
ALTERATIONS = {
    "listeners": f"SSL://localhost:9092,{PLAIN_CONTROLLER}",
    "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
    "advertised.listeners": "SSL://localhost:9092",
    "controller.listener.names": "SSL",
    "security.inter.broker.protocol": "SSL",
    "listener.name.plaintext.ssl.client.auth": "required",
    "listener.name.elsewhere.ssl.keystore.location": "/nowhere.jks",
    "listener.name.with.dots.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": "secret",
    "listener.name.plaintext.connections.max.reauth.ms": "5000",
    "listener.name.plaintext.principal.builder.class": "com.example.One",
    "authorizer.class.name": "com.example.One",
    "principal.builder.class": "com.example.One",
    "create.topic.policy.class.name": "com.example.One",
    "alter.config.policy.class.name": "com.example.One",
    "client.quota.callback.class": "com.example.One",
    "delegation.token.secret.key": "secret",
    "security.providers": "com.example.One",
    "sasl.server.callback.handler.class": "com.example.One",
    "sasl.client.callback.handler.class": "com.example.One",
    "sasl.login.callback.handler.class": "com.example.One",
    "sasl.login.class": "com.example.One",
    "config.providers": "file",
    "remote.log.storage.system.enable": "true",
}


def test_every_row_is_tried_through_the_apis() -> None:
    for row in protection.TABLE:
        for key in row.keys:
            pattern = re.escape(key).replace("<listener>", "[a-z]+").replace(r"\*", ".*")
            pattern = pattern.replace(r"\[\.<mechanism>\]", r"(\.[a-z]+)?")
            assert any(re.fullmatch(pattern, name) for name in ALTERATIONS), key


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with pykbroker.Broker() as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("t", partitions=1)
        yield wire


@pytest.mark.slow
@pytest.mark.parametrize("broker", ["1", ""])
@pytest.mark.parametrize(("key", "value"), ALTERATIONS.items(), ids=list(ALTERATIONS))
def test_alter_configs_refuses_the_same(wire: Wire, broker: str, key: str, value: str) -> None:
    answers = [wire.alter(BROKER, broker, {key: value})]
    config = legacy.AlterableConfig(name=key, value=value)
    resource = legacy.AlterConfigsResource(resource_type=BROKER, resource_name=broker, configs=[config])
    answers.append(wire.call(legacy.AlterConfigsRequest(resources=[resource], validate_only=False)).responses[0])
    for answer in answers:
        assert answer.error_code == ErrorCode.INVALID_CONFIG
        assert answer.error_message.startswith((f"{LINE}{key}=", f"{key} is taken from the properties file alone"))
        assert "secret" not in answer.error_message.replace("secret.key", "")
    assert key not in {name for name, entry in wire.describe(BROKER, broker).items() if entry.config_source in (2, 3)}


def test_only_the_resource_that_promises_is_refused(wire: Wire) -> None:
    def change(resource_type: int, name: str, key: str, value: str, operation: int = 0) -> AlterConfigsResource:
        config = AlterableConfig(name=key, config_operation=operation, value=value)
        return AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=[config])

    append = 2
    request = IncrementalAlterConfigsRequest(
        resources=[
            change(BROKER, "1", "listener.name.plaintext.sasl.enabled.mechanisms", "PLAIN", append),
            change(BROKER, "", "config.providers", "file", append),
            change(TOPIC, "t", "remote.storage.enable", "true"),
            change(ConfigResource.GROUP, "g", "consumer.session.timeout.ms", "50000"),
        ],
        validate_only=False,
    )
    codes = [answer.error_code for answer in wire.call(request).responses]
    assert codes == [ErrorCode.INVALID_CONFIG] * 3 + [ErrorCode.NONE]
    assert wire.describe(TOPIC, "t")["remote.storage.enable"].value == "false"
    refused = wire.try_create("tiered", 1, 1, {"remote.storage.enable": "true"})
    assert refused.error_code == ErrorCode.INVALID_CONFIG


# Configuration that is already in the metadata log.


def record(resource_type: int, name: str, key: str, value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)


async def write(sim: Sim, *records: Any) -> None:
    """Write as another release's controller could, without any check."""
    controller = sim.node.controller.services.controller
    await controller.submit("written by a test", lambda state, now_ms: Result(None, list(records)))


@pytest.mark.parametrize(
    ("stored", "named"),
    [
        (record(BROKER, "", "listener.name.plaintext.ssl.client.auth", "required"), "plaintext.ssl.client.auth="),
        (record(BROKER, "1", "listener.name.controller.ssl.keystore.location", "/x"), "controller.ssl.keystore"),
        (record(BROKER, "1", "principal.builder.class", "com.example.One"), "principal.builder.class=com.example"),
        (record(BROKER, "1", "listener.security.protocol.map", "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"), "PLAINTEXT:SSL"),
        (record(BROKER, "1", "authorizer.class.name", "com.example.One"), "authorizer.class.name=com.example.One"),
        (
            record(BROKER, "1", "authorizer.class.name", STANDARD_AUTHORIZER),
            f"authorizer.class.name={STANDARD_AUTHORIZER}",
        ),
        (record(TOPIC, "t", "remote.storage.enable", "true"), "remote.storage.enable=true .*of topic t"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_promise_in_the_metadata_stops_the_node(stored: ConfigRecord, named: str) -> None:
    """It stops the running node, and the next start before a client is served."""
    sim = Sim()

    async def scenario(sim: Sim) -> None:
        await sim.create("t")
        told = sim.world.loop.create_future()
        sim.node.on_fatal(lambda: told.set_result(None))
        await write(sim, stored)
        await told
        assert re.search(named, str(sim.node.fatal))
        sim.sim_node.kill(Survive.EVERYTHING)
        with pytest.raises(StartError, match=named):
            await sim.sim_node.start()
        assert not sim.node.listeners or all(not one.connections for one in sim.node.listeners)

    sim.run(scenario)
    sim.close()


def test_what_is_stored_for_others_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    sim = Sim()

    async def scenario(sim: Sim) -> None:
        await write(
            sim,
            record(BROKER, "7", "principal.builder.class", "com.example.One"),
            record(BROKER, "1", "listener.name.gone.ssl.keystore.location", "/x"),
        )
        await asyncio.sleep(1)
        assert sim.node.fatal is None
        await sim.create("t")

    sim.run(scenario)
    sim.close()


# Settings that have no effect.


def test_one_line_at_the_start_names_all_keys_without_effect(caplog: pytest.LogCaptureFixture) -> None:
    silent = {
        "num.io.threads": "9",
        "metric.reporters": "com.example.One",
        "ssl.secure.random.implementation": "SHA1PRNG",
        "sasl.kerberos.service.name": "kafka",
        "remote.log.reader.threads": "3",
        "listener.name.plaintext.num.network.threads": "2",
        # No listener of this node uses TLS.
        "ssl.keystore.location": "/nowhere.p12",
        "ssl.keystore.password": "secret",
        "listener.name.unused.ssl.client.auth": "required",
        "pykbroker.ssl.store.watch.interval.ms": "5",
    }
    with caplog.at_level(logging.WARNING), pykbroker.Broker({**silent, "num.partitions": "2"}):
        pass
    lines = [line for line in caplog.messages if "no effect in this version" in line]
    assert lines == [f"These keys are set and have no effect in this version: {', '.join(sorted(silent))}"]


def test_the_development_profile_has_no_such_key(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), pykbroker.Broker():
        pass
    assert "no effect" not in caplog.text


def test_what_is_stored_without_effect_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    sim = Sim()

    async def scenario(sim: Sim) -> list[str]:
        await sim.create("t")
        await sim.create("u")
        caplog.clear()
        for topic in ("t", "u"):
            await sim.alter(TOPIC, topic, {"remote.log.delete.on.disable": "true", "retention.ms": "5000"})
        await sim.alter(BROKER, "", {"background.threads": "11"})
        await sim.alter(ConfigResource.GROUP, "g", {"streams.session.timeout.ms": "50000"})
        entity = [EntityData(entity_type="user", entity_name="someone")]
        await write(sim, ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=5.0, remove=False))
        await asyncio.sleep(1)
        return [line for line in caplog.messages if "no effect" in line]

    with caplog.at_level(logging.WARNING):
        lines = sim.run(scenario)
        sim.close()
    begin = "These settings of the cluster have no effect in this version: "
    assert lines == [
        f"{begin}remote.log.delete.on.disable (topics)",
        f"{begin}background.threads (brokers)",
        f"{begin}streams.session.timeout.ms (groups)",
        f"{begin}client quotas",
    ]
