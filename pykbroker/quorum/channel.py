"""Carries requests of the protocol to another node, or to the other half of this one.

Responsible for carrying a request to its receiver and the answer back, nothing else. A failure is an exception of the
future (`ConnectionError` or `TimeoutError`), and the caller decides whether to try again.

* `QuorumPeers` send to the nodes of the quorum. Each request names its node.
* `BrokerChannels` send to any broker by its id.
* `call_in_memory` calls the other half of a combined node.

node_to_controller/controller_channel.py sends to the active controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from pykbroker.net.client import BrokerConnection, ConnectionSetup, PeerWatch
from pykbroker.net.versions import UnsupportedVersion
from pykbroker.runtime import Runtime
from pykbroker_raft.ready import Destination, Outgoing
from pykbroker_wire.apis import APIS
from pykbroker_wire.errors import ErrorCode

logger = logging.getLogger(__name__)


class QuorumPeers(Protocol):
    """Sends requests to the nodes of the quorum."""

    def send(self, destination: Destination, request: Any, timeout_ms: int) -> asyncio.Future[Any]: ...

    def close(self) -> None: ...


def response_to(outgoing: Outgoing, sent: asyncio.Future[Any]) -> Any | None:
    """Return the response of a node of the quorum, None if it sent none."""
    if sent.cancelled():
        return None
    # The exception is read even if the response comes too late, because the loop reports exceptions that are never
    # read.
    error = sent.exception()
    if error is None:
        return sent.result()
    if isinstance(error, UnsupportedVersion):
        # The caller gets a response with UNSUPPORTED_VERSION, as from Apache Kafka's channel. For example, an older
        # voter does not support pre-vote.
        response: Any = APIS[outgoing.request.API_KEY].response
        return response(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not isinstance(error, (ConnectionError, TimeoutError, OSError)):
        logger.warning("Request to node %d failed", outgoing.destination.id, exc_info=error)
    return None


def failed(loop: asyncio.AbstractEventLoop, error: Exception) -> asyncio.Future[Any]:
    """Return the answer to a request that cannot be sent: a future with the error."""
    future: asyncio.Future[Any] = loop.create_future()
    future.set_exception(error)
    return future


def call_in_memory(runtime: Runtime, call: Callable[[Any], Any], request: Any, timeout_ms: int) -> asyncio.Future[Any]:
    """Call a handler in this process. The answer always comes after the return of this call, as if from another
    node."""
    loop = runtime.loop
    answer: asyncio.Future[Any] = loop.create_future()

    def expire() -> None:
        if not answer.done():
            answer.set_exception(TimeoutError(f"no answer within {timeout_ms} ms"))

    def arrived(result: asyncio.Future[Any]) -> None:
        timer.cancel()
        # The exception is read even if the answer comes too late, because the loop reports exceptions that are never
        # read.
        error = None if result.cancelled() else result.exception()
        if answer.done():
            return
        if result.cancelled():
            answer.set_exception(ConnectionError("the receiver has stopped"))
        elif error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result.result())

    def run() -> None:
        if answer.done():
            return
        try:
            result = call(request)
        except Exception as error:  # noqa: BLE001  # any error of the receiver is the sender's answer
            timer.cancel()
            answer.set_exception(error)
            return
        if isinstance(result, asyncio.Future):
            result.add_done_callback(arrived)
        else:
            timer.cancel()
            answer.set_result(result)

    timer = loop.call_later(timeout_ms / 1000, expire)
    loop.call_soon(run)
    return answer


class NoPeers:
    """The peers of a quorum of one node: there are none."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def send(self, destination: Destination, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
        return failed(self._runtime.loop, ConnectionError("this node has no peers"))

    def close(self) -> None:
        pass


class SocketPeers:
    """One connection to each node, opened when first needed."""

    def __init__(
        self, runtime: Runtime, client_id: str, setup: ConnectionSetup | None = None, watch: PeerWatch | None = None
    ) -> None:
        self._setup = setup
        self._watch = watch
        self._runtime = runtime
        self._client_id = client_id
        self._connections: dict[tuple[str, int], BrokerConnection] = {}

    def send(self, destination: Destination, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
        return self.connection(destination.host, destination.port).send(request, timeout_ms)

    def connection(self, host: str, port: int) -> BrokerConnection:
        connection = self._connections.get((host, port))
        if connection is None:
            connection = BrokerConnection(self._runtime, host, port, self._client_id, self._setup, watch=self._watch)
            self._connections[host, port] = connection
        return connection

    def close(self) -> None:
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()


class BrokerChannels:
    """Send requests to brokers by their ids, over the inter-broker listener.

    `address` returns the present address of a broker, None while it is not registered or has no such listener.
    """

    def __init__(
        self,
        runtime: Runtime,
        address: Callable[[int], tuple[str, int] | None],
        client_id: str,
        setup: ConnectionSetup | None = None,
        watch: PeerWatch | None = None,
    ) -> None:
        self._runtime = runtime
        self._address = address
        self._peers = SocketPeers(runtime, client_id, setup, watch)

    def send(self, broker_id: int, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
        address = self._address(broker_id)
        if address is None:
            return failed(self._runtime.loop, ConnectionError(f"broker {broker_id} cannot be reached"))
        return self._peers.connection(*address).send(request, timeout_ms)

    def close(self) -> None:
        self._peers.close()
