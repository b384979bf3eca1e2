"""Keys of a node as a server: identity and quorum, listeners and requests, policies, quotas and metrics.

Names, types, defaults and limits are those of Apache Kafka 4.4.0; see key_table.py. The comment above
a row is the text of the key: `make generate` writes it to texts/.
"""

from __future__ import annotations

from typing import Final

from pykbroker.config.kinds import (
    ALL_BROKERS,
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    DEFINES_LISTENERS,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MAX_INT,
    MAX_LONG,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    PER_MECHANISM,
    REQUIRED,
    SERVED_SASL,
    STANDARD_AUTHORIZER,
    STRING,
    THREAD_POOL,
    HostsAndPorts,
    Key,
    ListOf,
    NonNull,
    OneOf,
    RefusedValues,
    Voters,
    at_least,
    in_area,
)

#: Four keys may promise that listeners are secured later than at the start.
LATE_PROTECTION: Final = RefusedValues(
    "protection that begins later",
    when="the protocol of a listener in use is not PLAINTEXT, and it is set while the node runs",
)
DEFAULT_PRINCIPAL_BUILDER: Final = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"

NODE = in_area(
    "Node, quorum and metadata",
    #: How often a broker reports to the active controller that it is alive.
    Key("broker.heartbeat.interval.ms", INT, 2000, None, MEDIUM, acts=True),
    #: Older name of node.id. If both are given they must be equal.
    Key("broker.id", INT, -1, None, HIGH, acts=True),
    #: Where the broker stands, for instance a data centre or zone. Replicas of a partition are spread over racks, and
    #: consumers with the same client.rack may fetch nearby.
    Key("broker.rack", STRING, None, None, MEDIUM, acts=True),
    #: A broker that sends no heartbeat for this long is fenced by the controller: it loses its leaderships.
    Key("broker.session.timeout.ms", INT, 9000, None, MEDIUM, acts=True),
    #: Whether a stopping broker first hands its leaderships over to other replicas.
    Key("controlled.shutdown.enable", BOOLEAN, True, None, MEDIUM, acts=True),
    #: Names of the listeners that controllers use, separated by commas. A pure broker uses the first to reach them.
    Key(
        "controller.listener.names",
        LIST,
        REQUIRED,
        ListOf(empty=False),
        HIGH,
        acts=True,
        traits=(DEFINES_LISTENERS,),
        refused=LATE_PROTECTION,
    ),
    #: Controller events that take longer than this are logged each time, at least as warnings.
    Key("controller.performance.always.log.threshold.ms", LONG, 2000, at_least(0), MEDIUM, internal=True),
    #: How often the controller logs a summary of the time its events took.
    Key("controller.performance.sample.period.ms", LONG, 60000, at_least(100), MEDIUM, internal=True),
    #: How long the leader of the metadata quorum gathers records that come during an fsync before the next one. If the
    #: fsync was fast, it gathers only four times as long as that took.
    Key("controller.quorum.append.linger.ms", INT, 25, at_least(0), MEDIUM, acts=True),
    #: Whether a controller that finds itself outside the voter set of a dynamic quorum asks to be added to it.
    Key("controller.quorum.auto.join.enable", BOOLEAN, False, None, LOW, acts=True),
    #: host:port of some controllers, from which the current leader of a dynamic quorum is found.
    Key("controller.quorum.bootstrap.servers", LIST, (), HostsAndPorts(), HIGH, acts=True),
    #: Longest pause of a candidate after an election without a winner.
    Key("controller.quorum.election.backoff.max.ms", INT, 1000, at_least(0), HIGH, acts=True),
    #: How long a candidate waits for votes before it starts the next election.
    Key("controller.quorum.election.timeout.ms", INT, 1000, at_least(0), HIGH, acts=True),
    #: Most bytes of metadata log that one Fetch to the quorum leader asks for.
    Key("controller.quorum.fetch.max.bytes", INT, 1_048_576, at_least(1), LOW, acts=True),
    #: Most bytes of snapshot that one FetchSnapshot to the quorum leader asks for.
    Key("controller.quorum.fetch.snapshot.max.bytes", INT, 1_048_576, at_least(1), LOW, acts=True),
    #: A follower that cannot fetch from the leader for this long becomes a candidate; a leader that no majority fetches
    #: from for as long resigns.
    Key("controller.quorum.fetch.timeout.ms", INT, 2000, at_least(0), HIGH, acts=True),
    #: How long a quorum request waits for its answer.
    Key("controller.quorum.request.timeout.ms", INT, 2000, at_least(0), MEDIUM, acts=True),
    #: Pause before a failed quorum request is sent again.
    Key("controller.quorum.retry.backoff.ms", INT, 20, at_least(0), LOW, acts=True),
    #: The fixed set of voters as id@host:port, separated by commas. Left empty when the quorum is dynamic.
    Key("controller.quorum.voters", LIST, (), Voters(), HIGH, acts=True),
    #: How long a request from a broker to the controller may take.
    Key("controller.socket.timeout.ms", INT, 30000, None, MEDIUM),
    #: A starting broker that the controller has not accepted after this time gives up and stops.
    Key("initial.broker.registration.timeout.ms", INT, 60000, None, MEDIUM, acts=True),
    #: How long replaced files of the metadata log stay on disk under a .deleted name.
    Key("internal.metadata.delete.delay.millis", LONG, 60000, None, LOW, internal=True),
    #: Size of a metadata log segment in tests; not bound by the minimum of metadata.log.segment.bytes.
    Key("internal.metadata.log.segment.bytes", INT, None, None, LOW, internal=True, acts=True),
    #: Largest batch of records that is appended to the metadata log at once.
    Key("internal.metadata.max.batch.size.in.bytes", INT, 8_388_608, None, LOW, internal=True),
    #: Directory of the metadata log. Not set, it is the first one of log.dirs.
    Key("metadata.log.dir", STRING, None, None, HIGH, acts=True),
    #: After this many bytes of new metadata records a snapshot is written.
    Key("metadata.log.max.record.bytes.between.snapshots", LONG, 20_971_520, at_least(1), HIGH, acts=True),
    #: Longest time between snapshots while there are new metadata records; 0 looks at bytes only.
    Key("metadata.log.max.snapshot.interval.ms", LONG, 3_600_000, at_least(0), HIGH, acts=True),
    #: Largest size of one segment file of the metadata log.
    Key("metadata.log.segment.bytes", INT, 1_073_741_824, at_least(8_388_608), HIGH, acts=True),
    #: A metadata log segment is closed after this time even if it is not full.
    Key("metadata.log.segment.ms", LONG, 604_800_000, None, HIGH, acts=True),
    #: The active controller appends an empty record when nothing else was appended for this long, so that followers can
    #: tell how current they are; 0 turns it off.
    Key("metadata.max.idle.interval.ms", INT, 500, at_least(0), LOW, acts=True),
    #: Old segments and snapshots are deleted once the metadata log with its snapshots is larger than this.
    Key("metadata.max.retention.bytes", LONG, 104_857_600, None, HIGH, acts=True),
    #: Old segments and snapshots of the metadata log are deleted when they are older than this.
    Key("metadata.max.retention.ms", LONG, 604_800_000, None, HIGH, acts=True),
    #: The number of this node, unique among all brokers and controllers of the cluster. Must be given when
    #: process.roles is.
    Key("node.id", INT, REQUIRED, at_least(0), HIGH, acts=True),
    #: What this process is: broker, controller, or both.
    Key("process.roles", LIST, REQUIRED, ListOf("broker", "controller", empty=False), HIGH, acts=True),
    #: A node that has not finished starting after this time stops. By default there is no limit.
    Key("server.max.startup.time.ms", LONG, MAX_LONG, at_least(0), MEDIUM, internal=True, acts=True),
    #: Whether API versions that are still in development are offered. For tests only.
    Key("unstable.api.versions.enable", BOOLEAN, False, None, HIGH, internal=True),
    #: Whether feature levels that are still in development may be used. For tests only.
    Key("unstable.feature.versions.enable", BOOLEAN, False, None, HIGH, internal=True),
)

