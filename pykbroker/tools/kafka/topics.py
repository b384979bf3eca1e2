"""kafka-topics: create, delete, describe and change topics."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.kafka.reach import BAD_START, BOOTSTRAP, COMMAND_CONFIG, opened, said_of
from pykbroker.tools.kafka.tool_options import Accepted, Given, OptionError, Options, say_error
from pykbroker.tools.kafka.topic_filter import topic_pattern

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
    from pykbroker.tools.cluster.configs import DescribedConfig
    from pykbroker.tools.cluster.reassignments import OngoingMove
    from pykbroker.tools.cluster.topics import DescribedPartition, DescribedTopic, WantedTopic

_NAME = "org.apache.kafka.tools.TopicCommand"
_ACTIONS = ("create", "list", "alter", "describe", "delete")
_REPORTS = (
    "under-replicated-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "unavailable-partitions",
)
#: An option about one topic -> the actions that allow it.
_ONLY_WITH = {
    "config": ("alter", "create"),
    "partitions": ("alter", "create"),
    "replication-factor": ("create",),
    "replica-assignment": ("alter", "create"),
    "if-exists": ("alter", "delete", "describe"),
    "if-not-exists": ("create",),
    "exclude-internal": ("list", "describe"),
    "topics-with-overrides": ("describe",),
    **dict.fromkeys(_REPORTS, ("describe",)),
}

OPTIONS = Options(
    "This tool helps to create, delete, describe, or change a topic.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Accepted("alter", "Give a topic more partitions. Its configuration is changed by kafka-configs."),
        Accepted("at-min-isr-partitions", "Describe only partitions whose ISR is as small as min.insync.replicas."),
        Accepted("config", "A configuration of the new topic; may be repeated.", "name=value"),
        Accepted("create", "Create a topic."),
        Accepted("delete", "Delete topics."),
        Accepted("delete-config", "Ignored since Apache Kafka 4.0.", "name"),
        Accepted("describe", "Describe topics."),
        Accepted("exclude-internal", "List or describe no internal topics."),
        Accepted("if-exists", "Succeed where the topic does not exist (alter, delete, describe)."),
        Accepted("if-not-exists", "Succeed where the topic exists already (create)."),
        Accepted("list", "List topics."),
        Accepted("partition-size-limit-per-response", "The most partitions of one answer.", "count", int),
        Accepted("partitions", "The number of partitions (create, alter).", "count", int),
        Accepted("replica-assignment", "The brokers of each partition.", "broker:broker,broker:broker,..."),
        Accepted("replication-factor", "The number of replicas of each partition.", "count", int),
        Accepted("topic", "The topic; but for --create a regular expression.", "topic"),
        Accepted("topic-id", "The id of the topic to describe.", "id"),
        Accepted("topics-with-overrides", "Describe only topics with a configuration of their own."),
        Accepted("unavailable-partitions", "Describe only partitions whose leader is not available."),
        Accepted("under-min-isr-partitions", "Describe only partitions whose ISR is below min.insync.replicas."),
        Accepted("under-replicated-partitions", "Describe only partitions with replicas out of sync."),
    ],
)


def run(words: Sequence[str]) -> int:
    try:
        given = OPTIONS.parse(words)
        _check(words, given)
        cluster = opened(given)
    except BAD_START as error:
        print(said_of(error), file=sys.stderr)
        return 1
    with cluster:
        try:
            action = next(name for name in _ACTIONS if given.has(name))
            _RUN[action](cluster, given)
        except (AskFailed, OptionError, ValueError) as error:
            print(f"Error while executing topic command : {error}")
            say_error(error, _NAME)
            return 1
    return 0


def _check(words: Sequence[str], given: Given) -> None:
    if not words:
        OPTIONS.end_with_usage("Create, delete, describe, or change a topic.")
    OPTIONS.help_or_version(words, given)
    if sum(map(given.has, _ACTIONS)) != 1:
        OPTIONS.end_with_usage(
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
        )
    if given.has("delete-config"):
        print(
            "delete-config option is no longer supported and deprecated since version 4.0. "
            "The config will be fully removed in future releases.",
            file=sys.stderr,
        )
    if not given.has("bootstrap-server"):
        raise ValueError("--bootstrap-server must be specified")
    if given.has("describe") and given.has("if-exists") and not (given.has("topic") or given.has("topic-id")):
        OPTIONS.end_with_usage("--topic or --topic-id is required to describe a topic")
    if not (given.has("list") or given.has("describe")):
        OPTIONS.require(given, "topic")
    if given.has("alter"):
        if given.has("config"):
            OPTIONS.end_with_usage(
                'Option combination "[[bootstrap-server], [config]]" can\'t be used with option "[alter]" '
                "(To alter topic configurations, the kafka-configs tool can be used.)"
            )
        OPTIONS.require(given, "partitions")
    for option, actions in _ONLY_WITH.items():
        OPTIONS.exclude(given, option, *(action for action in _ACTIONS if action not in actions))
    if given.has("create"):
        OPTIONS.exclude(given, "replica-assignment", "partitions", "replication-factor")
    for report in _REPORTS:
        OPTIONS.exclude(given, report, "topics-with-overrides", *(other for other in _REPORTS if other != report))


# -- the actions ------------------------------------------------------------------------------------------------------


def _create(cluster: AskedCluster, given: Given) -> None:
    from pykbroker.tools.cluster import topics
    from pykbroker_wire.errors import ErrorCode

    wanted = wanted_topic(given)
    if "." in wanted.name or "_" in wanted.name:
        print(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could "
            "collide. To avoid issues it is best to use either, but not both."
        )
    try:
        topics.create(cluster, wanted)
    except AskFailed as error:
        if error.code == ErrorCode.TOPIC_ALREADY_EXISTS and given.has("if-not-exists"):
            return
        raise
    print(f"Created topic {wanted.name}.")


def wanted_topic(given: Given) -> WantedTopic:
    """Return the topic that --create describes. Raises ValueError and OptionError with Kafka's text."""
    from pykbroker.tools.cluster.topics import WantedTopic

    partitions, factor = given.number("partitions"), given.number("replication-factor")
    configs = {}
    for written in given.texts("config"):
        key, equals, value = written.partition("=")
        if not equals or not value.strip():
            raise ValueError(
                'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".'
            )
        configs[key.strip()] = value.strip()
    if factor is not None and not 1 <= factor <= 32767:
        raise ValueError("The replication factor must be between 1 and 32767 inclusive")
    if partitions is not None and partitions < 1:
        raise ValueError("The partitions must be greater than 0")
    return WantedTopic(
        name=given.text("topic") or "",
        partitions=partitions,
        replication_factor=factor,
        assignment=assignment_of(given.text("replica-assignment")),
        configs=configs,
    )


