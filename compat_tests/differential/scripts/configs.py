"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs."""

from __future__ import annotations

from compat_tests.differential.session import Session
from pykbroker_wire.messages import alter_configs, incremental_alter_configs
from pykbroker_wire.messages.alter_configs import AlterConfigsRequest
from pykbroker_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykbroker_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker_wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def _describe(
    *resources: tuple[int, str, list[str] | None], synonyms: bool = False, documentation: bool = False
) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
            )
            for kind, name, keys in resources
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )


def _set(*resources: tuple[int, str, list[tuple[str, str | None]]], validate_only: bool = False) -> AlterConfigsRequest:
    return AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[alter_configs.AlterableConfig(name=key, value=value) for key, value in pairs],
            )
            for kind, name, pairs in resources
        ],
        validate_only=validate_only,
    )


def _change(
    *resources: tuple[int, str, list[tuple[str, int, str | None]]], validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    incremental_alter_configs.AlterableConfig(name=key, config_operation=op, value=value)
                    for key, op, value in changes
                ],
            )
            for kind, name, changes in resources
        ],
        validate_only=validate_only,
    )


def describe_topic_configs(s: Session) -> None:
    """DescribeConfigs of topics: all keys, some, none; unknown topics and keys."""
    topic = s.make_topic(retention_ms="1000", cleanup_policy="compact")
    s.each("all", lambda v: _describe((TOPIC, topic, None)))
    s.each("all with synonyms", lambda v: _describe((TOPIC, topic, None), synonyms=True))
    s.each(
        "some with documentation",
        lambda v: _describe((TOPIC, topic, ["retention.ms", "segment.bytes"]), synonyms=True, documentation=True),
        [3, 4],
    )
    s.each("no keys", lambda v: _describe((TOPIC, topic, [])))
    s.each("unknown key", lambda v: _describe((TOPIC, topic, ["no.such.key", "retention.ms"])))
    s.each("the same key twice", lambda v: _describe((TOPIC, topic, ["retention.ms", "retention.ms"])))
    s.each("unknown topic", lambda v: _describe((TOPIC, "no-such-topic", None)))
    s.each("bad name", lambda v: _describe((TOPIC, "a b", None)))
    s.each("empty name", lambda v: _describe((TOPIC, "", None)))
    s.each(
        "the same topic twice", lambda v: _describe((TOPIC, topic, ["retention.ms"]), (TOPIC, topic, ["segment.ms"]))
    )
    s.each("nothing", lambda v: _describe())
    for kind in (0, 1, 3, 7, 99, -1):
        s.each(f"resource type {kind}", lambda v, k=kind: _describe((k, topic, None)))  # type: ignore[misc]


def describe_broker_configs(s: Session) -> None:
    """DescribeConfigs of brokers: all keys of the table, defaults of the cluster, other brokers."""
    s.each("all", lambda v: _describe((BROKER, "1", None)))
    s.call("all with synonyms and documentation", _describe((BROKER, "1", None), synonyms=True), 4)
    s.each(
        "some",
        lambda v: _describe(
            (BROKER, "1", ["log.retention.hours", "node.id", "listeners"]), synonyms=True, documentation=v > 2
        ),
    )
    s.each("cluster default", lambda v: _describe((BROKER, "", None)))
    for name in ("2", "x", "-1", " 1"):
        s.each(f"broker {name!r}", lambda v, n=name: _describe((BROKER, n, None)))  # type: ignore[misc]
    s.each("logger", lambda v: _describe((LOGGER, "1", ["no.such.logger"])))
    s.each("logger of broker 2", lambda v: _describe((LOGGER, "2", None)))
    s.each("client metrics", lambda v: _describe((METRICS, "subscription", None)))
    s.each("client metrics without a name", lambda v: _describe((METRICS, "", None)))
    s.each("group", lambda v: _describe((GROUP, "some-group", None)))
    s.each("group without a name", lambda v: _describe((GROUP, "", None)))


