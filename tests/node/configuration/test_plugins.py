"""The example of docs/plugins.md in a node, plugins that cannot be loaded, and plugins that raise."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import pykbroker
from pykbroker.config.kinds import ConfigError
from pykbroker.plugins import ChangedConfigs, NewTopic, ProvenClient, RequestOfClient
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_acls import AclCreation, CreateAclsRequest
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from pykbroker_wire.messages.sasl_handshake import SaslHandshakeRequest
from testkit.acting import acts
from testkit.nodes.wire import BROKER, TOPIC, Closed, Wire, batch

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[3] / "docs" / "plugins.md"
EXAMPLE, PROPERTIES = (
    re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)[0] for language in ("python", "properties")
)
HERE = f"python:{__name__}"


class Raising:
    def configure(self, configs: Mapping[str, str]) -> None:
        pass

    def authorize(self, request: RequestOfClient, operation: str, resource_type: str, resource_name: str) -> bool:
        raise RuntimeError("secret")

    def authorize_some(self, request: RequestOfClient, operation: str, resource_type: str) -> bool:
        raise RuntimeError("secret")

    def validate(self, asked: NewTopic | ChangedConfigs) -> None:
        raise RuntimeError("secret")

    def build(self, client: ProvenClient) -> str:
        if client.user == "raises":
            raise RuntimeError("secret")
        if client.user == "turns":
            self.turns = getattr(self, "turns", 0) + 1
            return f"User:{self.turns}"
        return "nothing" if client.user == "nothing" else "User:ANONYMOUS"


class Slow(Raising):
    def validate(self, asked: NewTopic | ChangedConfigs) -> None:
        start = time.thread_time()
        while time.thread_time() - start < 1:
            pass


class Unconfigured(Raising):
    def configure(self, configs: Mapping[str, str]) -> None:
        raise ValueError(str(configs))


class Incomplete:
    validate = build = None

    def configure(self, configs: Mapping[str, str]) -> None:
        raise AssertionError("it is not configured")

    def authorize(self, request: RequestOfClient, operation: str, resource_type: str, resource_name: str) -> bool:
        return True


class Async(Raising):
    """A coroutine that is never awaited would refuse nothing."""

    async def validate(self, asked: NewTopic | ChangedConfigs) -> None:  # type: ignore[override]
        raise RuntimeError("secret")


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Yield the properties of the page, with its module on Python's path."""
    (tmp_path / "guards.py").write_text(EXAMPLE)
    monkeypatch.syspath_prepend(tmp_path)
    yield dict(line.split("=", 1) for line in PROPERTIES.splitlines())
    sys.modules.pop("guards", None)


@acts(broker=("create.topic.policy.class.name", "alter.config.policy.class.name"))
def test_the_example_of_the_page(example: dict[str, str]) -> None:
    with pykbroker.Broker(example) as broker, Wire(broker.bootstrap_servers) as wire:
        assert wire.try_create("ANONYMOUS.t", 12, 1, {}).error_code == ErrorCode.NONE
        many = wire.try_create("ANONYMOUS.u", 13, 1, {})
        assert many.error_code == ErrorCode.POLICY_VIOLATION
        assert many.error_message == "ANONYMOUS.u has 13 partitions, and 12 are allowed"
        assert wire.try_create("other", 1, 1, {}).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        short = wire.try_create("ANONYMOUS.v", 1, 1, {"retention.ms": "1000"})
        assert (short.error_code, short.error_message) == (ErrorCode.POLICY_VIOLATION, "records stay for a day")
        altered = wire.alter(TOPIC, "ANONYMOUS.t", {"retention.ms": "1000"})
        assert altered.error_code == ErrorCode.POLICY_VIOLATION
        altered = wire.alter(TOPIC, "ANONYMOUS.t", {"retention.ms": "100000000"})
        assert altered.error_code == ErrorCode.NONE
        assert wire.metadata("other").topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        (described,) = wire.metadata("ANONYMOUS.t").topics
        assert described.error_code == ErrorCode.NONE


