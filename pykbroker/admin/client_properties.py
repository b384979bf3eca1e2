"""A Java client's configuration file as kafka-python's settings.

Responsible for the keys that decide how a client reaches a cluster: security, time limits, client.id. A key that asks
for something which is not served is an error that names it; keys without effect on a command line are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pykbroker.admin.asked_cluster import ClusterSettings
from pykbroker.admin.failure import NotServed
from pykbroker.config.kinds import ConfigError
from pykbroker.config.properties import parse_bytes

_JAAS: Final = re.compile(r"^\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\b(.*?);?\s*$", re.S)
_JAAS_OPTION: Final = re.compile(r'([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|\'[^\']*\'|[^\s;]+)')
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def read_properties(path: str) -> dict[str, str]:
    """The pairs of a properties file. Raises OSError, and ConfigError for a line that cannot be read."""
    return parse_bytes(Path(path).read_bytes())


def settings_of(
    properties: Mapping[str, str], bootstrap: str, *, of_controllers: bool = False, patient: bool = True
) -> ClusterSettings:
    """How a cluster is reached. Raises NotServed and ConfigError."""
    client = security_of(properties)
    client["client_id"] = properties.get("client.id", "pykbroker-admin")
    return ClusterSettings(
        bootstrap=bootstrap,
        client=client,
        of_controllers=of_controllers,
        timeout_ms=_number(properties, "default.api.timeout.ms", 60_000),
        request_timeout_ms=_number(properties, "request.timeout.ms", 30_000),
        patient=patient,
    )


#: Java's keys that say nothing to a Python client, or that its own settings say.
_WITHOUT_EFFECT: Final = frozenset(
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
    """A Java producer's or consumer's properties as kafka-python's settings, and the keys that it has none for.

    `known`: kafka-python's settings and their defaults, whose types decide how a text is read.
    """
    settings = security_of(properties)
    unknown = []
    for key, text in properties.items():
        if key.startswith(("ssl.", "sasl.", "security.")) or key in _WITHOUT_EFFECT:
            continue
        name = key.replace(".", "_")
        if name == "compression_type":
            settings[name] = None if text == "none" else text
        elif name not in known:
            unknown.append(key)
        else:
            settings[name] = _read(key, text, known[name])
    return settings | dict(also or {}), unknown


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


def security_of(properties: Mapping[str, str]) -> dict[str, Any]:
    """security.protocol, ssl.* and sasl.* as kafka-python's settings."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"Invalid value {protocol} for configuration security.protocol")
    found: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        found["ssl_context"] = _ssl_context(properties)
        # What the context says is what counts.
        found["ssl_check_hostname"] = bool(_hostname_check(properties))
    if protocol.startswith("SASL"):
        found |= _sasl(properties)
    return found


def _hostname_check(properties: Mapping[str, str]) -> str:
    return properties.get("ssl.endpoint.identification.algorithm", "https").strip()


def _ssl_context(properties: Mapping[str, str]) -> Any:
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = bool(_hostname_check(properties))
    trusted = _pem(properties, "truststore", "ssl.truststore.certificates")
    if trusted is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = bool(_hostname_check(properties))
        context.load_verify_locations(cadata=trusted)
    if "ssl.keystore.location" in properties:
        _pem(properties, "keystore", "")
        path = properties["ssl.keystore.location"]
        context.load_cert_chain(path, password=properties.get("ssl.key.password") or None)
    elif "ssl.keystore.key" in properties:
        _load_inline(context.load_cert_chain, properties)
    return context


def _pem(properties: Mapping[str, str], store: str, inline: str) -> str | None:
    """The text of a PEM store, from its file or from the key that holds it."""
    if inline and inline in properties:
        return properties[inline]
    location = properties.get(f"ssl.{store}.location")
    if location is None:
        return None
    kind = properties.get(f"ssl.{store}.type", "JKS").upper()
    data = Path(location).read_bytes()
    if b"-----BEGIN" not in data:
        raise NotServed(f"ssl.{store}.location: {location} is a {kind} store, and only PEM is supported")
    return data.decode("utf-8", "replace")


def _load_inline(load: Callable[..., None], properties: Mapping[str, str]) -> None:
    """Python's ssl reads a key from a file alone; this one is gone when it is read."""
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".pem") as kept:
        kept.write(properties["ssl.keystore.key"] + "\n" + properties.get("ssl.keystore.certificate.chain", "") + "\n")
        kept.flush()
        load(kept.name, password=properties.get("ssl.key.password") or None)


def _sasl(properties: Mapping[str, str]) -> dict[str, Any]:
    mechanism = properties.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in _MECHANISMS:
        raise NotServed(f"sasl.mechanism={mechanism} is not supported here; {', '.join(_MECHANISMS)} are")
    written = properties.get("sasl.jaas.config", "")
    login = _JAAS.match(written)
    if login is None:
        raise ConfigError('sasl.jaas.config is missing, or is not `module required username="…" password="…";`')
    options = {name: _unquoted(value) for name, value in _JAAS_OPTION.findall(login[3])}
    if "username" not in options or "password" not in options:
        raise ConfigError("sasl.jaas.config names no username and password")
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": options["username"],
        "sasl_plain_password": options["password"],
    }


def _unquoted(value: str) -> str:
    if value[0] == '"':
        return re.sub(r"\\(.)", r"\1", value[1:-1])
    return value[1:-1] if value[0] == "'" else value


def _number(properties: Mapping[str, str], key: str, default: int) -> int:
    text = properties.get(key, "").strip()
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"Invalid value {text} for configuration {key}: Not a number of type INT") from None
