"""The configuration that group state machines use, as plain numbers read once.

Values that may change while the node runs, or that groups may override (GROUP configuration resources), are looked up
in `consumer_config` and `share_config` each time (configs.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pykbroker.config.checks import assignors
from pykbroker.coordinator.group.configs import ConsumerGroupConfig, ShareGroupConfig
from pykbroker_log.jumps import Jumps, no_jumps

if TYPE_CHECKING:
    from pykbroker.config.typed_config import Config


class Migration(Enum):
    """group.consumer.migration.policy: the kinds of groups that may become the other kind with their members."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        return self in (Migration.UPGRADE, Migration.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        return self in (Migration.DOWNGRADE, Migration.BIDIRECTIONAL)


def _defaults(_group_id: str) -> ConsumerGroupConfig:
    return ConsumerGroupConfig()


def _share_defaults(_group_id: str) -> ShareGroupConfig:
    return ShareGroupConfig()


@dataclass(slots=True, frozen=True, kw_only=True)
class GroupSettings:
    """The settings. Defaults are Apache Kafka's."""

    initial_rebalance_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_retention_check_interval_ms: int = 600_000
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")  # the first is for members that choose none
    migration: Migration = Migration.BIDIRECTIONAL
    consumer_regex_refresh_interval_ms: int = 600_000
    share_max_size: int = 200
    share_initialize_retry_interval_ms: int = 30_000
    #: the configuration of a group, by group id
    consumer_config: Callable[[str], ConsumerGroupConfig] = _defaults
    share_config: Callable[[str], ShareGroupConfig] = _share_defaults
    #: the jumps of the time that clients feel, for the ages of offsets and assignments
    jumps: Callable[[], Jumps] = no_jumps

    @classmethod
    def from_config(
        cls,
        config: Config,
        consumer_config: Callable[[str], ConsumerGroupConfig] = _defaults,
        share_config: Callable[[str], ShareGroupConfig] = _share_defaults,
        jumps: Callable[[], Jumps] = no_jumps,
    ) -> GroupSettings:
        return cls(
            initial_rebalance_delay_ms=config.int("group.initial.rebalance.delay.ms"),
            min_session_timeout_ms=config.int("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.int("group.max.session.timeout.ms"),
            max_size=config.int("group.max.size"),
            offset_metadata_max_bytes=config.int("offset.metadata.max.bytes"),
            offsets_retention_ms=config.int("offsets.retention.minutes") * 60_000,
            offsets_retention_check_interval_ms=config.int("offsets.retention.check.interval.ms"),
            consumer_max_size=config.int("group.consumer.max.size"),
            consumer_assignors=assignors(config, "group.consumer.assignors"),
            migration=Migration(config.str("group.consumer.migration.policy").lower()),
            consumer_regex_refresh_interval_ms=config.int("group.consumer.regex.refresh.interval.ms"),
            share_max_size=config.int("group.share.max.size"),
            share_initialize_retry_interval_ms=config.int("group.share.initialize.retry.interval.ms"),
            consumer_config=consumer_config,
            share_config=share_config,
            jumps=jumps,
        )
