"""Texts of the keys in keys/coordination.py."""

TEXTS = """\
group.consumer.assignment.interval.ms
    Least time between two assignments of a consumer group; members that come and go in between share one.
group.consumer.assignors
    Assignors that consumer groups may choose from; the first is the default.
group.consumer.heartbeat.interval.ms
    How often members of a consumer group are told to send heartbeats.
group.consumer.max.assignment.interval.ms
    Upper bound of consumer.assignment.interval.ms of a group.
group.consumer.max.heartbeat.interval.ms
    Upper bound of consumer.heartbeat.interval.ms of a group.
group.consumer.max.session.timeout.ms
    Upper bound of consumer.session.timeout.ms of a group.
group.consumer.max.size
    Most members of one consumer group.
group.consumer.migration.policy
    Whether a group may change between the classic and the consumer protocol while it has members: up, down, both ways
    or not at all.
group.consumer.min.assignment.interval.ms
    Lower bound of consumer.assignment.interval.ms of a group.
group.consumer.min.heartbeat.interval.ms
    Lower bound of consumer.heartbeat.interval.ms of a group.
group.consumer.min.session.timeout.ms
    Lower bound of consumer.session.timeout.ms of a group.
group.consumer.regex.refresh.interval.ms
    How often subscriptions by pattern are matched against the topics anew.
group.consumer.session.timeout.ms
    A member of a consumer group that sends no heartbeat for this long is removed.
group.coordinator.append.linger.ms
    How long the group coordinator gathers offset commits before it writes them; -1 takes what arrives together, 0 does
    not wait.
group.coordinator.background.threads
    Threads for the group coordinator's slow work in Apache Kafka. pykbroker runs it on its loop: accepted, no effect.
group.coordinator.cached.buffer.max.bytes
    Largest buffer that Apache Kafka's group coordinator keeps for its next batch. pykbroker keeps none: accepted, no
    effect.
group.coordinator.rebalance.protocols
    Kinds of groups that are served; classic must be among them.
group.coordinator.threads
    Threads of the group coordinator in Apache Kafka. pykbroker runs it on its loop: accepted, no effect.
group.initial.rebalance.delay.ms
    How long an empty classic group waits for more members before its first rebalance.
group.max.session.timeout.ms
    Longest session timeout that a member of a classic group may ask for.
group.max.size
    Most members of one classic group.
group.min.session.timeout.ms
    Shortest session timeout that a member of a classic group may ask for.
group.streams.assignment.interval.ms
    Least time between two assignments of a streams group.
group.streams.heartbeat.interval.ms
    How often members of a streams group are told to send heartbeats.
group.streams.initial.rebalance.delay.ms
    How long an empty streams group waits for more members before its first assignment.
group.streams.max.assignment.interval.ms
    Upper bound of streams.assignment.interval.ms of a group.
group.streams.max.heartbeat.interval.ms
    Upper bound of streams.heartbeat.interval.ms of a group.
group.streams.max.session.timeout.ms
    Upper bound of streams.session.timeout.ms of a group.
group.streams.max.size
    Most members of one streams group.
group.streams.max.standby.replicas
    Upper bound of streams.num.standby.replicas of a group.
group.streams.min.assignment.interval.ms
    Lower bound of streams.assignment.interval.ms of a group.
group.streams.min.heartbeat.interval.ms
    Lower bound of streams.heartbeat.interval.ms of a group.
group.streams.min.session.timeout.ms
    Lower bound of streams.session.timeout.ms of a group.
group.streams.num.standby.replicas
    Standby copies of each task's state in a streams group.
group.streams.session.timeout.ms
    A member of a streams group that sends no heartbeat for this long is removed.
offset.metadata.max.bytes
    Most bytes of metadata that may come with a committed offset.
offsets.commit.timeout.ms
    How long an offset commit waits until it is replicated.
offsets.load.buffer.size
    How much of the offsets topic is read at a time when a coordinator takes over a partition of it; never more than
    64 KiB, because others wait meanwhile.
offsets.retention.check.interval.ms
    How often is checked which committed offsets have expired.
offsets.retention.minutes
    How long offsets are kept after a group lost its last member, or after the commit where there is no group.
offsets.topic.compression.codec
    Codec of the offsets topic by number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
offsets.topic.num.partitions
    Partitions of the offsets topic. Must not change once the topic exists. The topic is compacted, and as long as there
    is no log cleaner here it only grows: about 60 bytes for each committed offset, tombstones included.
offsets.topic.replication.factor
    Replicas of the offsets topic. With fewer brokers the topic is not created and groups do not work.
offsets.topic.segment.bytes
    Segment size of the offsets topic; small ones load and compact sooner.
group.share.assignment.interval.ms
    Least time between two assignments of a share group.
group.share.assignors
    The assignor of share groups; exactly one.
group.share.delivery.count.limit
    How often a record is delivered before it is given up on.
group.share.heartbeat.interval.ms
    How often members of a share group are told to send heartbeats.
group.share.initialize.retry.interval.ms
    Pause before an attempt to initialize share state is repeated.
group.share.max.assignment.interval.ms
    Upper bound of share.assignment.interval.ms of a group.
group.share.max.delivery.count.limit
    Upper bound of share.delivery.count.limit of a group.
group.share.max.heartbeat.interval.ms
    Upper bound of share.heartbeat.interval.ms of a group.
group.share.max.partition.max.record.locks
    Upper bound of share.partition.max.record.locks of a group.
group.share.max.record.lock.duration.ms
    Upper bound of share.record.lock.duration.ms of a group.
group.share.max.session.timeout.ms
    Upper bound of share.session.timeout.ms of a group.
group.share.max.share.sessions
    Most share sessions that are kept; at least group.share.max.size.
group.share.max.size
    Most members of one share group.
group.share.min.assignment.interval.ms
    Lower bound of share.assignment.interval.ms of a group.
group.share.min.delivery.count.limit
    Lower bound of share.delivery.count.limit of a group.
group.share.min.heartbeat.interval.ms
    Lower bound of share.heartbeat.interval.ms of a group.
group.share.min.partition.max.record.locks
    Lower bound of share.partition.max.record.locks of a group.
group.share.min.record.lock.duration.ms
    Lower bound of share.record.lock.duration.ms of a group.
group.share.min.session.timeout.ms
    Lower bound of share.session.timeout.ms of a group.
group.share.partition.max.record.locks
    Most records of one partition that members of a share group hold at a time.
group.share.persister.class.name
    Class that keeps the state of share groups.
group.share.record.lock.duration.ms
    How long a member holds a record before it goes to another.
group.share.session.timeout.ms
    A member of a share group that sends no heartbeat for this long is removed.
share.coordinator.append.linger.ms
    How long the share coordinator gathers records before it writes them; -1 adapts to the load, 0 does not wait.
share.coordinator.cached.buffer.max.bytes
    Largest buffer that the share coordinator keeps for its next batch.
share.coordinator.cold.partition.snapshot.interval.ms
    How often share partitions without traffic get a new snapshot, so that older records can go.
share.coordinator.load.buffer.size
    How much of the share state topic is read at a time when a coordinator takes over a partition of it.
share.coordinator.snapshot.update.records.per.snapshot
    How many updates are written between two snapshots of a share partition.
share.coordinator.state.topic.compression.codec
    Codec of the share state topic by number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
share.coordinator.state.topic.min.isr
    min.insync.replicas of the share state topic.
share.coordinator.state.topic.num.partitions
    Partitions of the share state topic. Must not change once the topic exists.
share.coordinator.state.topic.prune.interval.ms
    How often records that no snapshot needs are cut off the share state topic.
share.coordinator.state.topic.replication.factor
    Replicas of the share state topic. With fewer brokers the topic is not created and share groups do not work.
share.coordinator.state.topic.segment.bytes
    Segment size of the share state topic.
share.coordinator.threads
    Threads of the share coordinator in Apache Kafka; pykbroker accepts the value.
share.coordinator.write.timeout.ms
    How long a write of share state waits until it is replicated.
add.partitions.to.txn.retry.backoff.max.ms
    How long in all the check of a partition's transaction is retried before the producer is told to.
add.partitions.to.txn.retry.backoff.ms
    Pause between two such attempts.
producer.id.expiration.check.interval.ms
    How often is checked which producer ids have expired.
producer.id.expiration.ms
    A partition forgets a producer id that has not written for this long.
transaction.abort.timed.out.transaction.cleanup.interval.ms
    How often is checked which transactions have timed out.
transaction.max.timeout.ms
    Longest transaction timeout that a producer may ask for.
transaction.partition.verification.enable
    Whether a write in a transaction is refused unless the coordinator knows of the transaction.
transaction.remove.expired.transaction.cleanup.interval.ms
    How often is checked which transactional ids have expired.
transaction.state.log.load.buffer.size
    How much of the transaction topic is read at a time when a coordinator takes over a partition of it; never more
    than 64 KiB, because others wait meanwhile.
transaction.state.log.min.isr
    min.insync.replicas of the transaction topic.
transaction.state.log.num.partitions
    Partitions of the transaction topic. Must not change once the topic exists. The topic is compacted, and as long as
    there is no log cleaner here it only grows: a few hundred bytes for each transaction.
transaction.state.log.replication.factor
    Replicas of the transaction topic. With fewer brokers the topic is not created and transactions do not work.
transaction.state.log.segment.bytes
    Segment size of the transaction topic.
transaction.two.phase.commit.enable
    Whether producers may leave the end of a transaction to an outside coordinator (KIP-939).
transactional.id.expiration.ms
    A transactional id that is not used for this long is forgotten.
"""
