"""CreateTopics, DeleteTopics, CreatePartitions."""

from __future__ import annotations

from typing import Any

from compat_tests.differential.session import Session
from pykbroker_wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from pykbroker_wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from pykbroker_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

NO_SUCH_ID = bytes(range(16))


def _topic(
    name: str, partitions: int = 1, factor: int = 1, configs: dict[str, str | None] | None = None, **more: Any
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        **more,
    )


def _assigned(
    name: str, *replicas: list[int], partitions: int = -1, factor: int = -1, first: int = 0
) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=first + i, broker_ids=ids) for i, ids in enumerate(replicas)
    ]
    return _topic(name, partitions, factor, assignments=assignments)


def _ask(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=20000, validate_only=validate_only)


def create_topics(s: Session) -> None:
    """CreateTopics in every version: new, existing, bad counts and names, assignments."""
    s.each("new", lambda v: _ask(_topic(s.name(f"new-{v}"), 2)))
    s.each("existing", lambda v: _ask(_topic(s.name(f"new-{v}"))))
    s.each("defaults", lambda v: _ask(_topic(s.name(f"defaults-{v}"), -1, -1)), [4, 5, 6, 7])
    s.each("defaults too early", lambda v: _ask(_topic(s.name(f"early-{v}"), -1, -1)), [2, 3])
    s.each("validate only", lambda v: _ask(_topic(s.name("validated"), 3), validate_only=True))
    s.each("none", lambda v: _ask())
    for partitions in (0, -2, 10001, 2**31 - 1):
        s.each(f"{partitions} partitions", lambda v, n=partitions: _ask(_topic(s.name("count"), n), validate_only=True))  # type: ignore[misc]
    for factor in (0, -2, 2, 3, 32767):
        s.each(f"replication factor {factor}", lambda v, n=factor: _ask(_topic(s.name("factor"), 1, n)))  # type: ignore[misc]
    for name in ("", ".", "..", "../evil", "a b", "a\nb", "ä", "x" * 250, "__cluster_metadata", "a/b"):
        s.each(f"name {name[:20]!r}", lambda v, n=name: _ask(_topic(n)))  # type: ignore[misc]
    s.each("the longest name", lambda v: _ask(_topic(s.name("l").ljust(249, "x")), validate_only=True))
    s.each("the same twice", lambda v: _ask(_topic(s.name(f"twice-{v}")), _topic(s.name(f"twice-{v}"), 2)))
    s.each(
        "the same twice and another",
        lambda v: _ask(_topic(s.name(f"2-{v}")), _topic(s.name(f"3-{v}")), _topic(s.name(f"2-{v}"))),
    )
    s.each("collides", lambda v: _ask(_topic(s.name("new_2"))))
    s.each("collides with itself", lambda v: _ask(_topic(s.name(f"self.{v}")), _topic(s.name(f"self_{v}"))))
    s.each("good, bad, existing", lambda v: _ask(_topic(s.name(f"mixed-{v}")), _topic("a b"), _topic(s.name("new-2"))))
    # With a timeout of 0, Kafka answers 7 and perhaps creates the topic; pykbroker creates it and reports that.


def create_assigned_topics(s: Session) -> None:
    """CreateTopics with assignments of its own."""
    s.each("assigned", lambda v: _ask(_assigned(s.name(f"assigned-{v}"), [1], [1])))
    s.each("from 1", lambda v: _ask(_assigned(s.name("from-1"), [1], first=1)))
    s.each("negative", lambda v: _ask(_assigned(s.name("negative"), [1], first=-1)))
    s.each("with a count", lambda v: _ask(_assigned(s.name("count"), [1], partitions=1)))
    s.each("with a factor", lambda v: _ask(_assigned(s.name("factor"), [1], factor=1)))
    s.each("with both", lambda v: _ask(_assigned(s.name("both"), [1], partitions=1, factor=1)))
    s.each("unknown broker", lambda v: _ask(_assigned(s.name("broker-9"), [9])))
    s.each("known and unknown broker", lambda v: _ask(_assigned(s.name("broker-1-9"), [1, 9])))
    s.each("negative broker", lambda v: _ask(_assigned(s.name("broker-minus"), [-1])))
    s.each("the same broker twice", lambda v: _ask(_assigned(s.name("broker-1-1"), [1, 1])))
    s.each("no brokers", lambda v: _ask(_assigned(s.name("no-broker"), [])))
    s.each("unequal", lambda v: _ask(_assigned(s.name("unequal"), [1], [1, 9])))
    twice = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])] * 2
    s.each("a partition twice", lambda v: _ask(_topic(s.name("0-0"), -1, -1, assignments=twice)))
    gap = [CreatableReplicaAssignment(partition_index=i, broker_ids=[1]) for i in (0, 2)]
    s.each("a gap", lambda v: _ask(_topic(s.name("gap"), -1, -1, assignments=gap)))
    backwards = [CreatableReplicaAssignment(partition_index=i, broker_ids=[1]) for i in (1, 0)]
    s.each("backwards", lambda v: _ask(_topic(s.name(f"backwards-{v}"), -1, -1, assignments=backwards)))


