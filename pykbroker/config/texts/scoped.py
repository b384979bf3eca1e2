"""Texts of the keys in keys/scoped.py."""

TOPIC = """\
cleanup.policy
    What happens to old records of the topic: delete by age and size, compact by key, both, or (empty) nothing.
compression.gzip.level
    Level of gzip where compression.type is gzip; -1 is the library's own.
compression.lz4.level
    Level of lz4 where compression.type is lz4.
compression.type
    Codec in which the topic's batches are stored; `producer` keeps what was sent, `uncompressed` unpacks it.
compression.zstd.level
    Level of zstd where compression.type is zstd.
delete.retention.ms
    How long tombstones stay in a compacted topic, so that slow readers still see them.
file.delete.delay.ms
    How long a deleted segment stays on disk under a .deleted name.
flush.messages
    After how many records a partition is forced to disk. Replication is the better guard.
flush.ms
    After what time records are forced to disk. Replication is the better guard.
follower.replication.throttled.replicas
    Replicas that are throttled as followers, as partition:broker, or `*` for all.
index.interval.bytes
    About how many bytes of records there are between two entries of the offset index.
internal.segment.bytes
    Segment size in tests; not bound by the minimum of segment.bytes.
leader.replication.throttled.replicas
    Replicas that are throttled as leaders, as partition:broker, or `*` for all.
local.retention.bytes
    With remote storage: how many bytes of a partition stay on local disk; -2 means as many as retention.bytes.
local.retention.ms
    With remote storage: how long segments stay on local disk; -2 means as long as retention.ms.
max.compaction.lag.ms
    Longest time for which a record can stay out of reach of compaction.
max.message.bytes
    Largest batch that is accepted, as compressed.
message.timestamp.after.max.ms
    How far a record's timestamp may be ahead of the broker's clock, under CreateTime.
message.timestamp.before.max.ms
    How far a record's timestamp may be behind the broker's clock, under CreateTime.
message.timestamp.type
    Whether a record's timestamp is the producer's (CreateTime) or the time of its append (LogAppendTime).
min.cleanable.dirty.ratio
    Share of a log that must be new before it is worth compacting.
min.compaction.lag.ms
    Time for which a record is safe from compaction.
min.insync.replicas
    How many replicas must be in sync for a Produce with acks=all to be accepted.
preallocate
    Whether the file of a new segment gets its full size at once.
remote.log.copy.disable
    Whether the topic's remote segments stay as they are and no more are copied; local retention must equal total.
remote.log.delete.on.disable
    Whether remote segments are deleted when remote.storage.enable is turned off.
remote.storage.enable
    Whether the topic's segments are also kept in remote storage.
retention.bytes
    Size beyond which a partition's oldest segments are deleted; -1 is no limit.
retention.ms
    Age beyond which segments are deleted; -1 keeps them for ever.
segment.bytes
    Largest size of one segment file.
segment.index.bytes
    Largest size of an offset index.
segment.jitter.ms
    Most by which segment.ms is brought forward at random, so that not all partitions roll together.
segment.ms
    Time after which a new segment is begun even if the old one is not full.
unclean.leader.election.enable
    Whether a replica that is not in sync may become leader as a last resort, at the price of lost records.
"""

GROUP = """\
consumer.assignment.interval.ms
    Least time between two assignments of the consumer group.
consumer.heartbeat.interval.ms
    How often members of the consumer group are told to send heartbeats.
consumer.session.timeout.ms
    A member of the consumer group that sends no heartbeat for this long is removed.
share.assignment.interval.ms
    Least time between two assignments of the share group.
share.auto.offset.reset
    Where the share group starts on a partition new to it: latest, earliest, or a time back from now.
share.delivery.count.limit
    How often a record is delivered to the share group before it is given up on.
share.heartbeat.interval.ms
    How often members of the share group are told to send heartbeats.
share.isolation.level
    Whether the share group sees records of open and aborted transactions.
share.partition.max.record.locks
    Most records of one partition that members of the share group hold at a time.
share.record.lock.duration.ms
    How long a member of the share group holds a record before it goes to another.
share.renew.acknowledge.enable
    Whether members of the share group may extend the time for which they hold a record.
share.session.timeout.ms
    A member of the share group that sends no heartbeat for this long is removed.
streams.assignment.interval.ms
    Least time between two assignments of the streams group.
streams.heartbeat.interval.ms
    How often members of the streams group are told to send heartbeats.
streams.initial.rebalance.delay.ms
    How long the streams group, when empty, waits for more members before its first assignment.
streams.num.standby.replicas
    Standby copies of each task's state in the streams group.
streams.session.timeout.ms
    A member of the streams group that sends no heartbeat for this long is removed.
"""

