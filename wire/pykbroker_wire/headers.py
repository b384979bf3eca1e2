"""Encodes and decodes requests and responses with their headers. The generated classes do the bodies.

Only this module decides which header version belongs to an API and version: v2 (request) and v1 (response) from the
API's first flexible version on, v1 and v0 for earlier versions. The response of ApiVersions always has header v0,
because its client cannot know yet which versions the broker supports.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from pykbroker_wire.apis import APIS, ApiKey
from pykbroker_wire.primitives import (
    NEVER,
    READ_ERRORS,
    Buffer,
    DecodeError,
    EncodeError,
    TopLevel,
    skip_tags,
)

_FLEXIBLE_REQUEST: Final = {int(key): api.flexible_from for key, api in APIS.items()}
_FLEXIBLE_RESPONSE: Final = {**_FLEXIBLE_REQUEST, int(ApiKey.API_VERSIONS): NEVER}

_UNSUPPORTED_VERSION: Final = 35
# Up to this size, copying the body after its header costs less than a second buffer.
_JOIN_BYTES: Final = 4096

# api key, api version, correlation id, length of the client id
_unpack_request = Struct(">hhih").unpack_from
_pack_request = Struct(">ihhih").pack
_pack_response = Struct(">ii").pack
_pack_flexible_response = Struct(">iix").pack
_unpack_int32 = Struct(">i").unpack_from
_unpack_int16 = Struct(">h").unpack_from


class RequestHeader:
    """The header of a request."""

    __slots__ = ("api_key", "client_id", "correlation_id", "version")

    def __init__(self, api_key: int, version: int, correlation_id: int, client_id: str | None) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id

    @classmethod
    def decode(cls, buf: Buffer, pos: int = 0) -> tuple[RequestHeader, int]:
        """Return the header of the frame at `pos` and the start of its body. Raises DecodeError. An API that does not
        exist is such an error, because the length of its header is unknown. A version that does not exist is not an
        error here."""
        try:
            api_key, version, correlation_id, size = _unpack_request(buf, pos)
            flexible_from = _FLEXIBLE_REQUEST[api_key]
            pos += 10
            client_id = None
            if size >= 0:
                # Not compact even in header v2, so that the client id of any version can be read.
                client_id = str(buf[pos : pos + size], "utf-8", "replace")
                pos += size
            if version >= flexible_from:
                pos = skip_tags(buf, pos) if buf[pos] else pos + 1
        except READ_ERRORS as error:
            raise DecodeError(f"a request header is cut short: {error}") from None
        except KeyError:
            raise DecodeError(f"there is no API {api_key}") from None
        if pos > len(buf):
            raise DecodeError("a request header is cut short")
        return cls(api_key, version, correlation_id, client_id), pos

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, version={self.version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r})"
        )


def encode_response(correlation_id: int, api_key: int, version: int, body: Sequence[Buffer]) -> list[Buffer]:
    """Return the whole frame, size included, for the buffers of a response's `encode`."""
    flexible = version >= _FLEXIBLE_RESPONSE[api_key]
    size = len(body[0]) if len(body) == 1 else sum(map(len, body))
    if flexible:
        head = _pack_flexible_response(size + 5, correlation_id)
    else:
        head = _pack_response(size + 4, correlation_id)
    return _behind(head, body)


def _behind(head: bytes, body: Sequence[Buffer]) -> list[Buffer]:
    first = body[0]
    if len(first) <= _JOIN_BYTES:
        return [head + first, *body[1:]]
    return [head, *body]


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: TopLevel
) -> list[Buffer]:
    """Return the whole frame, size included. Raises EncodeError."""
    body = message.encode(version)
    client = b"" if client_id is None else client_id.encode("utf-8", "replace")
    if len(client) > 0x7FFF:
        raise EncodeError(f"a client id of {len(client)} bytes")
    tail = client + b"\x00" if version >= _FLEXIBLE_REQUEST[api_key] else client
    size = 10 + len(tail) + sum(map(len, body))
    length = -1 if client_id is None else len(client)
    return _behind(_pack_request(size, api_key, version, correlation_id, length) + tail, body)


def decode_response(api_key: int, version: int, frame: Buffer) -> tuple[int, TopLevel]:
    """Return the correlation id and the message in a frame (without its size); `version` is that of the request. Raises
    DecodeError."""
    try:
        (correlation_id,) = _unpack_int32(frame, 0)
        pos = 4
        if version >= _FLEXIBLE_RESPONSE[api_key]:
            pos = skip_tags(frame, pos)
        if api_key == ApiKey.API_VERSIONS and _unpack_int16(frame, pos)[0] == _UNSUPPORTED_VERSION:
            # A broker that does not support our version answers in version 0.
            version = 0
    except READ_ERRORS as error:
        raise DecodeError(f"a response header is cut short: {error}") from None
    message, _ = APIS[api_key].response.decode(frame, pos, version)
    return correlation_id, message
