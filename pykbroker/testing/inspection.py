"""The state of a broker or a cluster for a test: records, offsets, groups, transactions; typed values.

Requests go to the nodes in memory, in the newest version of each API. So they use no socket and no client, no fault
rule applies to them, and they are not in the recorded traffic. In a cluster they go to the leader or the coordinator.
Not responsible for the answers of nodes (api/).
"""

from __future__ import annotations

import asyncio
import random
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pykbroker.metadata.image import MetadataImage
from pykbroker.metadata.topic_names import INTERNAL_TOPICS
from pykbroker.testing.asynchronous import on_thread
from pykbroker.testing.groups import Groups, HasSessions, InspectedGroup, InspectedMember, NamedIndex
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pykbroker_wire.messages.consumer_protocol import ConsumerProtocolAssignment
from pykbroker_wire.messages.describe_groups import DescribeGroupsRequest
from pykbroker_wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from pykbroker_wire.messages.describe_transactions import DescribeTransactionsRequest
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.list_groups import ListGroupsRequest
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.messages.list_transactions import ListTransactionsRequest
from pykbroker_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from pykbroker_wire.messages.share_group_describe import ShareGroupDescribeRequest
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.record import iter_records

_EARLIEST, _LATEST = -2, -1
_MOST_BYTES = (1 << 31) - 1
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.02
_TRY_AGAIN = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
#: The type in the key of a control record of an aborted transaction.
_ABORT = 0
#: Types of keys in FindCoordinator.
_GROUP, _TRANSACTION = 0, 1


