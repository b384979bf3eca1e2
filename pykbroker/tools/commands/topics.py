"""`pykbroker topics`: topics of any Kafka cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from pykbroker.tools.cluster.config_units import UNITS, with_plain_numbers
from pykbroker.tools.cluster.time_words import TIMES
from pykbroker.tools.commands.client_options import ClientOptions, check_changed_once, client_options, key_values
from pykbroker.tools.commands.command_group import CommandGroup
from pykbroker.tools.commands.completion import topic_names
from pykbroker.tools.commands.output import Output, Table, column, output_option
from pykbroker.tools.commands.time_options import time_ms

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster
    from pykbroker.tools.cluster.configs import ConfigChanges, DescribedConfig
    from pykbroker.tools.cluster.failure import AskFailed
    from pykbroker.tools.cluster.log_offsets import TimedOffset
    from pykbroker.tools.cluster.topics import DescribedTopic, ListedTopic


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic of a list."""

    topic: str
    partitions: int
    replication_factor: int = column("REPLICAS")
    #: partitions
    under_replicated: int = column("UNDER-REPLICATED")
    #: partitions
    leaderless: int = column("WITHOUT LEADER")
    internal: bool = column("INTERNAL")
    topic_id: str = column("")


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition of a topic; brokers by their ids."""

    partition: int
    #: None if the partition has no leader
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    #: None if the cluster does not return it (KIP-966)
    elr: tuple[int, ...] | None = column("ELR")
    offline: tuple[int, ...] = column("OFFLINE")


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """The description of a topic that `topics describe` prints."""

    topic: str
    topic_id: str
    internal: bool
    replication_factor: int
    #: the configurations that are set for the topic itself
    configs: dict[str, str]
    #: in effect, also if it is set for the whole cluster; None if the cluster does not return it
    min_insync_replicas: int | None
    partitions: tuple[PartitionRow, ...]


@dataclass(frozen=True, slots=True)
class LogEndsRow:
    """The offsets of a partition. They are None if it has no leader."""

    topic: str
    partition: int
    beginning: int | None
    end: int | None
    #: from the beginning to the end; a compacted or transactional log has fewer records
    offsets: int | None


@dataclass(frozen=True, slots=True)
class OffsetAtRow:
    """The offset of a partition at a time."""

    topic: str
    partition: int
    #: None if no record is so late
    offset: int | None


@dataclass(frozen=True, slots=True)
class SizeRow:
    """The size of a topic on the disks of its brokers."""

    topic: str
    partitions: int
    #: of one replica of each partition, the largest one
    bytes: int
    #: of all replicas
    all_replicas: int = column("BYTES OF ALL REPLICAS")


@dataclass(frozen=True, slots=True)
class ReplicaSizeRow:
    """One replica on the disk of its broker."""

    topic: str
    partition: int
    broker: int
    bytes: int
    #: the number of offsets by which it lags
    offset_lag: int = column("LAG")
    directory: str = ""
    #: True for the copy in the directory that the replica moves to
    future: bool = column("FUTURE", default=False)


@dataclass(frozen=True, slots=True)
class ChangedTopic:
    """The result of a command for a topic."""

    topic: str
    #: created, altered or deleted; unchanged if --if-exists or --if-not-exists applies
    outcome: str


_MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
_SAID: Final = {
    "created": "Created topic {}.",
    "altered": "Altered topic {}.",
    "deleted": "Deleted topic {}.",
    "unchanged": "Nothing to do for topic {}.",
}
_some_names = click.argument("names", nargs=-1, metavar="[TOPIC]...", shell_complete=topic_names)
_names = click.argument("names", nargs=-1, required=True, metavar="TOPIC...", shell_complete=topic_names)
_config_option = click.option(
    "-c",
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    help=f"A configuration, for example {UNITS} (may be repeated).",
)


@click.group("topics", cls=CommandGroup)
def command() -> None:
    """List, create, describe, alter and delete topics; their offsets and sizes."""


@command.command(
    "list",
    example="pykbroker topics list\npykbroker topics list 'orders-.*' --under-replicated -o json",
)
@_some_names
@click.option("--internal", is_flag=True, help="Also the topics that Kafka keeps for itself.")
@click.option("--under-replicated", is_flag=True, help="Only topics of which a replica is not in sync.")
@output_option
@client_options
def list_(client: ClientOptions, out: Output, names: tuple[str, ...], internal: bool, under_replicated: bool) -> None:
    """List topics.

    A TOPIC may be a regular expression of RE2 that matches whole names, for example 'orders-.*'.
    """
    from pykbroker.tools.cluster import topics
    from pykbroker.tools.commands.named_topics import named_topics

    with client.cluster() as cluster:
        found = topics.summaries(cluster)
    if names:
        wanted = named_topics(names, found)
        found = [one for one in found if one.name in wanted]
        internal = True
    rows = [
        TopicRow(
            one.name,
            one.partitions,
            one.replication_factor,
            one.under_replicated,
            one.leaderless,
            one.is_internal,
            one.id,
        )
        for one in found
        if (internal or not one.is_internal) and (one.under_replicated or not under_replicated)
    ]
    out.rows(TopicRow, rows)


@command.command("create", example="pykbroker topics create orders -p 3 -c retention.ms=7d -c segment.bytes=1GiB")
@_names
@click.option("-p", "--partitions", type=click.IntRange(min=1), help="How many (default: the cluster's).")
@click.option(
    "-r",
    "--replication-factor",
    type=click.IntRange(min=1),
    help="Replicas of each partition (default: the cluster's).",
)
@_config_option
@click.option("--if-not-exists", is_flag=True, help="A topic that there is already is no failure.")
@output_option
@client_options
def create(
    client: ClientOptions,
    out: Output,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """Create topics."""
    from pykbroker.config.key_table import TOPIC_KEYS
    from pykbroker.tools.cluster import topics
    from pykbroker.tools.cluster.failure import AskFailed
    from pykbroker.tools.commands.unknown_names import of_keys
    from pykbroker_wire.errors import ErrorCode

    wanted = with_plain_numbers(key_values("--config", configs))
    with client.cluster() as cluster, _told(out) as done:
        for name in names:
            try:
                topics.create(cluster, topics.WantedTopic(name, partitions, replication_factor, configs=wanted))
                done.append(ChangedTopic(name, "created"))
            except AskFailed as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not if_not_exists:
                    raise of_keys(error, wanted, TOPIC_KEYS) from error
                done.append(ChangedTopic(name, "unchanged"))


@command.command(
    "describe", example="pykbroker topics describe orders\npykbroker topics describe 'orders-.*' --leaderless"
)
@_some_names
@click.option("--under-replicated", is_flag=True, help="Only partitions of which a replica is not in sync.")
@click.option("--leaderless", is_flag=True, help="Only partitions without a leader.")
@output_option
@client_options
def describe(
    client: ClientOptions, out: Output, names: tuple[str, ...], under_replicated: bool, leaderless: bool
) -> None:
    """Describe topics: their configurations, and the replicas of each partition.

    Without a name every topic is described that is not one of Kafka's own. A TOPIC may be a regular expression of RE2
    that matches whole names, for example 'orders-.*'.
    """
    from pykbroker.tools.cluster import topics

    with client.cluster() as cluster:

        def attempt() -> tuple[list[DescribedTopic], dict[str, list[DescribedConfig]]]:
            described = topics.described(cluster, _chosen(topics.listed(cluster), names))
            return described, _configs(cluster, [one.name for one in described])

        # `attempt` is repeated if a topic is deleted between its requests.
        found, configs = cluster.settled(attempt)
    told = []
    for topic in found:
        partitions = tuple(
            row
            for row in _partition_rows(topic)
            if (not under_replicated or len(row.isr) < len(row.replicas)) and (not leaderless or row.leader is None)
        )
        if partitions or not (under_replicated or leaderless):
            told.append(
                TopicDescription(
                    topic.name,
                    topic.id,
                    topic.is_internal,
                    max((len(one.replicas) for one in topic.partitions), default=0),
                    _own(configs[topic.name]),
                    _min_insync_replicas(configs[topic.name]),
                    partitions,
                )
            )
    out.tables(told, *(Table(PartitionRow, one.partitions, _heading(one)) for one in told))


@command.command("alter", example="pykbroker topics alter orders --partitions 6 -c retention.ms=1h")
@click.argument("name", metavar="TOPIC", shell_complete=topic_names)
@click.option("-p", "--partitions", type=click.IntRange(min=1), help="More of them: none can be taken away.")
@_config_option
@click.option(
    "--delete-config", multiple=True, metavar="KEY", help="Take the topic's own value away (may be repeated)."
)
@output_option
@client_options
def alter(
    client: ClientOptions,
    out: Output,
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    delete_config: tuple[str, ...],
) -> None:
    """Give a topic more partitions or other configurations."""
    from pykbroker.config.key_table import TOPIC_KEYS
    from pykbroker.tools.cluster import configs as resources
    from pykbroker.tools.cluster import topics
    from pykbroker.tools.cluster.configs import ResourceKind
    from pykbroker.tools.cluster.failure import AskFailed
    from pykbroker.tools.commands.unknown_names import of_keys

    wanted = with_plain_numbers(key_values("--config", configs))
    check_changed_once(wanted, delete_config)
    changes = resources.changes_of(wanted, delete_config)
    if partitions is None and not changes:
        raise click.UsageError(
            "Say what to alter: --partitions, --config or --delete-config.", click.get_current_context()
        )
    with client.cluster() as cluster:
        known = {one.name: len(one.partitions) for one in topics.listed(cluster)}
        _check_names([name], known)
        before = {row.name: row.value for row in _configs(cluster, [name])[name]} if changes else {}
        try:
            if changes:
                resources.alter(cluster, (ResourceKind.TOPIC, name), changes)
            if partitions is not None:
                topics.add_partitions(cluster, {name: (partitions, ())})
        except AskFailed as error:
            raise of_keys(error, changes, TOPIC_KEYS) from error
    said = _SAID["altered"].format(name).rstrip(".")
    lines = _said_of_changes(changes, before)
    if partitions is not None:
        lines.append(f"partitions={partitions} (before: {known[name]})")
    out.done(f"{said}: {', '.join(lines)}.", [ChangedTopic(name, "altered")])


def _said_of_changes(changes: ConfigChanges, before: Mapping[str, str | None]) -> list[str]:
    """Return the words about each change of a configuration. `before`: the values that were in effect."""
    return [
        f"{f'{key} deleted' if value is None else f'{key}={value}'} (before: {before.get(key) or 'none'})"
        for key, (_, value) in changes.items()
    ]


@command.command("delete", example="pykbroker topics delete orders\npykbroker topics delete 'orders-test-.*' --yes")
@_names
@click.option("--if-exists", is_flag=True, help="A topic that is not there is no failure.")
@click.option("--yes", is_flag=True, help="Delete what a regular expression matches, and do not ask.")
@output_option
@client_options
def delete(client: ClientOptions, out: Output, names: tuple[str, ...], if_exists: bool, yes: bool) -> None:
    """Delete topics and all of their records.

    A TOPIC may be a regular expression of RE2 that matches whole names. Its topics are deleted after a question on a
    terminal, or with --yes. Topics that Kafka keeps for itself match none.
    """
    from pykbroker.tools.cluster import topics
    from pykbroker.tools.cluster.failure import AskFailed
    from pykbroker.tools.cluster.text_pattern import is_pattern
    from pykbroker.tools.commands.named_topics import named_topics
    from pykbroker_wire.errors import ErrorCode

    with client.cluster() as cluster, _told(out) as done:
        found = named_topics(names, topics.listed(cluster), may_be_none=if_exists)
        if any(map(is_pattern, names)) and found and not yes:
            _ask_before_deleting(found)
        for name in found:
            try:
                topics.delete(cluster, [name])
                done.append(ChangedTopic(name, "deleted"))
            except AskFailed as error:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not if_exists:
                    raise
                done.append(ChangedTopic(name, "unchanged"))


@command.command(
    "offsets", example="pykbroker topics offsets orders\npykbroker topics offsets 'orders-.*' --at 2026-01-31T12:00"
)
@_some_names
@click.option(
    "--at", "at_ms", callback=time_ms, metavar="TIME", help=f"The offset of the first record from then on: {TIMES}."
)
@output_option
@client_options
def offsets(client: ClientOptions, out: Output, names: tuple[str, ...], at_ms: int | None) -> None:
    """Print the first and the last offset of each partition, or the offset at a time.

    Without a name every topic is meant that is not one of Kafka's own. A TOPIC may be a regular expression of RE2 that
    matches whole names.
    """
    from pykbroker.tools.cluster import log_offsets, topics

    with client.cluster() as cluster:
        listed = topics.listed(cluster)
        wanted = set(_chosen(listed, names))
        places = [(one.name, number) for one in listed if one.name in wanted for number in one.partitions]
        if at_ms is not None:
            at = log_offsets.found(cluster, dict.fromkeys(places, at_ms))
            out.rows(OffsetAtRow, [OffsetAtRow(*place, _known_offset(at[place])) for place in places])
            return
        begin = log_offsets.found(cluster, dict.fromkeys(places, log_offsets.EARLIEST))
        end = log_offsets.found(cluster, dict.fromkeys(places, log_offsets.LATEST))
    rows = []
    for place in places:
        first, last = _known_offset(begin[place]), _known_offset(end[place])
        rows.append(LogEndsRow(*place, first, last, None if first is None or last is None else last - first))
    out.rows(LogEndsRow, rows)


@command.command("sizes", example="pykbroker topics sizes\npykbroker topics sizes orders --replicas")
@_some_names
@click.option("--replicas", is_flag=True, help="A row for each replica, with its broker and its directory.")
@output_option
@client_options
def sizes(client: ClientOptions, out: Output, names: tuple[str, ...], replicas: bool) -> None:
    """Print the bytes of topics on the disks of brokers.

    Without a name every topic is meant that is not one of Kafka's own. A TOPIC may be a regular expression of RE2 that
    matches whole names.
    """
    from pykbroker.tools.cluster import replicas_on_disk, topics

    with client.cluster() as cluster:
        wanted = _chosen(topics.listed(cluster), names)
        brokers = [node.id for node in cluster.nodes()]
        directories = replicas_on_disk.described(cluster, brokers, wanted) if wanted else {}
    rows = [
        ReplicaSizeRow(one.topic, one.partition, broker, one.size_bytes, one.offset_lag, directory.path, one.is_future)
        for broker, found in directories.items()
        for directory in found
        for one in directory.replicas
    ]
    rows.sort(key=lambda row: (row.topic, row.partition, row.broker, row.future))
    if replicas:
        out.rows(ReplicaSizeRow, rows)
        return
    out.rows(SizeRow, [_size_of(name, [row for row in rows if row.topic == name]) for name in sorted(wanted)])


def _size_of(topic: str, replicas: Iterable[ReplicaSizeRow]) -> SizeRow:
    largest: dict[int, int] = {}
    whole = 0
    for row in replicas:
        whole += row.bytes
        largest[row.partition] = max(row.bytes, largest.get(row.partition, 0))
    return SizeRow(topic, len(largest), sum(largest.values()), whole)


def _known_offset(found: TimedOffset | AskFailed) -> int | None:
    offset = getattr(found, "offset", -1)
    return None if offset < 0 else offset


def _chosen(listed: Sequence[ListedTopic], names: tuple[str, ...]) -> list[str]:
    """Return the named topics, or all that are not Kafka's own."""
    from pykbroker.tools.commands.named_topics import named_topics

    return named_topics(names, listed) if names else [one.name for one in listed if not one.is_internal]


