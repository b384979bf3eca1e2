"""A cluster that runs already, of pykbroker or of Apache Kafka, for the tests of `pytest --kafka-bootstrap HOST:PORT`.

It shows topics, records, groups and transactions as a `Broker` does, but reads them over the network. It has nothing
that needs a node in this process: no faults, no traffic, no metrics, no stop of a node. Responsible for the thread that
has its connections. Not responsible for security: connections are without TLS and SASL.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from typing import Any, NoReturn, Self

from pykbroker.config.kinds import parse_host_port
from pykbroker.net.client import BrokerConnection
from pykbroker.runtime import OsRuntime
from pykbroker.testing.arrangement import Arranged
from pykbroker.testing.inspection import PATIENCE_SECONDS, POLL_SECONDS, KnownTopic
from pykbroker.testing.node_thread import new_loop
from pykbroker.testing.with_block import WithBlock
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic

_CONNECT_SECONDS = 10.0
_TIMEOUT_MS = 30_000
_CLIENT_ID = "pykbroker-testing"


class NotInThisProcess(AttributeError):
    """A test has used a part of `Broker` or `Cluster` that a cluster outside this process does not have."""


class ExistingCluster(WithBlock, Arranged):
    """A cluster that others have started: `with ExistingCluster("localhost:9092") as cluster: cluster.topics()`.

    `bootstrap_servers`: `host:port` of brokers, separated by commas, without TLS and SASL. `start` connects, and `stop`
    closes the connections; the cluster itself runs on. Raises ValueError for an address that is not valid.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._bootstrap = [_address(one.strip()) for one in bootstrap_servers.split(",")]
        self._line: _Line | None = None
        #: the addresses of the brokers, from the newest metadata
        self._brokers: dict[int, tuple[str, int]] = {}

    def start(self) -> Self:
        """Connect. Raises ConnectionError if no broker answers within ten seconds, and RuntimeError after a start."""
        if self._line is not None:
            raise RuntimeError("the cluster is connected already")
        self._line = _Line()
        try:
            self._metadata(seconds=_CONNECT_SECONDS)
        except TimeoutError as error:
            self.stop()
            raise ConnectionError(str(error)) from None
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Close the connections. A second call changes nothing."""
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def __getattr__(self, name: str) -> NoReturn:
        from pykbroker.testing.cluster import Cluster
        from pykbroker.testing.embedded import Broker

        if name == "faults" or (not name.startswith("_") and (hasattr(Broker, name) or hasattr(Cluster, name))):
            raise NotInThisProcess(f"{name} needs a broker in this process, and {self.bootstrap_servers} is outside")
        raise AttributeError(f"ExistingCluster has no attribute {name!r}")

    def _end_block(self) -> None:
        self.stop()

    # -- for inspection.py and arrangement.py -------------------------------------------------------------------------

    def _end_session(self, group_id: str, member_id: str) -> bool:
        raise NotInThisProcess(f"a session is ended in this process, and {self.bootstrap_servers} is outside")

    def _ask(self, node: int, request: Any) -> Any:
        return self._lined.ask(self._brokers[node], request, _TIMEOUT_MS)

    def _ask_controller(self, request: Any) -> Any:
        # Every broker forwards to the active controller.
        nodes = self._asked_nodes()
        return self._ask(nodes[0], request)

    def _asked_nodes(self) -> tuple[int, ...]:
        self._metadata()
        return tuple(sorted(self._brokers))

    def _known_topics(self, name: str | None = None) -> Mapping[str, KnownTopic]:
        return {
            topic.name: KnownTopic(
                topic.name, topic.topic_id, {one.partition_index: one.leader_id for one in topic.partitions}
            )
            for topic in self._metadata(name).topics
            if topic.name is not None and not topic.error_code
        }

    @property
    def _lined(self) -> _Line:
        if self._line is None:
            raise RuntimeError("the cluster is not connected")
        return self._line

    def _metadata(self, topic: str | None = None, *, seconds: float = PATIENCE_SECONDS) -> Any:
        """Return the metadata of all topics, or of one, from the first broker that answers. While all brokers restart,
        they are asked again. Raises TimeoutError if none has answered after so many seconds."""
        asked = None if topic is None else [MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        line = self._lined
        deadline = time.monotonic() + seconds
        while True:
            failure = "no broker is active"
            for address in dict.fromkeys((*self._brokers.values(), *self._bootstrap)):
                try:
                    answer = line.ask(address, request, _TIMEOUT_MS)
                except (ConnectionError, TimeoutError) as error:
                    failure = str(error)
                    continue
                # A broker that has just started may not know an active broker, not even itself.
                if answer.brokers:
                    self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
                    return answer
            if time.monotonic() > deadline:
                raise TimeoutError(f"no broker answers at {self.bootstrap_servers}: {failure}")
            time.sleep(POLL_SECONDS)


class _Line:
    """The connections of one cluster, on a thread and a loop of their own. `close` ends both."""

    def __init__(self) -> None:
        self._loop = new_loop()
        self._runtime = OsRuntime(self._loop)
        self._connections: dict[tuple[str, int], BrokerConnection] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="pykbroker-client", daemon=True)
        self._thread.start()

    def ask(self, address: tuple[str, int], request: Any, timeout_ms: int) -> Any:
        """Return the answer to a request. Raises ConnectionError, TimeoutError, or UnsupportedVersion if the broker is
        too old for it."""

        async def send() -> Any:
            connection = self._connections.get(address)
            if connection is None:
                connection = self._connections[address] = BrokerConnection(self._runtime, *address, _CLIENT_ID)
            return await connection.send(request, timeout_ms)

        return asyncio.run_coroutine_threadsafe(send(), self._loop).result(PATIENCE_SECONDS)

    def close(self) -> None:
        async def end() -> None:
            for connection in self._connections.values():
                connection.close()
            # Transports close their sockets in the next turn of the loop.
            await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(PATIENCE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._runtime.close()
        self._loop.close()


def _address(text: str) -> tuple[str, int]:
    found = parse_host_port(text)
    if found is None:
        raise ValueError(f"bootstrap servers are HOST:PORT, separated by commas, not {text!r}")
    return found
