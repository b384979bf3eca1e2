"""`pykbroker balance`: makes plans that even out the load of the brokers. balance_run.py has the commands that execute
them."""

from __future__ import annotations

import errno
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pykbroker.tools.commands import balance_run, left_throttles
from pykbroker.tools.commands.client_options import ClientOptions, client_options
from pykbroker.tools.commands.command_group import CommandGroup
from pykbroker.tools.commands.output import Output, Table, output_option

if TYPE_CHECKING:
    from pykbroker.tools.commands.balance_planning import MadePlan

#: The most goals that are printed if they are not met.
_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class BrokerLoadRow:
    """The load of a broker now and after the plan. Both are computed as if every preferred replica were the leader."""

    broker: int
    rack: str | None
    resource: str
    now: float
    planned: float


@dataclass(frozen=True, slots=True)
class SpreadRow:
    """The coefficient of variation of a resource among the brokers: standard deviation over mean."""

    resource: str
    now: float
    planned: float


@click.group("balance", cls=CommandGroup)
def command() -> None:
    """Even out the load of brokers.

    A plan is a file that `pykbroker reassign execute` and kafka-reassign-partitions take, too. `plan`, and healing,
    need the extra `balance`.
    """


for each in (balance_run.run, balance_run.watch, balance_run.cancel):
    command.add_command(each)


@command.command(
    "plan",
    example="pykbroker balance plan --file plan.json"
    "\npykbroker balance plan --window 60 --drain 4 --capacities brokers.toml --file plan.json",
)
@click.option("--file", "file", type=click.Path(dir_okay=False), metavar="FILE", help="Write the plan to this file.")
@click.option(
    "--window", type=click.FloatRange(0.1), default=10.0, show_default=True, metavar="SECONDS", help="Look this long."
)
@click.option(
    "--loads", type=click.Path(dir_okay=False), metavar="FILE", help="Take loads from this file, and do not look."
)
@click.option("--exclude", multiple=True, metavar="TOPIC", help="Leave this topic as it is; may stand several times.")
@click.option(
    "--drain", "--leaving", "leaving", multiple=True, type=int, metavar="ID", help="Empty this broker; may be repeated."
)
@click.option("--capacities", type=click.Path(dir_okay=False), metavar="FILE", help="Limits of brokers.")
@click.option(
    "--most-moves", type=click.IntRange(0), metavar="N", help="Move at most so many replicas, also of those that must."
)
@click.option("--most-moves-per-broker", type=click.IntRange(0), metavar="N", help="The same, to or from one broker.")
@click.option(
    "--most-bytes", type=click.IntRange(0), metavar="BYTES", help="Copy at most so much, also of what must move."
)
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed finds the same plan.")
@output_option
@client_options
def plan(
    client: ClientOptions,
    out: Output,
    file: str | None,
    window: float,
    loads: str | None,
    exclude: tuple[str, ...],
    leaving: tuple[int, ...],
    capacities: str | None,
    most_moves: int | None,
    most_moves_per_broker: int | None,
    most_bytes: int | None,
    seed: int,
) -> int:
    """Look at the load and propose moves; nothing is moved. The exit status is 1 when a hard goal is not met.

    Leadership comes first, since it copies nothing. Hard goals are racks, capacities, the number of replicas, brokers
    that leave, and partitions that must stay: those below their min.insync.replicas, on their way, excluded, without a
    leader, or on a broker that is gone. Goals that the limits of moves do not allow are reported as not met.
    """
    from pykbroker.tools.commands.balance_planning import MovesAllowed, PlanWishes, made_plan, refused_in_one_line

    with client.cluster() as cluster:
        cluster_id = cluster.id
        # Report wrong options and files before the window is spent.
        with refused_in_one_line():
            from pykbroker.tools.balance.plan import as_json

            wishes = PlanWishes(
                window,
                "" if capacities is None else Path(capacities).read_text(encoding="utf-8"),
                None if loads is None else Path(loads).read_text(encoding="utf-8"),
                exclude,
                leaving,
                MovesAllowed(most_moves, most_moves_per_broker, most_bytes),
                seed,
            )
        if file is not None:
            _check_writable(Path(file))
        left_throttles.tell(cluster)
        made = made_plan(cluster, wishes)
    is_empty = not made.plan.partitions and not made.directories
    if file is not None and not is_empty:
        Path(file).write_text(as_json(made.plan, cluster_id, made.directories) + "\n", encoding="utf-8")
    elif file is not None:
        click.echo(f"nothing to move: {file} is not written", err=True)
    _print(out, made)
    return int(bool(made.plan.unmet))


def _check_writable(file: Path) -> None:
    """Raise the OSError that a write of the file would raise, without writing."""
    if not file.exists() and not file.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))


def _print(out: Output, made: MadePlan) -> None:
    from pykbroker.tools.balance.seen import LoadResource, rounded

    plan, brokers = made.plan, made.brokers
    shown = [each for each in LoadResource if plan.before[:, each].any()]
    loads = [
        BrokerLoadRow(
            broker.id,
            broker.rack,
            each.name.lower(),
            rounded(each, float(plan.before[number, each])),
            rounded(each, float(plan.after[number, each])),
        )
        for each in shown
        for number, broker in enumerate(brokers)
    ]
    spread = [
        SpreadRow(
            each.name.lower(),
            round(float(plan.variation_before[each]), 3),
            round(float(plan.variation_after[each]), 3),
        )
        for each in shown
    ]
    value = {
        "brokers": loads,
        "spread": spread,
        "partitions": plan.partitions,
        "moves": plan.moves,
        "leader_changes": plan.leader_changes,
        "bytes": int(plan.bytes_moved),
        "directories": made.directories,
        "unmet": [asdict(each) for each in plan.unmet],
    }
    said = f"{plan.moves} replicas move, {int(plan.bytes_moved):,} bytes; {plan.leader_changes} partitions get another"
    heading = f"{said} preferred leader" if plan.partitions else "nothing to move"
    if made.directories:
        heading += f"; {len(made.directories)} replicas move between directories of their brokers"
    out.tables(
        value,
        Table(BrokerLoadRow, loads, "Loads are as if the preferred replicas led."),
        Table(SpreadRow, spread, heading),
    )
    for each in plan.unmet[:_SHOWN]:
        click.echo(f"not met: {each.goal}: {each.subject} {each.text}", err=True)
    if len(plan.unmet) > _SHOWN:
        click.echo(f"not met: and {len(plan.unmet) - _SHOWN:,} more", err=True)
