"""Registration, heartbeats, fencing and their effect on partitions; AlterPartition; elections; features; ids."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.controller.alter_partition import alter_partition, assign_replicas_to_dirs
from pykbroker.controller.brokers import (
    allocate_producer_ids,
    elect_held_leaders,
    fence_gone_broker,
    fence_stale_broker,
    heartbeat,
    register_broker,
    register_controller,
    unregister_broker,
    unregister_controller,
)
from pykbroker.controller.elections import balance_leaders, elect_leaders, elect_unclean_leaders
from pykbroker.controller.features import Update, update_features
from pykbroker.controller.heartbeats import BrokerControlState, BrokerSession
from pykbroker.controller.topics import create_topics
from pykbroker.metadata.features import REGISTERED
from pykbroker.metadata.image import DIRECTORY_LOST, PartitionImage, VersionRange
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages import alter_partition as ap
from pykbroker_wire.messages import assign_replicas_to_dirs as ar
from pykbroker_wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from pykbroker_wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from pykbroker_wire.messages.controller_registration import ControllerRegistrationRequest
from pykbroker_wire.messages.controller_registration import Listener as ControllerListener
from pykbroker_wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pykbroker_wire.stored.metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    RegisterControllerRecord,
)
from testkit.acting import acts
from tests.controller.world import CLUSTER_ID, Pure, directory_of, node_config

SESSION_MS = 9_000


def registration(broker_id: int, **changes: Any) -> BrokerRegistrationRequest:
    fields: dict[str, Any] = {
        "broker_id": broker_id,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": bytes((9, broker_id)) * 8,
        "listeners": [Listener(name="PLAINTEXT", host="localhost", port=9092)],
        "features": [Feature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
        "log_dirs": [directory_of(broker_id)],
        "rack": None,
    }
    return BrokerRegistrationRequest(**(fields | changes))


def register(pure: Pure, broker_id: int, **changes: Any) -> int:
    request = registration(broker_id, **changes)
    epoch: int = pure.apply(register_broker(pure.state, request, pure.now_ms, pure.offset))
    return epoch


@pytest.mark.parametrize("host", ["", " "])
def test_registration_with_a_listener_without_a_host_is_refused(host: str) -> None:
    pure = Pure()
    listeners = [Listener(name="PLAINTEXT", host="h", port=9092), Listener(name="OTHER", host=host, port=9093)]
    with pytest.raises(KafkaError, match="No host in the listeners OTHER") as refused:
        register(pure, 1, listeners=listeners)
    assert refused.value.code is ErrorCode.INVALID_REGISTRATION
    controller = ControllerRegistrationRequest(
        controller_id=1, listeners=[ControllerListener(name="CONTROLLER", host=host, port=9093)]
    )
    with pytest.raises(KafkaError, match="No host in the listeners CONTROLLER") as refused:
        register_controller(pure.state, controller)
    assert refused.value.code is ErrorCode.INVALID_REGISTRATION


def beat(pure: Pure, broker_id: int, **changes: Any) -> Any:
    epoch = pure.state.image.brokers[broker_id].epoch
    fields: dict[str, Any] = {"broker_id": broker_id, "broker_epoch": epoch, "current_metadata_offset": pure.offset}
    request = BrokerHeartbeatRequest(**(fields | changes))
    return pure.apply(heartbeat(pure.state, request, pure.now_ms, pure.offset))


def make(pure: Pure, *replicas: list[int], name: str = "t") -> None:
    assignments = [CreatableReplicaAssignment(partition_index=i, broker_ids=r) for i, r in enumerate(replicas)]
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
    response = pure.apply(create_topics(pure.state, CreateTopicsRequest(topics=[topic]), {name}))
    assert response.topics[0].error_code == 0


def partition(pure: Pure, index: int = 0, name: str = "t") -> PartitionImage:
    return pure.state.image.topics.by_name[name].partitions[index]


# Registration.


def test_a_broker_starts_fenced_and_is_unfenced_when_caught_up() -> None:
    pure = Pure(brokers=0)
    at = pure.offset
    assert register(pure, 1) == at
    assert pure.state.image.brokers[1].fenced
    behind = beat(pure, 1, current_metadata_offset=at - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    waiting = beat(pure, 1, want_fence=True)
    assert (waiting.is_caught_up, waiting.is_fenced) == (True, True)
    assert not beat(pure, 1).is_fenced
    assert not pure.state.image.brokers[1].fenced


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [DIRECTORY_LOST]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [b"z" * 16, b"z" * 16]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [directory_of(0)]}, ErrorCode.INVALID_REGISTRATION),
        ({"features": []}, ErrorCode.INVALID_REGISTRATION),
        (
            {"features": [Feature(name="group.version", min_supported_version=9, max_supported_version=9)]},
            ErrorCode.UNSUPPORTED_VERSION,
        ),
        (
            {"features": [Feature(name="metadata.version", min_supported_version=7, max_supported_version=29)]},
            ErrorCode.UNSUPPORTED_VERSION,
        ),
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ],
)
def test_registrations_that_are_refused(changes: dict[str, Any], code: ErrorCode) -> None:
    pure = Pure(brokers=1)
    with pytest.raises(KafkaError) as caught:
        register(pure, 5, **changes)
    assert caught.value.code is code


def test_a_live_broker_keeps_its_id_until_its_session_is_over() -> None:
    pure = Pure(brokers=2)
    beat(pure, 1)
    with pytest.raises(KafkaError) as caught:
        register(pure, 1)
    assert caught.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    pure.now_ms += SESSION_MS + 1
    register(pure, 1)


def test_a_second_process_cannot_take_the_id_of_a_broker_that_starts() -> None:
    """The broker is fenced while it recovers its logs, and its heartbeats still count."""
    pure = Pure(brokers=0)
    register(pure, 1)
    for _ in range(3):
        pure.now_ms += SESSION_MS
        beat(pure, 1, want_fence=True)
        assert fence_stale_broker(pure.state, pure.now_ms).records == []
        with pytest.raises(KafkaError) as caught:
            register(pure, 1, incarnation_id=b"second process  ")
        assert caught.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    pure.now_ms += SESSION_MS + 1
    assert fence_stale_broker(pure.state, pure.now_ms).records == []
    assert pure.state.sessions.next_deadline_ms() is None
    register(pure, 1, incarnation_id=b"second process  ")
    # As in Apache Kafka there is no session before the first heartbeat.
    register(pure, 1, incarnation_id=b"third process   ")


def test_a_new_controller_gives_a_session_to_the_brokers_that_serve() -> None:
    pure = Pure(brokers=3)
    beat(pure, 1, want_fence=True)
    pure.state.restart_sessions(pure.now_ms)
    with pytest.raises(KafkaError):
        register(pure, 0)
    register(pure, 1)
    pure.now_ms += SESSION_MS + 1
    assert [pure.apply(fence_stale_broker(pure.state, pure.now_ms)) for _ in range(3)] == [0, 2, None]


def test_a_broker_that_was_let_go_is_back_at_once() -> None:
    """Its shutdown was granted, so the next start need not wait until the session runs out."""
    pure = Pure(brokers=2)
    beat(pure, 1)
    assert beat(pure, 1, want_shut_down=True).should_shut_down
    register(pure, 1, incarnation_id=b"after restart   ")
    # In the middle of its shutdown the process is alive.
    make(pure, [0])
    beat(pure, 0)
    assert not beat(pure, 0, want_shut_down=True).should_shut_down
    with pytest.raises(KafkaError) as caught:
        register(pure, 0, incarnation_id=b"second process  ")
    assert caught.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


@pytest.mark.parametrize("want_shut_down", [True, False])
def test_a_heartbeat_after_the_permission_to_shut_down_gives_no_session(want_shut_down: bool) -> None:
    """The broker repeats a request whose answer was lost, or an older heartbeat arrives late, over another
    connection."""
    pure = Pure(brokers=2)
    beat(pure, 1)
    assert beat(pure, 1, want_shut_down=True).should_shut_down
    late = beat(pure, 1, want_shut_down=want_shut_down)
    assert (late.is_fenced, late.should_shut_down) == (True, True)
    assert pure.state.image.brokers[1].fenced
    former = pure.state.image.brokers[1].epoch
    register(pure, 1, incarnation_id=b"after restart   ")
    with pytest.raises(KafkaError) as caught:
        beat(pure, 1, broker_epoch=former, want_shut_down=want_shut_down)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    # The permission was for the former incarnation.
    assert not beat(pure, 1).is_fenced
    with pytest.raises(KafkaError) as caught:
        register(pure, 1, incarnation_id=b"second process  ")
    assert caught.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_controller_that_comes_back_has_given_no_permission_to_shut_down() -> None:
    """In the meantime another controller may have unfenced the broker, after its permission was not committed."""
    pure = Pure(brokers=2)
    assert beat(pure, 1, want_shut_down=True).should_shut_down
    pure.state.stop_sessions()
    pure.state.restart_sessions(pure.now_ms)
    assert not beat(pure, 1).should_shut_down


def test_the_same_incarnation_keeps_its_epoch() -> None:
    pure = Pure(brokers=0)
    epoch = register(pure, 1)
    beat(pure, 1)
    pure.offset += 5
    assert register(pure, 1) == epoch
    assert not pure.state.image.brokers[1].fenced


def test_a_new_incarnation_loses_its_leaderships_at_once() -> None:
    pure = Pure(brokers=2)
    make(pure, [1, 0])
    make(pure, [1], name="alone")
    pure.now_ms += SESSION_MS + 1
    beat(pure, 0)
    at = pure.offset
    assert register(pure, 1) == at
    assert (partition(pure).leader, partition(pure).isr, partition(pure).leader_epoch) == (0, (0,), 1)
    alone = partition(pure, name="alone")
    assert (alone.leader, alone.isr, alone.leader_epoch) == (-1, (1,), 1)
    # A broker is caught up when it has read the registration, which comes after the changes.
    assert pure.state.registration_offsets[1] > at
    assert not beat(pure, 1).is_fenced
    alone = partition(pure, name="alone")
    assert (alone.leader, alone.leader_epoch) == (1, 2)


# Heartbeats and fencing.


def test_silent_brokers_are_fenced_one_at_a_time() -> None:
    pure = Pure(brokers=3)
    make(pure, [0, 1, 2])
    for broker_id in range(3):
        beat(pure, broker_id)
    pure.now_ms += SESSION_MS
    assert fence_stale_broker(pure.state, pure.now_ms).response is None
    beat(pure, 2)
    pure.now_ms += 1
    assert pure.apply(fence_stale_broker(pure.state, pure.now_ms)) == 0
    assert (partition(pure).leader, partition(pure).isr) == (1, (1, 2))
    assert pure.apply(fence_stale_broker(pure.state, pure.now_ms)) == 1
    assert (partition(pure).leader, partition(pure).isr) == (2, (2,))
    assert pure.apply(fence_stale_broker(pure.state, pure.now_ms)) is None
    assert pure.state.sessions.next_deadline_ms() == pure.now_ms + SESSION_MS


def fence_early(pure: Pure, broker_id: int) -> None:
    epoch = pure.state.image.brokers[broker_id].epoch
    pure.apply(fence_gone_broker(pure.state, broker_id, epoch, pure.now_ms))
    # As in ActiveController.fence_early.
    pure.state.sessions.end(BrokerSession(broker_id, epoch))


def test_a_broker_whose_process_is_gone_is_fenced_at_once_and_may_come_back_at_once() -> None:
    pure = Pure(brokers=3)
    make(pure, [0, 1, 2])
    beat(pure, 0)
    fence_early(pure, 0)
    assert (partition(pure).leader, partition(pure).isr) == (1, (1, 2))
    assert pure.state.image.brokers[0].fenced
    register(pure, 0)


def test_an_early_fence_of_an_incarnation_that_is_over_is_refused() -> None:
    pure = Pure(brokers=3)
    with pytest.raises(KafkaError) as caught:
        fence_gone_broker(pure.state, 0, 99, pure.now_ms)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_controlled_shutdown_is_not_fenced_early() -> None:
    pure = Pure(brokers=3)
    make(pure, [0, 1, 2])
    for broker_id in range(3):
        beat(pure, broker_id)
    beat(pure, 0, want_shut_down=True)
    with pytest.raises(KafkaError):
        fence_gone_broker(pure.state, 0, pure.state.image.brokers[0].epoch, pure.now_ms)


ELR = "eligible.leader.replicas.version"
UNCLEAN = ConfigRecord(resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true")


def test_what_needs_an_unclean_election_waits_until_the_session_would_have_been_over() -> None:
    pure = Pure(brokers=3)
    make(pure, [0, 1, 2])
    pure.replay([UNCLEAN])
    for broker_id in range(3):
        beat(pure, broker_id)
    for broker_id in (1, 2):
        beat(pure, broker_id, want_fence=True)
    beat(pure, 1)
    assert (partition(pure).leader, partition(pure).isr) == (0, (0,))
    fence_early(pure, 0)
    assert (partition(pure).leader, partition(pure).isr) == (-1, (0,))
    # No other event in the meantime elects a leader.
    beat(pure, 2)
    assert elect_unclean_leaders(pure.state).records == []
    assert balance_leaders(pure.state).records == []
    assert pure.state.held.over(pure.now_ms + SESSION_MS) == []
    assert pure.state.held.over(pure.now_ms + SESSION_MS + 1) == [0]
    pure.apply(elect_held_leaders(pure.state, 0))
    assert (partition(pure).leader, partition(pure).isr) == (1, (1,))
    assert pure.state.held.next_deadline_ms() is None


def test_an_administrator_need_not_wait() -> None:
    pure = Pure(brokers=2)
    make(pure, [0, 1])
    beat(pure, 0)
    beat(pure, 1, want_fence=True)
    fence_early(pure, 0)
    beat(pure, 1)
    assert partition(pure).leader == -1
    assert elect(pure, 1).replica_election_results[0].partition_result[0].error_code == 0
    assert partition(pure).leader == 1


def test_the_last_known_leader_is_the_broker_that_was_fenced_early() -> None:
    """KIP-966's last resort: no other replica could lead."""
    pure = Pure(brokers=2)
    pure.replay([FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)])
    make(pure, [0, 1])
    beat(pure, 0)
    beat(pure, 1, want_fence=True)
    assert (partition(pure).isr, partition(pure).leader) == ((0,), 0)
    fence_early(pure, 0)
    assert (partition(pure).isr, partition(pure).elr, partition(pure).last_known_elr) == ((), (0,), (0,))
    # It comes back, and may have lost records, so it is no longer eligible. It still leads once it serves.
    both = [Feature(name=name, min_supported_version=0, max_supported_version=30) for name in ("metadata.version", ELR)]
    register(pure, 0, features=both)
    assert (partition(pure).elr, partition(pure).leader) == ((), -1)
    assert balance_leaders(pure.state).records == []
    beat(pure, 0)
    assert (partition(pure).leader, partition(pure).leader_recovery_state) == (0, 1)


