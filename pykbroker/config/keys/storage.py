"""Keys of storage: the log and the values that topics inherit, its replicas, and remote storage.

Names, types, defaults and limits are those of Apache Kafka 4.4.0; see key_table.py. The comment above
a row is the text of the key: `make generate` writes it to texts/.
"""

from __future__ import annotations

from pykbroker.config.kinds import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MAX_ARRAY,
    MAX_DOUBLE,
    MAX_LONG,
    MEDIUM,
    PER_BROKER,
    STRING,
    THREAD_POOL,
    GzipLevel,
    Key,
    ListOf,
    NonEmpty,
    OneOf,
    RefusedValues,
    at_least,
    between,
    in_area,
)

LOG = in_area(
    "Log and topic defaults",
    #: Whether a topic comes into being when a client asks for it by name.
    Key("auto.create.topics.enable", BOOLEAN, True, None, HIGH, acts=True),
    #: Threads for work in the background in Apache Kafka; pykbroker accepts the value.
    Key("background.threads", INT, 10, at_least(1), HIGH, CLUSTER_WIDE, traits=(THREAD_POOL,)),
    #: Level with which batches are compressed again where compression.type is gzip; -1 is the library's own.
    Key("compression.gzip.level", INT, -1, GzipLevel(), MEDIUM, CLUSTER_WIDE, acts=True),
    #: Level with which batches are compressed again where compression.type is lz4.
    Key("compression.lz4.level", INT, 9, between(1, 17), MEDIUM, CLUSTER_WIDE, acts=True),
    #: Codec in which a topic's batches are stored unless the topic says otherwise; `producer` keeps what was sent.
    Key(
        "compression.type",
        STRING,
        "producer",
        OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        HIGH,
        CLUSTER_WIDE,
        acts=True,
    ),
    #: Level with which batches are compressed again where compression.type is zstd.
    Key("compression.zstd.level", INT, 3, between(-131_072, 22), MEDIUM, CLUSTER_WIDE, acts=True),
    #: Log directories that get no new replicas; `*` means all of them.
    Key("cordoned.log.dirs", LIST, (), ListOf(empty=True, null=True), MEDIUM, PER_BROKER, acts=True),
    #: Whether topics can be deleted at all.
    Key("delete.topic.enable", BOOLEAN, True, None, HIGH, acts=True),
    #: Pause of the cleaner when no log needs compaction.
    Key("log.cleaner.backoff.ms", LONG, 15000, at_least(0), MEDIUM, CLUSTER_WIDE, acts=True),
    #: Memory in which all cleaner threads together note the keys they have seen.
    Key("log.cleaner.dedupe.buffer.size", LONG, 134_217_728, None, MEDIUM, CLUSTER_WIDE, acts=True),
    #: How long tombstones and transaction markers stay in compacted topics, so that slow readers still see them.
    Key("log.cleaner.delete.retention.ms", LONG, 86_400_000, at_least(0), MEDIUM, CLUSTER_WIDE, acts=True),
    #: Whether compacted topics are compacted at all, the offsets topic included.
    Key("log.cleaner.enable", BOOLEAN, True, None, MEDIUM, acts=True),
    #: How full the memory in log.cleaner.dedupe.buffer.size may get; fuller means more per pass and more collisions.
    Key("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, None, MEDIUM, CLUSTER_WIDE, acts=True),
    #: Memory of all cleaner threads together for reading and writing.
    Key("log.cleaner.io.buffer.size", INT, 524_288, at_least(0), MEDIUM, CLUSTER_WIDE, acts=True),
    #: The cleaner reads and writes no faster than this, over all threads.
    Key("log.cleaner.io.max.bytes.per.second", DOUBLE, MAX_DOUBLE, None, MEDIUM, CLUSTER_WIDE, acts=True),
    #: Longest time for which a record can stay out of reach of compaction.
    Key("log.cleaner.max.compaction.lag.ms", LONG, MAX_LONG, at_least(1), MEDIUM, CLUSTER_WIDE, acts=True),
    #: Share of a log that must be new before it is worth compacting.
    Key("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, between(0, 1), MEDIUM, CLUSTER_WIDE, acts=True),
    #: Time for which a record is safe from compaction.
    Key("log.cleaner.min.compaction.lag.ms", LONG, 0, at_least(0), MEDIUM, CLUSTER_WIDE, acts=True),
    #: How many logs are compacted at a time.
    Key("log.cleaner.threads", INT, 1, at_least(0), MEDIUM, CLUSTER_WIDE, acts=True, traits=(THREAD_POOL,)),
    #: What happens to old records: delete by age and size, compact by key, both, or (empty) nothing.
    Key(
        "log.cleanup.policy",
        LIST,
        ("delete",),
        ListOf("compact", "delete", empty=True),
        MEDIUM,
        CLUSTER_WIDE,
        acts=True,
    ),
    #: Where partitions are kept; used when log.dirs is not set.
    Key("log.dir", LIST, ("/tmp/kafka-logs",), ListOf(empty=False), HIGH, acts=True),  # noqa: S108  # Apache Kafka's default
    #: A broker that cannot tell the controller of a failed log directory within this time stops.
    Key("log.dir.failure.timeout.ms", LONG, 30000, at_least(1), LOW, acts=True),
    #: Directories in which partitions are kept, separated by commas; new ones go where there are fewest. Not set,
    #: log.dir counts.
    Key("log.dirs", LIST, None, ListOf(empty=False, null=True), HIGH, acts=True),
    #: After how many records a partition is forced to disk.
    Key("log.flush.interval.messages", LONG, MAX_LONG, at_least(1), HIGH, CLUSTER_WIDE, acts=True),
    #: After what time records are forced to disk. Not set, log.flush.scheduler.interval.ms counts.
    Key("log.flush.interval.ms", LONG, None, None, HIGH, CLUSTER_WIDE, acts=True),
    #: How often the offsets up to which logs are surely on disk are noted for recovery.
    Key("log.flush.offset.checkpoint.interval.ms", INT, 60000, at_least(0), HIGH, acts=True),
    #: How often the broker checks which logs are due to be forced to disk.
    Key("log.flush.scheduler.interval.ms", LONG, MAX_LONG, None, HIGH, acts=True),
    #: How often the start offsets of logs are noted.
    Key("log.flush.start.offset.checkpoint.interval.ms", INT, 60000, at_least(0), HIGH, acts=True),
    #: About how many bytes of records there are between two entries of the offset index.
    Key("log.index.interval.bytes", INT, 4096, at_least(0), MEDIUM, CLUSTER_WIDE, acts=True),
    #: Largest size of an offset index.
    Key("log.index.size.max.bytes", INT, 10_485_760, at_least(4), MEDIUM, CLUSTER_WIDE, acts=True),
    #: How long after the start the first round of background log work begins.
    Key("log.initial.task.delay.ms", LONG, 30000, at_least(0), LOW, internal=True, acts=True),
    #: With remote storage: how many bytes of a partition stay on local disk; -2 means as many as log.retention.bytes.
    Key("log.local.retention.bytes", LONG, -2, at_least(-2), MEDIUM, CLUSTER_WIDE),
    #: With remote storage: how long segments stay on local disk; -2 means as long as log.retention.ms.
    Key("log.local.retention.ms", LONG, -2, at_least(-2), MEDIUM, CLUSTER_WIDE),
    #: With remote storage: how many newer bytes there must be on local disk before a segment is copied; 0 copies it at
    #: once, and -1 means as many as log.local.retention.bytes.
    Key("log.remote.copy.lag.bytes", LONG, -1, at_least(-1), MEDIUM, CLUSTER_WIDE),
    #: With remote storage: how old a segment must be before it is copied; 0 copies it at once, and -1 means as old as
    #: log.local.retention.ms.
    Key("log.remote.copy.lag.ms", LONG, 0, at_least(-1), MEDIUM, CLUSTER_WIDE),
    #: How far a record's timestamp may be ahead of the broker's clock, under CreateTime.
    Key("log.message.timestamp.after.max.ms", LONG, 3_600_000, at_least(0), MEDIUM, CLUSTER_WIDE, acts=True),
    #: How much older than the broker's clock a record's timestamp may be, under CreateTime.
    Key("log.message.timestamp.before.max.ms", LONG, MAX_LONG, at_least(0), MEDIUM, CLUSTER_WIDE, acts=True),
    #: Whether a record's timestamp is the producer's (CreateTime) or the time of its append (LogAppendTime).
    Key(
        "log.message.timestamp.type",
        STRING,
        "CreateTime",
        OneOf("CreateTime", "LogAppendTime"),
        MEDIUM,
        CLUSTER_WIDE,
        acts=True,
    ),
    #: Whether the file of a new segment gets its full size at once.
    Key("log.preallocate", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE, acts=True),
    #: Size beyond which a partition's oldest segments are deleted; -1 is no limit.
    Key("log.retention.bytes", LONG, -1, None, HIGH, CLUSTER_WIDE, acts=True),
    #: How often the broker checks which segments have become too old or too many.
    Key("log.retention.check.interval.ms", LONG, 300_000, at_least(1), MEDIUM, acts=True),
    #: Age in hours beyond which segments are deleted; the weakest of the three spellings.
    Key("log.retention.hours", INT, 168, None, HIGH, acts=True),
    #: Age in minutes beyond which segments are deleted; stronger than the hours.
    Key("log.retention.minutes", INT, None, None, HIGH, acts=True),
    #: Segments that are older than this are deleted. This key wins over minutes and hours. -1 keeps them for ever.
    Key("log.retention.ms", LONG, None, None, HIGH, CLUSTER_WIDE, acts=True),
    #: Time in hours after which a new segment is begun even if the old one is not full.
    Key("log.roll.hours", INT, 168, at_least(1), HIGH, acts=True),
    #: Most hours by which that is brought forward at random, so that not all partitions roll together.
    Key("log.roll.jitter.hours", INT, 0, at_least(0), HIGH, acts=True),
    #: The same in milliseconds; stronger than log.roll.jitter.hours.
    Key("log.roll.jitter.ms", LONG, None, None, HIGH, CLUSTER_WIDE, acts=True),
    #: Time after which a new segment is begun even if the old one is not full; stronger than log.roll.hours.
    Key("log.roll.ms", LONG, None, None, HIGH, CLUSTER_WIDE, acts=True),
    #: Largest size of one segment file.
    Key("log.segment.bytes", INT, 1_073_741_824, at_least(1_048_576), HIGH, CLUSTER_WIDE, acts=True),
    #: How long a deleted segment stays on disk under a .deleted name.
    Key("log.segment.delete.delay.ms", LONG, 60000, at_least(0), HIGH, CLUSTER_WIDE, acts=True),
    #: Largest record in a compressed batch that is accepted, after decompression. A batch with a larger record is
    #: refused with INVALID_RECORD.
    Key("max.decompressed.message.bytes", INT, MAX_ARRAY, between(1, MAX_ARRAY), MEDIUM, CLUSTER_WIDE, acts=True),
    #: Largest batch that is accepted, as compressed.
    Key("message.max.bytes", INT, 1_048_588, at_least(0), HIGH, CLUSTER_WIDE, acts=True),
    #: How many replicas must be in sync for a Produce with acks=all to be accepted.
    Key("min.insync.replicas", INT, 1, at_least(1), HIGH, CLUSTER_WIDE, acts=True),
    #: Number of partitions of a topic that is created without one.
    Key("num.partitions", INT, 1, at_least(1), MEDIUM, acts=True),
    #: How many logs of one directory are recovered at a time after an unclean stop.
    Key("num.recovery.threads.per.data.dir", INT, 2, at_least(1), HIGH, CLUSTER_WIDE, acts=True, traits=(THREAD_POOL,)),
)

REPLICATION = in_area(
    "Replication",
    #: How many windows the throttle on moves between log directories is averaged over.
    Key("alter.log.dirs.replication.quota.window.num", INT, 11, at_least(1), LOW),
    #: Length of one such window.
    Key("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, at_least(1), LOW),
    #: Whether leadership goes back to preferred replicas by itself.
    Key("auto.leader.rebalance.enable", BOOLEAN, True, None, HIGH, acts=True),
    #: Number of replicas of a topic that is created without one.
    Key("default.replication.factor", INT, 1, None, MEDIUM, acts=True),
    #: Whether a new follower starts at the first offset that is not in remote storage and copies only from there on.
    Key("follower.fetch.last.tiered.offset.enable", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE),
    #: How often the controller checks whether leadership should go back to preferred replicas.
    Key("leader.imbalance.check.interval.seconds", LONG, 300, at_least(1), HIGH, acts=True),
    #: How many threads move replicas between log directories. Not set, one per directory.
    Key("num.replica.alter.log.dirs.threads", INT, None, None, HIGH, acts=True),
    #: How many fetchers a follower runs per leader broker.
    Key("num.replica.fetchers", INT, 1, at_least(1), HIGH, CLUSTER_WIDE, acts=True, traits=(THREAD_POOL,)),
    #: Pause of a fetcher after an error.
    Key("replica.fetch.backoff.ms", INT, 1000, at_least(0), MEDIUM, acts=True),
    #: Bytes that a follower asks for per partition; a larger batch still comes.
    Key("replica.fetch.max.bytes", INT, 1_048_576, at_least(0), MEDIUM, acts=True),
    #: Bytes that a follower waits for before the leader answers.
    Key("replica.fetch.min.bytes", INT, 1, None, HIGH, acts=True),
    #: Bytes that a follower asks for in one Fetch over all partitions; a larger batch still comes.
    Key("replica.fetch.response.max.bytes", INT, 10_485_760, at_least(0), MEDIUM, acts=True),
    #: Longest wait of a follower's Fetch. Keep it below replica.lag.time.max.ms.
    Key("replica.fetch.wait.max.ms", INT, 500, None, HIGH, acts=True),
    #: How often high watermarks are noted on disk.
    Key("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, None, HIGH, acts=True),
    #: A follower that has not caught up for this long leaves the in-sync set.
    Key("replica.lag.time.max.ms", LONG, 30000, None, HIGH, acts=True),
    #: Class that chooses the replica a consumer should read from. Not set, it is the leader.
    Key("replica.selector.class", STRING, None, None, MEDIUM, acts=True),
    #: SO_RCVBUF of the sockets on which followers fetch.
    Key("replica.socket.receive.buffer.bytes", INT, 65536, None, HIGH, acts=True),
    #: How long a follower waits for an answer; at least replica.fetch.wait.max.ms.
    Key("replica.socket.timeout.ms", INT, 30000, None, HIGH, acts=True),
    #: How many windows the replication throttle is averaged over.
    Key("replication.quota.window.num", INT, 11, at_least(1), LOW, acts=True),
    #: Length of one such window.
    Key("replication.quota.window.size.seconds", INT, 1, at_least(1), LOW, acts=True),
    #: Whether a replica that is not in sync may become leader as a last resort, at the price of lost records.
    Key("unclean.leader.election.enable", BOOLEAN, False, None, HIGH, CLUSTER_WIDE, acts=True),
    #: How often the controller checks whether a partition without leader needs such an election.
    Key("unclean.leader.election.interval.ms", LONG, 300_000, at_least(1), MEDIUM, internal=True, acts=True),
)

REMOTE = in_area(
    "Remote storage",
    #: Longest wait of a Fetch for data from remote storage.
    Key("remote.fetch.max.wait.ms", INT, 500, at_least(1), MEDIUM, CLUSTER_WIDE),
    #: Longest wait of a ListOffsets that has to look into remote storage.
    Key("remote.list.offsets.request.timeout.ms", LONG, 30000, at_least(1), MEDIUM, CLUSTER_WIDE),
    #: Local disk space for cached indexes of remote segments.
    Key("remote.log.index.file.cache.total.size.bytes", LONG, 1_073_741_824, at_least(1), LOW, CLUSTER_WIDE),
    #: How long such an index is kept after its last use.
    Key("remote.log.index.file.cache.ttl.ms", LONG, 900_000, at_least(-1), LOW, internal=True),
    #: Threads that copy segments to remote storage.
    Key(
        "remote.log.manager.copier.thread.pool.size", INT, 10, at_least(1), MEDIUM, CLUSTER_WIDE, traits=(THREAD_POOL,)
    ),
    #: Segments are copied to remote storage no faster than this.
    Key("remote.log.manager.copy.max.bytes.per.second", LONG, MAX_LONG, at_least(1), MEDIUM, CLUSTER_WIDE),
    #: How many windows that limit is averaged over.
    Key("remote.log.manager.copy.quota.window.num", INT, 11, at_least(1), MEDIUM),
    #: Length of one such window.
    Key("remote.log.manager.copy.quota.window.size.seconds", INT, 1, at_least(1), MEDIUM),
    #: Threads that delete expired remote segments.
    Key(
        "remote.log.manager.expiration.thread.pool.size",
        INT,
        10,
        at_least(1),
        MEDIUM,
        CLUSTER_WIDE,
        traits=(THREAD_POOL,),
    ),
    #: Segments are read from remote storage no faster than this.
    Key("remote.log.manager.fetch.max.bytes.per.second", LONG, MAX_LONG, at_least(1), MEDIUM, CLUSTER_WIDE),
    #: How many windows that limit is averaged over.
    Key("remote.log.manager.fetch.quota.window.num", INT, 11, at_least(1), MEDIUM),
    #: Length of one such window.
    Key("remote.log.manager.fetch.quota.window.size.seconds", INT, 1, at_least(1), MEDIUM),
    #: Threads that do the remote storage work of follower partitions.
    Key(
        "remote.log.manager.follower.thread.pool.size", INT, 2, at_least(1), MEDIUM, CLUSTER_WIDE, traits=(THREAD_POOL,)
    ),
    #: How often the broker checks which segments should be copied or deleted.
    Key("remote.log.manager.task.interval.ms", LONG, 30000, at_least(1), LOW),
    #: Upper limit of the pause after failed attempts at such work.
    Key("remote.log.manager.task.retry.backoff.max.ms", LONG, 30000, at_least(1), LOW, internal=True),
    #: Pause after the first failed attempt; it grows with each.
    Key("remote.log.manager.task.retry.backoff.ms", LONG, 500, at_least(1), LOW, internal=True),
    #: Share by which that pause is varied at random.
    Key("remote.log.manager.task.retry.jitter", DOUBLE, 0.2, between(0, 0.5), LOW, internal=True),
    #: Threads for scheduled remote storage work that has no pool of its own.
    Key("remote.log.manager.thread.pool.size", INT, 2, at_least(1), MEDIUM),
    #: Most bytes of its own that a storage plug-in may note per segment.
    Key("remote.log.metadata.custom.metadata.max.bytes", INT, 128, at_least(0), LOW),
    #: Class that keeps track of remote segments.
    Key(
        "remote.log.metadata.manager.class.name",
        STRING,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        NonEmpty(),
        MEDIUM,
    ),
    #: Class path from which that class is loaded.
    Key("remote.log.metadata.manager.class.path", STRING, None, None, MEDIUM),
    #: Keys with this prefix are handed to that class.
    Key("remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.", NonEmpty(), MEDIUM),
    #: Listener over which that class reaches the brokers.
    Key("remote.log.metadata.manager.listener.name", STRING, None, NonEmpty(), MEDIUM),
    #: Most reads from remote storage that may queue.
    Key("remote.log.reader.max.pending.tasks", INT, 100, at_least(1), MEDIUM),
    #: Threads that read from remote storage.
    Key("remote.log.reader.threads", INT, 10, at_least(1), MEDIUM, CLUSTER_WIDE, traits=(THREAD_POOL,)),
    #: Class that stores and fetches remote segments.
    Key("remote.log.storage.manager.class.name", STRING, None, NonEmpty(), MEDIUM),
    #: Class path from which that class is loaded.
    Key("remote.log.storage.manager.class.path", STRING, None, None, MEDIUM),
    #: Keys with this prefix are handed to that class.
    Key("remote.log.storage.manager.impl.prefix", STRING, "rsm.config.", NonEmpty(), MEDIUM),
    #: Whether this broker can keep segments in remote storage at all.
    Key(
        "remote.log.storage.system.enable",
        BOOLEAN,
        False,
        None,
        MEDIUM,
        refused=RefusedValues("remote storage", harmless=(False,)),
    ),
)
