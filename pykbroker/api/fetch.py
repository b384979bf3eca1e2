"""Fetch, versions 4-18. KIP-74 (limits), KIP-227 (sessions), KIP-320 (epochs), KIP-392 (followers serve consumers),
KIP-516 (topic ids), KIP-903 (broker epochs), KIP-951 (hints).

Works: sessions, long polls, min and max bytes, isolation level, diverging epochs, the first batch whole even when it is
larger than the limit. Followers (replica id >= 0) read to the log end. The first read of such a fetch tells the leader
how far the follower has come; what is read later, while the fetch is parked, proves nothing new. Consumers of
version 11 or newer are served by every replica, up to the high watermark that it knows; with replica.selector.class the
leader names the one in the consumer's rack instead of reading. On a controller listener, and for the metadata
partition, the quorum answers. A throttled replica that is not in sync gets nothing while the leader's quota is exceeded
(replica/quota.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from pykbroker.client_view.leader_hints import leader_hint, node_on_listener
from pykbroker.coordinator.later import Later
from pykbroker.dispatch.context import AnyContext, BrokerContext, ControllerContext, is_on_broker, is_on_controller
from pykbroker.dispatch.log_opening import when_open
from pykbroker.dispatch.rows import Handlers
from pykbroker.dispatch.services import BrokerServices
from pykbroker.metadata.topic_names import MAX_NAME_LENGTH
from pykbroker.replica.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchSession, SessionKey, SessionPartition
from pykbroker.replica.parked import Isolation, ParkedFetch
from pykbroker.replica.partition import Partition
from pykbroker.replica.selector import preferred_replica
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_log.disk import ColdRead
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from pykbroker_wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from pykbroker.replica.replica_traffic import PartitionTraffic

_TOPIC_IDS_FROM = 13
#: From here on a request says the consumer's rack, and followers answer consumers (KIP-392).
_RACKS_FROM = 11
_CONSUMER = -1
_READ, _TOPIC = Operation.READ, Resource.TOPIC
#: Answered without a wait for other partitions: the client has to ask elsewhere, or for another topic.
_AT_ONCE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INCONSISTENT_TOPIC_ID)
#: The partition is known, so that Apache Kafka tries to read it: then it tells of aborted transactions with null.
_READ_IN_VAIN = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR)
NO_EPOCH = -1
READ_COMMITTED = 1


def handle(ctx: AnyContext, request: FetchRequest) -> FetchResponse | asyncio.Future[FetchResponse]:
    if is_on_broker(ctx):
        return _read_partitions(ctx, request)
    assert is_on_controller(ctx)
    return _read_metadata_log(ctx, request)


def _read_partitions(ctx: BrokerContext, request: FetchRequest) -> FetchResponse | asyncio.Future[FetchResponse]:
    services = ctx.services
    replica_id = request.replica_state.replica_id if ctx.api_version >= 15 else request.replica_id
    if request.isolation_level not in (0, READ_COMMITTED):
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
    # No session keeps a name that can be no topic's: a client may name many, of 32 KiB each.
    has_no_topic = not uses_ids and any(len(topic.topic) > MAX_NAME_LENGTH for topic in request.topics)
    if session is not None:
        members = session.partitions
        before = len(members)
        _update(members, request, uses_ids)
        if not members:
            # As in Apache Kafka: a session of nothing ends.
            sessions.close(session.id)
            session = None
        elif has_no_topic or (len(members) > before and not session.privileged and not sessions.make_room(0, now)):
            sessions.close(session.id)
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    else:
        members = {}
        _update(members, request, uses_ids)
        if create and not has_no_topic:
            # Asked here already: a client that only says it follows would take the places of all others, as it does in
            # Apache Kafka.
            follows = replica_id >= 0 and ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME, True)
            session = sessions.create(members.items(), privileged=follows, uses_topic_ids=uses_ids, now=now)
            if session is not None:
                members = session.partitions
    fetch = _Fetch(ctx, services, request, replica_id, members, session, full)
    # With too many that wait already, one more is answered with what there is (pykbroker.max.parked.requests). A
    # follower would ask again at once: there is room for as many of them as of consumers.
    most = services.replicas.max_parked if replica_id < 0 else 2 * services.replicas.max_parked
    crowded = services.replicas.parked >= most
    final = request.max_wait_ms <= 0 or crowded
    answer: Later[FetchResponse | int] = when_open(ctx, fetch.asked(), lambda: fetch.read(final))
    return answer if isinstance(answer, FetchResponse) else fetch.park(answer)


def _update(members: dict[SessionKey, SessionPartition], request: FetchRequest, uses_ids: bool) -> None:
    """Put the partitions of a request among the members; drop the forgotten ones."""
    for topic in request.topics:
        name: bytes | str = topic.topic_id if uses_ids else topic.topic
        for asked in topic.partitions:
            key = (name, asked.partition)
            entry = members.get(key)
            if entry is None:
                entry = members[key] = SessionPartition(
                    None if uses_ids else topic.topic, topic.topic_id, asked.partition
                )
            entry.fetch_offset = asked.fetch_offset
            entry.log_start_offset = asked.log_start_offset
            entry.max_bytes = asked.partition_max_bytes
            entry.current_leader_epoch = asked.current_leader_epoch
            entry.last_fetched_epoch = asked.last_fetched_epoch
            entry.verified_epoch = -1
    for forgotten in request.forgotten_topics_data:
        name = forgotten.topic_id if uses_ids else forgotten.topic
        for index in forgotten.partitions:
            members.pop((name, index), None)


#: Shared by all answers that have nothing to say there; never changed.
_NO_DIVERGENCE = EpochEndOffset()
_NO_LEADER = LeaderIdAndEpoch()
_NO_SNAPSHOT = SnapshotId()


class _Proof(NamedTuple):
    """What a follower's fetch proves about one partition, and the answer about it, if there is one."""

    partition: Partition
    entry: SessionPartition
    data: PartitionData | None
    #: where the leader's log ended when it was read
    leader_end: int


