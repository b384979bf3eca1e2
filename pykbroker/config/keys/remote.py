"""Keys of tiered storage.

Names, types, defaults and limits are those of Apache Kafka 4.3.1; see table.py.
"""

from __future__ import annotations

from pykbroker.config.kinds import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    INT,
    LONG,
    LOW,
    MAX_LONG,
    MEDIUM,
    STRING,
    Key,
    NonEmpty,
    at_least,
    between,
    in_area,
)

KEYS = in_area(
    "Remote storage",
    Key("remote.fetch.max.wait.ms", INT, 500, at_least(1), MEDIUM, CLUSTER_WIDE),
    Key("remote.list.offsets.request.timeout.ms", LONG, 30000, at_least(1), MEDIUM, CLUSTER_WIDE),
    Key("remote.log.index.file.cache.total.size.bytes", LONG, 1_073_741_824, at_least(1), LOW, CLUSTER_WIDE),
    Key("remote.log.index.file.cache.ttl.ms", LONG, 900_000, at_least(-1), LOW, internal=True),
    Key("remote.log.manager.copier.thread.pool.size", INT, 10, at_least(1), MEDIUM, CLUSTER_WIDE),
    Key("remote.log.manager.copy.max.bytes.per.second", LONG, MAX_LONG, at_least(1), MEDIUM, CLUSTER_WIDE),
    Key("remote.log.manager.copy.quota.window.num", INT, 11, at_least(1), MEDIUM),
    Key("remote.log.manager.copy.quota.window.size.seconds", INT, 1, at_least(1), MEDIUM),
    Key("remote.log.manager.expiration.thread.pool.size", INT, 10, at_least(1), MEDIUM, CLUSTER_WIDE),
    Key("remote.log.manager.fetch.max.bytes.per.second", LONG, MAX_LONG, at_least(1), MEDIUM, CLUSTER_WIDE),
    Key("remote.log.manager.fetch.quota.window.num", INT, 11, at_least(1), MEDIUM),
    Key("remote.log.manager.fetch.quota.window.size.seconds", INT, 1, at_least(1), MEDIUM),
    Key("remote.log.manager.follower.thread.pool.size", INT, 2, at_least(1), MEDIUM, CLUSTER_WIDE),
    Key("remote.log.manager.task.interval.ms", LONG, 30000, at_least(1), LOW),
    Key("remote.log.manager.task.retry.backoff.max.ms", LONG, 30000, at_least(1), LOW, internal=True),
    Key("remote.log.manager.task.retry.backoff.ms", LONG, 500, at_least(1), LOW, internal=True),
    Key("remote.log.manager.task.retry.jitter", DOUBLE, 0.2, between(0, 0.5), LOW, internal=True),
    Key("remote.log.manager.thread.pool.size", INT, 2, at_least(1), MEDIUM),
    Key("remote.log.metadata.custom.metadata.max.bytes", INT, 128, at_least(0), LOW),
    Key(
        "remote.log.metadata.manager.class.name",
        STRING,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        NonEmpty(),
        MEDIUM,
    ),
    Key("remote.log.metadata.manager.class.path", STRING, None, None, MEDIUM),
    Key("remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.", NonEmpty(), MEDIUM),
    Key("remote.log.metadata.manager.listener.name", STRING, None, NonEmpty(), MEDIUM),
    Key("remote.log.reader.max.pending.tasks", INT, 100, at_least(1), MEDIUM),
    Key("remote.log.reader.threads", INT, 10, at_least(1), MEDIUM, CLUSTER_WIDE),
    Key("remote.log.storage.manager.class.name", STRING, None, NonEmpty(), MEDIUM),
    Key("remote.log.storage.manager.class.path", STRING, None, None, MEDIUM),
    Key("remote.log.storage.manager.impl.prefix", STRING, "rsm.config.", NonEmpty(), MEDIUM),
    Key("remote.log.storage.system.enable", BOOLEAN, False, None, MEDIUM),
)
