"""The ssl.* keys of one listener as a value. A key with the listener's prefix has priority over the key without it.

Responsible for Apache Kafka's rules about these keys, and for refusing settings that pykbroker does not support. Not
responsible for reading stores (stores.py), nor for making contexts (contexts.py). Each error is one line without
secrets.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from pykbroker.config.kinds import ConfigError, Value
from pykbroker.config.typed_config import Config

logger = logging.getLogger(__name__)

#: Oldest first.
SERVED_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
#: Versions that Java no longer supports, although its configuration still accepts their names.
_GONE_VERSIONS: Final = frozenset({"SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"})
_STORE_TYPES: Final = frozenset({"JKS", "PKCS12", "PEM"})
#: Keys for which only these values are supported.
SERVED_VALUES: Final = {
    "ssl.protocol": frozenset({"TLS", "TLSv1.2", "TLSv1.3"}),
    "ssl.keymanager.algorithm": frozenset({"SunX509", "NewSunX509", "PKIX"}),
    "ssl.trustmanager.algorithm": frozenset({"PKIX", "X509", "SunX509", "SunPKIX"}),
}


@dataclass(slots=True, frozen=True)
class StoreSettings:
    """The source of keys and certificates: a file, or PEM texts. keyword: `keystore` or `truststore`, for messages."""

    keyword: str
    location: str | None
    password: str | None
    key_password: str | None = None
    key: str | None = None
    certificates: str | None = None


@dataclass(slots=True, frozen=True)
class TlsSettings:
    """The settings of one listener, or of the connections that this node makes to it."""

    listener: str
    #: None if this node has no certificate of its own
    keystore: StoreSettings | None
    truststore: StoreSettings | None
    #: required, requested or none
    client_auth: str
    #: from SERVED_VERSIONS
    versions: tuple[str, ...]
    #: Java's names; empty for the default
    cipher_suites: tuple[str, ...]
    principal_mapping_rules: str
    #: True if a peer's certificate must contain the peer's host name
    checks_host_names: bool
    #: True if SASL authenticates the user, so that the certificate only allows the connection
    is_below_sasl: bool


class _Keys:
    """The keys of one listener."""

    def __init__(self, config: Config, listener: str) -> None:
        self._config = config
        self.prefix = f"listener.name.{listener.lower()}."

    def name(self, key: str) -> str:
        """Return the key as the configuration has it, with or without the prefix."""
        return key if self._config.is_default(self.prefix + key) else self.prefix + key

    def value(self, key: str) -> Value:
        return self._config[self.name(key)]

    def text(self, key: str) -> str | None:
        value = self.value(key)
        assert value is None or isinstance(value, str)
        return value

    def list(self, key: str) -> tuple[str, ...]:
        value = self.value(key)
        assert isinstance(value, tuple)
        return value

    def wrong(self, key: str, message: str) -> ConfigError:
        return ConfigError(f"{self.name(key)}: {message}")


def settings_of(config: Config, listener: str) -> TlsSettings:
    """Return the settings of a listener. Raises ConfigError for settings that are wrong or not supported."""
    keys = _Keys(config, listener)
    for key in ("ssl.engine.factory.class", "ssl.provider"):
        if keys.value(key):
            raise keys.wrong(key, f"{keys.text(key)} cannot be used, because pykbroker uses OpenSSL")
    for key, allowed in SERVED_VALUES.items():
        if keys.value(key) not in allowed:
            raise keys.wrong(key, f"{keys.text(key)} is not served, only {', '.join(sorted(allowed))}")
    identification = (keys.text("ssl.endpoint.identification.algorithm") or "").lower()
    if identification not in ("", "https"):
        raise keys.wrong("ssl.endpoint.identification.algorithm", f"{identification} is not served, only https or none")
    return TlsSettings(
        listener=listener,
        keystore=_keystore(keys),
        truststore=_truststore(keys),
        client_auth=_client_auth(config, keys, listener),
        versions=_versions(keys),
        cipher_suites=keys.list("ssl.cipher.suites"),
        principal_mapping_rules=keys.text("ssl.principal.mapping.rules") or "",
        checks_host_names=identification == "https",
        is_below_sasl=_is_below_sasl(config, listener),
    )


def _client_auth(config: Config, keys: _Keys, listener: str) -> str:
    key = "ssl.client.auth"
    if _is_below_sasl(config, listener) and config.is_default(keys.prefix + key):
        # As in Apache Kafka, a key without the listener's prefix does not apply here, because SASL authenticates the
        # user.
        return "none"
    return str(keys.value(key))


def warn_of_client_auth(config: Config, listener: str) -> None:
    """Log one line if `ssl.client.auth` is set and has no effect (see _client_auth)."""
    key = "ssl.client.auth"
    keys = _Keys(config, listener)
    if _is_below_sasl(config, listener) and keys.name(key) == key and keys.value(key) != "none":
        logger.warning(
            "Listener %s: %s=%s has no effect on SASL_SSL, so clients need no certificate; %s would have one",
            listener,
            key,
            keys.value(key),
            keys.prefix + key,
        )


def _is_below_sasl(config: Config, listener: str) -> bool:
    return config.listeners.protocols.get(listener) == "SASL_SSL"


def _versions(keys: _Keys) -> tuple[str, ...]:
    key = "ssl.enabled.protocols"
    named = keys.list(key) or SERVED_VERSIONS
    unknown = [version for version in named if version not in (*SERVED_VERSIONS, *_GONE_VERSIONS)]
    if unknown:
        raise keys.wrong(key, f"{', '.join(unknown)} is no version of TLS. Use TLSv1.2 or TLSv1.3")
    served = tuple(version for version in SERVED_VERSIONS if version in named)
    if not served:
        raise keys.wrong(key, f"{', '.join(named)} is not safe, so it is not served. Use TLSv1.2 or TLSv1.3")
    gone = [version for version in named if version in _GONE_VERSIONS]
    if gone:
        logger.warning(
            "%s: %s is left out, because it is not safe; Java leaves it out too", keys.name(key), ", ".join(gone)
        )
    return served


def _keystore(keys: _Keys) -> StoreSettings | None:
    kind = _type(keys, "ssl.keystore.type")
    location, password = keys.text("ssl.keystore.location"), keys.text("ssl.keystore.password")
    key, chain = keys.text("ssl.keystore.key"), keys.text("ssl.keystore.certificate.chain")
    if key is None and chain is not None:
        raise keys.wrong("ssl.keystore.certificate.chain", "ssl.keystore.key is not set")
    if key is not None:
        _check_inline(keys, "keystore", "ssl.keystore.key")
        if chain is None:
            raise keys.wrong("ssl.keystore.key", "ssl.keystore.certificate.chain is not set")
    elif kind == "PEM" and location is not None and password is not None:
        raise keys.wrong("ssl.keystore.password", "a PEM key store has none; ssl.key.password is for its key")
    elif location is None and password is not None:
        raise keys.wrong("ssl.keystore.password", "ssl.keystore.location is not set")
    elif location is None:
        return None
    elif kind != "PEM" and password is None:
        raise keys.wrong("ssl.keystore.location", "ssl.keystore.password is not set")
    return StoreSettings("keystore", location, password, keys.text("ssl.key.password"), key, chain)


def _truststore(keys: _Keys) -> StoreSettings | None:
    kind = _type(keys, "ssl.truststore.type")
    location, password = keys.text("ssl.truststore.location"), keys.text("ssl.truststore.password")
    certificates = keys.text("ssl.truststore.certificates")
    if certificates is not None:
        _check_inline(keys, "truststore", "ssl.truststore.certificates")
    elif kind == "PEM" and location is not None and password is not None:
        raise keys.wrong("ssl.truststore.password", "a PEM trust store has none")
    elif location is None and password is not None:
        raise keys.wrong("ssl.truststore.password", "ssl.truststore.location is not set")
    elif location is None:
        return None
    return StoreSettings("truststore", location, password, certificates=certificates)


def _type(keys: _Keys, key: str) -> str:
    """Return the type of a store. As in Apache Kafka, the type decides which other keys are allowed. The content of the
    file decides its format."""
    kind = (keys.text(key) or "").upper()
    if kind not in _STORE_TYPES:
        raise keys.wrong(key, f"{keys.text(key)} is not served, only {', '.join(sorted(_STORE_TYPES))}")
    return kind


def _check_inline(keys: _Keys, store: str, key: str) -> None:
    if _type(keys, f"ssl.{store}.type") != "PEM":
        raise keys.wrong(key, f"texts of PEM need ssl.{store}.type=PEM")
    for other in ("location", "password"):
        if keys.text(f"ssl.{store}.{other}") is not None:
            raise keys.wrong(key, f"ssl.{store}.{other} is set as well")
