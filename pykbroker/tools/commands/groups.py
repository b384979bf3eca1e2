"""`pykbroker groups`: groups of any Kafka cluster: consumer groups of both protocols, and share groups (KIP-932)."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from pykbroker.entry import failures
from pykbroker.tools.cluster.time_words import DURATIONS, TIMES
from pykbroker.tools.commands.client_options import ClientOptions, client_options
from pykbroker.tools.commands.command_group import CommandGroup
from pykbroker.tools.commands.completion import group_names, topic_names
from pykbroker.tools.commands.output import Output, Table, column, output_option
from pykbroker.tools.commands.time_options import duration_ms, time_ms
from pykbroker.tools.commands.unknown_names import unknown

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
    from pykbroker.tools.cluster.groups import GroupDescription

_STATES: Final = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling")
_TARGETS: Final = (
    "to_earliest", "to_latest", "to_current", "to_offset", "to_datetime", "by_duration", "shift_by", "from_file"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group of a list."""

    group: str
    #: classic, consumer (KIP-848) or share (KIP-932)
    type: str
    state: str
    #: of all partitions with a committed offset, or with a start in a share group; None if there is none
    lag: int | None


@dataclass(frozen=True, slots=True)
class PositionRow:
    """One partition of a group."""

    topic: str
    partition: int
    #: None if nothing is committed; in a share group the offset at which it starts
    committed: int | None
    #: None if the partition has no leader, or was deleted
    end: int | None
    lag: int | None
    #: the member that reads it; None in a share group, in which several members read a partition
    member: str | None
    client_id: str | None = column("CLIENT")
    host: str | None = column("HOST", is_spare=True, default=None)


@dataclass(frozen=True, slots=True)
class SharePositionRow(PositionRow):
    """One partition of a share group, which has committed nothing."""

    committed: int | None = column("START")
    end: int | None = column("END")
    lag: int | None = column("LAG")
    member: str | None = column("MEMBER")


@dataclass(frozen=True, slots=True)
class MemberRow:
    """One member of a group."""

    member: str
    client_id: str = column("CLIENT")
    host: str = column("HOST")
    #: None if it is not a static member
    instance_id: str | None = column("INSTANCE")
    #: topic-partition
    assignment: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupTold:
    """The description of a group that `groups describe` prints."""

    group: str
    type: str
    state: str
    assignor: str
    #: the id of a broker
    coordinator: int
    #: of all partitions whose lag is known
    total_lag: int
    partitions: tuple[PositionRow, ...]
    members: tuple[MemberRow, ...]
    #: the topic for records that a share group rejects or gives up (KIP-1191); None if the group has no such topic
    dead_letter_topic: str | None


@dataclass(frozen=True, slots=True)
class ResetRow:
    """One partition of a group, before and after a reset."""

    topic: str
    partition: int
    #: None if nothing was committed; in a share group the offset at which it starts
    committed: int | None
    new_offset: int


@dataclass(frozen=True, slots=True)
class ShareResetRow(ResetRow):
    """One partition of a share group, which has committed nothing."""

    committed: int | None = column("START")
    new_offset: int = column("NEW OFFSET")


@dataclass(frozen=True, slots=True)
class GroupReset:
    """The offsets that `groups reset` has set, or would set."""

    group: str
    executed: bool
    partitions: tuple[ResetRow, ...]


@dataclass(frozen=True, slots=True)
class DeletedGroup:
    group: str
    outcome: str


@dataclass(frozen=True, slots=True)
class RemovedMember:
    member: str
    #: None if it is not a static member
    instance_id: str | None
    outcome: str


@click.group("groups", cls=CommandGroup)
def command() -> None:
    """List, describe, reset and delete groups of consumers; remove members."""


