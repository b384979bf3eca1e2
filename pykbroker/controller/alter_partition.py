"""Reports of partition leaders and brokers about their replicas: AlterPartition and AssignReplicasToDirs."""

from __future__ import annotations

from collections.abc import Sequence

from pykbroker.controller.elections import leader_and_isr_updates, partition_change
from pykbroker.controller.partition_change import ElectionKind
from pykbroker.controller.result import Result
from pykbroker.controller.state import ControllerState
from pykbroker.metadata.image import RECOVERED, RECOVERING, PartitionImage, TopicImage
from pykbroker.metadata.snapshot import DIRECTORIES_FROM
from pykbroker.metadata.topics_delta import NO_LEADER_CHANGE, merge_partition
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages import alter_partition as ap
from pykbroker_wire.messages import assign_replicas_to_dirs as ar
from pykbroker_wire.primitives import TopLevel

#: a broker, and its epoch as the leader has it, -1 if the request has none
Replica = tuple[int, int]


def alter_partition(
    state: ControllerState, request: ap.AlterPartitionRequest, version: int
) -> Result[ap.AlterPartitionResponse]:
    """Check the leader's new ISR against all changes since the leader's decision, and write it."""
    state.check_broker_epoch(request.broker_id, request.broker_epoch)
    records: list[TopLevel] = []
    topics = []
    for wanted in request.topics:
        topic = state.image.topics.by_id.get(wanted.topic_id)
        partitions = [
            _failed(data.partition_index, ErrorCode.UNKNOWN_TOPIC_ID)
            if topic is None
            else _alter_one(state, request.broker_id, topic, data, version, records)
            for data in wanted.partitions
        ]
        topics.append(ap.ResponseTopicData(topic_id=wanted.topic_id, partitions=partitions))
    return Result(ap.AlterPartitionResponse(topics=topics), records)


def _failed(index: int, code: ErrorCode) -> ap.ResponsePartitionData:
    return ap.ResponsePartitionData(partition_index=index, error_code=code)


def _alter_one(
    state: ControllerState,
    broker_id: int,
    topic: TopicImage,
    data: ap.RequestPartitionData,
    version: int,
    records: list[TopLevel],
) -> ap.ResponsePartitionData:
    index = data.partition_index
    partition = topic.partitions.get(index)
    if partition is None:
        return _failed(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if version >= 3:
        isr = [(broker.broker_id, broker.broker_epoch) for broker in data.new_isr_with_epochs]
    else:
        isr = [(replica, -1) for replica in data.new_isr]
    code = _problem(state, broker_id, partition, data, isr)
    if code is not None:
        return _failed(index, code)
    change = partition_change(state, topic, index, partition)
    if state.unclean_election_enabled(topic.name):
        change.election = ElectionKind.UNCLEAN
    change.isr = [replica for replica, _ in isr]
    change.recovery_state = data.leader_recovery_state
    record = change.build()
    if record is not None:
        records.append(record)
        partition = merge_partition(partition, record)
        if record.leader not in (broker_id, NO_LEADER_CHANGE):
            # The new ISR ended a reassignment, and the end moved the leadership. So the answer is an error, although a
            # record is written.
            return _failed(index, ErrorCode.NEW_LEADER_ELECTED)
    return ap.ResponsePartitionData(
        partition_index=index,
        error_code=ErrorCode.NONE,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def _problem(
    state: ControllerState,
    broker_id: int,
    partition: PartitionImage,
    data: ap.RequestPartitionData,
    isr: Sequence[Replica],
) -> ErrorCode | None:
    if data.leader_epoch > partition.leader_epoch or data.partition_epoch > partition.partition_epoch:
        # The leader has newer metadata than this node, so another node is the controller by now.
        return ErrorCode.NOT_CONTROLLER
    if data.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if data.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    replicas = [replica for replica, _ in isr]
    well_formed = (
        bool(replicas)
        and len(set(replicas)) == len(replicas)
        and set(replicas) <= set(partition.replicas)
        and partition.leader in replicas
        and data.leader_recovery_state in (RECOVERED, RECOVERING)
    )
    if not well_formed:
        return ErrorCode.INVALID_REQUEST
    if data.leader_recovery_state == RECOVERING and (len(replicas) > 1 or partition.leader_recovery_state == RECOVERED):
        return ErrorCode.INVALID_REQUEST
    if any(not _eligible(state, replica, epoch) for replica, epoch in isr):
        return ErrorCode.INELIGIBLE_REPLICA
    return None


def _eligible(state: ControllerState, replica: int, epoch: int) -> bool:
    broker = state.image.brokers.get(replica)
    return (
        broker is not None and not broker.fenced and not broker.in_controlled_shutdown and epoch in (-1, broker.epoch)
    )


def assign_replicas_to_dirs(
    state: ControllerState, request: ar.AssignReplicasToDirsRequest
) -> Result[ar.AssignReplicasToDirsResponse]:
    """Note in which directories a broker keeps its replicas (KIP-858). Replicas in an offline directory are removed
    from the ISRs."""
    if state.metadata_version < DIRECTORIES_FROM:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker = state.check_broker_epoch(request.broker_id, request.broker_epoch)
    records: list[TopLevel] = []
    offline: list[tuple[TopicImage, int, PartitionImage]] = []
    directories = []
    for wanted in request.directories:
        topics = []
        for wanted_topic in wanted.topics:
            topic = state.image.topics.by_id.get(wanted_topic.topic_id)
            partitions = []
            for item in wanted_topic.partitions:
                index = item.partition_index
                partition = None if topic is None else topic.partitions.get(index)
                code = ErrorCode.NONE
                if topic is None:
                    code = ErrorCode.UNKNOWN_TOPIC_ID
                elif partition is None:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif broker.id not in partition.replicas:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                else:
                    change = partition_change(state, topic, index, partition)
                    change.directories = {broker.id: wanted.id}
                    record = change.build()
                    if record is not None:
                        records.append(record)
                    if not broker.has_online_directory(wanted.id):
                        offline.append((topic, index, partition))
                partitions.append(ar.ResponsePartitionData(partition_index=index, error_code=code))
            topics.append(ar.ResponseTopicData(topic_id=wanted_topic.topic_id, partitions=partitions))
        directories.append(ar.ResponseDirectoryData(id=wanted.id, topics=topics))
    records.extend(leader_and_isr_updates(state, offline, remove=broker.id))
    return Result(ar.AssignReplicasToDirsResponse(directories=directories), records)
