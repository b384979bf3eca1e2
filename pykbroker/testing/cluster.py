"""Several nodes inside one process, as one cluster: `with Cluster(nodes=3) as cluster: cluster.bootstrap_servers`.

Each node is broker and controller, on a thread and a loop of its own, with sockets of the loopback interface and a
temporary directory. Nodes can be killed, stopped, paused and cut off from each other. Responsible for the resources
that they share: ports, directories, the first voters. node_thread.py ends and pauses a node, and killable.py holds back
its traffic.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Self

from pykbroker.config.cluster_profile import check_own_keys, replicated_profile
from pykbroker.config.load import Config
from pykbroker.config.start_up import start_config
from pykbroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pykbroker.node.node import Node
from pykbroker.runtime.descriptor_budget import of_this_process
from pykbroker.storage.format import format_directories
from pykbroker.testing.arrangement import CONTROLLER_SECONDS, Arranged, as_text
from pykbroker.testing.inspection import KnownTopic, topics_of
from pykbroker.testing.killable import KillableRuntime
from pykbroker.testing.network import HOST, Network
from pykbroker.testing.node_thread import KillableNode
from pykbroker.testing.watched import Watched
from pykbroker.testing.with_block import WithBlock
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet
from pykbroker_wire.primitives import random_uuid, uuid_to_str

_POLL_SECONDS = 0.02
_PATIENCE_SECONDS = 60.0


def cluster_profile(nodes: int) -> dict[str, str]:
    """Return the keys of the nodes, without addresses. With them topics survive the loss of a node, a lost node is
    detected within a few seconds, and internal topics are small."""
    return {
        **replicated_profile(nodes),
        "offsets.topic.num.partitions": "6",
        "transaction.state.log.num.partitions": "6",
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
        "controller.quorum.election.timeout.ms": "200",
        "controller.quorum.election.backoff.max.ms": "200",
        "controller.quorum.fetch.timeout.ms": "1000",
    }


class Cluster(WithBlock, Watched, Arranged):
    """Nodes 1 to `nodes`, each broker and controller.

    `nodes`: their number. `properties`: Kafka's configuration keys of every node, which override `cluster_profile`.
    `node_properties`: node id -> keys of this node, for example `broker.rack`. The directories are removed with the
    cluster; until then a node that was stopped or killed may be started again, at the same address. `record`: keep the
    requests of clients, for `requests`.

    Methods may be called from any thread of the host, one at a time.
    """

    def __init__(
        self,
        nodes: int = 3,
        properties: Mapping[str, object] | None = None,
        node_properties: Mapping[int, Mapping[str, object]] | None = None,
        *,
        record: bool = False,
    ) -> None:
        """Raises ValueError for an unknown node, ConfigError for a key that the cluster itself decides."""
        super().__init__(record=record)
        if nodes < 1:
            raise ValueError(f"a cluster of {nodes} nodes")
        #: the ids of all nodes, whether they run or not
        self.nodes = tuple(range(1, nodes + 1))
        unknown = set(node_properties or {}) - set(self.nodes)
        if unknown:
            raise ValueError(f"there is no node {min(unknown)}")

        def texts(given: Mapping[str, object]) -> dict[str, str]:
            return check_own_keys({key: as_text(value) for key, value in given.items()})

        self._properties = {
            number: {
                **cluster_profile(nodes),
                **texts(properties or {}),
                **texts((node_properties or {}).get(number, {})),
            }
            for number in self.nodes
        }
        self._network = Network()
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._ports: dict[int, int] = {}
        self._configs: dict[int, Config] = {}
        self._running: dict[int, KillableNode] = {}

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every node, separated by commas, so that clients find those that run. Raises RuntimeError
        before `start`."""
        return ",".join(self.address(number) for number in self.nodes)

    def address(self, number: int) -> str:
        """Return `host:port` of one node, whether it runs or not. Raises RuntimeError before `start`."""
        self._known((number,))
        if not self._ports:
            raise RuntimeError("the cluster is not running")
        return f"{HOST}:{self._ports[number]}"

    def data_dir(self, number: int) -> str:
        """Return the log directory of one node. Raises RuntimeError before `start`."""
        self._known((number,))
        if self._temporary is None:
            raise RuntimeError("the cluster is not running")
        return os.path.join(self._temporary.name, str(number))

    @property
    def running(self) -> tuple[int, ...]:
        """The nodes that were started and neither stopped nor killed, including paused ones."""
        return tuple(sorted(number for number, run in self._running.items() if run.runs))

    @property
    def paused(self) -> tuple[int, ...]:
        """The paused nodes."""
        return tuple(number for number in self.running if self._running[number].is_paused)

    def metrics(self, number: int) -> dict[str, float]:
        """Return the metrics of one node by Kafka's names, with their current values. Raises RuntimeError if it does
        not run, or is paused."""
        self._node(number)
        if number in self.paused:
            raise RuntimeError(f"node {number} is paused")
        return {sample.name: sample.value for sample in self._running[number].metrics()}

    def controller(self) -> int | None:
        """Return the id of the active controller, or None. If several nodes consider themselves leader of the quorum,
        return the node with the newest epoch."""
        quorums = [node.shared.quorum for node in self._serving() if node.shared.quorum.is_leader]
        return max(quorums, key=lambda quorum: quorum.epoch).node_id if quorums else None

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Return the leader of a partition, from the newest metadata of a running node. None if there is no leader, or
        no such partition."""
        found = self._image().topics.partition(topic, partition)
        return None if found is None or found.leader < 0 else found.leader

    def in_sync_replicas(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """Return the ISR of a partition, from the newest metadata of a running node."""
        found = self._image().topics.partition(topic, partition)
        return () if found is None else found.isr

    # -- nodes that come and go ---------------------------------------------------------------------------------------

    def start(self, *nodes: int, timeout_seconds: float = _PATIENCE_SECONDS) -> Self:
        """Start these nodes, or all, and wait until each serves clients. Nodes that run already are left out.

        Raises the exception that kept a node from starting. Raises TimeoutError if a node does not serve in time (a
        quorum needs more than half of the nodes); that node continues its start.
        """
        self._known(nodes)
        chosen = [number for number in nodes or self.nodes if number not in self.running]
        if self._temporary is None:
            self._prepare()
        for number in chosen:
            self._running[number] = self._begin(number)
        deadline = time.monotonic() + timeout_seconds
        for number in nodes or self.nodes:
            try:
                self._running[number].wait_until_ready(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise
            except BaseException:
                self.close()
                # The failure is raised now, so the end of the block must not raise it again.
                self._failure = None
                raise
        return self

    def stop(self, *nodes: int) -> None:
        """Shut these nodes down in parallel, or all; returns when they have ended. A node that does not run is ignored.
        Raises RuntimeError for a paused node."""
        self._known(nodes)
        chosen = [number for number in nodes or self.nodes if number in self._running]
        still = [number for number in chosen if number in self.paused]
        if still:
            raise RuntimeError(f"node {still[0]} is paused: resume it first, or kill it")
        for number in chosen:
            self._running[number].begin_stop()
        for number in chosen:
            self._end(number, self._running[number].stop)

    def kill(self, *nodes: int) -> None:
        """End these nodes at once, or all, as `kill -9` does; returns when they have ended.

        Sockets are closed and ports refuse connections. The node writes and flushes nothing after that, and does not
        notify other nodes.
        The directory stays as it is, for `start`. A node that does not run is ignored.
        """
        self._known(nodes)
        chosen = [number for number in nodes or self.nodes if number in self._running]
        for number in chosen:
            self._running[number].begin_kill()
        for number in chosen:
            self._end(number, self._running[number].kill)

    def pause(self, *nodes: int) -> None:
        """Pause these nodes, or all, as SIGSTOP does; returns when they are paused. Their sockets stay open, and accept
        connections and requests without answering. Raises RuntimeError for a node that does not run."""
        self._known(nodes)
        for number in nodes or self.nodes:
            self._node(number)
            if not self._running[number].is_paused:
                self._running[number].pause()

    def resume(self, *nodes: int) -> None:
        """Resume these nodes, or all that are paused."""
        self._known(nodes)
        for number in nodes or self.paused:
            if number in self._running:
                self._running[number].resume()

    def close(self) -> None:
        """End the cluster: kill its nodes, remove its directories, free its ports. A second call changes nothing."""
        self.kill()
        self._network.close()
        if self._temporary is not None:
            self._temporary.cleanup()
        self._temporary, self._ports = None, {}

    # -- the network --------------------------------------------------------------------------------------------------

    def partition_network(self, *groups: Iterable[int]) -> None:
        """Cut the traffic between nodes of different groups: `partition_network([1], [2, 3])`.

        Nodes that are in no group form one more group, so that `partition_network([1])` isolates node 1. All traffic
        between two nodes is cut in both directions, also that of their controllers: sent bytes wait, and arrive after
        `heal`; new connections wait. Clients reach every node, unless `CLIENTS` is a member of a group:
        `partition_network([1], [2, 3, CLIENTS])`. Then only nodes of that group read the bytes of clients. A second
        call replaces the first.
        """
        self._network.partition(groups, self.nodes)
        self._network_changed()

    def heal(self) -> None:
        """Let all nodes reach each other again."""
        self._network.heal()
        self._network_changed()

    # -- rest ---------------------------------------------------------------------------------------------------------

    def wait_until_in_sync(self, *topics: str, timeout_seconds: float = _PATIENCE_SECONDS) -> None:
        """Wait until every node runs, serves clients, and has every replica of these topics, or of all, in the ISR.
        Raises TimeoutError, which names what is missing."""
        deadline = time.monotonic() + timeout_seconds
        while missing := self._missing(topics):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not after {timeout_seconds} s: {missing}")
            time.sleep(_POLL_SECONDS)

    def restore(self) -> None:
        """Undo every fault: remove the fault rules, heal, resume, start stopped nodes, and wait until all replicas are
        in sync."""
        self.faults.clear()
        self.heal()
        self.resume()
        self.start()
        self.wait_until_in_sync()

    def _missing(self, topics: Iterable[str]) -> str:
        """Return a text about the first thing that `wait_until_in_sync` still waits for, or "" if there is none."""
        images = [node.loader.image for node in self._serving()]
        if len(images) < len(self.nodes):
            return f"only nodes {self.running} run, of them are paused: {self.paused}"
        newest = max(images, key=lambda image: image.offset)
        fenced = [number for number in self.nodes if not newest.broker_is_active(number)]
        if fenced:
            return f"nodes {fenced} are fenced"
        behind = [number for number, image in zip(self.nodes, images, strict=True) if image.offset < newest.offset]
        if behind:
            return f"nodes {behind} have older metadata"
        for name in topics or newest.topics.by_name:
            topic = newest.topics.by_name.get(name)
            if topic is None:
                return f"there is no topic {name}"
            for index, partition in topic.partitions.items():
                if set(partition.isr) != set(partition.replicas) or partition.leader < 0:
                    return f"{name}-{index} has replicas {partition.replicas}, ISR {partition.isr}"
        return ""

    # -- parts --------------------------------------------------------------------------------------------------------

    def _known(self, nodes: Iterable[int]) -> None:
        for number in nodes:
            if number not in self.nodes:
                raise ValueError(f"there is no node {number}")

    def _node(self, number: int) -> Node:
        self._known((number,))
        run = self._running.get(number)
        if run is None or run.node is None:
            raise RuntimeError(f"node {number} is not running")
        return run.node

    def _serving(self) -> list[Node]:
        """Return the nodes that serve, in the order of their ids."""
        nodes = (self._running[number].node for number in self.running)
        return [node for node in nodes if node is not None]

    def _image(self) -> MetadataImage:
        images = (node.loader.image for node in self._serving())
        return max(images, key=lambda image: image.offset, default=EMPTY_IMAGE)

    def _ask(self, node: int, request: Any) -> Any:
        return self._running[node].ask(request)

    def _ask_controller(self, request: Any) -> Any:
        serving = self._asked_nodes()
        if not serving:
            raise RuntimeError("no node of the cluster serves")
        # The controller's own node needs no network, which may be cut.
        controller = self.controller()
        asked = controller if controller in serving else serving[0]
        return self._running[asked].ask_controller(request, CONTROLLER_SECONDS)

    def _known_topics(self) -> Mapping[str, KnownTopic]:
        return topics_of(self._image())

    def _asked_nodes(self) -> tuple[int, ...]:
        """Return the nodes that answer; a paused one does not."""
        return tuple(
            number for number in self.running if self._running[number].node is not None and number not in self.paused
        )

    def _network_changed(self) -> None:
        for number in self.running:
            self._running[number].network_changed()

    def _prepare(self) -> None:
        """Choose ports, directories and the first voters."""
        disk, rng = OsDisk(), random.SystemRandom()
        temporary = tempfile.TemporaryDirectory(prefix="pykbroker-")
        try:
            clients = {number: self._network.reserve(number) for number in self.nodes}
            controllers = {number: self._network.reserve(number) for number in self.nodes}
            bootstrap = ",".join(f"{HOST}:{port}" for port in controllers.values())
            voters = VoterSet.of(
                VoterNode(ReplicaKey(number, random_uuid(rng)), (Endpoint("CONTROLLER", HOST, port),))
                for number, port in controllers.items()
            )
            cluster_id = uuid_to_str(random_uuid(rng))
            for number in self.nodes:
                listeners = f"PLAINTEXT://{HOST}:{clients[number]},CONTROLLER://{HOST}:{controllers[number]}"
                properties = {
                    **self._properties[number],
                    "process.roles": "broker,controller",
                    "node.id": str(number),
                    "listeners": listeners,
                    "inter.broker.listener.name": "PLAINTEXT",
                    "controller.listener.names": "CONTROLLER",
                    "controller.quorum.bootstrap.servers": bootstrap,
                    "log.dirs": os.path.join(temporary.name, str(number)),
                }
                config = self._configs[number] = start_config(properties)
                now_ms = time.time_ns() // 1_000_000
                format_directories(disk, config, cluster_id, rng, now_ms=now_ms, initial_voters=voters)
        except BaseException:
            self._network.close()
            temporary.cleanup()
            raise
        self._temporary, self._ports = temporary, clients

    def _begin(self, number: int) -> KillableNode:
        runtime: Callable[[asyncio.AbstractEventLoop], KillableRuntime] = partial(
            KillableRuntime, node_id=number, network=self._network, descriptors=of_this_process(len(self.nodes))
        )
        return KillableNode(
            self._configs[number], runtime, name=f"pykbroker-{number}", make_dispatcher=self._make_dispatcher
        )

    def _end(self, number: int, end: Callable[[], None]) -> None:
        run = self._running.pop(number)
        end()
        if self._failure is None:
            self._failure = run.failure

    def _end_block(self) -> None:
        self.close()
