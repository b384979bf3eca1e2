"""The SASL configuration of a node, per listener: mechanisms, users of PLAIN, the life of a session.

Responsible for Apache Kafka's rules of prefixes (`listener.name.<listener>.[<mechanism>.]<key>`), for JAAS lines and
the JAAS file. A mistake raises ConfigError, which stops the start. The text of the error has no part of a JAAS text.
Not responsible for whether a change may set these keys (config/protection.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pykbroker.config.key_table import STATIC_KEYS
from pykbroker.config.kinds import ConfigError, Value
from pykbroker.config.typed_config import Config
from pykbroker.runtime.kafka_opts import jaas_path, read_jaas_file
from pykbroker.sasl.jaas import JaasEntry, JaasError, parse_file, parse_line
from pykbroker.sasl.plain_server import PLAIN, PlainUsers
from pykbroker.sasl.sasl_client import Login
from pykbroker.sasl.scram import MECHANISMS as SCRAM_MECHANISMS

#: mechanism -> its login module, the only one that is accepted for it
LOGIN_MODULES: Final = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    **dict.fromkeys(SCRAM_MECHANISMS, "org.apache.kafka.common.security.scram.ScramLoginModule"),
}
_JAAS: Final = "sasl.jaas.config"
_REAUTH: Final = "connections.max.reauth.ms"
_CONTEXT: Final = "KafkaServer"
_FILE_KEY: Final = "java.security.auth.login.config in KAFKA_OPTS"


@dataclass(slots=True, frozen=True)
class MechanismSettings:
    """`users`: the users of PLAIN; None for other mechanisms. `max_reauth_ms`: 0 means a session without a limit."""

    users: PlainUsers | None
    max_reauth_ms: int


@dataclass(slots=True, frozen=True)
class SaslSettings:
    """One SASL listener of this node: mechanism -> its settings, in the order of the configuration."""

    mechanisms: Mapping[str, MechanismSettings]
    receive_bytes: int


@dataclass(slots=True, frozen=True)
class JaasFile:
    """The contexts of the JAAS file. `path` is None if there is no file."""

    path: str | None = None
    contexts: Mapping[str, tuple[JaasEntry, ...]] | None = None


def jaas_file() -> JaasFile:
    """Return the file that KAFKA_OPTS names. Raises ConfigError if it cannot be read."""
    path = jaas_path()
    if path is None:
        return JaasFile()
    try:
        return JaasFile(path, parse_file(read_jaas_file(path).decode()))
    except OSError as error:
        reason = error.strerror or "it cannot be read"
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    except JaasError as error:
        reason = str(error)
    raise ConfigError(f"{_FILE_KEY}: {path}: {reason}")


def sasl_listeners(config: Config, file: JaasFile | None = None) -> dict[str, SaslSettings]:
    """Return listener name -> SASL settings, for each SASL listener that this node opens. Raises ConfigError."""
    names = [point.listener_name for point in config.listeners.all if point.security_protocol.startswith("SASL_")]
    if not names:
        return {}
    file = jaas_file() if file is None else file
    return {name: _listener(config, name, file) for name in names}


def _listener(config: Config, name: str, file: JaasFile) -> SaslSettings:
    enabled = _of(config, name, "sasl.enabled.mechanisms")
    assert isinstance(enabled, tuple)
    if not enabled:
        raise ConfigError(f"Invalid value for configuration sasl.enabled.mechanisms: listener {name} has no mechanism")
    receive_bytes = _of(config, name, "sasl.server.max.receive.size")
    assert isinstance(receive_bytes, int)
    return SaslSettings({one: _mechanism(config, name, one, file) for one in enabled}, receive_bytes)


def _mechanism(config: Config, listener: str, mechanism: str, file: JaasFile) -> MechanismSettings:
    entry = jaas_entry(config, listener, mechanism, file)
    own = _full(listener, mechanism, _REAUTH)
    text = config.raw(own)
    lasts_ms = _of(config, listener, _REAUTH) if text is None else STATIC_KEYS[_REAUTH].parse(text)
    assert isinstance(lasts_ms, int)
    return MechanismSettings(PlainUsers(entry.options) if mechanism == PLAIN else None, max(0, lasts_ms))


def jaas_entry(config: Config, listener: str, mechanism: str, file: JaasFile) -> JaasEntry:
    """Return the entry of a mechanism, from its own key or from the JAAS file. Raises ConfigError."""
    module = LOGIN_MODULES.get(mechanism)
    if module is None:
        raise ConfigError(
            f"Invalid value {mechanism} for configuration sasl.enabled.mechanisms: listener {listener} is served with "
            f"{', '.join(LOGIN_MODULES)}"
        )
    key = _full(listener, mechanism, _JAAS)
    text = config.raw(key)
    line = None if text is None else STATIC_KEYS[_JAAS].parse(text)
    if line is not None:
        try:
            entries: tuple[JaasEntry, ...] = (parse_line(str(line)),)
        except JaasError as error:
            raise ConfigError(f"Invalid value [hidden] for configuration {key}: {error}") from None
        where = f"Invalid value [hidden] for configuration {key}: it"
    else:
        own = f"{listener.lower()}.{_CONTEXT}"
        contexts = file.contexts or {}
        found = contexts.get(own, contexts.get(_CONTEXT))
        if found is None:
            raise ConfigError(
                f"Could not find a '{_CONTEXT}' or '{own}' entry in the JAAS configuration, and {key} is not set. "
                f"{_FILE_KEY} is {file.path or 'not set'}"
            )
        entries = found
        where = f"{_FILE_KEY}: {file.path}"
    unknown = [entry for entry in entries if entry.module not in LOGIN_MODULES.values()]
    entry = next((entry for entry in entries if entry.module == module), None)
    if unknown or entry is None:
        raise ConfigError(f"{where} must name {module} for {mechanism}, and no login module that is not served")
    return entry


def login_of(config: Config, listener: str, mechanism_key: str, file: JaasFile | None = None) -> Login:
    """Return the user and password with which this node logs in to the listener of other nodes. Raises ConfigError."""
    mechanism = config.str(mechanism_key)
    if mechanism not in LOGIN_MODULES:
        raise ConfigError(
            f"Invalid value {mechanism} for configuration {mechanism_key}: served are {', '.join(LOGIN_MODULES)}"
        )
    entry = jaas_entry(config, listener, mechanism, jaas_file() if file is None else file)
    user, password = entry.options.get("username"), entry.options.get("password")
    if user is None or password is None:
        raise ConfigError(
            f"Invalid value [hidden] for configuration {_full(listener, mechanism, _JAAS)}: it has no username and "
            f"password, with which this node logs in to others ({mechanism_key}={mechanism})"
        )
    return Login(mechanism, user, password)


def _full(listener: str, mechanism: str, key: str) -> str:
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.{key}"


def _of(config: Config, listener: str, key: str) -> Value:
    # A key with the prefix of a listener has no row in the table, so its text is parsed here with the row of its base.
    text = config.raw(f"listener.name.{listener.lower()}.{key}")
    return config[key] if text is None else STATIC_KEYS[key].parse(text)
