"""Topics and their partitions: CreateTopics, DeleteTopics, CreatePartitions.

The functions are pure: they take the state and a request, and return records and verdicts. api/ handles authorization
and duplicates in a request before. Records of one topic are TopicRecord, ConfigRecords, PartitionRecords, in this
order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from pykbroker.controller.configs import Alteration, AlterOperation, effective_topic_configs, incremental_records
from pykbroker.controller.eligible import clear_records
from pykbroker.controller.placement import place
from pykbroker.controller.result import OK, RecordList, Result, TooManyRecords, Verdict, failure, verdict_of
from pykbroker.controller.state import ControllerState
from pykbroker.metadata.image import ConfigResource
from pykbroker.metadata.snapshot import DIRECTORIES_FROM
from pykbroker.metadata.topic_names import INTERNAL_TOPICS, topic_name_problem
from pykbroker.plugins import NewTopic
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.create_partitions import CreatePartitionsTopic, CreatePartitionsTopicResult
from pykbroker_wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pykbroker_wire.primitives import TopLevel, random_uuid
from pykbroker_wire.stored.metadata import PartitionRecord, RemoveTopicRecord, TopicRecord

#: The most partitions that one request may create (KAFKA-17870).
MAX_PARTITIONS_PER_REQUEST = 10_000


def create_topics(
    state: ControllerState, request: CreateTopicsRequest, describable: Collection[str]
) -> Result[CreateTopicsResponse]:
    """Create topics. `describable` has the topics whose configuration may be in the answer."""
    _check_total(state, request.topics)
    records = RecordList()
    results = []
    told: _Told = {}
    for topic in request.topics:
        try:
            result = _create_topic(state, topic, records, told if topic.name in describable else None)
        except TooManyRecords:
            raise
        except KafkaError as error:
            result = verdict_of(error)
        if isinstance(result, Verdict):
            result = CreatableTopicResult(name=topic.name, error_code=result.code, error_message=result.message)
        results.append(result)
    return Result(CreateTopicsResponse(topics=results), [] if request.validate_only else records)


#: Overrides -> the configuration in the answer. Most topics of a request have the same overrides.
_Told = dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]]


def _check_total(state: ControllerState, topics: Iterable[CreatableTopic]) -> None:
    total = 0
    for topic in topics:
        if topic.assignments:
            total += len(topic.assignments)
        elif topic.num_partitions == -1:
            total += state.config.int("num.partitions")
        else:
            total += max(0, topic.num_partitions)
        if total > MAX_PARTITIONS_PER_REQUEST:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                "Excessively large number of partitions per request: "
                f"at most {MAX_PARTITIONS_PER_REQUEST} are allowed.",
            )


def _check_name(state: ControllerState, name: str) -> None:
    if name in state.image.topics.by_name:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    colliding = state.collisions.of(name)
    if colliding:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {min(colliding)}"
        )
    problem = topic_name_problem(name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def _create_topic(
    state: ControllerState, topic: CreatableTopic, records: RecordList, told: _Told | None
) -> CreatableTopicResult | Verdict:
    _check_name(state, topic.name)
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        return failure(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    overrides = {config.name: config.value for config in topic.configs if config.value is not None}
    config_records: list[TopLevel] = []
    if overrides:
        found = incremental_records(
            state,
            (ConfigResource.TOPIC, topic.name),
            [Alteration(key, AlterOperation.SET, value) for key, value in overrides.items()],
            new_resource=True,
        )
        if isinstance(found, Verdict):
            return found
        config_records.extend(found)
        config_records.extend(clear_records(state, found))
    assignments = _manual(state, topic) if topic.assignments else _automatic(state, topic)
    state.policies.check_new_topic(_as_new(topic, overrides, assignments))
    records.check_room(1 + len(config_records) + len(assignments))
    topic_id = random_uuid(state.random)
    records.append(TopicRecord(name=topic.name, topic_id=topic_id))
    records.extend(config_records)
    records.extend(_partition_records(state, topic_id, 0, assignments))
    result = CreatableTopicResult(name=topic.name, topic_id=topic_id, error_code=ErrorCode.NONE, error_message=None)
    if told is None:
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return result
    result.num_partitions = len(assignments)
    result.replication_factor = len(assignments[0][0])
    key = tuple(overrides.items())
    if key not in told:
        told[key] = [
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=False,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in effective_topic_configs(state, overrides)
        ]
    result.configs = told[key]
    return result


def _as_new(topic: CreatableTopic, overrides: Mapping[str, str], assignments: Sequence[_Assignment]) -> NewTopic:
    """Return a new topic as it is passed to a policy, with the present defaults."""
    if topic.assignments:
        by_hand = {index: tuple(replicas) for index, (replicas, _) in enumerate(assignments)}
        return NewTopic(topic.name, None, None, by_hand, overrides)
    return NewTopic(topic.name, len(assignments), len(assignments[0][0]), None, overrides)


#: all replicas, and the replicas in sync
_Assignment = tuple[list[int], list[int]]


def _manual(state: ControllerState, topic: CreatableTopic) -> list[_Assignment]:
    if topic.replication_factor != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if topic.num_partitions != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    by_index: dict[int, _Assignment] = {}
    replication_factor: int | None = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in by_index:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        check_assignment(state, assignment.broker_ids, replication_factor)
        replication_factor = len(assignment.broker_ids)
        by_index[index] = (list(assignment.broker_ids), _in_sync(state, assignment.broker_ids, index))
    if set(by_index) != set(range(len(by_index))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return [by_index[index] for index in range(len(by_index))]


def check_assignment(
    state: ControllerState, replicas: Sequence[int], replication_factor: int | None = None, *, kept: Sequence[int] = ()
) -> None:
    """Refuse impossible replicas that an administrator named. `replication_factor` is the required number of replicas.
    `kept`: brokers that have a replica already, and keep it even if all their log directories are cordoned."""
    problem = None
    brokers = state.image.brokers
    unknown = min((broker for broker in replicas if broker not in brokers), default=None)
    cordoned = (broker for broker in replicas if broker in brokers and brokers[broker].is_cordoned)
    closed = min((broker for broker in cordoned if broker not in kept), default=None)
    if not replicas:
        problem = "an empty replica list"
    elif unknown is not None:
        problem = f"broker {unknown}, but no such broker is registered"
    elif closed is not None:
        problem = f"broker {closed}, but all its log directories are cordoned"
    elif len(set(replicas)) != len(replicas):
        problem = f"the broker {Counter(replicas).most_common(1)[0][0]} more than once"
    elif replication_factor is not None and len(replicas) != replication_factor:
        problem = (
            f"a partition with {len(replicas)} replica(s), but this is not consistent with previous partitions, "
            f"which have {replication_factor} replica(s)"
        )
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {problem}.")


def _in_sync(state: ControllerState, replicas: Sequence[int], index: int) -> list[int]:
    isr = [broker for broker in replicas if state.is_active(broker)]
    if not isr:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            f"controlled shutdown.",
        )
    return isr


def _automatic(state: ControllerState, topic: CreatableTopic) -> list[_Assignment]:
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    partitions = state.config.int("num.partitions") if topic.num_partitions == -1 else topic.num_partitions
    factor = topic.replication_factor
    if factor == -1:
        factor = state.config.int("default.replication.factor")
    try:
        return _placed(state, partitions, factor)
    except KafkaError as error:
        if error.code is not ErrorCode.INVALID_REPLICATION_FACTOR:
            raise
        raise KafkaError(error.code, f"Unable to replicate the partition {factor} time(s): {error.message}") from None


def _placed(state: ControllerState, partitions: int, replication_factor: int) -> list[_Assignment]:
    active = {broker_id for broker_id in state.image.brokers if state.is_active(broker_id)}
    assignments: list[_Assignment] = []
    for replicas in place(state.usable_brokers(), partitions, replication_factor, state.random):
        isr = [broker for broker in replicas if broker in active]
        if not isr:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "All brokers are currently fenced or in controlled shutdown.",
            )
        assignments.append((replicas, isr))
    return assignments


def _partition_records(
    state: ControllerState, topic_id: bytes, first: int, assignments: Iterable[_Assignment]
) -> Iterable[PartitionRecord]:
    with_directories = state.metadata_version >= DIRECTORIES_FROM
    directories: dict[int, bytes] = {broker: state.default_directory(broker) for broker in state.image.brokers}
    for index, (replicas, isr) in enumerate(assignments, first):
        yield PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=replicas,
            isr=isr,
            leader=isr[0],
            leader_recovery_state=0,
            leader_epoch=state.first_leader_epoch,
            partition_epoch=0,
            directories=[directories[replica] for replica in replicas] if with_directories else [],
        )


def delete_topics(state: ControllerState, ids: Iterable[bytes]) -> Result[dict[bytes, Verdict]]:
    records = RecordList()
    verdicts: dict[bytes, Verdict] = {}
    for topic_id in ids:
        if topic_id in state.image.topics.by_id:
            records.check_room(1)
            records.append(RemoveTopicRecord(topic_id=topic_id))
            verdicts[topic_id] = OK
        else:
            verdicts[topic_id] = failure(ErrorCode.UNKNOWN_TOPIC_ID)
    return Result(verdicts, records)


def create_partitions(
    state: ControllerState, topics: Iterable[CreatePartitionsTopic], validate_only: bool
) -> Result[list[CreatePartitionsTopicResult]]:
    records = RecordList()
    results = []
    for topic in topics:
        try:
            _add_partitions(state, topic, records)
            verdict = OK
        except KafkaError as error:
            verdict = verdict_of(error)
        results.append(
            CreatePartitionsTopicResult(name=topic.name, error_code=verdict.code, error_message=verdict.message)
        )
    return Result(results, [] if validate_only else records)


def _add_partitions(state: ControllerState, wanted: CreatePartitionsTopic, records: RecordList) -> None:
    topic = state.image.topics.by_name.get(wanted.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = len(topic.partitions)
    if wanted.name in INTERNAL_TOPICS and wanted.count > present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} keeps its {present} partition(s): the number decides which partition has the "
            "records of a group or transactional id, and with another number they would not be found.",
        )
    if wanted.count == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if wanted.count < present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {present} partition(s); {wanted.count} would not be an increase.",
        )
    additional = wanted.count - present
    factor = len(next(iter(topic.partitions.values())).replicas)
    if wanted.assignments is None:
        records.check_room(additional)
        assignments = _placed(state, additional, factor)
    else:
        if len(wanted.assignments) != additional:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), but only {len(wanted.assignments)} "
                f"assignment(s) were specified.",
            )
        assignments = []
        for index, assignment in enumerate(wanted.assignments, present):
            check_assignment(state, assignment.broker_ids, factor)
            assignments.append((list(assignment.broker_ids), _in_sync(state, assignment.broker_ids, index)))
    records.check_room(len(assignments))
    records.extend(_partition_records(state, topic.id, present, assignments))


def topic_ids(state: ControllerState, names: Iterable[str]) -> Mapping[str, bytes]:
    """Return the ids of the topics that exist."""
    by_name = state.image.topics.by_name
    return {name: by_name[name].id for name in names if name in by_name}
