"""ACLs on a whole node: set over the protocol, stored in the metadata log, and checked for each request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import development_profile, load
from pykbroker.net.client import BrokerConnection
from pykbroker.node.node import Node
from pykbroker.node.start_options import StartOptions
from pykbroker.security.acl import Acl, PatternType, Permission
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from pykbroker_wire.messages.create_acls import AclCreation, CreateAclsRequest
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from pykbroker_wire.messages.describe_acls import DescribeAclsRequest
from pykbroker_wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest
from pykbroker_wire.messages.list_groups import ListGroupsRequest
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_wire.messages.vote import VoteRequest
from pykbroker_worlds.simulated.world import SimWorld
from testkit.acting import acts
from testkit.nodes.sim import Sim

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ON = {"authorizer.class.name": STANDARD}
ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ANY: dict[str, Any] = {
    "resource_type_filter": Resource.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": Operation.ANY,
    "permission_type": Permission.ANY,
}


def acl(
    resource: Resource, name: str, operation: Operation, permission: Permission = ALLOW, pattern: PatternType = LITERAL
) -> Acl:
    return Acl(resource, name, pattern, "User:ANONYMOUS", "*", operation, permission)


def creations(*acls: Acl) -> CreateAclsRequest:
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=one.resource_type,
                resource_name=one.resource_name,
                resource_pattern_type=one.pattern_type,
                principal=one.principal,
                host=one.host,
                operation=one.operation,
                permission_type=one.permission_type,
            )
            for one in acls
        ]
    )


async def grant(sim: Sim, *acls: Acl) -> None:
    """Add ACLs as the node itself, to which nothing is denied; the broker has them too when this returns."""
    answer = await sim.node.controller.call(creations(*acls))
    assert [result.error_code for result in answer.results] == [0] * len(acls)
    await sim.node.loader.when(lambda image: set(acls) <= set(image.acls.values()))


async def create(sim: Sim, name: str) -> int:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    code: int = (await sim.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))).topics[0].error_code
    return code


@pytest.fixture
def sim() -> Iterator[Sim]:
    made = Sim(ON)
    yield made
    made.close()


@acts(broker=("authorizer.class.name",))
def test_a_client_may_do_what_an_acl_allows_and_nothing_else() -> None:
    """A combined node also needs no ACL for its broker's requests to its controller, because it has started."""
    sim = Sim(ON)

    async def play(sim: Sim) -> None:
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await create(sim, "t") == denied
        await grant(sim, acl(Resource.TOPIC, "t", Operation.CREATE, pattern=PREFIXED))
        assert await create(sim, "t") == ErrorCode.NONE
        assert await create(sim, "s") == denied
        await grant(sim, acl(Resource.TOPIC, "t-", Operation.CREATE, DENY, PREFIXED))
        assert await create(sim, "t-1") == denied
        assert await create(sim, "t2") == ErrorCode.NONE
        seen = await sim.call(MetadataRequest(topics=None))
        assert [topic.name for topic in seen.topics] == []
        await grant(sim, acl(Resource.TOPIC, "t2", Operation.WRITE))
        seen = await sim.call(MetadataRequest(topics=None, include_topic_authorized_operations=True))
        assert [(topic.name, topic.topic_authorized_operations) for topic in seen.topics] == [
            ("t2", 1 << Operation.WRITE | 1 << Operation.CREATE | 1 << Operation.DESCRIBE)
        ]
        assert (await sim.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))).error_code == 0

    sim.run(play)
    sim.close()


def test_an_idempotent_producer_needs_one_topic_to_write_to(sim: Sim) -> None:
    async def code(sim: Sim) -> int:
        asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        found: int = (await sim.call(asked)).error_code
        return found

    async def play(sim: Sim) -> None:
        assert await code(sim) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        await grant(sim, acl(Resource.TOPIC, "a-topic-that-may-come", Operation.WRITE))
        assert await code(sim) == ErrorCode.NONE
        await grant(sim, acl(Resource.TOPIC, "*", Operation.WRITE, DENY))
        assert await code(sim) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        await grant(sim, acl(Resource.CLUSTER, CLUSTER_NAME, Operation.IDEMPOTENT_WRITE))
        assert await code(sim) == ErrorCode.NONE

    sim.run(play)


def test_acls_are_changed_and_described_over_both_listeners(sim: Sim) -> None:
    rules = [
        acl(Resource.CLUSTER, CLUSTER_NAME, Operation.ALTER),
        acl(Resource.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE),
    ]
    reads = acl(Resource.GROUP, "g", Operation.READ)

    async def play(sim: Sim) -> None:
        controller = BrokerConnection(sim._runtime, "localhost", 9093, "test")
        refused = await controller.send(creations(reads), 3_000)
        assert [result.error_code for result in refused.results] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
        assert (await sim.call(DescribeAclsRequest(**ANY))).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        await grant(sim, *rules)

        async def ask_controller(request: Any) -> Any:
            return await controller.send(request, 3_000)

        for number, send in enumerate((sim.call, ask_controller)):
            # A new ACL, one that exists, one that is invalid.
            answer = await send(creations(reads, rules[0], reads._replace(principal="nobody")))
            assert [result.error_code for result in answer.results] == [0, 0, ErrorCode.INVALID_REQUEST], number
            await sim.node.loader.when(lambda image: reads in image.acls.values())
            described = await send(DescribeAclsRequest(**ANY))
            found = {
                Acl(each.resource_type, each.resource_name, each.pattern_type, one.principal, one.host, *_codes(one))
                for each in described.resources
                for one in each.acls
            }
            assert found == {*rules, reads}
            answer = await send(
                DeleteAclsRequest(
                    filters=[
                        DeleteAclsFilter(**{**ANY, "resource_type_filter": Resource.GROUP}),
                        DeleteAclsFilter(**{**ANY, "operation": 99}),
                    ]
                )
            )
            assert [result.error_code for result in answer.filter_results] == [0, ErrorCode.INVALID_REQUEST]
            assert [one.resource_name for one in answer.filter_results[0].matching_acls] == ["g"]
            await sim.node.loader.when(lambda image: reads not in image.acls.values())
        controller.close()

    sim.run(play)


