"""Reads security.protocol and sasl.* of a Java client, and ssl.* with client_tls.py.

Responsible for the user of a client, and for the protocols and mechanisms that are served. If a key of SASL names a
class, a provider or a mechanism which is not served, an error names the key. No error contains a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pykbroker.config.kinds import ConfigError
from pykbroker.tools.cluster.failure import NotServed

if TYPE_CHECKING:
    import ssl

    from pykbroker.sasl.sasl_client import Login

_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
#: Keys that name classes of Java for SASL.
_SASL_CLASSES: Final = (
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "security.providers",
)
#: The context of a JAAS file that clients use.
_JAAS_CONTEXT: Final = "KafkaClient"


@dataclass(slots=True, frozen=True)
class ClientSecurity:
    """The protection of a client's connections, and the user as which it authenticates."""

    protocol: str = "PLAINTEXT"
    #: None without TLS
    tls: ssl.SSLContext | None = None
    #: None without SASL
    login: Login | None = None


def security_of(properties: Mapping[str, str]) -> ClientSecurity:
    """Read security.protocol, ssl.* and sasl.*. Keys of a protocol that is not in use are ignored. Raises ConfigError,
    NotServed and OSError."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"Invalid value {protocol} for configuration security.protocol")
    tls = None
    if protocol.endswith("SSL"):
        from pykbroker.tools.cluster.client_tls import client_context

        tls = client_context(properties)
    return ClientSecurity(protocol, tls, _login(properties) if protocol.startswith("SASL") else None)


def refuse_classes(properties: Mapping[str, str], keys: tuple[str, ...]) -> None:
    """Raise NotServed if one of the keys names a class."""
    for key in keys:
        if properties.get(key, "").strip():
            raise NotServed(f"{key} is not supported here: no Java code runs in this client")


def _login(properties: Mapping[str, str]) -> Login:
    from pykbroker.sasl.sasl_client import Login

    refuse_classes(properties, _SASL_CLASSES)
    mechanism = properties.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in _MECHANISMS:
        raise NotServed(f"sasl.mechanism={mechanism} is not supported here; {', '.join(_MECHANISMS)} are")
    options = _jaas_options(properties)
    if "username" not in options or "password" not in options:
        raise ConfigError("sasl.jaas.config names no username and password")
    return Login(mechanism, options["username"], options["password"])


def _jaas_options(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options of the login module in `sasl.jaas.config`, or else in the JAAS file that KAFKA_OPTS names."""
    from pykbroker.runtime.kafka_opts import jaas_path
    from pykbroker.sasl.jaas import JaasError, parse_file, parse_line

    written = properties.get("sasl.jaas.config", "")
    try:
        if written.strip():
            return parse_line(written).options
        path = jaas_path()
        if path is not None:
            with open(path) as file:
                text = file.read()
            entries = parse_file(text).get(_JAAS_CONTEXT, ())
            if len(entries) == 1:
                return entries[0].options
            raise ConfigError(f"the JAAS file {path} has {len(entries)} login modules for {_JAAS_CONTEXT}, must have 1")
    except JaasError as error:
        raise ConfigError(f"sasl.jaas.config cannot be read: {error}") from None
    raise ConfigError('sasl.jaas.config is missing: `module required username="…" password="…";`')
