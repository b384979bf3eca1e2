"""Before a node has loaded the ACLs it allows nothing that they deny, although everything is allowed without ACLs.
Clients send requests during each start, on listeners that early.start.listeners names."""

from __future__ import annotations

import select
import socket
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pykbroker.security.acl import PatternType, Permission
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from pykbroker_wire.messages.create_acls import AclCreation, CreateAclsRequest
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.describe_acls import DescribeAclsRequest
from testkit.background import InBackground
from testkit.nodes.processes import Process, run_here, write_properties
from testkit.nodes.secured_trio import PLAIN, log_in
from testkit.nodes.trio import CLUSTER_ID
from testkit.nodes.wire import Closed, Wire, batch
from testkit.ports import steady_port

pytestmark = pytest.mark.slow
PATIENCE_S = 120
OTHER_ACLS = 3_000
ANY = DescribeAclsRequest(
    resource_type_filter=Resource.ANY,
    resource_name_filter=None,
    pattern_type_filter=PatternType.ANY,
    principal_filter=None,
    host_filter=None,
    operation=Operation.ANY,
    permission_type=Permission.ANY,
)
SECURED = {
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "CLIENTS",
    "controller.listener.names": "CONTROLLER",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN} required username="admin" password="admin-secret" '
    'user_admin="admin-secret" user_alice="alice-secret";',
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "offsets.topic.replication.factor": 1,
}


def deny(principal: str, resource: Resource, name: str) -> AclCreation:
    return AclCreation(
        resource_type=resource,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal=principal,
        host="*",
        operation=Operation.ALL,
        permission_type=Permission.DENY,
    )


def set_up(address: str) -> None:
    """The last of many ACLs are those that deny."""
    with Wire(address, timeout=60) as admin:
        log_in(admin, "admin", "admin-secret", "PLAIN")
        admin.create("secret")
        many = [deny("User:bob", Resource.TOPIC, f"topic-{number}") for number in range(OTHER_ACLS)]
        for creations in (
            *(many[start : start + 500] for start in range(0, OTHER_ACLS, 500)),
            [
                deny("User:alice", Resource.TOPIC, "secret"),
                deny("User:ANONYMOUS", Resource.CLUSTER, CLUSTER_NAME),
                deny("User:ANONYMOUS", Resource.TOPIC, "forged"),
            ],
        ):
            answer = admin.call(CreateAclsRequest(creations=creations))
            assert {result.error_code for result in answer.results} == {ErrorCode.NONE}


class Asking(InBackground):
    """A client that sends requests again and again, whatever happens to its connection. `answers`: its responses."""

    def __init__(self, ask: Callable[[], list[int]]) -> None:
        super().__init__(PATIENCE_S)
        self._ask = ask
        self.answers: Counter[ErrorCode] = Counter()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.answers.update(map(ErrorCode, self._ask()))
            except (OSError, Closed):
                # The node is down, not ready, or does not serve this early.
                self._stop.wait(0.001)

    def is_answered_again(self, known: int) -> None:
        deadline = threading.Event()
        for _ in range(PATIENCE_S * 20):
            if self.answers.total() > known:
                return
            deadline.wait(0.05)
        raise AssertionError("the client is not answered")


def ask_as_alice(address: str) -> list[int]:
    with Wire(address, timeout=60) as wire:
        log_in(wire, "alice", "alice-secret", "PLAIN")
        return [
            wire.metadata("secret").topics[0].error_code,
            wire.produce("secret", batch(b"x")).error_code,
            wire.fetch("secret", max_wait_ms=0).error_code,
        ]


def ask_controller(address: str) -> list[int]:
    topic = CreatableTopic(name="forged", num_partitions=1, replication_factor=1)
    with Wire(address, timeout=60) as wire:
        return [
            wire.call(ANY).error_code,
            wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000)).topics[0].error_code,
        ]


def test_clients_that_ask_through_each_start(tmp_path: Path) -> None:
    clients, controller = (f"127.0.0.1:{steady_port()}" for _ in range(2))
    file = write_properties(
        tmp_path / "server.properties",
        {
            **SECURED,
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": f"CLIENTS://{clients},CONTROLLER://{controller}",
            "early.start.listeners": "CLIENTS,CONTROLLER",
            "controller.quorum.bootstrap.servers": controller,
            "super.users": "User:admin",
            "log.dirs": tmp_path / "data",
        },
    )
    assert run_here("format", str(file), "--standalone").returncode == 0
    with Process(tmp_path / "log", str(file)) as process:
        process.ready()
        set_up(clients)
    on_clients, on_controller = Asking(lambda: ask_as_alice(clients)), Asking(lambda: ask_controller(controller))
    with on_clients.going_on(), on_controller.going_on():
        for _ in range(3):
            known = [asking.answers.total() for asking in (on_clients, on_controller)]
            with Process(tmp_path / "log", str(file)) as process:
                process.ready()
                for asking, count in zip((on_clients, on_controller), known, strict=True):
                    asking.is_answered_again(count)
    assert set(on_clients.answers) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert set(on_controller.answers) == {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }


def test_a_broker_whose_controller_is_away_answers_nothing(tmp_path: Path) -> None:
    """Its directory has the ACLs, and clients wait for it; it does not know which of the ACLs still hold."""
    broker, controller = steady_port(), steady_port()
    common = {
        **SECURED,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    own = {
        1: {"process.roles": "controller", "listeners": f"CONTROLLER://127.0.0.1:{controller}"},
        2: {
            "process.roles": "broker",
            "listeners": f"CLIENTS://127.0.0.1:{broker}",
            "early.start.listeners": "CLIENTS",
        },
    }
    files = []
    for number, each in own.items():
        settings = {**common, **each, "node.id": number, "log.dirs": tmp_path / f"data{number}"}
        files.append(write_properties(tmp_path / f"{number}.properties", settings))
        assert run_here("format", str(files[-1]), "--cluster-id", CLUSTER_ID).returncode == 0
    address = f"127.0.0.1:{broker}"
    with (
        Process(tmp_path / "1.log", str(files[0])) as first,
        Process(tmp_path / "2.log", str(files[1])) as second,
    ):
        first.ready(PATIENCE_S)
        second.ready(PATIENCE_S)
        set_up(address)
    with socket.create_server(("127.0.0.1", controller)) as deaf:
        deaf.settimeout(PATIENCE_S)
        with Process(tmp_path / "2.log", str(files[1])) as second:
            # It looks for the controller, so its ports are bound.
            asking = [deaf.accept()[0] for _ in range(2)]
            wire = Wire(address, timeout=PATIENCE_S)
            wire.send(ApiVersionsRequest(), 0)
            for one in asking:
                one.close()
            asking = [deaf.accept()[0] for _ in range(2)]
            assert not select.select([wire.socket], [], [], 0)[0], "it answers before it knows anything"
            for one in asking:
                one.close()
            deaf.close()
            with Process(tmp_path / "1.log", str(files[0])) as first:
                first.ready(PATIENCE_S)
                second.ready(PATIENCE_S)
                # The waiting requests are answered now.
                assert wire.read(4)
                wire.close()
                assert set(ask_as_alice(address)) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
