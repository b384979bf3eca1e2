"""Keys that are set and have no effect in this version: the search for them, and the one line that names them.

Responsible for the properties file and for the configurations of brokers, topics and groups in the metadata log.
The row of a key says whether it acts. A key whose row has `refused` is not silent: it is served or it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykbroker.config.key_table import GROUP_KEYS, TOPIC_KEYS
from pykbroker.config.listeners import TLS_PROTOCOLS
from pykbroker.config.typed_config import Config, find_key

_OF_TLS = ("ssl.", "pykbroker.ssl.")


def broker_keys(names: Iterable[str]) -> list[str]:
    """Return the names of known keys that do not act, also names with a listener's prefix."""
    found = []
    for name in names:
        key = find_key(name)
        if key is not None and not key.acts and key.refused is None:
            found.append(name)
    return sorted(found)


def topic_keys(names: Iterable[str]) -> list[str]:
    silent = {name for name, key in TOPIC_KEYS.items() if not key.acts and key.refused is None}
    return sorted(silent.intersection(names))


def group_keys(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name in GROUP_KEYS and not GROUP_KEYS[name].acts)


def _keys_of_tls(config: Config) -> list[str]:
    """Return keys that act only with TLS, on a node that does not use it."""
    listeners = config.listeners
    names = {point.listener_name for point in listeners.all} | {
        *listeners.controller_names,
        listeners.inter_broker_name,
    }
    if not {listeners.protocols.get(name) for name in names}.isdisjoint(TLS_PROTOCOLS):
        return []
    keys = {name: find_key(name) for name in config.overrides()}
    return [name for name, key in keys.items() if key is not None and key.name.startswith(_OF_TLS)]


def warnings(config: Config) -> list[str]:
    """Return the line for the start, or an empty list if every key that is set acts."""
    overrides = config.overrides()
    found = sorted({*broker_keys(overrides), *_keys_of_tls(config)})
    return [f"These keys are set and have no effect in this version: {', '.join(found)}"] if found else []
