"""Several nodes inside one process, as one cluster: `with Cluster(nodes=3) as cluster: cluster.bootstrap_servers`.

Each node is broker and controller, on a thread and a loop of its own, with sockets of the loopback interface and a
temporary directory. Nodes can be killed, stopped, paused and cut off from each other. cluster_layout.py has their
ports and directories, node_thread.py ends and pauses a node, and killable.py holds back its traffic.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Self

from pykbroker.config.cluster_profile import check_own_keys
from pykbroker.config.typed_config import Config
from pykbroker.metadata.image import MetadataImage
from pykbroker.node.node import Node
from pykbroker.node.start_options import StartOptions
from pykbroker.runtime.descriptor_budget import of_this_process
from pykbroker.testing.arrangement import CONTROLLER_SECONDS, as_text
from pykbroker.testing.asynchronous import on_thread
from pykbroker.testing.client_time import ClientTime
from pykbroker.testing.clock import HasClock
from pykbroker.testing.cluster_layout import ClusterLayout, cluster_profile, lay_out
from pykbroker.testing.cluster_states import note_handed_out, put_back, save_state
from pykbroker.testing.inspection import PATIENCE_SECONDS, KnownTopic, topics_of
from pykbroker.testing.killable import KillableRuntime
from pykbroker.testing.leadership import Led
from pykbroker.testing.network import HOST, Network
from pykbroker.testing.node_thread import KillableNode
from pykbroker.testing.release_levels import NEWEST_RELEASE, levels_of
from pykbroker.testing.renamed import newer, warn
from pykbroker.testing.running_nodes import RunningNodes
from pykbroker.testing.saved_state import SavedState
from pykbroker.testing.share_deliveries import SharesInProcess, T
from pykbroker.testing.watched import Watched
from pykbroker.testing.with_block import WithBlock


class Cluster(WithBlock, HasClock, Watched, SharesInProcess, Led):
    """Nodes 1 to `nodes`, each broker and controller.

    `nodes`: their number. `config`: Kafka's configuration keys of every node, which override `cluster_profile`.
    `node_config`: node id -> keys of this node, for example `broker.rack`. The directories are removed with the
    cluster; until then a node that was stopped or killed may be started again, at the same address. `record`: keep the
    requests of clients, for `requests`. `release`: the release of Apache Kafka at whose levels of features the cluster
    begins, `4.3` or `4.4`; the default is 4.4. `properties` and `node_properties` are old names of the configurations.

    Methods may be called from any thread of the host, one at a time.
    """

    #: the keys of the listener for clients, if they must authenticate
    _secured: Mapping[str, str] | None = None

    def __init__(
        self,
        nodes: int = 3,
        config: Mapping[str, object] | None = None,
        node_config: Mapping[int, Mapping[str, object]] | None = None,
        *,
        record: bool = False,
        release: str | None = None,
        properties: Mapping[str, object] | None = None,
        node_properties: Mapping[int, Mapping[str, object]] | None = None,
    ) -> None:
        """Raises ValueError for an unknown node, ConfigError for a key that the cluster itself decides and for an
        unknown release."""
        super().__init__(record=record)
        config = newer("properties", properties, "config", config) or {}
        node_config = newer("node_properties", node_properties, "node_config", node_config) or {}
        if nodes < 1:
            raise ValueError(f"a cluster of {nodes} nodes")
        self._nodes = tuple(range(1, nodes + 1))
        self._known(node_config)
        self._levels = levels_of(release or NEWEST_RELEASE)

        def texts(given: Mapping[str, object]) -> dict[str, str]:
            return check_own_keys({key: as_text(value) for key, value in given.items()})

        self._properties = {
            number: {**cluster_profile(nodes), **texts(config), **texts(node_config.get(number, {}))}
            for number in self.nodes
        }
        self._network = Network()
        self._layout: ClusterLayout | None = None
        self._running = RunningNodes()
        self._client_time = ClientTime()

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[int, ...]:
        """The ids of all nodes, whether they run or not."""
        return self._nodes

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every node, separated by commas, so that clients find those that run. Raises RuntimeError
        before `start`."""
        return ",".join(self.address(number) for number in self.nodes)

    def address(self, number: int) -> str:
        """Return `host:port` of one node, whether it runs or not. Raises RuntimeError before `start`."""
        return f"{HOST}:{self._laid_out(number).ports[number]}"

    def data_dir(self, number: int) -> str:
        """Return the log directory of one node. Raises RuntimeError before `start`."""
        return self._laid_out(number).data_dir(number)

    @property
    def running(self) -> tuple[int, ...]:
        """The nodes that were started and neither stopped nor killed, including paused ones."""
        return self._running.running

    @property
    def paused(self) -> tuple[int, ...]:
        """The paused nodes."""
        return self._running.paused

    def metrics(self, number: int) -> dict[str, float]:
        """Return the metrics of one node by Kafka's names, with their current values. Raises RuntimeError if it does
        not run, or is paused."""
        self._known((number,))
        self._running.node(number)
        if number in self.paused:
            raise RuntimeError(f"node {number} is paused")
        return {sample.name: sample.value for sample in self._running[number].metrics()}

    def controller(self) -> int | None:
        """Return the id of the active controller, or None. If several nodes consider themselves leader of the quorum,
        return the node with the newest epoch."""
        return self._running.controller()

    # -- nodes that come and go ---------------------------------------------------------------------------------------

    def start(self, *nodes: int, timeout_seconds: float = PATIENCE_SECONDS) -> Self:
        """Start these nodes, or all, and wait until each serves clients. Nodes that run already are left out.

        Raises the exception that kept a node from starting. Raises TimeoutError if a node does not serve in time (a
        quorum needs more than half of the nodes); that node continues its start.
        """
        self._known(nodes)
        chosen = [number for number in nodes or self.nodes if number not in self.running]
        if self._layout is None:
            self._layout = lay_out(self._properties, self._network, self._levels, self._secured)
        stands, self._layout.stands = self._layout.stands, None
        for number in chosen:
            runtime: Callable[[asyncio.AbstractEventLoop], KillableRuntime] = partial(
                KillableRuntime,
                node_id=number,
                network=self._network,
                descriptors=of_this_process(len(self.nodes)),
                make_client_clock=partial(self._client_time.clock_of, node=number),
            )
            node = KillableNode(
                self._layout.configs[number],
                runtime,
                name=f"pykbroker-{number}",
                options=StartOptions(restored=self._layout.restored, stands=number == stands),
                make_dispatcher=self._make_dispatcher,
            )
            self._running.add(number, node)
        deadline = time.monotonic() + timeout_seconds
        for number in nodes or self.nodes:
            try:
                self._running[number].wait_until_ready(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise
            except BaseException:
                self._end_block()
                # The failure is raised now, so the end of the block must not raise it again.
                self._failure = self._running.failure = None
                raise
        return self

    def stop(self, *nodes: int) -> None:
        """Shut these nodes down in parallel; returns when they have ended. Their directories stay, for `start`. A node
        that does not run is ignored. Raises RuntimeError for a paused node.

        Without arguments end the cluster, as the end of a `with` block does: kill its nodes, remove its directories,
        and free its ports. A second call changes nothing, and `start` makes a new cluster.
        """
        if not nodes:
            self._end_block()
            return
        self._known(nodes)
        if self._layout is not None:
            note_handed_out(self._layout, self._running)
        self._running.stop(nodes)

    def kill(self, *nodes: int) -> None:
        """End these nodes at once, or all, as `kill -9` does; returns when they have ended.

        Sockets are closed and ports refuse connections. The node writes and flushes nothing after that, and does not
        notify other nodes.
        The directory stays as it is, for `start`. A node that does not run is ignored.
        """
        self._known(nodes)
        if self._layout is not None:
            note_handed_out(self._layout, self._running)
        self._running.kill(nodes or self.nodes)

    def pause(self, *nodes: int) -> None:
        """Pause these nodes, or all, as SIGSTOP does; returns when they are paused. Their sockets stay open, and accept
        connections and requests without answering. Raises RuntimeError for a node that does not run, and TimeoutError
        if a loop of a node stands still for a minute."""
        self._known(nodes)
        for number in nodes or self.nodes:
            self._running.node(number)
            if not self._running[number].is_paused:
                self._running[number].pause()

    def resume(self, *nodes: int) -> None:
        """Resume these nodes, or all that are paused."""
        self._known(nodes)
        for number in nodes or self.paused:
            if number in self._running:
                self._running[number].resume()

    def close(self) -> None:
        """Do what `stop()` does. This is its old name, which goes with the next release."""
        warn("Cluster.close", "Cluster.stop")
        self._end_block()

    # -- the network --------------------------------------------------------------------------------------------------

    def partition_network(self, *groups: Iterable[int]) -> None:
        """Cut the traffic between nodes of different groups: `partition_network([1], [2, 3])`.

        Nodes that are in no group form one more group, so that `partition_network([1])` isolates node 1. All traffic
        between two nodes is cut in both directions, also that of their controllers: sent bytes wait, and arrive after
        `heal`; new connections wait. Clients reach every node, unless `CLIENTS` is a member of a group:
        `partition_network([1], [2, 3, CLIENTS])`. Then only nodes of that group read the bytes of clients. A second
        call replaces the first. Raises ValueError for a node that is unknown or in two groups, and TimeoutError if a
        loop of a node stands still for a minute.
        """
        self._network.partition(groups, self.nodes)
        self._running.network_changed()

    def heal(self) -> None:
        """Let all nodes reach each other again. Raises TimeoutError as `partition_network` does."""
        self._network.heal()
        self._running.network_changed()

    # -- rest ---------------------------------------------------------------------------------------------------------

    def wait_until_in_sync(self, *topics: str, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until every node runs, serves clients, and has every replica of these topics, or of all, in the ISR.
        Raises TimeoutError, which names what is missing."""
        self._running.wait_for_replicas(self.nodes, topics, timeout_seconds)

    def snapshot(self) -> SavedState:
        """Return the state of the cluster, for `restore`: topics, records, committed offsets, transactions, producers,
        members of groups, and the nodes that run. The nodes stand still meanwhile, and clients notice nothing. The
        snapshot ends with the cluster. Raises RuntimeError if no node serves, or if a node is paused; OSError."""
        return save_state(self, self._laid_out(), self._running, self._client_time.moved())

    def restore(self, snapshot: SavedState | None = None) -> None:
        """Without a snapshot undo every fault: remove the fault rules, heal, resume, start stopped nodes, and wait
        until all replicas are in sync.

        With a snapshot put the cluster back to its state. Fault rules and cuts of the network end, connections of
        clients are closed, and the nodes that ran run again, at the same addresses, with all their replicas in sync.
        The data are exact. Epochs of leaders, groups and producers are higher than all that clients have seen, so
        clients may live on; docs/testing.md lists those that must be made anew. Raises ValueError for a snapshot of
        another cluster or one that was deleted.
        """
        self.faults.clear()
        self.heal()
        if snapshot is None:
            self.resume()
            self.start()
            self.wait_until_in_sync()
            return
        put_back(snapshot, self, self._laid_out(), self._running)
        self._client_time.go_back(snapshot.moved)
        self.start(*snapshot.nodes)
        self._running.wait_for_replicas(snapshot.nodes, (), PATIENCE_SECONDS)

    start_async = on_thread(start)
    stop_async = on_thread(stop)
    kill_async = on_thread(kill)
    pause_async = on_thread(pause)
    resume_async = on_thread(resume)
    wait_until_in_sync_async = on_thread(wait_until_in_sync)
    snapshot_async = on_thread(snapshot)
    restore_async = on_thread(restore)

    # -- parts --------------------------------------------------------------------------------------------------------

    def _known(self, nodes: Iterable[int]) -> None:
        for number in nodes:
            if number not in self.nodes:
                raise ValueError(f"there is no node {number}")

    def _laid_out(self, *numbers: int) -> ClusterLayout:
        self._known(numbers)
        if self._layout is None:
            raise RuntimeError("the cluster is not running")
        return self._layout

    def _configs(self) -> Iterable[Config]:
        return self._laid_out().configs.values()

    def _image(self) -> MetadataImage:
        return self._running.newest_image()

    def _ask(self, node: int, request: Any) -> Any:
        return self._running.ask(node, request)

    def _of_each_node(self, read: Callable[[Node], T]) -> list[T]:
        return [self._running[node].read(read) for node in self._asked_nodes()]

    def _ask_controller(self, request: Any) -> Any:
        return self._running.ask_controller(request, CONTROLLER_SECONDS)

    def _known_topics(self, name: str | None = None) -> Mapping[str, KnownTopic]:
        return topics_of(self._image(), name)

    def _asked_nodes(self) -> tuple[int, ...]:
        return self._running.answering

    def _end_block(self) -> None:
        self._running.kill(self.nodes)
        self._failure = self._failure or self._running.failure
        self._running.failure = None
        self._network.close()
        layout, self._layout = self._layout, None
        if layout is not None:
            layout.directories.cleanup()
