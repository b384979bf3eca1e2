"""Converts security.protocol, ssl.* and sasl.* of a Java client to kafka-python's settings.

Responsible for a client's credentials and for the checks that it makes of a broker. If a key of a protocol in use names
a class, a provider, an algorithm, a mechanism or a version of TLS which is not served, an error names the key. No error
contains a secret. Other keys of Java that have no counterpart here (ssl.secure.random.implementation, *.store.type)
have no effect. Stores are PEM, PKCS #12 or JKS, which their first bytes tell apart. OpenSSL gets keys through memory
where the system can do that.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pykbroker.config.kinds import ConfigError
from pykbroker.runtime.kafka_opts import jaas_path
from pykbroker.runtime.secret_files import as_memory_file
from pykbroker.tools.cluster.failure import NotServed

_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
#: Keys that name classes of Java for TLS, and those that name classes for SASL.
_TLS_CLASSES: Final = ("ssl.engine.factory.class", "ssl.provider", "security.providers")
_SASL_CLASSES: Final = (
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "security.providers",
)
#: The context of a JAAS file that clients use.
_JAAS_CONTEXT: Final = "KafkaClient"


def security_of(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return kafka-python's settings for security.protocol, ssl.* and sasl.*. Raises ConfigError, NotServed and
    OSError."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"Invalid value {protocol} for configuration security.protocol")
    found: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        context = client_context(properties)
        found["ssl_context"] = context
        # kafka-python's own setting must agree with the context.
        found["ssl_check_hostname"] = context.check_hostname
    if protocol.startswith("SASL"):
        found |= _sasl(properties)
    return found


# -- TLS --------------------------------------------------------------------------------------------------------------


def client_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """Return the context that ssl.* describes. Without a trust store it trusts the system's certificates, as Java does.
    Raises ConfigError, NotServed and OSError."""
    from pykbroker.tls.settings import SERVED_VALUES

    _refuse(properties, _TLS_CLASSES)
    for key, served in SERVED_VALUES.items():
        value = properties.get(key, "").strip()
        if value and value not in served:
            raise NotServed(f"{key}={value} is not supported here; {', '.join(sorted(served))} are")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = bool(properties.get("ssl.endpoint.identification.algorithm", "https").strip())
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    _choose_versions(context, properties)
    trusted = _trusted(properties)
    if trusted is None:
        context.load_default_certs()
    else:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=trusted)
    _load_key(context, properties)
    return context


def _refuse(properties: Mapping[str, str], keys: tuple[str, ...]) -> None:
    for key in keys:
        if properties.get(key, "").strip():
            raise NotServed(f"{key} is not supported here: no Java code runs in this client")


def _choose_versions(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    named = _list(properties, "ssl.enabled.protocols")
    versions = tuple(version for version in _VERSIONS if not named or version in named)
    if not versions:
        raise NotServed(f"ssl.enabled.protocols: {', '.join(named)} is not supported here; {', '.join(_VERSIONS)} are")
    suites = _list(properties, "ssl.cipher.suites")
    if suites:
        from pykbroker.tls.cipher_suites import restrict

        versions = restrict(context, suites, versions)
    context.minimum_version, context.maximum_version = _VERSIONS[versions[0]], _VERSIONS[versions[-1]]


def _list(properties: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(text.strip() for text in properties.get(key, "").split(",") if text.strip())


def _trusted(properties: Mapping[str, str]) -> bytes | None:
    """Return the DER of the trusted certificates, or None if there is no trust store."""
    location, text = properties.get("ssl.truststore.location"), properties.get("ssl.truststore.certificates")
    if location is None and text is None:
        return None
    from pykbroker.tls.stores import read_trusted

    name = f"ssl.truststore.location: {location}" if text is None else "ssl.truststore.certificates"
    data = Path(location or "").read_bytes() if text is None else text.encode()
    return b"".join(read_trusted(data, properties.get("ssl.truststore.password"), name))


def _load_key(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    location, text = properties.get("ssl.keystore.location"), properties.get("ssl.keystore.key")
    if location is None and text is None:
        return
    from pykbroker.tls.stores import StorePasswords, read_key

    if text is not None:
        name = "ssl.keystore.key"
        data = f"{text}\n{properties.get('ssl.keystore.certificate.chain', '')}".encode()
    else:
        name = f"ssl.keystore.location: {location}"
        data = Path(location or "").read_bytes()
    key = read_key(
        data, StorePasswords(properties.get("ssl.keystore.password"), properties.get("ssl.key.password")), name
    )
    try:
        with as_memory_file(key.pem) as path:
            context.load_cert_chain(path)
    except ssl.SSLError as error:
        raise ConfigError(f"{name}: OpenSSL does not take the key and its certificates: {error.reason}") from None
    except OSError as error:
        # Without memfd_create(2), OpenSSL can only read a PEM file itself.
        if text is not None or b"-----BEGIN " not in data:
            raise ConfigError(f"{name}: {error.strerror or error}") from None
        context.load_cert_chain(location or "", password=properties.get("ssl.key.password"))


# -- SASL -------------------------------------------------------------------------------------------------------------


def _sasl(properties: Mapping[str, str]) -> dict[str, Any]:
    _refuse(properties, _SASL_CLASSES)
    mechanism = properties.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in _MECHANISMS:
        raise NotServed(f"sasl.mechanism={mechanism} is not supported here; {', '.join(_MECHANISMS)} are")
    options = _login(properties)
    if "username" not in options or "password" not in options:
        raise ConfigError("sasl.jaas.config names no username and password")
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": options["username"],
        "sasl_plain_password": options["password"],
    }


def _login(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options of the login module in `sasl.jaas.config`, or else in the JAAS file that KAFKA_OPTS names."""
    from pykbroker.sasl.jaas import JaasError, parse_file, parse_line

    written = properties.get("sasl.jaas.config", "")
    try:
        if written.strip():
            return parse_line(written).options
        path = jaas_path()
        if path is not None:
            entries = parse_file(Path(path).read_text()).get(_JAAS_CONTEXT, ())
            if len(entries) == 1:
                return entries[0].options
            raise ConfigError(f"the JAAS file {path} has {len(entries)} login modules for {_JAAS_CONTEXT}, must have 1")
    except JaasError as error:
        raise ConfigError(f"sasl.jaas.config cannot be read: {error}") from None
    raise ConfigError('sasl.jaas.config is missing: `module required username="…" password="…";`')