def _codes(one: Any) -> tuple[int, int]:
    return one.operation, one.permission_type


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type": Resource.ANY},
        {"pattern_type": PatternType.MATCH},
        {"operation": Operation.ANY},
        {"permission_type": Permission.ANY},
    ],
)
def test_an_acl_that_only_a_filter_could_be_fails_the_request(sim: Sim, wrong: dict[str, Any]) -> None:
    good = acl(Resource.CLUSTER, CLUSTER_NAME, Operation.ALTER)

    async def asked(sim: Sim) -> None:
        await grant(sim, good)
        answer = await sim.call(creations(good, good._replace(**wrong)))
        assert [result.error_code for result in answer.results] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2

    sim.run(asked)


def test_what_is_only_left_out_of_a_list_is_no_refusal(sim: Sim, caplog: pytest.LogCaptureFixture) -> None:
    """As in Apache Kafka: a client that lists what it may see has tried nothing that is forbidden."""

    async def play(sim: Sim) -> list[str]:
        await grant(sim, acl(Resource.TOPIC, "t", Operation.CREATE))
        assert await create(sim, "t") == ErrorCode.NONE
        assert not (await sim.call(MetadataRequest(topics=None))).topics
        assert not (await sim.call(DescribeTopicPartitionsRequest())).topics
        assert not (await sim.call(ListGroupsRequest())).groups
        assert await create(sim, "s") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return [record.getMessage() for record in caplog.records if record.name == "kafka.authorizer.logger"]

    with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
        (line,) = sim.run(play)
    assert "Denied operation = CREATE from host" in line
    assert "Topic:LITERAL:s for request = CreateTopics with" in line


def test_acls_outlive_the_node(sim: Sim) -> None:
    async def play(sim: Sim) -> None:
        await grant(sim, acl(Resource.TOPIC, "*", Operation.CREATE), acl(Resource.TOPIC, "no", Operation.ALL, DENY))
        for _ in range(2):
            assert await create(sim, "no") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            await sim.sim_node.stop()
            await sim.sim_node.start()
        assert await create(sim, "yes") == ErrorCode.NONE

    sim.run(play)


def test_super_users_and_the_default_are_those_of_the_file() -> None:
    for texts, code in (
        ({"super.users": " User:admin ; User:ANONYMOUS"}, ErrorCode.NONE),
        ({"super.users": "User:admin"}, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ({"allow.everyone.if.no.acl.found": " True"}, ErrorCode.NONE),
        ({"allow.everyone.if.no.acl.found": "yes"}, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ):
        sim = Sim({**ON, **texts})
        assert sim.run(lambda sim: create(sim, "t")) == code, texts
        sim.close()


def test_a_super_user_is_a_principal() -> None:
    sim = Sim()
    texts = {**development_profile("/data", 9092), **ON, "super.users": "admin"}
    with pytest.raises(ConfigError, match=r"super\.users: expected a string in format principalType:principalName"):
        Node(load(texts), sim.world.runtime("other", sim.disk))
    sim.close()


def test_the_keys_of_the_authorizer_are_known_beside_it_alone() -> None:
    keys = {"super.users": "User:a", "allow.everyone.if.no.acl.found": "true"}
    profile = development_profile("/data", 9092)
    assert not load({**profile, **ON, **keys}).warnings
    assert [warning.split()[1] for warning in load({**profile, **keys}).warnings] == list(keys)


@pytest.mark.parametrize("early", [None, "CONTROLLER", ""])
@acts(
    broker=("early.start.listeners",),
    run_shows=lambda parameters: ["early.start.listeners"] if parameters["early"] is not None else [],
)
def test_a_controller_that_knows_no_acls_yet_serves_nobody(early: str | None) -> None:
    """The other voter is away, so no committed offset is known. The listener is open only if it may start early, and
    then only for requests that need no ACL."""
    world = SimWorld(1)
    texts = {
        **development_profile("/data", 9092),
        "process.roles": "controller",
        "listeners": "CONTROLLER://localhost:9093",
        "controller.quorum.voters": "1@localhost:9093,2@elsewhere:9093",
        **ON,
        **({} if early is None else {"early.start.listeners": early}),
    }
    del texts["advertised.listeners"]

    async def play() -> None:
        node = Node(load(texts), world.runtime("node", MemoryDisk(record=False)), options=StartOptions(may_format=True))
        await node.start()
        client = BrokerConnection(world.runtime("client", MemoryDisk(record=False)), "localhost", 9093, "test")
        try:
            opened = await client.send(ApiVersionsRequest(), 3_000)
        except (ConnectionError, TimeoutError):
            opened = None
        assert (opened is not None) is (early != "")
        with pytest.raises((ConnectionError, TimeoutError)):
            await client.send(VoteRequest(cluster_id=node.controller.services.cluster_id), 3_000)
        client.close()
        await node.stop()

    world.loop.run_until_complete(asyncio.wait_for(play(), 1e6))
    world.end()
