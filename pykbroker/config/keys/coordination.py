"""Keys of the coordinators: consumer groups and offsets, share groups, transactions and idempotent producers.

Names, types, defaults and limits are those of Apache Kafka 4.4.0; see key_table.py. The comment above
a row is the text of the key: `make generate` writes it to texts/.
"""

from __future__ import annotations

from pykbroker.config.kinds import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MAX_INT,
    MEDIUM,
    SHORT,
    STRING,
    Key,
    ListOf,
    OneOfAnyCase,
    at_least,
    between,
    in_area,
)

GROUPS = in_area(
    "Consumer groups and offsets",
    #: Least time between two assignments of a consumer group; members that come and go in between share one.
    Key("group.consumer.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM, CLUSTER_WIDE, acts=True),
    #: Whether assignments of consumer groups are computed on a thread of their own.
    Key("group.consumer.assignor.offload.enable", BOOLEAN, True, None, MEDIUM, CLUSTER_WIDE, internal=True),
    #: Assignors that consumer groups may choose from; the first is the default.
    Key("group.consumer.assignors", LIST, ("uniform", "range"), ListOf(empty=False), MEDIUM, acts=True),
    #: How often members of a consumer group are told to send heartbeats.
    Key("group.consumer.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, acts=True),
    #: Upper bound of consumer.assignment.interval.ms of a group.
    Key("group.consumer.max.assignment.interval.ms", INT, 15000, at_least(0), MEDIUM, acts=True),
    #: Upper bound of consumer.heartbeat.interval.ms of a group.
    Key("group.consumer.max.heartbeat.interval.ms", INT, 15000, at_least(1), MEDIUM, acts=True),
    #: Upper bound of consumer.session.timeout.ms of a group.
    Key("group.consumer.max.session.timeout.ms", INT, 60000, at_least(1), MEDIUM, acts=True),
    #: Most members of one consumer group.
    Key("group.consumer.max.size", INT, MAX_INT, at_least(1), MEDIUM, acts=True),
    #: Whether a group may change between the classic and the consumer protocol while it has members: up, down, both
    #: ways or not at all.
    Key(
        "group.consumer.migration.policy",
        STRING,
        "bidirectional",
        OneOfAnyCase("BIDIRECTIONAL", "DISABLED", "DOWNGRADE", "UPGRADE"),
        MEDIUM,
        acts=True,
    ),
    #: Lower bound of consumer.assignment.interval.ms of a group.
    Key("group.consumer.min.assignment.interval.ms", INT, 0, at_least(0), MEDIUM, acts=True),
    #: Lower bound of consumer.heartbeat.interval.ms of a group.
    Key("group.consumer.min.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, acts=True),
    #: Lower bound of consumer.session.timeout.ms of a group.
    Key("group.consumer.min.session.timeout.ms", INT, 45000, at_least(1), MEDIUM, acts=True),
    #: How often subscriptions by pattern are matched against the topics anew.
    Key("group.consumer.regex.refresh.interval.ms", INT, 600_000, at_least(10000), MEDIUM, internal=True, acts=True),
    #: A member of a consumer group that sends no heartbeat for this long is removed.
    Key("group.consumer.session.timeout.ms", INT, 45000, at_least(1), MEDIUM, acts=True),
    #: How long the group coordinator gathers offset commits before it writes them. -1: the commits that arrive in one
    #: turn of the event loop become one batch. 0: it does not wait.
    Key("group.coordinator.append.linger.ms", INT, -1, at_least(-1), MEDIUM, acts=True),
    #: Threads for the group coordinator's slow work in Apache Kafka. The key has no effect here, because pykbroker does
    #: this work on its event loop.
    Key("group.coordinator.background.threads", INT, 2, at_least(1), HIGH),
    #: Largest buffer that Apache Kafka's group coordinator keeps for its next batch. pykbroker keeps none: accepted, no
    #: effect.
    Key("group.coordinator.cached.buffer.max.bytes", INT, 1_048_588, at_least(524_288), MEDIUM, CLUSTER_WIDE),
    #: Kinds of groups that are served; classic must be among them.
    Key(
        "group.coordinator.rebalance.protocols",
        LIST,
        ("classic", "consumer", "streams"),
        ListOf("consumer", "classic", "share", "streams", empty=False),
        MEDIUM,
        acts=True,
    ),
    #: Threads of the group coordinator in Apache Kafka. The key has no effect here, because pykbroker runs the
    #: coordinator on its event loop.
    Key("group.coordinator.threads", INT, 4, at_least(1), HIGH),
    #: How long an empty classic group waits for more members before its first rebalance.
    Key("group.initial.rebalance.delay.ms", INT, 3000, None, MEDIUM, acts=True),
    #: Longest session timeout that a member of a classic group may ask for.
    Key("group.max.session.timeout.ms", INT, 1_800_000, None, MEDIUM, acts=True),
    #: Most members of one classic group.
    Key("group.max.size", INT, MAX_INT, at_least(1), MEDIUM, acts=True),
    #: Shortest session timeout that a member of a classic group may ask for.
    Key("group.min.session.timeout.ms", INT, 6000, None, MEDIUM, acts=True),
    #: How many records a task of a streams group may lag and still count as caught up.
    Key("group.streams.acceptable.recovery.lag", LONG, 10_000, at_least(0), MEDIUM, internal=True),
    #: Least time between two assignments of a streams group.
    Key("group.streams.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM, CLUSTER_WIDE),
    #: Whether assignments of streams groups are computed on a thread of their own.
    Key("group.streams.assignor.offload.enable", BOOLEAN, True, None, MEDIUM, CLUSTER_WIDE, internal=True),
    #: Assignors that streams groups may choose from; the first is the default.
    Key("group.streams.assignors", LIST, ("sticky",), ListOf(empty=False), MEDIUM),
    #: How often members of a streams group are told to send heartbeats.
    Key("group.streams.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM),
    #: How long an empty streams group waits for more members before its first assignment.
    Key("group.streams.initial.rebalance.delay.ms", INT, 3000, at_least(0), MEDIUM),
    #: Upper bound of streams.assignment.interval.ms of a group.
    Key("group.streams.max.assignment.interval.ms", INT, 15000, at_least(0), MEDIUM),
    #: Upper bound of streams.heartbeat.interval.ms of a group.
    Key("group.streams.max.heartbeat.interval.ms", INT, 15000, at_least(1), MEDIUM),
    #: Upper bound of streams.session.timeout.ms of a group.
    Key("group.streams.max.session.timeout.ms", INT, 60000, at_least(1), MEDIUM),
    #: Most members of one streams group.
    Key("group.streams.max.size", INT, MAX_INT, at_least(1), MEDIUM),
    #: Upper bound of streams.num.standby.replicas of a group.
    Key("group.streams.max.standby.replicas", INT, 2, at_least(0), MEDIUM),
    #: Upper bound of streams.num.warmup.replicas of a group.
    Key("group.streams.max.warmup.replicas", INT, 20, at_least(0), MEDIUM, internal=True),
    #: Lower bound of streams.assignment.interval.ms of a group.
    Key("group.streams.min.assignment.interval.ms", INT, 0, at_least(0), MEDIUM),
    #: Lower bound of streams.heartbeat.interval.ms of a group.
    Key("group.streams.min.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM),
    #: Lower bound of streams.session.timeout.ms of a group.
    Key("group.streams.min.session.timeout.ms", INT, 45000, at_least(1), MEDIUM),
    #: Lower bound of streams.task.offset.interval.ms of a group.
    Key("group.streams.min.task.offset.interval.ms", INT, 15_000, at_least(1), MEDIUM, internal=True),
    #: Standby copies of each task's state in a streams group.
    Key("group.streams.num.standby.replicas", INT, 0, at_least(0), MEDIUM),
    #: Copies of task state that may be built at a time before tasks of a streams group move.
    Key("group.streams.num.warmup.replicas", INT, 2, at_least(0), MEDIUM, internal=True),
    #: Tags of clients that standby copies of a streams group are spread over.
    Key("group.streams.rack.aware.assignment.tags", LIST, (), ListOf(empty=True), LOW),
    #: A member of a streams group that sends no heartbeat for this long is removed.
    Key("group.streams.session.timeout.ms", INT, 45000, at_least(1), MEDIUM),
    #: How often members of a streams group report the offsets of their tasks.
    Key("group.streams.task.offset.interval.ms", INT, 60_000, at_least(1), MEDIUM, internal=True),
    #: Class that stores the descriptions of topologies of streams groups.
    Key("group.streams.topology.description.plugin.class", CLASS, None, None, MEDIUM),
    #: Most bytes of metadata that may come with a committed offset.
    Key("offset.metadata.max.bytes", INT, 4096, None, HIGH, acts=True),
    #: How long an offset commit waits until it is replicated.
    Key("offsets.commit.timeout.ms", INT, 5000, at_least(1), HIGH, acts=True),
    #: How much of the offsets topic is read at a time when a coordinator takes over a partition of it; never more than
    #: 64 KiB, because other requests wait during a read.
    Key("offsets.load.buffer.size", INT, 5_242_880, at_least(1), HIGH, acts=True),
    #: How often the group coordinator checks which committed offsets have expired.
    Key("offsets.retention.check.interval.ms", LONG, 600_000, at_least(1), HIGH, acts=True),
    #: How long offsets are kept after a group lost its last member. Offsets that were committed without a group are
    #: kept this long after the commit.
    Key("offsets.retention.minutes", INT, 10080, at_least(1), HIGH, acts=True),
    #: Codec of the offsets topic by number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
    Key("offsets.topic.compression.codec", INT, 0, None, HIGH, acts=True),
    #: Partitions of the offsets topic. Must not change once the topic exists. A committed offset takes about 60 bytes
    #: in the topic until the log cleaner compacts it.
    Key("offsets.topic.num.partitions", INT, 50, at_least(1), HIGH, acts=True),
    #: Replicas of the offsets topic. With fewer brokers the topic is not created and groups do not work.
    Key("offsets.topic.replication.factor", SHORT, 3, at_least(1), HIGH, acts=True),
    #: Segment size of the offsets topic; smaller segments are loaded and compacted sooner.
    Key("offsets.topic.segment.bytes", INT, 104_857_600, at_least(1), HIGH, acts=True),
)

SHARE = in_area(
    "Share groups",
    #: Least time between two assignments of a share group.
    Key("group.share.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM, CLUSTER_WIDE, acts=True),
    #: Whether the broker may create a dead letter topic that a share group names and that does not exist.
    Key("errors.deadletterqueue.auto.create.topics.enable", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE, acts=True),
    #: Beginning of the name of each dead letter topic.
    Key("errors.deadletterqueue.topic.name.prefix", STRING, "dlq.", None, MEDIUM, CLUSTER_WIDE, acts=True),
    #: Whether assignments of share groups are computed on a thread of their own.
    Key("group.share.assignor.offload.enable", BOOLEAN, True, None, MEDIUM, CLUSTER_WIDE, internal=True),
    #: The assignor of share groups; exactly one.
    Key("group.share.assignors", LIST, ("simple",), ListOf(empty=False), MEDIUM, acts=True),
    #: How often a record is delivered before it is given up on.
    Key("group.share.delivery.count.limit", INT, 5, between(2, 10), MEDIUM, acts=True),
    #: Class that writes dead letters.
    Key(
        "group.share.dlq.manager.class.name",
        STRING,
        "org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager",
        None,
        MEDIUM,
        internal=True,
    ),
    #: How often members of a share group are told to send heartbeats.
    Key("group.share.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, acts=True),
    #: Pause before an attempt to initialize share state is repeated.
    Key("group.share.initialize.retry.interval.ms", INT, 30000, at_least(1), LOW, internal=True, acts=True),
    #: Upper bound of share.assignment.interval.ms of a group.
    Key("group.share.max.assignment.interval.ms", INT, 15000, at_least(0), MEDIUM, acts=True),
    #: Upper bound of share.delivery.count.limit of a group.
    Key("group.share.max.delivery.count.limit", INT, 10, between(5, 25), MEDIUM, acts=True),
    #: Upper bound of share.heartbeat.interval.ms of a group.
    Key("group.share.max.heartbeat.interval.ms", INT, 15000, at_least(1), MEDIUM, acts=True),
    #: Upper bound of share.partition.max.record.locks of a group.
    Key("group.share.max.partition.max.record.locks", INT, 4000, between(2000, 10000), MEDIUM, acts=True),
    #: Upper bound of share.record.lock.duration.ms of a group.
    Key("group.share.max.record.lock.duration.ms", INT, 60000, between(30000, 3_600_000), MEDIUM, acts=True),
    #: Upper bound of share.session.timeout.ms of a group.
    Key("group.share.max.session.timeout.ms", INT, 60000, at_least(1), MEDIUM, acts=True),
    #: Most share sessions that are kept; at least group.share.max.size.
    Key("group.share.max.share.sessions", INT, 2000, at_least(1), MEDIUM, acts=True),
    #: Most members of one share group.
    Key("group.share.max.size", INT, 200, between(1, 1000), MEDIUM, acts=True),
    #: Lower bound of share.assignment.interval.ms of a group.
    Key("group.share.min.assignment.interval.ms", INT, 0, at_least(0), MEDIUM, acts=True),
    #: Lower bound of share.delivery.count.limit of a group.
    Key("group.share.min.delivery.count.limit", INT, 2, between(2, 5), MEDIUM, acts=True),
    #: Lower bound of share.heartbeat.interval.ms of a group.
    Key("group.share.min.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM, acts=True),
    #: Lower bound of share.partition.max.record.locks of a group.
    Key("group.share.min.partition.max.record.locks", INT, 100, between(100, 2000), MEDIUM, acts=True),
    #: Lower bound of share.record.lock.duration.ms of a group.
    Key("group.share.min.record.lock.duration.ms", INT, 15000, between(1000, 30000), MEDIUM, acts=True),
    #: Lower bound of share.session.timeout.ms of a group.
    Key("group.share.min.session.timeout.ms", INT, 45000, at_least(1), MEDIUM, acts=True),
    #: Most records of one partition that members of a share group hold at a time.
    Key("group.share.partition.max.record.locks", INT, 2000, between(100, 10000), MEDIUM, acts=True),
    #: Class that keeps the state of share groups. A broker starts with the default only.
    Key(
        "group.share.persister.class.name",
        STRING,
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        None,
        MEDIUM,
        internal=True,
        acts=True,
    ),
    #: How long a member holds a record before it goes to another.
    Key("group.share.record.lock.duration.ms", INT, 30000, between(1000, 3_600_000), MEDIUM, acts=True),
    #: A member of a share group that sends no heartbeat for this long is removed.
    Key("group.share.session.timeout.ms", INT, 45000, at_least(1), MEDIUM, acts=True),
    #: How long the share coordinator gathers records before it writes them. -1: the writes that arrive in one turn of
    #: the event loop become one batch. 0: it does not wait.
    Key("share.coordinator.append.linger.ms", INT, -1, at_least(-1), MEDIUM, acts=True),
    #: Largest buffer that Apache Kafka's share coordinator keeps for its next batch. pykbroker keeps none: accepted, no
    #: effect.
    Key("share.coordinator.cached.buffer.max.bytes", INT, 1_048_588, at_least(524_288), MEDIUM, CLUSTER_WIDE),
    #: How often share partitions without traffic get a new snapshot, so that older records can be deleted.
    Key(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        INT,
        300_000,
        at_least(1),
        LOW,
        internal=True,
        acts=True,
    ),
    #: How much of the share state topic is read at a time when a coordinator takes over a partition of it; never more
    #: than 64 KiB, because other requests wait during a read.
    Key("share.coordinator.load.buffer.size", INT, 5_242_880, at_least(1), HIGH, acts=True),
    #: How many updates are written between two snapshots of a share partition. More of them load slower, fewer of them
    #: write more bytes.
    Key("share.coordinator.snapshot.update.records.per.snapshot", INT, 500, between(0, 500), MEDIUM, acts=True),
    #: Codec of the share state topic by number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
    Key("share.coordinator.state.topic.compression.codec", INT, 0, None, HIGH, acts=True),
    #: min.insync.replicas of the share state topic.
    Key("share.coordinator.state.topic.min.isr", SHORT, 2, at_least(1), HIGH, acts=True),
    #: Partitions of the share state topic. Must not change once the topic exists.
    Key("share.coordinator.state.topic.num.partitions", INT, 50, at_least(1), HIGH, acts=True),
    #: How often records that no snapshot needs are cut off the share state topic.
    Key("share.coordinator.state.topic.prune.interval.ms", INT, 300_000, at_least(1), LOW, internal=True, acts=True),
    #: Replicas of the share state topic. With fewer brokers the topic is not created and share groups do not work.
    Key("share.coordinator.state.topic.replication.factor", SHORT, 3, at_least(1), HIGH, acts=True),
    #: Segment size of the share state topic.
    Key("share.coordinator.state.topic.segment.bytes", INT, 104_857_600, at_least(1), HIGH, acts=True),
    #: Threads of the share coordinator in Apache Kafka. The key has no effect here, because pykbroker runs the
    #: coordinator on its event loop.
    Key("share.coordinator.threads", INT, 1, at_least(1), MEDIUM),
    #: How long a write of share state waits until it is replicated.
    Key("share.coordinator.write.timeout.ms", INT, 5000, at_least(1), HIGH, acts=True),
    #: After how many finished ShareFetch requests Apache Kafka sweeps those that waited with them.
    Key("share.fetch.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM),
)

TRANSACTIONS = in_area(
    "Transactions and producers",
    #: How long the broker retries the check of a partition's transaction before it asks the producer to retry.
    Key("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, at_least(0), HIGH, acts=True),
    #: Pause between two such attempts.
    Key("add.partitions.to.txn.retry.backoff.ms", INT, 20, at_least(1), HIGH, acts=True),
    #: How often the broker checks which producer ids have expired.
    Key("producer.id.expiration.check.interval.ms", INT, 600_000, at_least(1), LOW, internal=True, acts=True),
    #: A partition forgets a producer id that has not written for this long.
    Key("producer.id.expiration.ms", INT, 86_400_000, at_least(1), LOW, CLUSTER_WIDE, acts=True),
    #: How often the transaction coordinator checks which transactions have timed out.
    Key("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10000, at_least(1), LOW, acts=True),
    #: Longest transaction timeout that a producer may ask for.
    Key("transaction.max.timeout.ms", INT, 900_000, at_least(1), HIGH, acts=True),
    #: Whether a broker accepts a write of a transaction only after the coordinator says that it is in progress.
    Key("transaction.partition.verification.enable", BOOLEAN, True, None, LOW, CLUSTER_WIDE, acts=True),
    #: How often the transaction coordinator checks which transactional ids have expired.
    Key("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, at_least(1), LOW, acts=True),
    #: How much of the transaction topic is read at a time when a coordinator takes over a partition of it; never more
    #: than 64 KiB, because other requests wait during a read.
    Key("transaction.state.log.load.buffer.size", INT, 5_242_880, at_least(1), HIGH, acts=True),
    #: min.insync.replicas of the transaction topic.
    Key("transaction.state.log.min.isr", INT, 2, at_least(1), HIGH, acts=True),
    #: Partitions of the transaction topic. Must not change once the topic exists. A transaction takes a few hundred
    #: bytes in the topic until the log cleaner compacts it.
    Key("transaction.state.log.num.partitions", INT, 50, at_least(1), HIGH, acts=True),
    #: Replicas of the transaction topic. With fewer brokers the topic is not created and transactions do not work.
    Key("transaction.state.log.replication.factor", SHORT, 3, at_least(1), HIGH, acts=True),
    #: Segment size of the transaction topic.
    Key("transaction.state.log.segment.bytes", INT, 104_857_600, at_least(1), HIGH, acts=True),
    #: Whether producers may let another system's coordinator commit or abort their transactions (KIP-939).
    Key("transaction.two.phase.commit.enable", BOOLEAN, False, None, LOW),
    #: A transactional id that is not used for this long is forgotten.
    Key("transactional.id.expiration.ms", INT, 604_800_000, at_least(1), HIGH, acts=True),
)
