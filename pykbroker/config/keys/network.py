"""Keys of listeners, sockets, connections, request queues and the threads behind them.

Names, types, defaults and limits are those of Apache Kafka 4.3.1; see table.py.
"""

from __future__ import annotations

from pykbroker.config.kinds import (
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MAX_INT,
    MEDIUM,
    PER_BROKER,
    STRING,
    Key,
    ListOf,
    OneOf,
    at_least,
    in_area,
)

KEYS = in_area(
    "Listeners, connections and requests",
    Key("advertised.listeners", LIST, None, ListOf(empty=False, null=True), HIGH),
    Key("connection.failed.authentication.delay.ms", INT, 100, at_least(0), LOW),
    Key("connections.max.idle.ms", LONG, 600_000, None, MEDIUM),
    Key("connections.max.reauth.ms", LONG, 0, None, MEDIUM),
    Key("delete.records.purgatory.purge.interval.requests", INT, 1, None, MEDIUM),
    Key("early.start.listeners", LIST, None, ListOf(empty=True, null=True), HIGH),
    Key("fetch.max.bytes", INT, 57_671_680, at_least(1024), MEDIUM),
    Key("fetch.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM),
    Key("inter.broker.listener.name", STRING, None, None, MEDIUM),
    Key(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        None,
        LOW,
        PER_BROKER,
    ),
    Key("listeners", LIST, ("PLAINTEXT://:9092",), ListOf(empty=False), HIGH, PER_BROKER),
    Key("max.connection.creation.rate", INT, MAX_INT, at_least(0), MEDIUM, CLUSTER_WIDE),
    Key("max.connections", INT, MAX_INT, at_least(0), MEDIUM, CLUSTER_WIDE),
    Key("max.connections.per.ip", INT, MAX_INT, at_least(0), MEDIUM, CLUSTER_WIDE),
    Key("max.connections.per.ip.overrides", STRING, "", None, MEDIUM, CLUSTER_WIDE),
    Key("max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0), MEDIUM),
    Key("max.request.partition.size.limit", INT, 2000, at_least(1), MEDIUM),
    Key("num.io.threads", INT, 8, at_least(1), HIGH, CLUSTER_WIDE),
    Key("num.network.threads", INT, 3, at_least(1), HIGH, CLUSTER_WIDE),
    Key("producer.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM),
    Key("queued.max.request.bytes", LONG, -1, None, MEDIUM),
    Key("queued.max.requests", INT, 500, at_least(1), HIGH),
    Key("request.timeout.ms", INT, 30000, None, HIGH),
    Key(
        "security.inter.broker.protocol",
        STRING,
        "PLAINTEXT",
        OneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        MEDIUM,
    ),
    Key("socket.connection.setup.timeout.max.ms", LONG, 30000, None, MEDIUM),
    Key("socket.connection.setup.timeout.ms", LONG, 10000, None, MEDIUM),
    Key("socket.listen.backlog.size", INT, 50, at_least(1), MEDIUM),
    Key("socket.receive.buffer.bytes", INT, 102_400, None, HIGH),
    Key("socket.request.max.bytes", INT, 104_857_600, at_least(1), HIGH),
    Key("socket.send.buffer.bytes", INT, 102_400, None, HIGH),
)
