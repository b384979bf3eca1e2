"""Clients that close their writing half after their last request get its response, as from Apache Kafka."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.describe_groups import DescribeGroupsRequest
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.primitives import TopLevel
from testkit.certificates import client_context, node_properties
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import Wire, batch
from tests.node.secured_listeners.test_tls_listeners import Secured

pytestmark = pytest.mark.slow
PROPERTIES = {**node_properties(), "group.initial.rebalance.delay.ms": "500"}
LISTENERS = ("PLAINTEXT", "SSL")


def group_of(listener: str) -> str:
    return f"half-{listener}"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("half") / "data", PROPERTIES) as node:
        with Wire(node.address("PLAINTEXT")) as wire:
            wire.create("here")
            wire.produce("here", batch(b"first"))
            wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["half"]))
            asked = DescribeGroupsRequest(groups=[group_of(listener) for listener in LISTENERS])
            eventually(
                "the coordinators are ready", lambda: not any(group.error_code for group in wire.call(asked, 5).groups)
            )
        yield node


#: name -> a message whose response comes later, and its version
WAITING: dict[str, tuple[TopLevel, int]] = {
    "a Fetch at the end of the log": (
        FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            topics=[FetchTopic(topic="here", partitions=[FetchPartition(partition=0, fetch_offset=1)])],
        ),
        11,
    ),
    "the first member of a group": (
        JoinGroupRequest(
            group_id="",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        3,
    ),
    "a topic that the controller makes": (
        CreateTopicsRequest(topics=[CreatableTopic(name="made", num_partitions=1, replication_factor=1)]),
        7,
    ),
    "a batch that is written": (
        ProduceRequest(
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(
                    name="here", partition_data=[PartitionProduceData(index=0, records=bytes(batch(b"second")))]
                )
            ],
        ),
        9,
    ),
}


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("asked", WAITING)
def test_an_answer_leaves_after_the_clients_last_byte(node: Secured, tmp_path: Path, listener: str, asked: str) -> None:
    message, version = WAITING[asked]
    if isinstance(message, JoinGroupRequest):
        message.group_id = group_of(listener)
    with Wire(node.address(listener), tls=client_context(tmp_path) if listener == "SSL" else None) as wire:
        sent = wire.send(message, version)
        # Below TLS, because the method of a TLS socket would end its TLS.
        socket.socket.shutdown(wire.socket, socket.SHUT_WR)
        answer = wire.receive(*sent)
        assert getattr(answer, "error_code", 0) == ErrorCode.NONE
        assert wire.closed_by_the_broker()
