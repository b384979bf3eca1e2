"""A channel to the active controller. It finds the controller again for each request: if this node leads the quorum,
the request goes in memory, otherwise over a connection to the leader. A node never assumes that its own controller half
is active.

Each purpose has its own channel, and so its own connection, as in Apache Kafka, for example: lifecycle, forwarding,
directories, changes of ISRs. So a slow forwarded request delays no heartbeat, and a heartbeat that times out ends no
forwarded request.

Responsible for sending a request to the present controller. Not responsible for trying again, which
controller_sender.py and dispatch/forwarding.py do. If there is no answer, the future fails with `ConnectionError` or
`TimeoutError`. An answer may have the error NOT_CONTROLLER.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from pykbroker.net.client import BrokerConnection, ConnectionSetup, PeerAddress
from pykbroker.quorum.channel import call_in_memory, failed
from pykbroker.runtime import Runtime
from pykbroker_raft.ready import Destination


class Channel(Protocol):
    """Sends requests to the active controller."""

    def send(self, request: Any, timeout_ms: int) -> asyncio.Future[Any]: ...


class QuorumLeader(Protocol):
    """The part of the QuorumDriver that the channel uses."""

    @property
    def node_id(self) -> int: ...

    @property
    def leader_id(self) -> int | None: ...

    @property
    def leader(self) -> Destination | None: ...


class LeaderWatch(Protocol):
    """The part of the MetadataView that the channel uses."""

    def on_leader(self, callback: Callable[[int | None, int], None]) -> None: ...


class NoController(ConnectionError):
    """No leader of the quorum is known."""


class ControllerChannel:
    """Sends requests to the active controller. `local` calls this node's controller half, if the node has one."""

    def __init__(
        self,
        runtime: Runtime,
        quorum: QuorumLeader,
        watch: LeaderWatch,
        client_id: str,
        setup: ConnectionSetup | None = None,
        local: Callable[[Any], Any] | None = None,
    ) -> None:
        self._runtime = runtime
        self._quorum = quorum
        self._client_id = client_id
        self._setup = setup
        self._local = local
        self._connection: BrokerConnection | None = None
        self._closed = False
        self._lost: Callable[[], object] = lambda: None
        watch.on_leader(self._leader_changed)

    def when_lost(self, callback: Callable[[], object]) -> None:
        """Call `callback` each time that the peer or a timeout ends a connection to the controller."""
        self._lost = callback

    def send(self, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
        if self._closed:
            return failed(self._runtime.loop, NoController("the channel to the controller is closed"))
        if self._local is not None and self._quorum.leader_id == self._quorum.node_id:
            return call_in_memory(self._runtime, self._local, request, timeout_ms)
        destination = self._quorum.leader
        if destination is None:
            return failed(self._runtime.loop, NoController("no controller is known"))
        connection = self._connection
        if connection is None or not _leads_to(connection, destination):
            self._hang_up()
            connection = self._connection = BrokerConnection(
                self._runtime, destination.host, destination.port, self._client_id, self._setup, watch=self
            )
        return connection.send(request, timeout_ms)

    def close(self) -> None:
        self._closed = True
        self._hang_up()

    # A PeerWatch.

    def ready(self, address: PeerAddress) -> None:
        """Do nothing: the connection itself sends the requests that waited for it."""

    def lost(self, address: PeerAddress, by_peer: bool) -> None:
        self._lost()

    def refused(self, address: PeerAddress) -> None:
        """Do nothing: the request that caused the attempt has failed."""

    def _leader_changed(self, leader_id: int | None, epoch: int) -> None:
        """Close the connection to a former leader, which may be cut off from the network. Requests that wait on it fail
        now, and their senders repeat them to the new leader."""
        connection, destination = self._connection, self._quorum.leader
        if connection is not None and destination is not None and not _leads_to(connection, destination):
            self._hang_up()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _leads_to(connection: BrokerConnection, destination: Destination) -> bool:
    return (connection.host, connection.port) == (destination.host, destination.port)
