"""`broker.clock.advance`: everything that clients feel is over at once, and clients go on."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer

import pykbroker
from pykbroker.config.kinds import ConfigError
from pykbroker.node.node import Node
from pykbroker.testing import Cluster, SecureBroker
from pykbroker.testing.clock import ClockError, duration_ms
from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.cluster.share_member_session import RELEASE
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_transactions import DescribeTransactionsRequest
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykbroker_wire.messages.list_transactions import ListTransactionsRequest
from testkit.nodes.nodes import eventually
from tests.testing.test_share_deliveries import filled, member, told

#: No test here waits for a timer of the node, because an advance makes it due.
CONFIG = {"group.initial.rebalance.delay.ms": 0, "share.coordinator.state.topic.num.partitions": 1}
DAY_MS = 86_400_000


@pytest.fixture
def broker() -> Iterator[pykbroker.Broker]:
    with pykbroker.Broker(CONFIG) as broker:
        yield broker


def consumer_of(broker: pykbroker.Broker | Cluster, group: str, protocol: str = "classic") -> Consumer:
    """Return a consumer of the topic orders, from its beginning."""
    settings = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, **settings})
    consumer.subscribe(["orders"])
    return consumer


# -- durations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        ("45s", 45_000),
        ("7 d", 7 * DAY_MS),
        ("10 min", 600_000),
        ("1.5 h", 5_400_000),
        ("2 Weeks", 14 * DAY_MS),
        ("1 day", DAY_MS),
        ("250ms", 250),
        (" 3 m ", 180_000),
        ("2 seconds", 2_000),
        (1_500, 1_500),
        (2.4, 2),
        (datetime.timedelta(minutes=2), 120_000),
    ],
)
def test_durations(given: Any, milliseconds: int) -> None:
    assert duration_ms(given) == milliseconds


@pytest.mark.parametrize(
    "given", ["", "45", "s", "-45s", "45 parsecs", "1e3 s", 0, -1, 0.2, "0 s", "11 years", "4000 d", True, None, []]
)
def test_a_duration_that_is_not_possible(given: Any) -> None:
    with pytest.raises(ClockError) as raised:
        duration_ms(given)
    assert "\n" not in str(raised.value)


# -- groups -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_sessions_of_members_end_and_the_members_come_back(broker: pykbroker.Broker, protocol: str) -> None:
    broker.create_topic("orders")
    consumer = consumer_of(broker, "billing", protocol)
    broker.produce("orders", "one")
    first = eventually("a record", lambda: consumer.poll(1))
    assert first.value() == b"one"
    # Otherwise it comes again to the member that has joined anew.
    consumer.commit(message=first, asynchronous=False)
    (before,) = broker.group("billing").members
    broker.clock.advance("40s")
    assert broker.group("billing").members == (before,)
    broker.clock.advance("45s")
    assert broker.group("billing").members == ()
    broker.produce("orders", "two")
    assert eventually("a further record", lambda: consumer.poll(1)).value() == b"two"
    # It learns from its next heartbeat that it has no session, and joins again.
    eventually("the consumer comes back", lambda: [consumer.poll(0.1)] and broker.group("billing").members)
    consumer.close()


def test_a_dead_member_is_gone_and_its_partitions_are_taken_over(broker: pykbroker.Broker) -> None:
    broker.create_topic("orders", partitions=2)
    settings = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "billing", "session_timeout_ms": 45_000}
    members = [KafkaConsumer("orders", client_id=name, **settings) for name in ("dead", "living")]
    eventually("each has a partition", lambda: [one.poll(10) for one in members] and _assignments(broker) == [1, 1])
    dead, living = members
    # Its sockets stay open, as if its process stood still.
    for api in ("Heartbeat", "JoinGroup", "OffsetCommit"):
        broker.faults.add(api, client_id="dead", drop=True)
    broker.clock.advance("1 min")
    eventually(
        "one has both partitions", lambda: living.poll(timeout_ms=10) is not None and _assignments(broker) == [2]
    )
    living.close()
    broker.faults.clear()
    dead.close(autocommit=False, timeout_ms=1)


def _assignments(broker: pykbroker.Broker) -> list[int]:
    return [len(one.assignment) for group in broker.groups() for one in group.members if one.assignment]


def test_a_member_that_joins_while_an_advance_goes_on_keeps_its_session(broker: pykbroker.Broker) -> None:
    def request(member: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id="billing",
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            group_instance_id=member,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )

    def join() -> bool:
        return bool(broker._ask(1, request("early")).error_code == ErrorCode.NONE)

    broker._ask(1, FindCoordinatorRequest(key_type=0, coordinator_keys=["billing"]))
    eventually("the coordinator has a member", join)
    joins = []

    def when_the_session_of_the_first_has_ended(node: Node) -> None:
        clock = node.services.runtime.client_clock
        clock.call_at(clock.time() + 120, lambda: joins.append(node.call(request("late"))))

    broker._started.read(when_the_session_of_the_first_has_ended)
    broker.clock.advance("1 h")
    assert len(joins) == 1
    eventually("the answer", joins[0].done)

    def members() -> list[str | None]:
        return [member.instance_id for group in broker.groups() for member in group.members]

    assert members() == ["late"]
    broker.clock.advance("50s")
    assert members() == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_session_of_one_member_ends_and_the_others_go_on(broker: pykbroker.Broker, protocol: str) -> None:
    broker.create_topic("orders", partitions=2)
    consumers = [consumer_of(broker, "billing", protocol) for _ in range(2)]
    eventually("each has a partition", lambda: [one.poll(0.01) for one in consumers] and _assignments(broker) == [1, 1])
    expired, stays = broker.group("billing").members
    broker.groups.expire("billing", expired)
    assert expired.member_id not in [one.member_id for one in broker.group("billing").members]
    assert stays.member_id in [one.member_id for one in broker.group("billing").members]
    for group, member_id in (("billing", expired.member_id), ("billing", "nobody"), ("shop", stays.member_id)):
        with pytest.raises(LookupError, match="no session of a member"):
            broker.groups.expire(group, member_id)
    # It learns from its next heartbeat that it has no session, and joins again.
    eventually(
        "the member comes back", lambda: [one.poll(0.01) for one in consumers] and _assignments(broker) == [1, 1]
    )
    for one in consumers:
        one.close()


def test_the_initial_delay_of_a_group_is_over() -> None:
    with pykbroker.Broker({"group.initial.rebalance.delay.ms": 300_000}) as broker:
        broker.create_topic("orders")
        settings = {"group.id": "billing", "max.poll.interval.ms": 600_000, "auto.offset.reset": "earliest"}
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, **settings})
        consumer.subscribe(["orders"])
        broker.produce("orders", "one")
        eventually("the consumer joins", lambda: consumer.poll(0.01) or broker.groups())
        assert broker.group("billing").state == "PreparingRebalance"
        broker.clock.advance("5 min")
        assert eventually("the group has a generation", lambda: consumer.poll(1)).value() == b"one"
        consumer.close()


def test_offsets_expire_and_a_group_that_has_none_left_is_gone(broker: pykbroker.Broker) -> None:
    broker.create_topic("orders")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 5)], asynchronous=False)
    broker.clock.advance("6 d")
    assert broker.committed_offsets("billing")["orders", 0].offset == 5
    # A commit of now is new, whatever the clock was moved by before.
    consumer.commit(offsets=[TopicPartition("orders", 0, 7)], asynchronous=False)
    broker.clock.advance("6 d")
    assert broker.committed_offsets("billing")["orders", 0].offset == 7
    broker.clock.advance("1 d")
    broker.clock.advance("10 min")
    assert broker.groups() == []
    consumer.close()


# -- transactions -----------------------------------------------------------------------------------------------------


def _transactional(broker: pykbroker.Broker, transactional_id: str = "shop", timeout_ms: int = 60_000) -> Producer:
    settings = {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})
    producer.init_transactions(60)
    return producer


def test_a_transaction_that_is_open_too_long_is_aborted(broker: pykbroker.Broker) -> None:
    broker.create_topic("orders")
    producer = _transactional(broker)
    producer.begin_transaction()
    producer.produce("orders", b"never")
    producer.flush(60)
    broker.clock.advance("50s")
    assert broker.transaction("shop").state == "Ongoing"
    broker.clock.advance("20s")
    assert broker.transaction("shop").state == "CompleteAbort"
    assert broker.records("orders", read_committed=True) == []
    with pytest.raises(KafkaException) as raised:
        producer.commit_transaction(60)
    assert raised.value.args[0].fatal() or raised.value.args[0].txn_requires_abort()
    again = _transactional(broker)
    again.begin_transaction()
    again.produce("orders", b"once")
    again.commit_transaction(60)
    assert [record.value for record in broker.records("orders", read_committed=True)] == [b"once"]


def test_a_transaction_that_begins_after_a_jump_has_its_whole_time(broker: pykbroker.Broker) -> None:
    broker.create_topic("orders")
    producer = _transactional(broker)
    broker.clock.advance("7 d")
    producer = _transactional(broker)
    producer.begin_transaction()
    producer.produce("orders", b"one")
    producer.flush(60)
    broker.clock.advance("50s")
    producer.commit_transaction(60)
    assert [record.value for record in broker.records("orders", read_committed=True)] == [b"one"]


def test_the_duration_of_a_transaction_has_the_jumps_in_it(broker: pykbroker.Broker) -> None:
    broker.create_topic("orders")
    producer = _transactional(broker, timeout_ms=600_000)
    broker.clock.advance("1 h")
    producer = _transactional(broker, timeout_ms=600_000)
    producer.begin_transaction()
    producer.produce("orders", b"one")
    producer.flush(60)

    def listed(over_ms: int) -> list[str]:
        answer = broker._started.ask(ListTransactionsRequest(duration_filter=over_ms))
        return [one.transactional_id for one in answer.transaction_states]

    assert listed(300_000) == []
    broker.clock.advance("5 min")
    assert listed(300_000) == ["shop"]
    assert listed(420_000) == []
    (state,) = broker._started.ask(DescribeTransactionsRequest(transactional_ids=["shop"])).transaction_states
    assert 300_000 <= time.time() * 1000 - state.transaction_start_time_ms < 420_000
    producer.commit_transaction(60)


def test_transactional_ids_expire(broker: pykbroker.Broker) -> None:
    broker.create_topic("orders")
    producer = _transactional(broker)
    producer.begin_transaction()
    producer.produce("orders", b"one")
    producer.commit_transaction(60)
    broker.clock.advance("6 d")
    assert [one.transactional_id for one in broker.transactions()] == ["shop"]
    broker.clock.advance("2 d")
    assert broker.transactions() == []


# -- share groups -----------------------------------------------------------------------------------------------------


def test_locks_of_a_share_group_end() -> None:
    with pykbroker.Broker(CONFIG) as broker:
        filled(broker, "jobs")
        ended = False
        # At the end of its block the member releases records that it no longer holds.
        with suppress(AskFailed), member(broker, "workers", "jobs", RELEASE, 3):
            (held,) = broker.deliveries("workers")
            assert held.state == "Acquired"
            assert held.lock_left_ms == pytest.approx(30_000, abs=2_000)
            broker.clock.advance("20s")
            (held,) = broker.deliveries("workers")
            assert held.state == "Acquired"
            assert held.lock_left_ms == pytest.approx(10_000, abs=2_000)
            broker.clock.advance("11s")
            assert told(broker.deliveries("workers")) == [(0, 2, "Available", 1)]
            ended = True
        assert ended


# -- records ----------------------------------------------------------------------------------------------------------


def _values(broker: pykbroker.Broker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


def test_a_record_produced_after_a_jump_survives_the_next_retention_run(broker: pykbroker.Broker) -> None:
    broker.create_topic("orders", config={"retention.ms": 3 * DAY_MS})
    broker.produce("orders", "old")
    broker.clock.advance("2 d")
    assert _values(broker, "orders") == [b"old"]
    broker.clock.advance("7 d")
    broker.produce("orders", "new")
    assert _values(broker, "orders") == [b"new"]
    broker.clock.advance("1 h")
    broker.clock.advance("1 h")
    assert _values(broker, "orders") == [b"new"]
    assert broker.beginning_offsets("orders") == {0: 1}
    broker.clock.advance("3 d")
    assert _values(broker, "orders") == []


def test_a_segment_ends_by_a_jump_so_that_its_old_records_can_go(broker: pykbroker.Broker) -> None:
    broker.create_topic("orders", config={"retention.ms": 3 * DAY_MS, "segment.ms": DAY_MS})
    broker.produce("orders", "old")
    broker.clock.advance("2 d")
    broker.produce("orders", "new")
    broker.clock.advance("2 d")
    assert _values(broker, "orders") == [b"new"]


def test_tombstones_go_after_delete_retention_ms() -> None:
    with pykbroker.Broker({**CONFIG, "log.cleaner.min.cleanable.ratio": 0}) as broker:
        settings = {"cleanup.policy": "compact", "segment.ms": 1_000, "delete.retention.ms": 3_600_000}
        broker.create_topic("prices", config=settings)
        broker.produce("prices", "1", key="a")
        broker.produce("prices", None, key="a")
        broker.produce("prices", "1", key="b")
        broker.clock.advance("1 min")
        eventually("the value of a is compacted", lambda: _values(broker, "prices") == [None, b"1"])
        broker.clock.advance("30 min")
        broker.produce("prices", "2", key="b")
        broker.clock.advance("1 min")
        eventually("the first value of b is compacted", lambda: _values(broker, "prices") == [None, b"2"])
        broker.clock.advance("30 min")
        broker.produce("prices", "3", key="b")
        broker.clock.advance("1 min")
        eventually("the tombstone goes", lambda: _values(broker, "prices") == [b"3"])


def test_idle_producers_are_forgotten(broker: pykbroker.Broker) -> None:
    broker.create_topic("orders")
    old, new = (Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True}) for _ in range(2))
    old.produce("orders", b"one")
    assert old.flush(60) == 0
    broker.clock.advance("20 h")
    new.produce("orders", b"two")
    assert new.flush(60) == 0
    assert _producers(broker) == 2
    broker.clock.advance("5 h")
    assert _producers(broker) == 1
    old.produce("orders", b"three")
    assert old.flush(60) == 0
    assert _values(broker, "orders") == [b"one", b"two", b"three"]


def _producers(broker: pykbroker.Broker) -> int:
    """Return how many producers the log of the topic knows."""

    def count(node: Node) -> int:
        partition = node.services.replicas.get("orders", 0)
        assert partition is not None
        return len(partition.log.producers.entries)

    return broker._started.read(count)


# -- the clock --------------------------------------------------------------------------------------------------------


def test_the_wall_clock_in_records_follows_only_if_asked(broker: pykbroker.Broker) -> None:
    broker.create_topic("orders", config={"message.timestamp.type": "LogAppendTime"})
    for wall_clock in (False, True):
        broker.clock.advance("1 h", wall_clock=wall_clock)
        broker.produce("orders", "one")
    first, second = (record.timestamp_ms for record in broker.records("orders"))
    assert abs(first - time.time() * 1000) < 600_000
    assert 3_000_000 < second - first < 4_200_000
    assert broker.clock.advanced == datetime.timedelta(hours=2)


def test_an_advance_in_asyncio(broker: pykbroker.Broker) -> None:
    asyncio.run(broker.clock.advance_async("45s"))
    assert broker.clock.advanced == datetime.timedelta(seconds=45)


def test_the_clock_stays_ahead_when_the_broker_starts_again() -> None:
    broker = pykbroker.Broker(CONFIG)
    with pytest.raises(RuntimeError, match="not running"):
        broker.clock.advance("45s")
    with broker:
        broker.clock.advance("45s")
    with broker:
        broker.create_topic("orders", config={"retention.ms": 60_000})
        broker.produce("orders", "one")
        broker.clock.advance("50s")
        assert _values(broker, "orders") == [b"one"]
        assert broker.clock.advanced == datetime.timedelta(seconds=95)


def test_no_clock_is_moved_beside_an_authorizer() -> None:
    with SecureBroker(protocol="SASL_PLAINTEXT", mechanism="PLAIN", acls=True) as broker:
        with pytest.raises(ConfigError, match="authorizer"):
            broker.clock.advance("45s")
        assert broker.clock.advanced == datetime.timedelta(0)
