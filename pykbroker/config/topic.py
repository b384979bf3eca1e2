"""The effective configuration of a topic, and the check of a topic's overrides.

Responsible for the order topic override > dynamic broker > dynamic default > properties file > default (the middle
three are one Config: `DynamicConfigs.apply`), and for Apache Kafka's rules between topic keys. The log layer takes the
result as its LogConfig; this module does not depend on the meaning of a key.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.config.checks import check_local_retention
from pykbroker.config.dynamic import DynamicConfigs
from pykbroker.config.key_table import TOPIC_KEYS, TOPIC_SYNONYMS
from pykbroker.config.kinds import ConfigError, Required, Value, format_value
from pykbroker.config.typed_config import Config


def topic_defaults(config: Config) -> dict[str, Value]:
    """Return every topic key with its value for a topic without overrides, on a broker with this configuration."""
    values: dict[str, Value] = {}
    for name, key in TOPIC_KEYS.items():
        synonyms = TOPIC_SYNONYMS.get(name)
        if synonyms is None:
            assert not isinstance(key.default, Required)
            values[name] = key.default
        elif len(synonyms) == 1:
            values[name] = config[synonyms[0][0]]
        else:
            values[name] = config.millis(synonyms[0][0])
    return values


def resolve_topic(
    config: Config, dynamic: DynamicConfigs | None = None, overrides: Mapping[str, str] | None = None
) -> dict[str, Value]:
    """Return every topic key with its typed value in effect. If `dynamic` is None, `config` already has the dynamic
    layers.

    Overrides were validated when they were made; an unknown name is ignored, as in Apache Kafka.
    """
    values = topic_defaults(config if dynamic is None else dynamic.apply(config))
    for name, text in (overrides or {}).items():
        key = TOPIC_KEYS.get(name)
        if key is not None:
            values[name] = key.parse(text)
    return values


def validate_topic_overrides(
    overrides: Mapping[str, str | None], config: Config | None = None, existing: Mapping[str, str] | None = None
) -> None:
    """Raise ConfigError if a topic must not have these overrides (all of them, not the difference). `existing`: its
    current overrides.

    With `config` (dynamic layers applied) the rules between keys use the broker's values too; without it, the defaults.
    """
    missing = [name for name, text in overrides.items() if text is None]
    if missing:
        raise ConfigError(f"Null value not supported for topic configs: {','.join(missing)}")
    for name in overrides:
        if name not in TOPIC_KEYS:
            raise ConfigError(f"Unknown topic config name: {name}")
    given = {name: text for name, text in overrides.items() if text is not None}
    if config is None:
        values: dict[str, Value] = {name: _default(name) for name in TOPIC_KEYS}
        values.update({name: TOPIC_KEYS[name].parse(text) for name, text in given.items()})
    else:
        values = resolve_topic(config, None, given)
    least, most = _int(values, "min.compaction.lag.ms"), _int(values, "max.compaction.lag.ms")
    if least > most:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
        )
    if config is not None:
        _check_remote_storage(values, config, existing or {})


def _check_remote_storage(values: Mapping[str, Value], config: Config, existing: Mapping[str, str]) -> None:
    if not values["remote.storage.enable"]:
        was_remote = existing.get("remote.storage.enable", "false").strip().lower() == "true"
        if was_remote and not values["remote.log.delete.on.disable"]:
            raise ConfigError(
                "It is invalid to disable remote storage without deleting remote data. To keep the remote data "
                "read-only, set `remote.storage.enable=true,remote.log.copy.disable=true`; to delete it, set "
                "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
            )
        return
    if not config.bool("remote.log.storage.system.enable"):
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
            "storage: remote.storage.enable can only be true when remote.log.storage.system.enable is."
        )
    if values["cleanup.policy"] not in ((), ("delete",)):
        raise ConfigError(
            f"Invalid value {format_value(values['cleanup.policy'])} for configuration cleanup.policy: Remote log "
            f"storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list."
        )
    names = ("retention.bytes", "local.retention.bytes", "retention.ms", "local.retention.ms")
    check_local_retention({name: _int(values, name) for name in names})
    if values["remote.log.copy.disable"]:
        for unit in ("bytes", "ms"):
            local, total = _int(values, f"local.retention.{unit}"), _int(values, f"retention.{unit}")
            if local not in (-2, total):
                raise ConfigError(
                    f"When `remote.log.copy.disable` is set to true, `local.retention.{unit}` ({local}) and "
                    f"`retention.{unit}` ({total}) must be identical: no more segments are copied to remote storage."
                )


def _default(name: str) -> Value:
    default = TOPIC_KEYS[name].default
    assert not isinstance(default, Required)
    return default


def _int(values: Mapping[str, Value], name: str) -> int:
    value = values[name]
    assert isinstance(value, int), f"{name} is not a number"
    return value