def test_a_new_controller_waits_for_brokers_that_are_fenced() -> None:
    """The new controller does not know which of them were fenced early."""
    pure = Pure(brokers=3)
    make(pure, [0, 1])
    pure.replay([UNCLEAN])
    beat(pure, 0)
    beat(pure, 1, want_fence=True)
    fence_early(pure, 0)
    pure.state.restart_sessions(pure.now_ms)
    beat(pure, 1)
    assert partition(pure).leader == -1
    assert pure.state.held.over(pure.now_ms + SESSION_MS + 1) == [0]
    pure.apply(elect_held_leaders(pure.state, 0))
    assert partition(pure).leader == 1


def test_the_last_replica_stays_in_the_isr() -> None:
    pure = Pure(brokers=1)
    make(pure, [0])
    beat(pure, 0)
    pure.now_ms += SESSION_MS + 1
    pure.apply(fence_stale_broker(pure.state, pure.now_ms))
    assert (partition(pure).leader, partition(pure).isr, partition(pure).leader_epoch) == (-1, (0,), 1)
    beat(pure, 0)
    assert (partition(pure).leader, partition(pure).isr, partition(pure).leader_epoch) == (0, (0,), 2)


def test_a_stale_epoch_is_refused() -> None:
    pure = Pure(brokers=1)
    for broker_id, epoch in ((0, 77), (9, 1)):
        request = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch)
        with pytest.raises(KafkaError) as caught:
            heartbeat(pure.state, request, pure.now_ms, pure.offset)
        assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_controlled_shutdown() -> None:
    pure = Pure(brokers=3)
    make(pure, [0, 1])
    for broker_id in range(3):
        beat(pure, broker_id)
    first = beat(pure, 0, want_shut_down=True)
    assert (first.in_controlled_shutdown, first.should_shut_down) == (True, False)
    assert pure.state.image.brokers[0].in_controlled_shutdown
    assert (partition(pure).leader, partition(pure).isr) == (1, (1,))
    # The other brokers have not seen that the leadership moved.
    assert not beat(pure, 0, want_shut_down=True).should_shut_down
    beat(pure, 1)
    beat(pure, 2)
    last = beat(pure, 0, want_shut_down=True)
    assert last.should_shut_down
    assert pure.state.image.brokers[0].fenced


