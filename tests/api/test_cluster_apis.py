"""Handlers about topics, configuration and the cluster, against a controller and a broker without sockets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from pykbroker.api import (
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    describe_user_scram_credentials,
    elect_leaders,
    incremental_alter_configs,
    list_config_resources,
    list_partition_reassignments,
    metadata,
    unregister_broker,
    update_features,
)
from pykbroker.dispatch.context import RequestContext
from pykbroker.dispatch.peers import ForwardedPeer
from pykbroker.dispatch.topic_creations import TopicCreations
from pykbroker.metadata.image import Endpoint
from pykbroker.runtime.line_limit import LineLimit
from pykbroker.security.authorizer import AllowAll, Asker, Operation, Resource
from pykbroker.security.peer_session import ANONYMOUS, PeerSession
from pykbroker.topic_creation import auto_create
from pykbroker_wire.apis import APIS
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages import alter_configs as ac
from pykbroker_wire.messages import alter_partition_reassignments as apr
from pykbroker_wire.messages import alter_user_scram_credentials as aus
from pykbroker_wire.messages import create_acls as ca
from pykbroker_wire.messages import create_partitions as cp
from pykbroker_wire.messages import create_topics as ct
from pykbroker_wire.messages import delete_acls as da
from pykbroker_wire.messages import delete_topics as dt
from pykbroker_wire.messages import describe_acls as dea
from pykbroker_wire.messages import describe_client_quotas as dq
from pykbroker_wire.messages import describe_cluster as dcl
from pykbroker_wire.messages import describe_configs as dc
from pykbroker_wire.messages import describe_topic_partitions as dtp
from pykbroker_wire.messages import describe_user_scram_credentials as ds
from pykbroker_wire.messages import elect_leaders as el
from pykbroker_wire.messages import incremental_alter_configs as ia
from pykbroker_wire.messages import list_config_resources as lc
from pykbroker_wire.messages import list_partition_reassignments as lp
from pykbroker_wire.messages import metadata as md
from pykbroker_wire.messages import unregister_broker as ub
from pykbroker_wire.messages import update_features as uf
from tests.controller.world import CLUSTER_ID, DirectChannel, World
from tests.deny_all import DenyAll
from tests.node_to_controller.membership import Membership
from tests.node_to_controller.test_lifecycle import channel

NO_OPERATIONS = -(2**31)
ZERO = bytes(16)


class Node:
    """A running broker and its controller; `ask` runs a handler, and encodes and decodes its response."""

    def __init__(self, world: World, lifecycle: Membership) -> None:
        self.world = world
        self.lifecycle = lifecycle
        self.services = world.services()
        self.services.authorizer = AllowAll()
        self.services.quorum = SimpleNamespace(is_only_voter=True)
        self.services.topic_creations = TopicCreations(LineLimit(world.runtime.loop.time))
        self.services.controller_channel = DirectChannel(
            lambda request: create_topics.handle(self.context(request, 7, "CONTROLLER"), request)
        )

    def context(self, request: Any, version: int | None = None, listener: str = "PLAINTEXT") -> RequestContext[Any]:
        peer: Any = SimpleNamespace(
            session=ANONYMOUS,
            client_host="127.0.0.1",
            listener_name=listener,
            security_protocol="PLAINTEXT",
        )
        chosen = request.MAX_VERSION if version is None else version
        return RequestContext(peer, self.services, request.API_KEY, chosen, 0, "c", 0)

    async def ask(self, handler: Any, request: Any, version: int | None = None) -> Any:
        ctx = self.context(request, version)
        answer = handler.handle(ctx, request)
        if isinstance(answer, asyncio.Future):
            answer = await answer
        again, _ = type(answer).decode(memoryview(answer.encode_bytes(ctx.api_version)), 0, ctx.api_version)
        return again

    async def create(self, name: str, partitions: int = 1) -> bytes:
        topic = ct.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        response = await self.ask(create_topics, ct.CreateTopicsRequest(topics=[topic]))
        assert response.topics[0].error_code == 0
        topic_id: bytes = response.topics[0].topic_id
        return topic_id


@pytest_asyncio.fixture(loop_scope="function")
async def node() -> AsyncIterator[Node]:
    world = World()
    lifecycle = Membership(world.runtime, world.config, channel(world), world.loader, CLUSTER_ID)
    await world.lead()
    lifecycle.start([Endpoint("PLAINTEXT", "localhost", 9092, 0)])
    await lifecycle.ready_to_unfence()
    yield Node(world, lifecycle)
    lifecycle.stop()
    world.close()


def names(*wanted: str | None, topic_id: bytes = ZERO, **fields: Any) -> md.MetadataRequest:
    topics = [md.MetadataRequestTopic(name=name, topic_id=topic_id) for name in wanted]
    return md.MetadataRequest(topics=topics, **{"allow_auto_topic_creation": False} | fields)


@pytest.mark.asyncio
async def test_metadata_by_name_and_id(node: Node) -> None:
    topic_id = await node.create("t", 2)
    for request in (names("t"), names(None, topic_id=topic_id), md.MetadataRequest(topics=None)):
        response = await node.ask(metadata, request)
        assert (response.cluster_id, response.controller_id) == (CLUSTER_ID, 1)
        assert [(b.node_id, b.host, b.port, b.rack) for b in response.brokers] == [(1, "localhost", 9092, None)]
        (topic,) = response.topics
        assert (topic.error_code, topic.name, topic.topic_id, topic.is_internal) == (0, "t", topic_id, False)
        assert topic.topic_authorized_operations == NO_OPERATIONS
        assert [p.partition_index for p in topic.partitions] == [0, 1]
        partition = topic.partitions[0]
        assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 0)
        assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1], [1], [])


@pytest.mark.asyncio
async def test_metadata_errors(node: Node) -> None:
    response = await node.ask(metadata, names("nope", "a b", "__consumer_offsets"))
    found = [(t.error_code, t.name, t.is_internal) for t in response.topics]
    assert found == [(3, "nope", False), (17, "a b", False), (3, "__consumer_offsets", True)]
    (unknown,) = (await node.ask(metadata, names(None, topic_id=b"u" * 16), 12)).topics
    assert (unknown.error_code, unknown.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    (refused,) = (await node.ask(metadata, names("x", topic_id=b"u" * 16), 10)).topics
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert (await node.ask(metadata, md.MetadataRequest(topics=[]), 4)).topics == []
    assert (await node.ask(metadata, md.MetadataRequest(topics=[]), 0)).topics == []


@pytest.mark.asyncio
async def test_metadata_of_a_broker_that_left(node: Node) -> None:
    await node.create("t")
    await node.lifecycle.begin_controlled_shutdown()
    response = await node.ask(metadata, names("t"))
    partition = response.topics[0].partitions[0]
    assert response.brokers == []
    assert response.controller_id == -1
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (partition.replica_nodes, partition.offline_replicas) == ([1], [1])
    old = (await node.ask(metadata, names("t", allow_auto_topic_creation=True), 0)).topics[0].partitions[0]
    assert (old.replica_nodes, old.isr_nodes) == ([], [])


@pytest.mark.asyncio
async def test_auto_creation(node: Node) -> None:
    request = names("auto", "..", allow_auto_topic_creation=True)
    for _ in range(2):
        first = await node.ask(metadata, request)
        assert [t.error_code for t in first.topics] == [3, 17]
    assert len(node.services.controller_channel.sent) == 1
    await node.world.loader.when(lambda image: "auto" in image.topics.by_name)
    assert (await node.ask(metadata, names("auto"))).topics[0].error_code == 0


@pytest.mark.asyncio
async def test_ensure_topic(node: Node) -> None:
    futures = [auto_create.ensure_topic(node.services, "__consumer_offsets") for _ in range(3)]
    assert [await future for future in futures] == [ErrorCode.NONE] * 3
    image = node.world.loader.image
    assert len(image.topics.by_name["__consumer_offsets"].partitions) == 50
    configs = image.configs.of(2, "__consumer_offsets")
    assert configs == {"cleanup.policy": "compact", "segment.bytes": "104857600", "compression.type": "producer"}
    assert await auto_create.ensure_topic(node.services, "__consumer_offsets") is ErrorCode.NONE
    assert await auto_create.ensure_topic(node.services, "a b") is ErrorCode.INVALID_TOPIC_EXCEPTION
    node.world.controller.stop()
    assert await auto_create.ensure_topic(node.services, "late") is ErrorCode.LEADER_NOT_AVAILABLE


@pytest.mark.asyncio
async def test_duplicates_in_create_topics(node: Node) -> None:
    topics = [ct.CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in ("a", "a", "b")]
    topics.append(ct.CreatableTopic(name="__cluster_metadata", num_partitions=1, replication_factor=1))
    response = await node.ask(create_topics, ct.CreateTopicsRequest(topics=topics))
    found = {t.name: t.error_code for t in response.topics}
    assert found == {"b": 0, "a": ErrorCode.INVALID_REQUEST, "__cluster_metadata": ErrorCode.INVALID_REQUEST}


@pytest.mark.asyncio
async def test_delete_topics(node: Node) -> None:
    topic_id = await node.create("t")

    async def delete(*states: tuple[str | None, bytes]) -> set[tuple[str | None, int]]:
        request = dt.DeleteTopicsRequest(topics=[dt.DeleteTopicState(name=n, topic_id=i) for n, i in states])
        response = await node.ask(delete_topics, request)
        return {(r.name, r.error_code) for r in response.responses}

    assert await delete(("t", ZERO), ("t", ZERO)) == {("t", 42)}
    assert await delete((None, ZERO), ("t", topic_id)) == {(None, 42), ("t", 42)}
    assert await delete(("t", ZERO), (None, topic_id)) == {("t", 42)}
    assert await delete(("nope", ZERO), (None, b"u" * 16)) == {("nope", 3), (None, 100)}
    assert "t" in node.world.loader.image.topics.by_name
    assert await delete((None, topic_id)) == {("t", 0)}
    assert not node.world.loader.image.topics.by_name
    old = await node.ask(delete_topics, dt.DeleteTopicsRequest(topic_names=["t"]), 3)
    assert [(r.name, r.error_code) for r in old.responses] == [("t", 3)]


@pytest.mark.asyncio
async def test_configs_through_the_wire(node: Node) -> None:
    await node.create("t")
    configs = [ia.AlterableConfig(name="retention.ms", config_operation=0, value="77")]
    resources = [
        ia.AlterConfigsResource(resource_type=2, resource_name="t", configs=configs),
        ia.AlterConfigsResource(resource_type=2, resource_name="u", configs=configs * 2),
    ]
    request = ia.IncrementalAlterConfigsRequest(resources=resources)
    response = await node.ask(incremental_alter_configs, request)
    assert [(r.resource_name, r.error_code) for r in response.responses] == [("t", 0), ("u", 42)]
    assert response.responses[0].error_message is None
    wanted = dc.DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=["retention.ms"])
    described = await node.ask(describe_configs, dc.DescribeConfigsRequest(resources=[wanted]))
    (result,) = described.results
    assert (result.error_code, result.error_message) == (0, "")
    (entry,) = result.configs
    assert (entry.value, entry.config_source, entry.documentation, entry.synonyms) == ("77", 1, None, [])
    old = ac.AlterConfigsResource(resource_type=2, resource_name="t", configs=[])
    legacy = await node.ask(alter_configs, ac.AlterConfigsRequest(resources=[old]))
    assert legacy.responses[0].error_code == 0
    # Only the configuration of a new cluster is left.
    assert list(node.world.loader.image.configs.by_resource) == [(4, "")]


@pytest.mark.asyncio
async def test_loggers(node: Node) -> None:
    logger = logging.getLogger("tests.a_logger")

    async def alter(name: str, operation: int, value: str | None) -> int:
        config = ia.AlterableConfig(name=name, config_operation=operation, value=value)
        resource = ia.AlterConfigsResource(resource_type=8, resource_name="1", configs=[config])
        response = await node.ask(incremental_alter_configs, ia.IncrementalAlterConfigsRequest(resources=[resource]))
        code: int = response.responses[0].error_code
        return code

    assert await alter("tests.a_logger", 0, "DEBUG") == 0
    assert logger.level == logging.DEBUG
    resource = dc.DescribeConfigsResource(resource_type=8, resource_name="1", configuration_keys=["tests.a_logger"])
    response = await node.ask(describe_configs, dc.DescribeConfigsRequest(resources=[resource]))
    assert [(e.name, e.value) for e in response.results[0].configs] == [("tests.a_logger", "DEBUG")]
    assert await alter("tests.a_logger", 1, None) == 0
    assert logger.level == logging.NOTSET
    assert await alter("tests.a_logger", 0, "LOUD") == ErrorCode.INVALID_CONFIG
    assert await alter("tests.no_logger", 0, "INFO") == ErrorCode.INVALID_CONFIG
    assert await alter("root", 1, None) == ErrorCode.INVALID_REQUEST
    assert await alter("root", 2, "INFO") == ErrorCode.INVALID_REQUEST


@pytest.mark.asyncio
async def test_describe_topic_partitions_in_pages(node: Node) -> None:
    await node.create("a", 3)
    await node.create("b", 2)

    async def page(limit: int, cursor: tuple[str, int] | None, *topics: str) -> tuple[Any, Any]:
        request = dtp.DescribeTopicPartitionsRequest(
            topics=[dtp.TopicRequest(name=name) for name in topics],
            response_partition_limit=limit,
            cursor=None if cursor is None else dtp.RequestCursor(topic_name=cursor[0], partition_index=cursor[1]),
        )
        response = await node.ask(describe_topic_partitions, request)
        after = response.next_cursor
        found = [(t.name, t.error_code, [p.partition_index for p in t.partitions]) for t in response.topics]
        return found, None if after is None else (after.topic_name, after.partition_index)

    assert await page(2, None) == ([("a", 0, [0, 1])], ("a", 2))
    assert await page(2, ("a", 2)) == ([("a", 0, [2]), ("b", 0, [0])], ("b", 1))
    assert await page(2, ("b", 1)) == ([("b", 0, [1])], None)
    assert await page(3, None, "a", "b") == ([("a", 0, [0, 1, 2])], ("b", 0))
    assert await page(9, None, "a", "nope") == ([("a", 0, [0, 1, 2]), ("nope", 3, [])], None)
    assert await page(9, ("a", -1), "a") == ([("a", 42, [])], None)
    assert await page(9, ("z", 0), "a") == ([("a", 42, [])], None)


@pytest.mark.asyncio
async def test_describe_cluster(node: Node) -> None:
    response = await node.ask(describe_cluster, dcl.DescribeClusterRequest())
    assert (response.error_code, response.error_message, response.cluster_id) == (0, None, CLUSTER_ID)
    assert (response.controller_id, [b.broker_id for b in response.brokers]) == (1, [1])
    assert response.cluster_authorized_operations == NO_OPERATIONS
    wrong = await node.ask(describe_cluster, dcl.DescribeClusterRequest(endpoint_type=2), 1)
    assert wrong.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    await node.lifecycle.begin_controlled_shutdown()
    assert (await node.ask(describe_cluster, dcl.DescribeClusterRequest())).brokers == []
    fenced = await node.ask(describe_cluster, dcl.DescribeClusterRequest(include_fenced_brokers=True))
    assert [(b.broker_id, b.is_fenced) for b in fenced.brokers] == [(1, True)]


@pytest.mark.asyncio
async def test_list_config_resources(node: Node) -> None:
    await node.create("t")

    async def listed(*types: int, version: int = 1) -> tuple[int, list[tuple[int, str]]]:
        request = lc.ListConfigResourcesRequest(resource_types=list(types))
        response = await node.ask(list_config_resources, request, version)
        return response.error_code, [(r.resource_type, r.resource_name) for r in response.config_resources]

    assert await listed() == (0, [(8, "1"), (4, "1"), (2, "t")])
    assert await listed(2, 2) == (0, [(2, "t")])
    assert await listed(99) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert await listed(version=0) == (0, [])


@pytest.mark.asyncio
async def test_not_controller(node: Node) -> None:
    request = ct.CreateTopicsRequest(topics=[ct.CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    node.world.controller.stop()
    response = await node.ask(create_topics, request)
    assert response.topics[0].error_code == ErrorCode.NOT_CONTROLLER
    # In an Envelope it is the Envelope's error, so that the broker looks for the new controller.
    peer = ForwardedPeer(PeerSession("User:x"), "127.0.0.1", "CONTROLLER", "PLAINTEXT")
    ctx = RequestContext(peer, node.services, 19, 7, 0, None, 0)
    with pytest.raises(KafkaError):
        await create_topics.handle(ctx, request)


FILTER: dict[str, Any] = {"resource_type_filter": 2, "operation": 1, "permission_type": 1}
ACL: dict[str, Any] = {"resource_type": 2, "resource_name": "x", "principal": "User:x", "host": "*"}
ACL |= {"operation": 3, "permission_type": 3}
TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_TOPIC_CONFIG: dict[str, Any] = {"resource_type": 2, "resource_name": "t"}
MOVED = apr.ReassignableTopic(name="t", partitions=[apr.ReassignablePartition(replicas=[1])])

DENIED: list[tuple[Any, Any, ErrorCode, str]] = [
    (create_topics, ct.CreateTopicsRequest(topics=[ct.CreatableTopic(name="n")]), TOPIC, "topics"),
    (delete_topics, dt.DeleteTopicsRequest(topics=[dt.DeleteTopicState(name="t")]), TOPIC, "responses"),
    (
        create_partitions,
        cp.CreatePartitionsRequest(topics=[cp.CreatePartitionsTopic(name="t", count=5)]),
        TOPIC,
        "results",
    ),
    (
        alter_configs,
        ac.AlterConfigsRequest(resources=[ac.AlterConfigsResource(**_TOPIC_CONFIG)]),
        TOPIC,
        "responses",
    ),
    (
        incremental_alter_configs,
        ia.IncrementalAlterConfigsRequest(resources=[ia.AlterConfigsResource(**_TOPIC_CONFIG)]),
        TOPIC,
        "responses",
    ),
    (
        describe_configs,
        dc.DescribeConfigsRequest(resources=[dc.DescribeConfigsResource(**_TOPIC_CONFIG)]),
        TOPIC,
        "results",
    ),
    (metadata, names("t"), TOPIC, "topics"),
    (
        describe_topic_partitions,
        dtp.DescribeTopicPartitionsRequest(topics=[dtp.TopicRequest(name="t")]),
        TOPIC,
        "topics",
    ),
    (list_config_resources, lc.ListConfigResourcesRequest(), CLUSTER, ""),
    (elect_leaders, el.ElectLeadersRequest(topic_partitions=None), CLUSTER, ""),
    (list_partition_reassignments, lp.ListPartitionReassignmentsRequest(), CLUSTER, ""),
    (alter_partition_reassignments, apr.AlterPartitionReassignmentsRequest(topics=[MOVED]), CLUSTER, ""),
    (unregister_broker, ub.UnregisterBrokerRequest(broker_id=1), CLUSTER, ""),
    (update_features, uf.UpdateFeaturesRequest(), CLUSTER, ""),
    (describe_client_quotas, dq.DescribeClientQuotasRequest(), CLUSTER, ""),
    (describe_user_scram_credentials, ds.DescribeUserScramCredentialsRequest(), CLUSTER, ""),
    (
        alter_user_scram_credentials,
        aus.AlterUserScramCredentialsRequest(deletions=[aus.ScramCredentialDeletion(name="u", mechanism=1)]),
        CLUSTER,
        "results",
    ),
    (describe_acls, dea.DescribeAclsRequest(**FILTER), CLUSTER, ""),
    (create_acls, ca.CreateAclsRequest(creations=[ca.AclCreation(**ACL)]), CLUSTER, "results"),
    (delete_acls, da.DeleteAclsRequest(filters=[da.DeleteAclsFilter(**FILTER)]), CLUSTER, "filter_results"),
]


@pytest.mark.asyncio
@pytest.mark.parametrize(("handler", "request_", "code", "items"), DENIED)
async def test_every_handler_asks(node: Node, handler: Any, request_: Any, code: ErrorCode, items: str) -> None:
    """`items`: the field with the response's errors; empty if it has one error for the whole."""
    await node.create("t")
    before = node.world.loader.image.topics
    node.services.authorizer = DenyAll()
    response = await node.ask(handler, request_)
    (answer,) = getattr(response, items) if items else [response]
    assert answer.error_code == code
    assert node.world.loader.image.topics is before


