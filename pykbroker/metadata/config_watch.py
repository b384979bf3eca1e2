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


class ConfigWatch:
    """`refuse(line)` is called for promises that cannot be kept."""

    def __init__(self, config: Config, refuse: Callable[[str], None]) -> None:
        self._config = config
        self._own = str(config.node_id)
        self._refuse = refuse
        self._named: set[str] = set()

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        if delta.configs_changed:
            self._check(delta, new)
        self._name_silent(delta)

    def _check(self, delta: MetadataDelta, new: MetadataImage) -> None:
        found: list[protection.BrokenPromise] = []
        changed = delta.configs_changed
        if (ConfigResource.BROKER, "") in changed or (ConfigResource.BROKER, self._own) in changed:
            layers = DynamicConfigs(
                broker=new.configs.of(ConfigResource.BROKER, self._own),
                cluster=new.configs.of(ConfigResource.BROKER, ""),
            )
            found += protection.promises_of_layers(self._config, layers)
        for (resource_type, name), values in changed.items():
            if resource_type == ConfigResource.TOPIC:
                found += protection.promises_of_topic(name, values)
        if found:
            self._refuse(f"{protection.one_line(found)}; it is set in the metadata of the cluster")

    def _name_silent(self, delta: MetadataDelta) -> None:
        found: list[str] = []
        for (resource_type, name), values in delta.configs_changed.items():
            if resource_type not in _SILENT or (resource_type == ConfigResource.BROKER and name not in ("", self._own)):
                continue
            noun, keys_of = _SILENT[resource_type]
            # A value that equals the default is not named, because it changes nothing. `__transaction_state` has such a
            # value.
            keys = keys_of(key for key, value in values.items() if value not in (None, _default(key)))
            found += [f"{key} ({noun})" for key in keys]
        if any(limit is not None for quotas in delta.client_quotas_changed.values() for limit in quotas.values()):
            found.append("client quotas")
        self._warn(found)

    def _warn(self, found: Iterable[str]) -> None:
        new = sorted(set(found) - self._named)
        if new:
            self._named.update(new)
            logger.warning("These settings of the cluster have no effect in this version: %s", ", ".join(new))