def _ask_before_deleting(names: list[str]) -> None:
    """Ask on a terminal. Raises ClickException if there is none, and Abort if the answer is no."""
    said = f"{len(names)} topic{'s' * (len(names) != 1)}: {', '.join(names)}"
    if not sys.stdin.isatty() or not sys.stderr.isatty():
        raise click.ClickException(f"Nothing is deleted. --yes deletes {said}")
    click.confirm(f"Delete {said}?", abort=True, err=True)


def _check_names(names: Iterable[str], known: Iterable[str]) -> None:
    """Raise an error if a name does not exist. This runs before the first change, so a mistake in the last name
    prevents every change."""
    from pykbroker.tools.commands.unknown_names import unknown_topic

    there = set(known)
    for name in names:
        if name not in there:
            raise unknown_topic(name, there)


def _configs(cluster: AskedCluster, names: list[str]) -> dict[str, list[DescribedConfig]]:
    from pykbroker.tools.cluster import configs
    from pykbroker.tools.cluster.configs import ResourceKind

    found = configs.described(cluster, [(ResourceKind.TOPIC, name) for name in names])
    return {name: rows for (_, name), rows in found.items()}


def _own(configs: Iterable[DescribedConfig]) -> dict[str, str]:
    """Return the configurations that are set for the topic itself."""
    from pykbroker.tools.cluster.configs import ConfigSource

    return {row.name: row.value or "" for row in configs if row.source is ConfigSource.DYNAMIC_TOPIC_CONFIG}