def documentation_of_configs(s: Session) -> None:
    """DescribeConfigs with documentation: present or not, for every key of a topic."""
    topic = s.make_topic()
    answer = s.ask(_describe((TOPIC, topic, None), (BROKER, "1", None), documentation=True), 4)
    for result in answer.results:
        s.note(
            f"resource type {result.resource_type}",
            {c.name: bool(c.documentation) for c in result.configs if not c.name.startswith("pykbroker.")},
        )


def alter_topic_configs(s: Session) -> None:
    """AlterConfigs and IncrementalAlterConfigs of topics."""
    topic = s.make_topic("t")

    def shown(label: str) -> None:
        s.until_published()
        s.call(
            label,
            _describe(
                (TOPIC, topic, ["retention.ms", "cleanup.policy", "segment.bytes", "max.message.bytes"]), synonyms=True
            ),
            4,
        )

    for version in range(3):
        s.call("set", _set((TOPIC, topic, [("retention.ms", f"{version}000"), ("cleanup.policy", "compact")])), version)
        shown("after set")
        s.call("replace", _set((TOPIC, topic, [("segment.bytes", "1048576")])), version)
        shown("after replace")
        s.call("clear", _set((TOPIC, topic, [])), version)
        shown("after clear")
    pairs: list[tuple[str, str | None]] = [
        ("no.such.key", "1"),
        ("retention.ms", "x"),
        ("retention.ms", None),
        ("retention.ms", ""),
        ("", "1"),
        ("segment.bytes", "1"),
    ]
    for key, value in pairs:
        s.each(f"set {key}={value}", lambda v, k=key, x=value: _set((TOPIC, topic, [(k, x)])))  # type: ignore[misc]
    s.each("set twice", lambda v: _set((TOPIC, topic, [("retention.ms", "1"), ("retention.ms", "2")])))
    # The same topic twice: Kafka never answers, and pykbroker answers 42 (tests/badinput).
    s.each("set, unknown topic", lambda v: _set((TOPIC, "no-such-topic", [("retention.ms", "1")])))
    s.each("set, bad name", lambda v: _set((TOPIC, "a b", [("retention.ms", "1")])))
    s.each("set, validated", lambda v: _set((TOPIC, topic, [("retention.ms", "77")]), validate_only=True))
    s.each("set, nothing", lambda v: _set())
    s.each(
        "set, one good one bad", lambda v: _set((TOPIC, topic, [("retention.ms", "5")]), (TOPIC, "no-such-topic", []))
    )
    for kind in (0, 1, 99):
        s.each(f"set, resource type {kind}", lambda v, k=kind: _set((k, topic, [("retention.ms", "5")])))  # type: ignore[misc]
    shown("at the end")


