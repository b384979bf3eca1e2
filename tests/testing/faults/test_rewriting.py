"""An error is in the place where each version of each API has it, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.api import TABLE
from pykbroker.testing.faults.fault_rule import FaultRule, SeenRequest
from pykbroker.testing.faults.named_parts import (
    error_codes,
    field_types,
    has_code,
    parts_in,
    parts_of,
    says_errors,
)
from pykbroker.testing.faults.rewriting import change, refused
from pykbroker_wire.apis import APIS, ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from pykbroker_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from pykbroker_wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

#: These APIs answer with neither: their errors close the connection, or are in a place that no rule can reach.
WITHOUT_ERRORS = {
    "AlterReplicaLogDirs",
    "AlterUserScramCredentials",
    "CreateAcls",
    "DeleteAcls",
    "WriteTxnMarkers",
}
BROKER_APIS = [api.key for api in TABLE if "broker" in APIS[api.key].listeners]


def sample(key: int, version: int) -> Any:
    """Return a request that names two of everything at each level."""
    request: Any = APIS[key].request()
    parts = parts_of(key, version)

    def fill(message: Any, depth: int) -> None:
        assert parts is not None
        level = parts.levels[depth]
        hint = field_types(type(message))[level.asked]
        (element,) = [one for one in _arguments(hint) if one is not type(None)]
        made: list[Any] = []
        for number in (1, 2):
            if element in (str, int):
                made.append(f"n{number}" if element is str else number)
                continue
            one = element()
            for asked, _ in level.keys:
                kind = field_types(element)[asked]
                setattr(one, asked, number if kind is int else bytes([number]) * 16 if kind is bytes else f"n{number}")
            made.append(one)
            if depth + 1 < len(parts.levels):
                fill(one, depth + 1)
        setattr(message, level.asked, made)

    if parts is not None:
        fill(request, 0)
    return request


def _arguments(hint: Any) -> list[Any]:
    import typing

    found = []
    for one in typing.get_args(hint):
        found += _arguments(one) if typing.get_args(one) else [one]
    return found


def seen(key: int, version: int, request: Any) -> SeenRequest:
    parts = parts_in(key, version, request, lambda topic_id: f"n{topic_id[0]}")
    return SeenRequest(key, version, "test", 1, tuple(parts), request)


def test_the_apis_without_a_place_are_served() -> None:
    assert {APIS[key].name for key in BROKER_APIS if not says_errors(key)} == WITHOUT_ERRORS


@pytest.mark.parametrize("key", BROKER_APIS, ids=lambda key: APIS[key].name)
def test_every_version_of_every_api_says_the_error(key: int) -> None:
    api = APIS[key]
    assert says_errors(key) == (api.name not in WITHOUT_ERRORS)
    if api.name in WITHOUT_ERRORS:
        return
    rule = FaultRule.of({"api": api.name, "error": "REQUEST_TIMED_OUT", "carried_out": True})
    versions = [v for v in range(api.min_version, api.max_version + 1) if parts_of(key, v) or has_code(key, v)]
    assert api.max_version in versions
    for version in versions:
        one = seen(key, version, sample(key, version))
        how = refused(rule, one, rule.chosen(one) or ())
        assert how is not None
        body = b"".join(how.answer(key, None).encode(version))
        answer, end = api.response.decode(memoryview(body), 0, version)
        assert end == len(body)
        assert error_codes(answer) == [ErrorCode.REQUEST_TIMED_OUT]


def test_every_request_survives_the_removal_of_a_part() -> None:
    """The rest of a request is one that its version can encode."""
    looked_at = 0
    for key in BROKER_APIS:
        api = APIS[key]
        for version in range(api.min_version, api.max_version + 1):
            parts = parts_of(key, version)
            if parts is None or parts.topic_at is None:
                continue
            one = seen(key, version, sample(key, version))
            rule = FaultRule.of({"api": key, "topic": "n1", "error": "REQUEST_TIMED_OUT"})
            chosen = rule.chosen(one)
            assert chosen
            how = refused(rule, one, chosen)
            assert how is not None
            assert how.rest is not None
            body = b"".join(how.rest.encode(version))
            again, _ = api.request.decode(memoryview(body), 0, version)
            left = {part.topic for part in seen(key, version, again).parts}
            assert left == ({"n1", "n2"} if how.rest is one.request else {"n2"})
            looked_at += 1
    assert looked_at > 60


def produce_request() -> ProduceRequest:
    return ProduceRequest(
        topic_data=[
            TopicProduceData(name=name, partition_data=[PartitionProduceData(index=index) for index in (0, 1)])
            for name in ("a", "b")
        ]
    )


def produce_response(*pairs: tuple[str, tuple[int, ...]]) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=name, partition_responses=[PartitionProduceResponse(index=one, base_offset=7) for one in indexes]
            )
            for name, indexes in pairs
        ]
    )


def test_the_rest_is_carried_out_and_the_answer_has_both() -> None:
    one = seen(ApiKey.PRODUCE, 9, produce_request())
    rule = FaultRule.of({"api": "Produce", "topic": "a", "partition": 1, "error": "NOT_LEADER_OR_FOLLOWER"})
    how = refused(rule, one, rule.chosen(one) or ())
    assert how is not None
    assert [(part.topic, part.partition) for part in seen(0, 9, how.rest).parts] == [("a", 0), ("b", 0), ("b", 1)]
    answer = how.answer(ApiKey.PRODUCE, produce_response(("a", (0,)), ("b", (0, 1))))
    assert [
        (topic.name, one.index, one.error_code, one.base_offset)
        for topic in answer.responses
        for one in topic.partition_responses
    ] == [("a", 0, 0, 7), ("a", 1, 6, -1), ("b", 0, 0, 7), ("b", 1, 0, 7)]


def test_what_was_carried_out_says_the_error_in_its_place() -> None:
    one = seen(ApiKey.PRODUCE, 9, produce_request())
    rule = FaultRule.of(
        {"api": "Produce", "topic": "b", "error": "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "carried_out": True}
    )
    how = refused(rule, one, rule.chosen(one) or ())
    assert how is not None
    assert how.rest is one.request
    whole = produce_response(("a", (0, 1)), ("b", (0, 1)))
    answer = how.answer(ApiKey.PRODUCE, whole)
    codes = [one.error_code for topic in answer.responses for one in topic.partition_responses]
    assert codes == [0, 0, 20, 20]
    # Handlers share messages, so the original must stay as it was.
    assert error_codes(whole) == []


def test_a_fetch_error_is_the_partitions_and_a_session_error_the_answers() -> None:
    request = FetchRequest(topics=[FetchTopic(topic="a", partitions=[FetchPartition(partition=0)])])
    one = seen(ApiKey.FETCH, 12, request)
    empty = FetchResponse(
        responses=[FetchableTopicResponse(topic="a", partitions=[PartitionData(partition_index=0, records=b"x")])]
    )
    for code, whole, part in (("NOT_LEADER_OR_FOLLOWER", 0, 6), ("FETCH_SESSION_ID_NOT_FOUND", 70, None)):
        rule = FaultRule.of({"api": "Fetch", "error": code})
        how = refused(rule, one, rule.chosen(one) or ())
        assert how is not None
        answer = how.answer(ApiKey.FETCH, empty)
        assert answer.error_code == whole
        codes = [(one.error_code, one.records) for topic in answer.responses for one in topic.partitions]
        assert codes == ([] if part is None else [(part, b"")])


@pytest.mark.parametrize(("topic", "place"), [(None, "group"), ("a", "partition")])
def test_an_offset_fetch_error_is_the_groups_unless_the_rule_names_a_topic(topic: str | None, place: str) -> None:
    groups = [OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="a", partition_indexes=[0])])]
    one = seen(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=groups))
    rule = FaultRule.of({"api": "OffsetFetch", "topic": topic, "error": "NOT_COORDINATOR"})
    how = refused(rule, one, rule.chosen(one) or ())
    assert how is not None
    (group,) = how.answer(ApiKey.OFFSET_FETCH, None).groups
    assert group.group_id == "g"
    found = [one.error_code for topic in group.topics for one in topic.partitions]
    assert (group.error_code, found) == ((16, []) if place == "group" else (0, [16]))


@pytest.mark.parametrize(("topic", "offsets"), [(None, [9, 9, 9, 9]), ("b", [7, 7, 9, 9])])
def test_a_change_is_in_what_the_rule_is_about(topic: str | None, offsets: list[int]) -> None:
    one = seen(ApiKey.PRODUCE, 9, produce_request())
    given = {
        "responses.partition_responses.base_offset": 9,
        "responses.partition_responses.current_leader.leader_id": 5,
    }
    rule = FaultRule.of({"api": "Produce", "topic": topic, "change": given})
    whole = produce_response(("a", (0, 1)), ("b", (0, 1)))
    answer = change(rule, one, rule.chosen(one) or (), whole)
    parts = [one for topic in answer.responses for one in topic.partition_responses]
    assert [one.base_offset for one in parts] == offsets
    assert [one.current_leader.leader_id for one in parts] == [5 if offset == 9 else -1 for offset in offsets]
    assert {one.current_leader.leader_id for topic in whole.responses for one in topic.partition_responses} == {-1}
