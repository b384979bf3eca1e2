"""`Config`: the typed, immutable configuration of one node, from the pairs of a properties file.

Responsible for single values (by the table), unknown keys, synonyms of `node.id`, and values that derive from several
keys: voters, directories. Not responsible for the rules between keys (checks.py): load.py makes a Config that they
have accepted, and gives it its roles and its listeners.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping
from typing import Final

from pykbroker.config.key_table import DYNAMIC_ONLY_KEYS, STATIC_KEYS, broker_synonyms, names_with
from pykbroker.config.kinds import PASSWORD, PER_MECHANISM, ConfigError, Key, Required, Value, parse_voter
from pykbroker.config.listeners import LISTENER_PREFIX, ListenerConfig
from pykbroker.config.nearest import did_you_mean
from pykbroker.config.provider_names import left_over

_LONGEST_KEY: Final = max(map(len, STATIC_KEYS))
# Keys with these prefixes are passed to a plugin, so they are not reported as unknown.
_PLUGIN_PREFIXES: Final = (
    "rlmm.config.",
    "rsm.config.",
    "config.providers.",
    "metrics.context.",
    "metrics.jmx.",
    "plugin.",
)
#: Keys that are passed to the configured authorizer (authorization.py).
_AUTHORIZER_KEYS: Final = ("super.users", "allow.everyone.if.no.acl.found")
_UNIT_MS: Final = {"minutes": 60_000, "hours": 3_600_000}
# Keys that may be set per SASL mechanism: listener.name.<listener>.<mechanism>.<key>
_PER_MECHANISM: Final = names_with(PER_MECHANISM)


def without_listener(name: str) -> str | None:
    """Return `<key>` of `listener.name.<listener>.<key>`, or None for a name without that prefix. The name of a
    listener may have dots: it ends where a known key begins, or at the first dot if none does."""
    first_dot = name.find(".", len(LISTENER_PREFIX))
    if not name.startswith(LISTENER_PREFIX) or not 0 < first_dot < len(name) - 1 or "\n" in name:
        return None
    # A client may send a name of any length, so only its end is searched, as far as the longest key can reach.
    for index in range(max(first_dot, len(name) - _LONGEST_KEY - 1), len(name)):
        if name[index] == "." and name[index + 1 :] in STATIC_KEYS:
            return name[index + 1 :]
    return name[first_dot + 1 :]


def find_key(name: str) -> Key | None:
    """Return the row for a name in a properties file or a dynamic configuration, with or without a listener prefix."""
    key = STATIC_KEYS.get(name) or DYNAMIC_ONLY_KEYS.get(name)
    if key is None and (rest := without_listener(name)) is not None:
        key = STATIC_KEYS.get(rest)
        if key is None:
            key = next((STATIC_KEYS[base] for base in _PER_MECHANISM if rest.endswith("." + base)), None)
    return key


def is_known(name: str) -> bool:
    """Return True if a properties file may have the name: the key of a node, or a key for a plugin."""
    return (find_key(name) is not None and name not in DYNAMIC_ONLY_KEYS) or name.startswith(_PLUGIN_PREFIXES)


class Config:
    """Typed values by key name. Immutable; `load.with_overrides` returns another Config."""

    __slots__ = ("_raw", "_unknown", "_values", "_warnings", "listeners", "roles")

    _raw: Mapping[builtins.str, builtins.str]
    _values: Mapping[builtins.str, Value]
    listeners: ListenerConfig
    roles: frozenset[builtins.str]
    _unknown: tuple[builtins.str, ...]
    _warnings: tuple[builtins.str, ...]

    def __init__(self, raw: Mapping[builtins.str, builtins.str]) -> None:
        """Prefer `load`; this constructor does not check the rules between keys."""
        with_ids = dict(raw)
        if "node.id" in raw and "broker.id" not in raw:
            with_ids["broker.id"] = raw["node.id"]
        elif "broker.id" in raw and "node.id" not in raw:
            with_ids["node.id"] = raw["broker.id"]
        values: dict[builtins.str, Value] = {}
        unknown: list[builtins.str] = []
        warnings: list[builtins.str] = []
        for name, text in with_ids.items():
            key = find_key(name)
            if key is not None and name not in DYNAMIC_ONLY_KEYS:
                values[name] = key.parse(text)
            elif not name.startswith(_PLUGIN_PREFIXES) and not (
                name in _AUTHORIZER_KEYS and with_ids.get("authorizer.class.name", "").strip()
            ):
                unknown.append(name)
        for name, variable in left_over(with_ids):
            key = find_key(name)
            # If the key may be for a secret, the variable may be a part of a password.
            is_secret = key is None or key.type is PASSWORD
            shown = "a variable in it" if is_secret and variable != with_ids[name] else variable
            warnings.append(f"Configuration {name}: no provider has a value for {shown}, which stays as it is written")
        object.__setattr__(self, "_raw", with_ids)
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "_unknown", tuple(unknown))
        object.__setattr__(self, "_warnings", tuple(warnings))

    @property
    def warnings(self) -> tuple[builtins.str, ...]:
        """The warnings that a start logs. They are made only on demand: the search for a similar key takes
        milliseconds, and the names of a configuration that is only checked may come from a client."""
        unknown = (
            f"Configuration {name} is not known and has no effect{did_you_mean(name, STATIC_KEYS)}"
            for name in self._unknown
        )
        return (*unknown, *self._warnings)

    def __setattr__(self, name: builtins.str, value: object) -> None:
        raise AttributeError("a Config does not change; use load.with_overrides")

    def __getitem__(self, name: builtins.str) -> Value:
        try:
            return self._values[name]
        except KeyError:
            key = STATIC_KEYS[name]
        if isinstance(key.default, Required):
            raise ConfigError(f'Missing required configuration "{name}" which has no default value.')
        return key.default

    def bool(self, name: builtins.str) -> builtins.bool:
        value = self[name]
        assert isinstance(value, bool), f"{name} is not a BOOLEAN"
        return value

    def int(self, name: builtins.str) -> builtins.int:
        """Return an INT, SHORT or LONG that is always set."""
        value = self[name]
        assert type(value) is int, f"{name} is not an integer that is always set"
        return value

    long = int

    def float(self, name: builtins.str) -> builtins.float:
        value = self[name]
        assert isinstance(value, float), f"{name} is not a DOUBLE"
        return value

    def str(self, name: builtins.str) -> builtins.str:
        value = self[name]
        assert isinstance(value, str), f"{name} is not a string that is always set"
        return value

    def list(self, name: builtins.str) -> tuple[builtins.str, ...]:
        value = self[name]
        assert isinstance(value, tuple), f"{name} is not a LIST that is always set"
        return value

    def optional_int(self, name: builtins.str) -> builtins.int | None:
        return None if self[name] is None else self.int(name)

    optional_long = optional_int

    def optional_str(self, name: builtins.str) -> builtins.str | None:
        return None if self[name] is None else self.str(name)

    def optional_list(self, name: builtins.str) -> tuple[builtins.str, ...] | None:
        return None if self[name] is None else self.list(name)

    def millis(self, name: builtins.str) -> builtins.int:
        """Return a time that may also be set in other units: log.retention.ms, log.roll.ms, log.roll.jitter.ms,
        log.flush.interval.ms. -1 means no limit."""
        for synonym in broker_synonyms(name):
            value = self[synonym]
            if value is not None:
                unit = _UNIT_MS.get(synonym.rpartition(".")[2], 1)
                return max(-1, self.int(synonym) * unit)
        raise AssertionError(f"{name} and its synonyms have no value")

    def is_default(self, name: builtins.str) -> builtins.bool:
        return name not in self._raw

    def raw(self, name: builtins.str) -> builtins.str | None:
        """Return the text that was set for the key, or None."""
        return self._raw.get(name)

    def overrides(self) -> Mapping[builtins.str, builtins.str]:
        """Return all texts that were set, with unknown keys."""
        return dict(self._raw)

    def __iter__(self) -> Iterator[builtins.str]:
        return iter(STATIC_KEYS)

    def __repr__(self) -> builtins.str:
        return f"Config({self._values!r})"

    # Values that derive from several keys.

    @property
    def node_id(self) -> builtins.int:
        return self.int("node.id")

    @property
    def is_broker(self) -> builtins.bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> builtins.bool:
        return "controller" in self.roles

    @property
    def log_dirs(self) -> tuple[builtins.str, ...]:
        return self.optional_list("log.dirs") or self.list("log.dir")

    @property
    def cordoned_log_dirs(self) -> tuple[builtins.str, ...]:
        """The `log_dirs` that get no new replicas (KIP-1066)."""
        cordoned = self.optional_list("cordoned.log.dirs") or ()
        return self.log_dirs if cordoned == ("*",) else cordoned

    @property
    def metadata_log_dir(self) -> builtins.str:
        return self.optional_str("metadata.log.dir") or self.log_dirs[0]

    @property
    def voters(self) -> Mapping[builtins.int, tuple[builtins.str, builtins.int]]:
        """`controller.quorum.voters` as node id -> (host, port); empty if the quorum is dynamic."""
        parsed = [parse_voter("controller.quorum.voters", entry) for entry in self.list("controller.quorum.voters")]
        return {node_id: (host, port) for node_id, host, port in parsed}
