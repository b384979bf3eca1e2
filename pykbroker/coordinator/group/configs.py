"""The present configuration of a single group: its own overrides within the broker's bounds, otherwise the broker's
values.

Responsible for the values that a coordinator uses. Not responsible for keeping them until the configuration changes
(config/per_group.py). Groups are not notified of a change, because they look a value up whenever they need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pykbroker.config.per_group import PerGroup

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
        """The arguments are those of `PerGroup`."""
        self._groups = PerGroup(config, overrides, _both)

    def consumer(self, group_id: str) -> ConsumerGroupConfig:
        return self._groups.of(group_id).consumer

    def share(self, group_id: str) -> ShareGroupConfig:
        return self._groups.of(group_id).share


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
