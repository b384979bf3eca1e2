"""Keys that are ours and unknown to Apache Kafka: bounds that it does not have. All start with `pykbroker.`

DescribeConfigs shows them after Kafka's own; a properties file with them still starts Kafka, with a warning each.
"""

from __future__ import annotations

from pykbroker.config.kinds import HIGH, INT, LONG, LOW, MEDIUM, STRING, Key, OneOf, at_least, in_area

KEYS = in_area(
    "Bounds of pykbroker's own",
    Key("pykbroker.connection.max.unanswered.requests", INT, 1000, at_least(1), MEDIUM),
    Key("pykbroker.connection.max.unsent.bytes", LONG, 16_777_216, at_least(1), MEDIUM),
    Key("pykbroker.connection.request.receive.timeout.ms", INT, 30000, at_least(1), MEDIUM),
    Key("pykbroker.max.parked.requests", INT, 100_000, at_least(1), MEDIUM),
    Key("pykbroker.message.max.array.elements", INT, 1_000_000, at_least(1), LOW),
    Key("pykbroker.produce.record.validation", STRING, "full", OneOf("full", "header"), HIGH),
)
