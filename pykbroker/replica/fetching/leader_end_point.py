"""The connection of one fetcher to its leader, as Apache Kafka's RemoteLeaderEndPoint; and what the fetchers share.

Responsible for the leader's present address, and for the version and the timeout of each request. Not responsible for
the content of requests (follower_requests.py), nor for what happens to the answer (runner.py).

Invariant: there is at most one connection, and it is to the address that the metadata had at the last request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pykbroker.net.client import BrokerConnection, ConnectionSetup, PeerWatch
from pykbroker.replica.fetching.fetcher import Fail
from pykbroker.replica.fetching.follower_requests import FetcherRequest, FetchSettings
from pykbroker.replica.fetching.rate import Rate
from pykbroker.replica.quota import ReplicationQuota
from pykbroker_wire.apis import ApiKey

if TYPE_CHECKING:
    from pykbroker.runtime import Runtime

#: Fetch has topic ids from version 13 on, and ListOffsets has the leader epoch from version 4 on.
_LEAST_VERSION = {ApiKey.FETCH: 13, ApiKey.LIST_OFFSETS: 4}


@dataclass(slots=True, frozen=True)
class FetcherWorld:
    """The values that the fetchers of a node share."""

    runtime: Runtime
    node_id: int
    settings: FetchSettings
    #: replica.socket.timeout.ms
    timeout_ms: int
    #: replica.socket.receive.buffer.bytes
    receive_buffer_bytes: int
    setup: ConnectionSetup
    #: returns the host and port at which a broker is reached, or None if the metadata has none
    address: Callable[[int], tuple[str, int] | None]
    broker_epoch: Callable[[], int]
    #: called with the partition that is not fetched again in this leader epoch, and the reason
    failed: Callable[[Fail], None]
    quota: ReplicationQuota
    watch: PeerWatch | None = None


class LeaderEndPoint:
    """The way from the fetcher `number` of this node to the broker `leader`."""

    def __init__(self, world: FetcherWorld, leader: int, number: int) -> None:
        self._world = world
        self._leader = leader
        self._name = f"broker-{world.node_id}-fetcher-{number}"
        self._connection: BrokerConnection | None = None
        #: the rate of requests
        self.requests = Rate(world.runtime.loop.time)

    @property
    def address(self) -> tuple[str, int]:
        """The leader's address, for the metrics of this fetcher."""
        connection = self._connection
        return ("", -1) if connection is None else (connection.host, connection.port)

    def send(self, request: FetcherRequest) -> asyncio.Future[Any] | None:
        """Send the request, and connect first if there is no connection to the leader's present address. Return a
        future of the answer, or None if the metadata has no address."""
        self.requests.mark()
        connection = self._connect()
        if connection is None:
            return None
        least = _LEAST_VERSION[ApiKey(request.API_KEY)]
        return connection.send(request, self._world.timeout_ms, least_version=least)

    def end_pause(self) -> None:
        """Let the next request connect at once, because the metadata has changed."""
        if self._connection is not None:
            self._connection.end_pause()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _connect(self) -> BrokerConnection | None:
        world = self._world
        address = world.address(self._leader)
        connection = self._connection
        if connection is not None and (connection.host, connection.port) != address:
            connection.close()
            self._connection = connection = None
        if connection is None and address is not None:
            connection = self._connection = BrokerConnection(
                world.runtime,
                *address,
                self._name,
                world.setup,
                receive_buffer_bytes=world.receive_buffer_bytes,
                watch=world.watch,
            )
        return connection
