"""Keys of one group; not set, they follow the broker key in table.GROUP_SYNONYMS.

Names, types, defaults and limits are those of Apache Kafka 4.3.1; see table.py.
"""

from __future__ import annotations

from pykbroker.config.kinds import (
    BOOLEAN,
    INT,
    MEDIUM,
    PER_GROUP,
    STRING,
    Key,
    OneOf,
    ShareOffsetReset,
    at_least,
    in_area,
)

KEYS = in_area(
    "Groups",
    Key("consumer.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM, PER_GROUP),
    Key("consumer.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, PER_GROUP),
    Key("consumer.session.timeout.ms", INT, 45000, at_least(1), MEDIUM, PER_GROUP),
    Key("share.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM, PER_GROUP),
    Key("share.auto.offset.reset", STRING, "latest", ShareOffsetReset(), MEDIUM, PER_GROUP),
    Key("share.delivery.count.limit", INT, 5, at_least(2), MEDIUM, PER_GROUP),
    Key("share.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, PER_GROUP),
    Key(
        "share.isolation.level",
        STRING,
        "read_uncommitted",
        OneOf("read_committed", "read_uncommitted"),
        MEDIUM,
        PER_GROUP,
    ),
    Key("share.partition.max.record.locks", INT, 2000, at_least(100), MEDIUM, PER_GROUP),
    Key("share.record.lock.duration.ms", INT, 30000, at_least(1000), MEDIUM, PER_GROUP),
    Key("share.renew.acknowledge.enable", BOOLEAN, True, None, MEDIUM, PER_GROUP),
    Key("share.session.timeout.ms", INT, 45000, at_least(1), MEDIUM, PER_GROUP),
    Key("streams.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM, PER_GROUP),
    Key("streams.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, PER_GROUP),
    Key("streams.initial.rebalance.delay.ms", INT, 3000, at_least(0), MEDIUM, PER_GROUP),
    Key("streams.num.standby.replicas", INT, 0, at_least(0), MEDIUM, PER_GROUP),
    Key("streams.session.timeout.ms", INT, 45000, at_least(1), MEDIUM, PER_GROUP),
)
