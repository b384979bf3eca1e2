"""The messages of a broker to the controller, and the states that the answers allow, without a clock."""

from __future__ import annotations

from pykbroker.metadata.image import Endpoint
from pykbroker.metadata.snapshot import CORDONED_FROM
from pykbroker.node_to_controller.broker_membership import BrokerIdentity, BrokerMembership
from pykbroker.node_to_controller.broker_state import BrokerState
from pykbroker.node_to_controller.directory_reports import DirectoryReports
from pykbroker_wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pykbroker_wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

ONE, TWO = b"1" * 16, b"2" * 16
NEWEST = CORDONED_FROM


def started() -> BrokerMembership:
    membership = BrokerMembership(BrokerIdentity(1, "cluster", b"i" * 16, (ONE, TWO), 6, "rack"))
    membership.endpoints = (Endpoint("PLAINTEXT", "localhost", 9092, 0),)
    membership.state = BrokerState.STARTING
    return membership


def registered(epoch: int = 7) -> BrokerMembership:
    membership = started()
    membership.registered(BrokerRegistrationResponse(broker_epoch=epoch))
    return membership


def heartbeat(membership: BrokerMembership, seen_offset: int = 9, version: int = NEWEST) -> BrokerHeartbeatRequest:
    request = membership.next_request(seen_offset, version)
    assert isinstance(request, BrokerHeartbeatRequest)
    return request


def test_a_broker_registers_before_it_sends_heartbeats() -> None:
    membership = BrokerMembership(BrokerIdentity(1, "cluster", b"i" * 16, (ONE,)))
    assert membership.next_request(0, NEWEST) is None
    membership = started()
    request = membership.next_request(0, NEWEST)
    assert isinstance(request, BrokerRegistrationRequest)
    assert (request.broker_id, request.cluster_id, request.rack) == (1, "cluster", "rack")
    assert (request.log_dirs, request.previous_broker_epoch) == ([ONE, TWO], 6)
    assert [(each.name, each.port) for each in request.listeners] == [("PLAINTEXT", 9092)]
    membership.registered(BrokerRegistrationResponse(broker_epoch=7))
    sent = heartbeat(membership)
    assert (sent.broker_epoch, sent.current_metadata_offset, sent.want_fence, sent.want_shut_down) == (
        7,
        9,
        True,
        False,
    )
    membership.state = BrokerState.SHUTTING_DOWN
    assert membership.next_request(9, NEWEST) is None


def test_one_answer_may_allow_two_steps() -> None:
    membership = registered()
    answer = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)
    states = []
    while (following := membership.state_after(answer)) is not None:
        membership.state = following
        states.append(following)
    assert states == [BrokerState.RECOVERY, BrokerState.RUNNING]
    assert membership.state_after(BrokerHeartbeatResponse(should_shut_down=True)) is None


def test_a_broker_stops_when_the_controller_permits_it() -> None:
    membership = registered()
    membership.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
    assert heartbeat(membership).want_shut_down
    assert membership.state_after(BrokerHeartbeatResponse(should_shut_down=False)) is None
    assert membership.state_after(BrokerHeartbeatResponse(should_shut_down=True)) is BrokerState.SHUTTING_DOWN


def test_a_failed_directory_is_reported_before_the_broker_asks_to_be_unfenced() -> None:
    membership = registered()
    membership.is_ready = True
    membership.directories.fail(ONE)
    first = heartbeat(membership)
    assert (first.want_fence, first.offline_log_dirs) == (True, [ONE])
    assert membership.is_held_back
    membership.answered()
    second = heartbeat(membership)
    assert (second.want_fence, second.offline_log_dirs) == (False, [ONE])
    assert not membership.is_held_back


def test_a_running_broker_stays_unfenced_when_a_directory_fails() -> None:
    membership = registered()
    membership.is_ready = True
    membership.state = BrokerState.RUNNING
    membership.directories.fail(ONE)
    assert not heartbeat(membership).want_fence


def test_cordoned_directories_are_in_a_heartbeat_only_if_the_controller_knows_the_field() -> None:
    membership = registered()
    membership.directories.cordon([TWO, ONE])
    assert heartbeat(membership).cordoned_log_dirs == [ONE, TWO]
    assert heartbeat(membership, version=CORDONED_FROM - 1).cordoned_log_dirs is None


def test_a_broker_that_the_metadata_has_lost_registers_again() -> None:
    membership = registered()
    assert not membership.is_lost(removed=False, gets_directories=False)
    assert membership.is_lost(removed=True, gets_directories=False)
    assert isinstance(membership.next_request(9, NEWEST), BrokerRegistrationRequest)
    # It is not registered now, so it cannot be lost a second time.
    assert not membership.is_lost(removed=True, gets_directories=False)
    stopped = registered()
    stopped.state = BrokerState.SHUTTING_DOWN
    assert not stopped.is_lost(removed=True, gets_directories=True)


def test_a_failure_during_a_heartbeat_is_reported_by_the_next_one() -> None:
    reports = DirectoryReports()
    assert reports.fail(ONE)
    assert not reports.fail(ONE)
    assert reports.begin() == [ONE]
    assert reports.fail(TWO)
    reports.answered()
    assert (reports.is_reported(ONE), reports.is_reported(TWO), reports.all_reported) == (True, False, False)
    assert reports.begin() == [ONE, TWO]
    reports.answered()
    assert reports.all_reported


def test_the_same_cordoned_directories_are_no_news() -> None:
    reports = DirectoryReports()
    assert not reports.cordon([])
    assert reports.cordon([TWO, ONE])
    assert not reports.cordon([ONE, TWO])
    assert reports.cordon([])
