"""Watches the configuration in the metadata for settings that promise protection without giving it, and for settings
without effect.

It is a publisher of the loader. AlterConfigs refuses such promises (api/incremental_alter_configs.py), so if the
metadata has one, Apache Kafka or another release wrote it. The node then logs one line and stops, because otherwise it
would serve without the protection. A topic with remote.storage.enable is refused, as Apache Kafka refuses it on a
broker without tiered storage. Keys and client quotas without effect are logged once in each run of the node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from pykbroker.config import protection, silent
from pykbroker.config.dynamic import DynamicConfigs
from pykbroker.config.key_table import TOPIC_KEYS
from pykbroker.config.kinds import Required, format_value
from pykbroker.config.typed_config import Config
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import ConfigResource, MetadataImage

logger = logging.getLogger(__name__)

_SILENT = {
    ConfigResource.TOPIC: ("topics", silent.topic_keys),
    ConfigResource.BROKER: ("brokers", silent.broker_keys),
    ConfigResource.GROUP: ("groups", silent.group_keys),
}


def _default(key: str) -> str | None:
    row = TOPIC_KEYS.get(key)
    return None if row is None or isinstance(row.default, Required) else format_value(row.default)


def broken_promises(config: Config, delta: MetadataDelta, new: MetadataImage) -> list[protection.BrokenPromise]:
    """Return the changed settings for this broker and for topics whose promised protection is not given."""
    own, changed = str(config.node_id), delta.configs_changed
    found: list[protection.BrokenPromise] = []
    if (ConfigResource.BROKER, "") in changed or (ConfigResource.BROKER, own) in changed:
        layers = DynamicConfigs(
            broker=new.configs.of(ConfigResource.BROKER, own),
            cluster=new.configs.of(ConfigResource.BROKER, ""),
        )
        found += protection.promises_of_layers(config, layers)
    for (resource_type, name), values in changed.items():
        if resource_type == ConfigResource.TOPIC:
            found += protection.promises_of_topic(name, values)
    return found


def without_effect(config: Config, delta: MetadataDelta) -> list[str]:
    """Return the changed keys and client quotas that have no effect on this broker."""
    own = str(config.node_id)
    found: list[str] = []
    for (resource_type, name), values in delta.configs_changed.items():
        if resource_type not in _SILENT or (resource_type == ConfigResource.BROKER and name not in ("", own)):
            continue
        noun, keys_of = _SILENT[resource_type]
        # A value that equals the default is not named, because it changes nothing. `__transaction_state` has such a
        # value.
        keys = keys_of(key for key, value in values.items() if value not in (None, _default(key)))
        found += [f"{key} ({noun})" for key in keys]
    if any(limit is not None for quotas in delta.client_quotas_changed.values() for limit in quotas.values()):
        found.append("client quotas")
    return found


class ConfigWatch:
    """`refuse(line)` is called for promises that cannot be kept."""

    def __init__(self, config: Config, refuse: Callable[[str], None]) -> None:
        self._config = config
        self._refuse = refuse
        self._named: set[str] = set()

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        if delta.configs_changed:
            found = broken_promises(self._config, delta, new)
            if found:
                self._refuse(f"{protection.one_line(found)}; it is set in the metadata of the cluster")
        self._warn(without_effect(self._config, delta))

    def _warn(self, found: Iterable[str]) -> None:
        new = sorted(set(found) - self._named)
        if new:
            self._named.update(new)
            logger.warning("These settings of the cluster have no effect in this version: %s", ", ".join(new))
