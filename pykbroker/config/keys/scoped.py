"""Keys of one topic, of one group, and two small sets that Kafka's server.properties does not have.

Names, types, defaults and limits are those of Apache Kafka 4.4.0 (except OWN); see key_table.py. The comment above
a row is the text of the key: `make generate` writes it to texts/.
"""

from __future__ import annotations

from pykbroker.config.kinds import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LOW,
    MAX_ARRAY,
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
    RefusedValues,
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
    #: What happens to old records of the topic: delete by age and size, compact by key, both, or (empty) nothing.
    Key("cleanup.policy", LIST, ("delete",), ListOf("compact", "delete", empty=True), MEDIUM, PER_TOPIC, acts=True),
    #: Level of gzip where compression.type is gzip; -1 is the library's own.
    Key("compression.gzip.level", INT, -1, GzipLevel(), MEDIUM, PER_TOPIC, acts=True),
    #: Level of lz4 where compression.type is lz4.
    Key("compression.lz4.level", INT, 9, between(1, 17), MEDIUM, PER_TOPIC, acts=True),
    #: Codec in which the topic's batches are stored; `producer` keeps what was sent, `uncompressed` unpacks it.
    Key(
        "compression.type",
        STRING,
        "producer",
        OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        MEDIUM,
        PER_TOPIC,
        acts=True,
    ),
    #: Level of zstd where compression.type is zstd.
    Key("compression.zstd.level", INT, 3, between(-131_072, 22), MEDIUM, PER_TOPIC, acts=True),
    #: How long tombstones stay in a compacted topic, so that slow readers still see them.
    Key("delete.retention.ms", LONG, 86_400_000, at_least(0), MEDIUM, PER_TOPIC, acts=True),
    #: Whether share groups may write records that they give up on to the topic.
    Key("errors.deadletterqueue.group.enable", BOOLEAN, False, None, MEDIUM, PER_TOPIC, acts=True),
    #: How long a deleted segment stays on disk under a .deleted name.
    Key("file.delete.delay.ms", LONG, 60000, at_least(0), MEDIUM, PER_TOPIC, acts=True),
    #: After how many records a partition is forced to disk. Replication is the better guard.
    Key("flush.messages", LONG, MAX_LONG, at_least(1), MEDIUM, PER_TOPIC, acts=True),
    #: After what time records are forced to disk. Replication is the better guard.
    Key("flush.ms", LONG, MAX_LONG, at_least(0), MEDIUM, PER_TOPIC, acts=True),
    #: Replicas that are throttled as followers, as partition:broker, or `*` for all.
    Key("follower.replication.throttled.replicas", LIST, (), ThrottledReplicas(), MEDIUM, PER_TOPIC, acts=True),
    #: About how many bytes of records there are between two entries of the offset index.
    Key("index.interval.bytes", INT, 4096, at_least(0), MEDIUM, PER_TOPIC, acts=True),
    #: Segment size in tests; not bound by the minimum of segment.bytes.
    Key("internal.segment.bytes", INT, None, None, MEDIUM, PER_TOPIC, internal=True, acts=True),
    #: Replicas that are throttled as leaders, as partition:broker, or `*` for all.
    Key("leader.replication.throttled.replicas", LIST, (), ThrottledReplicas(), MEDIUM, PER_TOPIC, acts=True),
    #: With remote storage: how many bytes of a partition stay on local disk; -2 means as many as retention.bytes.
    Key("local.retention.bytes", LONG, -2, at_least(-2), MEDIUM, PER_TOPIC),
    #: With remote storage: how long segments stay on local disk; -2 means as long as retention.ms.
    Key("local.retention.ms", LONG, -2, at_least(-2), MEDIUM, PER_TOPIC),
    #: Longest time for which a record can stay out of reach of compaction.
    Key("max.compaction.lag.ms", LONG, MAX_LONG, at_least(1), MEDIUM, PER_TOPIC, acts=True),
    #: Largest record in a compressed batch that is accepted, after decompression. A batch with a larger record is
    #: refused with INVALID_RECORD.
    Key("max.decompressed.message.bytes", INT, MAX_ARRAY, between(1, MAX_ARRAY), MEDIUM, PER_TOPIC, acts=True),
    #: Largest batch that is accepted, as compressed.
    Key("max.message.bytes", INT, 1_048_588, at_least(0), MEDIUM, PER_TOPIC, acts=True),
    #: How far a record's timestamp may be ahead of the broker's clock, under CreateTime.
    Key("message.timestamp.after.max.ms", LONG, 3_600_000, at_least(0), MEDIUM, PER_TOPIC, acts=True),
    #: How much older than the broker's clock a record's timestamp may be, under CreateTime.
    Key("message.timestamp.before.max.ms", LONG, MAX_LONG, at_least(0), MEDIUM, PER_TOPIC, acts=True),
    #: Whether a record's timestamp is the producer's (CreateTime) or the time of its append (LogAppendTime).
    Key(
        "message.timestamp.type",
        STRING,
        "CreateTime",
        OneOf("CreateTime", "LogAppendTime"),
        MEDIUM,
        PER_TOPIC,
        acts=True,
    ),
    #: Share of a log that must be new before it is worth compacting.
    Key("min.cleanable.dirty.ratio", DOUBLE, 0.5, between(0, 1), MEDIUM, PER_TOPIC, acts=True),
    #: Time for which a record is safe from compaction.
    Key("min.compaction.lag.ms", LONG, 0, at_least(0), MEDIUM, PER_TOPIC, acts=True),
    #: How many replicas must be in sync for a Produce with acks=all to be accepted.
    Key("min.insync.replicas", INT, 1, at_least(1), MEDIUM, PER_TOPIC, acts=True),
    #: Whether the file of a new segment gets its full size at once.
    Key("preallocate", BOOLEAN, False, None, MEDIUM, PER_TOPIC, acts=True),
    #: With remote storage: how many newer bytes there must be on local disk before a segment is copied; 0 copies it at
    #: once, and -1 means as many as local.retention.bytes.
    Key("remote.copy.lag.bytes", LONG, -1, at_least(-1), MEDIUM, PER_TOPIC),
    #: With remote storage: how old a segment must be before it is copied; 0 copies it at once, and -1 means as old as
    #: local.retention.ms.
    Key("remote.copy.lag.ms", LONG, 0, at_least(-1), MEDIUM, PER_TOPIC),
    #: Whether the topic's remote segments stay as they are and no more are copied; local retention must equal total.
    Key("remote.log.copy.disable", BOOLEAN, False, None, MEDIUM, PER_TOPIC),
    #: Whether remote segments are deleted when remote.storage.enable is turned off.
    Key("remote.log.delete.on.disable", BOOLEAN, False, None, MEDIUM, PER_TOPIC),
    #: Whether the topic's segments are also kept in remote storage.
    Key(
        "remote.storage.enable",
        BOOLEAN,
        False,
        None,
        MEDIUM,
        PER_TOPIC,
        refused=RefusedValues("remote storage", harmless=(False,)),
    ),
    #: Size beyond which a partition's oldest segments are deleted; -1 is no limit.
    Key("retention.bytes", LONG, -1, None, MEDIUM, PER_TOPIC, acts=True),
    #: Segments that are older than this are deleted. -1 keeps them for ever.
    Key("retention.ms", LONG, 604_800_000, at_least(-1), MEDIUM, PER_TOPIC, acts=True),
    #: Largest size of one segment file.
    Key("segment.bytes", INT, 1_073_741_824, at_least(1_048_576), MEDIUM, PER_TOPIC, acts=True),
    #: Largest size of an offset index.
    Key("segment.index.bytes", INT, 10_485_760, at_least(4), MEDIUM, PER_TOPIC, acts=True),
    #: Most by which segment.ms is brought forward at random, so that not all partitions roll together.
    Key("segment.jitter.ms", LONG, 0, at_least(0), MEDIUM, PER_TOPIC, acts=True),
    #: Time after which a new segment is begun even if the old one is not full.
    Key("segment.ms", LONG, 604_800_000, at_least(1), MEDIUM, PER_TOPIC, acts=True),
    #: Whether a replica that is not in sync may become leader as a last resort, at the price of lost records.
    Key("unclean.leader.election.enable", BOOLEAN, False, None, MEDIUM, PER_TOPIC, acts=True),
)

