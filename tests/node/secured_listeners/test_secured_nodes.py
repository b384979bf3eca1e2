"""Several nodes with TLS and SASL, and forwarded principals, elections, and settings that cannot work."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from pykbroker.config.load import development_profile
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.add_raft_voter import AddRaftVoterRequest
from pykbroker_wire.messages.add_raft_voter import Listener as AddedListener
from pykbroker_wire.messages.create_acls import AclCreation, CreateAclsRequest
from pykbroker_wire.messages.describe_cluster import DescribeClusterRequest
from testkit.acting import acts
from testkit.certificates import client_context, client_identity, node_properties
from testkit.nodes.nodes import eventually, eventually_holds
from testkit.nodes.processes import Process, run, run_here, write_properties
from testkit.nodes.secured_trio import CONTROLLERS, PLAIN, SCRAM, SecuredTrio, log_in
from testkit.nodes.trio import NUMBERS
from testkit.nodes.wire import Closed, Wire, batch
from testkit.ports import steady_port
from tests.node.secured_listeners.test_tls_listeners import Secured

pytestmark = pytest.mark.slow
TOPIC_RESOURCE, LITERAL, ANY_CREATE, ALLOW = 2, 3, 5, 3


@acts(
    broker=("sasl.mechanism.controller.protocol",),
    run_shows=lambda given: (given["controllers"] == "PLAIN" and ("sasl.mechanism.controller.protocol",)) or (),
)
@pytest.mark.parametrize("controllers", list(CONTROLLERS))
def test_three_nodes_with_acls(controllers: str, tmp_path: Path) -> None:
    """The active controller authorizes the client of a follower's broker by the client's own principal, and nodes by
    theirs. The quorum and the partitions survive the end of the active controller."""
    with SecuredTrio(tmp_path, controllers) as trio:
        active = trio.active()
        follower = next(number for number in NUMBERS if number != active)
        for number in (active, follower):
            with trio.wire(number, "alice") as wire:
                refused = wire.try_create("of-alice", 1, 3, {})
                assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        log = (tmp_path / f"{active}.log").read_text()
        assert re.search("Principal = User:alice is Denied operation = CREATE", log)
        with trio.wire(follower) as wire:
            allowed = AclCreation(
                resource_type=TOPIC_RESOURCE,
                resource_name="of-alice",
                resource_pattern_type=LITERAL,
                principal="User:alice",
                host="*",
                operation=ANY_CREATE,
                permission_type=ALLOW,
            )
            assert wire.call(CreateAclsRequest(creations=[allowed])).results[0].error_code == ErrorCode.NONE
        with trio.wire(follower, "alice") as wire:
            assert wire.try_create("of-alice", 1, 3, {}).error_code == ErrorCode.NONE
            assert wire.try_create("other", 1, 3, {}).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with trio.wire(follower) as wire:
            leader = trio_leader_of(wire, "of-alice")
        with trio.wire(leader) as wire:
            for number in range(3):
                answer = wire.produce("of-alice", batch(b"%d" % number), acks=-1)
                assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number)
        trio.kill(active)
        survivor = trio.living()[0]
        assert trio.active(but=active) != active
        with trio.wire(survivor) as wire:
            leader = trio_leader_of(wire, "of-alice", not_by=active)
        with trio.wire(leader) as wire:
            eventually_holds(wire, "of-alice", [b"0", b"1", b"2"])
            assert wire.produce("of-alice", batch(b"3"), acks=-1).error_code == ErrorCode.NONE


def trio_leader_of(wire: Wire, topic: str, not_by: int = -1) -> int:
    def look() -> int | None:
        (found,) = wire.metadata(topic).topics
        if found.error_code == ErrorCode.NONE and found.partitions[0].leader_id not in (-1, not_by):
            return int(found.partitions[0].leader_id)
        return None

    return eventually("the partition has a leader", look)


# Settings that stop the start.

NODE = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "listener.name.controller.sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.controller.scram-sha-256.sasl.jaas.config": f'{SCRAM} required username="c" password="c-secret";',
    "sasl.mechanism.controller.protocol": "SCRAM-SHA-256",
}


def refused(folder: Path, changed: Mapping[str, object], *, format_with: tuple[str, ...] = ()) -> str:
    """Return the only line with which the node refuses to start."""
    whole = {**NODE, "log.dirs": folder / "data", **changed}
    file = write_properties(folder / "server.properties", {key: value for key, value in whole.items() if value})
    if format_with:
        done = run_here("format", str(file), "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qk", *format_with)
        assert done.returncode == 0, done.stderr
    done = run("start", *(() if format_with else ("--format",)), str(file))
    assert done.returncode == 1
    assert "secret" not in done.stderr
    return done.stderr


def test_scram_between_voters_stops_the_start(tmp_path: Path) -> None:
    """Its users are in the log that the voters cannot read yet: Apache Kafka's controllers would elect no leader."""
    static = {
        "controller.quorum.bootstrap.servers": None,
        "controller.quorum.voters": "1@localhost:9093,2@localhost:9094",
    }
    said = refused(tmp_path, static)
    assert "with 2 voters, controllers log in to each other by SCRAM-SHA-256" in said
    voters = ",".join(f"{number}@localhost:{9092 + number}:MkU3OEVBNTcwNTJENDM2Q{number}" for number in (1, 2, 3))
    (tmp_path / "dynamic").mkdir()
    said = refused(tmp_path / "dynamic", {}, format_with=("--initial-controllers", voters))
    assert "with 3 voters" in said


