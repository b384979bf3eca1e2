"""Several nodes of one cluster in the simulated world: their roles, and how they find their quorum.

Responsible for the members as a whole; sim_broker.py is responsible for the life of each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from pykbroker.config.load import development_profile
from pykbroker_raft.voters import Endpoint, VoterNode, VoterSet
from pykbroker_worlds.simulated.sim_broker import SimBroker
from pykbroker_worlds.simulated.world import SimWorld

#: node 1 listens on 9092, its controller half on 9093, node 2 on 9102, ...
PORTS = {number: 9082 + 10 * number for number in range(1, 10)}


class Quorum(Enum):
    """The voters of the cluster."""

    #: node 1
    ALONE = "alone"
    #: every node with a controller half, through controller.quorum.voters
    STATIC = "static"
    #: every node with a controller half, as the directories were formatted (KIP-853)
    DYNAMIC = "dynamic"
    #: node 1; the others are controllers too, and find it through controller.quorum.bootstrap.servers
    JOINED = "joined"


@dataclass(frozen=True, slots=True)
class Layout:
    """The number of nodes that are both, only brokers, and only controllers; numbered in this order."""

    combined: int
    brokers: int = 0
    controllers: int = 0

    @property
    def count(self) -> int:
        return self.combined + self.brokers + self.controllers

    def is_controller(self, number: int) -> bool:
        return number <= self.combined or number > self.combined + self.brokers

    def is_broker(self, number: int) -> bool:
        return number <= self.combined + self.brokers

    @property
    def controller_numbers(self) -> list[int]:
        return [number for number in range(1, self.count + 1) if self.is_controller(number)]


def _controller(number: int) -> str:
    return f"localhost:{PORTS[number] + 1}"


def _properties(number: int, layout: Layout, quorum: Quorum) -> dict[str, str]:
    properties = development_profile("/data", PORTS[number]) | {"node.id": str(number)}
    broker_listener, controller_listener = properties["listeners"].split(",")
    if not layout.is_controller(number):
        properties |= {"process.roles": "broker", "listeners": broker_listener, "advertised.listeners": broker_listener}
    if not layout.is_broker(number):
        properties |= {"process.roles": "controller", "listeners": controller_listener}
        properties["advertised.listeners"] = controller_listener
        del properties["inter.broker.listener.name"]
    if quorum is Quorum.ALONE or quorum is Quorum.JOINED:
        properties["controller.quorum.bootstrap.servers"] = _controller(1)
    elif quorum is Quorum.STATIC:
        del properties["controller.quorum.bootstrap.servers"]
        voters = ",".join(f"{n}@{_controller(n)}" for n in layout.controller_numbers)
        properties["controller.quorum.voters"] = voters
    else:
        servers = ",".join(_controller(n) for n in layout.controller_numbers)
        properties["controller.quorum.bootstrap.servers"] = servers
    return properties


class SimCluster:
    """The nodes by their ids; `brokers` are those with a broker half."""

    def __init__(
        self,
        world: SimWorld,
        count: int,
        overrides: Mapping[str, str],
        quorum: Quorum = Quorum.ALONE,
        layout: Layout | None = None,
        make_node: Callable[[SimWorld, int, Mapping[str, str]], SimBroker] = SimBroker,
    ) -> None:
        """By default `layout` makes all of `count` nodes both, or, with one voter alone, all but that one only
        brokers. `make_node` gets the world, the node's number and its properties."""
        self.world = world
        self.quorum = quorum
        if layout is None:
            layout = Layout(1, count - 1) if quorum is Quorum.ALONE else Layout(count)
        self.layout = layout
        #: the machine of the clients, for a network that breaks between them and the nodes
        self.client_machine: str | None = None
        self.nodes = {
            number: make_node(world, number, {**_properties(number, layout, quorum), **overrides})
            for number in range(1, layout.count + 1)
        }
        self.brokers = {number: node for number, node in self.nodes.items() if layout.is_broker(number)}
        self.voters = [1] if quorum in (Quorum.ALONE, Quorum.JOINED) else layout.controller_numbers

    async def start(self) -> None:
        def is_alone(number: int) -> bool:
            return self.quorum is Quorum.ALONE or (self.quorum is Quorum.JOINED and number == 1)

        keys = {number: node.format(standalone=is_alone(number)) for number, node in self.nodes.items()}
        if self.quorum is Quorum.ALONE:
            for node in self.nodes.values():
                await node.start()
            return
        if self.quorum is Quorum.DYNAMIC:
            voters = VoterSet.of(
                VoterNode(keys[number], (Endpoint("CONTROLLER", "localhost", PORTS[number] + 1),))
                for number in self.voters
            )
            for number in self.voters:
                self.nodes[number].format_voters(voters)
        # None of them starts completely before a majority is there.
        await asyncio.gather(*(node.start() for node in self.nodes.values()))

    def leader(self) -> SimBroker | None:
        """The node that a majority regards as the leader of the quorum."""
        opinions = [node.node.shared.quorum.leader_id for node in self.nodes.values() if node.up]
        named = {number for number in opinions if number is not None and 2 * opinions.count(number) > len(self.nodes)}
        return self.nodes[named.pop()] if named else None

    def is_whole(self, without: Collection[int] = ()) -> bool:
        """Return True if every broker is registered in its present state and serves, and so is every controller, as
        every node sees it. `without` are nodes that are left out."""
        nodes = {number: node for number, node in self.nodes.items() if number not in without}
        if self.leader() is None or not all(node.runs for node in nodes.values()):
            return False
        controllers = [1] if self.quorum is Quorum.ALONE else self.layout.controller_numbers
        for seer in nodes.values():
            image = seer.node.loader.image
            for number, node in nodes.items():
                incarnation_id = node.node.shared.incarnation_id
                if number in self.brokers:
                    known = image.brokers.get(number)
                    if known is None or known.incarnation_id != incarnation_id or not image.broker_is_active(number):
                        return False
                controller = image.controllers.get(number)
                if number in controllers and (controller is None or controller.incarnation_id != incarnation_id):
                    return False
        return True

    async def become_whole(self, seconds: float = 60.0, without: Collection[int] = ()) -> None:
        """Wait until all is well after the faults. B4, B7: without help every node becomes a member again."""
        end = self.world.loop.time() + seconds
        while not self.is_whole(without):
            assert self.world.loop.time() < end, {n: node.what_it_sees() for n, node in self.nodes.items()}
            await asyncio.sleep(0.1)

    async def stop(self) -> None:
        for number in sorted(self.nodes, reverse=True):
            if self.nodes[number].up:
                await self.nodes[number].stop()
