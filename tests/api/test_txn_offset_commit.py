"""TxnOffsetCommit before its group: permissions, existing topics, and joining the responses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykbroker.api import txn_offset_commit
from pykbroker.coordinator.group.transactional import refused
from pykbroker.dispatch.context import RequestContext
from pykbroker.security.authorizer import Asker, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.api.broker_half import Denied


class Asked:
    """A group service that answers `code`, and records its requests."""

    def __init__(self, code: ErrorCode) -> None:
        self.code = code
        self.topics: list[tuple[str, list[int]]] = []

    def commit_in_transaction(
        self, request: Any, topics: list[TxnOffsetCommitRequestTopic], version: int, verifier: object, when_done: object
    ) -> TxnOffsetCommitResponse:
        self.topics += [(topic.name, [part.partition_index for part in topic.partitions]) for topic in topics]
        return TxnOffsetCommitResponse(topics=[refused(topic, self.code) for topic in topics])


def ask(
    topics: list[tuple[str, list[int]]],
    *denied: tuple[Operation, Resource, str],
    code: ErrorCode = ErrorCode.NONE,
    version: int = 5,
) -> tuple[list[tuple[str, list[tuple[int, int]]]], Asked]:
    service = Asked(code)
    known = [SimpleNamespace(name=name, id=id_of(name), partitions={0: None, 1: None}) for name in ("t", "u", "secret")]
    image = SimpleNamespace(
        by_name={topic.name: topic for topic in known if topic.name != "secret"},
        by_id={topic.id: topic for topic in known},
    )
    services = SimpleNamespace(
        metadata=SimpleNamespace(image=SimpleNamespace(topics=image)), groups=service, verifier=None
    )
    authorizer, asker = Denied(*denied), cast(Asker, None)
    ctx = SimpleNamespace(
        services=services,
        peer=None,
        api_version=version,
        authorize=lambda *question: authorizer.authorize(asker, *question),
    )
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name if version < 6 else "",
                topic_id=id_of(name) if version >= 6 else bytes(16),
                partitions=[TxnOffsetCommitRequestPartition(partition_index=index) for index in indexes],
            )
            for name, indexes in topics
        ],
    )
    answer = txn_offset_commit.handle(cast(RequestContext[Any], ctx), request)
    assert isinstance(answer, TxnOffsetCommitResponse)
    if version >= 6:
        answer, _ = TxnOffsetCommitResponse.decode(memoryview(answer.encode_bytes(version)), 0, version)
    found = [
        (
            topic.topic_id.rstrip(b"\0").decode() if version >= 6 else topic.name,
            [(part.partition_index, part.error_code) for part in topic.partitions],
        )
        for topic in answer.topics
    ]
    return found, service


def id_of(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("denied", "code"),
    [
        ((Operation.WRITE, Resource.TRANSACTIONAL_ID, "x"), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ((Operation.READ, Resource.GROUP, "g"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
)
def test_who_may_not_is_told_for_every_partition(denied: tuple[Operation, Resource, str], code: ErrorCode) -> None:
    answer, service = ask([("t", [0, 1]), ("no", [0])], denied)
    assert answer == [("t", [(0, code), (1, code)]), ("no", [(0, code)])]
    assert service.topics == []


def test_topics_that_may_not_be_read_or_are_not_there_come_first() -> None:
    answer, service = ask(
        [("t", [0, 7, 1]), ("no", [0]), ("u", [0]), ("secret", [0])],
        (Operation.READ, Resource.TOPIC, "secret"),
        (Operation.READ, Resource.TOPIC, "u"),
    )
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert answer == [
        ("t", [(7, UNKNOWN), (0, 0), (1, 0)]),
        ("no", [(0, UNKNOWN)]),
        ("u", [(0, denied)]),
        ("secret", [(0, denied)]),
    ]
    assert service.topics == [("t", [0, 1])]


def test_version_6_names_topics_by_their_ids() -> None:
    answer, service = ask(
        [("t", [0, 7, 1]), ("no", [0]), ("u", [0]), ("secret", [0])],
        (Operation.READ, Resource.TOPIC, "secret"),
        (Operation.READ, Resource.TOPIC, "u"),
        version=6,
    )
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert answer == [
        ("t", [(7, UNKNOWN), (0, 0), (1, 0)]),
        ("no", [(0, ErrorCode.UNKNOWN_TOPIC_ID)]),
        ("u", [(0, denied)]),
        ("secret", [(0, denied)]),
    ]
    assert service.topics == [("t", [0, 1])]


def test_a_topic_that_is_named_twice_is_answered_once_in_each_version() -> None:
    for version in (5, 6):
        assert ask([("t", [0]), ("t", [7])], version=version)[0] == [("t", [(7, UNKNOWN), (0, 0)])]


def test_nothing_left_is_answered_without_the_group() -> None:
    assert ask([("no", [0]), ("t", [9])])[0] == [("no", [(0, UNKNOWN)]), ("t", [(9, UNKNOWN)])]
    assert ask([])[0] == []
    assert ask([("t", [])])[0] == []


@pytest.mark.parametrize("version", range(7))
def test_old_producers_never_hear_of_loading(version: int) -> None:
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    answer, _ = ask([("t", [0])], code=loading, version=version)
    assert answer == [("t", [(0, ErrorCode.COORDINATOR_NOT_AVAILABLE if version < 2 else loading)])]