@command.command("list", example="pykbroker groups list --state Stable")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    metavar="STATE",
    help="Only groups in this state (may be repeated).",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice(["classic", "consumer", "share"], case_sensitive=False),
    help="Only groups of this protocol (may be repeated).",
)
@output_option
@client_options
def list_(client: ClientOptions, out: Output, states: tuple[str, ...], types: tuple[str, ...]) -> None:
    """List groups, with the sum of their lag in offsets."""
    from pykbroker.tools.cluster import groups, share_groups
    from pykbroker.tools.cluster.group_lag import total_lags

    with client.cluster() as cluster:
        consumers = [one.capitalize() for one in types if one != "share"]
        found = groups.listed(cluster, states=states, types=consumers) if consumers or not types else []
        lags = total_lags(cluster, [one.id for one in found])
        if "share" in types or not types:
            shares = share_groups.listed(cluster, states=states)
            lags |= {one.id: _share_lag(cluster, one.id) for one in shares}
            found += shares
    rows = [
        GroupRow(one.id, one.type.lower(), one.state, lags.get(one.id)) for one in sorted(found, key=lambda one: one.id)
    ]
    out.rows(GroupRow, rows)


@command.command("describe", example="pykbroker groups describe billing\npykbroker groups describe billing --members")
@click.argument("names", nargs=-1, metavar="[GROUP]...", shell_complete=group_names)
@click.option("--members", is_flag=True, help="A table of the members, and not of the partitions.")
@output_option
@client_options
def describe(client: ClientOptions, out: Output, names: tuple[str, ...], members: bool) -> None:
    """Describe groups: their committed offsets, their lag, and their members.

    Without a name every group is described. Lag is in offsets. A share group commits nothing: START is where it begins
    in a partition.
    """
    with client.cluster() as cluster:
        told = [_told(cluster, one) for one in _described(cluster, names)]
    out.tables(
        told,
        *(
            Table(MemberRow, one.members, _heading(one))
            if members
            else Table(SharePositionRow if one.type == "share" else PositionRow, one.partitions, _heading(one))
            for one in told
        ),
    )


