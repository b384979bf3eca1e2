"""The twin for one partition reads and writes the same bytes as the generated classes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker_wire import produce_single
from pykbroker_wire.headers import encode_response
from pykbroker_wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from pykbroker_wire.primitives import DecodeError

VERSIONS = range(3, 14)
names = st.text("abcdefghij-._", min_size=1, max_size=140)


ids = st.none() | st.text("xyz-0123456789é", max_size=140)


def make(
    version: int,
    name: str,
    records: bytes | None,
    acks: int = -1,
    index: int = 3,
    transactional_id: str | None = None,
) -> ProduceRequest:
    topic = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=index, records=records)])
    if version >= 13:
        topic = TopicProduceData(topic_id=b"0123456789abcdef", partition_data=topic.partition_data)
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1234, topic_data=[topic])


@given(
    st.sampled_from(VERSIONS),
    names,
    st.binary(max_size=40_000),
    st.integers(-2, 2),
    st.integers(-(2**31), 2**31 - 1),
    ids,
)
def test_reads_what_the_generated_reader_reads(
    version: int, name: str, records: bytes, acks: int, index: int, transactional_id: str | None
) -> None:
    body = b"junk" + make(version, name, records, acks, index, transactional_id).encode_bytes(version)
    found = produce_single.parse(memoryview(body), 4, version)
    if version < 9 or (version < 13 and len(name) > 126) or len((transactional_id or "").encode()) > 126:
        assert found is None
        return
    assert found is not None
    assert found[:4] == (acks, 1234, b"0123456789abcdef" if version >= 13 else name, index)
    assert bytes(found[4]) == records
    assert found[5] == transactional_id


@given(st.sampled_from(range(9, 14)), st.binary(max_size=300), st.sampled_from([None, "", "x"]), st.data())
def test_whatever_it_accepts_the_generated_reader_accepts(
    version: int, records: bytes, transactional_id: str | None, data: Any
) -> None:
    body = bytearray(make(version, "topic", records, transactional_id=transactional_id).encode_bytes(version))
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, min(len(body), 60) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    for mutant in (bytes(body), bytes(body[:cut]), bytes(body) + b"\x00"):
        found = produce_single.parse(memoryview(mutant), 0, version)
        if found is None:
            continue
        try:
            request, _ = ProduceRequest.decode(memoryview(mutant), 0, version)
        except DecodeError:
            pytest.fail("accepted what the generated reader refuses")
        (topic,) = request.topic_data
        (partition,) = topic.partition_data
        assert request.transactional_id == found[5]
        assert found[:4] == (
            request.acks,
            request.timeout_ms,
            topic.topic_id if version >= 13 else topic.name,
            partition.index,
        )
        assert partition.records is not None
        assert bytes(found[4]) == bytes(partition.records)


@pytest.mark.parametrize("version", range(9, 14))
@pytest.mark.parametrize(
    "request_",
    [
        ProduceRequest(transactional_id="t", acks=1, timeout_ms=1, topic_data=[]),
        ProduceRequest(transactional_id=None, acks=1, timeout_ms=1, topic_data=[]),
        ProduceRequest(transactional_id=None, acks=1, timeout_ms=1, topic_data=[TopicProduceData()]),
        ProduceRequest(
            transactional_id=None,
            acks=1,
            timeout_ms=1,
            topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=None)])],
        ),
    ],
)
def test_other_shapes_are_left_to_the_generated_reader(version: int, request_: ProduceRequest) -> None:
    assert produce_single.parse(memoryview(request_.encode_bytes(version)), 0, version) is None


@given(
    st.sampled_from(range(9, 14)),
    names,
    *[st.integers(-(2**31), 2**31 - 1)] * 2,
    *[st.integers(-(2**63), 2**63 - 1)] * 3,
)
def test_writes_what_the_generated_writer_writes(
    version: int, name: str, correlation_id: int, index: int, base_offset: int, append_time: int, start: int
) -> None:
    topic: bytes | str = b"0123456789abcdef" if version >= 13 else name[:126]
    partition = PartitionProduceResponse(
        index=index, base_offset=base_offset, log_append_time_ms=append_time, log_start_offset=start
    )
    expected = TopicProduceResponse(partition_responses=[partition])
    if isinstance(topic, bytes):
        expected.topic_id = topic
    else:
        expected.name = topic
    message = ProduceResponse(responses=[expected])
    frame = b"".join(encode_response(correlation_id, 0, version, message.encode(version)))
    assert produce_single.encode_answer(correlation_id, topic, index, base_offset, append_time, start) == frame
