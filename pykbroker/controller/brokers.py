"""Brokers and controllers as members of the cluster: registration, heartbeats, fencing, controlled shutdown, and the
blocks of producer ids that brokers are given (KIP-730).

A broker's epoch is the offset at which its registration was appended. A new incarnation of a broker starts fenced, and
its partitions get new leaders and epochs at once, so that no node confuses it with the former incarnation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pykbroker.controller.elections import (
    leader_and_isr_updates,
    with_broker_in_elr,
    with_broker_in_isr,
    without_leader,
)
from pykbroker.controller.heartbeats import BrokerControlState, BrokerSession
from pykbroker.controller.result import RecordList, Result
from pykbroker.controller.state import ControllerState
from pykbroker.metadata.image import DIRECTORY_RESERVED_LAST, BrokerImage
from pykbroker.metadata.snapshot import CONTROLLERS_FROM, CORDONED_FROM, DIRECTORIES_FROM, ELR_FROM
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from pykbroker_wire.messages.broker_registration import BrokerRegistrationRequest
from pykbroker_wire.messages.broker_registration import Listener as BrokerListener
from pykbroker_wire.messages.controller_registration import ControllerRegistrationRequest
from pykbroker_wire.messages.controller_registration import Listener as ControllerListener
from pykbroker_wire.primitives import TopLevel, uuid_to_str
from pykbroker_wire.stored.metadata import (
    BrokerRegistrationChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from pykbroker_wire.stored.metadata.register_broker_record import BrokerEndpoint, BrokerFeature
from pykbroker_wire.stored.metadata.register_controller_record import ControllerEndpoint, ControllerFeature

FENCE = 1
UNFENCE = -1
IN_CONTROLLED_SHUTDOWN = 1
PRODUCER_IDS_IN_BLOCK = 1_000
#: metadata.version 4.4-IV2, the first with UnregisterControllerRecord (KIP-1312)
UNREGISTERED_CONTROLLERS_FROM = 33
_LAST_PRODUCER_ID = 2**63 - 1


class HeartbeatReply(NamedTuple):
    is_caught_up: bool
    is_fenced: bool
    in_controlled_shutdown: bool
    should_shut_down: bool


def register_broker(
    state: ControllerState, request: BrokerRegistrationRequest, now_ms: int, next_offset: int
) -> Result[int]:
    """Register a broker. The response is its epoch. For a new incarnation this is `next_offset`, at which this batch
    will be appended."""
    if request.cluster_id != state.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {state.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    existing = state.image.brokers.get(request.broker_id)
    same_incarnation = existing is not None and existing.incarnation_id == request.incarnation_id
    if (
        existing is not None
        and not same_incarnation
        and state.sessions.is_valid(BrokerSession(existing.id, existing.epoch), now_ms)
    ):
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another broker is registered with id {request.broker_id}, and its session is valid.",
        )
    if request.is_migrating_zk_broker:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "ZooKeeper brokers cannot be registered.")
    _check_hosts(request.listeners)
    version = state.metadata_version
    if version >= DIRECTORIES_FROM:
        _check_directories(state, request)
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        rack=request.rack,
        end_points=[
            BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in request.listeners
        ],
        features=_checked_features(state, request),
        log_dirs=list(request.log_dirs) if version >= DIRECTORIES_FROM else [],
    )
    records: list[TopLevel] = []
    if existing is not None and same_incarnation:
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
        record.broker_epoch = existing.epoch
    else:
        clean = existing is not None and request.previous_broker_epoch == existing.epoch
        # In a state that was put back each replica has what it had, so it stays in sync.
        if existing is None or not (state.is_restored(existing) and existing.fenced):
            records.extend(_previous_incarnation_gone(state, request.broker_id, clean=clean))
        record.fenced = True
        record.broker_epoch = next_offset
    records.append(record)
    return Result(record.broker_epoch, records)


def _previous_incarnation_gone(state: ControllerState, broker_id: int, *, clean: bool) -> list[TopLevel]:
    """Take a broker's former incarnation out of the ISRs. `clean`: True if the broker has sent the epoch of its last
    clean stop, and this is the registered epoch. A broker that was unregistered has no epoch to compare with, so its
    stop was not clean."""
    if state.metadata_version < ELR_FROM or not state.image.features.elr_enabled or clean:
        return leader_and_isr_updates(state, with_broker_in_isr(state, broker_id), remove=broker_id)
    # The broker may have lost unsynced records, so it is removed from the ELR as well (KIP-966).
    return leader_and_isr_updates(
        state, with_broker_in_isr(state, broker_id), unclean_shutdown=broker_id
    ) + leader_and_isr_updates(state, with_broker_in_elr(state, broker_id), unclean_shutdown=broker_id)


def _check_hosts(listeners: Iterable[BrokerListener | ControllerListener]) -> None:
    """Refuse a listener without a host, because clients would get the empty host. Apache Kafka does not write such a
    listener either, and answers UNKNOWN_SERVER_ERROR."""
    hostless = [listener.name for listener in listeners if not listener.host.strip()]
    if hostless:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"No host in the listeners {', '.join(hostless)}")


def _check_directories(state: ControllerState, request: BrokerRegistrationRequest) -> None:
    directories = list(request.log_dirs)
    problem = None
    if not directories:
        problem = "No directories specified in request"
    elif any(directory <= DIRECTORY_RESERVED_LAST for directory in directories):
        problem = "Reserved directory ID in request"
    elif len(set(directories)) != len(directories):
        problem = "Duplicate directory ID in request"
    else:
        for broker in state.image.brokers.values():
            taken = set(broker.directories).intersection(directories)
            if broker.id != request.broker_id and taken:
                problem = f"Broker {broker.id} is already registered with directory {uuid_to_str(min(taken))}"
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, problem)


def _checked_features(state: ControllerState, request: BrokerRegistrationRequest) -> list[BrokerFeature]:
    """Check the broker's ranges: each must contain the finalised level. A broker supports only level 0 of a feature
    that it does not name."""
    finalized = state.image.features.all()
    ranges = {f.name: (f.min_supported_version, f.max_supported_version) for f in request.features}
    # As in Apache Kafka, the features that the broker names are checked first, and it must name metadata.version.
    for name in dict.fromkeys((*ranges, "metadata.version", *finalized)):
        if name == "metadata.version" and name not in ranges:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Request features do not contain 'metadata.version'")
        low, high = ranges.get(name, (0, 0))
        level = finalized.get(name, 0)
        if not low <= level <= high:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. "
                f"The broker wants a version between {low} and {high}, inclusive.",
            )
    return [
        BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in ranges.items()
    ]


def register_controller(state: ControllerState, request: ControllerRegistrationRequest) -> Result[None]:
    if state.metadata_version < CONTROLLERS_FROM:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, "The metadata.version is too old to support controller registrations."
        )
    _check_hosts(request.listeners)
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=False,
        end_points=[
            ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in request.listeners
        ],
        features=[
            ControllerFeature(
                name=f.name,
                min_supported_version=f.min_supported_version,
                max_supported_version=f.max_supported_version,
            )
            for f in request.features
        ],
    )
    return Result(None, [record])


def heartbeat(
    state: ControllerState, request: BrokerHeartbeatRequest, now_ms: int, next_offset: int
) -> Result[HeartbeatReply]:
    broker_id = request.broker_id
    broker = state.check_broker_epoch(broker_id, request.broker_epoch)
    session = BrokerSession(broker_id, broker.epoch)
    # A broker that was permitted to shut down does not serve again in this epoch. A heartbeat that it sent before may
    # arrive only now, over an older connection. It must not unfence the broker, nor give it a session, because the
    # session would keep the next incarnation out.
    wants_shutdown = request.want_shut_down or state.sessions.was_let_go(session)
    state.sessions.touch(session, now_ms)
    registered_at = state.registration_offsets.get(broker_id, -1)
    known = state.heartbeats.get(broker_id)
    if known is None:
        state.heartbeats.register(broker_id, broker.fenced)
        known = state.heartbeats.get(broker_id)
        assert known is not None
    caught_up = request.current_metadata_offset >= registered_at
    before = known.state
    after = state.heartbeats.next_state(
        broker_id,
        want_fence=request.want_fence,
        want_shutdown=wants_shutdown,
        caught_up=caught_up,
        has_leaderships=wants_shutdown and state.has_leaderships(broker_id),
    )
    records: list[TopLevel] = []
    if after is not before:
        match after:
            case BrokerControlState.FENCED | BrokerControlState.SHUTDOWN_NOW:
                records.extend(fence_records(state, broker))
            case BrokerControlState.UNFENCED:
                state.held.release(broker_id)
                records.extend(_unfence_records(state, broker))
            case BrokerControlState.CONTROLLED_SHUTDOWN:
                records.extend(_controlled_shutdown_records(state, broker))
    if state.metadata_version >= DIRECTORIES_FROM:
        records.extend(_directory_records(state, broker, request))
    in_shutdown = after is BrokerControlState.CONTROLLED_SHUTDOWN

    def appended() -> None:
        state.heartbeats.touch(broker_id, after.is_fenced, request.current_metadata_offset)
        if after is BrokerControlState.SHUTDOWN_NOW:
            # The next start may register at once. In Apache Kafka the session runs out by itself, and a broker that is
            # back quickly is refused for up to 9 s.
            state.sessions.let_go(session)
        if in_shutdown:
            # As in Kafka, this is the end of the batch that moves the last leadership, or the end of the log without
            # such a batch.
            state.heartbeats.begin_shutdown(broker_id, max(next_offset + len(records) - 1, 0))

    return Result(
        HeartbeatReply(caught_up, after.is_fenced, in_shutdown, after is BrokerControlState.SHUTDOWN_NOW),
        records,
        appended,
    )


def fence_records(state: ControllerState, broker: BrokerImage) -> list[TopLevel]:
    records = leader_and_isr_updates(state, with_broker_in_isr(state, broker.id), remove=broker.id)
    records.append(BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE))
    return records


def _unfence_records(state: ControllerState, broker: BrokerImage) -> list[TopLevel]:
    records: list[TopLevel] = [
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=UNFENCE)
    ]
    records.extend(leader_and_isr_updates(state, without_leader(state), add=broker.id))
    return records


def _controlled_shutdown_records(state: ControllerState, broker: BrokerImage) -> list[TopLevel]:
    records: list[TopLevel] = []
    if not broker.in_controlled_shutdown:
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN
            )
        )
    records.extend(leader_and_isr_updates(state, with_broker_in_isr(state, broker.id), remove=broker.id))
    return records


def _directory_records(state: ControllerState, broker: BrokerImage, request: BrokerHeartbeatRequest) -> list[TopLevel]:
    """Take replicas in directories that went offline out of the ISRs (KIP-858)."""
    offline = set(request.offline_log_dirs)
    lost = [directory for directory in broker.directories if directory in offline]
    records: list[TopLevel] = []
    if lost:
        for directory in lost:
            affected = (item for item in state.partitions() if item[2].directory(broker.id) == directory)
            records.extend(leader_and_isr_updates(state, affected, remove=broker.id))
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.id,
                broker_epoch=broker.epoch,
                log_dirs=[directory for directory in broker.directories if directory not in offline],
            )
        )
    cordoned = request.cordoned_log_dirs
    if cordoned is not None and state.metadata_version >= CORDONED_FROM:
        wanted = tuple(sorted(cordoned))
        if wanted != broker.cordoned_directories:
            records.append(
                BrokerRegistrationChangeRecord(
                    broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=list(wanted)
                )
            )
    return records


def stale_broker(state: ControllerState, now_ms: int) -> BrokerImage | None:
    """Return the broker to fence next, whose session has been over for longest. Sessions of brokers that are fenced,
    gone or replaced by another incarnation end here without a record."""
    while (session := state.sessions.expired(now_ms)) is not None:
        broker = state.image.brokers.get(session.broker_id)
        if broker is not None and broker.epoch == session.broker_epoch and not broker.fenced:
            return broker
        state.sessions.end(session)
    return None


def fence_stale_broker(state: ControllerState, now_ms: int) -> Result[int | None]:
    """Fence the broker that has been silent longest. Brokers are fenced one at a time, so that the next decision sees
    the outcome."""
    broker = stale_broker(state, now_ms)
    if broker is None:
        return Result(None)
    return Result(broker.id, fence_records(state, broker))


def fence_gone_broker(state: ControllerState, broker_id: int, broker_epoch: int, now_ms: int) -> Result[None]:
    """Fence a broker whose process is gone. Unclean elections of its partitions wait for the broker until its session
    would have been over. Raises KafkaError if the broker has registered anew, or is in controlled shutdown."""
    broker = state.check_broker_epoch(broker_id, broker_epoch)
    known = state.heartbeats.get(broker_id)
    if broker.in_controlled_shutdown or (known is not None and known.shutting_down):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {broker_id} is in controlled shutdown")
    if broker.fenced:
        return Result(None)
    over_at_ms = state.sessions.over_at_ms(BrokerSession(broker_id, broker_epoch))
    state.held.hold(broker_id, now_ms if over_at_ms is None else over_at_ms)
    return Result(None, fence_records(state, broker))


def elect_held_leaders(state: ControllerState, broker_id: int) -> Result[None]:
    """Carry out the elections that waited for a broker since its early fence. Call it when its session would be
    over."""
    waiting = [item for item in without_leader(state) if state.held.holds(item[2])]
    state.held.release(broker_id)
    return Result(None, leader_and_isr_updates(state, waiting))


def unregister_broker(state: ControllerState, broker_id: int) -> Result[None]:
    broker = state.image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
    records = RecordList(leader_and_isr_updates(state, with_broker_in_isr(state, broker_id), remove=broker_id))
    records.extend(leader_and_isr_updates(state, with_broker_in_elr(state, broker_id), remove=broker_id))
    records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch))
    return Result(None, records)


def unregister_controller(state: ControllerState, controller_id: int) -> Result[None]:
    if controller_id == state.node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active.")
    if state.metadata_version < UNREGISTERED_CONTROLLERS_FROM:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, "The metadata.version is too old to support controller unregistration."
        )
    if controller_id not in state.image.controllers:
        raise KafkaError(
            ErrorCode.CONTROLLER_ID_NOT_REGISTERED, f"Controller ID {controller_id} is not currently registered."
        )
    return Result(None, [UnregisterControllerRecord(controller_id=controller_id)])


class ProducerIdBlock(NamedTuple):
    first: int
    size: int


def allocate_producer_ids(state: ControllerState, broker_id: int, broker_epoch: int) -> Result[ProducerIdBlock]:
    state.check_broker_epoch(broker_id, broker_epoch)
    first = max(state.image.producer_ids_next, 0)
    if first > _LAST_PRODUCER_ID - (PRODUCER_IDS_IN_BLOCK - 1):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids are used up.")
    following = first + PRODUCER_IDS_IN_BLOCK
    record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=following)
    return Result(ProducerIdBlock(first, PRODUCER_IDS_IN_BLOCK), [record])