@command.command(
    "reset",
    example="pykbroker groups reset billing --topic orders --to-earliest\n"
    "pykbroker groups reset billing --all-topics --to-datetime 2026-01-31 --execute\n"
    "pykbroker groups reset billing --all-topics --to-current --export > billing.csv\n"
    "pykbroker groups reset billing --from-file billing.csv --execute",
)
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,1]",
    shell_complete=topic_names,
    help="A topic, or some of its partitions (may be repeated).",
)
@click.option("--all-topics", is_flag=True, help="Every partition that the group has an offset of.")
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-current", is_flag=True, help="To the offset that the group has, or to the end where it has none.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="To this offset.")
@click.option("--to-datetime", callback=time_ms, metavar="TIME", help=f"To the first record from then on: {TIMES}.")
@click.option(
    "--by-duration",
    callback=duration_ms(),
    metavar="DURATION",
    help=f"To the first record since so long ago: {DURATIONS}.",
)
@click.option("--shift-by", type=int, metavar="N", help="Forwards, or backwards with a negative number.")
@click.option(
    "--from-file",
    metavar="FILE",
    help="To the offsets in a file of --export: topic,partition,offset a line.",
)
@click.option("--export", is_flag=True, help="Print lines for --from-file, which Apache Kafka's tool reads too.")
@click.option("--share", "is_share", is_flag=True, help="Make a group that is not there yet a share group.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing (default).")
@click.option("--execute", is_flag=True, help="Do it.")
@output_option
@client_options
def reset(
    client: ClientOptions,
    out: Output,
    name: str,
    topics: tuple[str, ...],
    all_topics: bool,
    export: bool,
    is_share: bool,
    dry_run: bool,
    execute: bool,
    **targets: bool | int | str | None,
) -> None:
    """Move the committed offsets of a group that has no members, or the start offsets of a share group.

    Nothing is changed without --execute. A group that is not there is made by its first offset. A reset of a share
    group makes it forget which records after the new start were done, and how often records were delivered.
    """
    from pykbroker.tools.cluster import reset_targets
    from pykbroker.tools.cluster.reset_plan import BadReset
    from pykbroker.tools.cluster.resettable import ShareStarts, resettable

    chosen = [target for target in _TARGETS if targets[target] is not None and targets[target] is not False]
    context = click.get_current_context()
    if len(chosen) != 1:
        options = ", ".join(f"--{target.replace('_', '-')}" for target in _TARGETS)
        raise click.UsageError(f"Say where to, with one of {options}.", context)
    if chosen == ["from_file"]:
        if topics or all_topics:
            raise click.UsageError("--from-file says which partitions: it goes with no --topic.", context)
    elif bool(topics) == all_topics:
        raise click.UsageError("Say which partitions: --topic or --all-topics.", context)
    if dry_run and execute:
        raise click.UsageError("--dry-run does not go with --execute.", context)
    if export and (execute or out.is_json):
        raise click.UsageError("--export goes neither with --execute nor with -o json.", context)
    try:
        with client.cluster() as cluster:
            group = resettable(cluster, name, is_share=is_share)
            if (state := group.active_state()) is not None:
                raise click.ClickException(f"Group {name} has members ({state}): stop them first, then reset it")
            of_file = _of_file(cluster, name, str(targets["from_file"])) if chosen == ["from_file"] else {}
            places = None if all_topics else _places(cluster, topics) if topics else sorted(of_file)
            of_group = group.known(places)
            known = {place: at for place, at in of_group.items() if at is not None}
            if chosen == ["from_file"]:
                planned = of_file
            else:
                places = sorted(of_group) if places is None else places
                target, value = chosen[0].replace("_", "-"), int(targets[chosen[0]] or 0)
                planned = reset_targets.planned(cluster, target, value, places, known, _Told())
            if execute:
                group.set(planned)
    except BadReset as error:
        raise click.ClickException(error.plain) from error
    if export:
        csv.writer(sys.stdout, lineterminator="\n").writerows([*place, at] for place, at in sorted(planned.items()))
        return
    kind = ShareResetRow if isinstance(group, ShareStarts) else ResetRow
    rows = tuple(
        kind(*place, known[place].offset if place in known else None, at) for place, at in sorted(planned.items())
    )
    if execute:
        heading = f"Group {name} was reset:"
    else:
        heading = f"Group {name} would be reset like this; --execute does it:"
    out.tables(GroupReset(name, execute, rows), Table(kind, rows, heading))


@command.command("delete", example="pykbroker groups delete billing")
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", shell_complete=group_names)
@output_option
@client_options
def delete(client: ClientOptions, out: Output, names: tuple[str, ...]) -> None:
    """Delete groups without members, and all that they have committed."""
    from pykbroker.tools.cluster import groups
    from pykbroker_wire.errors import ErrorCode

    with client.cluster() as cluster:
        outcomes = groups.delete(cluster, names)
        gone = [name for name, outcome in outcomes.items() if outcome is None]
        if gone:
            out.done(
                "\n".join(f"Deleted group {name}." for name in gone), [DeletedGroup(one, "deleted") for one in gone]
            )
        for name, outcome in outcomes.items():
            if outcome is None:
                continue
            if outcome.code == ErrorCode.GROUP_ID_NOT_FOUND:
                raise _unknown(cluster, name)
            if outcome.code == ErrorCode.NON_EMPTY_GROUP:
                raise click.ClickException(f"Group {name} has members: stop them first (NON_EMPTY_GROUP)")
            raise outcome


