"""The running nodes of a cluster in this process, by their ids, and the metadata and the controller that they have.

Responsible for nodes that are stopped or killed at the same time, and for choosing whom to ask. Not responsible for the
configuration of a node or its addresses (cluster_layout.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pykbroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pykbroker.net.client import Unanswered
from pykbroker.node.node import Node
from pykbroker.testing.in_sync import missing
from pykbroker.testing.inspection import POLL_SECONDS
from pykbroker.testing.node_thread import KillableNode, NotServing


class RunningNodes:
    """Nodes from `add` until they are stopped or killed."""

    def __init__(self) -> None:
        self._runs: dict[int, KillableNode] = {}
        #: the first exception of a node that stopped by itself
        self.failure: BaseException | None = None

    def __contains__(self, number: int) -> bool:
        return number in self._runs

    def __getitem__(self, number: int) -> KillableNode:
        return self._runs[number]

    def add(self, number: int, run: KillableNode) -> None:
        self._runs[number] = run

    @property
    def running(self) -> tuple[int, ...]:
        """The nodes that run, including paused ones."""
        return tuple(sorted(number for number, run in self._runs.items() if run.runs))

    @property
    def paused(self) -> tuple[int, ...]:
        return tuple(number for number in self.running if self._runs[number].is_paused)

    @property
    def answering(self) -> tuple[int, ...]:
        """The nodes that serve and are not paused."""
        return tuple(
            number
            for number in self.running
            if self._runs[number].node is not None and not self._runs[number].is_paused
        )

    def node(self, number: int) -> Node:
        """Return a node that serves. Raises RuntimeError if it does not."""
        run = self._runs.get(number)
        if run is None or run.node is None:
            raise RuntimeError(f"node {number} is not running")
        return run.node

    def serving(self) -> list[Node]:
        """Return the nodes that serve, in the order of their ids."""
        nodes = (self._runs[number].node for number in self.running)
        return [node for node in nodes if node is not None]

    def images(self) -> dict[int, MetadataImage]:
        """Return the metadata of each node that serves."""
        return {node.config.node_id: node.loader.image for node in self.serving()}

    def newest_image(self) -> MetadataImage:
        return max(self.images().values(), key=lambda image: image.offset, default=EMPTY_IMAGE)

    def controller(self) -> int | None:
        """Return the id of the active controller, or None. If several nodes consider themselves leader of the quorum,
        return the node with the newest epoch."""
        quorums = [node.shared.quorum for node in self.serving() if node.shared.quorum.is_leader]
        return max(quorums, key=lambda quorum: quorum.epoch).node_id if quorums else None

    def ask(self, number: int, request: Any) -> Any:
        """Return a node's answer. Raises Unanswered (a ConnectionError) if the node ends before that, because another
        node may serve the request then."""
        try:
            return self._runs[number].ask(request)
        except NotServing as error:
            raise Unanswered(str(error)) from error

    def ask_controller(self, request: Any, timeout_seconds: float) -> Any:
        """Return the active controller's answer. Raises RuntimeError if no node can be asked, and Unanswered as `ask`
        does."""
        answering = self.answering
        if not answering:
            raise RuntimeError("no node of the cluster serves")
        # The controller's own node needs no network, which may be cut.
        controller = self.controller()
        asked = controller if controller in answering else answering[0]
        try:
            return self._runs[asked].ask_controller(request, timeout_seconds)
        except NotServing as error:
            raise Unanswered(str(error)) from error

    def network_changed(self) -> None:
        """Let the connections of every node follow the network."""
        for number in self.running:
            self._runs[number].network_changed()

    def wait_for_replicas(self, nodes: Collection[int], topics: Iterable[str], timeout_seconds: float) -> None:
        """Wait until these nodes serve, and have every replica of these topics, or of all, in the ISR. Raises
        TimeoutError, which names what is missing."""
        deadline = time.monotonic() + timeout_seconds
        while lacks := missing(self.images(), nodes, topics):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not after {timeout_seconds} s: {lacks}")
            time.sleep(POLL_SECONDS)

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Let every node that runs stand still inside this context."""
        runs = [self._runs[number] for number in self.running]
        try:
            for run in runs:
                run.pause()
            yield
        finally:
            for run in runs:
                run.resume()

    def stop(self, numbers: Iterable[int]) -> None:
        """Shut nodes down in parallel; returns when they have ended. A node that does not run is ignored."""
        chosen = [number for number in numbers if number in self._runs]
        still = [number for number in chosen if number in self.paused]
        if still:
            raise RuntimeError(f"node {still[0]} is paused: resume it first, or kill it")
        for number in chosen:
            self._runs[number].begin_stop()
        for number in chosen:
            self._end(number, self._runs[number].stop)

    def kill(self, numbers: Iterable[int]) -> None:
        """End nodes at once; returns when they have ended. A node that does not run is ignored."""
        chosen = [number for number in numbers if number in self._runs]
        for number in chosen:
            self._runs[number].begin_kill()
        for number in chosen:
            self._end(number, self._runs[number].kill)

    def _end(self, number: int, end: Callable[[], None]) -> None:
        run = self._runs.pop(number)
        end()
        if self.failure is None:
            self.failure = run.failure
