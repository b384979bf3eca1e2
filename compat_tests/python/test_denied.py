"""Clients and a broker with ACLs: each library raises its own exception, and works where it is allowed to.

Operations without an ACL are allowed to all; the ACLs of a test name other users, so that the client of the test is
denied.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ACLResourcePatternType, KafkaAdminClient
from kafka.admin import ResourcePattern as Pattern
from kafka.admin import ResourcePatternFilter as PatternFilter
from kafka.admin import ResourceType as Kind
from kafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

from compat_tests.node import Node, make_node
from testkit.any_acl import ANY_ACL
from testkit.clients import wait_until

CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
}
OPEN, CLOSED = "open", "closed"


@pytest.fixture(scope="module")
def guarded(against: str) -> Iterator[Node]:
    """Two topics, two groups and two transactional ids: `closed` and `closed-…` are another user's."""
    node = make_node(against, CONFIG)
    try:
        node.start()
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for made in admin.create_topics([NewTopic(OPEN, 1), NewTopic(CLOSED, 1)]).values():
            made.result(60)
        rules = [
            AclBinding(
                kind,
                CLOSED,
                ResourcePatternType.PREFIXED,
                "User:somebody",
                "*",
                AclOperation.ALL,
                AclPermissionType.ALLOW,
            )
            for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
        ]
        for created in admin.create_acls(rules).values():
            created.result(60)

        def is_closed() -> bool:
            return set(admin.list_topics(timeout=60).topics) == {OPEN}

        wait_until(is_closed, "the broker knows the ACLs")
        assert set(admin.describe_acls(ANY_ACL).result(60)) == set(rules)
        yield node
    finally:
        node.close()


def denied(code: int, call: Any, *args: Any) -> None:
    with pytest.raises(KafkaException) as refused:
        call(*args)
    assert refused.value.args[0].code() == code, refused.value


def test_librdkafka_producers(guarded: Node) -> None:
    answers: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": guarded.bootstrap, "enable.idempotence": True})
    for topic in (OPEN, CLOSED):
        producer.produce(topic, b"x", on_delivery=lambda error, _: answers.append(error))
        producer.flush(60)
    assert answers[0] is None
    assert answers[1] is not None
    assert answers[1].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    transactional = Producer({"bootstrap.servers": guarded.bootstrap, "transactional.id": f"{CLOSED}-1"})
    denied(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, transactional.init_transactions, 60)


@pytest.mark.parametrize(
    ("group", "topic", "code"),
    [
        (f"{CLOSED}-group", OPEN, KafkaError.GROUP_AUTHORIZATION_FAILED),
        ("group", CLOSED, KafkaError.TOPIC_AUTHORIZATION_FAILED),
    ],
)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka_consumers(guarded: Node, group: str, topic: str, code: int, protocol: str) -> None:
    consumer = Consumer(
        {"bootstrap.servers": guarded.bootstrap, "group.id": f"{group}-{protocol}", "group.protocol": protocol}
    )
    with closing(consumer):
        consumer.subscribe([topic])
        message = consumer.poll(60)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == code


def test_kafka_python(guarded: Node) -> None:
    settings = {"bootstrap_servers": guarded.bootstrap}
    with closing(KafkaProducer(**settings, max_block_ms=60_000)) as producer:
        producer.send(OPEN, b"x").get(60)
        with pytest.raises(TopicAuthorizationFailedError):
            producer.send(CLOSED, b"x").get(60)
    consumer = KafkaConsumer(OPEN, group_id=f"{CLOSED}-python", **settings)
    with closing(consumer), pytest.raises(GroupAuthorizationFailedError):
        consumer.poll(60_000)


def test_kafka_pythons_acls(guarded: Node) -> None:
    rule = ACL(
        principal="User:python",
        host="10.0.0.1",
        operation=ACLOperation.READ,
        permission_type=ACLPermissionType.DENY,
        resource_pattern=Pattern(Kind.GROUP, "of-python", ACLResourcePatternType.LITERAL),
    )
    wanted = ACLFilter(
        principal="User:python",
        host=None,
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        resource_pattern=PatternFilter(Kind.ANY, None, ACLResourcePatternType.ANY),
    )
    with closing(KafkaAdminClient(bootstrap_servers=guarded.bootstrap)) as admin:
        admin.create_acls([rule])
        wait_until(lambda: admin.describe_acls(wanted)[0] == [rule], "the broker knows the ACL")
        admin.delete_acls([wanted])
        wait_until(lambda: admin.describe_acls(wanted)[0] == [], "the broker has forgotten it")
