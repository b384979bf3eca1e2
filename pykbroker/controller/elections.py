"""Leader elections: after a broker starts or stops, on request of an administrator (ElectLeaders), and periodically.

Responsible for choosing the partitions to look at. The change of one partition is in partition_change.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pykbroker.controller.partition_change import ElectionKind, PartitionChange
from pykbroker.controller.result import OK, RecordList, Result, Verdict, failure
from pykbroker.controller.state import ControllerState
from pykbroker.metadata.image import NO_LEADER, PartitionImage, TopicImage
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from pykbroker_wire.primitives import TopLevel

#: The most partitions that a balancing run changes. Another run follows at once.
MAX_ELECTIONS_PER_RUN = 1_000


def partition_change(
    state: ControllerState,
    topic: TopicImage,
    index: int,
    partition: PartitionImage,
    active: Callable[[int], bool] | None = None,
) -> PartitionChange:
    """Return a change with the fields that follow from the state. `active` returns True for brokers that may lead."""
    is_active = state.is_active if active is None else active
    brokers = state.image.brokers

    def acceptable(broker_id: int) -> bool:
        if not is_active(broker_id):
            return False
        directory = partition.directory(broker_id)
        broker = brokers.get(broker_id)
        return broker is not None and (directory is None or broker.has_online_directory(directory))

    return PartitionChange(
        partition=partition,
        topic_id=topic.id,
        index=index,
        acceptable=acceptable,
        metadata_version=state.metadata_version,
        min_isr=state.min_isr(topic.name, len(partition.replicas)),
        default_directory=state.default_directory,
        elr_enabled=state.image.features.elr_enabled,
    )


def leader_and_isr_updates(
    state: ControllerState,
    partitions: Iterable[tuple[TopicImage, int, PartitionImage]],
    *,
    remove: int = NO_LEADER,
    add: int = NO_LEADER,
    unclean_shutdown: int = NO_LEADER,
) -> list[TopLevel]:
    """Return the changes after a broker stops (`remove`), starts (`add`) or starts after an unclean stop
    (`unclean_shutdown`).

    `add` may lead although it is still fenced in the image, because the record that unfences it is in the same batch.
    """
    gone = (remove, unclean_shutdown)

    def active(broker_id: int) -> bool:
        return broker_id not in gone and (broker_id == add or state.is_active(broker_id))

    records: list[TopLevel] = []
    for topic, index, partition in partitions:
        change = partition_change(state, topic, index, partition, active)
        if state.unclean_election_enabled(topic.name) and not state.held.holds(partition):
            change.election = ElectionKind.UNCLEAN
        if unclean_shutdown != NO_LEADER:
            change.unclean_shutdown = (unclean_shutdown,)
        change.isr = [replica for replica in partition.isr if replica not in gone]
        record = change.build()
        if record is not None:
            records.append(record)
    return records


def with_broker_in_isr(state: ControllerState, broker_id: int) -> Iterable[tuple[TopicImage, int, PartitionImage]]:
    return (item for item in state.partitions() if broker_id in item[2].isr)


def with_broker_in_elr(state: ControllerState, broker_id: int) -> Iterable[tuple[TopicImage, int, PartitionImage]]:
    return (item for item in state.partitions() if broker_id in item[2].elr)


def without_leader(state: ControllerState) -> Iterable[tuple[TopicImage, int, PartitionImage]]:
    return (item for item in state.partitions() if item[2].leader == NO_LEADER)


def elect_leaders(state: ControllerState, request: ElectLeadersRequest) -> Result[ElectLeadersResponse]:
    """ElectLeaders. Null topic partitions mean all partitions. Then the answer leaves out partitions that need no
    election."""
    if request.election_type not in (0, 1):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    election = ElectionKind.PREFERRED if request.election_type == 0 else ElectionKind.UNCLEAN
    records = RecordList()
    results: list[ReplicaElectionResult] = []
    if request.topic_partitions is None:
        for topic in state.image.topics.by_name.values():
            partitions: list[PartitionResult] = []
            for index in topic.partitions:
                verdict = _elect(state, topic.name, index, election, records)
                if verdict.code is not ErrorCode.ELECTION_NOT_NEEDED:
                    partitions.append(_partition_result(index, verdict))
            results.append(ReplicaElectionResult(topic=topic.name, partition_result=partitions))
    else:
        for wanted in request.topic_partitions:
            partitions = [
                _partition_result(index, _elect(state, wanted.topic, index, election, records))
                for index in wanted.partitions
            ]
            results.append(ReplicaElectionResult(topic=wanted.topic, partition_result=partitions))
    return Result(ElectLeadersResponse(replica_election_results=results), records)


def _partition_result(index: int, verdict: Verdict) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=verdict.code, error_message=verdict.message)


def _elect(state: ControllerState, name: str, index: int, election: ElectionKind, records: RecordList) -> Verdict:
    topic = state.image.topics.by_name.get(name)
    if topic is None:
        return failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        return failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    settled = (
        partition.leader == partition.preferred_leader
        if election is ElectionKind.PREFERRED
        else partition.leader != NO_LEADER
    )
    if settled:
        return failure(ErrorCode.ELECTION_NOT_NEEDED)
    change = partition_change(state, topic, index, partition)
    change.election = election
    record = change.build()
    if record is None:
        return failure(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            if election is ElectionKind.PREFERRED
            else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        )
    records.check_room(1)
    records.append(record)
    return OK


def balance_leaders(state: ControllerState) -> Result[bool]:
    """Give leadership back to preferred replicas. The response is True if there may be more to do."""
    records: list[TopLevel] = []
    for topic, index, partition in state.partitions():
        if len(records) >= MAX_ELECTIONS_PER_RUN:
            break
        if partition.leader != partition.preferred_leader:
            change = partition_change(state, topic, index, partition)
            change.election = ElectionKind.PREFERRED
            record = change.build()
            if record is not None:
                records.append(record)
    return Result(len(records) >= MAX_ELECTIONS_PER_RUN, records)


def elect_unclean_leaders(state: ControllerState) -> Result[bool]:
    """Elect leaders from outside the ISR for partitions without a leader, where the topic allows it."""
    records = RecordList()
    for topic, index, partition in without_leader(state):
        if len(records) >= MAX_ELECTIONS_PER_RUN:
            break
        if state.unclean_election_enabled(topic.name) and not state.held.holds(partition):
            _elect(state, topic.name, index, ElectionKind.UNCLEAN, records)
    return Result(len(records) >= MAX_ELECTIONS_PER_RUN, list(records))