def assignment_of(written: str | None) -> list[list[int]]:
    """Return the brokers of each partition from `1:2,2:1`. Raises ValueError."""
    if not written:
        return []
    found: list[list[int]] = []
    for number, text in enumerate(written.split(",")):
        brokers = [int(broker.strip()) for broker in text.split(":")]
        if len(set(brokers)) < len(brokers):
            twice = sorted({broker for broker in brokers if brokers.count(broker) > 1})
            raise ValueError(f"Partition replica lists may not contain duplicate entries: {','.join(map(str, twice))}")
        found.append(brokers)
        if len(brokers) != len(found[0]):
            raise ValueError(f"Partition {number} has different replication factor: {brokers}")
    return found


def _list(cluster: AskedCluster, given: Given) -> None:
    print("\n".join(_names(cluster, given)))


def _alter(cluster: AskedCluster, given: Given) -> None:
    from pykbroker.tools.cluster import topics

    names = _existing(cluster, given)
    if not names:
        return
    count = given.number("partitions")
    assert count is not None, "required"
    assignment = assignment_of(given.text("replica-assignment"))
    before = {topic.name: len(topic.partitions) for topic in topics.described(cluster, names)}
    topics.add_partitions(cluster, {name: (count, assignment[before[name] :]) for name in names})


def _delete(cluster: AskedCluster, given: Given) -> None:
    from pykbroker.tools.cluster import topics

    names = _existing(cluster, given)
    if names:
        topics.delete(cluster, names)


def _describe(cluster: AskedCluster, given: Given) -> None:
    from pykbroker.tools.cluster import configs, reassignments, topics

    names = _named_by_id(cluster, given) or _existing(cluster, given)
    limit = given.number("partition-size-limit-per-response") or 2000
    found = topics.described(cluster, names, partitions_per_answer=limit)
    if not found:
        return
    kinds = [(configs.ResourceKind.TOPIC, topic.name) for topic in found]
    configured = configs.described(cluster, kinds)
    moves = reassignments.ongoing(cluster, [(topic.name, row.number) for topic in found for row in topic.partitions])
    alive = {node.id for node in cluster.nodes()}
    shown = _shown(given, alive)
    for topic in found:
        entries = configured[configs.ResourceKind.TOPIC, topic.name]
        for line in described_lines(topic, entries, moves, shown, only_overrides=given.has("topics-with-overrides")):
            print(line)


