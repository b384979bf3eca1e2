"""The health of a node: one line of JSON over a Unix socket, for probes that have no credentials.

As soon as a client connects, the line is written and the connection is closed; nothing is read. So an answer proves
that the control loop turns. The line contains a `NodeHealth`, which also has the state of the broker loop. Responsible
for the socket at `pykbroker.health.socket` (only its owner may connect). `pykbroker health` reads it (entry/health.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final, cast

from pykbroker.node_to_controller.broker_state import BrokerState
from pykbroker.runtime import ListeningSocket, Runtime

#: If the broker loop has not turned for this long, clients count as not served in time.
SILENT_SECONDS: Final = 2.0
HEALTH_SOCKET: Final = "pykbroker.health.socket"


@dataclass(slots=True, frozen=True, kw_only=True)
class NodeHealth:
    """A node's view of its own health. `broker` is None if the node has no broker half."""

    node_id: int
    #: the state of the broker half
    broker: BrokerState | None
    #: True if the node's own metadata has its broker as unfenced
    active: bool
    #: the leader of the quorum, or None if the node knows no leader
    leader_id: int | None
    is_controller: bool
    offline_directories: tuple[str, ...] = ()
    #: the seconds for which the broker loop has not turned
    broker_silent_seconds: float = 0.0

    def problems(self) -> list[str]:
        """Return the reasons why no requests should be sent to the node. An offline directory is not a reason, because
        the node still serves from the other directories."""
        found = []
        if self.broker is not None:
            if self.broker is not BrokerState.RUNNING:
                found.append(f"the broker is {self.broker.name}")
            elif not self.active:
                found.append("the broker is fenced")
        if self.broker_silent_seconds >= SILENT_SECONDS:
            found.append(f"the broker loop has not turned for {self.broker_silent_seconds:.1f} s")
        if self.is_controller and self.leader_id is None:
            found.append("no leader of the quorum is known")
        return found

    def line(self) -> bytes:
        problems = self.problems()
        facts = asdict(self) | {"broker": None if self.broker is None else self.broker.name}
        return json.dumps({"healthy": not problems, "problems": problems} | facts).encode() + b"\n"


class HealthSocket:
    """Call `open` once; `close` removes the socket."""

    def __init__(self, runtime: Runtime, path: str, health: Callable[[], NodeHealth]) -> None:
        self._runtime = runtime
        self._path = path
        self._health = health
        self._socket: ListeningSocket | None = None

    async def open(self) -> None:
        """Bind the socket and answer its clients. Raises OSError, which names the path."""
        self._socket = await self._runtime.listen_at(lambda: _Answer(self._health), self._path)
        await self._socket.serve()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _Answer(asyncio.Protocol):
    def __init__(self, health: Callable[[], NodeHealth]) -> None:
        self._health = health

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        writing = cast("asyncio.Transport", transport)
        writing.write(self._health().line())
        writing.close()
