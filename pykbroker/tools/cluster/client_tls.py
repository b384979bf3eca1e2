"""Makes the TLS context of a Java client from its keys ssl.*.

Responsible for a client's certificate and for the checks that it makes of a broker. If a key names a class, a provider,
an algorithm or a version of TLS which is not served, an error names the key. No error contains a secret. Other keys of
Java that have no counterpart here (ssl.secure.random.implementation, *.store.type) have no effect. Stores are PEM,
PKCS #12 or JKS, which their first bytes tell apart. OpenSSL gets keys through memory where the system can do that.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pykbroker.config.kinds import ConfigError
from pykbroker.runtime.secret_files import as_memory_file
from pykbroker.tls.settings import SERVED_VALUES
from pykbroker.tools.cluster.client_security import refuse_classes
from pykbroker.tools.cluster.failure import NotServed

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
#: Keys that name classes of Java for TLS.
_TLS_CLASSES: Final = ("ssl.engine.factory.class", "ssl.provider", "security.providers")


def client_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """Return the context that ssl.* describes. Without a trust store it trusts the system's certificates, as Java does.
    Raises ConfigError, NotServed and OSError."""
    refuse_classes(properties, _TLS_CLASSES)
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