def change_topic_configs(s: Session) -> None:
    """IncrementalAlterConfigs of topics: every operation, good and bad."""
    topic = s.make_topic("t")

    def shown(label: str) -> None:
        s.until_published()
        s.call(
            label,
            _describe(
                (
                    TOPIC,
                    topic,
                    ["retention.ms", "cleanup.policy", "segment.bytes", "leader.replication.throttled.replicas"],
                ),
                synonyms=True,
            ),
            4,
        )

    for version in (0, 1):
        for label, changes in (
            ("set", [("retention.ms", SET, f"{version}000")]),
            ("append", [("cleanup.policy", APPEND, "compact")]),
            ("append again", [("cleanup.policy", APPEND, "compact,delete")]),
            ("subtract", [("cleanup.policy", SUBTRACT, "delete")]),
            ("subtract what is not there", [("cleanup.policy", SUBTRACT, "nothing")]),
            ("subtract the last", [("cleanup.policy", SUBTRACT, "compact")]),
            ("delete", [("retention.ms", DELETE, None)]),
            ("delete with a value", [("retention.ms", DELETE, "5")]),
            ("delete what is not set", [("segment.bytes", DELETE, None)]),
            ("two", [("retention.ms", SET, "5"), ("segment.bytes", SET, "1048577")]),
            ("the same key twice", [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)]),
            ("append to no list", [("retention.ms", APPEND, "5")]),
            ("subtract from no list", [("retention.ms", SUBTRACT, "5")]),
            # Operations that do not exist: Kafka answers -1, pykbroker 42 (tests/badinput).
            ("set null", [("retention.ms", SET, None)]),
            ("append null", [("cleanup.policy", APPEND, None)]),
            ("set empty", [("cleanup.policy", SET, "")]),
            ("bad value", [("retention.ms", SET, "x")]),
            ("unknown key", [("no.such.key", SET, "x")]),
            ("delete unknown key", [("no.such.key", DELETE, None)]),
            ("append a throttle", [("leader.replication.throttled.replicas", APPEND, "0:1")]),
            ("append another", [("leader.replication.throttled.replicas", APPEND, "1:1,2:1")]),
            ("subtract one", [("leader.replication.throttled.replicas", SUBTRACT, "1:1")]),
            ("append a bad one", [("leader.replication.throttled.replicas", APPEND, "x")]),
            ("empty", []),
        ):
            s.call(label, _change((TOPIC, topic, changes)), version)  # type: ignore[arg-type]
            shown(f"after {label}")
    for label, request in (
        (
            "topic twice",
            _change((TOPIC, topic, [("retention.ms", SET, "1")]), (TOPIC, topic, [("segment.ms", SET, "2")])),
        ),
        ("unknown topic", _change((TOPIC, "no-such-topic", [("retention.ms", SET, "1")]))),
        ("bad name", _change((TOPIC, "a b", [("retention.ms", SET, "1")]))),
        ("empty name", _change((TOPIC, "", [("retention.ms", SET, "1")]))),
        ("validated", _change((TOPIC, topic, [("retention.ms", SET, "77")]), validate_only=True)),
        ("validated, bad", _change((TOPIC, topic, [("retention.ms", SET, "x")]), validate_only=True)),
        ("nothing", _change()),
        (
            "good and bad",
            _change(
                (TOPIC, topic, [("retention.ms", SET, "6")]), (TOPIC, "no-such-topic", [("retention.ms", SET, "6")])
            ),
        ),
        ("resource type 0", _change((0, topic, [("retention.ms", SET, "1")]))),
        ("resource type 99", _change((99, topic, [("retention.ms", SET, "1")]))),
    ):
        s.each(label, lambda v, r=request: r)  # type: ignore[misc]
    shown("at the end")