@pytest.mark.asyncio
async def test_what_may_not_be_described_is_not_listed(node: Node) -> None:
    await node.create("secret")
    await node.create("open")

    class Half(DenyAll):
        def authorize(
            self, asker: Asker, operation: Operation, resource: Resource, name: str, quiet: bool = False
        ) -> bool:
            return name == "open"

    node.services.authorizer = Half()
    response = await node.ask(metadata, md.MetadataRequest(topics=None))
    assert [t.name for t in response.topics] == ["open"]
    (secret, missing) = (await node.ask(metadata, names("secret", "missing"))).topics
    assert secret.error_code == missing.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert secret.topic_id == ZERO
    listing = await node.ask(describe_topic_partitions, dtp.DescribeTopicPartitionsRequest())
    assert [t.name for t in listing.topics] == ["open"]


@pytest.mark.asyncio
async def test_authorized_operations(node: Node) -> None:
    await node.create("t")
    response = await node.ask(metadata, names("t", include_topic_authorized_operations=True))
    # READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS, as in Apache Kafka 4.3.1.
    assert response.topics[0].topic_authorized_operations == 3576
    request = names("t", include_cluster_authorized_operations=True)
    assert (await node.ask(metadata, request, 8)).cluster_authorized_operations == 8096


@pytest.mark.asyncio
async def test_no_authorizer_no_acls(node: Node) -> None:
    assert (await node.ask(describe_acls, dea.DescribeAclsRequest(**FILTER))).error_code == ErrorCode.SECURITY_DISABLED
    created = await node.ask(create_acls, ca.CreateAclsRequest(creations=[ca.AclCreation(**ACL)] * 2))
    assert [r.error_code for r in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
    assert created.results[0].error_message
    deleted = await node.ask(delete_acls, da.DeleteAclsRequest(filters=[da.DeleteAclsFilter(**FILTER)]))
    assert [r.error_code for r in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]


@pytest.mark.asyncio
async def test_scram_credentials_are_written_told_and_removed(node: Node) -> None:
    upsertion = aus.ScramCredentialUpsertion(
        name="u", mechanism=2, iterations=8192, salt=b"salt", salted_password=b"salted"
    )
    altered = await node.ask(alter_user_scram_credentials, aus.AlterUserScramCredentialsRequest(upsertions=[upsertion]))
    assert [(one.user, one.error_code, one.error_message) for one in altered.results] == [("u", 0, None)]
    told = await node.ask(describe_user_scram_credentials, ds.DescribeUserScramCredentialsRequest(users=None))
    assert [
        (one.user, one.credential_infos[0].mechanism, one.credential_infos[0].iterations) for one in told.results
    ] == [("u", 2, 8192)]
    assert "salt" not in repr(node.world.loader.image.scram)
    deletion = aus.ScramCredentialDeletion(name="u", mechanism=2)
    altered = await node.ask(alter_user_scram_credentials, aus.AlterUserScramCredentialsRequest(deletions=[deletion]))
    assert [one.error_code for one in altered.results] == [0]
    assert not node.world.loader.image.scram


@pytest.mark.asyncio
async def test_true_answers_of_a_node_that_has_none(node: Node) -> None:
    quotas = await node.ask(describe_client_quotas, dq.DescribeClientQuotasRequest())
    assert (quotas.error_code, quotas.entries) == (0, [])
    twice = [dq.ComponentData(entity_type="user", match_type=0, match="u")] * 2
    refused = await node.ask(describe_client_quotas, dq.DescribeClientQuotasRequest(components=twice))
    assert (refused.error_code, refused.entries) == (ErrorCode.INVALID_REQUEST, None)
    users = [ds.UserName(name="u"), ds.UserName(name="d"), ds.UserName(name="d")]
    scram = await node.ask(describe_user_scram_credentials, ds.DescribeUserScramCredentialsRequest(users=users))
    assert [(r.user, r.error_code) for r in scram.results] == [
        ("u", ErrorCode.RESOURCE_NOT_FOUND),
        ("d", ErrorCode.DUPLICATE_RESOURCE),
    ]
    nothing = await node.ask(list_partition_reassignments, lp.ListPartitionReassignmentsRequest(topics=None))
    assert (nothing.error_code, nothing.error_message, nothing.topics) == (0, None, [])


ASSORTED: list[tuple[Any, Any]] = [
    *((handler, request) for handler, request, _, _ in DENIED),
    (metadata, md.MetadataRequest(topics=None, include_topic_authorized_operations=True)),
    (metadata, names("t", "nope", "a b", include_cluster_authorized_operations=True)),
    (
        create_topics,
        ct.CreateTopicsRequest(topics=[ct.CreatableTopic(name="n", num_partitions=1, replication_factor=1)]),
    ),
    (create_topics, ct.CreateTopicsRequest(topics=[ct.CreatableTopic(name="t")], validate_only=True)),
    (delete_topics, dt.DeleteTopicsRequest(topic_names=["t", "nope", "x", "x"])),
    (describe_cluster, dcl.DescribeClusterRequest(include_cluster_authorized_operations=True)),
    (describe_cluster, dcl.DescribeClusterRequest(endpoint_type=2)),
    (describe_cluster, dcl.DescribeClusterRequest(endpoint_type=9)),
    (elect_leaders, el.ElectLeadersRequest(election_type=7, topic_partitions=[el.TopicPartitions(topic="t")])),
    (
        update_features,
        uf.UpdateFeaturesRequest(feature_updates=[uf.FeatureUpdateKey(feature="nope", max_version_level=1)]),
    ),
    *(
        (
            describe_configs,
            dc.DescribeConfigsRequest(
                resources=[dc.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)],
                include_synonyms=True,
                include_documentation=True,
            ),
        )
        for kind, name in [(2, "t"), (4, "1"), (4, ""), (8, "1"), (16, "m"), (32, "g"), (0, "x"), (4, "9")]
    ),
]


@pytest.mark.asyncio
@pytest.mark.parametrize("authorizer", [AllowAll(), DenyAll()])
async def test_every_version_can_be_answered(node: Node, authorizer: Any) -> None:
    await node.create("t")
    node.services.authorizer = authorizer
    for handler, request in ASSORTED:
        for version in range(request.MIN_VERSION, request.MAX_VERSION + 1):
            ctx = node.context(request, version)
            answer = handler.handle(ctx, request)
            if isinstance(answer, asyncio.Future):
                answer = await answer
            assert type(answer) is APIS[request.API_KEY].response
            data = answer.encode_bytes(version)
            again, end = type(answer).decode(memoryview(data), 0, version)
            assert end == len(data)
            # Fields that an older version lacks are lost once, and not again.
            assert again.encode_bytes(version) == data
