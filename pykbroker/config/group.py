"""The effective configuration of a group (KIP-848, KIP-932, KIP-1071), and the check of a group's overrides.

Responsible for the layers (group override > broker key > default) and for the bounds that a broker sets for its groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pykbroker.config.checks import assignors, has_repeated
from pykbroker.config.key_table import GROUP_KEYS, GROUP_SYNONYMS, STATIC_KEYS
from pykbroker.config.kinds import ConfigError, Required, Value
from pykbroker.config.typed_config import Config


def _bounds() -> dict[str, tuple[str | None, str | None]]:
    """Return group key -> the broker keys that set its lower and its upper bound."""
    found: dict[str, tuple[str | None, str | None]] = {}
    for name in GROUP_SYNONYMS:
        kind, _, noun = name.partition(".")
        low, high = f"group.{kind}.min.{noun}", f"group.{kind}.max.{noun}"
        if low in STATIC_KEYS:
            found[name] = (low, high if high in STATIC_KEYS else None)
    for kind in ("standby", "warmup"):
        found[f"streams.num.{kind}.replicas"] = (None, f"group.streams.max.{kind}.replicas")
    return found


BOUNDS: Final = _bounds()
_ASSIGNOR: Final = "streams.assignor.name"
_DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
_TAGS: Final = "streams.rack.aware.assignment.tags"


def group_values(config: Config, overrides: Mapping[str, str]) -> dict[str, Value]:
    """Return every group key: the group's value, else the broker's, else the default. The bounds are not applied."""
    values: dict[str, Value] = {}
    for name, key in GROUP_KEYS.items():
        if name in overrides:
            values[name] = key.parse(overrides[name])
        elif name == _ASSIGNOR:
            values[name] = assignors(config, GROUP_SYNONYMS[name])[0]
        elif name in GROUP_SYNONYMS:
            values[name] = config[GROUP_SYNONYMS[name]]
        else:
            assert not isinstance(key.default, Required)
            values[name] = key.default
    return values


def resolve_group(config: Config, overrides: Mapping[str, str] | None = None) -> dict[str, Value]:
    """Return the values that a coordinator uses. An override outside its bounds is replaced by the nearest bound,
    because a bound may be tightened after the override was set."""
    values = group_values(config, overrides or {})
    for name in overrides or {}:
        value = values.get(name)
        low, high = BOUNDS.get(name, (None, None))
        if isinstance(value, int):
            if low is not None:
                value = max(value, config.int(low))
            if high is not None:
                value = min(value, config.int(high))
            values[name] = value
    return values


def validate_group_overrides(config: Config, overrides: Mapping[str, str | None]) -> None:
    """Raise ConfigError if a group must not have these overrides (all of them, not the difference)."""
    missing = [name for name, text in overrides.items() if text is None]
    if missing:
        raise ConfigError(f"Null value not supported for group configs: {','.join(missing)}")
    for name in overrides:
        if name not in GROUP_KEYS:
            raise ConfigError(f"Unknown group config name: {name}")
    values = group_values(config, {name: text for name, text in overrides.items() if text is not None})
    if overrides.get(_TAGS) is not None and has_repeated(overrides[_TAGS] or ""):
        raise ConfigError(f"{_TAGS} must not contain duplicate tag keys.")
    if _ASSIGNOR in overrides and values[_ASSIGNOR] not in assignors(config, GROUP_SYNONYMS[_ASSIGNOR]):
        raise ConfigError(f"{_ASSIGNOR} '{values[_ASSIGNOR]}' is not one of the assignors of this broker.")
    if str(values[_DEAD_LETTERS]).startswith("__"):
        raise ConfigError(f"{_DEAD_LETTERS}: DLQ topic name must not start with '__'")
    for name, (low, high) in BOUNDS.items():
        if name not in overrides:
            continue
        value = _int(values, name)
        if low is not None and value < config.int(low):
            raise ConfigError(f"{name} ({value}) must be greater than or equal to {low} ({config.int(low)})")
        if high is not None and value > config.int(high):
            raise ConfigError(f"{name} ({value}) must be less than or equal to {high} ({config.int(high)})")
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if _int(values, session) <= _int(values, heartbeat):
            raise ConfigError(
                f"{session} ({_int(values, session)}) must be greater than {heartbeat} ({_int(values, heartbeat)})"
            )


def _int(values: Mapping[str, Value], name: str) -> int:
    value = values[name]
    assert isinstance(value, int), f"{name} is not a number"
    return value
