"""kafka-cluster: print the id of the cluster, list its endpoints and API versions, unregister a node."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.kafka.broker_api_versions import print_versions
from pykbroker.tools.kafka.words import WordParser, add_servers, parsed, with_cluster
from pykbroker_wire.errors import ErrorCode

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster, ClusterNode


_DEPRECATED: Final = (
    "Option --config has been deprecated and will be removed in a future version. Use --command-config instead."
)


def run(words: Sequence[str]) -> int:
    parser = WordParser(prog="kafka-cluster", description="The Kafka cluster tool.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    known = {
        "cluster-id": "print the id of the cluster",
        "unregister": "forget a broker",
        "unregister-controller": "forget a controller",
        "list-endpoints": "list endpoints",
        "api-versions": "list the requests that each broker or controller serves",
    }
    for name, text in known.items():
        verb = verbs.add_parser(name, help=text, description=text)
        add_servers(verb, controllers=True, short=True)
        verb.add_argument("--config", help=argparse.SUPPRESS)
        if name.startswith("unregister"):
            verb.add_argument("--id", "-i", type=int, required=True, help="the id of the node")
        if name == "list-endpoints":
            verb.add_argument("--include-fenced-brokers", action="store_true", help="fenced brokers, too")
    options = parsed(parser, words)
    if options.config is not None:
        if options.command_config is not None:
            print("--config and --command-config cannot be specified together.", file=sys.stderr)
            return 1
        print(_DEPRECATED)
        options.command_config = options.config
    work = {
        "cluster-id": _print_id,
        "unregister": _unregister,
        "unregister-controller": _unregister_controller,
        "list-endpoints": _list,
        "api-versions": _print_versions,
    }
    return with_cluster(options, work[options.verb])


def _print_id(cluster: AskedCluster, _: argparse.Namespace) -> int:
    found = f"Cluster ID: {cluster.id}" if cluster.id else "No cluster ID found. The Kafka version is probably too old."
    print(found)
    return 0


def _unregister(cluster: AskedCluster, options: argparse.Namespace) -> int:
    return _forget(cluster.unregister, options.id, "broker")


def _unregister_controller(cluster: AskedCluster, options: argparse.Namespace) -> int:
    return _forget(cluster.unregister_controller, options.id, "controller")


def _forget(unregister: Callable[[int], None], number: int, role: str) -> int:
    try:
        unregister(number)
    except AskFailed as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        print(f"The target cluster does not support the {role} unregistration API.")
        return 0
    print(f"{role.capitalize()} {number} is no longer registered.")
    return 0


def _print_versions(cluster: AskedCluster, _: argparse.Namespace) -> int:
    print_versions(cluster)
    return 0


def _list(cluster: AskedCluster, options: argparse.Namespace) -> int:
    if cluster.of_controllers and options.include_fenced_brokers:
        print("The option --include-fenced-brokers is only supported with --bootstrap-server option", file=sys.stderr)
        return 1
    nodes = cluster.endpoints(with_fenced=options.include_fenced_brokers)
    print(endpoints_text(nodes, of_controllers=cluster.of_controllers), end="")
    return 0


def endpoints_text(nodes: Sequence[ClusterNode], *, of_controllers: bool) -> str:
    """Return a table of the nodes; a table of brokers also has their state."""
    # As in Apache Kafka, the column of racks is as wide as the longest rack, even if the heading is longer.
    host = max((len(node.host) for node in nodes), default=100)
    rack = max((len(node.rack) for node in nodes if node.rack is not None), default=10)
    rows = [["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"]]
    rows += [
        [
            str(node.id),
            node.host,
            str(node.port),
            "null" if node.rack is None else node.rack,
            "fenced" if node.fenced else "unfenced",
            "controller" if of_controllers else "broker",
        ]
        for node in nodes
    ]
    widths = [10, host, 10, rack, 10, 15]
    lines = []
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        if of_controllers:
            del cells[4]
        lines.append(" ".join(cells) + "\n")
    return "".join(lines)