#: Returns True for a partition that is shown. Without a filter all partitions are shown, with their topic.
PartitionFilter = Callable[["DescribedPartition", "OngoingMove | None", int], bool]


def _shown(given: Given, alive: set[int]) -> PartitionFilter | None:
    if given.has("under-replicated-partitions"):
        return lambda partition, move, _: _replication_factor(partition, move) > len(partition.isr)
    if given.has("unavailable-partitions"):
        return lambda partition, _, __: partition.leader not in alive
    if given.has("under-min-isr-partitions"):
        return lambda partition, _, least: partition.leader < 0 or len(partition.isr) < least
    if given.has("at-min-isr-partitions"):
        return lambda partition, _, least: len(partition.isr) == least
    return None


def described_lines(
    topic: DescribedTopic,
    entries: Sequence[DescribedConfig],
    moves: dict[PartitionName, OngoingMove],
    shown: PartitionFilter | None,
    *,
    only_overrides: bool = False,
) -> list[str]:
    """Return the output of --describe for a topic."""
    from pykbroker.tools.cluster.configs import ConfigSource

    lines = []
    own = [entry for entry in entries if entry.source is not ConfigSource.DEFAULT_CONFIG]
    if shown is None and (own or not only_overrides):
        first = topic.partitions[0]
        written = ",".join(f"{entry.name}={entry.value}" for entry in own)
        lines.append(
            f"Topic: {topic.name}\tTopicId: {topic.id}\tPartitionCount: {len(topic.partitions)}\t"
            f"ReplicationFactor: {_replication_factor(first, moves.get((topic.name, first.number)))}\t"
            f"Configs: {written}"
        )
    if only_overrides:
        return lines
    least = next((int(entry.value or 1) for entry in entries if entry.name == "min.insync.replicas"), 1)
    for partition in topic.partitions:
        move = moves.get((topic.name, partition.number))
        if shown is None or shown(partition, move, least):
            lines.append(_partition_line(topic.name, partition, move))
    return lines


def _partition_line(topic: str, partition: DescribedPartition, move: OngoingMove | None) -> str:
    leader = partition.leader if partition.leader >= 0 else "none"
    line = (
        f"\tTopic: {topic}\tPartition: {partition.number}\tLeader: {leader}\t"
        f"Replicas: {_joined(partition.replicas)}\tIsr: {_joined(partition.isr)}"
    )
    if move is not None:
        line += f"\tAdding Replicas: {_joined(move.adding)}\tRemoving Replicas: {_joined(move.removing)}"
    return f"{line}\tElr: {_joined(partition.elr)}\tLastKnownElr: {_joined(partition.last_known_elr)}"


def _replication_factor(partition: DescribedPartition, move: OngoingMove | None) -> int:
    if move is not None and set(partition.replicas) & {*move.adding, *move.removing}:
        return len(move.replicas) - len(move.adding)
    return len(partition.replicas)


def _joined(brokers: Sequence[int] | None) -> str:
    return "N/A" if brokers is None else ",".join(map(str, brokers))


# -- names ------------------------------------------------------------------------------------------------------------


def _names(cluster: AskedCluster, given: Given) -> list[str]:
    from pykbroker.tools.cluster import topics

    pattern = given.text("topic")
    wanted = topic_pattern(pattern) if pattern is not None else None
    return [
        topic.name
        for topic in topics.listed(cluster)
        if not (topic.is_internal and given.has("exclude-internal"))
        and (wanted is None or wanted.fullmatch(topic.name))
    ]


def _existing(cluster: AskedCluster, given: Given) -> list[str]:
    names = _names(cluster, given)
    pattern = given.text("topic")
    if not names and pattern and not given.has("if-exists"):
        raise ValueError(f"Topic '{pattern}' does not exist as expected")
    return names


def _named_by_id(cluster: AskedCluster, given: Given) -> list[str]:
    from pykbroker.tools.cluster import topics

    wanted = given.text("topic-id")
    if wanted is None:
        return []
    names = [topic.name for topic in topics.listed(cluster) if topic.id == wanted]
    if not names and not given.has("if-exists"):
        raise ValueError(f"TopicId '{wanted}' does not exist as expected")
    return names


_RUN: dict[str, Callable[[AskedCluster, Given], None]] = {
    "create": _create,
    "list": _list,
    "alter": _alter,
    "describe": _describe,
    "delete": _delete,
}
