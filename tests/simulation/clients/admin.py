"""Changes of the cluster while it is used: topics are created and deleted, replicas move, leaders are elected.

It remembers what was acknowledged. A topic that was created exists until a client asks for its deletion. A topic whose
deletion was acknowledged is gone, unless an earlier try to create it was never answered: a node that was cut off may
forward that try later.
"""

from __future__ import annotations

from collections.abc import Callable

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykbroker_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pykbroker_wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pykbroker_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker_wire.messages.elect_leaders import ElectLeadersRequest
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_worlds.history.events import History, Place
from pykbroker_worlds.simulated.sim_cluster import SimCluster
from tests.simulation.clients.base import Peer

_TOPIC = 2


class Admin(Peer):
    """Changes topics; `places` are partitions whose replicas it moves."""

    def __init__(self, cluster: SimCluster, history: History, name: str, places: list[Place], replicas: int) -> None:
        super().__init__(cluster, history, name)
        self.places = places
        self.replicas = replicas
        self._made = 0
        #: topics whose creation or deletion was acknowledged; topics that it tried to delete
        self._created: set[str] = set()
        self._deleted: set[str] = set()
        self._given_up: set[str] = set()
        #: topics whose creation was tried again
        self._tried_again: set[str] = set()

    async def run(self, is_over: Callable[[], bool], pause: float) -> None:
        works = [self._create, self._create, self._delete, self._grow, self._configure, self._elect, self._move]
        while not is_over():
            await self.random.choice(works)()
            await self.pause(0.0, pause)

    async def _create(self) -> None:
        self._made += 1
        name = f"{self.name}-{self._made}"
        topic = CreatableTopic(
            name=name,
            num_partitions=self.random.randint(1, 2),
            replication_factor=self.random.randint(1, self.replicas),
            configs=[CreatableTopicConfig(name="retention.ms", value=str(self.random.randint(10**6, 10**9)))],
        )
        before = self.unanswered
        answer = (await self.anybody(CreateTopicsRequest(topics=[topic], timeout_ms=3_000))).topics[0]
        if self.unanswered > before:
            self._tried_again.add(name)
        self.note("create", name, answer.error_code)
        if answer.error_code == ErrorCode.NONE:
            self._created.add(name)

    async def _delete(self) -> None:
        if not self._created:
            return
        name = self.random.choice(sorted(self._created))
        self._given_up.add(name)
        answer = await self.anybody(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=3_000))
        code = answer.responses[0].error_code
        self.note("delete", name, code)
        if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            # Unknown topic: an earlier try was successful, or the node does not know the topic yet.
            self._created.discard(name)
        if code == ErrorCode.NONE:
            self._deleted.add(name)

    async def _grow(self) -> None:
        names = sorted(self._created - self._given_up)
        if names:
            topic = CreatePartitionsTopic(name=self.random.choice(names), count=self.random.randint(2, 4))
            answer = await self.anybody(CreatePartitionsRequest(topics=[topic], timeout_ms=3_000, validate_only=False))
            self.note("grow", topic.name, topic.count, answer.results[0].error_code)

    async def _configure(self) -> None:
        value = str(self.random.randint(10**6, 10**9))
        config = AlterableConfig(name="retention.ms", config_operation=0, value=value)
        names = sorted(self._created - self._given_up) or [self.places[0][0]]
        resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=self.random.choice(names), configs=[config])
        answer = await self.anybody(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        self.note("configure", resource.resource_name, answer.responses[0].error_code)

    async def _elect(self) -> None:
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=3_000)
        answer = await self.anybody(request)
        self.note("elect", answer.error_code)

    async def _move(self) -> None:
        """Move replicas to any brokers in any order, or cancel a move."""
        topic, index = self.random.choice(self.places)
        brokers = sorted(self.cluster.brokers)
        replicas = None if self.random.random() < 0.2 else self.random.sample(brokers, self.replicas)
        partition = ReassignablePartition(partition_index=index, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=3_000, topics=[ReassignableTopic(name=topic, partitions=[partition])]
        )
        answer = await self.anybody(request)
        code = answer.error_code or answer.responses[0].partitions[0].error_code
        self.note("move", topic, index, replicas, code)
        if code == ErrorCode.NONE:
            self.world.tell(self.name, f"moves {topic}-{index} to {replicas}")

    async def check(self) -> None:
        """Check at the end that what was acknowledged is so."""
        answer = await self.anybody(MetadataRequest(topics=None))
        there = {topic.name for topic in answer.topics}
        lost = sorted(self._created - self._given_up - there)
        assert not lost, f"{self.name}: created, and not there: {lost}"
        kept = sorted((self._deleted & there) - self._tried_again)
        assert not kept, f"{self.name}: deleted, and there: {kept}"
