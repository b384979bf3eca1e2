"""`pykbroker records`: the records of partitions of any Kafka cluster."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from pykbroker.entry import failures
from pykbroker.tools.cluster.bounds import Bound, BoundKind, parsed_bound
from pykbroker.tools.cluster.time_words import TIMES
from pykbroker.tools.commands.client_options import ClientOptions, client_options
from pykbroker.tools.commands.command_group import CommandGroup
from pykbroker.tools.commands.completion import topic_names
from pykbroker.tools.commands.output import Output, Table, output_option
from pykbroker.tools.commands.time_options import now_ms
from pykbroker_wire.errors import ErrorCode

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
    from pykbroker.tools.cluster.failure import AskFailed
    from pykbroker.tools.cluster.leader_requests import Outcomes

_ALL = -1


@dataclass(frozen=True, slots=True)
class DeletedRecordsRow:
    """One partition whose records were deleted."""

    topic: str
    partition: int
    #: the offset of the first record that is left
    beginning: int


@dataclass(frozen=True, slots=True)
class PlannedDeletionRow:
    """One partition whose records `--dry-run` would delete."""

    topic: str
    partition: int
    #: the offset of the first record
    beginning: int
    #: the offset of the first record that would be left
    new_beginning: int


@click.group("records", cls=CommandGroup)
def command() -> None:
    """Delete the oldest records of topics."""


def _bound(ctx: click.Context, parameter: click.Parameter, value: str) -> Bound:
    try:
        found = parsed_bound(value, now_ms())
    except ValueError as error:
        raise click.BadParameter(f"{error}.", ctx, parameter) from None
    if found.kind in (BoundKind.BEGINNING, BoundKind.STORED):
        raise click.BadParameter(f"'{value}' deletes nothing: end, an offset, -N or a time.", ctx, parameter)
    return found


@command.command(
    "delete",
    example="pykbroker records delete orders --before -7d\npykbroker records delete orders -p 0 --before 1200",
)
@click.argument("topic", shell_complete=topic_names)
@click.option(
    "--before",
    required=True,
    metavar="end|OFFSET|-N|TIME",
    callback=_bound,
    help="Delete the records before the end of each partition (all of them), before an offset, all but the last N, or "
    f"those before the first record of a time: {TIMES}.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="Only this partition (may be repeated).",
)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing.")
@output_option
@client_options
def delete(
    client: ClientOptions, out: Output, topic: str, before: Bound, partitions: tuple[int, ...], dry_run: bool
) -> int:
    """Delete the records of a topic before an offset, for good.

    The topic and its later records stay. Each partition that cannot do it is named on standard error, and the exit
    status is 1; the records of the others are deleted.
    """
    from pykbroker.tools.cluster import log_offsets, reset_targets, topics
    from pykbroker.tools.cluster.failure import AskFailed
    from pykbroker.tools.commands.unknown_names import unknown_topic

    with client.cluster() as cluster:
        known = {one.name: one.partitions for one in topics.listed(cluster)}
        if topic not in known:
            raise unknown_topic(topic, known)
        numbers = known[topic]
        for number in partitions:
            if number not in numbers:
                raise click.ClickException(f"Topic {topic} has no partition {number}: it has {len(numbers)}, from 0 on")
        places = [(topic, number) for number in partitions or numbers]
        wanted = _wanted(cluster, before, places)
        if dry_run:
            outcomes: Outcomes[int] = _after_deletion(cluster, wanted)
            first = reset_targets.ends(cluster, places, log_offsets.EARLIEST)
        else:
            outcomes, first = log_offsets.delete_before(cluster, wanted), {}
        refused = {place: found for place, found in sorted(outcomes.items()) if isinstance(found, AskFailed)}
        lines = [_said_of(cluster, place, failure) for place, failure in refused.items()]
    left = {place: found for place, found in sorted(outcomes.items()) if not isinstance(found, AskFailed)}
    if dry_run:
        planned = [PlannedDeletionRow(*place, first[place], max(first[place], left[place])) for place in left]
        heading = "These records would be deleted, and nothing is deleted now:"
        out.tables(planned, Table(PlannedDeletionRow, planned, heading))
    elif left:
        out.rows(DeletedRecordsRow, [DeletedRecordsRow(*place, found) for place, found in left.items()])
    for line in lines:
        failures.say(line)
    return int(bool(lines))


def _said_of(cluster: AskedCluster, place: PartitionName, failure: AskFailed) -> str:
    """Return the line about a partition that cannot do it, with its end if the offset is beyond that."""
    from pykbroker.tools.cluster import log_offsets, reset_targets
    from pykbroker.tools.cluster.failure import AskFailed

    reason = str(failure)
    if failure.code is ErrorCode.OFFSET_OUT_OF_RANGE:
        with suppress(AskFailed):
            reason = f"it ends at {reset_targets.ends(cluster, [place], log_offsets.LATEST)[place]}"
    line = f"Nothing is deleted in {place[0]}-{place[1]}: {reason}"
    return line if failure.code is None else f"{line.rstrip('.')} ({failure.code.name})"


def _after_deletion(cluster: AskedCluster, wanted: Mapping[PartitionName, int]) -> Outcomes[int]:
    """Return the first offset that a deletion would leave in each partition, or the error that it would have."""
    from pykbroker.tools.cluster import log_offsets, reset_targets
    from pykbroker.tools.cluster.failure import failed

    ends = reset_targets.ends(cluster, wanted, log_offsets.LATEST)
    return {
        place: ends[place] if at == _ALL else at if at <= ends[place] else failed(ErrorCode.OFFSET_OUT_OF_RANGE)
        for place, at in wanted.items()
    }


def _wanted(cluster: AskedCluster, before: Bound, places: list[PartitionName]) -> Mapping[PartitionName, int]:
    """Return the offset before which each partition is deleted."""
    from pykbroker.tools.cluster import log_offsets, reset_targets

    if before.kind is BoundKind.END:
        return dict.fromkeys(places, _ALL)
    if before.kind is BoundKind.OFFSET:
        return dict.fromkeys(places, before.value)
    if before.kind is BoundKind.TIME:
        return reset_targets.at_time(cluster, places, before.value, lambda place: None)
    ends = reset_targets.ends(cluster, places, log_offsets.LATEST)
    return {place: max(0, end - before.value) for place, end in ends.items()}
