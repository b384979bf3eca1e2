"""Nodes of both kinds that authenticate each other: SCRAM between brokers, PLAIN between controllers.

Two combined nodes are of Apache Kafka and one of pykbroker, or the other way round. All traffic between nodes is
SASL_SSL, with ACLs; only the tests use the plain listener, whose user is a super user.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.mixed_cluster.conftest import NewCluster
from compat_tests.mixed_cluster.members import Cluster, Kind, Member
from compat_tests.mixed_cluster.secured import REPLICATED, SETTINGS, USERS
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_acls import AclCreation, CreateAclsRequest
from testkit.certificates import client_context
from testkit.nodes.nodes import eventually
from testkit.nodes.secured_trio import log_in
from testkit.nodes.wire import Wire, batch
from testkit.ports import steady_port

pytestmark = pytest.mark.slow

NUMBERS = (1, 2, 3)
TOPIC_RESOURCE, LITERAL, CREATE, ALLOW = 2, 3, 5, 3


class SecuredNodes:
    """The cluster, and the addresses of its brokers' secured listeners."""

    def __init__(self, new_cluster: NewCluster, kinds: dict[int, Kind]) -> None:
        self.secured = {number: f"localhost:{steady_port()}" for number in NUMBERS}
        members = {number: Member(kind) for number, kind in kinds.items()}
        listeners = {number: f"BROKERS://{address}" for number, address in self.secured.items()}
        self.cluster: Cluster = new_cluster(members, *USERS, settings={**SETTINGS, **REPLICATED}, listeners=listeners)

    def alice(self, number: int, folder: Path) -> Wire:
        wire = Wire(self.secured[number], tls=client_context(folder), timeout=60)
        log_in(wire, "alice", "alice-secret")
        return wire


#: The kind of one node of the three.
ODD = [
    pytest.param("pykbroker", marks=pytest.mark.long(amount="one of pykbroker"), id="one of pykbroker"),
    pytest.param("kafka", id="two of pykbroker"),
]


@pytest.fixture(scope="module", params=ODD)
def nodes(request: pytest.FixtureRequest, new_cluster: NewCluster) -> Iterator[SecuredNodes]:
    odd: Kind = request.param
    even: Kind = "kafka" if odd == "pykbroker" else "pykbroker"
    made = SecuredNodes(new_cluster, {1: even, 2: odd, 3: even})
    with made.cluster as cluster:
        cluster.start_all()
        cluster.serving(*NUMBERS)
        yield made


def test_every_node_leads_and_follows(nodes: SecuredNodes) -> None:
    replicas = [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    nodes.cluster.create("shared", *replicas)
    for partition, (leader, *_) in enumerate(replicas):
        with Wire(nodes.cluster.address(leader), timeout=60) as wire:
            answer = wire.produce("shared", batch(b"%d" % partition), partition=partition, acks=-1)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    nodes.cluster.in_sync("shared")
    assert not nodes.cluster.complaints()


def test_the_principal_of_a_client_reaches_the_active_controller(nodes: SecuredNodes, tmp_path: Path) -> None:
    """Through each broker: one of them is on the node of the active controller, the others forward in an Envelope."""
    for number in NUMBERS:
        with nodes.alice(number, tmp_path) as wire:
            refused = wire.try_create(f"through-{number}", 1, 3, {})
            assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    allowed = [
        AclCreation(
            resource_type=TOPIC_RESOURCE,
            resource_name=f"through-{number}",
            resource_pattern_type=LITERAL,
            principal="User:alice",
            host="*",
            operation=CREATE,
            permission_type=ALLOW,
        )
        for number in NUMBERS
    ]
    with Wire(nodes.cluster.address(1), timeout=60) as wire:
        answers = wire.call(CreateAclsRequest(creations=allowed)).results
        assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * len(NUMBERS)
    for number in NUMBERS:

        def is_made(number: int = number) -> bool:
            # The brokers load the rules a moment after the controller.
            with nodes.alice(number, tmp_path) as wire:
                made = wire.try_create(f"through-{number}", 1, 3, {})
            return made.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

        eventually(f"alice makes a topic through node {number}", is_made)


def test_another_controller_goes_on(nodes: SecuredNodes) -> None:
    nodes.cluster.create("outlives", (1, 2, 3))
    active = nodes.cluster.led_by(*NUMBERS)
    nodes.cluster.kill(active)
    others = [number for number in NUMBERS if number != active]
    nodes.cluster.led_by(*others)

    def led() -> int | None:
        leader = nodes.cluster.leaders("outlives")[0]
        return leader if leader != active else None

    leader = eventually("another broker leads", led, seconds=60)
    with Wire(nodes.cluster.address(leader), timeout=60) as wire:
        assert wire.produce("outlives", batch(b"after"), acks=-1).error_code == ErrorCode.NONE
    nodes.cluster.start(active)
    nodes.cluster.in_sync("outlives")
