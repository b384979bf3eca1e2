"""A controller at the other end of a channel that answers when a test says so, and a leader that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pykbroker_raft.ready import Destination
from tests.coordinator.fakes import Loop, as_loop


class FakeLeadership:
    """The loader's and the driver's view of the leader."""

    def __init__(self, leader_id: int | None = 1, node_id: int = 9) -> None:
        self.node_id = node_id
        self.leader_id = leader_id
        self.ports = {1: 9093, 2: 9103, 3: 9113}
        self._watchers: list[Callable[[int | None, int], None]] = []

    @property
    def leader(self) -> Destination | None:
        known = self.leader_id
        return None if known is None else Destination(known, "localhost", self.ports[known])

    def on_leader(self, callback: Callable[[int | None, int], None]) -> None:
        self._watchers.append(callback)

    def lead(self, leader_id: int | None, epoch: int = 1) -> None:
        self.leader_id = leader_id
        for watcher in self._watchers:
            watcher(leader_id, epoch)


class FakeChannel:
    """Keeps every request with the future of its answer."""

    def __init__(self, loop: Loop | None = None) -> None:
        self.loop = Loop() if loop is None else loop
        self.requests: list[Any] = []
        self.answers: list[asyncio.Future[Any]] = []

    def send(self, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
        self.requests.append(request)
        self.answers.append(asyncio.Future(loop=as_loop(self.loop)))
        return self.answers[-1]

    def answer(self, response: Any) -> None:
        """To the newest request; an exception is no answer."""
        if isinstance(response, Exception):
            self.answers[-1].set_exception(response)
        else:
            self.answers[-1].set_result(response)
        self.loop.settle()
