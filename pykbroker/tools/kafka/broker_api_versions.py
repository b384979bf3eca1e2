"""kafka-broker-api-versions: the requests that each broker serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.kafka.reach import BOOTSTRAP, COMMAND_CONFIG, exit_status, opened
from pykbroker.tools.kafka.tool_options import Options

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster, ClusterNode

OPTIONS = Options("This tool helps to retrieve broker version information.", [BOOTSTRAP, COMMAND_CONFIG])


def run(words: Sequence[str]) -> int:
    return exit_status(lambda: _run(words), "")


def _run(words: Sequence[str]) -> None:
    given = OPTIONS.parse(words)
    OPTIONS.help_or_version(words, given)
    OPTIONS.require(given, "bootstrap-server")
    with opened(given) as cluster:
        print_versions(cluster)


def print_versions(cluster: AskedCluster) -> None:
    """Print the versions of each node, or the reason why they are unknown."""
    for node in cluster.nodes():
        try:
            print(versions_text(node, cluster.versions(node.id)))
        except AskFailed as error:
            print(f"{_node_text(node)} -> ERROR: {error.name}: {error}")


def _node_text(node: ClusterNode) -> str:
    rack = "null" if node.rack is None else node.rack
    return f"{node.host}:{node.port} (id: {node.id} rack: {rack} isFenced: {str(node.fenced).lower()})"


def versions_text(node: ClusterNode, ranges: Mapping[int, tuple[int, int]]) -> str:
    """Return the text for a node: every request that it serves, or that a broker may serve, and the versions that this
    client can use."""
    from pykbroker_wire.apis import APIS

    lines = []
    for key, api in sorted(APIS.items()):
        if "broker" not in api.listeners and key not in ranges:
            continue
        name = f"{api.name}({int(key)})"
        if key not in ranges:
            lines.append(f"\t{name}: UNSUPPORTED")
            continue
        least, greatest = ranges[key]
        served = str(least) if least == greatest else f"{least} to {greatest}"
        usable = min(greatest, api.max_version)
        if api.max_version < least:
            usable_text = "[unusable: node too new]"
        elif greatest < api.min_version:
            usable_text = "[unusable: node too old]"
        else:
            usable_text = f"[usable: {usable}]"
        lines.append(f"\t{name}: {served} {usable_text}")
    known = {int(key) for key in APIS}
    for number in sorted(set(ranges) - known):
        least, greatest = ranges[number]
        served = str(least) if least == greatest else f"{least} to {greatest}"
        lines.append(f"\tUNKNOWN({number}): {served}")
    body = ",\n".join(lines)
    return f"{_node_text(node)} -> (\n{body}\n)"
