"""Converts a Java client's properties file to settings of the Python client."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from pykbroker.config.kinds import ConfigError
from pykbroker.sasl.sasl_client import Login
from pykbroker.tools.cluster.client_properties import python_settings, read_properties, settings_of
from pykbroker.tools.cluster.client_security import ClientSecurity, security_of
from pykbroker.tools.cluster.failure import NotServed

LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="al ice" password="a\\"b;c";'


def test_sasl() -> None:
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": LOGIN}
    assert security_of(properties) == ClientSecurity("SASL_PLAINTEXT", login=Login("SCRAM-SHA-512", "al ice", 'a"b;c'))
    assert python_settings(properties, {})[0] == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "al ice",
        "sasl_plain_password": 'a"b;c',
    }


@pytest.mark.parametrize("mechanism", ["GSSAPI", "OAUTHBEARER"])
def test_a_mechanism_that_is_not_served_is_named(mechanism: str) -> None:
    with pytest.raises(NotServed, match=rf"^sasl.mechanism={mechanism} is not supported"):
        security_of({"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism})


@pytest.mark.parametrize("login", ["", "x.PlainLoginModule required;", "PlainLoginModule username=a"])
def test_a_login_that_cannot_be_read(login: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl.jaas.config"):
        security_of({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login})


@pytest.mark.parametrize(
    ("protocol", "key", "value"),
    [
        ("SSL", "ssl.engine.factory.class", "example.Engines"),
        ("SASL_SSL", "ssl.provider", "BCJSSE"),
        ("SSL", "security.providers", "example.Providers"),
        ("SSL", "ssl.trustmanager.algorithm", "TrustAll"),
        ("SSL", "ssl.protocol", "TLSv1"),
        ("SASL_PLAINTEXT", "sasl.client.callback.handler.class", "example.Handler"),
        ("SASL_PLAINTEXT", "sasl.login.callback.handler.class", "example.Handler"),
        ("SASL_SSL", "sasl.login.class", "example.Login"),
        ("SASL_PLAINTEXT", "security.providers", "example.Providers"),
    ],
)
def test_java_code_is_refused_where_it_would_run(protocol: str, key: str, value: str) -> None:
    texts = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": LOGIN, key: value}
    with pytest.raises(NotServed, match=rf"^{key}.* is not supported here"):
        security_of({**texts, "security.protocol": protocol})
    assert security_of({**texts, "security.protocol": "PLAINTEXT"}) == ClientSecurity()
    assert security_of({**texts, "security.protocol": protocol, key: ""}).protocol == protocol


def test_an_unknown_protocol() -> None:
    with pytest.raises(ConfigError, match=r"Invalid value NONE for configuration security.protocol"):
        security_of({"security.protocol": "none"})


def test_the_check_of_host_names_can_be_turned_off() -> None:
    on = security_of({"security.protocol": "SSL"}).tls
    unchecked = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}
    off = security_of(unchecked).tls
    assert on is not None
    assert off is not None
    assert python_settings(unchecked, {})[0]["ssl_check_hostname"] is False
    assert (on.check_hostname, off.check_hostname) == (True, False)
    assert on.verify_mode == off.verify_mode == ssl.CERT_REQUIRED


def test_time_limits_and_the_client_id(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("default.api.timeout.ms = 1500\nrequest.timeout.ms: 700\nclient.id=me\n")
    settings = settings_of(read_properties(str(file)), "a:1,b:2")
    assert (settings.bootstrap, settings.timeout_ms, settings.request_timeout_ms) == (("a:1", "b:2"), 1500, 700)
    assert (settings.security, settings.client_id) == (ClientSecurity(), "me")
    with pytest.raises(ConfigError, match=r"Invalid value x for configuration request.timeout.ms"):
        settings_of({"request.timeout.ms": "x"}, "a:1")


def test_properties_of_a_producer() -> None:
    known: dict[str, Any] = {"acks": -1, "linger_ms": 0, "enable_idempotence": True, "compression_type": None,
                             "send_buffer_bytes": None, "client_id": None}  # fmt: skip
    found, unknown = python_settings(
        {"acks": "all", "linger.ms": "5", "enable.idempotence": "false", "compression.type": "none",
         "send.buffer.bytes": "9", "client.id": "7", "key.serializer": "x", "none.such": "1"},
        known,
    )  # fmt: skip
    assert found == {
        "security_protocol": "PLAINTEXT", "acks": -1, "linger_ms": 5, "enable_idempotence": False,
        "compression_type": None, "send_buffer_bytes": 9, "client_id": "7",
    }  # fmt: skip
    assert unknown == ["none.such"]
    with pytest.raises(ConfigError, match=r"configuration linger\.ms"):
        python_settings({"linger.ms": "x"}, known)
