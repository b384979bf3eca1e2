"""The nodes of a cluster on one machine, their ports, and their properties. Pure.

Responsible for `cluster.json`, which describes a directory tree, and for the properties of each node. Not responsible
for files and processes (supervisor.py).

Invariant: voters, their addresses and their directory ids never change once `cluster.json` has them; brokers may be
added. So if the first start was interrupted while it made the tree, the next start completes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pykbroker.config.cluster_profile import check_own_keys, replicated_profile
from pykbroker.config.kinds import ConfigError
from pykbroker.entry.health import SOCKET_NAME
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet
from pykbroker_wire.primitives import uuid_from_str, uuid_to_str

HOST = "127.0.0.1"
#: The file of the tree that has its `Layout`.
CLUSTER_FILE = "cluster.json"
#: Pure controllers have ids above this number, because the ids of brokers, which may be added, count from 1 upwards.
CONTROLLERS_BEHIND = 1000
#: The ports of controllers are this far above those of the brokers, or below them if such ports would be too high.
_PORTS_ABOVE = 10_000
_MOST_PORT = 65_535
_MOST_VOTERS = 3


@dataclass(frozen=True, slots=True)
class Member:
    """A node as `cluster.json` has it."""

    number: int
    is_broker: bool
    #: None for a node that is no voter, as is `directory_id`
    controller_port: int | None
    directory_id: bytes | None

    @property
    def roles(self) -> str:
        both = (("broker", self.is_broker), ("controller", self.controller_port is not None))
        return ",".join(role for role, has in both if has)


@dataclass(frozen=True, slots=True)
class Layout:
    cluster_id: str
    members: tuple[Member, ...]

    @property
    def brokers(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.is_broker)

    @property
    def voters(self) -> VoterSet:
        return VoterSet.of(
            VoterNode(
                ReplicaKey(member.number, member.directory_id), (Endpoint("CONTROLLER", HOST, member.controller_port),)
            )
            for member in self.members
            if member.controller_port is not None and member.directory_id is not None
        )

    def stop_order(self) -> list[list[Member]]:
        """Return groups of members that stop together: first the members that are only brokers, because their shutdown
        needs a controller; then the voters."""
        voters = [member for member in self.members if member.controller_port is not None]
        return [[member for member in self.members if member not in voters], voters]

    def to_json(self) -> str:
        return json.dumps(
            {
                "version": 1,
                "cluster.id": self.cluster_id,
                "nodes": [
                    {
                        "node.id": member.number,
                        "process.roles": member.roles,
                        "controller.port": member.controller_port,
                        "directory.id": None if member.directory_id is None else uuid_to_str(member.directory_id),
                    }
                    for member in self.members
                ],
            },
            indent=1,
        )


def layout_from_json(text: str, path: str) -> Layout:
    """Parse `cluster.json`. Raises ConfigError for a text that `to_json` has not written."""
    try:
        found = json.loads(text)
        if found["version"] != 1:
            raise ValueError(f"version {found['version']}")
        members = tuple(
            Member(
                int(node["node.id"]),
                "broker" in node["process.roles"].split(","),
                None if node["controller.port"] is None else int(node["controller.port"]),
                None if node["directory.id"] is None else uuid_from_str(node["directory.id"]),
            )
            for node in found["nodes"]
        )
        uuid_from_str(found["cluster.id"])
        return Layout(found["cluster.id"], members)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} does not describe a cluster: {error}") from None


def new_layout(
    brokers: int,
    controllers: int,
    port: int,
    new_id: Callable[[], bytes],
    free_port: Callable[[], int],
    *,
    is_taken: Callable[[int], bool] = lambda port: False,
) -> Layout:
    """Return a layout of `brokers` nodes and `controllers` further nodes. If `controllers` is 0, three of the brokers
    are voters, or one if there are fewer than three brokers. `port`: the port of the first broker; 0 takes free
    ports. A controller gets a free port if `is_taken` is True for its usual one, which no user has asked for."""
    _check(brokers, controllers, port)
    voting = controllers or (_MOST_VOTERS if brokers >= _MOST_VOTERS else 1)
    first = port + _PORTS_ABOVE if port + _PORTS_ABOVE + voting <= _MOST_PORT else port - _PORTS_ABOVE
    of_clients = range(port, port + brokers)

    def controller_port(usual: int) -> int:
        if port and not is_taken(usual):
            return usual
        while (found := free_port()) in of_clients:
            pass
        return found

    def voter(place: int, number: int, *, is_broker: bool) -> Member:
        return Member(number, is_broker, controller_port(first + place), new_id())

    members = [
        voter(place, place + 1, is_broker=True)
        if not controllers and place < voting
        else Member(place + 1, is_broker=True, controller_port=None, directory_id=None)
        for place in range(brokers)
    ]
    members += [voter(place, CONTROLLERS_BEHIND + place + 1, is_broker=False) for place in range(controllers)]
    return Layout(uuid_to_str(new_id()), tuple(members))


def grown(layout: Layout, brokers: int, controllers: int, port: int, path: str) -> Layout:
    """Return the layout of an existing cluster, changed to the wanted number of brokers. Raises ConfigError if the
    cluster cannot change to it."""
    _check(brokers, controllers, port)
    earlier = len(layout.brokers)
    others = len(layout.members) - earlier
    if controllers not in (0, others):
        raise ConfigError(
            f"The cluster in {path} has {others} controllers of their own, and --controllers asks for {controllers}; "
            "its voters stay what they are. Choose another --data-dir for another cluster"
        )
    if brokers < earlier:
        raise ConfigError(
            f"The cluster in {path} has {earlier} brokers, and --brokers asks for {brokers}: start all of them, or "
            "choose another --data-dir"
        )
    new = (Member(number, True, None, None) for number in range(earlier + 1, brokers + 1))
    by_number = {member.number: member for member in (*layout.members, *new)}
    return Layout(layout.cluster_id, tuple(by_number[number] for number in sorted(by_number)))


def client_ports(layout: Layout, port: int, free_port: Callable[[], int]) -> dict[int, int]:
    """Return the port of each broker for clients: `port` and the ports after it, or free ports if `port` is 0."""
    return {member.number: port + place if port else free_port() for place, member in enumerate(layout.brokers)}


def node_folder(tree: str, number: int) -> str:
    return os.path.join(tree, f"node-{number}")


def properties_of(
    layout: Layout, member: Member, tree: str, ports: Mapping[int, int], given: Mapping[str, str]
) -> dict[str, str]:
    """Return the properties of a node. `given`: keys for all nodes. Raises ConfigError for a key that the cluster
    decides."""
    listeners = []
    if member.is_broker:
        listeners.append(f"PLAINTEXT://{HOST}:{ports[member.number]}")
    if member.controller_port is not None:
        listeners.append(f"CONTROLLER://{HOST}:{member.controller_port}")
    voters = [each.controller_port for each in layout.members if each.controller_port is not None]
    return {
        **replicated_profile(len(layout.brokers)),
        "pykbroker.health.socket": os.path.join(node_folder(tree, member.number), SOCKET_NAME),
        **check_own_keys(given),
        "process.roles": member.roles,
        "node.id": str(member.number),
        "listeners": ",".join(listeners),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": ",".join(f"{HOST}:{port}" for port in voters),
        "log.dirs": os.path.join(node_folder(tree, member.number), "data"),
    }


def bootstrap_servers(ports: Mapping[int, int]) -> str:
    return ",".join(f"{HOST}:{port}" for _, port in sorted(ports.items()))


def signals_of(status: int) -> str:
    """Return how a process ended, in words."""
    return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"


def _check(brokers: int, controllers: int, port: int) -> None:
    if brokers < 1:
        raise ConfigError(f"--brokers {brokers}: a cluster has at least one broker")
    if brokers > CONTROLLERS_BEHIND:
        raise ConfigError(f"--brokers {brokers}: at most {CONTROLLERS_BEHIND}")
    if controllers < 0:
        raise ConfigError(f"--controllers {controllers}: not below 0")
    if port < 0 or port + brokers - 1 > _MOST_PORT:
        raise ConfigError(f"--port {port}: the ports of {brokers} brokers end beyond {_MOST_PORT}")
