"""The one table of configuration keys: every broker, topic and group key of Apache Kafka 4.4.0, and a few of our own.

Responsible for the set of keys and for their synonyms. kinds.py has the class of a row, and keys/ the rows, which say
everything of a key. The texts stand above the rows as comments; the texts/ that are generated from them are loaded only
when needed. Importing this module builds some 460 small objects and must stay cheap: the node is ready within 300 ms of
process start.

compat_tests/differential/test_config_table.py compares the table with the released jars.
"""

from __future__ import annotations

from typing import Final

from pykbroker.config.keys import coordination, scoped, security, server, storage
from pykbroker.config.kinds import Key

_BROKER_AREAS: Final = (
    server.NODE,
    server.NETWORK,
    storage.LOG,
    storage.REPLICATION,
    coordination.GROUPS,
    coordination.SHARE,
    coordination.TRANSACTIONS,
    storage.REMOTE,
    security.TLS,
    security.SASL,
    server.OPERATIONS,
)

BROKER_KEYS: Final[dict[str, Key]] = {key.name: key for keys in _BROKER_AREAS for key in keys}
"""The 379 keys of Apache Kafka's server.properties."""

OWN_KEYS: Final[dict[str, Key]] = {key.name: key for key in scoped.OWN}
"""Keys of pykbroker alone; every name starts with `pykbroker.`"""

STATIC_KEYS: Final[dict[str, Key]] = BROKER_KEYS | OWN_KEYS
"""All keys of a properties file."""

DYNAMIC_ONLY_KEYS: Final[dict[str, Key]] = {key.name: key for key in scoped.DYNAMIC_ONLY}
"""Broker keys that exist only as dynamic configuration: three throttles."""

TOPIC_KEYS: Final[dict[str, Key]] = {key.name: key for key in scoped.TOPIC}
GROUP_KEYS: Final[dict[str, Key]] = {key.name: key for key in scoped.GROUP}

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000

# Topic key -> the broker keys that give its value if the topic has none, strongest first. Each has the factor that
# converts its value to the unit of the topic key.
TOPIC_SYNONYMS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.decompressed.message.bytes": (("max.decompressed.message.bytes", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "remote.copy.lag.bytes": (("log.remote.copy.lag.bytes", 1),),
    "remote.copy.lag.ms": (("log.remote.copy.lag.ms", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}

# Group key -> the broker key that gives its value if the group has none. A group key without a broker key is absent.
GROUP_SYNONYMS: Final[dict[str, str]] = {
    **{name: f"group.{name}" for name in GROUP_KEYS if f"group.{name}" in BROKER_KEYS},
    # Its first assignor is the default of a group.
    "streams.assignor.name": "group.streams.assignors",
}

_SYNONYM_CHAINS: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)


def broker_synonyms(name: str) -> tuple[str, ...]:
    """Return `name`, the broker keys with the same meaning in other units, and its fallback, the strongest first."""
    if name == "log.flush.interval.ms":
        return (name, "log.flush.scheduler.interval.ms")
    for chain in _SYNONYM_CHAINS:
        if name in chain:
            return chain
    return (name,)


def names_with(trait: str) -> tuple[str, ...]:
    """Return the keys of a properties file whose rows have the trait, in the order of the rows."""
    return tuple(name for name, key in STATIC_KEYS.items() if trait in key.traits)
