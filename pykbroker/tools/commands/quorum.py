"""`pykbroker quorum`: the quorum of the controllers of any Kafka cluster."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from pykbroker.tools.commands.client_options import ClientOptions, controller_options
from pykbroker.tools.commands.command_group import CommandGroup
from pykbroker.tools.commands.output import Output, Table, column, output_option

if TYPE_CHECKING:
    from pykbroker.tools.cluster.quorum_replicas import DescribedQuorum, QuorumReplica

_ENDPOINT: Final = re.compile(r"([\w.-]+)://(.+):(\d+)")


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """One replica of the metadata log."""

    id: int
    #: leader, voter or observer
    role: str
    end_offset: int
    #: the number of offsets from its end to the leader's end
    lag: int
    #: in UTC; None for a replica that has never fetched, and for the leader
    last_fetch: str | None = column("LAST FETCH")
    last_caught_up: str | None = column("LAST CAUGHT UP")
    directory_id: str | None = column("DIRECTORY")
    endpoints: tuple[str, ...] = column("")


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The output of `quorum describe`."""

    cluster_id: str
    leader: int
    leader_epoch: int
    high_watermark: int
    replicas: tuple[ReplicaRow, ...]


@dataclass(frozen=True, slots=True)
class ChangedVoter:
    """A controller that was added to the voters, or removed from them."""

    id: int
    directory_id: str
    outcome: str


@click.group("quorum", cls=CommandGroup)
def command() -> None:
    """Describe the quorum of the controllers; add and remove voters."""


@command.command("describe", example="pykbroker quorum describe")
@output_option
@controller_options
def describe(client: ClientOptions, out: Output) -> None:
    """Describe the quorum: its leader, and how far each replica is."""
    from pykbroker.tools.cluster import quorum_replicas

    with client.cluster() as cluster:
        found = quorum_replicas.described(cluster)
        cluster_id = cluster.id
    rows = _rows(found)
    told = QuorumDescription(cluster_id, found.leader, found.leader_epoch, found.high_watermark, rows)
    heading = (
        f"Cluster {cluster_id}, leader {found.leader} in epoch {found.leader_epoch}, "
        f"committed up to {found.high_watermark}"
    )
    out.tables(told, Table(ReplicaRow, rows, heading))


@command.command("add", example="pykbroker quorum add 4 --endpoint CONTROLLER://host4:9093")
@click.argument("controller", type=click.IntRange(min=0), metavar="ID")
@click.option(
    "--endpoint",
    "endpoints",
    multiple=True,
    required=True,
    metavar="LISTENER://HOST:PORT",
    help="Where the other controllers reach it (may be repeated).",
)
@click.option("--directory-id", metavar="ID", help="Of its metadata (default: what the quorum knows of it).")
@output_option
@controller_options
def add(
    client: ClientOptions, out: Output, controller: int, endpoints: tuple[str, ...], directory_id: str | None
) -> None:
    """Make a controller that follows the quorum one of its voters."""
    from pykbroker.tools.cluster import quorum_replicas

    read = [_endpoint(text) for text in endpoints]
    with client.cluster() as cluster:
        directory = directory_id or _directory(controller, quorum_replicas.described(cluster).observers, "observer")
        _check_id(directory)
        quorum_replicas.add(cluster, controller, directory, read)
    said = f"Added controller {controller} with directory {directory} to the voters."
    out.done(said, ChangedVoter(controller, directory, "added"))


@command.command("remove", example="pykbroker quorum remove 4")
@click.argument("controller", type=click.IntRange(min=0), metavar="ID")
@click.option("--directory-id", metavar="ID", help="Of its metadata (default: what the quorum knows of it).")
@output_option
@controller_options
def remove(client: ClientOptions, out: Output, controller: int, directory_id: str | None) -> None:
    """Take a controller out of the voters."""
    from pykbroker.tools.cluster import quorum_replicas

    with client.cluster() as cluster:
        directory = directory_id or _directory(controller, quorum_replicas.described(cluster).voters, "voter")
        _check_id(directory)
        quorum_replicas.remove(cluster, controller, directory)
    said = f"Removed controller {controller} with directory {directory} from the voters."
    out.done(said, ChangedVoter(controller, directory, "removed"))


def _check_id(text: str) -> None:
    """Raise UsageError for a text that is not the id of a directory."""
    from pykbroker_wire.primitives import uuid_from_str

    try:
        uuid_from_str(text)
    except ValueError:
        raise click.UsageError(f"'{text}' is not the id of a directory.", click.get_current_context()) from None


def _endpoint(text: str) -> tuple[str, str, int]:
    found = _ENDPOINT.fullmatch(text)
    if found is None:
        raise click.UsageError(f"--endpoint '{text}' is not LISTENER://HOST:PORT.", click.get_current_context())
    return found[1], found[2].strip("[]"), int(found[3])


def _directory(controller: int, replicas: tuple[QuorumReplica, ...], role: str) -> str:
    """Return the directory id of a replica of the quorum."""
    for one in replicas:
        if one.id == controller and one.directory_id is not None:
            return one.directory_id
    there = ", ".join(str(one.id) for one in replicas) or "none"
    raise click.ClickException(f"The quorum has no {role} {controller} with a directory id: its {role}s are {there}")


def _rows(quorum: DescribedQuorum) -> tuple[ReplicaRow, ...]:
    end = next((one.end_offset for one in quorum.voters if one.id == quorum.leader), 0)

    def row(one: QuorumReplica, role: str) -> ReplicaRow:
        return ReplicaRow(
            one.id,
            role,
            one.end_offset,
            max(0, end - one.end_offset),
            _time(one.last_fetch_ms),
            _time(one.last_caught_up_ms),
            one.directory_id,
            one.endpoints,
        )

    voters = [row(one, "leader" if one.id == quorum.leader else "voter") for one in quorum.voters]
    return (*voters, *(row(one, "observer") for one in quorum.observers))


def _time(timestamp_ms: int) -> str | None:
    if timestamp_ms < 0:
        return None
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
