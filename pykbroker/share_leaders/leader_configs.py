"""The configuration of a share group that the leaders of its share partitions use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from pykbroker.share_partitions.delivery_states import ShareLimits

if TYPE_CHECKING:
    from pykbroker.config.kinds import Value

LATEST: Final = "latest"
EARLIEST: Final = "earliest"
BY_DURATION: Final = "by_duration:"


class ShareLeaderConfig(NamedTuple):
    """`read_committed` is True for share.isolation.level=read_committed. `offset_reset` is share.auto.offset.reset. The
    defaults are Apache Kafka's."""

    limits: ShareLimits = ShareLimits()
    read_committed: bool = False
    offset_reset: str = LATEST


def leader_config(values: Mapping[str, Value]) -> ShareLeaderConfig:
    """Return the configuration from the resolved keys of a group (`config/group.py`)."""
    limits = ShareLimits(
        record_locks=_int(values, "share.partition.max.record.locks"),
        delivery_count=_int(values, "share.delivery.count.limit"),
        lock_duration_ms=_int(values, "share.record.lock.duration.ms"),
        allows_renewal=values["share.renew.acknowledge.enable"] is True,
    )
    return ShareLeaderConfig(
        limits,
        values["share.isolation.level"] == "read_committed",
        str(values["share.auto.offset.reset"]),
    )


def _int(values: Mapping[str, Value], name: str) -> int:
    value = values[name]
    assert isinstance(value, int), f"{name} is not a number"
    return value
