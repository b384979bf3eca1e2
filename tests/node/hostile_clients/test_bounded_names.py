"""Names from clients over sockets, as long as the protocol allows and always different, do not stay in a node's memory.

Each kind of request would fill at least 20 MB if the node kept the names, and the node may grow by half of that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from pykbroker_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykbroker_wire.messages.delete_groups import DeleteGroupsRequest
from pykbroker_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker_wire.messages.describe_groups import DescribeGroupsRequest
from pykbroker_wire.messages.describe_transactions import DescribeTransactionsRequest
from pykbroker_wire.messages.end_txn import EndTxnRequest
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.heartbeat import HeartbeatRequest
from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest
from pykbroker_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from pykbroker_wire.messages.sasl_handshake import SaslHandshakeRequest
from pykbroker_wire.messages.sync_group import SyncGroupRequest
from testkit.nodes.processes import Process, format_combined
from testkit.nodes.wire import Wire
from testkit.ports import steady_port

pytestmark = pytest.mark.slow
MB: Final = 1 << 20
#: for a name that has no bound of its own
LONG: Final = 16_000
IN_FLIGHT: Final = 50
GROWTH: Final = 10 * MB
TOPIC_NAMES: Final = 1_000
#: more than max.incremental.fetch.session.cache.slots
SESSIONS: Final = 1_100
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


def long_name(number: int, length: int = LONG) -> str:
    return f"n{number}".ljust(length, "x")


def topics(number: int) -> list[str]:
    return [f"t{number}-{each}".ljust(249, "x") for each in range(TOPIC_NAMES)]


def fetch(number: int) -> FetchRequest:
    """A new session, with partitions that do not exist."""
    partitions = [FetchPartition(partition=each, partition_max_bytes=1, current_leader_epoch=-1) for each in range(100)]
    names = [FetchTopic(topic=long_name(number, 249), partitions=partitions)]
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, session_id=0, session_epoch=0, topics=names)


#: the request, the version (-1 for the newest), and the number of requests in the short form
Kind = tuple[Callable[[int], Any], int, int]
KINDS: Final[dict[str, Kind]] = {
    "client id": (lambda number: MetadataRequest(topics=[]), -1, 1_300),
    "software": (
        lambda number: ApiVersionsRequest(client_software_name=long_name(number), client_software_version="1"),
        3,
        1_300,
    ),
    "coordinator": (
        lambda number: FindCoordinatorRequest(key_type=number % 2, coordinator_keys=[long_name(number)]),
        -1,
        1_300,
    ),
    "heartbeat": (
        lambda number: HeartbeatRequest(group_id=long_name(number), member_id=long_name(number), generation_id=1),
        -1,
        1_300,
    ),
    "sync": (lambda number: SyncGroupRequest(group_id=long_name(number), member_id="m", generation_id=1), -1, 1_300),
    "leave": (
        lambda number: LeaveGroupRequest(group_id=long_name(number), members=[MemberIdentity(member_id="m")]),
        -1,
        1_300,
    ),
    "member": (
        lambda number: ConsumerGroupHeartbeatRequest(group_id=long_name(number), member_id="m", member_epoch=5),
        -1,
        1_300,
    ),
    "offsets": (
        lambda number: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=long_name(number), topics=None)]),
        9,
        1_300,
    ),
    "groups": (lambda number: DescribeGroupsRequest(groups=[long_name(number)]), -1, 1_300),
    "deleted groups": (lambda number: DeleteGroupsRequest(groups_names=[long_name(number)]), -1, 1_300),
    "transactions": (lambda number: DescribeTransactionsRequest(transactional_ids=[long_name(number)]), -1, 1_300),
    "transaction's end": (
        lambda number: EndTxnRequest(transactional_id=long_name(number), producer_id=number, producer_epoch=0),
        -1,
        1_300,
    ),
    "producer id": (
        lambda number: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
        -1,
        1_300,
    ),
    "topics": (
        lambda number: MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topics(number)], allow_auto_topic_creation=False
        ),
        -1,
        80,
    ),
    "configured topics": (
        lambda number: DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=2, resource_name=name) for name in topics(number)]
        ),
        -1,
        80,
    ),
    "fetch sessions": (fetch, 12, 1_300),
}


#: kinds that differ little from another one, and run only in the long form
REPEATED: Final = {"sync", "leave", "deleted groups", "transactions", "transaction's end", "configured topics"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, str, str]]:
    """The process, the plain listener's address, and that of the listener with SCRAM."""
    folder = tmp_path_factory.mktemp("node")
    plain, sasl = steady_port(), steady_port()
    points = f"PLAINTEXT://localhost:{plain},SASL://localhost:{sasl}"
    properties = {
        "log.dirs": folder / "data",
        "listeners": f"{points},CONTROLLER://localhost:0",
        "advertised.listeners": points,
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
        "connection.failed.authentication.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        # Every decision is made, and allowed, so names come as far as they can.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with Process(folder / "log", str(format_combined(folder, properties))) as process:
        process.ready()
        with Wire(f"localhost:{plain}", timeout=60) as wire:
            for key_type in (0, 1):
                wire.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a"]))
        yield process, f"localhost:{plain}", f"localhost:{sasl}"


def resident(process: Process) -> int:
    """Return bytes."""
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def pipelined(address: str, kind: Kind, numbers: range) -> None:
    """Send requests, each with its own client id."""
    make, version, _ = kind
    with Wire(address, timeout=60) as wire:
        for start in range(numbers.start, numbers.stop, IN_FLIGHT):
            asked = range(start, min(start + IN_FLIGHT, numbers.stop))
            frames = []
            for number in asked:
                wire.client_id = long_name(number)
                frames.append(wire.frame(make(number), None if version < 0 else version))
            wire.socket.sendall(b"".join(frames))
            for _ in asked:
                wire.read_frame()


def run(node: tuple[Process, str, str], name: str, factor: int) -> None:
    process, plain, _ = node
    kind = KINDS[name]
    count = kind[2] * factor
    # First fill up everything that is bounded.
    pipelined(plain, kind, range(1, 1 + (SESSIONS if kind[0] is fetch else 100)))
    before = resident(process)
    pipelined(plain, kind, range(1_000_000, 1_000_000 + count))
    grown = resident(process) - before
    assert grown < GROWTH, f"{name}: {count} requests left {grown / MB:.0f} MB"


@pytest.mark.parametrize("name", [name for name in KINDS if name not in REPEATED])
def test_names_of_clients_do_not_stay(node: tuple[Process, str, str], name: str) -> None:
    run(node, name, 1)


@pytest.mark.long(amount="100,000 requests or names of 16 kinds")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", KINDS)
def test_100000_names_of_clients_do_not_stay(node: tuple[Process, str, str], name: str) -> None:
    run(node, name, 77)


def try_users(address: str, numbers: range) -> None:
    for number in numbers:
        with Wire(address, timeout=60) as wire:
            wire.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
            token = f"n,,n={long_name(number)},r=abc".encode()
            answer = wire.call(SaslAuthenticateRequest(auth_bytes=token))
            assert answer.auth_bytes.startswith(b"r=abc")


@pytest.mark.parametrize(
    "count", [700, pytest.param(100_000, marks=[pytest.mark.long(amount="100,000 users"), pytest.mark.timeout(3600)])]
)
def test_names_of_users_do_not_stay(node: tuple[Process, str, str], count: int) -> None:
    process, _, sasl = node
    try_users(sasl, range(100))
    before = resident(process)
    try_users(sasl, range(1000, 1000 + count))
    assert resident(process) - before < GROWTH
