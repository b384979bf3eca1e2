"""Makes the `ssl.SSLContext`s for the listeners and the connections of a node from TlsSettings.

Responsible for the proofs that a peer must give. TLS 1.0, TLS 1.1, renegotiation and compression are always off. A
trusted certificate need not be a root. This module also reads the stores. A key without encryption is passed to OpenSSL
only in memory.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Final

from pykbroker.config.kinds import ConfigError
from pykbroker.runtime.secret_files import as_memory_file, read_secret
from pykbroker.tls.cipher_suites import restrict
from pykbroker.tls.settings import StoreSettings, TlsSettings
from pykbroker.tls.stores import OwnKey, StorePasswords, read_key, read_trusted

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {"required": ssl.CERT_REQUIRED, "requested": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}


@dataclass(slots=True, frozen=True)
class Material:
    """The content of a listener's stores."""

    key: OwnKey | None
    #: trusted certificates (DER), or None if there is no trust store
    trusted: tuple[bytes, ...] | None


def read_material(settings: TlsSettings) -> Material:
    """Read the stores. Raises ConfigError if a store cannot be used. The text of the error is one line without
    secrets."""
    key = trusted = None
    if (store := settings.keystore) is not None:
        if store.key is not None:
            data = f"{store.key}\n{store.certificates}".encode(errors="replace")
        else:
            data = _read(store)
        key = read_key(data, StorePasswords(store.password, store.key_password), _name(settings, store))
    if (store := settings.truststore) is not None:
        data = store.certificates.encode(errors="replace") if store.certificates is not None else _read(store)
        trusted = read_trusted(data, store.password, _name(settings, store))
    return Material(key, trusted)


def server_context(settings: TlsSettings, material: Material) -> ssl.SSLContext:
    """Return the context for the connections that a listener accepts."""
    if material.key is None:
        raise ConfigError(f"listener {settings.listener}: TLS needs a certificate: ssl.keystore.location is not set")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _prepare(context, settings, material.key)
    context.verify_mode = _VERIFY[settings.client_auth]
    if settings.client_auth != "none":
        if material.trusted is None:
            raise ConfigError(
                f"listener {settings.listener}: ssl.client.auth={settings.client_auth} needs a trust store: "
                "ssl.truststore.location is not set"
            )
        _trust(context, settings, material.trusted)
        # There are no session tickets, because a ticket could be valid for longer than the certificate. So a client
        # proves its certificate at each connection.
        context.num_tickets = 0
    return context


def client_context(settings: TlsSettings, material: Material) -> ssl.SSLContext:
    """Return the context for the connections that this node makes. Without a trust store it uses the system's
    certificates, as Java does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_host_names
    context.verify_mode = ssl.CERT_REQUIRED
    _prepare(context, settings, material.key)
    if material.trusted is None:
        context.load_default_certs()
    else:
        _trust(context, settings, material.trusted)
    return context


def _prepare(context: ssl.SSLContext, settings: TlsSettings, key: OwnKey | None) -> None:
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    versions = settings.versions
    if settings.cipher_suites:
        versions = restrict(context, settings.cipher_suites, versions)
    context.minimum_version = _VERSIONS[versions[0]]
    context.maximum_version = _VERSIONS[versions[-1]]
    if key is None:
        return
    try:
        with as_memory_file(key.pem) as path:
            context.load_cert_chain(path)
    except ssl.SSLError as error:
        raise ConfigError(
            f"listener {settings.listener}: OpenSSL does not take the key and its certificates: {error.reason or error}"
        ) from None
    except OSError as error:
        raise ConfigError(f"listener {settings.listener}: {error.strerror or error}") from None


def _trust(context: ssl.SSLContext, settings: TlsSettings, trusted: tuple[bytes, ...]) -> None:
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=b"".join(trusted))
    except ssl.SSLError as error:
        raise ConfigError(
            f"listener {settings.listener}: OpenSSL does not take a certificate of the trust store: "
            f"{error.reason or 'it cannot be read'}"
        ) from None


def _read(store: StoreSettings) -> bytes:
    assert store.location is not None
    try:
        return read_secret(store.location)
    except OSError as error:
        raise ConfigError(
            f"ssl.{store.keyword}.location: {store.location} cannot be read: {error.strerror or error}"
        ) from None


def _name(settings: TlsSettings, store: StoreSettings) -> str:
    where = store.location or f"ssl.{store.keyword} as text"
    return f"listener {settings.listener}, {store.keyword} {where}"