def test_an_authorizer_in_python_keeps_no_acls(example: dict[str, str]) -> None:
    rule = AclCreation(resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3)
    with (
        pykbroker.Broker({**example, "plugin.admins": "User:ANONYMOUS"}) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        (made,) = wire.call(CreateAclsRequest(creations=[rule])).results
        assert made.error_code == ErrorCode.SECURITY_DISABLED


def test_what_raises_refuses(caplog: pytest.LogCaptureFixture) -> None:
    with (
        pykbroker.Broker({"authorizer.class.name": f"{HERE}.Raising"}) as broker,
        Wire(broker.bootstrap_servers) as wire,
        caplog.at_level(logging.ERROR, "pykbroker.plugins"),
    ):
        assert wire.try_create("t", 1, 1, {}).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert wire.produce("t", batch(b"x")).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "Authorizer raised RuntimeError for 'User:ANONYMOUS', which is refused" in caplog.messages
    caplog.clear()
    policies = {f"{policy}.class.name": f"{HERE}.Raising" for policy in ("create.topic.policy", "alter.config.policy")}
    with pykbroker.Broker(policies) as broker, Wire(broker.bootstrap_servers) as wire:
        assert wire.try_create("t", 1, 1, {}).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        altered = wire.alter(BROKER, "", {"log.retention.ms": "100000"})
        assert altered.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert [text for text in caplog.messages if "raised" in text] == [
        "Policy of create.topic.policy.class.name raised RuntimeError: the request is refused",
        "Policy of alter.config.policy.class.name raised RuntimeError: the request is refused",
    ]


def test_a_plugin_that_holds_the_loop_is_named() -> None:
    with (
        pykbroker.Broker({"create.topic.policy.class.name": f"{HERE}.Slow"}) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        assert wire.try_create("t", 1, 1, {}).error_code == ErrorCode.NONE
        assert broker.metrics()["pykbroker:type=EventLoop,name=SlowTurns,reason=CreateTopics"] >= 1


USERS = ("raises", "nothing", "turns", "team.alice")
PLAIN_LISTENER = {
    "listeners": "CLIENTS://localhost:0,PLAINTEXT://localhost:0,CONTROLLER://localhost:0",
    "advertised.listeners": "CLIENTS://localhost:0,PLAINTEXT://localhost:0,CONTROLLER://localhost:0",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.name.clients.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.clients.connections.max.reauth.ms": "60000",
    "listener.name.clients.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    + " ".join(f'user_{name}="{name}-secret"' for name in USERS)
    + ";",
}


def log_in(wire: Wire, user: str) -> int:
    """Return the error code; raises Closed if the node ends the connection."""
    assert wire.call(SaslHandshakeRequest(mechanism="PLAIN")).error_code == ErrorCode.NONE
    token = f"\0{user}\0{user}-secret".encode()
    return int(wire.call(SaslAuthenticateRequest(auth_bytes=token)).error_code)


@acts(broker=("principal.builder.class",))
def test_principals_by_a_class(example: dict[str, str]) -> None:
    with pykbroker.Broker({**example, **PLAIN_LISTENER}) as broker, Wire(broker.bootstrap_servers) as wire:
        assert log_in(wire, "team.alice") == ErrorCode.NONE
        assert wire.try_create("team.t", 1, 1, {}).error_code == ErrorCode.NONE
        assert wire.try_create("other.t", 1, 1, {}).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_clients_without_a_principal_are_not_served(caplog: pytest.LogCaptureFixture) -> None:
    settings = {**PLAIN_LISTENER, "principal.builder.class": f"{HERE}.Raising"}
    with pykbroker.Broker(settings) as broker, caplog.at_level(logging.INFO, "pykbroker.net"):
        address = broker.bootstrap_servers
        for user, reason in (("raises", "raised RuntimeError"), ("nothing", "gave no principal")):
            with Wire(address) as wire, pytest.raises(Closed):
                log_in(wire, user)
            assert [line for line in caplog.messages if reason in line]
        with Wire(address) as wire:
            assert log_in(wire, "turns") == ErrorCode.NONE
            with pytest.raises(Closed):
                log_in(wire, "turns")
        assert [line for line in caplog.messages if "and after the renewal it is" in line]
    assert "secret" not in caplog.text


@pytest.mark.parametrize("key", ["authorizer.class.name", "create.topic.policy.class.name", "principal.builder.class"])
@pytest.mark.parametrize("value", ["python:nowhere", "python:nowhere.Guard", f"{HERE}.Missing", f"{HERE}.Unconfigured"])
def test_what_cannot_be_loaded_stops_the_start(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{key}: .* cannot be loaded \(\w+\)$") as refused:
        pykbroker.Broker({key: value, "plugin.password": "hidden"}).start()
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("authorizer.class.name", "Incomplete", "lacks the method authorize_some of AuthorizerPlugin"),
        ("create.topic.policy.class.name", "Incomplete", "lacks the method validate of CreateTopicPolicy"),
        ("principal.builder.class", "Incomplete", "lacks the method build of PrincipalBuilder"),
        ("alter.config.policy.class.name", "Async", "validate must be a plain method, which returns when it is called"),
    ],
)
def test_a_class_without_its_methods_stops_the_start(key: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{key}: {__name__}.{value}:? {said}$"):
        pykbroker.Broker({key: f"{HERE}.{value}"}).start()


@pytest.mark.parametrize(
    "key",
    [
        "authorizer.class.name",
        "create.topic.policy.class.name",
        "alter.config.policy.class.name",
        "principal.builder.class",
    ],
)
def test_a_class_of_java_stops_the_start(key: str) -> None:
    with pytest.raises(ConfigError, match="does not give the protection"):
        pykbroker.Broker({key: "com.example.Guard"}).start()


@pytest.mark.parametrize(
    ("resource_type", "name", "key", "value"),
    [
        (BROKER, "", "authorizer.class.name", "python:guards.OwnTopics"),
        (BROKER, "", "principal.builder.class", " python:guards.Builder"),
        (BROKER, "", "create.topic.policy.class.name", "python:guards.SmallTopics"),
        (BROKER, "", "listener.name.l.sasl.server.callback.handler.class", "com.example.Handler"),
        (BROKER, "", "sasl.login.callback.handler.class", "com.example.Handler"),
        (BROKER, "", "config.providers", "file"),
        (BROKER, "", "config.providers.file.class", "com.example.Provider"),
        (BROKER, "", "log.retention.ms", "${file:/etc/passwd:root}"),
        (TOPIC, "t", "retention.ms", "a${env:HOME}"),
    ],
)
def test_what_only_the_properties_file_may_say(resource_type: int, name: str, key: str, value: str) -> None:
    with pykbroker.Broker() as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("t")
        altered = wire.alter(resource_type, name, {key: value})
        assert altered.error_code == ErrorCode.INVALID_CONFIG
        assert "root" not in (altered.error_message or "")