def create_topics_with_configs(s: Session) -> None:
    """CreateTopics with configurations, good and bad."""
    good: dict[str, str | None] = {
        "retention.ms": "1000",
        "cleanup.policy": "compact,delete",
        "max.message.bytes": "2000",
        "segment.bytes": "1048576",
    }
    s.each("configs", lambda v: _ask(_topic(s.name(f"configs-{v}"), 1, 1, good)))
    for key, value in (
        ("no.such.key", "1"),
        ("", "1"),
        ("retention.ms", "abc"),
        ("retention.ms", ""),
        ("retention.ms", "-2"),
        ("retention.ms", " 5 "),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", ""),
        ("cleanup.policy", "delete,delete"),
        ("compression.type", "brotli"),
        ("compression.type", "ZSTD"),
        ("min.insync.replicas", "0"),
        ("min.insync.replicas", "5"),
        ("segment.bytes", "13"),
        ("max.message.bytes", "-1"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("preallocate", "yes"),
        ("message.timestamp.type", "Never"),
        ("message.format.version", "3.0"),
        ("local.retention.ms", "2"),
        ("remote.storage.enable", "true"),
        ("retention.ms", None),
        ("leader.replication.throttled.replicas", "x"),
        ("leader.replication.throttled.replicas", "*"),
        ("min.compaction.lag.ms", "10"),
        ("file.delete.delay.ms", "60001"),
        ("message.timestamp.difference.max.ms", "5"),
        ("compression.zstd.level", "23"),
    ):
        s.each(
            f"{key}={value}",
            lambda v, k=key, x=value: _ask(_topic(s.name("config"), 1, 1, {k: x}), validate_only=True),  # type: ignore[misc]
            [2, 5, 7],
        )
    twice = [CreatableTopicConfig(name="retention.ms", value=value) for value in ("1", "2")]
    s.each(
        "the same key twice",
        lambda v: _ask(
            CreatableTopic(name=s.name("key-twice"), num_partitions=1, replication_factor=1, configs=twice),
            validate_only=True,
        ),
    )
    s.each(
        "lags the wrong way round",
        lambda v: _ask(
            _topic(s.name("lags"), 1, 1, {"min.compaction.lag.ms": "100", "max.compaction.lag.ms": "10"}),
            validate_only=True,
        ),
    )
    s.each(
        "bad config and bad factor",
        lambda v: _ask(_topic(s.name("both-bad"), 1, 3, {"retention.ms": "x"}), validate_only=True),
    )


def delete_topics(s: Session) -> None:
    """DeleteTopics by name and by id."""
    for version in range(1, 7):
        name = s.make_topic(f"name-{version}")
        states = [DeleteTopicState(name=name)]
        s.call(
            "by name",
            DeleteTopicsRequest(
                topic_names=[name] if version < 6 else [], topics=states if version == 6 else [], timeout_ms=20000
            ),
            version,
        )
        s.until_gone(name)
        s.call(
            "again",
            DeleteTopicsRequest(
                topic_names=[name] if version < 6 else [], topics=states if version == 6 else [], timeout_ms=20000
            ),
            version,
        )
    s.each("none", lambda v: DeleteTopicsRequest(timeout_ms=20000))
    s.each("bad name", lambda v: DeleteTopicsRequest(topic_names=["a b"], timeout_ms=20000), range(1, 6))
    s.each("empty name", lambda v: DeleteTopicsRequest(topic_names=[""], timeout_ms=20000), range(1, 6))
    s.each(
        "unknown twice", lambda v: DeleteTopicsRequest(topic_names=["no-such-topic"] * 2, timeout_ms=20000), range(1, 6)
    )
    s.each(
        "two unknown",
        lambda v: DeleteTopicsRequest(topic_names=["no-such-topic", "neither"], timeout_ms=20000),
        range(1, 6),
    )

    def ask(*topics: tuple[str | None, bytes]) -> DeleteTopicsRequest:
        return DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=i) for name, i in topics], timeout_ms=20000
        )

    zero = bytes(16)
    name = s.make_topic("by-id")
    topic_id = s.topic_id(name)
    s.call("unknown id", ask((None, NO_SUCH_ID)))
    s.call("zero id and no name", ask((None, zero)))
    s.call("name and id", ask((name, topic_id)))
    s.call("the same id twice", ask((None, topic_id), (None, topic_id)))
    s.call("a name twice", ask((name, zero), (name, zero)))
    s.call("id and name of one topic", ask((name, zero), (None, topic_id)))
    s.call("bad name", ask(("a b", zero)))
    s.call("unknown name", ask(("no-such-topic", zero)))
    s.call("by id", ask((None, topic_id)))
    s.until_gone(name)
    s.call("by id again", ask((None, topic_id)))
    other = s.make_topic("with-unknown")
    s.call("known and unknown", ask((other, zero), ("no-such-topic", zero)))