def test_a_broker_that_shuts_down_is_not_taken_into_an_isr() -> None:
    pure = Pure(brokers=3)
    make(pure, [0, 1, 2], [1, 0, 2])
    for broker_id in range(3):
        beat(pure, broker_id)
    assert beat(pure, 1, want_shut_down=True).in_controlled_shutdown
    assert [(partition(pure, index).leader, partition(pure, index).isr) for index in (0, 1)] == [(0, (0, 2))] * 2
    assert alter(pure, 0, isr_epochs=[(0, -1), (1, -1), (2, -1)]).error_code == ErrorCode.INELIGIBLE_REPLICA
    make(pure, [1, 2], name="new")
    assert (partition(pure, name="new").leader, partition(pure, name="new").isr) == (2, (2,))


def test_a_broker_that_shuts_down_gets_new_replicas_when_it_is_fenced() -> None:
    """A topic with as many replicas as there are brokers can be created while one restarts."""
    pure = Pure(brokers=2)
    make(pure, [0, 1])
    beat(pure, 0)
    beat(pure, 1)
    assert not beat(pure, 0, want_shut_down=True).should_shut_down
    assert [broker.id for broker in pure.state.usable_brokers()] == [1]
    beat(pure, 1)
    assert beat(pure, 0, want_shut_down=True).should_shut_down
    found = [(broker.id, broker.fenced) for broker in pure.state.usable_brokers()]
    assert found == [(0, True), (1, False)]


