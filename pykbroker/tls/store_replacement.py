"""The check that new stores may replace the stores of a listener, by the rules of Apache Kafka's SslFactory.

Responsible for the verdict. The new certificate must have the same name and all hosts of the old one, unless
`ssl.allow.dn.changes` or `ssl.allow.san.changes` allows a change. A store cannot be added where there was none, and a
key store cannot be removed. On the listener between brokers, old and new stores must trust each other in both
directions, and the first stores must trust themselves. Not responsible for the times at which stores are read, nor for
their use.
"""

from __future__ import annotations

import ssl
from dataclasses import replace
from typing import Final, NamedTuple

from pykbroker.config.kinds import ConfigError
from pykbroker.tls.contexts import Material, client_context, read_material, server_context
from pykbroker.tls.distinguished_names import MalformedName, subject_of
from pykbroker.tls.settings import TlsSettings

_CONFIG_EXCEPTION: Final = "org.apache.kafka.common.config.ConfigException: "
_HANDSHAKE_EXCEPTION: Final = "javax.net.ssl.SSLHandshakeException"


class Stores(NamedTuple):
    """The settings of a listener, and the material that was read with them."""

    settings: TlsSettings
    material: Material


class Allowed(NamedTuple):
    """dn, san: True if the name or the hosts of the certificate may change. trusts_itself: True if old and new stores
    must trust each other."""

    dn: bool
    san: bool
    trusts_itself: bool


def read_stores(settings: TlsSettings) -> Stores:
    """Read the stores of these settings. Raises ConfigError. The text of the error is one line without secrets."""
    return Stores(settings, read_material(settings))


def check_replacement(old: Stores, new: Stores, allowed: Allowed) -> None:
    """Raise ConfigError if the new stores must not be used. The text is Apache Kafka's if it has one."""
    had, has = old.material, new.material
    if had.key is None and has.key is not None:
        raise _refusal("Cannot add SSL keystore to an existing listener for which no keystore was configured.")
    if had.key is not None and has.key is None:
        raise _refusal("Cannot remove the SSL keystore from an existing listener for which a keystore was configured.")
    if had.key is not None and has.key is not None:
        names = {"existing": (had.key.alias, had.key.chain[0]), "new": (has.key.alias, has.key.chain[0])}
        if not allowed.dn:
            _check_names(names)
        if not allowed.san:
            _check_hosts(names)
    if had.trusted is None and has.trusted is not None:
        raise _refusal("Cannot add SSL truststore to an existing listener for which no truststore was configured.")
    if allowed.trusts_itself:
        for server, client in ((old, new), (new, old)):
            if reason := _failed_handshake(server, client):
                raise ConfigError(f"{_HANDSHAKE_EXCEPTION}: old and new stores do not trust each other: {reason}")


def check_itself(stores: Stores) -> None:
    """Raise ConfigError, with Apache Kafka's text, if brokers that use these stores would not trust each other."""
    if reason := _failed_handshake(stores, stores):
        raise ConfigError(
            f"listener {stores.settings.listener}: A client SSLEngine created with the provided settings can't connect "
            f"to a server SSLEngine created with those settings: {reason}"
        )


def _refusal(text: str) -> ConfigError:
    return ConfigError(_CONFIG_EXCEPTION + text)


def _check_names(certificates: dict[str, tuple[str, bytes]]) -> None:
    try:
        names = {which: subject_of(der) for which, (_, der) in certificates.items()}
    except MalformedName as error:
        raise ConfigError(f"the subject of a certificate cannot be read: {error}") from None
    old, new = (" ".join(name.lower().split()) for name in names.values())
    if old != new:
        shown = (f"{which}={{alias={certificates[which][0]}, DN={name}}}" for which, name in names.items())
        raise _refusal(f"Keystore DistinguishedName does not match:  {', '.join(shown)}")


def _check_hosts(certificates: dict[str, tuple[str, bytes]]) -> None:
    hosts = {which: hosts_of(der) for which, (_, der) in certificates.items()}
    if not hosts["existing"] <= hosts["new"]:
        shown = (
            f"{which}={{alias={certificates[which][0]}, "
            f"SAN=[{', '.join(f'[{kind}, {name}]' for kind, name in sorted(found))}]}}"
            for which, found in hosts.items()
        )
        raise _refusal(f"Keystore SubjectAltNames do not match:  {', '.join(shown)}")


def hosts_of(certificate: bytes) -> frozenset[tuple[int, str]]:
    """Return the subject alternative names of a certificate (DER), each as X.509's number of its kind, and the name.
    Raises ConfigError for names that cannot be read."""
    from cryptography import x509

    kinds: dict[type, int] = {
        x509.RFC822Name: 1,
        x509.DNSName: 2,
        x509.DirectoryName: 4,
        x509.UniformResourceIdentifier: 6,
    }
    kinds |= {x509.IPAddress: 7, x509.RegisteredID: 8}
    try:
        extension = x509.load_der_x509_certificate(certificate).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except x509.ExtensionNotFound:
        return frozenset()
    except Exception:  # noqa: BLE001  # cryptography has many types, and no one for all of them
        raise ConfigError("the subject alternative names of a certificate cannot be read") from None
    return frozenset((kinds.get(type(name), 0), _text_of(name.value)) for name in extension.value)


def _text_of(name: object) -> str:
    return name if isinstance(name, str) else str(getattr(name, "dotted_string", name))


def _failed_handshake(server: Stores, client: Stores) -> str | None:
    """Return the reason why a client with the stores `client` cannot connect to the stores `server`, or None if it can.
    The handshake runs in memory. As in Apache Kafka, host names are not compared."""
    accepting = server_context(server.settings, server.material)
    connecting = client_context(replace(client.settings, checks_host_names=False), client.material)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        connecting.wrap_bio(to_client, to_server, server_side=False),
        accepting.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(sides)
    # A handshake takes few flights; more than that means that a side waits for bytes that never come.
    for _ in range(16):
        for side in list(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                reason = getattr(error, "verify_message", "") or error.reason or str(error)
                return str(reason)
            waiting.remove(side)
        if not waiting:
            return None
    return "the handshake does not come to an end"