@command.command(
    "remove-members",
    example="pykbroker groups remove-members billing --instance billing-1\n"
    "pykbroker groups remove-members billing --all",
)
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@click.option("--member", "ids", multiple=True, metavar="ID", help="The member with this id (may be repeated).")
@click.option(
    "--instance", "instances", multiple=True, metavar="ID", help="The static member with this group.instance.id."
)
@click.option("--all", "all_members", is_flag=True, help="Every member.")
@output_option
@client_options
def remove_members(
    client: ClientOptions,
    out: Output,
    name: str,
    ids: tuple[str, ...],
    instances: tuple[str, ...],
    all_members: bool,
) -> None:
    """Make members leave a group, so that others get their partitions at once.

    A static member that has died keeps its partitions until its session times out: this ends the wait. A member that
    lives joins again.
    """
    from pykbroker.tools.cluster import groups

    if bool(ids or instances) == all_members:
        raise click.UsageError("Say which members: --member, --instance or --all.", click.get_current_context())
    with client.cluster() as cluster:
        (described,) = _described(cluster, [name])
        if described.type == "Share":
            raise click.ClickException(f"Group {name} is a share group: its members leave, or their sessions end")
        there = {one.id: one for one in described.members}
        static = {one.instance_id: one for one in described.members if one.instance_id is not None}
        wanted = list(there.values()) if all_members else []
        for known, asked in ((there, ids), (static, instances)):
            for one in asked:
                if one not in known:
                    raise unknown(f"member of group {name}", one, map(str, known))
                wanted.append(known[one])
        outcomes = groups.remove_members(cluster, name, wanted, "pykbroker groups remove-members") if wanted else {}
    rows = [RemovedMember(one.id, one.instance_id, "removed") for one in wanted if outcomes[one.id] is None]
    said = [f"Removed member {row.member} of group {name}." for row in rows]
    out.done("\n".join(said) or f"Group {name} has no members.", rows)
    for member, error in outcomes.items():
        if error is not None:
            raise click.ClickException(f"Member {member} was not removed: {failures.said_of(error)}")


def _described(cluster: AskedCluster, names: Iterable[str]) -> list[GroupDescription]:
    from pykbroker.tools.cluster import groups, share_groups
    from pykbroker.tools.cluster.failure import AskFailed
    from pykbroker_wire.errors import ErrorCode

    wanted = names or [one.id for one in share_groups.listed_with_consumers(cluster)]
    answers = groups.described(cluster, sorted(set(wanted)))
    missing = [
        name for name, one in answers.items() if isinstance(one, AskFailed) and one.code == ErrorCode.GROUP_ID_NOT_FOUND
    ]
    # A share group is not found by the requests for consumer groups, and not every broker serves share groups.
    for name, share in share_groups.described(cluster, missing).items():
        if not (isinstance(share, AskFailed) and share.code == ErrorCode.UNSUPPORTED_VERSION):
            answers[name] = share
    found = []
    for name, one in answers.items():
        if isinstance(one, AskFailed):
            raise _unknown(cluster, name) if one.code == ErrorCode.GROUP_ID_NOT_FOUND else one
        found.append(one)
    return found


def _share_lag(cluster: AskedCluster, group: str) -> int | None:
    """Return the lag of a share group, or None if it is unknown."""
    from pykbroker.tools.cluster import share_groups
    from pykbroker.tools.cluster.failure import AskFailed

    try:
        positions = share_groups.positions(cluster, group).values()
    except AskFailed:
        # The client may not see a topic of the group.
        return None
    found = [one.lag for one in positions if not isinstance(one, AskFailed) and one.lag is not None]
    return sum(found) if found else None


def _unknown(cluster: AskedCluster, name: str) -> click.ClickException:
    from pykbroker.tools.cluster import share_groups

    return unknown("group", name, [one.id for one in share_groups.listed_with_consumers(cluster)], "groups list")


def _told(cluster: AskedCluster, group: GroupDescription) -> GroupTold:
    rows = tuple(_share_rows(cluster, group) if group.type == "Share" else _consumer_rows(cluster, group))
    members = tuple(
        MemberRow(
            one.id,
            one.client_id,
            one.host,
            one.instance_id,
            tuple(f"{topic}-{number}" for topic, number in sorted(one.assignment)),
        )
        for one in group.members
    )
    lag = sum(row.lag for row in rows if row.lag is not None)
    dead_letters = _dead_letter_topic(cluster, group.id) if group.type == "Share" else None
    return GroupTold(
        group.id, group.type.lower(), group.state, group.assignor, group.coordinator, lag, rows, members, dead_letters
    )