def test_a_broker_that_leads_nothing_may_go_at_once_and_leaves_every_isr() -> None:
    pure = Pure(brokers=2)
    make(pure, [0, 1])
    beat(pure, 0)
    beat(pure, 1)
    assert beat(pure, 1, want_shut_down=True).should_shut_down
    assert (partition(pure).leader, partition(pure).isr, partition(pure).leader_epoch) == (0, (0,), 0)


def test_one_of_two_directories_fails() -> None:
    """Only its replicas leave, and they cannot lead before they are in another directory."""
    pure = Pure(brokers=2)
    first, second = (bytes((0xE0, number)) + bytes(14) for number in range(2))
    pure.now_ms += SESSION_MS + 1
    register(pure, 0, log_dirs=[first, second])
    beat(pure, 0)
    make(pure, [0, 1], [0, 1], [0, 1])
    for index, directory in enumerate((first, second, first)):
        assign(pure, directory, index)
    pure.replay([PartitionChangeRecord(topic_id=pure.state.image.topics.by_name["t"].id, partition_id=2, isr=[0])])
    beat(pure, 0, offline_log_dirs=[first])
    assert pure.state.image.brokers[0].directories == (second,)
    found = [partition(pure, index) for index in range(3)]
    assert [(each.leader, each.isr) for each in found] == [(1, (1,)), (0, (0, 1)), (-1, (0,))]
    beat(pure, 1, want_fence=True)
    assert beat(pure, 0, offline_log_dirs=[first]).is_fenced is False
    assert elect(pure, 1, 2).replica_election_results[0].partition_result[0].error_code == (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    )
    assign(pure, second, 2)
    elect(pure, 1, 2)
    assert partition(pure, 2).leader == 0


