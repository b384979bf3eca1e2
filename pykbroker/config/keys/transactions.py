"""Keys of idempotent producers and the transaction coordinator.

Names, types, defaults and limits are those of Apache Kafka 4.3.1; see table.py.
"""

from __future__ import annotations

from pykbroker.config.kinds import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LOW,
    SHORT,
    Key,
    at_least,
    in_area,
)

KEYS = in_area(
    "Transactions and producers",
    Key("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, at_least(0), HIGH),
    Key("add.partitions.to.txn.retry.backoff.ms", INT, 20, at_least(1), HIGH),
    Key("producer.id.expiration.check.interval.ms", INT, 600_000, at_least(1), LOW, internal=True),
    Key("producer.id.expiration.ms", INT, 86_400_000, at_least(1), LOW, CLUSTER_WIDE),
    Key("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10000, at_least(1), LOW),
    Key("transaction.max.timeout.ms", INT, 900_000, at_least(1), HIGH),
    Key("transaction.partition.verification.enable", BOOLEAN, True, None, LOW, CLUSTER_WIDE),
    Key("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, at_least(1), LOW),
    Key("transaction.state.log.load.buffer.size", INT, 5_242_880, at_least(1), HIGH),
    Key("transaction.state.log.min.isr", INT, 2, at_least(1), HIGH),
    Key("transaction.state.log.num.partitions", INT, 50, at_least(1), HIGH),
    Key("transaction.state.log.replication.factor", SHORT, 3, at_least(1), HIGH),
    Key("transaction.state.log.segment.bytes", INT, 104_857_600, at_least(1), HIGH),
    Key("transaction.two.phase.commit.enable", BOOLEAN, False, None, LOW),
    Key("transactional.id.expiration.ms", INT, 604_800_000, at_least(1), HIGH),
)
