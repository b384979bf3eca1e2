"""`pykbroker leaders`: the leaders of partitions of any Kafka cluster."""

from __future__ import annotations

from dataclasses import dataclass

import click

from pykbroker.tools.commands.client_options import ClientOptions, client_options
from pykbroker.tools.commands.command_group import CommandGroup
from pykbroker.tools.commands.completion import topic_names
from pykbroker.tools.commands.output import Output, output_option


@dataclass(frozen=True, slots=True)
class ElectionRow:
    """One partition of an election."""

    topic: str
    partition: int
    #: elected, or unchanged if the right replica led already
    outcome: str


@click.group("leaders", cls=CommandGroup)
def command() -> None:
    """Elect leaders of partitions."""


@command.command(
    "elect",
    example="pykbroker leaders elect orders\npykbroker leaders elect --all-topics\n"
    "pykbroker leaders elect orders:0 --unclean",
)
@click.argument("topics", nargs=-1, metavar="[TOPIC[:0,1]]...", shell_complete=topic_names)
@click.option("--all-topics", is_flag=True, help="Every partition of the cluster.")
@click.option(
    "--unclean",
    is_flag=True,
    help="Elect a replica that is not in sync, of a partition without a leader. Records that it lacks are lost.",
)
@output_option
@client_options
def elect(client: ClientOptions, out: Output, topics: tuple[str, ...], all_topics: bool, unclean: bool) -> None:
    """Make the preferred replica of each partition its leader, which is the first of its replicas."""
    from pykbroker.tools.cluster import leader_choice
    from pykbroker.tools.cluster import topics as asked
    from pykbroker.tools.cluster.failure import AskFailed
    from pykbroker.tools.cluster.reset_plan import BadReset, scope
    from pykbroker.tools.commands.unknown_names import unknown_topic
    from pykbroker_wire.errors import ErrorCode

    if bool(topics) == all_topics:
        raise click.UsageError("Say which partitions: TOPIC or --all-topics.", click.get_current_context())
    with client.cluster() as cluster:
        places = None
        if topics:
            known = {one.name: one.partitions for one in asked.listed(cluster)}
            for text in topics:
                if text.partition(":")[0] not in known:
                    raise unknown_topic(text.partition(":")[0], known)
            try:
                places = scope(topics, known)
            except BadReset as refused:
                raise click.ClickException(refused.plain) from refused
        outcomes = leader_choice.elect(cluster, leader_choice.UNCLEAN if unclean else leader_choice.PREFERRED, places)
    rows: list[ElectionRow] = []
    failures: list[AskFailed] = []
    for place in sorted(outcomes):
        error = outcomes[place]
        if error is None:
            rows.append(ElectionRow(*place, "elected"))
        elif error.code == ErrorCode.ELECTION_NOT_NEEDED:
            rows.append(ElectionRow(*place, "unchanged"))
        else:
            failures.append(
                AskFailed(f"No leader was elected of {place[0]}-{place[1]}: {error}", error.name, error.code)
            )
    if rows or not failures:
        out.rows(ElectionRow, rows)
    if failures:
        raise failures[0]