def test_a_directory_that_fails_takes_its_replicas_out() -> None:
    pure = Pure(brokers=2)
    make(pure, [0, 1])
    beat(pure, 0, offline_log_dirs=[directory_of(0)])
    assert (partition(pure).leader, partition(pure).isr) == (1, (1,))


def test_unregister() -> None:
    pure = Pure(brokers=2)
    make(pure, [0, 1])
    pure.apply(unregister_broker(pure.state, 0))
    assert set(pure.state.image.brokers) == {1}
    assert partition(pure).leader == 1
    with pytest.raises(KafkaError):
        unregister_broker(pure.state, 0)


def test_unregistered_controllers() -> None:
    pure = Pure(brokers=1)
    pure.replay([RegisterControllerRecord(controller_id=8)])
    with pytest.raises(KafkaError) as old:
        unregister_controller(pure.state, 8)
    assert old.value.code is ErrorCode.UNSUPPORTED_VERSION
    pure.replay([FeatureLevelRecord(name="metadata.version", feature_level=33)])
    with pytest.raises(KafkaError) as itself:
        unregister_controller(pure.state, pure.state.node_id)
    assert itself.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(KafkaError) as unknown:
        unregister_controller(pure.state, 9)
    assert unknown.value.code is ErrorCode.CONTROLLER_ID_NOT_REGISTERED
    pure.apply(unregister_controller(pure.state, 8))
    assert 8 not in pure.state.image.controllers


@pytest.mark.parametrize("state", list(BrokerControlState))
def test_only_two_states_are_fenced(state: BrokerControlState) -> None:
    assert state.is_fenced == (state in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW))


# AlterPartition.


def alter(pure: Pure, broker_id: int, version: int = 3, isr_epochs: Any = None, **changes: Any) -> Any:
    topic = pure.state.image.topics.by_name["t"]
    now = topic.partitions[0]
    isr = isr_epochs if isr_epochs is not None else [(0, -1)]
    fields: dict[str, Any] = {
        "partition_index": 0,
        "leader_epoch": now.leader_epoch,
        "partition_epoch": now.partition_epoch,
        "new_isr": [replica for replica, _ in isr],
        "new_isr_with_epochs": [ap.BrokerState(broker_id=b, broker_epoch=e) for b, e in isr],
    }
    data = ap.RequestPartitionData(**(fields | changes))
    request = ap.AlterPartitionRequest(
        broker_id=broker_id,
        broker_epoch=pure.state.image.brokers[broker_id].epoch,
        topics=[ap.RequestTopicData(topic_id=topic.id, partitions=[data])],
    )
    return pure.apply(alter_partition(pure.state, request, version)).topics[0].partitions[0]


