"""The leaders and coordinators of a cluster in this process: which node they are, and how a test moves them."""

from __future__ import annotations

import time
from abc import abstractmethod

from pykbroker.coordinator.java import partition_for
from pykbroker.metadata.image import MetadataImage
from pykbroker.metadata.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from pykbroker.testing.arrangement import Arranged
from pykbroker.testing.asynchronous import on_thread
from pykbroker.testing.inspection import PATIENCE_SECONDS, POLL_SECONDS
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykbroker_wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest

_TIMEOUT_MS = int(PATIENCE_SECONDS * 1000)
_PREFERRED = 0
_GROUP, _TRANSACTION = 0, 1


class Led(Arranged):
    """The partitions of a cluster and their leaders."""

    @property
    @abstractmethod
    def nodes(self) -> tuple[int, ...]:
        """The ids of all nodes, whether they run or not."""

    @abstractmethod
    def _image(self) -> MetadataImage:
        """Return the newest metadata."""

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Return the leader of a partition, from the newest metadata of a running node. None if there is no leader, or
        no such partition."""
        found = self._image().topics.partition(topic, partition)
        return None if found is None or found.leader < 0 else found.leader

    def in_sync_replicas(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """Return the ISR of a partition, from the newest metadata of a running node."""
        found = self._image().topics.partition(topic, partition)
        return () if found is None else found.isr

    def move_leader(
        self, topic: str, partition: int = 0, *, to: int, timeout_seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Make the node `to` the leader of a partition, and return when it is. The other replicas follow it.

        The node becomes the preferred leader. If it has no replica, it gets one in place of the last replica, and this
        method waits until it has copied the log. Raises LookupError for an unknown partition, ValueError for an unknown
        node, RuntimeError for a node that is not active, and TimeoutError if it does not lead in time.
        """
        self._leader_of(topic, partition)
        if to not in self.nodes:
            raise ValueError(f"there is no node {to}")
        if not self._image().broker_is_active(to):
            raise RuntimeError(f"node {to} is not active, so it cannot lead {topic}-{partition}")
        deadline = time.monotonic() + timeout_seconds
        while self.leader(topic, partition) != to:
            found = self._image().topics.partition(topic, partition)
            if found is None:
                raise LookupError(f"there is no partition {topic}-{partition}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}-{partition} has leader {found.leader}, and its ISR is {found.isr}")
            kept = [node for node in found.replicas if node != to]
            wanted = [to, *(kept if to in found.replicas else kept[:-1])]
            if list(found.replicas) != wanted and not found.adding_replicas and not found.removing_replicas:
                self._reassign(topic, partition, wanted)
            elif to in found.isr and not found.adding_replicas:
                self._elect(topic, partition)
            time.sleep(POLL_SECONDS)

    def coordinator(self, group_id: str | None = None, *, transactional_id: str | None = None) -> int | None:
        """Return the coordinator of a group or of a transactional id, or None if it has no leader at the moment. The
        internal topic is created if it does not exist. Raises TypeError unless exactly one of both is given."""
        return self.leader(*self._shard(group_id, transactional_id))

    def move_coordinator(
        self,
        group_id: str | None = None,
        *,
        transactional_id: str | None = None,
        to: int,
        timeout_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Make the node `to` the coordinator of a group or of a transactional id, as `move_leader` does it with the
        partition of the internal topic. Other groups of that partition move too. Raises as `move_leader` does."""
        topic, partition = self._shard(group_id, transactional_id)
        self.move_leader(topic, partition, to=to, timeout_seconds=timeout_seconds)

    move_leader_async = on_thread(move_leader)
    move_coordinator_async = on_thread(move_coordinator)

    def _shard(self, group_id: str | None, transactional_id: str | None) -> tuple[str, int]:
        """Return the partition of the internal topic that keeps the state of a group or a transactional id."""
        key, topic, kind = (
            (transactional_id, TRANSACTION_STATE_TOPIC, _TRANSACTION)
            if group_id is None
            else (group_id, GROUP_METADATA_TOPIC, _GROUP)
        )
        if key is None or (group_id is not None and transactional_id is not None):
            raise TypeError("a coordinator is that of a group_id or of a transactional_id")
        if topic not in self._known_topics(topic):
            # This request creates the topic, as the first client does.
            self._ask(self._asked_nodes()[0], FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))
            self._wait_for_topic(topic, is_there=True)
        return topic, partition_for(key, len(self._topic(topic).leaders))

    def _reassign(self, topic: str, partition: int, replicas: list[int]) -> None:
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=_TIMEOUT_MS,
            topics=[
                ReassignableTopic(
                    name=topic, partitions=[ReassignablePartition(partition_index=partition, replicas=replicas)]
                )
            ],
        )

        def part(answer: object) -> object:
            code: int = answer.error_code  # type: ignore[attr-defined]
            return answer if code else answer.responses[0].partitions[0]  # type: ignore[attr-defined]

        self._change(request, part)

    def _elect(self, topic: str, partition: int) -> None:
        """Ask for an election of the preferred leader. It may fail while a node is fenced; the caller tries again."""
        request = ElectLeadersRequest(
            election_type=_PREFERRED,
            topic_partitions=[TopicPartitions(topic=topic, partitions=[partition])],
            timeout_ms=_TIMEOUT_MS,
        )
        try:
            self._change(request, lambda answer: answer)
        except KafkaError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
