"""The comparison itself: the differences that it must find, and the values that it must not report. Needs no broker."""

from __future__ import annotations

from typing import Any

from compat_tests.differential.compare import compare
from compat_tests.differential.plain import Symbols
from compat_tests.differential.session import NOW_MS, Step
from pykbroker_wire.messages.init_producer_id import InitProducerIdResponse
from pykbroker_wire.messages.list_groups import ListedGroup, ListGroupsResponse
from pykbroker_wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from pykbroker_wire.primitives import TopLevel


def differences(theirs: list[TopLevel], ours: list[TopLevel]) -> str:
    def steps(messages: list[TopLevel]) -> list[Step]:
        symbols = Symbols({}, NOW_MS)
        return [
            Step("step", type(one).__name__.removesuffix("Response"), 0, None, symbols.message(one)) for one in messages
        ]

    return "\n".join(compare(steps(theirs), steps(ours)))


def topics(*found: Any) -> MetadataResponse:
    return MetadataResponse(topics=list(found))


def test_an_error_code_is_seen() -> None:
    assert "error_code: Kafka 0, pykbroker 3" in differences(
        [topics(MetadataResponseTopic(name="a"))], [topics(MetadataResponseTopic(name="a", error_code=3))]
    )


def test_a_port_is_not_a_part_of_another_number() -> None:
    symbols = Symbols({"23372": "‹port›", "-7": ""}, NOW_MS)
    assert symbols.text("a1-7 23372, 9223372036854775807") == "a1 ‹port›, 9223372036854775807"


def test_null_is_not_empty() -> None:
    assert "name: Kafka null" in differences(
        [topics(MetadataResponseTopic(name=None))], [topics(MetadataResponseTopic(name=""))]
    )


def test_one_more_is_seen() -> None:
    assert "(absent)" in differences([topics()], [topics(MetadataResponseTopic(name="a"))])


def test_a_missing_step_is_seen() -> None:
    assert "part here" in differences([topics(), topics()], [topics()])


def test_an_id_may_be_another_one_but_must_stay_the_same() -> None:
    def named(*ids: bytes) -> list[TopLevel]:
        return [topics(*(MetadataResponseTopic(name="a", topic_id=one) for one in ids))]

    one, two, three = (bytes([n]) * 16 for n in (1, 2, 3))
    assert not differences(named(one, two, one), named(three, one, three))
    assert differences(named(one, two, one), named(three, one, one))
    assert differences(named(one), named(bytes(16)))


def test_no_producer_id_is_not_a_producer_id() -> None:
    assert not differences([InitProducerIdResponse(producer_id=0)], [InitProducerIdResponse(producer_id=9)])
    assert differences([InitProducerIdResponse(producer_id=0)], [InitProducerIdResponse(producer_id=-1)])


def test_an_order_without_a_meaning() -> None:
    def listed(*names: str) -> list[TopLevel]:
        return [ListGroupsResponse(groups=[ListedGroup(group_id=name) for name in names])]

    assert not differences(listed("a", "b"), listed("b", "a"))
    assert differences(listed("a", "b"), listed("a", "a"))


def test_a_zero_is_not_false() -> None:
    assert compare([Step("s", "", 0, None, {"a": 0})], [Step("s", "", 0, None, {"a": False})])
