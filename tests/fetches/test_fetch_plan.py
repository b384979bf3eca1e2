"""The plan of a fetch as a value: sessions, limits, and for whom it reads. No broker, no log."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from pykbroker.fetches.fetch_plan import FetchPlan, plan_fetch
from pykbroker.metadata.topic_names import MAX_NAME_LENGTH
from pykbroker.metrics.registry import Metrics
from pykbroker.replica.fetch_sessions import FetchSessions
from pykbroker.replica.parked import Isolation
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState

ORDERS = bytes(15) + b"o"
NEWEST = FetchRequest.MAX_VERSION


@pytest.fixture
def sessions() -> FetchSessions:
    return FetchSessions(10, random.Random(1), Metrics())


def request(*indexes: int, offset: int = 0, **fields: Any) -> FetchRequest:
    partitions = [FetchPartition(partition=index, fetch_offset=offset) for index in indexes]
    topics = [FetchTopic(topic_id=ORDERS, topic="orders", partitions=partitions)] if indexes else []
    return FetchRequest(topics=topics, **{"session_epoch": -1, **fields})


def refuses() -> bool:
    raise AssertionError("a consumer is not asked whether it may follow")


def planned(
    sessions: FetchSessions, asked: FetchRequest, version: int = NEWEST, may_follow: Callable[[], bool] = refuses
) -> FetchPlan:
    plan = plan_fetch(asked, version, sessions, 1.0, may_follow=may_follow)
    assert isinstance(plan, FetchPlan)
    return plan


def refused(sessions: FetchSessions, asked: FetchRequest, version: int = NEWEST) -> ErrorCode:
    code = plan_fetch(asked, version, sessions, 1.0, may_follow=refuses)
    assert isinstance(code, ErrorCode)
    return code


def test_a_fetch_without_a_session_is_about_its_own_partitions(sessions: FetchSessions) -> None:
    plan = planned(sessions, request(2, 0, offset=5))
    assert list(plan.members) == [(ORDERS, 2), (ORDERS, 0)]
    assert {entry.fetch_offset for entry in plan.members.values()} == {5}
    assert (plan.session, plan.is_full, plan.replica_id) == (None, True, -1)
    assert len(sessions) == 0


def test_topics_have_names_before_version_13(sessions: FetchSessions) -> None:
    (entry,) = planned(sessions, request(0), 12).members.values()
    assert entry.topic == "orders"


def test_a_session_keeps_what_a_fetch_does_not_repeat(sessions: FetchSessions) -> None:
    first = planned(sessions, request(0, 1, session_epoch=0))
    assert first.session is not None
    assert first.is_full
    session_id = first.session.id
    second = planned(sessions, request(1, offset=9, session_id=session_id, session_epoch=1))
    assert not second.is_full
    assert {key[1]: entry.fetch_offset for key, entry in second.members.items()} == {0: 0, 1: 9}
    forgotten = [ForgottenTopic(topic_id=ORDERS, partitions=[0])]
    third = planned(sessions, request(session_id=session_id, session_epoch=2, forgotten_topics_data=forgotten))
    assert list(third.members) == [(ORDERS, 1)]
    assert (first.session_epoch, second.session_epoch, third.session_epoch) == (1, 2, 3)


def test_what_is_refused_as_a_whole(sessions: FetchSessions) -> None:
    assert refused(sessions, request(0, isolation_level=2)) == ErrorCode.INVALID_REQUEST
    assert refused(sessions, request(0, session_id=7, session_epoch=1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session = planned(sessions, request(0, session_epoch=0)).session
    assert session is not None
    again = request(0, session_id=session.id, session_epoch=5)
    assert refused(sessions, again) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    by_name = request(0, session_id=session.id, session_epoch=1)
    assert refused(sessions, by_name, 12) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_no_session_keeps_a_name_that_can_be_no_topics(sessions: FetchSessions) -> None:
    topic = FetchTopic(topic="x" * (MAX_NAME_LENGTH + 1), partitions=[FetchPartition(partition=0)])
    plan = planned(sessions, FetchRequest(topics=[topic], session_epoch=0), 12)
    assert plan.session is None
    assert len(plan.members) == 1


@pytest.mark.parametrize("may_follow", [True, False])
def test_only_a_broker_has_the_session_of_a_follower(sessions: FetchSessions, may_follow: bool) -> None:
    asked = request(0, session_epoch=0, replica_state=ReplicaState(replica_id=2, replica_epoch=7))
    session = planned(sessions, asked, may_follow=lambda: may_follow).session
    assert session is not None
    assert session.privileged is may_follow


@pytest.mark.parametrize(
    ("fields", "isolation"),
    [
        ({}, Isolation.HIGH_WATERMARK),
        ({"isolation_level": 1}, Isolation.TXN_COMMITTED),
        ({"replica_state": ReplicaState(replica_id=2, replica_epoch=7)}, Isolation.LOG_END),
    ],
)
def test_how_far_it_reads(sessions: FetchSessions, fields: dict[str, Any], isolation: Isolation) -> None:
    assert planned(sessions, request(0, **fields)).isolation is isolation


def test_a_followers_id_stands_elsewhere_before_version_15(sessions: FetchSessions) -> None:
    asked = request(0, replica_id=3, replica_state=ReplicaState(replica_id=2, replica_epoch=7))
    assert planned(sessions, asked, 14).replica_id == 3
    assert planned(sessions, asked, 15).replica_id == 2
