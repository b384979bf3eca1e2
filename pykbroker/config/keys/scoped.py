"""Keys of one topic, of one group, and two small sets that Kafka's server.properties does not have.

Names, types, defaults and limits are those of Apache Kafka 4.3.1 (except OWN); see key_table.py.
"""

from __future__ import annotations

from pykbroker.config.kinds import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    INT,
    LIST,
    LONG,
    MAX_LONG,
    MEDIUM,
    PER_GROUP,
    PER_TOPIC,
    STRING,
    GzipLevel,
    HostAndPort,
    Key,
    ListOf,
    OneOf,
    ShareOffsetReset,
    ThrottledReplicas,
    at_least,
    between,
    in_area,
)
from pykbroker.config.topics_to_create import TopicsToCreate

# A topic key that is not set has the value of its broker keys in key_table.TOPIC_SYNONYMS.
TOPIC = in_area(
    "Topics",
    Key("cleanup.policy", LIST, ("delete",), ListOf("compact", "delete", empty=True), MEDIUM, PER_TOPIC),
    Key("compression.gzip.level", INT, -1, GzipLevel(), MEDIUM, PER_TOPIC),
    Key("compression.lz4.level", INT, 9, between(1, 17), MEDIUM, PER_TOPIC),
    Key(
        "compression.type",
        STRING,
        "producer",
        OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        MEDIUM,
        PER_TOPIC,
    ),
    Key("compression.zstd.level", INT, 3, between(-131_072, 22), MEDIUM, PER_TOPIC),
    Key("delete.retention.ms", LONG, 86_400_000, at_least(0), MEDIUM, PER_TOPIC),
    Key("file.delete.delay.ms", LONG, 60000, at_least(0), MEDIUM, PER_TOPIC),
    Key("flush.messages", LONG, MAX_LONG, at_least(1), MEDIUM, PER_TOPIC),
    Key("flush.ms", LONG, MAX_LONG, at_least(0), MEDIUM, PER_TOPIC),
    Key("follower.replication.throttled.replicas", LIST, (), ThrottledReplicas(), MEDIUM, PER_TOPIC),
    Key("index.interval.bytes", INT, 4096, at_least(0), MEDIUM, PER_TOPIC),
    Key("internal.segment.bytes", INT, None, None, MEDIUM, PER_TOPIC, internal=True),
    Key("leader.replication.throttled.replicas", LIST, (), ThrottledReplicas(), MEDIUM, PER_TOPIC),
    Key("local.retention.bytes", LONG, -2, at_least(-2), MEDIUM, PER_TOPIC),
    Key("local.retention.ms", LONG, -2, at_least(-2), MEDIUM, PER_TOPIC),
    Key("max.compaction.lag.ms", LONG, MAX_LONG, at_least(1), MEDIUM, PER_TOPIC),
    Key("max.message.bytes", INT, 1_048_588, at_least(0), MEDIUM, PER_TOPIC),
    Key("message.timestamp.after.max.ms", LONG, 3_600_000, at_least(0), MEDIUM, PER_TOPIC),
    Key("message.timestamp.before.max.ms", LONG, MAX_LONG, at_least(0), MEDIUM, PER_TOPIC),
    Key("message.timestamp.type", STRING, "CreateTime", OneOf("CreateTime", "LogAppendTime"), MEDIUM, PER_TOPIC),
    Key("min.cleanable.dirty.ratio", DOUBLE, 0.5, between(0, 1), MEDIUM, PER_TOPIC),
    Key("min.compaction.lag.ms", LONG, 0, at_least(0), MEDIUM, PER_TOPIC),
    Key("min.insync.replicas", INT, 1, at_least(1), MEDIUM, PER_TOPIC),
    Key("preallocate", BOOLEAN, False, None, MEDIUM, PER_TOPIC),
    Key("remote.log.copy.disable", BOOLEAN, False, None, MEDIUM, PER_TOPIC),
    Key("remote.log.delete.on.disable", BOOLEAN, False, None, MEDIUM, PER_TOPIC),
    Key("remote.storage.enable", BOOLEAN, False, None, MEDIUM, PER_TOPIC),
    Key("retention.bytes", LONG, -1, None, MEDIUM, PER_TOPIC),
    Key("retention.ms", LONG, 604_800_000, at_least(-1), MEDIUM, PER_TOPIC),
    Key("segment.bytes", INT, 1_073_741_824, at_least(1_048_576), MEDIUM, PER_TOPIC),
    Key("segment.index.bytes", INT, 10_485_760, at_least(4), MEDIUM, PER_TOPIC),
    Key("segment.jitter.ms", LONG, 0, at_least(0), MEDIUM, PER_TOPIC),
    Key("segment.ms", LONG, 604_800_000, at_least(1), MEDIUM, PER_TOPIC),
    Key("unclean.leader.election.enable", BOOLEAN, False, None, MEDIUM, PER_TOPIC),
)

# A group key that is not set has the value of its broker key in key_table.GROUP_SYNONYMS.
GROUP = in_area(
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

# Dynamic configuration of a broker that a properties file cannot have.
DYNAMIC_ONLY = in_area(
    "Throttles",
    Key("leader.replication.throttled.rate", LONG, MAX_LONG, at_least(0), MEDIUM, CLUSTER_WIDE),
    Key("follower.replication.throttled.rate", LONG, MAX_LONG, at_least(0), MEDIUM, CLUSTER_WIDE),
    Key("replica.alter.log.dirs.io.max.bytes.per.second", LONG, MAX_LONG, at_least(0), MEDIUM, CLUSTER_WIDE),
)

# Keys that Apache Kafka does not have. Each name starts with `pykbroker.`; Kafka would warn about the key and start.
OWN = in_area(
    "Bounds of pykbroker's own",
    Key("pykbroker.connection.max.unanswered.requests", INT, 1000, at_least(1), MEDIUM),
    Key("pykbroker.connection.max.unsent.bytes", LONG, 16_777_216, at_least(1), MEDIUM),
    Key("pykbroker.connection.request.receive.timeout.ms", INT, 30000, at_least(1), MEDIUM),
    Key("pykbroker.create.topics", LIST, (), TopicsToCreate(), MEDIUM),
    Key("pykbroker.authorizer.audit.allowed", BOOLEAN, False, None, MEDIUM),
    Key("pykbroker.authorizer.audit.file", STRING, None, None, MEDIUM),
    Key("pykbroker.authorizer.audit.max.waiting", INT, 10_000, at_least(1), MEDIUM),
    Key("pykbroker.early.fencing.enable", BOOLEAN, True, None, MEDIUM),
    Key("pykbroker.health.socket", STRING, None, None, MEDIUM),
    Key("pykbroker.load.reporter.enable", BOOLEAN, False, None, MEDIUM),
    Key("pykbroker.load.reporter.interval.ms", INT, 30_000, at_least(100), MEDIUM),
    Key("pykbroker.max.cold.reads", INT, 4, at_least(1), MEDIUM),
    Key("pykbroker.max.parked.requests", INT, 100_000, at_least(1), MEDIUM),
    Key("pykbroker.metadata.log.cut.at", LONG, None, at_least(0), MEDIUM),
    Key("pykbroker.metadata.reserve.bytes", LONG, 2_097_152, at_least(0), MEDIUM),
    Key("pykbroker.metrics.listener", STRING, None, HostAndPort(), MEDIUM),
    Key("pykbroker.ssl.store.watch.interval.ms", LONG, 0, at_least(0), MEDIUM),
    Key("pykbroker.write.back.bytes", LONG, 8_388_608, at_least(0), MEDIUM),
)
