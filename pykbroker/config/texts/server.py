"""Texts of the keys in keys/server.py."""

TEXTS = """\
broker.heartbeat.interval.ms
    How often a broker reports to the active controller that it is alive.
broker.id
    Older name of node.id. If both are given they must be equal.
broker.rack
    Where the broker stands, for instance a data centre or zone. Replicas of a partition are spread over racks, and
    consumers with the same client.rack may fetch nearby.
broker.session.timeout.ms
    A broker that sends no heartbeat for this long is fenced by the controller: it loses its leaderships.
controlled.shutdown.enable
    Whether a stopping broker first hands its leaderships over to other replicas.
controller.listener.names
    Names of the listeners that controllers use, separated by commas. A pure broker uses the first to reach them.
controller.performance.always.log.threshold.ms
    Controller events that take longer than this are logged each time, at least as warnings.
controller.performance.sample.period.ms
    How often the controller logs a summary of the time its events took.
controller.quorum.append.linger.ms
    How long the leader of the metadata quorum gathers records that come during an fsync before the next one.
controller.quorum.auto.join.enable
    Whether a controller that finds itself outside the voter set of a dynamic quorum asks to be added to it.
controller.quorum.bootstrap.servers
    host:port of some controllers, from which the current leader of a dynamic quorum is found.
controller.quorum.election.backoff.max.ms
    Longest pause of a candidate after an election without a winner.
controller.quorum.election.timeout.ms
    How long a candidate waits for votes before it starts the next election.
controller.quorum.fetch.max.bytes
    Most bytes of metadata log that one Fetch to the quorum leader asks for.
controller.quorum.fetch.snapshot.max.bytes
    Most bytes of snapshot that one FetchSnapshot to the quorum leader asks for.
controller.quorum.fetch.timeout.ms
    A follower that cannot fetch from the leader for this long becomes a candidate; a leader that no majority fetches
    from for as long resigns.
controller.quorum.request.timeout.ms
    How long a quorum request waits for its answer.
controller.quorum.retry.backoff.ms
    Pause before a failed quorum request is sent again.
controller.quorum.voters
    The fixed set of voters as id@host:port, separated by commas. Left empty when the quorum is dynamic.
controller.socket.timeout.ms
    How long a request from a broker to the controller may take.
initial.broker.registration.timeout.ms
    A starting broker that the controller has not accepted after this time gives up and stops.
internal.metadata.delete.delay.millis
    How long replaced files of the metadata log stay on disk under a .deleted name.
internal.metadata.log.segment.bytes
    Size of a metadata log segment in tests; not bound by the minimum of metadata.log.segment.bytes.
internal.metadata.max.batch.size.in.bytes
    Largest batch of records that is appended to the metadata log at once.
metadata.log.dir
    Directory of the metadata log. Not set, it is the first one of log.dirs.
metadata.log.max.record.bytes.between.snapshots
    After this many bytes of new metadata records a snapshot is written.
metadata.log.max.snapshot.interval.ms
    Longest time between snapshots while there are new metadata records; 0 looks at bytes only.
metadata.log.segment.bytes
    Largest size of one segment file of the metadata log.
metadata.log.segment.ms
    A metadata log segment is closed after this time even if it is not full.
metadata.max.idle.interval.ms
    The active controller appends an empty record when nothing else was appended for this long, so that followers can
    tell how current they are; 0 turns it off.
metadata.max.retention.bytes
    Old segments and snapshots are deleted once the metadata log with its snapshots is larger than this.
metadata.max.retention.ms
    Old segments and snapshots of the metadata log are deleted when they are older than this.
node.id
    The number of this node, unique among all brokers and controllers of the cluster. Must be given when
    process.roles is.
process.roles
    What this process is: broker, controller, or both.
server.max.startup.time.ms
    A node that has not finished starting after this time stops. By default there is no limit.
unstable.api.versions.enable
    Whether API versions that are still in development are offered. For tests only.
unstable.feature.versions.enable
    Whether feature levels that are still in development may be used. For tests only.
advertised.listeners
    Addresses that clients and other nodes are told to connect to, when they differ from `listeners`. Not set, those of
    `listeners` are told.
connection.failed.authentication.delay.ms
    How long the close of a connection is put off after its authentication failed, to slow guessing down.
connections.max.idle.ms
    A connection without a request for this long is closed.
connections.max.reauth.ms
    Longest life of a SASL session: clients must authenticate again within this time, others are disconnected. 0 never
    asks again.
delete.records.purgatory.purge.interval.requests
    After how many finished DeleteRecords requests Apache Kafka sweeps those that waited with them.
early.start.listeners
    Listeners that may serve before the authorizer has loaded its rules. Not set, those of the controller.
fetch.max.bytes
    Most bytes that a Fetch answer holds, whatever the client asks for; one batch may exceed it.
fetch.purgatory.purge.interval.requests
    After how many finished Fetch requests Apache Kafka sweeps those that waited with them.
inter.broker.listener.name
    Name of the listener over which brokers talk to one another. Not set, security.inter.broker.protocol decides.
listener.security.protocol.map
    Which security protocol each listener name stands for, as NAME:PROTOCOL, separated by commas.
listeners
    Addresses to listen on, as NAME://host:port, separated by commas. An empty host is all interfaces; without
    `advertised.listeners` clients and other nodes are then told the name of the machine, as it is at the start.
max.connection.creation.rate
    Most new connections per second, over all listeners; one listener can have its own limit by prefix.
max.connections
    Most connections at a time, over all listeners; one listener can have its own limit by prefix. The listener between
    brokers is served first.
max.connections.per.ip
    Most connections at a time from one address.
max.connections.per.ip.overrides
    Limits for single addresses or hosts that replace max.connections.per.ip, as address:number.
max.incremental.fetch.session.cache.slots
    Most incremental fetch sessions that are kept; those of followers push out others.
max.request.partition.size.limit
    Most partitions that one DescribeTopicPartitions answer holds.
num.io.threads
    Threads that handle requests in Apache Kafka. pykbroker serves clients on one event loop and accepts the value.
num.network.threads
    Threads that read and write sockets in Apache Kafka, per listener. pykbroker serves clients on one event loop and
    accepts the value.
producer.purgatory.purge.interval.requests
    After how many finished Produce requests Apache Kafka sweeps those that waited with them.
queued.max.request.bytes
    Most bytes of requests in memory that are not yet handled; beyond it sockets are not read. -1 is no limit.
queued.max.requests
    Most requests that are read but not yet handled; beyond it sockets are not read.
request.timeout.ms
    How long a request that the node itself sends waits for its answer.
security.inter.broker.protocol
    Security protocol between brokers. Give either this or inter.broker.listener.name.
share.fetch.purgatory.purge.interval.requests
    After how many finished ShareFetch requests Apache Kafka sweeps those that waited with them.
socket.connection.setup.timeout.max.ms
    Upper limit to which the time for setting up an outgoing connection grows with each failure.
socket.connection.setup.timeout.ms
    How long the first attempt to set up an outgoing connection may take.
socket.listen.backlog.size
    Connections that the operating system holds for us before they are accepted.
socket.receive.buffer.bytes
    SO_RCVBUF of client sockets; -1 leaves it to the operating system.
socket.request.max.bytes
    Largest request that is read; a longer one closes its connection.
socket.send.buffer.bytes
    SO_SNDBUF of client sockets; -1 leaves it to the operating system.
alter.config.policy.class.name
    Class of a policy that may refuse changes of configuration. Served is a class of Python, `python:package.Class`.
authorizer.class.name
    Class that decides who may do what. Empty: everyone may do everything.
    Served is org.apache.kafka.metadata.authorizer.StandardAuthorizer, with its own keys super.users (principals,
    `User:admin;User:other`) and allow.everyone.if.no.acl.found (true or false), and `python:package.Class`.
client.quota.callback.class
    Class that works out which client quota holds for a request.
config.providers
    Names of providers that resolve ${name:path:key} inside other values, when a node starts. Served are
    Apache Kafka's EnvVarConfigProvider, FileConfigProvider and DirectoryConfigProvider, with
    config.providers.<name>.class, .param.allowlist.pattern and .param.allowed.paths.
controller.quota.window.num
    How many windows a quota on topic changes is averaged over.
controller.quota.window.size.seconds
    Length of one such window.
create.topic.policy.class.name
    Class of a policy that may refuse new topics. Served is a class of Python, `python:package.Class`.
delegation.token.expiry.check.interval.ms
    How often expired delegation tokens are removed.
delegation.token.expiry.time.ms
    How long a delegation token is good for unless it is renewed.
delegation.token.max.lifetime.ms
    Age after which a delegation token cannot be renewed any more.
delegation.token.secret.key
    Secret that signs delegation tokens, the same on every node. Without it there are none.
kafka.metrics.polling.interval.secs
    How often the reporters in kafka.metrics.reporters are asked to report.
kafka.metrics.reporters
    Classes that report Apache Kafka's older kind of metrics.
metric.reporters
    Classes that are told of each metric.
metrics.num.samples
    How many samples a windowed metric is made of.
metrics.recording.level
    Which metrics are recorded: INFO, DEBUG or TRACE.
metrics.sample.window.ms
    Length of one sample of a windowed metric.
principal.builder.class
    Class that makes a principal out of an authenticated connection.
quota.window.num
    How many windows a client quota is averaged over.
quota.window.size.seconds
    Length of one such window.
security.providers
    Java security providers to install. Means nothing outside a JVM.
telemetry.max.bytes
    Largest batch of its own metrics that a client may push.
"""
