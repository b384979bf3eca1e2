"""Keys of authorizer, policies, delegation tokens, quotas, metrics.

Names, types, defaults and limits are those of Apache Kafka 4.3.1; see table.py.
"""

from __future__ import annotations

from pykbroker.config.kinds import (
    CLASS,
    CLUSTER_WIDE,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    STRING,
    Key,
    ListOf,
    NonNull,
    at_least,
    in_area,
)

KEYS = in_area(
    "Security policy, quotas and metrics",
    Key("alter.config.policy.class.name", CLASS, None, None, LOW),
    Key("authorizer.class.name", STRING, "", NonNull(), LOW),
    Key("client.quota.callback.class", CLASS, None, None, LOW),
    Key("config.providers", LIST, (), ListOf(empty=True), LOW, CLUSTER_WIDE),
    Key("controller.quota.window.num", INT, 11, at_least(1), LOW),
    Key("controller.quota.window.size.seconds", INT, 1, at_least(1), LOW),
    Key("create.topic.policy.class.name", CLASS, None, None, LOW),
    Key("delegation.token.expiry.check.interval.ms", LONG, 3_600_000, at_least(1), LOW),
    Key("delegation.token.expiry.time.ms", LONG, 86_400_000, at_least(1), MEDIUM),
    Key("delegation.token.max.lifetime.ms", LONG, 604_800_000, at_least(1), MEDIUM),
    Key("delegation.token.secret.key", PASSWORD, None, None, MEDIUM),
    Key("kafka.metrics.polling.interval.secs", INT, 10, at_least(1), LOW),
    Key("kafka.metrics.reporters", LIST, (), ListOf(empty=True), LOW),
    Key(
        "metric.reporters",
        LIST,
        ("org.apache.kafka.common.metrics.JmxReporter",),
        ListOf(empty=True),
        LOW,
        CLUSTER_WIDE,
    ),
    Key("metrics.num.samples", INT, 2, at_least(1), LOW),
    Key("metrics.recording.level", STRING, "INFO", None, LOW),
    Key("metrics.sample.window.ms", LONG, 30000, at_least(1), LOW),
    Key(
        "principal.builder.class",
        CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    Key("quota.window.num", INT, 11, at_least(1), LOW),
    Key("quota.window.size.seconds", INT, 1, at_least(1), LOW),
    Key("security.providers", STRING, None, None, LOW),
    Key("telemetry.max.bytes", INT, 1_048_576, at_least(1), LOW),
)