def change_broker_configs(s: Session) -> None:
    """AlterConfigs and IncrementalAlterConfigs of brokers, of all brokers, of loggers, groups and client metrics."""
    keys = ["log.retention.ms", "max.connections", "num.io.threads", "log.cleaner.threads"]

    def shown(label: str) -> None:
        s.until_published()
        s.call(label, _describe((BROKER, "1", keys), (BROKER, "", None), synonyms=True), 4)

    for label, request in (
        ("set on broker 1", _change((BROKER, "1", [("log.retention.ms", SET, "70000")]))),
        ("set on all", _change((BROKER, "", [("log.retention.ms", SET, "80000")]))),
        ("delete on broker 1", _change((BROKER, "1", [("log.retention.ms", DELETE, None)]))),
        ("delete on all", _change((BROKER, "", [("log.retention.ms", DELETE, None)]))),
        ("max.connections", _change((BROKER, "1", [("max.connections", SET, "5000")]))),
        ("no max.connections", _change((BROKER, "1", [("max.connections", DELETE, None)]))),
        ("read-only", _change((BROKER, "1", [("node.id", SET, "5")]))),
        ("read-only on all", _change((BROKER, "", [("num.partitions", SET, "5")]))),
        ("per broker on all", _change((BROKER, "", [("listeners", SET, "PLAINTEXT://localhost:1")]))),
        ("unknown key", _change((BROKER, "1", [("no.such.key", SET, "5")]))),
        ("no unknown key", _change((BROKER, "1", [("no.such.key", DELETE, None)]))),
        ("bad value", _change((BROKER, "1", [("log.retention.ms", SET, "x")]))),
        ("bad value on all", _change((BROKER, "", [("num.io.threads", SET, "0")]))),
        ("too many threads at once", _change((BROKER, "", [("num.io.threads", SET, "1000")]))),
        ("broker 2", _change((BROKER, "2", [("log.retention.ms", SET, "5")]))),
        ("broker x", _change((BROKER, "x", [("log.retention.ms", SET, "5")]))),
        ("broker -1", _change((BROKER, "-1", [("log.retention.ms", SET, "5")]))),
        ("validated", _change((BROKER, "1", [("log.retention.ms", SET, "5")]), validate_only=True)),
        ("append to a list", _change((BROKER, "1", [("log.cleanup.policy", APPEND, "compact")]))),
        ("delete the list", _change((BROKER, "1", [("log.cleanup.policy", DELETE, None)]))),
    ):
        s.call(label, request)
        shown(f"after {label}")
    s.each("set", lambda v: _set((BROKER, "1", [("log.retention.ms", "90000")])))
    shown("after set")
    s.each("clear", lambda v: _set((BROKER, "1", [])))
    shown("after clear")
    for pairs in ([("no.such.key", "1")], [("node.id", "5")], [("log.retention.ms", "x")]):
        s.each(f"set {pairs}", lambda v, p=pairs: _set((BROKER, "1", p)))  # type: ignore[misc]
    s.each("clear again", lambda v: _set((BROKER, "1", [])))
    for label, request in (
        ("logger", _change((LOGGER, "1", [("no.such.logger", SET, "WARN")]), validate_only=True)),
        ("logger of broker 2", _change((LOGGER, "2", [("root", SET, "WARN")]))),
        ("bad level", _change((LOGGER, "1", [("root", SET, "LOUD")]))),
        ("group", _change((GROUP, s.name("g"), [("consumer.session.timeout.ms", SET, "50000")]))),
        ("group, unknown key", _change((GROUP, s.name("g"), [("no.such.key", SET, "50000")]))),
        ("group, bad value", _change((GROUP, s.name("g"), [("consumer.session.timeout.ms", SET, "x")]))),
        ("group, too small", _change((GROUP, s.name("g"), [("consumer.session.timeout.ms", SET, "1")]))),
        ("group without a name", _change((GROUP, "", [("consumer.session.timeout.ms", SET, "50000")]))),
        ("client metrics", _change((METRICS, s.name("m"), [("interval.ms", SET, "5000")]))),
        ("client metrics, bad", _change((METRICS, s.name("m"), [("interval.ms", SET, "1")]))),
        ("client metrics, unknown key", _change((METRICS, s.name("m"), [("no.such.key", SET, "1")]))),
        ("client metrics without a name", _change((METRICS, "", [("interval.ms", SET, "5000")]))),
    ):
        s.each(label, lambda v, r=request: r)  # type: ignore[misc]
    s.each("the group", lambda v: _describe((GROUP, s.name("g"), None), synonyms=True))
    s.each("the client metrics", lambda v: _describe((METRICS, s.name("m"), None), synonyms=True))


