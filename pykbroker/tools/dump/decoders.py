"""Keys and payloads of records as `logs dump` prints them: a decoder for each decoder option of DumpLogSegments.

Errors in a record are part of the output. DecodeFailure ends the dump where Apache Kafka's tool also ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykbroker.tools.dump.redaction import REDACTED, has_secret, redacted
from pykbroker.tools.dump.text import java_text
from pykbroker_wire.json_form import render, to_json
from pykbroker_wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from pykbroker_wire.primitives import DecodeError, TopLevel, read_varint
from pykbroker_wire.records.record import Record
from pykbroker_wire.stored.group.group_metadata import GroupMetadataValue
from pykbroker_wire.stored_framing import (
    Home,
    UnknownRecordType,
    decode_key,
    decode_metadata_record,
    decode_value,
)

#: The texts for the key and the payload of a record. A text is None if it is not printed.
Printed = tuple[str | None, str | None]
Decoder = Callable[[Record], Printed]

_PACKAGE = "org.apache.kafka.tools.api."


class DecodeFailure(ValueError):
    """A record cannot be decoded. The text is for the user."""


# -- plain records


def _integer(size: int) -> Callable[[bytes], str]:
    def decode(data: bytes) -> str:
        if len(data) != size:
            raise DecodeFailure(f"a number of {size} bytes was expected, {len(data)} bytes were found")
        return str(int.from_bytes(data, "big", signed=True))

    return decode


#: Apache Kafka's own classes; any other class would be Java code, which this program cannot run.
_CLASSES: dict[str, Callable[[bytes], str]] = {
    f"{_PACKAGE}StringDecoder": java_text,
    f"{_PACKAGE}IntegerDecoder": _integer(4),
    f"{_PACKAGE}LongDecoder": _integer(8),
}
STRING_DECODER = f"{_PACKAGE}StringDecoder"


def plain_decoder(
    key_class: str = STRING_DECODER, value_class: str = STRING_DECODER, *, of_metadata: bool = False
) -> Decoder:
    """Return the decoder of these classes. `of_metadata`: the file belongs to the metadata log. Raises DecodeFailure
    for an unknown class."""
    for name in (key_class, value_class):
        if name not in _CLASSES:
            raise DecodeFailure(f"{name} is not supported: only {', '.join(sorted(_CLASSES))} are")
    key_of, value_of = _CLASSES[key_class], _CLASSES[value_class]

    def decode(record: Record) -> Printed:
        value = None if record.value is None else bytes(record.value)
        if record.key is None and value is not None and has_secret(value, of_metadata=of_metadata):
            return None, REDACTED
        return (
            None if record.key is None else key_of(bytes(record.key)),
            None if value is None else value_of(value),
        )

    return decode


# -- the coordinators' topics


def coordinator_decoder(home: Home) -> Decoder:
    def decode(record: Record) -> Printed:
        if record.key is None:
            raise DecodeFailure(
                f"Failed to decode message at offset {record.offset} using the specified decoder "
                "(message had a missing key)"
            )
        try:
            key = decode_key(home, record.key)
            key_text = render({"type": str(key.API_KEY), "data": to_json(key, 0)})
            if record.value is None:
                return key_text, "<DELETE>"
            value = decode_value(home, key.API_KEY, record.value)
            version = int.from_bytes(record.value[:2], "big", signed=True)
            return key_text, render({"version": str(version), "data": _value_json(value, version)})
        except UnknownRecordType as error:
            return f"Unknown record type {error.record_type} at offset {record.offset}, skipping.", None
        except DecodeError as error:
            return f"Error at offset {record.offset}, skipping. {error}", None

    return decode


def _value_json(value: TopLevel, version: int) -> dict[str, Any]:
    found = to_json(value, version)
    if isinstance(value, GroupMetadataValue) and value.protocol_type == "consumer":
        # Members of the classic protocol may write any bytes, which are decoded only in groups of consumers.
        for member, printed in zip(value.members, found["members"], strict=True):
            for name, cls in (
                ("subscription", ConsumerProtocolSubscription),
                ("assignment", ConsumerProtocolAssignment),
            ):
                opened = _embedded(cls, getattr(member, name))
                if opened is not None:
                    printed[name] = opened
    return found


def _embedded(cls: type[TopLevel], data: bytes) -> dict[str, Any] | None:
    if len(data) < 2:
        return None
    version = int.from_bytes(data[:2], "big", signed=True)
    try:
        return to_json(cls.decode(data, 2, version)[0], version)
    except DecodeError:
        return None


# -- the metadata log


def metadata_decoder(record: Record) -> Printed:
    value = b"" if record.value is None else record.value
    try:
        message = decode_metadata_record(value)
        _, position = read_varint(value, 0)
        _, position = read_varint(value, position)
        version, _ = read_varint(value, position)
    except DecodeError as error:
        return None, f"Error at {record.offset}, skipping. {error}"
    data = redacted(message, to_json(message, version))
    return None, render({"type": _type_name(message), "version": version, "data": data})


def _type_name(message: TopLevel) -> str:
    """Return the name of a record's type, for example `REGISTER_BROKER_RECORD` for a RegisterBrokerRecord."""
    return type(message).__module__.rpartition(".")[2].upper()
