"""Broker configuration that changes while the broker runs: for one broker, or as the default of the whole cluster.

Responsible for the order of the layers and for the keys that may be altered. The caller passes the layers of the
metadata log as text. Not responsible for the effect of a change, which each module that reads the new Config has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from pykbroker.config.checks import check_cordoned
from pykbroker.config.key_table import BROKER_KEYS, DYNAMIC_ONLY_KEYS, OWN_KEYS, broker_synonyms, names_with
from pykbroker.config.kinds import (
    ALL_BROKERS,
    HIDDEN,
    LISTENER_ONLY,
    PASSWORD,
    PER_BROKER,
    READ_ONLY,
    THREAD_POOL,
    ConfigError,
)
from pykbroker.config.load import with_overrides
from pykbroker.config.typed_config import Config, find_key, without_listener

_LISTENER_ONLY = frozenset(names_with(LISTENER_ONLY))
_CLUSTER_LEVEL_OF_LISTENER = frozenset(names_with(ALL_BROKERS))
_THREAD_POOLS = names_with(THREAD_POOL)


@dataclass(slots=True, frozen=True)
class DynamicConfigs:
    """The dynamic configuration in the metadata log, as text: `broker` of this broker, `cluster` of all brokers."""

    broker: Mapping[str, str] = field(default_factory=dict, repr=False)
    cluster: Mapping[str, str] = field(default_factory=dict, repr=False)

    def apply(self, config: Config) -> Config:
        """Return the configuration in effect: `broker` overrides `cluster`, and both override the properties file.
        Keys that only exist dynamically are left out.

        A dynamic value in one unit (log.retention.ms) also overrides a static one in another (log.retention.hours).
        """
        if not self.broker and not self.cluster:
            return config
        layers: dict[str, str | None] = {}
        for layer in (self.cluster, self.broker):
            for name, text in layer.items():
                if name in DYNAMIC_ONLY_KEYS:
                    continue
                for synonym in broker_synonyms(name):
                    if synonym != name and name != "log.flush.interval.ms":
                        layers[synonym] = None
                layers[name] = text
        return with_overrides(config, layers)


def validate_broker_overrides(
    config: Config, current: DynamicConfigs, overrides: Mapping[str, str], *, per_broker: bool
) -> None:
    """Raise ConfigError if `overrides` must not become the dynamic configuration of this broker, or of all brokers.

    `overrides` is the whole new layer, not the difference. Unknown names pass, because they may belong to a plugin. No
    thread pool may grow or shrink too far at once.
    """
    check_dynamic_values(overrides, per_broker=per_broker)
    layers = (
        DynamicConfigs(broker=overrides, cluster=current.cluster)
        if per_broker
        else DynamicConfigs(broker=current.broker, cluster=overrides)
    )
    before, after = current.apply(config), layers.apply(config)
    if "cordoned.log.dirs" in overrides:
        check_cordoned(after)
    for name in _THREAD_POOLS:
        _check_thread_pool(name, before.int(name), after.int(name))


def check_dynamic_values(overrides: Mapping[str, str], *, per_broker: bool) -> None:
    """Raise ConfigError if a key may not be changed in a running broker, or if a value is not valid for its key.

    This needs no knowledge of the broker itself.
    """
    read_only = [name for name in overrides if _is_read_only(name)]
    if read_only:
        raise ConfigError(f"Cannot update these configs dynamically: [{', '.join(sorted(read_only))}]")
    bare = [name for name in overrides if name in _LISTENER_ONLY]
    if bare:
        raise ConfigError(
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"[{', '.join(sorted(bare))}]"
        )
    for name, text in overrides.items():
        key = find_key(name)
        if key is not None:
            key.parse(text)
    if not per_broker:
        own = [name for name in overrides if _is_per_broker(name)]
        if own:
            raise ConfigError(
                "Cannot update these configs at default cluster level, broker id must be specified: "
                f"[{', '.join(sorted(own))}]"
            )


class AppliedConfigs(NamedTuple):
    """The layers that may be applied, the configuration in effect with them, and a message for each key left out."""

    layers: DynamicConfigs
    config: Config
    messages: tuple[str, ...] = ()


def apply_valid(config: Config, dynamic: DynamicConfigs) -> AppliedConfigs:
    """Apply the layers without the keys that must not be applied.

    A record in the metadata log may be older than a rule, or may have been written without a check by this broker.
    Apache Kafka leaves such a value out, logs an error and continues; LiveConfig does the same with this result.
    """
    try:
        return AppliedConfigs(dynamic, apply_whole(config, dynamic))
    except ConfigError:
        # At least one key must not be applied. Each is tried alone.
        pass
    messages: list[str] = []

    def keep(layer: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
        kept: dict[str, str] = {}
        for name, text in layer.items():
            alone = {name: text}
            try:
                apply_whole(config, DynamicConfigs(broker=alone) if per_broker else DynamicConfigs(cluster=alone))
            except ConfigError as error:
                messages.append(f"Dynamic configuration {name} is ignored: {error}")
            else:
                kept[name] = text
        return kept

    kept = DynamicConfigs(keep(dynamic.broker, per_broker=True), keep(dynamic.cluster, per_broker=False))
    try:
        return AppliedConfigs(kept, kept.apply(config), tuple(messages))
    except ConfigError as error:
        messages.append(f"Dynamic configuration is ignored as a whole: {error}")
        return AppliedConfigs(DynamicConfigs(), config, tuple(messages))


def apply_whole(config: Config, dynamic: DynamicConfigs) -> Config:
    """Return the configuration in effect with these layers. Raises ConfigError if a key must not be applied."""
    check_dynamic_values(dynamic.broker, per_broker=True)
    check_dynamic_values(dynamic.cluster, per_broker=False)
    applied = _applied(config, tuple(dynamic.broker.items()), tuple(dynamic.cluster.items()))
    if "cordoned.log.dirs" in dynamic.broker or "cordoned.log.dirs" in dynamic.cluster:
        check_cordoned(applied)
    return applied


# Making a Config takes a millisecond or two. Both loops of a node apply the same layers of the metadata log to the same
# Config, and so does each run of a broker that tests reset.
@lru_cache(maxsize=8)
def _applied(config: Config, broker: tuple[tuple[str, str], ...], cluster: tuple[tuple[str, str], ...]) -> Config:
    return DynamicConfigs(dict(broker), dict(cluster)).apply(config)


def _check_thread_pool(name: str, before: int, after: int) -> None:
    """Check that a thread pool grows at most to twice its size, and shrinks at most to half of it, in one step."""
    if before == after:
        return
    prefix = f"Dynamic thread count update validation failed for {name}={after}"
    if after < 1:
        raise ConfigError(f"{prefix}: value should be at least 1")
    if after < before // 2:
        raise ConfigError(f"{prefix}: value should be at least half the current value {before}")
    if after > before * 2:
        raise ConfigError(f"{prefix}: value should not be greater than double the current value {before}")


def _is_read_only(name: str) -> bool:
    key = BROKER_KEYS.get(name) or OWN_KEYS.get(name)
    return key is not None and key.dynamic == READ_ONLY


def _is_per_broker(name: str) -> bool:
    key = BROKER_KEYS.get(name)
    if key is not None:
        return key.dynamic == PER_BROKER
    rest = without_listener(name)
    return rest is not None and rest not in _CLUSTER_LEVEL_OF_LISTENER


def loggable(name: str, text: str) -> str:
    """Return the value as a log or an error may show it: secrets and unknown keys are hidden."""
    key = find_key(name)
    return HIDDEN if key is None or key.type is PASSWORD else text