# For each numeric key of a group: the largest value that is too small and the smallest that is too large.
_GROUP_EDGES = {
    "consumer.session.timeout.ms": (44_999, 60_001),
    "consumer.heartbeat.interval.ms": (4_999, 15_001),
    "consumer.assignment.interval.ms": (-1, 15_001),
    "share.session.timeout.ms": (44_999, 60_001),
    "share.heartbeat.interval.ms": (4_999, 15_001),
    "share.assignment.interval.ms": (-1, 15_001),
    "share.record.lock.duration.ms": (14_999, 60_001),
    "share.delivery.count.limit": (1, 11),
    "share.partition.max.record.locks": (99, 4_001),
    "streams.session.timeout.ms": (44_999, 60_001),
    "streams.heartbeat.interval.ms": (4_999, 15_001),
    "streams.assignment.interval.ms": (-1, 15_001),
    "streams.initial.rebalance.delay.ms": (-1, 2**31),
    "streams.num.standby.replicas": (-1, 3),
}
_GROUP_WORDS = {
    "share.auto.offset.reset": ("earliest", "latest", "by_duration:PT1H", "by_duration:-PT1H", "never"),
    "share.isolation.level": ("read_committed", "read_uncommitted", "serializable"),
    "share.renew.acknowledge.enable": ("false", "TRUE", "perhaps"),
}


def change_group_configs(s: Session) -> None:
    """Every configuration key of a group, at and beyond its bounds; overrides together; a member's values."""
    group = s.name("g")

    def change(label: str, *changes: tuple[str, int, str | None], validate_only: bool = False) -> None:
        s.call(label, _change((GROUP, group, list(changes)), validate_only=validate_only))

    for key, (low, high) in _GROUP_EDGES.items():
        for value in (low, low + 1, high - 1, high):
            change(f"{key}={value}", (key, SET, str(value)))
        change(f"no {key}", (key, DELETE, None))
    for key, words in _GROUP_WORDS.items():
        for word in words:
            change(f"{key}={word}", (key, SET, word))
        change(f"no {key}", (key, DELETE, None))
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    change("two, one of them wrong", (session, SET, "50000"), (heartbeat, SET, "1"))
    change("the same key twice", (session, SET, "50000"), (session, SET, "51000"))
    change("no value", (session, SET, None))
    change("a blank value", (session, SET, ""))
    change("blanks around", (session, SET, " 50000 "))
    change("append", (session, APPEND, "50000"))
    change("subtract", (session, SUBTRACT, "50000"))
    change("delete what is not set", (heartbeat, DELETE, None))
    change("delete what does not exist", ("no.such.key", DELETE, None))
    change("a broker's key", ("group.consumer.session.timeout.ms", SET, "50000"))
    change("only validated", (session, SET, "59000"), validate_only=True)
    change("both", (session, SET, "55000"), (heartbeat, SET, "7000"))
    s.until_published()
    s.each("described", lambda v: _describe((GROUP, group, None), synonyms=True))
    s.each("two keys and another", lambda v: _describe((GROUP, group, [session, heartbeat, "no.such.key"])))
    s.each("set whole", lambda v: _set((GROUP, group, [(heartbeat, "8000")])))
    s.until_published()
    s.each("described again", lambda v: _describe((GROUP, group, [session, heartbeat]), synonyms=True))
    for pairs in ([(heartbeat, "1")], [("no.such.key", "1")], [(heartbeat, None)]):
        s.each(f"set {pairs}", lambda v, p=pairs: _set((GROUP, group, p)))  # type: ignore[misc]

    topic = s.make_topic()
    s.until_coordinator()

    def beat(label: str, epoch: int) -> None:
        join = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [topic], "topic_partitions": []}
        fields = join if epoch == 0 else {}
        s.call(
            label,
            ConsumerGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=epoch, **fields),  # type: ignore[arg-type]
        )

    beat("a member is told 8,000", 0)
    change("9,000", (heartbeat, SET, "9000"))
    s.until_published()
    beat("the member is told 9,000", 2)
    change("nothing", (heartbeat, DELETE, None))
    s.until_published()
    beat("the member is told 5,000", 2)
    beat("the member leaves", -1)


SCRIPTS = (
    describe_topic_configs,
    describe_broker_configs,
    documentation_of_configs,
    alter_topic_configs,
    change_topic_configs,
    change_broker_configs,
    change_group_configs,
)
