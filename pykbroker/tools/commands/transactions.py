"""`pykbroker transactions`: transactions of the coordinators, and hanging transactions in partitions."""

from __future__ import annotations

from dataclasses import dataclass

import click

from pykbroker.entry import failures
from pykbroker.tools.cluster.time_words import DURATIONS
from pykbroker.tools.commands.client_options import ClientOptions, client_options
from pykbroker.tools.commands.command_group import CommandGroup
from pykbroker.tools.commands.completion import topic_names
from pykbroker.tools.commands.failure_lines import FailureLines
from pykbroker.tools.commands.output import Output, Table, column, output_option
from pykbroker.tools.commands.time_options import duration_ms, now_ms
from pykbroker.tools.commands.unknown_names import unknown


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """A transaction of a coordinator."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDetail:
    """A transaction in detail. Times are in milliseconds; they are None if the transaction is not open."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int | None
    open_for_ms: int | None
    partitions: list[str]


@dataclass(frozen=True, slots=True)
class HangingRow:
    """A transaction that is open in a partition and that no coordinator will end."""

    topic: str
    partition: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    quiet_minutes: int
    last_timestamp_ms: int = column("")


@dataclass(frozen=True, slots=True)
class AbortedAt:
    topic: str
    partition: int
    start_offset: int
    producer_id: int


@dataclass(frozen=True, slots=True)
class EndedTransaction:
    transactional_id: str


@click.group("transactions", cls=CommandGroup)
def command() -> None:
    """List, describe and end transactions; find those that hang."""


@command.command("list", example="pykbroker transactions list --longer-than 15m")
@click.option(
    "--longer-than",
    callback=duration_ms("ms"),
    metavar="DURATION",
    help=f"Only those that are open for longer: {DURATIONS}; a plain number is in milliseconds.",
)
@click.option("--pattern", metavar="REGEX", help="Only transactional ids that match as a whole.")
@output_option
@client_options
def listing(client: ClientOptions, out: Output, longer_than: int | None, pattern: str | None) -> None:
    """List the transactions of all coordinators."""
    from pykbroker.tools.cluster import transactions

    with client.cluster() as cluster:
        found = transactions.listed(cluster, longer_than_ms=-1 if longer_than is None else longer_than, pattern=pattern)
    ordered = sorted(found, key=lambda one: one.id)
    rows = [TransactionRow(one.id, one.coordinator, one.producer_id, one.state) for one in ordered]
    out.rows(TransactionRow, rows)


@command.command("describe", example="pykbroker transactions describe orders-writer")
@click.argument("names", nargs=-1, required=True, metavar="TRANSACTIONAL_ID...")
@output_option
@client_options
def describe(client: ClientOptions, out: Output, names: tuple[str, ...]) -> None:
    """Describe the transactions of these ids."""
    from pykbroker.tools.cluster import transactions

    with client.cluster() as cluster:
        found = [transactions.described(cluster, name) for name in dict.fromkeys(names)]
    now = now_ms()
    rows = [
        TransactionDetail(
            one.id,
            one.coordinator,
            one.producer_id,
            one.producer_epoch,
            one.state,
            one.timeout_ms,
            one.started_ms,
            None if one.started_ms is None else now - one.started_ms,
            [f"{topic}-{number}" for topic, number in one.partitions],
        )
        for one in found
    ]
    out.tables(rows, Table(TransactionDetail, rows, is_object=len(rows) == 1))


@command.command(
    "abort",
    example="pykbroker transactions abort --topic orders --partition 0 --start-offset 17"
    "\npykbroker transactions abort --transactional-id orders-writer",
)
@click.option("--topic", shell_complete=topic_names, help="Where it is open.")
@click.option("--partition", type=click.IntRange(0), metavar="N", help="Where it is open.")
@click.option("--start-offset", type=click.IntRange(0), metavar="OFFSET", help="Where it begins, as find-hanging says.")
@click.option("--transactional-id", metavar="ID", help="End the open transaction of this id; its producer is fenced.")
@output_option
@client_options
def abort(
    client: ClientOptions,
    out: Output,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    transactional_id: str | None,
) -> None:
    """Abort a transaction: one that hangs in a partition, or that of a transactional id.

    In a partition, an abort marker is written whatever the coordinator's state is. Use this for the transactions that
    find-hanging finds.
    """
    from pykbroker.tools.cluster import transactions

    of_partition = (topic, partition, start_offset)
    if transactional_id is not None:
        if any(word is not None for word in of_partition):
            raise click.UsageError("--transactional-id stands alone.", click.get_current_context())
        with client.cluster() as cluster:
            transactions.described(cluster, transactional_id)
            transactions.fence(cluster, transactional_id)
        out.done(f"Ended the transaction of {transactional_id}.", EndedTransaction(transactional_id))
        return
    if topic is None or partition is None or start_offset is None:
        needed = "--topic, --partition and --start-offset are needed, or --transactional-id."
        raise click.UsageError(needed, click.get_current_context())
    place = (topic, partition)
    with client.cluster() as cluster:
        producer = transactions.open_at(cluster, place, start_offset)
        if producer is None:
            said = f"no transaction that begins at offset {start_offset} is open in {topic}-{partition}"
            raise click.ClickException(said)
        transactions.abort(cluster, place, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch)
    said = f"Aborted the transaction at offset {start_offset} of {topic}-{partition}."
    out.done(said, AbortedAt(topic, partition, start_offset, producer.producer_id))


@command.command("find-hanging", example="pykbroker transactions find-hanging --topic orders")
@click.option("--topic", shell_complete=topic_names, help="Only this topic (default: all).")
@click.option("--partition", type=click.IntRange(0), metavar="N", help="Only this partition of the topic.")
@click.option("--broker", type=click.IntRange(0), metavar="ID", help="As the replicas on this broker know them.")
@click.option(
    "--quiet-for",
    callback=duration_ms("m"),
    default="15m",
    metavar="DURATION",
    help=f"Only those that wrote nothing for so long, the greatest transaction timeout in use: {DURATIONS}; a plain "
    "number is in minutes (default: 15m).",
)
@output_option
@client_options
def find_hanging(
    client: ClientOptions, out: Output, topic: str | None, partition: int | None, broker: int | None, quiet_for: int
) -> int:
    """Find transactions that are open in partitions and that no coordinator will end.

    A partition whose producers cannot be read is named on standard error, and the exit status is 1.
    """
    from pykbroker.tools.cluster import topics, transactions

    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic.", click.get_current_context())
    now = now_ms()
    with client.cluster() as cluster:
        brokers = [str(node.id) for node in cluster.nodes()]
        if broker is not None and str(broker) not in brokers:
            # No partition has a replica there, so the list would be empty, as if nothing hung.
            raise unknown("broker", str(broker), brokers)
        places = topics.places(cluster, topic, partition=partition, broker=broker)
        if partition is not None and not places:
            raise click.ClickException(f"topic {topic} has no partition {partition} there")
        search = transactions.hanging(cluster, places, now - quiet_for, broker)
    rows = [
        HangingRow(
            *one.place,
            one.producer.started_at,
            one.producer.producer_id,
            one.producer.producer_epoch,
            one.producer.coordinator_epoch,
            (now - one.producer.last_timestamp_ms) // 60_000,
            one.producer.last_timestamp_ms,
        )
        for one in search.found
    ]
    out.tables(rows, Table(HangingRow, rows))
    with FailureLines("partitions were not searched") as lines:
        for (name, number), error in sorted(search.unread.items()):
            lines.say(f"{name}-{number} was not searched: {failures.said_of(error)}")
    return int(bool(search.unread))
