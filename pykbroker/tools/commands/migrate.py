"""`pykbroker migrate`: what a node needs before pykbroker takes it over from Apache Kafka, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from pykbroker.tools.commands.client_options import ClientOptions, client_options, names_a_cluster
from pykbroker.tools.commands.command_group import CommandGroup
from pykbroker.tools.commands.output import Output, column, output_option

if TYPE_CHECKING:
    from pykbroker.tools.node_migration.findings import NodeFinding


@dataclass(frozen=True, slots=True)
class FindingRow:
    """One finding of the check."""

    #: stop, warn or ok
    level: str
    what: str
    where: str
    to_do: str = column("WHAT TO DO")


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step of the plan."""

    step: int
    #: None for a step of the whole cluster
    node: int | None
    what: str
    command: str


@click.group("migrate", cls=CommandGroup)
def command() -> None:
    """Check a node before it moves between Apache Kafka and pykbroker; plan the move of a cluster."""


@command.command("check", example="pykbroker migrate check -c server.properties -b localhost:9092")
@click.option("-c", "--config", "config_file", required=True, metavar="FILE", help="The node's server.properties.")
@output_option
@client_options
def check(client: ClientOptions, out: Output, config_file: str) -> int:
    """Check that pykbroker can take this node over.

    The check reads the properties file, the log directories that it names, and the cluster if an option or
    PYKBROKER_BOOTSTRAP_SERVER names one. It writes nothing. Run it on the machine of the node, before the node stops. A
    finding of level stop means that the node must not move now; the exit status is 1 then.
    """
    from pykbroker.entry.options import pairs_of
    from pykbroker.tools.node_migration.cluster_facts import read_cluster
    from pykbroker.tools.node_migration.node_check import check_cluster, check_directories, checked_settings

    node = checked_settings(pairs_of(config_file), config_file)
    facts = None
    if names_a_cluster(client):
        with client.cluster() as cluster:
            facts = read_cluster(cluster)
    if node.config is not None:
        alive = None if facts is None else facts.is_alive(node.config.node_id)
        check_directories(node, runs_in_cluster=alive)
        if facts is not None:
            check_cluster(node, facts)
    return _told(node.findings, out)


@command.command("plan", example="pykbroker migrate plan -b localhost:9092")
@click.option("--back", is_flag=True, help="The steps from pykbroker to Apache Kafka.")
@output_option
@client_options
def plan(client: ClientOptions, out: Output, back: bool) -> None:
    """Print the steps by which this cluster moves from Apache Kafka to pykbroker, in order, with their commands."""
    from pykbroker.tools.node_migration.cluster_facts import read_cluster
    from pykbroker.tools.node_migration.migration_plan import migration_plan

    with client.cluster() as cluster:
        facts = read_cluster(cluster)
    if facts.quorum is None or not facts.brokers:
        reasons = "; ".join(f"no answer about {what}: {why}" for what, why in facts.unanswered)
        raise click.ClickException(f"The roles of the nodes are not known: {reasons or 'the cluster names no broker'}")
    steps = migration_plan(facts, client.bootstrap, back=back)
    out.rows(StepRow, [StepRow(number, one.node, one.what, one.command) for number, one in enumerate(steps, 1)])


def _told(findings: list[NodeFinding], out: Output) -> int:
    """Print the findings, stops first. Returns the exit status."""
    from pykbroker.tools.node_migration.findings import FindingLevel

    order = list(FindingLevel)
    rows = [
        FindingRow(each.level.value, each.what, each.where, each.to_do)
        for each in sorted(findings, key=lambda each: order.index(each.level))
    ]
    out.rows(FindingRow, rows)
    return 1 if any(each.level is FindingLevel.STOP for each in findings) else 0
