"""The present configuration of a single group: its own overrides within the broker's bounds, otherwise the broker's
values.

Responsible for looking the configuration up quickly, by group id, while overrides (IncrementalAlterConfigs on a
resource of type GROUP) and the broker's dynamic keys change. Not responsible for the layers and bounds themselves
(config/group.py). Groups are not notified of a change, because they look a value up whenever they need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pykbroker.config.group import resolve_group

if TYPE_CHECKING:
    from pykbroker.config.kinds import Value
    from pykbroker.config.typed_config import Config


class ConsumerGroupConfig(NamedTuple):
    """The configuration of a group of the consumer protocol. Defaults are Apache Kafka's."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


class ShareGroupConfig(NamedTuple):
    """The configuration of a share group that its group coordinator uses. Defaults are Apache Kafka's."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


class _Both(NamedTuple):
    """The configuration of one group id, for each kind of group that it may be of."""

    consumer: ConsumerGroupConfig = ConsumerGroupConfig()
    share: ShareGroupConfig = ShareGroupConfig()


class GroupConfigs:
    def __init__(self, config: Callable[[], Config], overrides: Callable[[str], Mapping[str, str]]) -> None:
        """`config` returns the broker's present configuration. `overrides` returns the overrides of a group, which are
        empty for most groups. Both must return the same object until something changes."""
        self._config = config
        self._overrides = overrides
        self._seen: Config | None = None
        self._defaults = _Both()
        self._own: dict[str, tuple[Mapping[str, str], _Both]] = {}

    def consumer(self, group_id: str) -> ConsumerGroupConfig:
        return self._of(group_id).consumer

    def share(self, group_id: str) -> ShareGroupConfig:
        return self._of(group_id).share

    def _of(self, group_id: str) -> _Both:
        config = self._config()
        if config is not self._seen:
            self._seen = config
            self._defaults = _both(resolve_group(config))
            self._own.clear()
        overrides = self._overrides(group_id)
        if not overrides:
            self._own.pop(group_id, None)
            return self._defaults
        known = self._own.get(group_id)
        if known is not None and known[0] is overrides:
            return known[1]
        own = _both(resolve_group(config, overrides))
        self._own[group_id] = (overrides, own)
        return own


def _both(values: Mapping[str, Value]) -> _Both:
    return _Both(
        ConsumerGroupConfig(
            session_timeout_ms=_int(values, "consumer.session.timeout.ms"),
            heartbeat_interval_ms=_int(values, "consumer.heartbeat.interval.ms"),
            assignment_interval_ms=_int(values, "consumer.assignment.interval.ms"),
        ),
        ShareGroupConfig(
            session_timeout_ms=_int(values, "share.session.timeout.ms"),
            heartbeat_interval_ms=_int(values, "share.heartbeat.interval.ms"),
            assignment_interval_ms=_int(values, "share.assignment.interval.ms"),
        ),
    )


def _int(values: Mapping[str, Value], name: str) -> int:
    value = values[name]
    assert isinstance(value, int), f"{name} is not a number"
    return value
