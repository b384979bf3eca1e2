"""config.providers: values that a properties file takes from other places, `${provider:path:key}` (KIP-297, KIP-421,
KIP-887).

Responsible for the three providers of Apache Kafka: environment variables, properties files, and directories with a
file for each key. Not responsible for the choice of configurations that may have variables: start_up.py resolves the
texts of a start, and no other configuration is resolved. The table in protection.py refuses every other provider.

* A text is replaced once: the value of a provider is not searched for variables again.
* A variable without a value stays as it is written, as in Apache Kafka. In a key for a secret this stops the start
  instead, because the text of a variable would be a password that anyone can guess.
* Errors name keys, paths and variables, never the value of a provider.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pykbroker.config.kinds import PASSWORD, ConfigError
from pykbroker.config.properties import parse
from pykbroker.config.provider_names import CLASSES, KEY, VARIABLE, Provider, class_key, provider_names
from pykbroker.config.typed_config import find_key


class Sources(NamedTuple):
    """The places where providers look for values."""

    environment: Mapping[str, str]
    #: returns the bytes of a file, or None if it is not a regular file. Raises OSError.
    read: Callable[[str], bytes | None]
    exists: Callable[[str], bool]


#: Takes a path, which may be empty, and a key; returns the value, or None if the provider has no value for them.
Lookup = Callable[[str, str], str | None]


@dataclass(slots=True, frozen=True)
class _Allowed:
    """allowed.paths: the paths that a provider may read; None for any."""

    paths: tuple[str, ...] | None

    @classmethod
    def of(cls, text: str, name: str, exists: Callable[[str], bool]) -> _Allowed:
        if not text:
            return cls(None)
        paths = tuple(os.path.normpath(each) for each in text.split(","))
        for path in paths:
            if not os.path.isabs(path):
                raise ConfigError(f"{name}: Path {path} is not absolute")
            if not exists(path):
                raise ConfigError(f"{name}: Path {path} does not exist")
        return cls(paths)

    def path(self, path: str) -> str | None:
        if self.paths is None:
            return path
        path = os.path.normpath(path)
        return path if any(path == each or path.startswith(each.rstrip("/") + "/") for each in self.paths) else None


def resolved(texts: Mapping[str, str], sources: Sources) -> dict[str, str]:
    """Return the texts with the values of their providers. Raises ConfigError, with one line without secrets, if a
    value cannot be read."""
    lookups = {name: lookup for name in provider_names(texts) if (lookup := _lookup(texts, name, sources)) is not None}
    if not lookups:
        return dict(texts)
    return {key: _replaced(key, text, lookups) for key, text in texts.items()}


def _replaced(key: str, text: str, lookups: Mapping[str, Lookup]) -> str:
    row = find_key(key)

    def one(match: re.Match[str]) -> str:
        provider, path, name = match[1], match[3] or "", match[4]
        if provider not in lookups:
            return match[0]
        value = lookups[provider](path, name)
        if value is None and row is not None and row.type is PASSWORD:
            # In the middle of a text, the text of a variable may be a part of a password.
            shown = match[0] if match[0] == text else "a variable in it"
            raise ConfigError(f"{key}: the provider {provider} has no value for {shown}")
        return match[0] if value is None else value

    return VARIABLE.sub(one, text)


def _lookup(texts: Mapping[str, str], name: str, sources: Sources) -> Lookup | None:
    """Return the lookup of a provider, or None for a provider of a class that is not served (protection.py)."""
    prefix = f"{KEY}.{name}.param."
    match CLASSES.get(texts.get(class_key(name), "")):
        case Provider.ENVIRONMENT:
            return _environment(texts.get(pattern := f"{prefix}allowlist.pattern", ".*"), pattern, sources)
        case Provider.FILE:
            key = f"{prefix}allowed.paths"
            return _files(_Allowed.of(texts.get(key, ""), key, sources.exists), sources)
        case Provider.DIRECTORY:
            key = f"{prefix}allowed.paths"
            return _directories(_Allowed.of(texts.get(key, ""), key, sources.exists), sources)
    return None


def _environment(pattern: str, key: str, sources: Sources) -> Lookup:
    try:
        allowed = re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"Invalid value {pattern} for configuration {key}: {error}") from None

    def look_up(path: str, name: str) -> str | None:
        if path:
            raise ConfigError(f"Path is not supported for EnvVarConfigProvider, invalid value '{path}'")
        return sources.environment.get(name) if allowed.fullmatch(name) else None

    return look_up


def _files(allowed: _Allowed, sources: Sources) -> Lookup:
    read: dict[str, dict[str, str]] = {}

    def look_up(path: str, name: str) -> str | None:
        file = allowed.path(path) if path else None
        if file is None:
            return None
        if file not in read:
            data = _read(file, sources)
            if data is None:
                raise ConfigError(f"Could not read properties from file {path}: it is no regular file")
            read[file] = _parsed(path, data)
        return read[file].get(name)

    return look_up


def _parsed(path: str, data: bytes) -> dict[str, str]:
    try:
        return parse(data.decode())
    except UnicodeDecodeError:
        raise ConfigError(f"Could not read properties from file {path}: it is not UTF-8") from None
    except ConfigError as error:
        raise ConfigError(f"Could not read properties from file {path}: {error}") from None


def _directories(allowed: _Allowed, sources: Sources) -> Lookup:
    def look_up(path: str, name: str) -> str | None:
        folder = allowed.path(path) if path else None
        # A key is the name of a file in the folder, and must not lead out of it.
        if folder is None or name in ("", ".", "..") or "/" in name or "\0" in name:
            return None
        data = _read(os.path.join(folder, name), sources)
        # Bytes that are not UTF-8 are replaced, as in Java.
        return None if data is None else data.decode(errors="replace")

    return look_up


def _read(path: str, sources: Sources) -> bytes | None:
    try:
        return sources.read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no path"
        raise ConfigError(f"Could not read file {path}: {reason}") from None