# A group key that is not set has the value of its broker key in key_table.GROUP_SYNONYMS.
GROUP = in_area(
    "Groups",
    #: Least time between two assignments of the consumer group.
    Key("consumer.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM, PER_GROUP, acts=True),
    #: Whether the assignments of the consumer group are computed on a thread of their own.
    Key("consumer.assignor.offload.enable", BOOLEAN, True, None, MEDIUM, PER_GROUP, internal=True),
    #: How often members of the consumer group are told to send heartbeats.
    Key("consumer.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, PER_GROUP, acts=True),
    #: A member of the consumer group that sends no heartbeat for this long is removed.
    Key("consumer.session.timeout.ms", INT, 45000, at_least(1), MEDIUM, PER_GROUP, acts=True),
    #: Least time between two assignments of the share group.
    Key("share.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM, PER_GROUP, acts=True),
    #: Where the share group starts on a partition new to it: latest, earliest, or a time back from now.
    Key("share.auto.offset.reset", STRING, "latest", ShareOffsetReset(), MEDIUM, PER_GROUP, acts=True),
    #: Whether a record that the share group gives up on is written to its dead letter queue with its key and value.
    Key("errors.deadletterqueue.copy.record.enable", BOOLEAN, False, None, MEDIUM, PER_GROUP, acts=True),
    #: Topic to which records are written that the share group gives up on; empty is none.
    Key("errors.deadletterqueue.topic.name", STRING, "", None, MEDIUM, PER_GROUP, acts=True),
    #: Whether the assignments of the share group are computed on a thread of their own.
    Key("share.assignor.offload.enable", BOOLEAN, True, None, MEDIUM, PER_GROUP, internal=True),
    #: How often a record is delivered to the share group before it is given up on.
    Key("share.delivery.count.limit", INT, 5, at_least(2), MEDIUM, PER_GROUP, acts=True),
    #: How often members of the share group are told to send heartbeats.
    Key("share.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, PER_GROUP, acts=True),
    #: Whether the share group sees records of open and aborted transactions.
    Key(
        "share.isolation.level",
        STRING,
        "read_uncommitted",
        OneOf("read_committed", "read_uncommitted"),
        MEDIUM,
        PER_GROUP,
        acts=True,
    ),
    #: Most records of one partition that members of the share group hold at a time.
    Key("share.partition.max.record.locks", INT, 2000, at_least(100), MEDIUM, PER_GROUP, acts=True),
    #: How long a member of the share group holds a record before it goes to another.
    Key("share.record.lock.duration.ms", INT, 30000, at_least(1000), MEDIUM, PER_GROUP, acts=True),
    #: Whether members of the share group may extend the time for which they hold a record.
    Key("share.renew.acknowledge.enable", BOOLEAN, True, None, MEDIUM, PER_GROUP, acts=True),
    #: A member of the share group that sends no heartbeat for this long is removed.
    Key("share.session.timeout.ms", INT, 45000, at_least(1), MEDIUM, PER_GROUP, acts=True),
    #: How many records a task may lag and still count as caught up, in the streams group.
    Key("streams.acceptable.recovery.lag", LONG, 10_000, at_least(0), MEDIUM, PER_GROUP, internal=True),
    #: Least time between two assignments of the streams group.
    Key("streams.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM, PER_GROUP),
    #: The assignor of the streams group.
    Key("streams.assignor.name", STRING, None, None, MEDIUM, PER_GROUP),
    #: Whether the assignments of the streams group are computed on a thread of their own.
    Key("streams.assignor.offload.enable", BOOLEAN, True, None, MEDIUM, PER_GROUP, internal=True),
    #: How often members of the streams group are told to send heartbeats.
    Key("streams.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, PER_GROUP),
    #: How long the streams group, when empty, waits for more members before its first assignment.
    Key("streams.initial.rebalance.delay.ms", INT, 3000, at_least(0), MEDIUM, PER_GROUP),
    #: Standby copies of each task's state in the streams group.
    Key("streams.num.standby.replicas", INT, 0, at_least(0), MEDIUM, PER_GROUP),
    #: Copies of task state that may be built at a time before tasks move, in the streams group.
    Key("streams.num.warmup.replicas", INT, 2, at_least(0), MEDIUM, PER_GROUP, internal=True),
    #: Tags of clients that standby copies of the streams group are spread over.
    Key("streams.rack.aware.assignment.tags", LIST, (), ListOf(empty=True), LOW, PER_GROUP),
    #: A member of the streams group that sends no heartbeat for this long is removed.
    Key("streams.session.timeout.ms", INT, 45000, at_least(1), MEDIUM, PER_GROUP),
    #: How often members of the streams group report the offsets of their tasks.
    Key("streams.task.offset.interval.ms", INT, 60_000, at_least(1), MEDIUM, PER_GROUP, internal=True),
)

# Dynamic configuration of a broker that a properties file cannot have.
DYNAMIC_ONLY = in_area(
    "Throttles",
    #: Bytes per second that the broker sends as the leader of throttled replicas.
    Key("leader.replication.throttled.rate", LONG, MAX_LONG, at_least(0), MEDIUM, CLUSTER_WIDE, acts=True),
    #: Bytes per second that the broker fetches as a follower of throttled replicas.
    Key("follower.replication.throttled.rate", LONG, MAX_LONG, at_least(0), MEDIUM, CLUSTER_WIDE, acts=True),
    #: Bytes per second with which replicas move between log directories of the broker.
    Key("replica.alter.log.dirs.io.max.bytes.per.second", LONG, MAX_LONG, at_least(0), MEDIUM, CLUSTER_WIDE, acts=True),
)

# Keys that Apache Kafka does not have. Each name starts with `pykbroker.`; Kafka would warn about the key and start.
OWN = in_area(
    "Bounds of pykbroker's own",
    #: Most requests of one connection that wait for their answers; beyond it the connection is not read.
    Key("pykbroker.connection.max.unanswered.requests", INT, 1000, at_least(1), MEDIUM, acts=True),
    #: Bytes of answers that wait for one connection to take them; beyond it the connection is not read and nothing more
    #: is dispatched for it.
    Key("pykbroker.connection.max.unsent.bytes", LONG, 16_777_216, at_least(1), MEDIUM, acts=True),
    #: A connection whose request has begun but does not arrive whole within this time is closed.
    Key("pykbroker.connection.request.receive.timeout.ms", INT, 30000, at_least(1), MEDIUM, acts=True),
    #: Topics that the broker creates when it starts, if they are not there. Without numbers the cluster's defaults
    #: hold. What needs more brokers than there are waits for them.
    Key("pykbroker.create.topics", LIST, (), TopicsToCreate(), MEDIUM, acts=True),
    #: Whether the audit has permissions, too, and not only refusals.
    Key("pykbroker.authorizer.audit.allowed", BOOLEAN, False, None, MEDIUM, acts=True),
    #: File to which the authorizer appends one line of JSON for each refusal, and for each permission where
    #: pykbroker.authorizer.audit.allowed is true. Without it there is no audit. A file that cannot be opened stops the
    #: start, and so does an audit without an authorizer.
    Key("pykbroker.authorizer.audit.file", STRING, None, None, MEDIUM, acts=True),
    #: Most lines of the audit that wait to be written; lines beyond them, or beyond 16 MiB, are dropped and counted.
    Key("pykbroker.authorizer.audit.max.waiting", INT, 10_000, at_least(1), MEDIUM, acts=True),
    #: Whether a process that dies is noticed by its sockets: the active controller fences such a broker, voters elect,
    #: and brokers send no client to it. Without it sessions and timeouts decide alone, as in Apache Kafka.
    Key("pykbroker.early.fencing.enable", BOOLEAN, True, None, MEDIUM, acts=True),
    #: Path of a Unix socket over which the node says whether it serves; `pykbroker health` asks it. Only the user that
    #: runs the node may connect. Without it `pykbroker start` without a properties file has health.sock in its data
    #: directory, and every other node has no such socket.
    Key("pykbroker.health.socket", STRING, None, None, MEDIUM, acts=True),
    #: Whether the broker counts what comes to each of its replicas and leaves it, and writes it to the topic
    #: __pykbroker_metrics, which the brokers create (docs/metrics-topic.md).
    Key("pykbroker.load.reporter.enable", BOOLEAN, False, None, MEDIUM, acts=True),
    #: How often the broker writes the load of its replicas to the topic __pykbroker_metrics.
    Key("pykbroker.load.reporter.interval.ms", INT, 30_000, at_least(100), MEDIUM, acts=True),
    #: Most threads of the whole node that read from disk what is not in memory; other reads of that kind wait for their
    #: turn.
    Key("pykbroker.max.cold.reads", INT, 4, at_least(1), MEDIUM, acts=True),
    #: Most requests that wait for data, time or replicas in the whole node; beyond it they are answered at once with
    #: what there is.
    Key("pykbroker.max.parked.requests", INT, 100_000, at_least(1), MEDIUM, acts=True),
    #: Gives up damaged metadata: a start that was refused because the metadata log is damaged or ends at this very
    #: offset cuts it off there. The topics, configurations and features that later records made or changed are lost;
    #: the refusal names the offsets.
    Key("pykbroker.metadata.log.cut.at", LONG, None, at_least(0), MEDIUM, acts=True),
    #: Room on the disk that is kept back for the metadata log, in a file beside it. When the disk is full, the file
    #: goes first: the node then refuses appends and new topics, serves reads, and takes the room again when there is
    #: some. 0 keeps none.
    Key("pykbroker.metadata.reserve.bytes", LONG, 2_097_152, at_least(0), MEDIUM, acts=True),
    #: host:port at which the node answers `GET /metrics` for Prometheus, with the names of jmx_exporter's rules for
    #: Apache Kafka. It asks for no credentials: give it an address that only the Prometheus server reaches. Without it
    #: there is none.
    Key("pykbroker.metrics.listener", STRING, None, HostAndPort(), MEDIUM, acts=True),
    #: How often a node looks whether a file of a key store or trust store has changed, to read it again as AlterConfigs
    #: of the same path would. 0: never.
    Key("pykbroker.ssl.store.watch.interval.ms", LONG, 0, at_least(0), MEDIUM, acts=True),
    #: When so much was appended to a log, the device is asked in the background to write it, without a promise of when
    #: it is done: so what is dirty in memory stays bounded. 0 leaves it to the operating system.
    Key("pykbroker.write.back.bytes", LONG, 8_388_608, at_least(0), MEDIUM, acts=True),
)
