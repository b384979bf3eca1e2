"""Texts of the keys in keys/storage.py."""

TEXTS = """\
auto.create.topics.enable
    Whether a topic comes into being when a client asks for it by name.
background.threads
    Threads for work in the background in Apache Kafka; pykbroker accepts the value.
compression.gzip.level
    Level with which batches are compressed again where compression.type is gzip; -1 is the library's own.
compression.lz4.level
    Level with which batches are compressed again where compression.type is lz4.
compression.type
    Codec in which a topic's batches are stored unless the topic says otherwise; `producer` keeps what was sent.
compression.zstd.level
    Level with which batches are compressed again where compression.type is zstd.
cordoned.log.dirs
    Log directories that get no new replicas; `*` means all of them.
delete.topic.enable
    Whether topics can be deleted at all.
log.cleaner.backoff.ms
    Pause of the cleaner when no log needs compaction.
log.cleaner.dedupe.buffer.size
    Memory in which all cleaner threads together note the keys they have seen.
log.cleaner.delete.retention.ms
    How long tombstones and transaction markers stay in compacted topics, so that slow readers still see them.
log.cleaner.enable
    Whether compacted topics are compacted at all, the offsets topic included.
log.cleaner.io.buffer.load.factor
    How full the memory in log.cleaner.dedupe.buffer.size may get; fuller means more per pass and more collisions.
log.cleaner.io.buffer.size
    Memory of all cleaner threads together for reading and writing.
log.cleaner.io.max.bytes.per.second
    The cleaner reads and writes no faster than this, over all threads.
log.cleaner.max.compaction.lag.ms
    Longest time for which a record can stay out of reach of compaction.
log.cleaner.min.cleanable.ratio
    Share of a log that must be new before it is worth compacting.
log.cleaner.min.compaction.lag.ms
    Time for which a record is safe from compaction.
log.cleaner.threads
    How many logs are compacted at a time.
log.cleanup.policy
    What happens to old records: delete by age and size, compact by key, both, or (empty) nothing.
log.dir
    Where partitions are kept; used when log.dirs is not set.
log.dir.failure.timeout.ms
    A broker that cannot tell the controller of a failed log directory within this time stops.
log.dirs
    Directories in which partitions are kept, separated by commas; new ones go where there are fewest. Not set, log.dir
    counts.
log.flush.interval.messages
    After how many records a partition is forced to disk.
log.flush.interval.ms
    After what time records are forced to disk. Not set, log.flush.scheduler.interval.ms counts.
log.flush.offset.checkpoint.interval.ms
    How often the offsets up to which logs are surely on disk are noted for recovery.
log.flush.scheduler.interval.ms
    How often is checked which logs are due to be forced to disk.
log.flush.start.offset.checkpoint.interval.ms
    How often the start offsets of logs are noted.
log.index.interval.bytes
    About how many bytes of records there are between two entries of the offset index.
log.index.size.max.bytes
    Largest size of an offset index.
log.initial.task.delay.ms
    How long after the start the first round of background log work begins.
log.local.retention.bytes
    With remote storage: how many bytes of a partition stay on local disk; -2 means as many as log.retention.bytes.
log.local.retention.ms
    With remote storage: how long segments stay on local disk; -2 means as long as log.retention.ms.
log.message.timestamp.after.max.ms
    How far a record's timestamp may be ahead of the broker's clock, under CreateTime.
log.message.timestamp.before.max.ms
    How far a record's timestamp may be behind the broker's clock, under CreateTime.
log.message.timestamp.type
    Whether a record's timestamp is the producer's (CreateTime) or the time of its append (LogAppendTime).
log.preallocate
    Whether the file of a new segment gets its full size at once.
log.retention.bytes
    Size beyond which a partition's oldest segments are deleted; -1 is no limit.
log.retention.check.interval.ms
    How often is checked which segments have become too old or too many.
log.retention.hours
    Age in hours beyond which segments are deleted; the weakest of the three spellings.
log.retention.minutes
    Age in minutes beyond which segments are deleted; stronger than the hours.
log.retention.ms
    Age beyond which segments are deleted; stronger than minutes and hours. -1 keeps them for ever.
log.roll.hours
    Time in hours after which a new segment is begun even if the old one is not full.
log.roll.jitter.hours
    Most hours by which that is brought forward at random, so that not all partitions roll together.
log.roll.jitter.ms
    The same in milliseconds; stronger than log.roll.jitter.hours.
log.roll.ms
    Time after which a new segment is begun even if the old one is not full; stronger than log.roll.hours.
log.segment.bytes
    Largest size of one segment file.
log.segment.delete.delay.ms
    How long a deleted segment stays on disk under a .deleted name.
message.max.bytes
    Largest batch that is accepted, as compressed.
min.insync.replicas
    How many replicas must be in sync for a Produce with acks=all to be accepted.
num.partitions
    Number of partitions of a topic that is created without one.
num.recovery.threads.per.data.dir
    How many logs of one directory are recovered at a time after an unclean stop.
alter.log.dirs.replication.quota.window.num
    How many windows the throttle on moves between log directories is averaged over.
alter.log.dirs.replication.quota.window.size.seconds
    Length of one such window.
auto.leader.rebalance.enable
    Whether leadership goes back to preferred replicas by itself.
default.replication.factor
    Number of replicas of a topic that is created without one.
follower.fetch.last.tiered.offset.enable
    Whether a new follower starts at the first offset that is not in remote storage and copies only from there on.
leader.imbalance.check.interval.seconds
    How often is checked whether leadership should go back to preferred replicas.
num.replica.alter.log.dirs.threads
    How many threads move replicas between log directories. Not set, one per directory.
num.replica.fetchers
    How many fetchers a follower runs per leader broker.
replica.fetch.backoff.ms
    Pause of a fetcher after an error.
replica.fetch.max.bytes
    Bytes that a follower asks for per partition; a larger batch still comes.
replica.fetch.min.bytes
    Bytes that a follower waits for before the leader answers.
replica.fetch.response.max.bytes
    Bytes that a follower asks for in one Fetch over all partitions; a larger batch still comes.
replica.fetch.wait.max.ms
    Longest wait of a follower's Fetch. Keep it below replica.lag.time.max.ms.
replica.high.watermark.checkpoint.interval.ms
    How often high watermarks are noted on disk.
replica.lag.time.max.ms
    A follower that has not caught up for this long leaves the in-sync set.
replica.selector.class
    Class that chooses the replica a consumer should read from. Not set, it is the leader.
replica.socket.receive.buffer.bytes
    SO_RCVBUF of the sockets on which followers fetch.
replica.socket.timeout.ms
    How long a follower waits for an answer; at least replica.fetch.wait.max.ms.
replication.quota.window.num
    How many windows the replication throttle is averaged over.
replication.quota.window.size.seconds
    Length of one such window.
unclean.leader.election.enable
    Whether a replica that is not in sync may become leader as a last resort, at the price of lost records.
unclean.leader.election.interval.ms
    How often is checked whether a partition without leader needs such an election.
remote.fetch.max.wait.ms
    Longest wait of a Fetch for data from remote storage.
remote.list.offsets.request.timeout.ms
    Longest wait of a ListOffsets that has to look into remote storage.
remote.log.index.file.cache.total.size.bytes
    Local disk space for cached indexes of remote segments.
remote.log.index.file.cache.ttl.ms
    How long such an index is kept after its last use.
remote.log.manager.copier.thread.pool.size
    Threads that copy segments to remote storage.
remote.log.manager.copy.max.bytes.per.second
    Segments are copied to remote storage no faster than this.
remote.log.manager.copy.quota.window.num
    How many windows that limit is averaged over.
remote.log.manager.copy.quota.window.size.seconds
    Length of one such window.
remote.log.manager.expiration.thread.pool.size
    Threads that delete expired remote segments.
remote.log.manager.fetch.max.bytes.per.second
    Segments are read from remote storage no faster than this.
remote.log.manager.fetch.quota.window.num
    How many windows that limit is averaged over.
remote.log.manager.fetch.quota.window.size.seconds
    Length of one such window.
remote.log.manager.follower.thread.pool.size
    Threads that do the remote storage work of follower partitions.
remote.log.manager.task.interval.ms
    How often is checked which segments should be copied or deleted.
remote.log.manager.task.retry.backoff.max.ms
    Upper limit of the pause after failed attempts at such work.
remote.log.manager.task.retry.backoff.ms
    Pause after the first failed attempt; it grows with each.
remote.log.manager.task.retry.jitter
    Share by which that pause is varied at random.
remote.log.manager.thread.pool.size
    Threads for scheduled remote storage work that has no pool of its own.
remote.log.metadata.custom.metadata.max.bytes
    Most bytes of its own that a storage plug-in may note per segment.
remote.log.metadata.manager.class.name
    Class that keeps track of remote segments.
remote.log.metadata.manager.class.path
    Class path from which that class is loaded.
remote.log.metadata.manager.impl.prefix
    Keys with this prefix are handed to that class.
remote.log.metadata.manager.listener.name
    Listener over which that class reaches the brokers.
remote.log.reader.max.pending.tasks
    Most reads from remote storage that may queue.
remote.log.reader.threads
    Threads that read from remote storage.
remote.log.storage.manager.class.name
    Class that stores and fetches remote segments.
remote.log.storage.manager.class.path
    Class path from which that class is loaded.
remote.log.storage.manager.impl.prefix
    Keys with this prefix are handed to that class.
remote.log.storage.system.enable
    Whether this broker can keep segments in remote storage at all.
"""
