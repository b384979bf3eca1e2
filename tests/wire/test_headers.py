"""Frames and headers, both directions."""

from __future__ import annotations

import random
import struct

import pytest

from pykbroker_wire.apis import APIS, ApiKey
from pykbroker_wire.frame import FrameSplitter
from pykbroker_wire.headers import RequestHeader, decode_response, encode_request, encode_response
from pykbroker_wire.messages.api_versions import ApiVersionsResponse
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataResponse
from pykbroker_wire.messages.request_header import RequestHeader as GeneratedHeader
from pykbroker_wire.messages.response_header import ResponseHeader
from pykbroker_wire.primitives import Buffer, DecodeError


@pytest.mark.parametrize("client_id", ["client", "", None])
def test_our_request_header_is_the_generated_one(client_id: str | None) -> None:
    for api in APIS.values():
        for version in range(api.min_version, api.latest_version + 1):
            header_version = 2 if version >= api.flexible_from else 1
            header = GeneratedHeader(
                request_api_key=api.key, request_api_version=version, correlation_id=7, client_id=client_id
            )
            data = header.encode_bytes(header_version)
            ours, pos = RequestHeader.decode(memoryview(b"x" + data + b"body"), 1)
            assert (ours.api_key, ours.version, ours.correlation_id, ours.client_id, pos) == (
                api.key, version, 7, client_id, 1 + len(data),
            )  # fmt: skip
            frame = b"".join(encode_request(api.key, version, 7, client_id, api.request()))
            assert frame[:4] == struct.pack(">i", len(frame) - 4)
            assert frame[4 : 4 + len(data)] == data


def test_our_response_header_is_the_generated_one() -> None:
    for api in APIS.values():
        for version in range(api.min_version, api.latest_version + 1):
            flexible = version >= api.flexible_from and api.key != ApiKey.API_VERSIONS
            data = ResponseHeader(correlation_id=9).encode_bytes(1 if flexible else 0)
            frame = b"".join(encode_response(9, api.key, version, [b"bo", b"dy"]))
            assert frame == struct.pack(">i", len(data) + 4) + data + b"body"


def test_a_response_comes_back() -> None:
    body = MetadataResponse(cluster_id="c").encode(12)
    frame = b"".join(encode_response(3, ApiKey.METADATA, 12, body))
    correlation_id, message = decode_response(ApiKey.METADATA, 12, memoryview(frame)[4:])
    assert (correlation_id, message) == (3, MetadataResponse(cluster_id="c"))


def test_a_large_body_is_not_copied() -> None:
    body: list[Buffer] = [bytes(100_000), memoryview(bytes(5))]
    buffers = encode_response(3, ApiKey.FETCH, 12, body)
    assert buffers[1] is body[0]
    assert b"".join(buffers)[:4] == struct.pack(">i", 100_010)


def test_api_versions_is_answered_in_version_0_when_ours_is_unknown() -> None:
    frame = struct.pack(">i", 1) + ApiVersionsResponse(error_code=35).encode_bytes(0)
    _, message = decode_response(ApiKey.API_VERSIONS, 4, frame)
    assert message == ApiVersionsResponse(error_code=35)


def test_a_version_that_does_not_exist_still_has_a_header() -> None:
    header, pos = RequestHeader.decode(struct.pack(">hhih", 18, 99, 1, -1) + b"\x00")
    assert (header.version, header.client_id, pos) == (99, None, 11)
    header, pos = RequestHeader.decode(struct.pack(">hhih", 18, -1, 1, -1))
    assert (header.version, pos) == (-1, 10)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        bytes(9),
        struct.pack(">hhih", 9999, 0, 1, -1),
        struct.pack(">hhih", -1, 0, 1, -1),
        struct.pack(">hhih", 4, 0, 1, -1),
        struct.pack(">hhih", 3, 1, 1, 32767) + b"x",
        struct.pack(">hhih", 3, 12, 1, -1),
        struct.pack(">hhih", 3, 12, 1, -1) + b"\x01\x01\xff\xff\xff\xff\x07",
    ],
)
def test_a_broken_header_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        RequestHeader.decode(memoryview(data))


def test_unknown_tags_of_a_header_are_skipped() -> None:
    data = struct.pack(">hhih", 3, 12, 1, 1) + b"c" + b"\x01\x05\x02ab"
    assert RequestHeader.decode(data)[1] == len(data)


def test_any_chunking_gives_the_same_frames() -> None:
    rng = random.Random(5)
    frames = [rng.randbytes(rng.choice((0, 1, 5, 300))) for _ in range(60)]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    for largest in (1, 2, 7, 400, len(stream)):
        splitter, found, at = FrameSplitter(), [], 0
        while at < len(stream):
            size = rng.randint(1, largest)
            found += splitter.feed(stream[at : at + size])
            at += size
        assert [bytes(item) for item in found] == frames
        assert splitter.pending_bytes == 0


def test_a_frame_beyond_the_limit_is_refused_when_its_size_is_seen() -> None:
    for size in (-1, -(2**31), 1_001, 2**31 - 1):
        splitter = FrameSplitter(max_bytes=1_000)
        data = struct.pack(">i", size)
        assert splitter.feed(data[:3]) == []
        with pytest.raises(DecodeError):
            splitter.feed(data[3:])
    assert FrameSplitter(max_bytes=1_000).feed(struct.pack(">i", 1_000)) == []


def test_whole_exchange_through_the_splitter() -> None:
    buffers = encode_request(ApiKey.METADATA, 9, 5, "me", MetadataRequest(topics=None))
    (frame,) = FrameSplitter().feed(b"".join(buffers))
    header, pos = RequestHeader.decode(frame)
    assert (header.api_key, header.correlation_id) == (3, 5)
    assert MetadataRequest.decode(frame, pos, header.version) == (MetadataRequest(topics=None), len(frame))