NETWORK = in_area(
    "Listeners, connections and requests",
    #: Addresses that clients and other nodes are told to connect to, when they differ from `listeners`. Not set, those
    #: of `listeners` are told.
    Key(
        "advertised.listeners",
        LIST,
        None,
        ListOf(empty=False, null=True),
        HIGH,
        acts=True,
        traits=(DEFINES_LISTENERS,),
        refused=LATE_PROTECTION,
    ),
    #: How long the close of a connection is put off after its authentication failed, to slow guessing down.
    Key("connection.failed.authentication.delay.ms", INT, 100, at_least(0), LOW, acts=True),
    #: A connection without a request for this long is closed.
    Key("connections.max.idle.ms", LONG, 600_000, None, MEDIUM, acts=True),
    #: Longest life of a SASL session: clients must authenticate again within this time, others are disconnected. 0
    #: never asks again.
    Key(
        "connections.max.reauth.ms",
        LONG,
        0,
        None,
        MEDIUM,
        acts=True,
        traits=(
            PER_MECHANISM,
            SERVED_SASL,
        ),
    ),
    #: After how many finished DeleteRecords requests Apache Kafka sweeps those that waited with them.
    Key("delete.records.purgatory.purge.interval.requests", INT, 1, None, MEDIUM),
    #: Listeners that may serve before the authorizer has loaded its rules. Not set, those of the controller.
    Key("early.start.listeners", LIST, None, ListOf(empty=True, null=True), HIGH, acts=True),
    #: Most bytes that a Fetch answer holds, whatever the client asks for; one batch may exceed it.
    Key("fetch.max.bytes", INT, 57_671_680, at_least(1024), MEDIUM, acts=True),
    #: After how many finished Fetch requests Apache Kafka sweeps those that waited with them.
    Key("fetch.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM),
    #: Name of the listener over which brokers talk to one another. Not set, security.inter.broker.protocol decides.
    Key("inter.broker.listener.name", STRING, None, None, MEDIUM, acts=True, traits=(DEFINES_LISTENERS,)),
    #: Which security protocol each listener name stands for, as NAME:PROTOCOL, separated by commas.
    Key(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        None,
        LOW,
        PER_BROKER,
        acts=True,
        traits=(DEFINES_LISTENERS,),
        refused=LATE_PROTECTION,
    ),
    #: Addresses to listen on, as NAME://host:port, separated by commas. An empty host is all interfaces; without
    #: `advertised.listeners` clients and other nodes are then told the name of the machine, as it is at the start.
    Key(
        "listeners",
        LIST,
        ("PLAINTEXT://:9092",),
        ListOf(empty=False),
        HIGH,
        PER_BROKER,
        acts=True,
        traits=(DEFINES_LISTENERS,),
        refused=LATE_PROTECTION,
    ),
    #: Most new connections per second, over all listeners; one listener can have its own limit by prefix.
    Key(
        "max.connection.creation.rate",
        INT,
        MAX_INT,
        at_least(0),
        MEDIUM,
        CLUSTER_WIDE,
        acts=True,
        traits=(ALL_BROKERS,),
    ),
    #: Most connections at a time, over all listeners; one listener can have its own limit by prefix. The listener
    #: between brokers is served first.
    Key("max.connections", INT, MAX_INT, at_least(0), MEDIUM, CLUSTER_WIDE, acts=True, traits=(ALL_BROKERS,)),
    #: Most connections at a time from one address.
    Key("max.connections.per.ip", INT, MAX_INT, at_least(0), MEDIUM, CLUSTER_WIDE, acts=True),
    #: Limits for single addresses or hosts that replace max.connections.per.ip, as address:number.
    Key("max.connections.per.ip.overrides", STRING, "", None, MEDIUM, CLUSTER_WIDE, acts=True),
    #: Most incremental fetch sessions that are kept; those of followers push out others.
    Key("max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0), MEDIUM, acts=True),
    #: Most partitions that one DescribeTopicPartitions answer holds.
    Key("max.request.partition.size.limit", INT, 2000, at_least(1), MEDIUM, acts=True),
    #: Threads that handle requests in Apache Kafka. pykbroker serves clients on one event loop and accepts the value.
    Key("num.io.threads", INT, 8, at_least(1), HIGH, CLUSTER_WIDE, traits=(THREAD_POOL,)),
    #: Threads that read and write sockets in Apache Kafka, per listener. pykbroker serves clients on one event loop and
    #: accepts the value.
    Key(
        "num.network.threads",
        INT,
        3,
        at_least(1),
        HIGH,
        CLUSTER_WIDE,
        traits=(
            ALL_BROKERS,
            THREAD_POOL,
        ),
    ),
    #: After how many finished Produce requests Apache Kafka sweeps those that waited with them.
    Key("producer.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM),
    #: Most bytes of requests in memory that are not yet handled; beyond it sockets are not read. -1 is no limit.
    Key("queued.max.request.bytes", LONG, -1, None, MEDIUM, acts=True),
    #: Most requests that are read but not yet handled; beyond it sockets are not read.
    Key("queued.max.requests", INT, 500, at_least(1), HIGH),
    #: How long a request that the node itself sends waits for its answer.
    Key("request.timeout.ms", INT, 30000, None, HIGH, acts=True),
    #: Security protocol between brokers. Give either this or inter.broker.listener.name.
    Key(
        "security.inter.broker.protocol",
        STRING,
        "PLAINTEXT",
        OneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        MEDIUM,
        traits=(DEFINES_LISTENERS,),
        refused=RefusedValues("protection that begins later", when="it is not PLAINTEXT, and set while the node runs"),
    ),
    #: Upper limit to which the time for setting up an outgoing connection grows with each failure.
    Key("socket.connection.setup.timeout.max.ms", LONG, 30000, None, MEDIUM, acts=True),
    #: How long the first attempt to set up an outgoing connection may take.
    Key("socket.connection.setup.timeout.ms", LONG, 10000, None, MEDIUM, acts=True),
    #: Connections that the operating system holds for us before they are accepted.
    Key("socket.listen.backlog.size", INT, 50, at_least(1), MEDIUM, acts=True),
    #: SO_RCVBUF of client sockets; -1 leaves it to the operating system.
    Key("socket.receive.buffer.bytes", INT, 102_400, None, HIGH, acts=True),
    #: Largest request that is read; a longer one closes its connection.
    Key("socket.request.max.bytes", INT, 104_857_600, at_least(1), HIGH, acts=True),
    #: SO_SNDBUF of client sockets; -1 leaves it to the operating system.
    Key("socket.send.buffer.bytes", INT, 102_400, None, HIGH, acts=True),
)

OPERATIONS = in_area(
    "Security policy, quotas and metrics",
    #: Class of a policy that may refuse changes of configuration. Served is a class of Python, `python:package.Class`.
    Key(
        "alter.config.policy.class.name",
        CLASS,
        None,
        None,
        LOW,
        acts=True,
        refused=RefusedValues("policies for configuration", python=True, role="controller", served="Python"),
    ),
    #: Class that decides who may do what. Empty: everyone may do everything. Served is
    #: org.apache.kafka.metadata.authorizer.StandardAuthorizer, with its own keys super.users (principals,
    #: `User:admin;User:other`) and allow.everyone.if.no.acl.found (true or false), and `python:package.Class`.
    Key(
        "authorizer.class.name",
        STRING,
        "",
        NonNull(),
        LOW,
        acts=True,
        refused=RefusedValues(
            "authorization by this class",
            harmless=(STANDARD_AUTHORIZER,),
            python=True,
            served="StandardAuthorizer and Python",
        ),
    ),
    #: Class that works out which client quota holds for a request.
    Key("client.quota.callback.class", CLASS, None, None, LOW, refused=RefusedValues("client quotas")),
    #: Names of providers that resolve ${name:path:key} inside other values, when a node starts. Served are Apache
    #: Kafka's EnvVarConfigProvider, FileConfigProvider and DirectoryConfigProvider, with config.providers.<name>.class,
    #: .param.allowlist.pattern and .param.allowed.paths.
    Key(
        "config.providers",
        LIST,
        (),
        ListOf(empty=True),
        LOW,
        CLUSTER_WIDE,
        acts=True,
        refused=RefusedValues(
            "config providers of other classes",
            when="one of them has another class than EnvVarConfigProvider, FileConfigProvider and "
            "DirectoryConfigProvider",
        ),
    ),
    #: How many windows a quota on topic changes is averaged over.
    Key("controller.quota.window.num", INT, 11, at_least(1), LOW),
    #: Length of one such window.
    Key("controller.quota.window.size.seconds", INT, 1, at_least(1), LOW),
    #: Class of a policy that may refuse new topics. Served is a class of Python, `python:package.Class`.
    Key(
        "create.topic.policy.class.name",
        CLASS,
        None,
        None,
        LOW,
        acts=True,
        refused=RefusedValues("policies for new topics", python=True, role="controller", served="Python"),
    ),
    #: How often expired delegation tokens are removed.
    Key("delegation.token.expiry.check.interval.ms", LONG, 3_600_000, at_least(1), LOW),
    #: How long a delegation token is good for unless it is renewed.
    Key("delegation.token.expiry.time.ms", LONG, 86_400_000, at_least(1), MEDIUM),
    #: A delegation token that is older than this cannot be renewed.
    Key("delegation.token.max.lifetime.ms", LONG, 604_800_000, at_least(1), MEDIUM),
    #: Secret that signs delegation tokens, the same on every node. Without it there are none.
    Key("delegation.token.secret.key", PASSWORD, None, None, MEDIUM, refused=RefusedValues("delegation tokens")),
    #: How often the reporters in kafka.metrics.reporters are asked to report.
    Key("kafka.metrics.polling.interval.secs", INT, 10, at_least(1), LOW),
    #: Classes that report Apache Kafka's older kind of metrics.
    Key("kafka.metrics.reporters", LIST, (), ListOf(empty=True), LOW),
    #: Classes that are told of each metric.
    Key(
        "metric.reporters",
        LIST,
        ("org.apache.kafka.common.metrics.JmxReporter",),
        ListOf(empty=True),
        LOW,
        CLUSTER_WIDE,
    ),
    #: How many samples a windowed metric is made of.
    Key("metrics.num.samples", INT, 2, at_least(1), LOW, acts=True),
    #: Which metrics are recorded: INFO, DEBUG or TRACE.
    Key("metrics.recording.level", STRING, "INFO", None, LOW),
    #: Length of one sample of a windowed metric.
    Key("metrics.sample.window.ms", LONG, 30000, at_least(1), LOW, acts=True),
    #: Class that makes a principal out of an authenticated connection.
    Key(
        "principal.builder.class",
        CLASS,
        DEFAULT_PRINCIPAL_BUILDER,
        None,
        MEDIUM,
        PER_BROKER,
        acts=True,
        refused=RefusedValues(
            "principal builders of this class", harmless=(DEFAULT_PRINCIPAL_BUILDER,), python=True, served="Python"
        ),
    ),
    #: How many windows a client quota is averaged over.
    Key("quota.window.num", INT, 11, at_least(1), LOW, acts=True),
    #: Length of one such window.
    Key("quota.window.size.seconds", INT, 1, at_least(1), LOW, acts=True),
    #: Java security providers to install. Means nothing outside a JVM.
    Key("security.providers", STRING, None, None, LOW, refused=RefusedValues("security providers")),
    #: Largest batch of its own metrics that a client may push.
    Key("telemetry.max.bytes", INT, 1_048_576, at_least(1), LOW),
)
