"""The line on standard output that says where a node, or a cluster, serves: for people, or as JSON for programs.

    pykbroker is ready: localhost:9092
    {"bootstrap_servers": "localhost:9092", "cluster_id": "...", "nodes": [{"node_id": 1, "listeners": [...], ...}]}

All hosts and URLs are those under which programs on this machine reach the node. Responsible for the text of the line,
and for joining the lines of a cluster's nodes to one. Not responsible for the moment at which it is printed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pykbroker.config.listeners import EndPoint
    from pykbroker.node.node import Node

#: the part of the JSON about one node
ReadyNode = dict[str, Any]


def for_people(bootstrap_servers: str) -> str:
    return f"pykbroker is ready: {bootstrap_servers}"


def as_json(bootstrap_servers: str, cluster_id: str, nodes: Iterable[ReadyNode]) -> str:
    """Return the line with all addresses, the nodes in the order of their ids."""
    return json.dumps(
        {
            "bootstrap_servers": bootstrap_servers,
            "cluster_id": cluster_id,
            "nodes": sorted(nodes, key=lambda node: int(node["node_id"])),
        }
    )


def of_node(node: Node, faults_url: str | None) -> str:
    """Return the line as JSON of a node that serves."""
    return as_json(node.bootstrap_servers, node.shared.cluster_id, [ready_node(node, faults_url)])


def ready_node(node: Node, faults_url: str | None) -> ReadyNode:
    """Return what JSON says of a node that serves. `faults_url`: where its fault rules are added, if they are."""
    controllers = node.config.listeners.controller_names
    return {
        "node_id": node.config.node_id,
        "listeners": [_listener(point, controllers) for point in node.local_end_points],
        "metrics": node.metrics_url,
        "faults": faults_url,
        "health": None if node.health_socket is None else os.path.abspath(node.health_socket),
    }


def node_in(line: bytes) -> ReadyNode | None:
    """Return the node that a line of `of_node` is about, or None for another line, which a plugin of the node may have
    printed."""
    try:
        found = json.loads(line)
        (node,) = found["nodes"]
        return dict(node) if "node_id" in node else None
    except (ValueError, TypeError, KeyError):
        return None


def _listener(point: EndPoint, controllers: tuple[str, ...]) -> dict[str, Any]:
    return {
        "name": point.listener_name,
        "role": "controller" if point.listener_name in controllers else "broker",
        "security_protocol": point.security_protocol,
        "host": point.host,
        "port": point.port,
    }
