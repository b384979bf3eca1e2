"""Keys of followers, leader election and replication throttles.

Names, types, defaults and limits are those of Apache Kafka 4.3.1; see table.py.
"""

from __future__ import annotations

from pykbroker.config.kinds import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LONG,
    LOW,
    MEDIUM,
    STRING,
    Key,
    at_least,
    in_area,
)

KEYS = in_area(
    "Replication",
    Key("alter.log.dirs.replication.quota.window.num", INT, 11, at_least(1), LOW),
    Key("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, at_least(1), LOW),
    Key("auto.leader.rebalance.enable", BOOLEAN, True, None, HIGH),
    Key("default.replication.factor", INT, 1, None, MEDIUM),
    Key("follower.fetch.last.tiered.offset.enable", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE),
    Key("leader.imbalance.check.interval.seconds", LONG, 300, at_least(1), HIGH),
    Key("num.replica.alter.log.dirs.threads", INT, None, None, HIGH),
    Key("num.replica.fetchers", INT, 1, at_least(1), HIGH, CLUSTER_WIDE),
    Key("replica.fetch.backoff.ms", INT, 1000, at_least(0), MEDIUM),
    Key("replica.fetch.max.bytes", INT, 1_048_576, at_least(0), MEDIUM),
    Key("replica.fetch.min.bytes", INT, 1, None, HIGH),
    Key("replica.fetch.response.max.bytes", INT, 10_485_760, at_least(0), MEDIUM),
    Key("replica.fetch.wait.max.ms", INT, 500, None, HIGH),
    Key("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, None, HIGH),
    Key("replica.lag.time.max.ms", LONG, 30000, None, HIGH),
    Key("replica.selector.class", STRING, None, None, MEDIUM),
    Key("replica.socket.receive.buffer.bytes", INT, 65536, None, HIGH),
    Key("replica.socket.timeout.ms", INT, 30000, None, HIGH),
    Key("replication.quota.window.num", INT, 11, at_least(1), LOW),
    Key("replication.quota.window.size.seconds", INT, 1, at_least(1), LOW),
    Key("unclean.leader.election.enable", BOOLEAN, False, None, HIGH, CLUSTER_WIDE),
    Key("unclean.leader.election.interval.ms", LONG, 300_000, at_least(1), MEDIUM, internal=True),
)