class _Fetch:
    """One fetch, read perhaps several times until it is worth answering."""

    __slots__ = (
        "ctx",
        "empty",
        "full",
        "is_proved",
        "leader_only",
        "members",
        "parked",
        "rack",
        "replica_id",
        "request",
        "services",
        "session",
        "session_epoch",
        "waiting_for",
    )

    def __init__(
        self,
        ctx: AnyContext,
        services: BrokerServices,
        request: FetchRequest,
        replica_id: int,
        members: dict[SessionKey, SessionPartition],
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
        self.session_epoch = 0 if session is None else session.epoch
        self.full = full
        version = ctx.api_version
        #: other replicas than the leader do not answer
        self.leader_only = replica_id >= 0 or (replica_id == _CONSUMER and version < _RACKS_FROM)
        #: where the consumer stands, if it is to be told of a replica there
        self.rack = request.rack_id if version >= _RACKS_FROM and services.replicas.selects_by_rack else ""
        #: the leader knows what this fetch of a follower proves
        self.is_proved = replica_id < 0
        self.waiting_for: list[Partition] = []
        self.parked: ParkedFetch | None = None
        #: what the last read found, when it found no records: the answer at the deadline if nothing happens before
        self.empty: list[tuple[SessionKey, SessionPartition, PartitionData]] | None = None

    def asked(self) -> Iterator[tuple[str, int]]:
        """The partitions that this node may have."""
        by_id = self.services.metadata.image.topics.by_id
        for entry in self.members.values():
            topic = entry.topic
            if topic is None and (image := by_id.get(entry.topic_id)) is not None:
                topic = image.name
            if topic is not None:
                yield topic, entry.index

    def park(self, found: int | asyncio.Future[FetchResponse | int]) -> asyncio.Future[FetchResponse]:
        replicas = self.services.replicas
        wait_seconds = self.request.max_wait_ms / 1000
        if self.replica_id >= 0:
            wait_seconds = replicas.awaited.wait_seconds(self.replica_id, wait_seconds)
        parked = ParkedFetch(
            replicas.deadlines, lambda: self.waiting_for, found, wait_seconds, self.read, isolation=self._isolation
        )
        self.parked = parked
        replicas.parked += 1
        parked.future.add_done_callback(replicas.unparked)
        if self.replica_id >= 0:
            replicas.awaited.park(self.replica_id, parked)
        return parked.future

    @property
    def _isolation(self) -> Isolation:
        if self.replica_id >= 0:
            return Isolation.LOG_END
        is_committed = self.request.isolation_level == READ_COMMITTED
        return Isolation.TXN_COMMITTED if is_committed else Isolation.HIGH_WATERMARK

    def read(self, final: bool) -> FetchResponse | int | asyncio.Future[FetchResponse | int]:
        """Read every partition. When there is too little yet and the fetch may wait: how many bytes are missing. When
        something is not in memory: one of these, later."""
        try:
            return self._read(final, wait=False)
        except ColdRead as cold:
            return self.services.replicas.logs.cold_reads.retry(cold, lambda wait: self._read(final, wait))

    def _read(self, final: bool, wait: bool) -> FetchResponse | int:
        """Raises ColdRead unless `wait`; nothing has changed then."""
        if final and self.empty is not None and self.parked is not None and not self.parked.poked:
            return self._respond(self.empty)
        request = self.request
        committed = request.isolation_level == READ_COMMITTED
        replicas = self.services.replicas
        left = min(request.max_bytes, replicas.fetch_max_bytes)
        min_bytes = min(request.min_bytes, left)
        results: list[tuple[SessionKey, SessionPartition, PartitionData]] = []
        total = 0
        urgent = False
        waiting_for: list[Partition] = []
        proofs: list[_Proof] = []
        authorized: dict[str, bool] = {}
        version = self.ctx.api_version
        takes_regions = self.ctx.peer.takes_regions
        may_leave_out = self.replica_id >= 0 and not self.full
        quota = replicas.quotas.leader
        throttles = quota.is_used
        throttled_bytes = 0
        counted: list[tuple[PartitionTraffic, int]] = []
        for key, entry in self.members.items():
            if may_leave_out and (level := self._level(entry, authorized)) is not None:
                # Nearly all partitions of a follower, nearly always.
                waiting_for.append(level)
                if not self.is_proved:
                    proofs.append(_Proof(level, entry, None, entry.fetch_offset))
                continue
            data = PartitionData(
                partition_index=entry.index,
                diverging_epoch=_NO_DIVERGENCE,
                current_leader=_NO_LEADER,
                snapshot_id=_NO_SNAPSHOT,
            )
            results.append((key, entry, data))
            try:
                partition = entry.partition
                if partition is None or partition.offline or not partition.is_leader:
                    partition = self._find(entry, authorized)
                elif entry.topic is not None and not self._may_read(entry.topic, authorized):
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                # Null and empty mean the same to clients; Kafka says null where a log was read without isolation, or
                # could not be read.
                data.aborted_transactions = None
                current_epoch = max(NO_EPOCH, entry.current_leader_epoch)
                if self.leader_only:
                    leader = partition.require_leader(current_epoch)
                else:
                    partition.require_epoch(current_epoch)
                    if self.rack and self._is_elsewhere(partition, entry, data):
                        urgent = True
                        continue
                if self.replica_id >= 0:
                    names_epoch = entry.current_leader_epoch > NO_EPOCH
                    leader.require_follower(
                        self.replica_id, request.replica_state.replica_epoch, names_epoch=names_epoch
                    )
                if entry.last_fetched_epoch > NO_EPOCH:
                    self._require_no_divergence(partition, entry, data)
                    if data.diverging_epoch.end_offset >= 0:
                        urgent = True
                        continue
                limit = min(entry.max_bytes, left)
                if self.replica_id >= 0:
                    min_one = not total
                    is_throttled = throttles and quota.is_throttled(partition.topic, partition.index)
                    # One in sync is never left out: a throttle must not shrink the ISR.
                    if is_throttled and self.replica_id not in leader.isr.committed and quota.is_exceeded():
                        limit, min_one = 0, False
                    found = partition.read_for_follower(
                        entry.fetch_offset, limit, min_one=min_one, regions=takes_regions, wait=wait
                    )
                    if is_throttled:
                        throttled_bytes += found.size
                    entry.verified_epoch = leader.leader_epoch
                    if not self.is_proved:
                        proofs.append(_Proof(partition, entry, data, partition.log.log_end_offset))
                else:
                    found = partition.read(
                        entry.fetch_offset,
                        limit,
                        read_committed=committed,
                        min_one=not total,
                        regions=takes_regions,
                        wait=wait,
                    )
                _tell_offsets(data, partition.log)
                if committed:
                    data.aborted_transactions = [
                        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                        for aborted in found.aborted
                    ]
                data.records = found.slices
                total += found.size
                if found.size and partition.traffic is not None:
                    counted.append((partition.traffic, found.size))
                left = max(0, left - found.size)
                waiting_for.append(partition)
            except KafkaError as error:
                # As in Apache Kafka: a partition that was not there to begin with keeps no fetch from waiting for the
                # others.
                if entry.partition is not None or error.code in _AT_ONCE:
                    urgent = True
                data.error_code = error.code
                if error.code in _READ_IN_VAIN:
                    data.aborted_transactions = None
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
                    hint, epoch, _ = leader_hint(
                        self.services.metadata.image, self.ctx.listener_name, entry.topic, entry.index
                    )
                    data.current_leader = LeaderIdAndEpoch(leader_id=hint, leader_epoch=epoch)
        if not self.is_proved:
            self._prove(proofs)
        if total < min_bytes and waiting_for and not final and not urgent:
            self.waiting_for = waiting_for
            self.empty = None if total else results
            return min_bytes - total
        if throttled_bytes:
            quota.record(throttled_bytes)
        bytes_out = replicas.bytes_out if self.replica_id < 0 else replicas.replication_bytes_out
        bytes_out.value += total
        for traffic, size in counted:
            traffic.read(size, by_follower=self.replica_id >= 0)
        return self._respond(results)

    def _is_elsewhere(self, partition: Partition, entry: SessionPartition, data: PartitionData) -> bool:
        """Name the follower in the consumer's rack, if there is one: this leader reads nothing then."""
        leader = partition.leader
        if leader is None:
            return False
        services = self.services

        def rack_of(broker_id: int) -> str | None:
            node = node_on_listener(services.metadata.image, broker_id, self.ctx.listener_name)
            return None if node is None else node.rack

        found = preferred_replica(leader, services.node_id, entry.fetch_offset, self.rack, rack_of)
        if found is None:
            return False
        data.preferred_read_replica = found
        data.aborted_transactions = None
        data.records = []
        _tell_offsets(data, partition.log)
        return True

    def _prove(self, proofs: list[_Proof]) -> None:
        """Tell the leaders, once all has been read: they may commit records, for which other requests wait. The answer
        says how far that has come, a round earlier than Apache Kafka's."""
        self.is_proved = True
        for partition, entry, _, leader_end in proofs:
            partition.note_fetched(
                self.replica_id,
                entry.fetch_offset,
                leader_end=leader_end,
                log_start_offset=entry.log_start_offset,
                broker_epoch=self.request.replica_state.replica_epoch,
            )
        for partition, _, data, _ in proofs:
            log = partition.log_if_open
            if data is not None and log is not None:
                data.high_watermark = log.high_watermark
                data.last_stable_offset = log.last_stable_offset

    def _level(self, entry: SessionPartition, authorized: dict[str, bool]) -> Partition | None:
        """A partition of a follower's session about which there is nothing to say: the follower is at the end of this
        log, and knows the high watermark and the log start. None: read it."""
        partition = entry.partition
        if partition is None or entry.topic is None or entry.verified_epoch != partition.leader_epoch:
            return None
        leader, log = partition.leader, partition.log_if_open
        if (
            leader is None
            or log is None
            or entry.fetch_offset != log.log_end_offset
            or entry.sent_high_watermark != log.high_watermark
            or entry.sent_log_start_offset != log.log_start_offset
            or not leader.has_follower(self.replica_id, self.request.replica_state.replica_epoch)
            or not self._may_read(entry.topic, authorized)
        ):
            return None
        return partition

    def _require_no_divergence(self, partition: Partition, entry: SessionPartition, data: PartitionData) -> None:
        """KIP-320: a client that read what is not in this log is told where to go back to."""
        log = partition.log
        epoch, end_offset = log.epoch_end_offset(entry.last_fetched_epoch)
        if epoch == NO_EPOCH or end_offset < 0 or entry.fetch_offset < log.log_start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition}: nothing is known about epoch {entry.last_fetched_epoch}"
            )
        if epoch < entry.last_fetched_epoch or end_offset < entry.fetch_offset:
            data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
            _tell_offsets(data, log)
            data.records = []

    def _may_read(self, topic: str, authorized: dict[str, bool]) -> bool:
        allowed = authorized.get(topic)
        if allowed is None:
            if self.replica_id < 0:
                allowed = self.ctx.authorize(_READ, _TOPIC, topic)
            else:
                # CVE-2018-1288: only brokers may speak as replicas.
                allowed = self.ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)
            authorized[topic] = allowed
        return allowed

    def _find(self, entry: SessionPartition, authorized: dict[str, bool]) -> Partition:
        """The partition a client means."""
        replicas = self.services.replicas
        by_id = self.ctx.api_version >= _TOPIC_IDS_FROM
        if by_id:
            topic = self.services.metadata.image.topics.by_id.get(entry.topic_id)
            if topic is None:
                if entry.topic is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                # A session, or a fetch that waited, knows the name of the topic that was deleted.
                has_namesake = replicas.find(entry.topic, entry.index) is not None
                raise KafkaError(
                    ErrorCode.INCONSISTENT_TOPIC_ID if has_namesake else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
            entry.topic = topic.name
        assert entry.topic is not None
        if not self._may_read(entry.topic, authorized):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = replicas.get(entry.topic, entry.index)
        entry.partition = partition
        return partition

    def _respond(self, results: list[tuple[SessionKey, SessionPartition, PartitionData]]) -> FetchResponse:
        version = self.ctx.api_version
        uses_ids = version >= _TOPIC_IDS_FROM
        session = self.session
        if session is not None and session.epoch != self.session_epoch:
            # The client has asked again meanwhile, and with other offsets perhaps: one answer is enough.
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.id)
        topics: dict[bytes | str, FetchableTopicResponse] = {}
        endpoints: dict[int, NodeEndpoint] = {}
        moved: list[SessionKey] = []
        for key, entry, data in results:
            if session is not None:
                has_records = bool(data.records)
                tell = entry.worth_telling(
                    data.error_code,
                    has_records or data.preferred_read_replica >= 0,
                    data.high_watermark,
                    data.log_start_offset,
                    diverges=data.diverging_epoch is not _NO_DIVERGENCE,
                )
                if has_records:
                    moved.append(key)
                if not tell and not self.full:
                    continue
            if data.error_code and version >= 16 and data.current_leader.leader_id >= 0 and entry.topic:
                _, _, node = leader_hint(self.services.metadata.image, self.ctx.listener_name, entry.topic, entry.index)
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


def _tell_offsets(data: PartitionData, log: PartitionLog) -> None:
    data.high_watermark = log.high_watermark
    data.last_stable_offset = log.last_stable_offset
    data.log_start_offset = log.log_start_offset


def _read_metadata_log(ctx: ControllerContext, request: FetchRequest) -> FetchResponse | asyncio.Future[FetchResponse]:
    """On a controller listener only the metadata log is read; the quorum knows everything else."""
    if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return _refused(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return ctx.services.quorum.handle(request, ctx.api_version, ctx.listener_name)


def _refused(request: FetchRequest, version: int, code: ErrorCode) -> FetchResponse:
    """As Apache Kafka refuses a Fetch as a whole: before topic ids each partition has the error too."""
    topics = request.topics if version < _TOPIC_IDS_FROM else ()
    return FetchResponse(
        error_code=code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(partition_index=each.partition, error_code=code, high_watermark=-1, records=b"")
                    for each in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


HANDLERS = Handlers(handle)