def test_isr_shrinks_and_grows() -> None:
    pure = Pure(brokers=3)
    make(pure, [0, 1, 2])
    shrunk = alter(pure, 0)
    assert (shrunk.error_code, shrunk.isr, shrunk.leader_id) == (0, [0], 0)
    assert (shrunk.leader_epoch, shrunk.partition_epoch) == (0, 1)
    grown = alter(pure, 0, isr_epochs=[(0, -1), (2, pure.state.image.brokers[2].epoch)])
    assert (grown.error_code, grown.isr, grown.partition_epoch) == (0, [0, 2], 2)
    assert partition(pure).isr == (0, 2)
    assert alter(pure, 0, version=2, isr_epochs=[(0, -1), (1, -1)]).isr == [0, 1]


@pytest.mark.parametrize(
    ("broker_id", "changes", "code"),
    [
        (0, {"leader_epoch": 5}, ErrorCode.NOT_CONTROLLER),
        (0, {"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        (0, {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        (1, {}, ErrorCode.INVALID_REQUEST),
        (0, {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        (0, {"isr_epochs": [(1, -1)]}, ErrorCode.INVALID_REQUEST),
        (0, {"isr_epochs": [(0, -1), (7, -1)]}, ErrorCode.INVALID_REQUEST),
        (0, {"isr_epochs": [(0, -1), (0, -1)]}, ErrorCode.INVALID_REQUEST),
        (0, {"isr_epochs": []}, ErrorCode.INVALID_REQUEST),
        (0, {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        (0, {"isr_epochs": [(0, -1), (1, 12345)]}, ErrorCode.INELIGIBLE_REPLICA),
        (0, {"isr_epochs": [(0, -1), (2, -1)]}, ErrorCode.INELIGIBLE_REPLICA),
        (0, {"partition_index": 4}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_isr_changes_that_are_refused(broker_id: int, changes: dict[str, Any], code: ErrorCode) -> None:
    pure = Pure(brokers=3)
    make(pure, [0, 1, 2])
    beat(pure, 2, want_fence=True)
    before = partition(pure)
    changes.setdefault("partition_epoch", before.partition_epoch)
    assert alter(pure, broker_id, **changes).error_code == code
    assert partition(pure) == before


def assign(pure: Pure, directory: bytes, index: int, topic: bytes | None = None) -> int:
    """Let broker 0 report the directory of a partition of "t"."""
    topic_id = pure.state.image.topics.by_name["t"].id if topic is None else topic
    partitions = [ar.RequestPartitionData(partition_index=index)]
    request = ar.AssignReplicasToDirsRequest(
        broker_id=0,
        broker_epoch=pure.state.image.brokers[0].epoch,
        directories=[
            ar.RequestDirectoryData(
                id=directory, topics=[ar.RequestTopicData(topic_id=topic_id, partitions=partitions)]
            )
        ],
    )
    response = pure.apply(assign_replicas_to_dirs(pure.state, request))
    code: int = response.directories[0].topics[0].partitions[0].error_code
    return code


def test_a_replica_finds_its_directory() -> None:
    pure = Pure(brokers=2)
    make(pure, [0, 1])
    assert assign(pure, directory_of(0), 5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert assign(pure, directory_of(0), 0, b"?" * 16) == ErrorCode.UNKNOWN_TOPIC_ID
    assert assign(pure, DIRECTORY_LOST, 0) == 0
    assert partition(pure).directories[0] == DIRECTORY_LOST
    assert (partition(pure).leader, partition(pure).isr) == (1, (1,))


# Elections.


def elect(pure: Pure, kind: int, index: int | None = 0) -> Any:
    wanted = None if index is None else [TopicPartitions(topic="t", partitions=[index])]
    return pure.apply(elect_leaders(pure.state, ElectLeadersRequest(election_type=kind, topic_partitions=wanted)))


def test_preferred_election() -> None:
    pure = Pure(brokers=2)
    make(pure, [0, 1])
    code = elect(pure, 0).replica_election_results[0].partition_result[0].error_code
    assert code == ErrorCode.ELECTION_NOT_NEEDED
    assert elect(pure, 0, None).replica_election_results[0].partition_result == []
    beat(pure, 0, want_fence=True)
    result = elect(pure, 0).replica_election_results[0].partition_result[0]
    assert result.error_code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    beat(pure, 0)
    alter(pure, 1, isr_epochs=[(0, -1), (1, -1)])
    assert partition(pure).leader == 1
    assert elect(pure, 0, None).replica_election_results[0].partition_result[0].error_code == 0
    assert partition(pure).leader == 0
    with pytest.raises(KafkaError):
        elect(pure, 3)


def test_unclean_election() -> None:
    pure = Pure(brokers=2)
    make(pure, [0, 1])
    beat(pure, 1, want_fence=True)
    beat(pure, 0, want_fence=True)
    beat(pure, 1)
    assert (partition(pure).leader, partition(pure).isr) == (-1, (0,))
    assert elect_unclean_leaders(pure.state).records == []
    result = elect(pure, 1).replica_election_results[0].partition_result[0]
    assert result.error_code == 0
    assert (partition(pure).leader, partition(pure).isr, partition(pure).leader_recovery_state) == (1, (1,), 1)


def test_an_unclean_leader_says_when_it_has_recovered() -> None:
    """KIP-704: before that no other replica may be taken into the ISR."""
    pure = Pure(brokers=2)
    make(pure, [0, 1])
    for broker_id in (1, 0):
        beat(pure, broker_id, want_fence=True)
    for broker_id in (1, 0):
        beat(pure, broker_id)
        elect(pure, 1)
    assert (partition(pure).leader, partition(pure).leader_recovery_state) == (1, 1)
    both = [(0, -1), (1, -1)]
    assert alter(pure, 1, isr_epochs=both, leader_recovery_state=1).error_code == ErrorCode.INVALID_REQUEST
    answer = alter(pure, 1, isr_epochs=[(1, -1)], leader_recovery_state=0)
    assert (answer.error_code, answer.leader_recovery_state, answer.isr) == (0, 0, [1])
    assert alter(pure, 1, isr_epochs=both).isr == [0, 1]


def leader_after_the_isr_is_gone(pure: Pure) -> int:
    """Return the leader when the first of two replicas has left as the only one in sync, and the other is back."""
    make(pure, [0, 1])
    beat(pure, 1, want_fence=True)
    beat(pure, 0, want_fence=True)
    assert partition(pure).leader == -1
    beat(pure, 1)
    return partition(pure).leader


@acts(topic=("unclean.leader.election.enable",))
def test_unclean_election_by_the_topics_configuration() -> None:
    assert leader_after_the_isr_is_gone(Pure(brokers=2)) == -1
    pure = Pure(brokers=2)
    pure.replay([UNCLEAN])
    assert leader_after_the_isr_is_gone(pure) == 1
    assert partition(pure).isr == (1,)


@acts(broker=("unclean.leader.election.enable",))
def test_unclean_election_by_the_brokers_configuration() -> None:
    pure = Pure(brokers=2, config=node_config(**{"unclean.leader.election.enable": "true"}))
    # The topic's own value has priority.
    pure.replay([ConfigRecord(resource_type=2, resource_name="t", name=UNCLEAN.name, value="false")])
    assert leader_after_the_isr_is_gone(pure) == -1
    pure = Pure(brokers=2, config=node_config(**{"unclean.leader.election.enable": "true"}))
    assert leader_after_the_isr_is_gone(pure) == 1


def test_leaders_are_balanced() -> None:
    pure = Pure(brokers=2)
    make(pure, [0, 1])
    beat(pure, 0, want_fence=True)
    beat(pure, 0)
    alter(pure, 1, isr_epochs=[(0, -1), (1, -1)])
    assert pure.apply(balance_leaders(pure.state)) is False
    assert partition(pure).leader == 0


def test_eligible_leader_replicas() -> None:
    """KIP-966: below the minimum, a replica that leaves the ISR stays eligible, and leads when the ISR is empty."""
    pure = Pure(brokers=2)
    pure.replay([FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)])
    make(pure, [0, 1])
    pure.replay([ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="2")])
    beat(pure, 1, want_fence=True)
    assert (partition(pure).isr, partition(pure).elr) == ((0,), (1,))
    beat(pure, 0, want_fence=True)
    assert (partition(pure).isr, partition(pure).elr, partition(pure).leader) == ((), (0, 1), -1)
    assert partition(pure).last_known_elr == (0,)
    beat(pure, 1)
    assert (partition(pure).isr, partition(pure).elr, partition(pure).leader) == ((1,), (0,), 1)
    assert partition(pure).last_known_elr == ()


# Features and producer ids.


@pytest.mark.parametrize(
    ("name", "level", "kind", "code"),
    [
        ("metadata.version", 30, 1, ErrorCode.NONE),
        ("metadata.version", 33, 1, ErrorCode.NONE),
        ("metadata.version", 34, 1, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 29, 1, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 29, 2, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 29, 3, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", -1, 1, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 30, 0, ErrorCode.INVALID_UPDATE_VERSION),
        ("kraft.version", 1, 1, ErrorCode.NONE),
        ("kraft.version", 0, 2, ErrorCode.INVALID_UPDATE_VERSION),
        ("nope", 1, 1, ErrorCode.INVALID_UPDATE_VERSION),
        ("nope", 0, 1, ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
def test_update_features(name: str, level: int, kind: int, code: ErrorCode) -> None:
    pure = Pure(brokers=0)
    result = update_features(
        pure.state, {name: Update(level, kind)}, False, kraft_version=1, raise_kraft_version=lambda version: None
    )
    assert result.response.code is code
    assert bool(result.records) == (code is ErrorCode.NONE)
    assert not update_features(
        pure.state, {name: Update(level, kind)}, True, kraft_version=1, raise_kraft_version=lambda version: None
    ).records


@pytest.mark.parametrize(("level", "lowest"), [(31, 30), (32, 32), (33, 33)])
def test_levels_of_4_4_that_can_be_left_again(level: int, lowest: int) -> None:
    """31 changed no record. 32 has ranges of addresses in ACLs, and 33 has records of unregistered controllers."""
    pure = Pure(brokers=0)
    pure.replay([FeatureLevelRecord(name="metadata.version", feature_level=level)])
    for lower in range(30, level):
        down = {"metadata.version": Update(lower, 2)}
        result = update_features(pure.state, down, False, kraft_version=1, raise_kraft_version=lambda version: None)
        assert result.response.failed is (lower < lowest)


def test_kraft_version_is_raised_last_and_as_the_quorum_says() -> None:
    pure = Pure(brokers=0)
    asked: list[int] = []

    def refuse(version: int) -> None:
        asked.append(version)
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "not all of the voters support it")

    updates = {"kraft.version": Update(1, 1), "nope": Update(1, 1)}
    assert update_features(pure.state, updates, False, kraft_version=0, raise_kraft_version=refuse).response.failed
    assert asked == [], "another feature is refused before anything is written"
    result = update_features(
        pure.state, {"kraft.version": Update(1, 1)}, False, kraft_version=0, raise_kraft_version=refuse
    )
    assert asked == [1]
    assert result.response.code is ErrorCode.INVALID_UPDATE_VERSION
    assert result.response.message == "not all of the voters support it"
    assert not result.records


def test_a_feature_that_is_only_kept_is_lowered_and_raised() -> None:
    """`kafka-features upgrade --release-version 4.3` names it, and a broker of Apache Kafka serves it."""
    pure = Pure(brokers=0)
    pure.replay([FeatureLevelRecord(name="share.version", feature_level=1)])
    register(pure, 1, features=[_range(name, levels) for name, levels in REGISTERED.items()])

    def change(level: int, kind: int) -> ErrorCode:
        result = update_features(
            pure.state,
            {"share.version": Update(level, kind)},
            False,
            kraft_version=1,
            raise_kraft_version=lambda version: None,
        )
        pure.replay(result.records)
        return result.response.code

    assert change(0, 1) is ErrorCode.INVALID_UPDATE_VERSION
    assert change(0, 2) is ErrorCode.NONE
    assert change(1, 1) is ErrorCode.NONE
    assert change(2, 1) is ErrorCode.NONE
    assert change(3, 1) is ErrorCode.INVALID_UPDATE_VERSION


def test_a_downgrade_that_would_lose_metadata_names_both_levels() -> None:
    for kind, reason in (
        (2, "Refusing to perform the requested downgrade because it might delete metadata information."),
        (3, "Unsafe metadata downgrade is not supported in this version."),
    ):
        updates = {"metadata.version": Update(25, kind)}
        result = update_features(
            Pure(brokers=0).state, updates, False, kraft_version=1, raise_kraft_version=lambda version: None
        )
        assert result.response.message == f"Unsupported metadata.version downgrade from 30 to 25. {reason}"


def _range(name: str, levels: VersionRange) -> Feature:
    return Feature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)


def test_producer_ids_come_in_blocks() -> None:
    pure = Pure(brokers=1)
    epoch = pure.state.image.brokers[0].epoch
    assert pure.apply(allocate_producer_ids(pure.state, 0, epoch)) == (0, 1000)
    assert pure.apply(allocate_producer_ids(pure.state, 0, epoch)) == (1000, 1000)
    with pytest.raises(KafkaError) as caught:
        allocate_producer_ids(pure.state, 0, 99)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
