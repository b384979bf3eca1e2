"""A message that was encoded and decoded is equal to the original."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pykbroker_wire.primitives import NEVER, EncodeError
from testkit.messages.catalogue import Entry, cases, entries, entry, make
from tests.wire.strategies import messages


@pytest.mark.slow
@pytest.mark.parametrize("style", ["full", "empty", "random"])
def test_every_message_and_version_comes_back_as_it_went(style: Any) -> None:
    for item, version in cases():
        message = make(item, version, style)
        data = message.encode_bytes(version)
        # Bytes before and after: positions are respected, and what follows is left to the caller.
        back, pos = item.cls.decode(memoryview(b"\xff\xff\xff" + data + b"\xff\xff"), 3, version)
        assert (back, pos) == (message, 3 + len(data)), f"{item} version {version}"
        assert back.encode_bytes(version) == data


def test_only_records_hold_on_to_the_received_buffer() -> None:
    """A receive buffer is used again after the call, so the decoded message must not change with it."""
    for item, version in cases():
        received = bytearray(make(item, version, "full").encode_bytes(version))
        view = memoryview(received)
        message, _ = item.cls.decode(view, 0, version)
        before = repr(message)
        view[:] = b"\xa5" * len(view)
        assert repr(message) == before, (item, version)
        view.release()
        if "records" in before:
            continue
        # This fails while anything still has a view of the buffer.
        received.clear()


@pytest.mark.slow
@pytest.mark.parametrize("item", entries(), ids=repr)
def test_hypothesis_finds_no_message_that_changes(item: Entry) -> None:
    check_round_trips(item)


def check_round_trips(item: Entry) -> None:
    @settings(max_examples=15, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(item.versions))
        message = data.draw(messages(item, version))
        buffer = message.encode_bytes(version)
        assert item.cls.decode(buffer, 0, version) == (message, len(buffer))

    check()


def test_defaults_are_fresh_for_every_message() -> None:
    for item in entries():
        one, other = item.cls(), item.cls()
        assert one == other
        for name in one.__slots__:
            value = getattr(one, name)
            if isinstance(value, list):
                assert value == []
                assert value is not getattr(other, name), f"{item}.{name}"


def test_facts_about_versions() -> None:
    for item in entries():
        cls = item.cls
        assert cls.MIN_VERSION <= cls.MAX_VERSION <= cls.LATEST_VERSION
        assert cls.FLEXIBLE_FROM in (*range(cls.LATEST_VERSION + 1), NEVER)
        assert (cls.LATEST_VERSION > cls.MAX_VERSION) == (item.message.name == "InitProducerIdRequest"), item


def test_a_version_that_does_not_exist_is_refused() -> None:
    for item in entries():
        for version in (item.versions[0] - 1, item.versions[-1] + 1):
            with pytest.raises(EncodeError):
                item.cls().encode(version)


def test_a_field_that_the_version_lacks_is_refused_unless_it_may_be_lost() -> None:
    from pykbroker_wire.messages.fetch import FetchRequest, ForgottenTopic
    from pykbroker_wire.messages.metadata import MetadataRequest

    with pytest.raises(EncodeError, match="forgotten_topics_data"):
        FetchRequest(forgotten_topics_data=[ForgottenTopic(topic="t")]).encode(6)
    # The field is ignorable: an old broker simply does not get it.
    assert FetchRequest(rack_id="a").encode_bytes(6) == FetchRequest().encode_bytes(6)
    with pytest.raises(EncodeError, match="allow_auto_topic_creation"):
        MetadataRequest(allow_auto_topic_creation=False).encode(3)


def test_values_that_no_version_can_hold_are_refused() -> None:
    from pykbroker_wire.messages.produce import ProduceRequest

    wrong: list[dict[str, Any]] = [
        {"acks": 40_000}, {"acks": None}, {"topic_data": None}, {"transactional_id": "x" * 32_768},
        {"transactional_id": "\ud800"},
    ]  # fmt: skip
    for arguments in wrong:
        for version in (7, 13):
            with pytest.raises(EncodeError):
                ProduceRequest(**arguments).encode(version)


def test_records_go_out_as_the_buffers_they_came_in() -> None:
    from pykbroker_wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

    first, second = memoryview(bytes(5_000)), memoryview(b"\x01" * 9_000)
    response = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic_id=b"t" * 16,
                partitions=[
                    PartitionData(partition_index=0, records=[first, second]),
                    PartitionData(partition_index=1, records=b"small"),
                ],
            )
        ]
    )
    buffers = response.encode(18)
    assert [len(item) for item in buffers if len(item) > 1_000] == [5_000, 9_000]
    assert any(item is first for item in buffers)
    assert any(item is second for item in buffers)
    back, _ = FetchResponse.decode(b"".join(buffers), 0, 18)
    partitions = back.responses[0].partitions
    assert partitions[0].records == bytes(5_000) + b"\x01" * 9_000
    assert partitions[1].records == b"small"


def test_a_repr_names_every_field() -> None:
    text = repr(make(entry("ListOffsetsRequest"), 11, "full"))
    assert text.startswith("ListOffsetsRequest(replica_id=")
    assert "ListOffsetsPartition(partition_index=" in text
