"""A cluster outside this process: the same questions over the network, in the versions that its brokers have."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import confluent_kafka
import pytest

import pykbroker
from pykbroker.net.client import Disconnected
from pykbroker.testing import Cluster, ExistingCluster, NotInThisProcess
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.metadata import MetadataResponse
from pykbroker_wire.messages.offset_fetch import OffsetFetchRequest
from testkit.clients import wait_until

PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def broker() -> Iterator[pykbroker.Broker]:
    with pykbroker.Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def outside(broker: pykbroker.Broker) -> Iterator[ExistingCluster]:
    with ExistingCluster(broker.bootstrap_servers) as cluster:
        yield cluster


def test_it_says_what_the_broker_itself_says(broker: pykbroker.Broker, outside: ExistingCluster) -> None:
    assert outside.create_topic("orders", 2, {"retention.ms": 1000}) == "orders"
    sent = [
        outside.produce("orders", "one", key="k"),
        outside.produce("orders", "two", partition=1, headers=[("a", "b")]),
    ]
    assert sorted(outside.records("orders"), key=lambda one: one.value or b"") == sent
    assert outside.wait_for_records("orders", 2) == broker.records("orders")
    assert asyncio.run(outside.wait_for_records_async("orders", 2)) == broker.records("orders")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    for _ in sent:
        message = consumer.poll(PATIENCE_SECONDS)
        assert message is not None
        consumer.commit(message=message, asynchronous=False)
    assert outside.group("readers") == broker.group("readers")
    consumer.close()
    assert outside.committed_offsets("readers") == broker.committed_offsets("readers")
    assert (outside.end_offsets("orders"), outside.topics()) == (broker.end_offsets("orders"), broker.topics())
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "shop"})
    producer.init_transactions(PATIENCE_SECONDS)
    assert outside.transactions() == broker.transactions()
    with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
        outside.create_topic("orders")
    outside.delete_topic("orders")
    with pytest.raises(LookupError, match="there is no topic orders"):
        outside.records("orders")


def test_a_node_that_restarts_is_asked_again(outside: ExistingCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second request or so is lost, as those are that a node gets while it restarts."""
    chance = random.Random(1)
    line = outside._lined
    ask = line.ask
    lost: set[str] = set()

    def ask_or_lose(address: tuple[str, int], request: Any, timeout_ms: int) -> Any:
        if chance.random() < 0.5:
            lost.add(type(request).__name__)
            raise Disconnected("the node restarts")
        return ask(address, request, timeout_ms)

    monkeypatch.setattr(line, "ask", ask_or_lose)
    while not lost >= {"MetadataRequest", "CreateTopicsRequest", "ListGroupsRequest", "ListTransactionsRequest"}:
        outside.create_topic("restarting")
        assert outside.topics()["restarting"] == 1
        outside.groups()
        outside.transactions()
        outside.delete_topic("restarting")


def test_a_broker_that_knows_no_active_broker_is_asked_again(
    outside: ExistingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = outside._lined
    ask = line.ask
    answers = [MetadataResponse(brokers=[]), MetadataResponse(brokers=[])]
    monkeypatch.setattr(line, "ask", lambda *asked: answers.pop() if answers else ask(*asked))
    assert len(outside._asked_nodes()) == 1
    assert not answers


def test_what_needs_a_node_in_this_process_is_named(outside: ExistingCluster) -> None:
    for name in ("faults", "requests", "metrics", "port", "kill", "move_leader"):
        with pytest.raises(NotInThisProcess, match=f"^{name} needs a broker in this process"):
            getattr(outside, name)
    assert not hasattr(outside, "faults")
    with pytest.raises(AttributeError, match="has no attribute 'fault'"):
        _ = outside.fault


@pytest.mark.parametrize("address", ["", "localhost", "localhost:x", ":9092", "localhost:9092,", "localhost:999999"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(ValueError, match="bootstrap servers are HOST:PORT"):
        ExistingCluster(address)


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykbroker.testing.existing_cluster._CONNECT_SECONDS", 0.2)
    before = {one for one in threading.enumerate() if one.name == "pykbroker-client"}
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=f"no broker answers at {address}"):
            ExistingCluster(address).start()
    cluster = ExistingCluster(address)
    with pytest.raises(RuntimeError, match="the cluster is not connected"):
        cluster.topics()
    assert {one for one in threading.enumerate() if one.name == "pykbroker-client"} == before


@pytest.mark.slow
def test_a_coordinator_that_moves_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group moves between the answer of FindCoordinator and the request to that node."""
    with Cluster() as cluster, ExistingCluster(cluster.bootstrap_servers) as outside:
        with closing(
            confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
        ) as one:
            outside.create_topic("orders")
            one.commit(offsets=[confluent_kafka.TopicPartition("orders", 0, 7)], asynchronous=False)
        before = cluster.coordinator("g")
        ask = outside._ask
        refused: list[int] = []

        def ask_after_the_move(node: int, request: Any) -> Any:
            if isinstance(request, OffsetFetchRequest) and not refused:
                assert node == before
                cluster.move_coordinator("g", to=next(other for other in cluster.nodes if other != node))
                # The node learns of the move a moment later than the test.
                wait_until(
                    lambda: ask(node, request).groups[0].error_code == ErrorCode.NOT_COORDINATOR,
                    "the node no longer coordinates the group",
                )
                refused.append(ask(node, request).groups[0].error_code)
                return ask(node, request)
            return ask(node, request)

        monkeypatch.setattr(outside, "_ask", ask_after_the_move)
        assert outside.committed_offsets("g")["orders", 0].offset == 7
        assert refused == [ErrorCode.NOT_COORDINATOR]


@pytest.mark.slow
def test_a_cluster_that_loses_a_leader() -> None:
    with Cluster() as cluster, ExistingCluster(cluster.bootstrap_servers) as outside:
        outside.create_topic("orders", 3)
        for number in range(3):
            lost = cluster.leader("orders", number)
            assert lost is not None
            cluster.kill(lost)
            outside.produce("orders", b"%d" % number, partition=number)
            cluster.start(lost)
            cluster.wait_until_in_sync()
        assert {record.value for record in outside.records("orders")} == {b"0", b"1", b"2"}
