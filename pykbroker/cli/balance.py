"""`pykbroker balance`: plans that even out the load of the brokers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pykbroker.cli.client_options import ClientOptions, client_options
from pykbroker.cli.command_group import CommandGroup
from pykbroker.cli.output import Output, Table, output_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykbroker.balance.plan import Plan
    from pykbroker.balance.seen import SeenBroker


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """Loads of now and those that the plan leads to."""

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

    A plan is a file that `pykbroker reassign execute` and kafka-reassign-partitions take. Needs the extra `balance`.
    """


@command.command(
    "plan",
    example="pykbroker balance plan --file plan.json"
    "\npykbroker balance plan --window 60 --leaving 4 --capacities brokers.toml --file plan.json",
)
@click.option("--file", "file", type=click.Path(dir_okay=False), metavar="FILE", help="Write the plan to this file.")
@click.option(
    "--window", type=click.FloatRange(0.1), default=10.0, show_default=True, metavar="SECONDS", help="Look this long."
)
@click.option("--exclude", multiple=True, metavar="TOPIC", help="Leave this topic as it is; may stand several times.")
@click.option("--leaving", multiple=True, type=int, metavar="ID", help="Empty this broker; may stand several times.")
@click.option("--capacities", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="Limits of brokers.")
@click.option("--most-moves", type=click.IntRange(0), metavar="N", help="Move at most so many replicas.")
@click.option("--most-moves-per-broker", type=click.IntRange(0), metavar="N", help="Of replicas, to or from a broker.")
@click.option(
    "--most-bytes", type=click.IntRange(0), metavar="BYTES", help="Copy no more when so much is to be copied."
)
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed finds the same plan.")
@output_option
@client_options
def plan(
    client: ClientOptions,
    out: Output,
    file: str | None,
    window: float,
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
    that leave, and partitions that must stay: those below their min.insync.replicas, on their way, or excluded.
    """
    from pykbroker.admin import partition_load
    from pykbroker.balance.capacities import with_capacities

    with client.cluster() as cluster:
        cluster_id = cluster.id
        brokers, partitions = partition_load.seen(cluster, window)
    try:
        if capacities is not None:
            brokers = with_capacities(brokers, Path(capacities).read_text(encoding="utf-8"))
        from pykbroker.balance.load_arrays import cluster_load
        from pykbroker.balance.optimiser import Goals, Limits, optimise
        from pykbroker.balance.plan import as_json, plan_of

        load = cluster_load(brokers, partitions, excluded=exclude, leaving=leaving)
    except ModuleNotFoundError as error:
        raise click.ClickException(f"`balance` needs {error.name}: pip install 'pykbroker[balance]'") from None
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    limits = Limits(most_moves, most_moves_per_broker, most_bytes)
    found = plan_of(load, optimise(load, Goals(limits=limits, seed=seed)), brokers, partitions)
    if file is not None:
        Path(file).write_text(as_json(found, cluster_id) + "\n", encoding="utf-8")
    _print(out, found, brokers)
    return int(bool(found.unmet))


def _print(out: Output, plan: Plan, brokers: Sequence[SeenBroker]) -> None:
    from pykbroker.balance.seen import Resource

    shown = [each for each in Resource if plan.before[:, each].any()]
    loads = [
        BrokerRow(
            broker.id,
            broker.rack,
            each.name.lower(),
            round(float(plan.before[number, each])),
            round(float(plan.after[number, each])),
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
        "unmet": [asdict(each) for each in plan.unmet],
    }
    said = f"{plan.moves} replicas move, {int(plan.bytes_moved):,} bytes; {plan.leader_changes} partitions get another"
    out.tables(value, Table(BrokerRow, loads), Table(SpreadRow, spread, f"{said} leader"))
    for each in plan.unmet:
        click.echo(f"not met: {each.goal}: {each.text} ({each.subject})", err=True)
