"""The framing of records in Kafka's own topics and logs, around the bodies of the classes in `stored`.

- The metadata log (KIP-631) and the remote log metadata topic: a record value is frame version, type and version as
  unsigned varints, then the body.
- The coordinators' topics (__consumer_offsets, __transaction_state, __share_group_state): the key is the record type as
  an int16 and a body of version 0; the value is its version as an int16 and the body. A null value is a tombstone,
  which callers handle themselves.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final, Literal

from pykbroker_wire.primitives import (
    READ_ERRORS,
    Buffer,
    DecodeError,
    EncodeError,
    TopLevel,
    pack_int16,
    read_varint,
    varint,
)

FRAME_VERSION: Final = 1

Home = Literal["group", "transaction", "share"]


class UnknownRecordType(DecodeError):
    """The type of a record is unknown, because a newer Kafka wrote the record. Loading may skip the record."""

    def __init__(self, record_type: int) -> None:
        super().__init__(f"unknown record type {record_type}")
        self.record_type = record_type


def encode_metadata_record(message: TopLevel, version: int) -> bytes:
    """Encode a record of the metadata log or of the remote log metadata topic. Raises EncodeError."""
    if message.API_KEY < 0:
        raise EncodeError(f"{type(message).__name__} is no metadata record")
    return b"".join((varint(FRAME_VERSION), varint(message.API_KEY), varint(version), *message.encode(version)))


def decode_metadata_record(value: Buffer) -> TopLevel:
    return _decode_framed("metadata", value)


def decode_remote_log_record(value: Buffer) -> TopLevel:
    return _decode_framed("storage", value)


def _decode_framed(home: str, value: Buffer) -> TopLevel:
    try:
        frame_version, pos = read_varint(value, 0)
        record_type, pos = read_varint(value, pos)
        version, pos = read_varint(value, pos)
    except READ_ERRORS as error:
        raise DecodeError(f"the frame of a {home} record is cut short: {error}") from None
    if frame_version != FRAME_VERSION:
        raise DecodeError(f"a {home} record with frame version {frame_version}")
    found: type[TopLevel] | None = _package(home).record_class(record_type)
    if found is None:
        raise UnknownRecordType(record_type)
    message, pos = found.decode(value, pos, version)
    if pos != len(value):
        raise DecodeError(f"{len(value) - pos} bytes behind {found.__name__} version {version}")
    return message


def encode_key(key: TopLevel) -> bytes:
    return pack_int16(key.API_KEY) + key.encode_bytes(0)


def encode_value(value: TopLevel, version: int | None = None) -> bytes:
    """Encode a value; `version` is the highest stable one by default."""
    version = value.MAX_VERSION if version is None else version
    return pack_int16(version) + value.encode_bytes(version)


def decode_key(home: Home, key: Buffer) -> TopLevel:
    record_type = _int16(key)
    found: type[TopLevel] | None = _package(home).key_class(record_type)
    if found is None:
        raise UnknownRecordType(record_type)
    return found.decode(key, 2, 0)[0]


def decode_value(home: Home, record_type: int, value: Buffer) -> TopLevel:
    """Decode a value; `record_type` is the API_KEY of the record's key. Raises UnknownRecordType, DecodeError."""
    found: type[TopLevel] | None = _package(home).value_class(record_type)
    if found is None:
        raise UnknownRecordType(record_type)
    # Kafka, too, accepts bytes after the body here, but not in the metadata log.
    return found.decode(value, 2, _int16(value))[0]


def _int16(data: Buffer) -> int:
    if len(data) < 2:
        raise DecodeError(f"a coordinator record of {len(data)} bytes")
    return int.from_bytes(data[:2], "big", signed=True)


@cache
def _package(home: str) -> Any:
    return import_module(f"pykbroker_wire.stored.{home}")
