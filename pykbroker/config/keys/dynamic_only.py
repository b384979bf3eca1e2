"""Keys of a broker that exist only as dynamic configuration, never in server.properties.

Names, types, defaults and limits are those of Apache Kafka 4.3.1; see table.py.
"""

from __future__ import annotations

from pykbroker.config.kinds import (
    CLUSTER_WIDE,
    LONG,
    MAX_LONG,
    MEDIUM,
    Key,
    at_least,
    in_area,
)

KEYS = in_area(
    "Throttles",
    Key("leader.replication.throttled.rate", LONG, MAX_LONG, at_least(0), MEDIUM, CLUSTER_WIDE),
    Key("follower.replication.throttled.rate", LONG, MAX_LONG, at_least(0), MEDIUM, CLUSTER_WIDE),
    Key("replica.alter.log.dirs.io.max.bytes.per.second", LONG, MAX_LONG, at_least(0), MEDIUM, CLUSTER_WIDE),
)