DYNAMIC_ONLY = """\
follower.replication.throttled.rate
    Bytes per second that the broker fetches as a follower of throttled replicas.
leader.replication.throttled.rate
    Bytes per second that the broker sends as the leader of throttled replicas.
replica.alter.log.dirs.io.max.bytes.per.second
    Bytes per second with which replicas move between log directories of the broker.
"""

OWN = """\
pykbroker.connection.max.unanswered.requests
    Most requests of one connection that wait for their answers; beyond it the connection is not read.
pykbroker.connection.max.unsent.bytes
    Bytes of answers that wait for one connection to take them; beyond it the connection is not read and nothing more
    is dispatched for it.
pykbroker.connection.request.receive.timeout.ms
    A connection whose request has begun but does not arrive whole within this time is closed.
pykbroker.create.topics
    Topics that the broker creates when it starts, if they are not there. Without numbers the cluster's defaults hold.
    What needs more brokers than there are waits for them.
pykbroker.authorizer.audit.allowed
    Whether the audit has permissions, too, and not only refusals.
pykbroker.authorizer.audit.file
    File to which the authorizer appends one line of JSON for each refusal, and for each permission where
    pykbroker.authorizer.audit.allowed is true. Without it there is no audit. A file that cannot be opened stops the
    start, and so does an audit without an authorizer.
pykbroker.authorizer.audit.max.waiting
    Most lines of the audit that wait to be written; lines beyond them, or beyond 16 MiB, are dropped and counted.
pykbroker.early.fencing.enable
    Whether a process that dies is noticed by its sockets: the active controller fences such a broker, voters elect, and
    brokers send no client to it. Without it sessions and timeouts decide alone, as in Apache Kafka.
pykbroker.health.socket
    Path of a Unix socket over which the node says whether it serves; `pykbroker health` asks it. Only the user that
    runs the node may connect. Without it `pykbroker start` without a properties file has health.sock in its data
    directory, and every other node has no such socket.
pykbroker.load.reporter.enable
    Whether the broker counts what comes to each of its replicas and leaves it, and writes it to the topic
    __pykbroker_metrics, which the brokers create (docs/metrics-topic.md).
pykbroker.load.reporter.interval.ms
    How often the broker writes the load of its replicas to the topic __pykbroker_metrics.
pykbroker.max.cold.reads
    Most threads of the whole node that read from disk what is not in memory; other reads of that kind wait for their
    turn.
pykbroker.max.parked.requests
    Most requests that wait for data, time or replicas in the whole node; beyond it they are answered at once with what
    there is.
pykbroker.metadata.log.cut.at
    Gives up damaged metadata: a start that was refused because the metadata log is damaged or ends at this very offset
    cuts it off there. The topics, configurations and features that later records made or changed are lost; the refusal
    names the offsets.
pykbroker.metadata.reserve.bytes
    Room on the disk that is kept back for the metadata log, in a file beside it. When the disk is full, the file goes
    first: the node then refuses appends and new topics, serves reads, and takes the room again when there is some. 0
    keeps none.
pykbroker.metrics.listener
    host:port at which the node answers `GET /metrics` for Prometheus, with the names of jmx_exporter's rules for Apache
    Kafka. It asks for no credentials: give it an address that only the Prometheus server reaches. Without it there
    is none.
pykbroker.ssl.store.watch.interval.ms
    How often a node looks whether a file of a key store or trust store has changed, to read it again as AlterConfigs of
    the same path would. 0: never.
pykbroker.write.back.bytes
    When so much was appended to a log, the device is asked in the background to write it, without a promise of when it
    is done: so what is dirty in memory stays bounded. 0 leaves it to the operating system.
"""
