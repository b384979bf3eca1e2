"""The common part of all simulated clients: a connection per broker, lost responses, repeated requests, leaders,
coordinators.

They are no Kafka client of their own. Each connection is one of the node's client (pykbroker/net/client.py), which the
virtual loop and the network in memory drive as they drive a node's. This room decides what is asked, and when again.

A request is sent until there is a response, as clients do within their delivery timeout. `Trouble` sets how often a
response is lost (the connection is cut after the request was sent) and how often a request arrives a second time, late.
A client that retransmits, or gave up a connection, leaves such requests in the network.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from pykbroker.metadata.image import EMPTY_IMAGE
from pykbroker.net.client import BrokerConnection
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_wire.messages.offset_commit import OffsetCommitRequest
from pykbroker_worlds.history.events import History, Place
from pykbroker_worlds.simulated.sim_cluster import PORTS, SimCluster

TIMEOUT_MS = 3_000
GROUP, TRANSACTION = 0, 1
_GROUPS = "__consumer_offsets"


@dataclass(slots=True, frozen=True)
class Trouble:
    """Probabilities per request."""

    lost_answer: float = 0.0
    late_repetition: float = 0.0


QUIET = Trouble()
MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
NO_COORDINATOR = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class Peer:
    """A simulated client. `name` is unique in a run: it seeds the client's randomness."""

    def __init__(self, cluster: SimCluster, history: History, name: str, trouble: Trouble = QUIET) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.history = history
        self.name = name
        self.trouble = trouble
        self.runtime = self.world.runtime(name, MemoryDisk(record=False), cluster.client_machine)
        self.random = self.runtime.random
        self._connections: dict[int, BrokerConnection] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._leaders: dict[Place, int] = {}
        #: the newest leader epoch that it knows, for each partition (KIP-320)
        self.leader_epochs: dict[Place, int] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._late: set[asyncio.Task[None]] = set()
        #: the one broker that `anybody` asks; None to choose one
        self.only: int | None = None
        #: the number of tries without a response: they may be carried out later
        self.unanswered = 0

    def note(self, *event: object) -> None:
        self.world.trace.note(self.name, *event)

    async def pause(self, least: float = 0.01, most: float = 0.1) -> None:
        await asyncio.sleep(self.random.uniform(least, most))

    # -- requests -----------------------------------------------------------------------------------------------------

    def _connection(self, broker: int) -> BrokerConnection:
        found = self._connections.get(broker)
        if found is None:
            found = self._connections[broker] = self._connect(broker)
        return found

    def _connect(self, broker: int) -> BrokerConnection:
        return BrokerConnection(self.runtime, "localhost", PORTS[broker], self.name)

    def hang_up(self, broker: int) -> None:
        found = self._connections.pop(broker, None)
        if found is not None:
            found.close()

    async def once(self, broker: int, request: Any, version: int | None = None) -> Any:
        """Try once; return None if no response came."""
        # A late OffsetCommit may set an offset back, because nothing in it shows that it is old.
        if self.random.random() < self.trouble.late_repetition and not isinstance(request, OffsetCommitRequest):
            self._repeat_late(broker, request, version)
        sent = self._connection(broker).send(request, TIMEOUT_MS, version)
        if self.random.random() < self.trouble.lost_answer:
            asyncio.get_running_loop().call_later(self.random.uniform(0.0, 0.01), self.hang_up, broker)
        try:
            return await sent
        except (ConnectionError, TimeoutError):
            self.hang_up(broker)
            self.unanswered += 1
            return None
        finally:
            if not sent.done():
                # This client was killed, and so is its connection.
                self.hang_up(broker)

    def _repeat_late(self, broker: int, request: Any, version: int | None) -> None:
        async def again() -> None:
            await asyncio.sleep(self.random.uniform(0.0, 1.5))
            connection = self._connect(broker)
            try:
                await connection.send(request, TIMEOUT_MS, version)
            except (ConnectionError, TimeoutError):
                pass
            finally:
                connection.close()

        task = asyncio.ensure_future(again())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def anybody(self, request: Any, version: int | None = None) -> Any:
        """Return the response of any broker that gives one."""
        while True:
            broker = self.random.choice(sorted(self.cluster.brokers)) if self.only is None else self.only
            answer = await self.once(broker, request, version)
            if answer is not None:
                return answer
            await self.pause()

    # -- metadata -----------------------------------------------------------------------------------------------------

    async def create_topic(self, name: str, partitions: int, replicas: int = 1) -> None:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
        answer = (await self.anybody(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))).topics[0]
        assert answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), answer
        self.note("created", name, answer.error_code)

    async def look(self) -> None:
        answer = await self.anybody(MetadataRequest(topics=None))
        self._topic_ids = {topic.name: topic.topic_id for topic in answer.topics}
        self._leaders = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                place = topic.name, partition.partition_index
                # A broker that gets no metadata returns former leaders.
                if partition.leader_id >= 0 and partition.leader_epoch >= self.leader_epochs.get(place, -1):
                    self._leaders[place] = partition.leader_id
                    self.leader_epochs[place] = partition.leader_epoch

    async def topic_id(self, name: str) -> bytes:
        while name not in self._topic_ids:
            await self.look()
        return self._topic_ids[name]

    async def name_of(self, topic_id: bytes) -> str:
        while topic_id not in self._topic_ids.values():
            await self.look()
        return next(name for name, known in self._topic_ids.items() if known == topic_id)

    async def leader(self, place: Place) -> int:
        while place not in self._leaders:
            await self.pause()
            await self.look()
        return self._leaders[place]

    def lost_leader(self, place: Place) -> None:
        self._leaders.pop(place, None)

    # -- coordinators -------------------------------------------------------------------------------------------------

    async def coordinator(self, kind: int, key: str) -> int:
        while (kind, key) not in self._coordinators:
            answer = await self.anybody(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))
            found = answer.coordinators[0]
            if found.error_code == ErrorCode.NONE:
                self._coordinators[kind, key] = found.node_id
            else:
                assert found.error_code in NO_COORDINATOR, found
                await self.pause(0.02, 0.2)
        return self._coordinators[kind, key]

    async def ask_coordinator(self, kind: int, key: str, request: Any, version: int | None = None) -> Any:
        """Try once; return None if no response came, and then look up the coordinator again."""
        answer = await self.once(await self.coordinator(kind, key), request, version)
        if answer is None:
            self._coordinators.pop((kind, key), None)
            await self.pause()
        return answer

    def was_replaced(self, broker: int) -> bool:
        """Return True if another broker has replaced this one as coordinator, which it may not know yet."""
        images = [node.node.loader.image for node in self.cluster.nodes.values() if node.up]
        newest = max(images, key=lambda image: image.offset, default=EMPTY_IMAGE)
        asked = self.cluster.brokers[broker]
        led = [partition for partition in asked.led() if partition.topic == _GROUPS] if asked.up else []
        known = [newest.topics.partition(_GROUPS, partition.index) for partition in led]
        return not led or any(
            image is None or image.leader_epoch > partition.leader_epoch
            for image, partition in zip(known, led, strict=True)
        )

    async def moved(self, kind: int, key: str) -> None:
        """Look up the coordinator again: the broker answered that it is not the coordinator, or not yet."""
        self._coordinators.pop((kind, key), None)
        await self.pause(0.02, 0.1)