@dataclass(frozen=True, slots=True)
class InspectedRecord:
    """A record as a consumer gets it. `timestamp_ms`: since 1970. `headers`: names with their values."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class InspectedOffset:
    """`leader_epoch`: -1 if the commit had none."""

    offset: int
    metadata: str | None
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class InspectedTransaction:
    """`state`: Kafka's word, `Ongoing`, `CompleteCommit`, ... `start_ms`: milliseconds since 1970, or -1 if no
    transaction is open. `partitions`: the partitions in the transaction, sorted."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    partitions: tuple[NamedIndex, ...]


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic in the newest metadata. `leaders`: the leader of each partition, -1 if there is none."""

    name: str
    id: bytes
    leaders: Mapping[int, int]


def topics_of(image: MetadataImage, name: str | None = None) -> dict[str, KnownTopic]:
    """Return the topics of an image by name, or only the topic `name` if there is one."""
    by_name = image.topics.by_name
    chosen = by_name.values() if name is None else [by_name[name]] if name in by_name else []
    return {
        topic.name: KnownTopic(topic.name, topic.id, {index: one.leader for index, one in topic.partitions.items()})
        for topic in chosen
    }


class Inspected(HasSessions):
    """A broker, or a cluster. Its methods may be called from any thread of the host.

    They raise LookupError for an unknown topic, group or transactional id, and TimeoutError if no running node can
    answer within a minute.
    """

    @abstractmethod
    def _ask(self, node: int, request: Any) -> Any:
        """Return a node's answer to a request. Raises RuntimeError if it does not serve, ConnectionError if another
        node may serve the request instead."""

    @abstractmethod
    def _asked_nodes(self) -> tuple[int, ...]:
        """Return the ids of the nodes that serve."""

    @abstractmethod
    def _known_topics(self, name: str | None = None) -> Mapping[str, KnownTopic]:
        """Return all topics by name, or only the topic `name` if there is one, from the newest metadata."""

    # -- topics -------------------------------------------------------------------------------------------------------

    def topics(self, *, internal: bool = False) -> dict[str, int]:
        """Return the names of all topics with their numbers of partitions; `internal`: with Kafka's own topics."""
        return {
            name: len(topic.leaders)
            for name, topic in sorted(self._known_topics().items())
            if internal or name not in INTERNAL_TOPICS
        }

    def records(
        self, topic: str, partition: int | None = None, *, read_committed: bool = False
    ) -> list[InspectedRecord]:
        """Return the records that a consumer would get from the beginning of one partition, or of each partition in
        turn. With `read_committed`, records of open and of aborted transactions are left out."""
        indexes = [partition] if partition is not None else sorted(self._topic(topic).leaders)
        return [record for index in indexes for record in self._read(topic, index, read_committed=read_committed)]

    def wait_for_records(
        self,
        topic: str,
        count: int,
        *,
        read_committed: bool = False,
        timeout_seconds: float = PATIENCE_SECONDS,
    ) -> list[InspectedRecord]:
        """Wait for `count` records, and return them. The topic may be created later. Raises TimeoutError with the
        number so far."""
        deadline = time.monotonic() + timeout_seconds
        while len(found := self._records_so_far(topic, read_committed=read_committed)) < count:
            if time.monotonic() > deadline:
                raise _too_few(topic, len(found), count, timeout_seconds)
            time.sleep(POLL_SECONDS)
        return found

    async def wait_for_records_async(
        self,
        topic: str,
        count: int,
        *,
        read_committed: bool = False,
        timeout_seconds: float = PATIENCE_SECONDS,
    ) -> list[InspectedRecord]:
        """Do what `wait_for_records` does, without blocking the running loop."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            found = await asyncio.to_thread(self._records_so_far, topic, read_committed=read_committed)
            if len(found) >= count:
                return found
            if time.monotonic() > deadline:
                raise _too_few(topic, len(found), count, timeout_seconds)
            await asyncio.sleep(POLL_SECONDS)

    def _records_so_far(self, topic: str, *, read_committed: bool) -> list[InspectedRecord]:
        try:
            return self.records(topic, read_committed=read_committed)
        except LookupError:
            return []

    def beginning_offsets(self, topic: str) -> dict[int, int]:
        """Return the first readable offset of each partition."""
        return self._offsets(topic, _EARLIEST)

    def end_offsets(self, topic: str, *, read_committed: bool = False) -> dict[int, int]:
        """Return the offset after the last record that consumers get, for each partition: the high watermark, or with
        `read_committed` the last stable offset."""
        return self._offsets(topic, _LATEST, read_committed=read_committed)

    # -- groups -------------------------------------------------------------------------------------------------------

    @property
    def groups(self) -> Groups:
        """`groups()` returns all groups, sorted by their ids; `groups.expire(group_id, member)` ends the session of one
        member."""
        return Groups(
            lambda: [self._describe(group_id, kind) for group_id, kind in sorted(self._group_types().items())],
            self._end_session,
        )

    def group(self, group_id: str) -> InspectedGroup:
        """Return one group. Raises LookupError if there is no such group."""
        kind = self._group_types().get(group_id)
        if kind is None:
            raise LookupError(f"there is no group {group_id}")
        return self._describe(group_id, kind)

    def committed_offsets(self, group_id: str) -> dict[NamedIndex, InspectedOffset]:
        """Return the offsets that a group has committed, by topic and partition; none for an unknown group."""
        if group_id not in self._group_types():
            return {}
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
        group = self._of_coordinator(_GROUP, group_id, request, lambda answer: answer.groups[0])
        names = {topic.id: topic.name for topic in self._known_topics().values()}
        return {
            # Versions before 10 have names, and no ids.
            (topic.name or names[topic.topic_id], one.partition_index): InspectedOffset(
                one.committed_offset, one.metadata, one.committed_leader_epoch
            )
            for topic in group.topics
            if topic.name or topic.topic_id in names
            for one in topic.partitions
            if one.committed_offset >= 0
        }

    def start_offsets(self, group_id: str) -> dict[NamedIndex, int]:
        """Return the offsets at which a share group starts, by topic and partition. All records before them are done. A
        partition that the group has not begun to read is left out. Raises LookupError if there is no such share
        group."""
        if self._group_types().get(group_id, "").lower() != "share":
            raise LookupError(f"there is no share group {group_id}")
        asked = [DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)]
        request = DescribeShareGroupOffsetsRequest(groups=asked)
        group = self._of_coordinator(_GROUP, group_id, request, lambda answer: answer.groups[0])
        return {
            (topic.topic_name, one.partition_index): one.start_offset
            for topic in group.topics
            for one in topic.partitions
            if one.start_offset >= 0
        }

    records_async = on_thread(records)
    group_async = on_thread(group)
    committed_offsets_async = on_thread(committed_offsets)
    start_offsets_async = on_thread(start_offsets)

    # -- transactions -------------------------------------------------------------------------------------------------

    def transactions(self) -> list[InspectedTransaction]:
        """Return all transactional ids, sorted."""
        answers = self._of_every_node(ListTransactionsRequest(duration_filter=-1))
        found = {one.transactional_id for answer in answers for one in answer.transaction_states}
        return [self._transaction(transactional_id) for transactional_id in sorted(found)]

    def transaction(self, transactional_id: str) -> InspectedTransaction:
        """Return one transactional id. Raises LookupError if there is no such id."""
        for found in self.transactions():
            if found.transactional_id == transactional_id:
                return found
        raise LookupError(f"there is no transactional id {transactional_id}")

    # -- how ----------------------------------------------------------------------------------------------------------

    def _topic(self, topic: str) -> KnownTopic:
        found = self._known_topics(topic).get(topic)
        if found is None:
            raise LookupError(f"there is no topic {topic}")
        return found

    def _leader_of(self, topic: str, index: int) -> int:
        leader = self._topic(topic).leaders.get(index)
        if leader is None:
            raise LookupError(f"{topic} has no partition {index}")
        return leader

    def _offsets(self, topic: str, timestamp: int, *, read_committed: bool = False) -> dict[int, int]:
        return {
            index: self._offset(topic, index, timestamp, read_committed=read_committed)
            for index in sorted(self._topic(topic).leaders)
        }

    def _offset(self, topic: str, index: int, timestamp: int, *, read_committed: bool) -> int:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(read_committed),
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=timestamp)
                    ],
                )
            ],
        )
        answer = self._of_leader(topic, index, request, lambda answer: answer.topics[0].partitions[0])
        offset: int = answer.offset
        return offset

    def _read(self, topic: str, index: int, *, read_committed: bool) -> Iterator[InspectedRecord]:
        topic_id = self._topic(topic).id
        offset = self._offset(topic, index, _EARLIEST, read_committed=read_committed)
        end = self._offset(topic, index, _LATEST, read_committed=read_committed)
        open_aborted: set[int] = set()
        while offset < end:
            request = FetchRequest(
                max_bytes=_MOST_BYTES,
                isolation_level=int(read_committed),
                session_epoch=-1,
                topics=[
                    FetchTopic(
                        topic=topic,
                        topic_id=topic_id,
                        partitions=[
                            FetchPartition(
                                partition=index,
                                current_leader_epoch=-1,
                                fetch_offset=offset,
                                partition_max_bytes=_MOST_BYTES,
                            )
                        ],
                    )
                ],
            )
            found = self._of_leader(topic, index, request, lambda answer: answer.responses[0].partitions[0])
            data = b"".join(found.records) if isinstance(found.records, list) else bytes(found.records or b"")
            aborted = sorted((one.first_offset, one.producer_id) for one in found.aborted_transactions or ())
            if not data:
                return
            for position, header in iter_batches(data):
                while aborted and aborted[0][0] <= header.last_offset:
                    open_aborted.add(aborted.pop(0)[1])
                offset = header.next_offset
                if header.is_control:
                    (marker,) = iter_records(data, position, header)
                    if bytes(marker.key or b"")[2:4] == _ABORT.to_bytes(2, "big"):
                        open_aborted.discard(header.producer_id)
                    continue
                if header.is_transactional and header.producer_id in open_aborted:
                    continue
                for record in iter_records(data, position, header):
                    if record.offset < end:
                        yield InspectedRecord(
                            topic,
                            index,
                            record.offset,
                            record.timestamp,
                            None if record.key is None else bytes(record.key),
                            None if record.value is None else bytes(record.value),
                            tuple(record.headers),
                        )

    def _group_types(self) -> dict[str, str]:
        """Return group id -> type of the group."""
        answers = self._of_every_node(ListGroupsRequest())
        return {group.group_id: group.group_type for answer in answers for group in answer.groups}

    def _describe(self, group_id: str, kind: str) -> InspectedGroup:
        if kind.lower() == "consumer":
            described = ConsumerGroupDescribeRequest(group_ids=[group_id])
            group = self._of_coordinator(_GROUP, group_id, described, lambda answer: answer.groups[0])
            return InspectedGroup(
                group_id,
                "consumer",
                group.group_state,
                group.assignor_name,
                tuple(
                    InspectedMember(
                        one.member_id,
                        one.client_id,
                        one.client_host,
                        one.instance_id,
                        _sorted(
                            {topic.topic_name: topic.partitions for topic in one.assignment.topic_partitions},
                        ),
                    )
                    for one in group.members
                ),
            )
        if kind.lower() == "share":
            return self._described_share(group_id)
        request = DescribeGroupsRequest(groups=[group_id])
        old = self._of_coordinator(_GROUP, group_id, request, lambda answer: answer.groups[0])
        return InspectedGroup(
            group_id,
            "classic",
            old.group_state,
            old.protocol_data,
            tuple(
                InspectedMember(
                    one.member_id,
                    one.client_id,
                    one.client_host,
                    one.group_instance_id,
                    _assigned(bytes(one.member_assignment)) if old.protocol_type == "consumer" else (),
                )
                for one in old.members
            ),
        )

    def _described_share(self, group_id: str) -> InspectedGroup:
        request = ShareGroupDescribeRequest(group_ids=[group_id])
        group = self._of_coordinator(_GROUP, group_id, request, lambda answer: answer.groups[0])
        members = tuple(
            InspectedMember(
                one.member_id,
                one.client_id,
                one.client_host,
                None,
                _sorted({topic.topic_name: topic.partitions for topic in one.assignment.topic_partitions}),
            )
            for one in group.members
        )
        return InspectedGroup(group_id, "share", group.group_state, group.assignor_name, members)

    def _transaction(self, transactional_id: str) -> InspectedTransaction:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        found = self._of_coordinator(
            _TRANSACTION, transactional_id, request, lambda answer: answer.transaction_states[0]
        )
        return InspectedTransaction(
            transactional_id,
            found.transaction_state,
            found.producer_id,
            found.producer_epoch,
            found.transaction_timeout_ms,
            found.transaction_start_time_ms,
            _sorted({topic.topic: topic.partitions for topic in found.topics}),
        )

    def _of_leader(self, topic: str, index: int, request: Any, part: Callable[[Any], Any]) -> Any:
        """Return the leader's answer for a partition."""
        return self._of_server(lambda: self._leader_of(topic, index), request, part, f"partition {topic}-{index}")

    def _of_coordinator(self, key_type: int, key: str, request: Any, part: Callable[[Any], Any]) -> Any:
        """Return the coordinator's answer for a group, or for a transactional id."""

        def coordinator() -> int:
            # The node that is asked need not be the coordinator, so a node that restarts does not matter.
            asked = random.choice(self._asked_nodes())  # noqa: S311 - no secret
            (found,) = self._ask(asked, FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])).coordinators
            node: int = found.node_id
            return node

        return self._of_server(coordinator, request, part, f"the coordinator of {key}")

    def _of_server(self, server: Callable[[], int], request: Any, part: Callable[[Any], Any], what: str) -> Any:
        """Return the part of an answer that has its error code, when that code is none. `server` returns the node that
        serves the request, or -1. It is called before every try, because the role may have moved to another node."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            code: int = ErrorCode.LEADER_NOT_AVAILABLE
            try:
                node = server()
                if node in self._asked_nodes():
                    found = part(self._ask(node, request))
                    code = found.error_code
                    if not code:
                        return found
            except ConnectionError:
                # The node ended, or a cluster outside this process closed its connection.
                code = ErrorCode.NETWORK_EXCEPTION
            _may_try_again(code, deadline, what)

    def _of_every_node(self, request: Any) -> list[Any]:
        """Return the answer of each active node. A node that restarts is asked again, and a node that is no longer
        active is left out."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        answers: dict[int, Any] = {}
        while waiting := set(self._asked_nodes()) - set(answers):
            for node in waiting:
                try:
                    answer = self._ask(node, request)
                except ConnectionError:
                    code: int = ErrorCode.NETWORK_EXCEPTION
                else:
                    code = answer.error_code
                    if not code:
                        answers[node] = answer
                        continue
                _may_try_again(code, deadline, type(request).__name__)
        return list(answers.values())


def _too_few(topic: str, found: int, count: int, timeout_seconds: float) -> TimeoutError:
    return TimeoutError(f"{topic} has {found} records after {timeout_seconds:g} s, not {count}")


def _may_try_again(code: int, deadline: float, what: str) -> None:
    if code not in _TRY_AGAIN:
        raise KafkaError(ErrorCode.received(code))
    if time.monotonic() > deadline:
        raise TimeoutError(f"{what}: {ErrorCode(code).name} after {PATIENCE_SECONDS:g} s")
    time.sleep(POLL_SECONDS)


def _sorted(partitions: Mapping[str, list[int]]) -> tuple[NamedIndex, ...]:
    return tuple(sorted((topic, index) for topic, indexes in partitions.items() for index in indexes))


def _assigned(assignment: bytes) -> tuple[NamedIndex, ...]:
    """Return a classic member's assignment, which is empty while the member has none."""
    if not assignment:
        return ()
    version = min(int.from_bytes(assignment[:2], "big"), ConsumerProtocolAssignment.MAX_VERSION)
    found, _ = ConsumerProtocolAssignment.decode(memoryview(assignment), 2, version)
    return _sorted({topic.topic: topic.partitions for topic in found.assigned_partitions})
