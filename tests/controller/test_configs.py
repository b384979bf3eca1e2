"""AlterConfigs and IncrementalAlterConfigs as decisions."""

from __future__ import annotations

import pytest

from pykbroker.controller.configs import Alteration, AlterOperation, incremental_alter, legacy_alter
from pykbroker.controller.topics import create_topics
from pykbroker.metadata.image import ConfigResource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.controller.world import Pure

SET, DELETE, APPEND, SUBTRACT = AlterOperation
TOPIC, BROKER, GROUP, CLIENT_METRICS = (
    ConfigResource.TOPIC,
    ConfigResource.BROKER,
    ConfigResource.GROUP,
    ConfigResource.CLIENT_METRICS,
)


@pytest.fixture
def pure() -> Pure:
    pure = Pure(brokers=2)
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    pure.apply(create_topics(pure.state, request, set()))
    return pure


def alter(pure: Pure, kind: int, name: str, *alterations: tuple[str, int, str | None]) -> ErrorCode:
    changes = {(kind, name): [Alteration(*item) for item in alterations]}
    verdict = pure.apply(incremental_alter(pure.state, changes, False))[kind, name]
    assert (verdict.message is None) == (verdict.code is ErrorCode.NONE)
    code: ErrorCode = verdict.code
    return code


def of(pure: Pure, kind: int, name: str) -> dict[str, str]:
    return dict(pure.state.image.configs.of(kind, name))


def test_set_append_subtract_delete(pure: Pure) -> None:
    assert alter(pure, TOPIC, "t", ("retention.ms", SET, "5"), ("cleanup.policy", APPEND, "compact")) == 0
    assert of(pure, TOPIC, "t") == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    assert alter(pure, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"), ("retention.ms", DELETE, None)) == 0
    assert of(pure, TOPIC, "t") == {"cleanup.policy": "compact"}


def test_what_is_the_same_is_not_written_again_except_for_brokers(pure: Pure) -> None:
    for kind, name, key, value, expected in (
        (TOPIC, "t", "retention.ms", "5", 0),
        (BROKER, "1", "log.retention.ms", "5", 1),
    ):
        changes = {(kind, name): [Alteration(key, SET, value)]}
        pure.apply(incremental_alter(pure.state, changes, False))
        assert len(incremental_alter(pure.state, changes, False).records) == expected


@pytest.mark.parametrize(
    ("kind", "name", "alteration", "code"),
    [
        (TOPIC, "t", ("retention.ms", SET, "x"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("nope", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("nope", DELETE, None), ErrorCode.NONE),
        (TOPIC, "t", ("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "nope", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ("retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "a b", ("retention.ms", SET, "1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", ("log.retention.ms", SET, "1"), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER, "x", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "-1", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "", ("log.retention.ms", SET, "1"), ErrorCode.NONE),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"), ErrorCode.NONE),
        (GROUP, "g", ("zz", SET, "1"), ErrorCode.INVALID_CONFIG),
        (GROUP, "", ("consumer.session.timeout.ms", SET, "50000"), ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "1000"), ErrorCode.NONE),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "m", ("match", SET, "zz=1"), ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "m", ("match", SET, "client_id=a.*"), ErrorCode.NONE),
        (CLIENT_METRICS, "m", ("zz", SET, "1"), ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ("interval.ms", SET, "1000"), ErrorCode.INVALID_REQUEST),
        (99, "x", ("a", SET, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_verdicts(pure: Pure, kind: int, name: str, alteration: tuple[str, int, str | None], code: ErrorCode) -> None:
    assert alter(pure, kind, name, alteration) == code
    stored = alteration[1] == SET and code is ErrorCode.NONE
    assert (alteration[0] in of(pure, kind, name)) == stored


def test_one_bad_resource_does_not_spoil_the_others(pure: Pure) -> None:
    changes = {
        (TOPIC, "nope"): [Alteration("retention.ms", SET, "1")],
        (TOPIC, "t"): [Alteration("retention.ms", SET, "2")],
    }
    assert not incremental_alter(pure.state, changes, True).records
    verdicts = pure.apply(incremental_alter(pure.state, changes, False))
    assert [verdict.code for verdict in verdicts.values()] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert of(pure, TOPIC, "t") == {"retention.ms": "2"}


def test_the_old_way_replaces_everything(pure: Pure) -> None:
    alter(pure, TOPIC, "t", ("retention.ms", SET, "5"), ("max.message.bytes", SET, "100"))
    verdicts = pure.apply(legacy_alter(pure.state, {(TOPIC, "t"): {"segment.bytes": "1048576"}}, False))
    assert verdicts[TOPIC, "t"].code is ErrorCode.NONE
    assert of(pure, TOPIC, "t") == {"segment.bytes": "1048576"}


def test_dynamic_broker_configuration_reaches_the_controllers_decisions(pure: Pure) -> None:
    assert pure.state.min_isr("t", 3) == 1
    alter(pure, BROKER, "", ("min.insync.replicas", SET, "2"))
    assert pure.state.min_isr("t", 3) == 2
    alter(pure, TOPIC, "t", ("min.insync.replicas", SET, "3"), ("unclean.leader.election.enable", SET, "true"))
    assert pure.state.min_isr("t", 3) == 3
    assert pure.state.min_isr("t", 1) == 1
    assert pure.state.unclean_election_enabled("t")
    assert not pure.state.unclean_election_enabled("other")