def test_a_controller_with_scram_joins_no_others(tmp_path: Path) -> None:
    joining = {"process.roles": "controller", "controller.quorum.auto.join.enable": "true"}
    alone = {"listeners": "CONTROLLER://localhost:0"}
    said = refused(tmp_path, {**joining, **alone}, format_with=("--no-initial-controllers",))
    assert "with 2 voters, controllers log in to each other by SCRAM-SHA-256" in said


@pytest.mark.slow
def test_no_voter_is_added_to_one_with_scram(tmp_path: Path) -> None:
    config = {**development_profile(str(tmp_path / "data"), 0), **{key: str(value) for key, value in NODE.items()}}
    del config["advertised.listeners"]
    request = AddRaftVoterRequest(
        cluster_id=None,
        voter_id=2,
        voter_directory_id=b"d" * 16,
        listeners=[AddedListener(name="CONTROLLER", host="localhost", port=9094)],
    )
    with Secured(tmp_path / "data", {}, config=config) as node, Wire(node.address("PLAINTEXT")) as wire:
        answer = wire.call(request)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message.startswith(
        "New voter ReplicaKey(id=2, directoryId=ZGRkZGRkZGRkZGRkZGRkZA) is refused: "
    )
    assert "sasl.mechanism.controller.protocol" in answer.error_message


def test_sasl_of_controllers_needs_a_mechanism_that_is_served(tmp_path: Path) -> None:
    """The default is GSSAPI, as in Apache Kafka."""
    said = refused(tmp_path, {"sasl.mechanism.controller.protocol": None})
    assert "Invalid value GSSAPI for configuration sasl.mechanism.controller.protocol" in said


def test_a_broker_logs_in_by_scram_to_the_only_controller(tmp_path: Path) -> None:
    controller, broker = steady_port(), steady_port()
    common = {
        **node_properties(),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL",
        "sasl.mechanism.controller.protocol": "SCRAM-SHA-256",
        "listener.name.controller.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.controller.scram-sha-256.sasl.jaas.config": f'{SCRAM} required username="c" '
        'password="c-secret";',
        "offsets.topic.replication.factor": 1,
    }
    own = {
        "controller": {
            "process.roles": "controller",
            "node.id": 1,
            "listeners": f"CONTROLLER://127.0.0.1:{controller}",
        },
        "broker": {"process.roles": "broker", "node.id": 2, "listeners": f"PLAINTEXT://127.0.0.1:{broker}"},
    }
    files = {}
    for name, each in own.items():
        settings = {**common, **each, "log.dirs": tmp_path / name}
        files[name] = write_properties(tmp_path / f"{name}.properties", settings)
        user = ("--add-scram", "SCRAM-SHA-256=[name=c,password=c-secret]")
        done = run_here("format", str(files[name]), "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qk", *user)
        assert done.returncode == 0, done.stderr
    with (
        Process(tmp_path / "controller.log", str(files["controller"])) as first,
        Process(tmp_path / "broker.log", str(files["broker"])) as second,
    ):
        first.ready(60)
        second.ready(60)
        with Wire(f"127.0.0.1:{broker}", timeout=60) as wire:
            wire.create("t")
            assert wire.produce("t", batch(b"a")).error_code == ErrorCode.NONE


# Clients of a controller's listener.

CONTROLLER = {
    "listener.security.protocol.map": "SSL:SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.ssl.client.auth": "required",
    "listener.name.controller.plain.sasl.jaas.config": f'{PLAIN} required username="c" password="c-secret" '
    'user_c="c-secret" user_alice="alice-secret";',
}


def test_a_controller_answers_only_clients_that_have_proved_their_user(tmp_path: Path) -> None:
    with Secured(tmp_path / "data", {**node_properties(), **CONTROLLER}) as node:
        address, tls = node.address("CONTROLLER"), client_context(tmp_path, client_identity())
        with Wire(address, tls=tls) as wire:
            log_in(wire, "alice", "alice-secret", "PLAIN")
            assert wire.call(DescribeClusterRequest(endpoint_type=2)).cluster_id
        with Wire(address, tls=tls) as wire, pytest.raises(Closed):
            wire.call(DescribeClusterRequest(endpoint_type=2))
        with Wire(address, tls=client_context(tmp_path)) as wire, pytest.raises((Closed, OSError)):
            log_in(wire, "alice", "alice-secret", "PLAIN")
        with Wire(address) as wire, pytest.raises(Closed):
            log_in(wire, "alice", "alice-secret", "PLAIN")


def test_silent_clients_of_a_controller_end_and_count(tmp_path: Path) -> None:
    """They end before TLS, in its middle, and before SASL."""
    properties = {
        **node_properties(),
        **CONTROLLER,
        "listener.name.controller.ssl.client.auth": "none",
        "pykbroker.connection.request.receive.timeout.ms": "500",
        "max.connections.per.ip": "3",
    }
    with Secured(tmp_path / "data", properties) as node:
        host, _, port = node.address("CONTROLLER").rpartition(":")
        silent = [socket.create_connection((host, int(port)), 60) for _ in range(3)]
        silent[0].sendall(b"\x16\x03\x01\x01")
        silent[1] = client_context(tmp_path).wrap_socket(silent[1], server_hostname=host)
        # This one is too many.
        silent.append(socket.create_connection((host, int(port)), 60))
        assert silent[3].recv(1) == b""
        for each in silent:
            assert each.recv(1) == b""
            each.close()
