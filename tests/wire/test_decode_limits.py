"""Input that a reader refuses or accepts, and that neither costs memory."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from pykbroker_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykbroker_wire.messages.create_topics import CreateTopicsRequest
from pykbroker_wire.messages.fetch import FetchRequest, FetchResponse
from pykbroker_wire.messages.list_groups import ListGroupsRequest
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_wire.messages.produce import ProduceRequest
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from pykbroker_wire.primitives import MAX_ARRAY_ELEMENTS, MAX_NESTED_ELEMENTS, DecodeError, TopLevel, varint


def refused(cls: type[TopLevel], data: bytes, version: int) -> str:
    with pytest.raises(DecodeError) as caught:
        cls.decode(memoryview(data), 0, version)
    return str(caught.value)


def refused_cheaply(cls: type[TopLevel], data: bytes, version: int) -> None:
    """Take the smallest of three peaks, because the collector or another test's thread may allocate at the same
    time."""
    peaks = []
    for _ in range(3):
        tracemalloc.start()
        try:
            refused(cls, data, version)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert min(peaks) < 100_000


@pytest.mark.parametrize("count", [2**31 - 1, 1_000_001, 1_000, 200, 5])
def test_an_array_that_cannot_be_there_is_refused_before_it_is_allocated(count: int) -> None:
    refused_cheaply(MetadataRequest, struct.pack(">i", count) + b"\x00\x01a\x00", 4)


@pytest.mark.parametrize("lead", ["ffffffff07", "ffffffff0f", "8080808008", "c1843d", "e807", "c801"])
def test_the_same_in_compact_form(lead: str) -> None:
    # The name of a feature cannot be null.
    refused_cheaply(ListGroupsRequest, bytes.fromhex(lead) + b"\x02a\x01\x00", 5)


def test_an_array_above_the_limit_is_refused_although_its_bytes_are_there() -> None:
    data = struct.pack(">i", MAX_ARRAY_ELEMENTS + 1) + bytes(2 * (MAX_ARRAY_ELEMENTS + 1)) + b"\x00"
    assert "1000001 elements" in refused(MetadataRequest, data, 4)


def test_a_negative_length_is_null_where_null_is_allowed() -> None:
    # Kafka treats -2 like -1.
    for length in (-1, -2, -(2**31)):
        message, pos = MetadataRequest.decode(struct.pack(">ib", length, 1), 0, 4)
        assert (message.topics, pos) == (None, 5)
    # The compact lead ffffffff0f is -1 as an int32, and the length is one less.
    message, _ = MetadataRequest.decode(bytes.fromhex("ffffffff0f") + b"\x00\x00\x00", 0, 12)
    assert message.topics is None


def test_null_is_refused_where_it_is_not_allowed() -> None:
    refused(MetadataRequest, struct.pack(">i", -1), 0)
    refused(CreateTopicsRequest, b"\x00" + bytes(10), 7)
    refused(CreateTopicsRequest, struct.pack(">i", -1) + bytes(10), 4)
    # The name of a topic, classic and compact.
    refused(CreateTopicsRequest, struct.pack(">ih", 1, -1) + bytes(30), 4)
    refused(CreateTopicsRequest, b"\x02\x00" + bytes(30), 7)


def test_a_varint_of_more_than_five_bytes_is_refused() -> None:
    assert "five bytes" in refused(ListGroupsRequest, b"\x80\x80\x80\x80\x80\x01", 5)
    assert "five bytes" in refused(ListGroupsRequest, b"\x01\x01\xff\xff\xff\xff\xff\x01", 5)


def test_a_varint_may_be_longer_than_it_needs_to_be() -> None:
    message, pos = ListGroupsRequest.decode(b"\x82\x80\x00\x82\x00a\x81\x00\x80\x00", 0, 5)
    assert (message.states_filter, message.types_filter, pos) == (["a"], [], 10)


def test_a_compact_string_of_more_than_32767_bytes_is_refused() -> None:
    fine = b"\x02" + b"\x80\x80\x02" + b"x" * 32_767 + b"\x01\x00"
    assert ListGroupsRequest.decode(fine, 0, 5)[0].states_filter == ["x" * 32_767]
    assert "32768" in refused(ListGroupsRequest, b"\x02" + b"\x81\x80\x02" + b"x" * 32_768 + b"\x01\x00", 5)


def test_a_string_that_is_not_utf8_is_read_with_replacement_characters() -> None:
    message, _ = ListGroupsRequest.decode(b"\x02\x03\xff\xfe\x01\x00", 0, 5)
    assert message.states_filter == ["\ufffd\ufffd"]


def test_every_truncation_is_refused() -> None:
    whole = ApiVersionsRequest(client_software_name="name", client_software_version="1").encode_bytes(3)
    for size in range(len(whole)):
        refused(ApiVersionsRequest, whole[:size], 3)
    fetch = FetchRequest(session_id=3).encode_bytes(12)
    for size in range(len(fetch)):
        refused(FetchRequest, fetch[:size], 12)


def test_unknown_tags_are_skipped_and_left_behind() -> None:
    # Tags 7 (2 bytes) and 7 again (none), then a byte that does not belong to the message.
    message, pos = ListGroupsRequest.decode(b"\x01\x01\x02\x07\x02ab\x07\x00\xee", 0, 5)
    assert pos == 9
    assert message.encode_bytes(5) == b"\x01\x01\x00"


def test_a_repeated_tag_counts_as_its_last() -> None:
    body = FetchRequest(cluster_id=None).encode_bytes(12)
    assert body.endswith(b"\x00")
    message, pos = FetchRequest.decode(body[:-1] + b"\x02\x00\x02\x02a\x00\x02\x02b", 0, 12)
    assert (message.cluster_id, pos) == ("b", len(body) + 8)


def test_a_tagged_field_of_another_size_than_declared_is_refused() -> None:
    body = FetchRequest().encode_bytes(12)[:-1]
    assert "size" in refused(FetchRequest, body + b"\x01\x00\x03\x02a\x00", 12)
    assert "size" in refused(FetchRequest, body + b"\x01\x00\x01\x02a", 12)
    refused(FetchRequest, body + b"\x01\x00\xff\xff\xff\xff\x07\x02a", 12)
    refused(FetchRequest, body + b"\x01\x09\xff\xff\xff\xff\x07ab", 12)


def test_a_tag_of_another_version_is_refused() -> None:
    # ReplicaState, tag 1, exists from version 15 on.
    body = FetchRequest().encode_bytes(12)[:-1]
    assert "tag 1" in refused(FetchRequest, body + b"\x01\x01\x0d" + bytes(13), 12)


def test_too_many_tags_are_refused() -> None:
    many = b"\x01\x01\x91\x4e" + b"\x09\x00" * 10_001
    assert "10001" in refused(ListGroupsRequest, many, 5)
    assert ListGroupsRequest.decode(b"\x01\x01\x90\x4e" + b"\x09\x00" * 10_000, 0, 5)[1] == 4 + 20_000


def test_records_are_a_view_and_bytes_are_a_copy() -> None:
    received = bytearray(ProduceRequest().encode_bytes(9))
    del received[-2:]
    received += b"\x02\x02t\x02\x00\x00\x00\x07\x05data\x00\x00\x00"
    message, pos = ProduceRequest.decode(memoryview(received), 0, 9)
    assert pos == len(received)
    partition = message.topic_data[0].partition_data[0]
    assert isinstance(partition.records, memoryview)
    assert partition.records.obj is received

    token = bytearray(b"\x06token\x00")
    secret, _ = SaslAuthenticateRequest.decode(memoryview(token), 0, 2)
    token[:] = b"\xa5" * len(token)
    assert secret.auth_bytes == b"token"
    # Nothing else holds the buffer, or it could not be resized.
    token.clear()


def test_a_version_that_does_not_exist_is_refused() -> None:
    assert "version 99" in refused(ApiVersionsResponse, bytes(100), 99)
    refused(FetchResponse, bytes(100), -1)


def test_arrays_inside_arrays_have_a_bound_together(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_NESTED_ELEMENTS == 1_000_000
    monkeypatch.setattr("pykbroker_wire.messages.produce.MAX_NESTED_ELEMENTS", 12_600)

    def topics(count: int) -> bytes:
        topic = b"\x02t" + b"\x7f" + (b"\x00\x00\x00\x01" + b"\x00\x00") * 126 + b"\x00"
        return b"\x00\x00\x01\x00\x00\x00\x00" + varint(count + 1) + topic * count + b"\x00"

    fine = 100
    message, _ = ProduceRequest.decode(topics(fine), 0, 9)
    assert len(message.topic_data) == fine
    assert "elements" in refused(ProduceRequest, topics(fine + 1), 9)
    # The budget starts again with the next request.
    assert len(ProduceRequest.decode(topics(100), 0, 9)[0].topic_data) == 100
