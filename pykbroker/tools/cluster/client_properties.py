"""Converts a Java client's configuration file to the settings of a cluster, or of kafka-python's clients.

Responsible for the keys that decide how a client reaches a cluster: time limits, client.id, and, with
client_security.py, the keys of TLS and SASL. Keys that have no effect in a command are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pykbroker.config.kinds import ConfigError
from pykbroker.config.properties import parse_bytes
from pykbroker.tools.cluster.asked_cluster import ClusterSettings
from pykbroker.tools.cluster.bootstrap_list import bootstrap_addresses
from pykbroker.tools.cluster.client_security import ClientSecurity, security_of


def read_properties(path: str | None) -> dict[str, str]:
    """Return the pairs of a properties file, or none if an option named no file. Raises OSError, and ConfigError for a
    line that cannot be read."""
    if not path:
        return {}
    with open(path, "rb") as file:
        return parse_bytes(file.read())


def settings_of(
    properties: Mapping[str, str], bootstrap: str, *, of_controllers: bool = False, patient: bool = True
) -> ClusterSettings:
    """Return the settings that reach a cluster, from a client's properties. Raises NotServed, and ConfigError, also for
    an address in `bootstrap` that is not HOST:PORT."""
    addresses = bootstrap_addresses(bootstrap, "bootstrap.controllers" if of_controllers else "bootstrap.servers")
    return ClusterSettings(
        bootstrap=tuple(str(address) for address in addresses),
        security=security_of(properties),
        client_id=properties.get("client.id", "pykbroker-admin"),
        of_controllers=of_controllers,
        timeout_ms=number_of(properties, "default.api.timeout.ms", 60_000),
        request_timeout_ms=number_of(properties, "request.timeout.ms", 30_000),
        patient=patient,
    )


#: Java's keys that have no meaning for a Python client, or whose values the tools set themselves.
WITHOUT_EFFECT: Final = frozenset(
    {
        "bootstrap.servers",
        "key.serializer",
        "value.serializer",
        "key.deserializer",
        "value.deserializer",
        "interceptor.classes",
        "metrics.recording.level",
        "metrics.num.samples",
        "metrics.sample.window.ms",
        "metric.reporters",
        "auto.include.jmx.reporter",
        "enable.metrics.push",
        "default.api.timeout.ms",
        "group.protocol",
        "client.rack",
    }
)


def python_settings(
    properties: Mapping[str, str], known: Mapping[str, Any], also: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Return a Java producer's or consumer's properties as kafka-python's settings, and the keys that kafka-python
    lacks.

    `known`: kafka-python's settings and their defaults, whose types decide how a text is read.
    """
    settings = _security_settings(security_of(properties))
    unknown = []
    for key, text in properties.items():
        if key.startswith(("ssl.", "sasl.", "security.")) or key in WITHOUT_EFFECT:
            continue
        name = key.replace(".", "_")
        if name == "compression_type":
            settings[name] = None if text == "none" else text
        elif name not in known:
            unknown.append(key)
        else:
            settings[name] = _read(key, text, known[name])
    return settings | dict(also or {}), unknown


def _security_settings(security: ClientSecurity) -> dict[str, Any]:
    settings: dict[str, Any] = {"security_protocol": security.protocol}
    if security.tls is not None:
        settings["ssl_context"] = security.tls
        # kafka-python's own setting must agree with the context.
        settings["ssl_check_hostname"] = security.tls.check_hostname
    if security.login is not None:
        settings["sasl_mechanism"] = security.login.mechanism
        settings["sasl_plain_username"] = security.login.user
        settings["sasl_plain_password"] = security.login.password
    return settings


def _read(key: str, text: str, default: Any) -> Any:
    if key == "acks":
        acks = {"all": -1, "-1": -1, "0": 0, "1": 1}
        if text not in acks:
            raise ConfigError(f"Invalid value {text} for configuration acks: String must be one of: {', '.join(acks)}")
        return acks[text]
    if isinstance(default, bool):
        return text.strip().lower() == "true"
    if isinstance(default, int | float) or key.endswith((".bytes", ".ms")):
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"Invalid value {text} for configuration {key}: Not a number of type INT") from None
    return text


def number_of(properties: Mapping[str, str], key: str, default: int, *, least: int = 0) -> int:
    """Return the number of a key, or `default` without one. Raises ConfigError, also for a number below `least`."""
    text = properties.get(key, "").strip()
    if not text:
        return default
    try:
        number = int(text)
    except ValueError:
        raise ConfigError(f"Invalid value {text} for configuration {key}: Not a number of type INT") from None
    if number < least:
        raise ConfigError(f"Invalid value {text} for configuration {key}: Value must be at least {least}")
    return number