def _min_insync_replicas(configs: Iterable[DescribedConfig]) -> int | None:
    return next((int(row.value) for row in configs if row.name == _MIN_INSYNC_REPLICAS and row.value), None)


def _partition_rows(topic: DescribedTopic) -> Iterable[PartitionRow]:
    for one in topic.partitions:
        leader = None if one.leader < 0 else one.leader
        yield PartitionRow(one.number, leader, one.replicas, one.isr, one.elr, one.offline)


def _heading(topic: TopicDescription) -> str:
    configs = ", ".join(f"{key}={value}" for key, value in topic.configs.items()) or "none of its own"
    least = topic.min_insync_replicas
    of_cluster = "" if least is None or _MIN_INSYNC_REPLICAS in topic.configs else f"{_MIN_INSYNC_REPLICAS} {least}, "
    return (
        f"{topic.topic} ({topic.topic_id}), replication factor {topic.replication_factor}, {of_cluster}"
        f"configurations: {configs}"
    )


@contextmanager
def _told(out: Output) -> Iterator[list[ChangedTopic]]:
    """Print the changes of topics that were made, also if a later change fails."""
    done: list[ChangedTopic] = []
    try:
        yield done
    finally:
        if done:
            out.done("\n".join(_SAID[one.outcome].format(one.topic) for one in done), done)
