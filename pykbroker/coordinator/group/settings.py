"""The configuration that group state machines use, as plain numbers read once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pykbroker.config.checks import assignors

if TYPE_CHECKING:
    from pykbroker.config.load import Config


@dataclass(slots=True, frozen=True, kw_only=True)
class GroupSettings:
    """Defaults are Apache Kafka's."""

    initial_rebalance_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_retention_check_interval_ms: int = 600_000
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")  # the first is the one for whoever asks for none
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000

    @classmethod
    def from_config(cls, config: Config) -> GroupSettings:
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
            consumer_migration_policy=config.str("group.consumer.migration.policy").lower(),
            consumer_regex_refresh_interval_ms=config.int("group.consumer.regex.refresh.interval.ms"),
        )
