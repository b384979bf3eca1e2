"""A broker with users: the clients that its settings accept, and those that it refuses."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError, SaslAuthenticationFailedError, TopicAuthorizationFailedError

from pykbroker.__main__ import main
from pykbroker.config.kinds import ConfigError
from pykbroker.testing import SecureBroker
from pykbroker.testing.secured_clients import SecuredUsers
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.errors import KafkaError as KafkaProtocolError
from pykbroker_wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

FORMS = [
    pytest.param({"protocol": "SSL"}, id="SSL"),
    pytest.param({"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN"}, id="PLAIN"),
    pytest.param({"protocol": "SASL_PLAINTEXT", "mechanism": "SCRAM-SHA-256"}, id="SCRAM-SHA-256"),
    pytest.param({"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512"}, id="SASL_SSL"),
]


def send(settings: dict[str, Any], topic: str) -> None:
    producer = KafkaProducer(**settings)
    try:
        producer.send(topic, b"one").get(60)
    finally:
        producer.close()


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_each_kind_of_listener(form: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    with SecureBroker({"alice": 'a "quoted\\ pässword', "carol": "c"}, **form) as broker:
        send(broker.kafka_python("alice"), "orders")
        consumer = KafkaConsumer(
            "orders", **broker.kafka_python("carol"), auto_offset_reset="earliest", consumer_timeout_ms=60_000
        )
        assert next(consumer).value == b"one"
        consumer.close()
        assert [record.value for record in broker.records("orders")] == [b"one"]
    assert [line for line in caplog.messages if "certificate" in line] == []


@pytest.mark.slow
def test_a_client_that_proves_nothing_is_not_served() -> None:
    with SecureBroker() as broker:
        for settings in (
            {"bootstrap_servers": broker.bootstrap_servers},
            {**broker.kafka_python("alice"), "sasl_plain_password": "wrong"},
            {**broker.kafka_python("alice"), "sasl_plain_username": "zoe"},
            {**broker.kafka_python("alice"), "security_protocol": "SASL_PLAINTEXT"},
        ):
            with pytest.raises((KafkaError, SaslAuthenticationFailedError)):
                KafkaAdminClient(**settings, bootstrap_timeout_ms=2000).list_topics()
        assert broker.topics() == {}


@pytest.mark.slow
def test_users_may_do_what_acls_allow() -> None:
    with SecureBroker(acls=True) as broker:
        words = ["-b", broker.bootstrap_servers, "--command-config", broker.properties_file("admin")]
        assert main(["acls", "add", "alice", "--topic", "orders", "--role", "producer", *words]) == 0
        send(broker.kafka_python("alice"), "orders")
        with pytest.raises(TopicAuthorizationFailedError):
            send(broker.kafka_python("bob"), "orders")
        assert len(list(broker.records("orders"))) == 1


@pytest.mark.slow
def test_it_may_be_started_again(tmp_path: Path) -> None:
    broker = SecureBroker(data_dir=tmp_path)
    for _ in range(2):
        with broker:
            folder = Path(broker.kafka_python()["ssl_cafile"]).parent
            send(broker.kafka_python(), "orders")
        assert not folder.exists()
    with broker:
        assert len(list(broker.records("orders"))) == 2


class Electing(SecureBroker):
    """Its controller is lost at the first request for passwords, and no longer the active one at the second."""

    asked = 0

    def _ask_controller(self, request: Any) -> Any:
        if isinstance(request, AlterUserScramCredentialsRequest):
            self.asked += 1
            if self.asked == 1:
                raise TimeoutError("no controller has answered")
            if self.asked == 2:
                code = ErrorCode.NOT_CONTROLLER
                return AlterUserScramCredentialsResponse(
                    results=[
                        AlterUserScramCredentialsResult(user=one.name, error_code=code) for one in request.upsertions
                    ]
                )
        return super()._ask_controller(request)


def test_passwords_are_stored_by_the_controller_of_a_new_election() -> None:
    with Electing(["alice"]) as broker:
        known = broker._image().scram
    assert {user for _, user in known} == {"admin", "alice"}


def test_a_password_that_is_refused_is_named_with_its_user() -> None:
    users = SecuredUsers(["alice"], "SASL_PLAINTEXT", "SCRAM-SHA-256")

    def refuse(request: AlterUserScramCredentialsRequest, part: object) -> None:
        raise KafkaProtocolError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "too few iterations")

    with pytest.raises(ConfigError, match=r"^user admin: too few iterations$"):
        users.set_passwords(refuse, list)


def test_settings_of_each_client() -> None:
    with SecureBroker(protocol="SSL") as broker:
        assert broker.aiokafka("bob")["ssl_context"].verify_mode == ssl.CERT_REQUIRED
        assert broker.java("bob")["security.protocol"] == "SSL"
        assert Path(broker.java("bob")["ssl.keystore.location"]).read_bytes().startswith(b"-----BEGIN PRIVATE KEY")
    with SecureBroker(protocol="SASL_PLAINTEXT", mechanism="PLAIN") as broker:
        assert broker.confluent("bob") == {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "bob",
            "sasl.password": "bob-secret",
        }
        with pytest.raises(ValueError, match="there is no user 'zoe'; there are admin, alice, bob"):
            broker.java("zoe")
    with pytest.raises(RuntimeError, match="not running"):
        broker.kafka_python("bob")


@pytest.mark.parametrize(
    ("words", "said"), [({"protocol": "TLS"}, "protocol TLS"), ({"mechanism": "GSSAPI"}, "GSSAPI")]
)
def test_what_there_is_not(words: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SecureBroker(**words)
