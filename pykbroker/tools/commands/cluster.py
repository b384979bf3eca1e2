"""`pykbroker cluster`: the nodes and features of any Kafka cluster."""

from __future__ import annotations

from dataclasses import dataclass

import click

from pykbroker.tools.commands.client_options import ClientOptions, client_options, controller_options
from pykbroker.tools.commands.command_group import CommandGroup
from pykbroker.tools.commands.output import Output, column, output_option


@dataclass(frozen=True, slots=True)
class ClusterId:
    cluster_id: str


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """One broker."""

    id: int
    host: str
    port: int
    rack: str | None
    #: True if it is registered but does not serve; None if the cluster does not return this (before Apache Kafka 4.0)
    fenced: bool | None


@dataclass(frozen=True, slots=True)
class ControllerRow:
    """One controller of the quorum."""

    id: int
    #: leader, voter or observer
    role: str
    endpoints: tuple[str, ...]
    directory_id: str | None = column("DIRECTORY")


@dataclass(frozen=True, slots=True)
class FeatureRow:
    """One feature (KIP-584)."""

    feature: str
    #: the level that the cluster uses; 0 if it does not use the feature
    level: int
    supported_min: int = column("SUPPORTED FROM")
    supported_max: int = column("TO")


@dataclass(frozen=True, slots=True)
class UnregisteredBroker:
    unregistered: int


@click.group("cluster", cls=CommandGroup)
def command() -> None:
    """Show the nodes and the features of a cluster; unregister brokers."""


@command.command("id", example="pykbroker cluster id")
@output_option
@controller_options
def id_(client: ClientOptions, out: Output) -> None:
    """Print the id of the cluster."""
    with client.cluster() as cluster:
        found = cluster.id
    out.done(found, ClusterId(found))


@command.command("brokers", example="pykbroker cluster brokers -o json")
@output_option
@client_options
def brokers(client: ClientOptions, out: Output) -> None:
    """List the brokers, also those that are fenced."""
    from pykbroker.tools.cluster.failure import AskFailed
    from pykbroker_wire.errors import ErrorCode

    with client.cluster() as cluster:
        try:
            rows = [
                BrokerRow(node.id, node.host, node.port, node.rack, node.fenced)
                for node in cluster.endpoints(with_fenced=True)
            ]
        except AskFailed as error:
            if error.code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            rows = [BrokerRow(node.id, node.host, node.port, node.rack, None) for node in cluster.nodes()]
    out.rows(BrokerRow, rows)


@command.command("controllers", example="pykbroker cluster controllers")
@output_option
@controller_options
def controllers(client: ClientOptions, out: Output) -> None:
    """List the controllers: voters of the quorum, and those that only follow it."""
    from pykbroker.tools.cluster import quorum_replicas

    with client.cluster() as cluster:
        found = quorum_replicas.described(cluster)
        brokers = set() if client.of_controllers else {node.id for node in cluster.nodes()}
    rows = [
        ControllerRow(one.id, "leader" if one.id == found.leader else "voter", one.endpoints, one.directory_id)
        for one in found.voters
    ]
    # Brokers are observers too, so they are left out. A node of both roles that is not a voter cannot be distinguished
    # from a broker, so it is left out too.
    rows += [
        ControllerRow(one.id, "observer", one.endpoints, one.directory_id)
        for one in found.observers
        if one.id not in brokers
    ]
    out.rows(ControllerRow, rows)


@command.command("features", example="pykbroker cluster features")
@output_option
@controller_options
def features(client: ClientOptions, out: Output) -> None:
    """List the features: the level that is in use, and those that the node supports."""
    from pykbroker.tools.cluster import finalized

    with client.cluster() as cluster:
        found, _ = finalized.described(cluster)
    out.rows(FeatureRow, [FeatureRow(one.name, one.level, one.least, one.greatest) for one in found])


@command.command("unregister", example="pykbroker cluster unregister 4")
@click.argument("broker", type=click.IntRange(min=0), metavar="ID")
@output_option
@controller_options
def unregister(client: ClientOptions, out: Output, broker: int) -> None:
    """Make the cluster forget a broker that has stopped for good."""
    with client.cluster() as cluster:
        cluster.unregister(broker)
    out.done(f"Unregistered broker {broker}.", UnregisteredBroker(broker))