def create_partitions(s: Session) -> None:
    """CreatePartitions: more, fewer, as many; assignments; unknown topics."""

    def ask(*topics: tuple[str, int, list[list[int]] | None], validate_only: bool = False) -> CreatePartitionsRequest:
        return CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(
                    name=name,
                    count=count,
                    assignments=None
                    if replicas is None
                    else [CreatePartitionsAssignment(broker_ids=ids) for ids in replicas],
                )
                for name, count, replicas in topics
            ],
            timeout_ms=20000,
            validate_only=validate_only,
        )

    for version in range(4):
        name = s.make_topic(f"more-{version}")
        s.call("more, validated", ask((name, 5, None), validate_only=True), version)
        s.call("more", ask((name, 3, None)), version)
        s.until_partitions(name, 3)
        s.call("assigned", ask((name, 5, [[1], [1]])), version)
        s.until_partitions(name, 5)
    name = s.make_topic("topic", partitions=2)
    s.each("as many", lambda v: ask((name, 2, None)))
    s.each("fewer", lambda v: ask((name, 1, None)))
    s.each("zero", lambda v: ask((name, 0, None)))
    s.each("negative", lambda v: ask((name, -1, None)))
    # More than 10,000 at once: Kafka answers -1 here, where CreateTopics has 44; pykbroker answers 44 (tests/badinput).
    s.each("unknown topic", lambda v: ask(("no-such-topic", 3, None)))
    s.each("bad name", lambda v: ask(("a b", 3, None)))
    s.each("the same twice", lambda v: ask((name, 3, None), (name, 4, None)))
    s.each("the same twice and another", lambda v: ask((name, 3, None), ("no-such-topic", 4, None), (name, 4, None)))
    s.each("too few assignments", lambda v: ask((name, 4, [[1]])))
    s.each("too many assignments", lambda v: ask((name, 3, [[1], [1]])))
    s.each("empty assignments", lambda v: ask((name, 3, [])))
    s.each("empty assignment", lambda v: ask((name, 3, [[]])))
    s.each("unknown broker", lambda v: ask((name, 3, [[9]])))
    s.each("the same broker twice", lambda v: ask((name, 3, [[1, 1]])))
    s.each("another replication factor", lambda v: ask((name, 3, [[1, 9]])))
    s.each("unequal", lambda v: ask((name, 4, [[1], [1, 9]])))
    s.each("internal", lambda v: ask(("__cluster_metadata", 3, None)))
    s.each("none", lambda v: ask())


SCRIPTS = (create_topics, create_assigned_topics, create_topics_with_configs, delete_topics, create_partitions)
