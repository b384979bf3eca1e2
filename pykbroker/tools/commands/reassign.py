"""`pykbroker reassign`: move partitions between brokers, with the files of kafka-reassign-partitions."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pykbroker.entry import failures
from pykbroker.tools.commands import drawn_progress, left_throttles
from pykbroker.tools.commands.client_options import ClientOptions, client_options
from pykbroker.tools.commands.command_group import CommandGroup
from pykbroker.tools.commands.completion import topic_names
from pykbroker.tools.commands.output import Output, output_option
from pykbroker_wire.errors import ErrorCode

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
    from pykbroker.tools.cluster.reassign_plan import WantedMoves
    from pykbroker.tools.cluster.reassign_throttles import Throttled
    from pykbroker.tools.cluster.reassignments import OngoingMove

_ASK_AGAIN_SECONDS: Final = 0.2
_DIRECTORY_TIMEOUT_MS: Final = 10_000
#: With these failures of a request, None for no answer in time, the cluster may have done what it asks for.
_NOT_REFUSED: Final = (None, ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT)


@dataclass(frozen=True, slots=True)
class MoveRow:
    """A partition of a plan. `now` and `wanted` are its brokers."""

    topic: str
    partition: int
    now: list[int]
    wanted: list[int]
    #: completed, moving, or not moving; of a proposal: unchanged, moving, or proposed
    state: str


@click.group("reassign", cls=CommandGroup)
def command() -> None:
    """Move partitions between brokers.

    The plans are the files of kafka-reassign-partitions, both ways. `-` stands for standard input.
    """


def _numbers(ctx: click.Context, parameter: click.Parameter, value: str) -> list[int]:
    from pykbroker.tools.cluster.reassign_plan import brokers_of

    try:
        return brokers_of(value)
    except ValueError:
        raise click.BadParameter(f"'{value}' is no list of different brokers: 1,2,3.", ctx, parameter) from None


@command.command(
    "generate",
    example="pykbroker reassign generate orders payments --brokers 1,2,3"
    "\npykbroker reassign generate orders:0 --brokers 3 -o json > plan.json",
)
@click.argument("names", nargs=-1, required=True, metavar="TOPIC[:0,1]...", shell_complete=topic_names)
@click.option("--brokers", required=True, callback=_numbers, metavar="ID,ID,...", help="Where partitions may be.")
@click.option("--disregard-racks", is_flag=True, help="Propose without a look at racks.")
@output_option
@client_options
def generate(
    client: ClientOptions, out: Output, names: tuple[str, ...], brokers: list[int], disregard_racks: bool
) -> None:
    """Propose a plan that spreads topics over brokers; nothing is moved. -o json prints the plan."""
    from random import Random

    from pykbroker.tools.cluster import moving, reassignments
    from pykbroker.tools.cluster.reassign_plan import as_json, proposed

    with client.cluster() as cluster, _one_line():
        left_throttles.tell(cluster)
        racks = moving.racks_of(cluster, brokers, disregarded=disregard_racks)
        now = _assignment_of(cluster, names)
        wanted = proposed(now, racks, Random())  # noqa: S311  # where replicas go is no secret
        under_way = reassignments.ongoing(cluster, now)
    if out.is_json:
        click.echo(as_json(wanted))
        return
    out.rows(MoveRow, [_as_proposal(row) for row in _rows(wanted, now, under_way)])


def _assignment_of(cluster: AskedCluster, names: Sequence[str]) -> dict[PartitionName, tuple[int, ...]]:
    """Return the replicas of the partitions that the words `TOPIC` or `TOPIC:0,1` name. Raises ClickException."""
    from pykbroker.tools.cluster import moving, topics
    from pykbroker.tools.cluster.reset_plan import BadReset, scope
    from pykbroker.tools.commands.unknown_names import unknown_topic

    known = {one.name: one.partitions for one in topics.listed(cluster)}
    for name in names:
        if (topic := name.partition(":")[0]) not in known:
            raise unknown_topic(topic, known)
    try:
        places = set(scope(names, known))
    except BadReset as refused:
        raise click.ClickException(refused.plain) from refused
    found = moving.assignment_of(cluster, dict.fromkeys(topic for topic, _ in places))
    return {place: replicas for place, replicas in found.items() if place in places}


def _as_proposal(row: MoveRow) -> MoveRow:
    """Return the row of a plan that no cluster has got yet."""
    return replace(row, state={"completed": "unchanged", "not moving": "proposed"}.get(row.state, row.state))


@command.command(
    "execute",
    example="pykbroker reassign execute plan.json --throttle 50000000 --wait"
    "\npykbroker reassign execute plan.json --rollback back.json",
)
@click.argument("plan", metavar="FILE|-")
@click.option("--throttle", type=click.IntRange(1), metavar="BYTES/S", help="Limit moves between brokers.")
@click.option(
    "--throttle-directories", type=click.IntRange(1), metavar="BYTES/S", help="Limit moves between directories."
)
@click.option("--additional", is_flag=True, help="Start these moves beside others that are under way.")
@click.option("--rollback", metavar="FILE", help="Write the assignment of now to this file: the plan that leads back.")
@click.option("--wait", is_flag=True, help="Wait until all is moved, and take throttles away.")
@output_option
@client_options  # fmt: skip
def execute(
    client: ClientOptions,
    out: Output,
    plan: str,
    throttle: int | None,
    throttle_directories: int | None,
    additional: bool,
    rollback: str | None,
    wait: bool,
) -> None:
    """Start the moves of a plan. `verify` takes throttles away when they are done; so does --wait.

    Throttles are set before the first move. If the cluster refuses the whole plan, they are as they were before.
    """
    from pykbroker.tools.cluster import moving, reassignments
    from pykbroker.tools.cluster.reassign_throttles import throttled

    with client.cluster() as cluster, _one_line():
        wanted = _read(cluster, plan)
        left_throttles.tell(cluster)
        under_way = reassignments.ongoing(cluster)
        if under_way and not additional:
            raise ValueError(f"{len(under_way)} partitions are moving already: wait for them, or add --additional")
        alive = {node.id for node in cluster.nodes()}
        moving.check_brokers([broker for replicas in wanted.replicas.values() for broker in replicas], alive)
        now = moving.current(cluster, wanted.replicas)
        if rollback is not None:
            Path(rollback).write_text(moving.current_json(cluster, now) + "\n", encoding="utf-8")
        with _throttled(cluster, throttled(under_way, wanted.replicas, now), wanted, throttle, throttle_directories):
            _begin(cluster, wanted)
        for _ in moving.directory_moves(cluster, wanted.directories, _DIRECTORY_TIMEOUT_MS):
            pass
        if wait:
            _wait(cluster, wanted)
            _clear(cluster, wanted)
        _print(cluster, out, wanted)


@command.command("verify", example="pykbroker reassign verify plan.json")
@click.argument("plan", metavar="FILE|-")
@click.option("--preserve-throttles", is_flag=True, help="Leave throttles as they are.")
@output_option
@client_options
def verify(client: ClientOptions, out: Output, plan: str, preserve_throttles: bool) -> int:
    """Say how far a plan is; the exit status is 1 until it is carried out. Throttles go when nothing moves."""
    from pykbroker.tools.cluster import reassignments

    with client.cluster() as cluster, _one_line():
        wanted = _read(cluster, plan)
        if not preserve_throttles and not reassignments.ongoing(cluster) and not _moving_directories(cluster, wanted):
            _clear(cluster, wanted)
        # This comes after the removal of the plan's own throttles, which are not left over.
        left_throttles.tell(cluster)
        rows = _print(cluster, out, wanted)
        return int(_moving_directories(cluster, wanted) > 0 or any(row.state != "completed" for row in rows))


@command.command("cancel", example="pykbroker reassign cancel plan.json")
@click.argument("plan", metavar="FILE|-")
@click.option("--preserve-throttles", is_flag=True, help="Leave throttles as they are.")
@output_option
@client_options
def cancel(client: ClientOptions, out: Output, plan: str, preserve_throttles: bool) -> None:
    """Call the moves of a plan back."""
    from pykbroker.tools.cluster import moving, reassignments, replicas_on_disk

    with client.cluster() as cluster, _one_line():
        wanted = _read(cluster, plan)
        active = reassignments.ongoing(cluster, wanted.replicas)
        if active:
            _raise_failures(reassignments.alter(cluster, dict.fromkeys(active)))
        back = replicas_on_disk.ways_back(replicas_on_disk.places(cluster, wanted.directories))
        for _ in moving.directory_moves(cluster, back, _DIRECTORY_TIMEOUT_MS):
            pass
        if not preserve_throttles:
            _clear(cluster, wanted)
        left_throttles.tell(cluster)
        _print(cluster, out, wanted)


# -- shared helpers ---------------------------------------------------------------------------------------------------


@contextmanager
def _one_line() -> Iterator[None]:
    """Report errors in a plan in one line and without a traceback."""
    try:
        yield
    except ValueError as error:
        raise click.ClickException(" ".join(str(error).split())) from None


class _Refused(ValueError):
    """The cluster has begun no move of the plan."""


@contextmanager
def _throttled(
    cluster: AskedCluster, limits: Throttled, wanted: WantedMoves, rate: int | None, directory_rate: int | None
) -> Iterator[None]:
    """Set the throttles before the block, as Apache Kafka's tool does, so that no move begins without one. They are put
    back if the cluster refuses the throttles or the whole plan."""
    from pykbroker.tools.cluster import moving
    from pykbroker.tools.cluster.failure import AskFailed

    if rate is None and directory_rate is None:
        yield
        return
    brokers = [replica.broker for replica in wanted.directories]
    before = moving.throttles_before(cluster, limits.leaders, {*limits.brokers, *brokers})
    may_have_begun = False
    try:
        if rate is not None:
            moving.throttle(cluster, limits, rate)
        if directory_rate is not None:
            moving.throttle_directories(cluster, brokers, directory_rate)
        may_have_begun = True
        yield
    except (_Refused, AskFailed) as error:
        if may_have_begun and isinstance(error, AskFailed) and error.code in _NOT_REFUSED:
            raise
        try:
            moving.put_back(cluster, before)
        except AskFailed as second:
            failures.say(f"the throttles of the plan stay: {second}; `pykbroker reassign verify` takes them away")
        raise


def _begin(cluster: AskedCluster, wanted: WantedMoves) -> None:
    """Begin the moves between brokers. Raises _Refused if no move has begun, and ValueError if only some have."""
    from pykbroker.tools.cluster import reassignments

    refused = reassignments.alter(cluster, wanted.replicas)
    if refused:
        begun = len(wanted.replicas) - len(refused)
        said = _said_of(refused)
        raise ValueError(f"{said}; the other moves have begun: {begun}") if begun else _Refused(said)


def _read(cluster: AskedCluster, plan: str) -> WantedMoves:
    """Read the moves of a file, or of standard input for `-`. A cluster that cannot be reached is reported first."""
    from pykbroker.tools.cluster.reassign_plan import wanted_moves

    cluster.nodes()
    return wanted_moves(sys.stdin.read() if plan == "-" else Path(plan).read_text(encoding="utf-8"))


def _rows(
    wanted: Mapping[PartitionName, Sequence[int]],
    now: Mapping[PartitionName, Sequence[int]],
    under_way: Mapping[PartitionName, OngoingMove],
) -> list[MoveRow]:
    rows = []
    for place in sorted(wanted):
        replicas = list(now.get(place, ()))
        is_done = replicas == list(wanted[place]) and place not in under_way
        state = "moving" if place in under_way else "completed" if is_done else "not moving"
        rows.append(MoveRow(*place, replicas, list(wanted[place]), state))
    return rows


def _print(cluster: AskedCluster, out: Output, wanted: WantedMoves) -> list[MoveRow]:
    from pykbroker.tools.cluster import moving, reassignments

    # This request comes first, so that a move that ends between the two answers is shown as still moving.
    under_way = reassignments.ongoing(cluster, wanted.replicas)
    now = moving.current(cluster, wanted.replicas, missing_is_error=False)
    rows = _rows(wanted.replicas, now, under_way)
    out.rows(MoveRow, rows)
    return rows


def _moving_directories(cluster: AskedCluster, wanted: WantedMoves) -> int:
    from pykbroker.tools.cluster import replicas_on_disk

    places = replicas_on_disk.places(cluster, wanted.directories)
    return sum(place.future is not None for place in places.values())


def _clear(cluster: AskedCluster, wanted: WantedMoves) -> None:
    """Remove the throttles of these moves. The marks of `balance` stay, because its commands need them to find its
    rate."""
    from pykbroker.tools.cluster import moving, run_marks

    moving.clear_broker_throttles(cluster, moving.throttled_brokers(cluster, wanted.replicas))
    names = {name for name, _ in wanted.replicas}
    moving.clear_topic_throttles(cluster, sorted(names - run_marks.found(cluster, names).topics))


def _raise_failures(failures: Mapping[PartitionName, Any]) -> None:
    if failures:
        raise ValueError(_said_of(failures))


def _said_of(failures: Mapping[PartitionName, Any]) -> str:
    return "; ".join(f"{topic}-{number}: {failures[topic, number]}" for topic, number in sorted(failures))


def _wait(cluster: AskedCluster, wanted: WantedMoves) -> None:
    from pykbroker.tools.cluster import reassignments

    whole = len(wanted.replicas) + len(wanted.directories)
    with drawn_progress.bar("moved", whole) as tell:
        while left := len(reassignments.ongoing(cluster, wanted.replicas)) + _moving_directories(cluster, wanted):
            tell(whole - left)
            time.sleep(_ASK_AGAIN_SECONDS)