def _consumer_rows(cluster: AskedCluster, group: GroupDescription) -> Iterator[PositionRow]:
    from pykbroker.tools.cluster.group_lag import positions

    for one in positions(cluster, group):
        yield PositionRow(
            one.topic,
            one.partition,
            None if one.committed is None else one.committed.offset,
            one.end,
            one.lag,
            None if one.owner is None else one.owner.id,
            None if one.owner is None else one.owner.client_id,
            None if one.owner is None else one.owner.host,
        )


def _share_rows(cluster: AskedCluster, group: GroupDescription) -> Iterator[SharePositionRow]:
    from pykbroker.tools.cluster import log_offsets, share_groups
    from pykbroker.tools.cluster.failure import AskFailed

    found = share_groups.positions(cluster, group.id)
    ends = log_offsets.found(cluster, dict.fromkeys(sorted(found), log_offsets.LATEST))
    for place, one in sorted(found.items()):
        end = ends.get(place)
        known_end = end.offset if isinstance(end, log_offsets.TimedOffset) else None
        start, lag = (None, None) if isinstance(one, AskFailed) else (one.start, one.lag)
        yield SharePositionRow(*place, start, known_end, lag, None, None)


def _dead_letter_topic(cluster: AskedCluster, group: str) -> str | None:
    """Return the dead letter topic of a share group. It is None without a topic, if the cluster does not know the key,
    and if the client may not see the configuration of the group."""
    from pykbroker.tools.cluster import configs
    from pykbroker.tools.cluster.failure import AskFailed

    resource = (configs.ResourceKind.GROUP, group)
    try:
        found = configs.described(cluster, [resource])[resource]
    except AskFailed:
        return None
    return next((one.value for one in found if one.name == "errors.deadletterqueue.topic.name"), None) or None


def _heading(group: GroupTold) -> str:
    count = len(group.members)
    dead_letters = "" if group.dead_letter_topic is None else f", dead letters go to {group.dead_letter_topic}"
    return (
        f"{group.group} ({group.type}), {group.state}, {count} member{'s' * (count != 1)}, "
        f"coordinator {group.coordinator}, lag {group.total_lag}{dead_letters}"
    )


# -- reset ------------------------------------------------------------------------------------------------------------


def _places(cluster: AskedCluster, written: tuple[str, ...]) -> list[PartitionName]:
    """Return the partitions of the texts. Raises ClickException for an unknown topic, BadReset for an unknown
    partition."""
    from pykbroker.tools.cluster import topics
    from pykbroker.tools.cluster.reset_plan import scope
    from pykbroker.tools.commands.unknown_names import unknown_topic

    existing = {one.name: one.partitions for one in topics.listed(cluster)}
    for text in written:
        topic = text.partition(":")[0]
        if topic not in existing:
            raise unknown_topic(topic, existing)
    return scope(written, existing)


def _of_file(cluster: AskedCluster, group: str, path: str) -> dict[PartitionName, int]:
    """Return the offsets in a file, each within the ends of its partition. Raises BadReset and ClickException."""
    from pykbroker.tools.cluster import reset_targets
    from pykbroker.tools.cluster.reset_plan import rows_of_file

    with open(path, encoding="utf-8") as file:
        wanted = rows_of_file(file.read(), [group]).get(group, {})
    _places(cluster, tuple(f"{topic}:{number}" for topic, number in wanted))
    return reset_targets.within_ends(cluster, wanted, _Told().bound)


class _Told:
    """Says on standard error which partitions get another offset."""

    def bound(self, place: PartitionName, wanted: int, given: int) -> None:
        failures.say(f"{place[0]}-{place[1]} has no offset {wanted}: {given} is taken")

    def later(self, place: PartitionName) -> None:
        failures.say(f"{place[0]}-{place[1]} has no record from then on: its end is taken")
