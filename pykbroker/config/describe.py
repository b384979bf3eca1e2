"""DescribeConfigs: entries with value, source, synonyms and type, for each kind of resource.

Responsible for the content of an entry, exactly as in Apache Kafka 4.3.1, with its oddities. For example a topic's
`retention.ms` that comes from `log.retention.hours` is shown as a default, because the hours are not the first synonym.
Not responsible for authorization, for the existence of resources, nor for the response message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pykbroker.config.dynamic import DynamicConfigs
from pykbroker.config.group import group_values
from pykbroker.config.key_table import (
    DYNAMIC_ONLY_KEYS,
    GROUP_KEYS,
    GROUP_SYNONYMS,
    STATIC_KEYS,
    TOPIC_KEYS,
    TOPIC_SYNONYMS,
    broker_synonyms,
)
from pykbroker.config.kinds import PASSWORD, READ_ONLY, Key, Required, Value, format_value
from pykbroker.config.topic import resolve_topic
from pykbroker.config.typed_config import Config, find_key, without_listener

# Resource types and config sources, as the protocol numbers them.
RESOURCE_TOPIC: Final = 2
RESOURCE_BROKER: Final = 4
RESOURCE_CLIENT_METRICS: Final = 16
RESOURCE_GROUP: Final = 32

SOURCE_TOPIC: Final = 1
SOURCE_DYNAMIC_BROKER: Final = 2
SOURCE_DYNAMIC_DEFAULT_BROKER: Final = 3
SOURCE_STATIC_BROKER: Final = 4
SOURCE_DEFAULT: Final = 5
SOURCE_BROKER_LOGGER: Final = 6
SOURCE_CLIENT_METRICS: Final = 7
SOURCE_GROUP: Final = 8

TYPE_UNKNOWN: Final = 0
_KEYS_OF: Final = {RESOURCE_TOPIC: TOPIC_KEYS, RESOURCE_GROUP: GROUP_KEYS}


@dataclass(slots=True, frozen=True)
class Synonym:
    name: str
    value: str | None
    source: int


@dataclass(slots=True, frozen=True)
class Entry:
    name: str
    value: str | None
    config_source: int
    read_only: bool
    is_sensitive: bool
    config_type: int
    synonyms: tuple[Synonym, ...]
    key: Key | None

    @property
    def is_default(self) -> bool:
        return self.config_source == SOURCE_DEFAULT

    @property
    def documentation(self) -> str | None:
        """The text of the key. This loads all texts, so call it only if the request wants them."""
        return None if self.key is None else self.key.doc


def named(entries: Sequence[Entry], names: Iterable[str] | None) -> Sequence[Entry]:
    """Return the entries that a client named, or all of them if `names` is None."""
    if names is None:
        return entries
    wanted = frozenset(names)
    return [entry for entry in entries if entry.name in wanted]


def describe_broker(config: Config, dynamic: DynamicConfigs) -> list[Entry]:
    """Return all keys of one broker. `config` is the properties file, without the dynamic layers."""
    current = dynamic.apply(config)
    values: dict[str, str | None] = {
        name: text for name, text in current.overrides().items() if name not in DYNAMIC_ONLY_KEYS
    }
    for layer in (dynamic.cluster, dynamic.broker):
        values.update({name: text for name, text in layer.items() if name in DYNAMIC_ONLY_KEYS})
    for name, key in STATIC_KEYS.items():
        if not key.internal:
            values[name] = None if key.type is PASSWORD else format_value(current[name])
    return [_broker_entry(name, value, _synonyms(name, config, dynamic)) for name, value in values.items()]


def describe_cluster_default(dynamic: DynamicConfigs) -> list[Entry]:
    """Return the dynamic configuration of all brokers: resource BROKER with an empty name."""
    entries = []
    for name, text in dynamic.cluster.items():
        found = [
            Synonym(synonym, None if _sensitive(name) else dynamic.cluster[synonym], SOURCE_DYNAMIC_DEFAULT_BROKER)
            for synonym in _broker_names(name)
            if synonym in dynamic.cluster
        ]
        entries.append(_broker_entry(name, text, _from_first(name, found)))
    return entries


class Inheriting:
    """The entries of topics, or of groups. The values that they inherit from their broker are computed once for all of
    them, because a request may name thousands."""

    def __init__(
        self,
        keys: Mapping[str, Key],
        values: Mapping[str, Value],
        source: int,
        inherited: Mapping[str, tuple[Synonym, ...]],
    ) -> None:
        """`values` and `inherited` are the values and synonyms of a topic or group without a configuration of its own.
        `source` is the config source of a value that it sets itself."""
        self._keys = keys
        self._source = source
        self._inherited = inherited
        self._entries = {
            name: _scoped_entry(key, values[name], False, source, inherited[name]) for name, key in keys.items()
        }

    def of(self, overrides: Mapping[str, str]) -> list[Entry]:
        """Return the entries of a topic or group with these `overrides`."""
        return [
            self._own(key, overrides[name]) if name in overrides else self._entries[name]
            for name, key in self._keys.items()
            if name in overrides or not key.internal
        ]

    def _own(self, key: Key, text: str) -> Entry:
        return _scoped_entry(key, key.parse(text), True, self._source, self._inherited[key.name])


def topics_of(config: Config, dynamic: DynamicConfigs) -> Inheriting:
    inherited = {
        name: _synonyms(TOPIC_SYNONYMS[name][0][0], config, dynamic) if name in TOPIC_SYNONYMS else ()
        for name in TOPIC_KEYS
    }
    return Inheriting(TOPIC_KEYS, resolve_topic(config, dynamic), SOURCE_TOPIC, inherited)


def groups_of(config: Config, dynamic: DynamicConfigs) -> Inheriting:
    inherited = {
        name: _synonyms(GROUP_SYNONYMS[name], config, dynamic)
        if name in GROUP_SYNONYMS
        else (Synonym(name, _default_text(key), SOURCE_DEFAULT),)
        for name, key in GROUP_KEYS.items()
    }
    return Inheriting(GROUP_KEYS, group_values(dynamic.apply(config), {}), SOURCE_GROUP, inherited)


def describe_broker_loggers(levels: Mapping[str, str]) -> list[Entry]:
    """Return an entry for each logger. `levels`: logger name -> its current level in the logging system."""
    return [
        Entry(name, level, SOURCE_BROKER_LOGGER, False, False, TYPE_UNKNOWN, (), None) for name, level in levels.items()
    ]


def _scoped_entry(key: Key, value: Value, overridden: bool, source: int, inherited: tuple[Synonym, ...]) -> Entry:
    text = None if key.type is PASSWORD else format_value(value)
    synonyms = (Synonym(key.name, text, source), *inherited) if overridden else inherited
    return Entry(
        name=key.name,
        value=text,
        config_source=synonyms[0].source if synonyms else SOURCE_DEFAULT,
        read_only=False,
        is_sensitive=key.type is PASSWORD,
        config_type=key.type,
        synonyms=synonyms,
        key=key,
    )


def _broker_entry(name: str, value: str | None, synonyms: tuple[Synonym, ...]) -> Entry:
    key = find_key(name)
    row = STATIC_KEYS.get(name) or DYNAMIC_ONLY_KEYS.get(name)
    sensitive = _sensitive(name)
    return Entry(
        name=name,
        value=None if sensitive else value,
        config_source=synonyms[0].source if synonyms else SOURCE_DEFAULT,
        read_only=row is None or row.dynamic == READ_ONLY,
        is_sensitive=sensitive,
        config_type=TYPE_UNKNOWN if key is None else key.type,
        synonyms=synonyms,
        key=row,
    )


def _synonyms(name: str, config: Config, dynamic: DynamicConfigs) -> tuple[Synonym, ...]:
    """Return an entry for every layer that sets a broker key or one of its synonyms, the strongest layer first."""
    sensitive = _sensitive(name)
    names = _broker_names(name)
    static = config.overrides()
    found: list[Synonym] = []
    for layer, source in (
        (dynamic.broker, SOURCE_DYNAMIC_BROKER),
        (dynamic.cluster, SOURCE_DYNAMIC_DEFAULT_BROKER),
        (static, SOURCE_STATIC_BROKER),
    ):
        found += [Synonym(one, None if sensitive else layer[one], source) for one in names if one in layer]
    for one in names:
        key = STATIC_KEYS.get(one)
        if key is not None and key.default is not None and not isinstance(key.default, Required):
            found.append(Synonym(one, None if sensitive else _default_text(key), SOURCE_DEFAULT))
    return _from_first(name, found)


def _from_first(name: str, found: list[Synonym]) -> tuple[Synonym, ...]:
    """Return the first synonym with this name, and the synonyms after it, as Kafka shows them."""
    for index, synonym in enumerate(found):
        if synonym.name == name:
            return tuple(found[index:])
    return ()


def _broker_names(name: str) -> tuple[str, ...]:
    rest = without_listener(name)
    if rest is None:
        return broker_synonyms(name)
    key = find_key(name)
    return (name, rest if key is None else key.name)


def may_be_secret(resource_type: int, name: str) -> bool:
    """Return True if the value of this key may be a secret: if it is a password, or if the key is unknown."""
    key = find_key(name) if resource_type == RESOURCE_BROKER else _KEYS_OF.get(resource_type, {}).get(name)
    return key is None or key.type is PASSWORD


def _sensitive(name: str) -> bool:
    """Return True for a key of a secret, and for an unknown key, whose value may be a secret."""
    key = find_key(name)
    return key is None or key.type is PASSWORD


def _default_text(key: Key) -> str | None:
    return None if isinstance(key.default, Required) else format_value(key.default)
