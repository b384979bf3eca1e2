"""Fetch, versions 4-18. KIP-74 (limits), KIP-227 (sessions), KIP-320 (leader epochs), KIP-516 (topic ids), KIP-951 (leader hints).

Works: sessions, long polls, min and max bytes, isolation level, the first batch whole even when it is larger than the limit.
Follower fetches (replica id >= 0) read to the log end and move the high watermark. On a controller listener, and for the metadata
partition, the quorum answers. Gaps: preferred read replicas (KIP-392) and diverging epochs for data partitions come with replication.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pykbroker.api.context import RequestContext
from pykbroker.api.leaders import leader_hint
from pykbroker.api.services import BrokerServices
from pykbroker.replica.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchPartition, FetchSession, Key
from pykbroker.replica.parked import ParkedFetch
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
    LeaderIdAndEpoch,
)
from pykbroker_wire.primitives import ZERO_UUID

_TOPIC_IDS_FROM = 13
NO_EPOCH = -1


def handle(ctx: RequestContext, request: FetchRequest) -> FetchResponse | asyncio.Future[FetchResponse]:
    services = ctx.services
    if not isinstance(services, BrokerServices):
        return _read_metadata_log(ctx, request)
    replica_id = request.replica_state.replica_id if ctx.api_version >= 15 else request.replica_id
    if replica_id >= 0 and not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        # CVE-2018-1288: only brokers may speak as replicas.
        return (
            FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            if ctx.api_version >= 7
            else FetchResponse()
        )
    if request.isolation_level not in (0, 1):
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    uses_ids = ctx.api_version >= _TOPIC_IDS_FROM
    now = services.runtime.loop.time()
    sessions = services.fetch_sessions
    session: FetchSession | None = None
    full = True
    create = False
    if ctx.api_version >= 7:
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id:
                sessions.close(request.session_id)
            create = request.session_epoch == INITIAL_EPOCH
        else:
            found = sessions.find(request.session_id, request.session_epoch, uses_ids, now)
            if isinstance(found, ErrorCode):
                return FetchResponse(error_code=found)
            session = found
            full = False
    if session is not None:
        members = session.partitions
        _update(members, request, uses_ids)
    else:
        members = {}
        _update(members, request, uses_ids)
        if create:
            session = sessions.create(members.items(), privileged=replica_id >= 0, uses_topic_ids=uses_ids, now=now)
            if session is not None:
                members = session.partitions
    fetch = _Fetch(ctx, services, request, replica_id, members, session, full)
    # With too many that wait already, one more is answered with what there is (pykbroker.max.parked.requests).
    crowded = services.replicas.parked >= services.replicas.max_parked
    response = fetch.read(final=request.max_wait_ms <= 0 or not members or crowded)
    if response is not None:
        return response
    return fetch.park(request.max_wait_ms / 1000)


def _update(members: dict[Key, FetchPartition], request: FetchRequest, uses_ids: bool) -> None:
    """Put the partitions of a request among the members; drop the forgotten ones."""
    for topic in request.topics:
        name: bytes | str = topic.topic_id if uses_ids else topic.topic
        for asked in topic.partitions:
            key = (name, asked.partition)
            entry = members.get(key)
            if entry is None:
                entry = members[key] = FetchPartition(
                    None if uses_ids else topic.topic, topic.topic_id, asked.partition
                )
            entry.fetch_offset = asked.fetch_offset
            entry.log_start_offset = asked.log_start_offset
            entry.max_bytes = asked.partition_max_bytes
            entry.current_leader_epoch = asked.current_leader_epoch
            entry.last_fetched_epoch = asked.last_fetched_epoch
    for forgotten in request.forgotten_topics_data:
        name = forgotten.topic_id if uses_ids else forgotten.topic
        for index in forgotten.partitions:
            members.pop((name, index), None)


class _Fetch:
    """One fetch, read perhaps several times until it is worth answering."""

    __slots__ = ("ctx", "full", "members", "read_bytes", "replica_id", "request", "services", "session", "waiting_for")

    def __init__(
        self,
        ctx: RequestContext,
        services: BrokerServices,
        request: FetchRequest,
        replica_id: int,
        members: dict[Key, FetchPartition],
        session: FetchSession | None,
        full: bool,
    ) -> None:
        self.ctx = ctx
        self.services = services
        self.request = request
        self.replica_id = replica_id
        # A session's partitions may change under a parked fetch when the client closes it and opens another.
        self.members = members
        self.session = session
        self.full = full
        self.read_bytes = 0
        self.waiting_for: list[Any] = []

    def park(self, wait_seconds: float) -> asyncio.Future[FetchResponse]:
        replicas = self.services.replicas
        missing = max(1, self.request.min_bytes - self.read_bytes)
        parked = ParkedFetch(self.services.runtime.loop, self.waiting_for, missing, wait_seconds, self.read)
        replicas.parked += 1
        parked.future.add_done_callback(replicas.unparked)
        return parked.future

    def read(self, final: bool) -> FetchResponse | None:
        """Read every partition; None when there is too little yet and the fetch may wait."""
        request = self.request
        committed = request.isolation_level == 1
        left = min(request.max_bytes, self.services.replicas.fetch_max_bytes)
        results: list[tuple[Key, FetchPartition, PartitionData]] = []
        total = 0
        urgent = False
        waiting_for: list[Any] = []
        authorized: dict[str, bool] = {}
        version = self.ctx.api_version
        zero_copy = self.ctx.peer.zero_copy
        for key, entry in self.members.items():
            data = PartitionData(partition_index=entry.index)
            results.append((key, entry, data))
            try:
                partition = entry.partition
                if partition is None or partition.offline or not partition.is_leader:
                    partition = self._find(entry, authorized)
                elif entry.topic is not None and self.replica_id < 0 and not self._may_read(entry.topic, authorized):
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                # Null and empty mean the same to clients; Kafka says null where a log was read without isolation, or could have been.
                data.aborted_transactions = [] if committed else None
                partition.require_leader(max(NO_EPOCH, entry.current_leader_epoch))
                if entry.last_fetched_epoch > NO_EPOCH:
                    self._require_no_divergence(partition, entry, data)
                    if data.diverging_epoch.end_offset >= 0:
                        urgent = True
                        continue
                limit = min(entry.max_bytes, left)
                if self.replica_id >= 0:
                    found = partition.read_as_replica(
                        self.replica_id, entry.fetch_offset, limit, min_one=not total, zero_copy=zero_copy
                    )
                else:
                    found = partition.read(
                        entry.fetch_offset, limit, read_committed=committed, min_one=not total, zero_copy=zero_copy
                    )
                log = partition.log
                data.high_watermark = log.high_watermark
                data.last_stable_offset = log.last_stable_offset
                data.log_start_offset = log.log_start_offset
                if committed:
                    data.aborted_transactions = []
                data.records = found.slices
                total += found.size
                left = max(0, left - found.size)
                waiting_for.append(partition)
            except KafkaError as error:
                urgent = True
                data.error_code = error.code
                data.high_watermark = -1
                data.last_stable_offset = -1
                data.log_start_offset = -1
                data.records = []
                entry.partition = None
                if (
                    error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
                    and version >= 16
                    and entry.topic
                ):
                    leader, epoch, _ = leader_hint(self.services, self.ctx.listener_name, entry.topic, entry.index)
                    data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        if not final and not urgent and total < request.min_bytes:
            self.read_bytes = total
            self.waiting_for = waiting_for
            return None
        return self._respond(results)

    def _require_no_divergence(self, partition: Any, entry: FetchPartition, data: PartitionData) -> None:
        """KIP-320: a client that read what is not in this log is told where to go back to."""
        log = partition.log
        epoch, end_offset = log.epoch_end_offset(entry.last_fetched_epoch)
        if epoch == NO_EPOCH or end_offset < 0 or entry.fetch_offset < log.log_start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition}: nothing is known about epoch {entry.last_fetched_epoch}"
            )
        if epoch < entry.last_fetched_epoch or end_offset < entry.fetch_offset:
            data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
            data.high_watermark = log.high_watermark
            data.last_stable_offset = log.last_stable_offset
            data.log_start_offset = log.log_start_offset
            data.records = []

    def _may_read(self, topic: str, authorized: dict[str, bool]) -> bool:
        allowed = authorized.get(topic)
        if allowed is None:
            allowed = authorized[topic] = self.ctx.authorize(Operation.READ, Resource.TOPIC, topic)
        return allowed

    def _find(self, entry: FetchPartition, authorized: dict[str, bool]) -> Any:
        """The partition a client means. A topic it may not read looks unknown by id and forbidden by name."""
        replicas = self.services.replicas
        by_id = self.ctx.api_version >= _TOPIC_IDS_FROM
        if by_id:
            topic = self.services.metadata.image.topics.by_id.get(entry.topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            entry.topic = topic.name
        assert entry.topic is not None
        if self.replica_id < 0 and not self._may_read(entry.topic, authorized):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = replicas.get(entry.topic, entry.index)
        entry.partition = partition
        return partition

    def _respond(self, results: list[tuple[Key, FetchPartition, PartitionData]]) -> FetchResponse:
        version = self.ctx.api_version
        uses_ids = version >= _TOPIC_IDS_FROM
        session = self.session
        topics: dict[bytes | str, FetchableTopicResponse] = {}
        endpoints: dict[int, NodeEndpoint] = {}
        moved: list[Key] = []
        for key, entry, data in results:
            if session is not None:
                has_records = bool(data.records)
                diverging = data.diverging_epoch != EpochEndOffset()
                tell = entry.worth_telling(
                    data.error_code, has_records, data.high_watermark, data.log_start_offset, diverging
                )
                if has_records:
                    moved.append(key)
                if not tell and not self.full:
                    continue
            if data.error_code and version >= 16 and data.current_leader.leader_id >= 0 and entry.topic:
                _, _, node = leader_hint(self.services, self.ctx.listener_name, entry.topic, entry.index)
                if node is not None:
                    endpoints[node.node_id] = NodeEndpoint(
                        node_id=node.node_id, host=node.host, port=node.port, rack=node.rack
                    )
            name = key[0]
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = FetchableTopicResponse(
                    topic=entry.topic or "" if not uses_ids else "", topic_id=entry.topic_id if uses_ids else ZERO_UUID
                )
            topic.partitions.append(data)
        if session is not None:
            for key in moved:
                session.move_to_end(key)
        return FetchResponse(
            session_id=session.id if session is not None else 0,
            responses=list(topics.values()),
            node_endpoints=list(endpoints.values()),
        )


def _read_metadata_log(ctx: RequestContext, request: FetchRequest) -> FetchResponse | asyncio.Future[FetchResponse]:
    """On a controller listener only the metadata log is read; the quorum knows everything else."""
    if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    answer: FetchResponse | asyncio.Future[FetchResponse] = ctx.services.quorum.handle(
        request, ctx.api_version, ctx.listener_name
    )
    return answer
