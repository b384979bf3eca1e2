"""The configuration that the transaction coordinator uses, as plain numbers read once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykbroker.config.load import Config


@dataclass(slots=True, frozen=True, kw_only=True)
class TransactionSettings:
    """Defaults are Apache Kafka's."""

    partitions: int = 50
    max_timeout_ms: int = 900_000
    abort_interval_ms: int = 10_000
    expiration_ms: int = 604_800_000
    expiration_interval_ms: int = 3_600_000
    request_timeout_ms: int = 30_000

    @classmethod
    def from_config(cls, config: Config) -> TransactionSettings:
        return cls(
            partitions=config.int("transaction.state.log.num.partitions"),
            max_timeout_ms=config.int("transaction.max.timeout.ms"),
            abort_interval_ms=config.int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expiration_ms=config.int("transactional.id.expiration.ms"),
            expiration_interval_ms=config.int("transaction.remove.expired.transaction.cleanup.interval.ms"),
            request_timeout_ms=config.int("request.timeout.ms"),
        )
