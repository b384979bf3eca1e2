"""The listeners of controllers under attack, over sockets: any frames in any pieces before authentication, and
forgeries of a user without CLUSTER_ACTION."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final
from unittest import mock

import hypothesis
import pytest
from hypothesis import strategies as st

from pykbroker.dispatch.principals import encode_principal
from pykbroker.sasl import sasl_connection
from pykbroker.security.acl import PatternType, Permission
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from pykbroker_wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from pykbroker_wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from pykbroker_wire.messages.broker_registration import BrokerRegistrationRequest
from pykbroker_wire.messages.controller_registration import ControllerRegistrationRequest
from pykbroker_wire.messages.create_acls import AclCreation, CreateAclsRequest
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.describe_cluster import DescribeClusterRequest
from pykbroker_wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from pykbroker_wire.messages.envelope import EnvelopeRequest
from pykbroker_wire.messages.fetch_snapshot import FetchSnapshotRequest
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from pykbroker_wire.messages.sasl_handshake import SaslHandshakeRequest
from pykbroker_wire.messages.vote import VoteRequest
from testkit.certificates import client_context, node_properties
from testkit.nodes.secured_trio import PLAIN, log_in
from testkit.nodes.wire import Closed, Wire, frame_of
from tests.node.secured_listeners.test_tls_listeners import Secured

USERS: Final = ("mallory", "broker", "admin")
POINTS: Final = "CLIENTS://localhost:0,CONTROLLER://localhost:0,LOCKED://localhost:0"
JAAS: Final = f'{PLAIN} required username="admin" password="admin-secret" ' + " ".join(
    f'user_{name}="{name}-secret"' for name in USERS
)
PROPERTIES: Final = {
    **node_properties(),
    "listeners": POINTS,
    "advertised.listeners": POINTS,
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,LOCKED:SASL_SSL",
    "controller.listener.names": "CONTROLLER,LOCKED",
    "inter.broker.listener.name": "CLIENTS",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
    **{f"listener.name.{name}.plain.sasl.jaas.config": f"{JAAS};" for name in ("clients", "controller", "locked")},
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "connection.failed.authentication.delay.ms": "0",
}
DISPATCHED: Final = "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=DescribeCluster"
PATIENCE_S: Final = 120


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with (
        mock.patch.object(sasl_connection, "_SECONDS_TO_READ", 0),
        Secured(tmp_path_factory.mktemp("node"), PROPERTIES) as node,
    ):
        with Wire(node.address("CLIENTS"), timeout=PATIENCE_S) as admin:
            log_in(admin, "admin", "admin-secret", "PLAIN")
            allowed = AclCreation(
                resource_type=Resource.CLUSTER,
                resource_name=CLUSTER_NAME,
                resource_pattern_type=PatternType.LITERAL,
                principal="User:broker",
                host="*",
                operation=Operation.CLUSTER_ACTION,
                permission_type=Permission.ALLOW,
            )
            answer = admin.call(CreateAclsRequest(creations=[allowed]))
            assert answer.results[0].error_code == ErrorCode.NONE
        yield node


# Any frames in any order and any pieces.


@dataclass(frozen=True)
class Step:
    """`kind`: handshake, token, versions, describe or garbage."""

    kind: str
    right: bool = True
    version: int = 1
    data: bytes = b""


STEPS: Final = st.one_of(
    st.builds(Step, st.just("handshake"), st.booleans(), st.integers(0, 1)),
    st.builds(Step, st.just("token"), st.booleans()),
    st.builds(Step, st.just("versions"), version=st.integers(0, 4)),
    st.just(Step("describe")),
    st.just(Step("describe")),
    st.builds(Step, st.just("garbage"), data=st.binary(min_size=1, max_size=40)),
)
LOGIN: Final = [Step("handshake"), Step("token")]
#: Some of these get in, others almost.
WALKS: Final = st.tuples(
    st.sampled_from([[], LOGIN, [Step("versions"), *LOGIN], [Step("handshake", version=0), Step("token")]]),
    st.lists(STEPS, max_size=8),
).map(lambda parts: [*parts[0], *parts[1]])


def frames(steps: list[Step]) -> tuple[bytes, int]:
    """Return the bytes to send, and how many DescribeCluster of them may be dispatched at most."""
    numbers = count(1)

    def request(message: Any, version: int) -> bytes:
        return frame_of(message, version, correlation_id=next(numbers), client_id="c")

    data = b""
    allowed = 0
    due, is_bare, is_proven, is_over = "handshake", False, False, False
    for step in steps:
        if step.kind == "handshake":
            data += request(SaslHandshakeRequest(mechanism="PLAIN" if step.right else "GSSAPI"), step.version)
            is_bare = step.version == 0 and not is_proven
            is_over = is_over or (not is_proven and not (due == "handshake" and step.right))
            due = "token"
        elif step.kind == "token":
            token = b"\0mallory\0mallory-secret" if step.right else b"\0mallory\0wrong"
            if is_bare:
                data += len(token).to_bytes(4, "big") + token
            else:
                data += request(SaslAuthenticateRequest(auth_bytes=token), 2)
            if due == "token" and step.right and not is_over:
                is_proven = True
            is_over = is_over or not is_proven
            is_bare = False
        elif step.kind == "versions":
            data += request(ApiVersionsRequest(client_software_name="a", client_software_version="1"), step.version)
            is_over = is_over or (not is_proven and due == "token")
        elif step.kind == "describe":
            data += request(DescribeClusterRequest(endpoint_type=2), 1)
            allowed += is_proven and not is_over
            is_over = is_over or not is_proven
        else:
            data += step.data
            is_over = is_over or not is_proven
    return data, allowed


def say(node: Secured, listener: str, data: bytes, cuts: list[int], tls: ssl.SSLContext | None) -> None:
    """Send the pieces, and wait for the end of the connection."""
    with Wire(node.address(listener), timeout=PATIENCE_S, tls=tls) as wire:
        try:
            for cut in [*cuts, len(data)]:
                piece, data = data[:cut], data[cut:]
                if piece:
                    wire.socket.sendall(piece)
            wire.socket.shutdown(socket.SHUT_WR)
            while wire.socket.recv(65536):
                pass
        except (OSError, ValueError):
            # It ended before everything was sent.
            pass


@pytest.mark.slow
@pytest.mark.parametrize("listener", ["CONTROLLER", "LOCKED"])
def test_only_proven_users_reach_a_controller(node: Secured, tmp_path: Path, listener: str) -> None:
    tls = client_context(tmp_path) if listener == "LOCKED" else None
    served = 0

    def dispatched() -> float:
        return node.metrics().get(DISPATCHED, 0)

    @hypothesis.settings(
        max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @hypothesis.given(WALKS, st.lists(st.integers(1, 60), max_size=4))
    def attack(steps: list[Step], cuts: list[int]) -> None:
        nonlocal served
        data, allowed = frames(steps)
        before = dispatched()
        say(node, listener, data, cuts, tls)
        found = dispatched() - before
        assert found <= allowed
        served += int(found)

    attack()
    assert served > 20
    before = dispatched()
    say(node, listener, frames([*LOGIN, *[Step("describe")] * 3])[0], [], tls)
    assert dispatched() - before == 3


# Forgeries.


def as_user(node: Secured, user: str, listener: str = "CONTROLLER") -> Wire:
    wire = Wire(node.address(listener), timeout=PATIENCE_S)
    log_in(wire, user, f"{user}-secret", "PLAIN")
    return wire


def envelope(inner: Any, version: int, principal: bytes, host: bytes = b"\x7f\0\0\1") -> EnvelopeRequest:
    data = frame_of(inner, version, client_id="c")[4:]
    return EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=host)


CREATE: Final = CreateTopicsRequest(topics=[CreatableTopic(name="forged", num_partitions=1, replication_factor=1)])
ADMIN: Final = encode_principal("User:admin")


@pytest.mark.slow
def test_an_authenticated_client_forges_an_envelope(node: Secured) -> None:
    """Without CLUSTER_ACTION it is refused, whatever is in it; with it, the request inside must be one that brokers
    pass on."""
    inside = [
        (envelope(CREATE, 7, ADMIN), None),
        (envelope(VoteRequest(), 2, ADMIN), ErrorCode.INVALID_REQUEST),
        (envelope(BrokerRegistrationRequest(), 4, ADMIN), ErrorCode.INVALID_REQUEST),
        (envelope(envelope(CREATE, 7, ADMIN), 0, ADMIN), ErrorCode.INVALID_REQUEST),
        (envelope(CREATE, 7, ADMIN, b""), ErrorCode.INVALID_REQUEST),
        (envelope(CREATE, 7, ADMIN, b"12345"), ErrorCode.INVALID_REQUEST),
        (envelope(CREATE, 7, b""), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (envelope(CREATE, 7, b"\0\1" + ADMIN[2:]), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (envelope(CREATE, 7, ADMIN[:-3]), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
    ]
    with as_user(node, "mallory") as wire:
        for request, _ in inside:
            answer = wire.call(request)
            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert not answer.response_data
    with as_user(node, "broker") as wire:
        for request, error in inside[1:]:
            assert wire.call(request).error_code == error
        # Names that only look like a super user's.
        for name in ("user:admin", "User:Admin", "User:admin ", "SuperUser:admin", ":admin", "User:broker"):
            answer = wire.call(envelope(CREATE, 7, encode_principal(name)))
            assert answer.error_code == ErrorCode.NONE
            assert int(ErrorCode.TOPIC_AUTHORIZATION_FAILED).to_bytes(2, "big") in answer.response_data
    for user in USERS:
        with as_user(node, user, "CLIENTS") as wire, pytest.raises(Closed):
            wire.call(inside[0][0])
    with as_user(node, "admin", "CLIENTS") as wire:
        assert wire.metadata("forged").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


FORGED: Final = [
    VoteRequest(),
    BeginQuorumEpochRequest(),
    EndQuorumEpochRequest(),
    FetchSnapshotRequest(),
    BrokerRegistrationRequest(broker_id=9),
    BrokerHeartbeatRequest(broker_id=1, want_shut_down=True),
    ControllerRegistrationRequest(controller_id=1),
    AllocateProducerIdsRequest(broker_id=1),
]


@pytest.mark.slow
@pytest.mark.parametrize("request_", FORGED, ids=[type(one).__name__ for one in FORGED])
def test_an_authenticated_client_plays_a_voter_or_a_broker(node: Secured, request_: Any) -> None:
    quorum = node.node.shared.quorum
    before = (quorum.epoch, quorum.leader_id)
    with as_user(node, "mallory") as wire:
        assert wire.call(request_).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for user in ("mallory", "admin"):
        with as_user(node, user, "CLIENTS") as wire, pytest.raises(Closed):
            wire.call(request_)
    assert (quorum.epoch, quorum.leader_id) == before
