"""Nodes of one process that reach each other without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pykbroker.quorum.channel import call_in_memory, failed
from pykbroker.runtime import Runtime
from pykbroker_raft.ready import Destination


class InMemoryPeers:
    """Nodes of one process that reach each other without sockets, by host and port: for tests and the simulation."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.nodes: dict[tuple[str, int], Callable[[Any], Any]] = {}

    def send(self, destination: Destination, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
        call = self.nodes.get((destination.host, destination.port))
        if call is None:
            error = ConnectionError(f"nothing listens on {destination.host}:{destination.port}")
            return failed(self._runtime.loop, error)
        return call_in_memory(self._runtime, call, request, timeout_ms)

    def close(self) -> None:
        self.nodes.clear()
