"""Prints records as text, as kafka-console-consumer does: the parts to print, and the separators between them."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pykbroker.tools.cluster.failure import NotServed
from pykbroker.tools.cluster.record_format import ReadRecord, delivery_count
from pykbroker.tools.kafka.java_text import java_double
from pykbroker.tools.kafka.tool_options import Given, key_values

DEFAULT_FORMATTER: Final = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
#: The names of formatters that are served, with the names from before Apache Kafka 3.5.
FORMATTERS: Final = {
    DEFAULT_FORMATTER: "default",
    "kafka.tools.DefaultMessageFormatter": "default",
    "org.apache.kafka.tools.consumer.NoOpMessageFormatter": "nothing",
    "kafka.tools.NoOpMessageFormatter": "nothing",
    "org.apache.kafka.tools.consumer.LoggingMessageFormatter": "logging",
    "kafka.tools.LoggingMessageFormatter": "logging",
}

_PARTS: Final = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")


def _number(layout: str, name: str) -> Callable[[bytes], str]:
    size = struct.calcsize(layout)

    def read(data: bytes) -> str:
        if len(data) != size:
            raise ValueError(f"Size of data received by {name}Deserializer is not {size}")
        (value,) = struct.unpack(layout, data)
        return java_double(value) if isinstance(value, float) else str(value)

    return read


_SERIALIZATION: Final = "org.apache.kafka.common.serialization."
DESERIALIZERS: Final[dict[str, Callable[[bytes], str]]] = {
    "StringDeserializer": lambda data: data.decode("utf-8", "replace"),
    "IntegerDeserializer": _number(">i", "Integer"),
    "LongDeserializer": _number(">q", "Long"),
    "ShortDeserializer": _number(">h", "Short"),
    "FloatDeserializer": _number(">f", "Float"),
    "DoubleDeserializer": _number(">d", "Double"),
    "BooleanDeserializer": lambda data: "true" if data == b"\x01" else "false",
    "UUIDDeserializer": lambda data: str(uuid.UUID(data.decode("utf-8"))),
}


class RecordText:
    """`RecordText({"print.key": "true"}).written(record)`. Raises NotServed for a class that only Java has."""

    def __init__(self, properties: Mapping[str, str], formatter: str = DEFAULT_FORMATTER) -> None:
        if formatter not in FORMATTERS:
            raise NotServed(f"--formatter {formatter} is not supported by pykbroker: it names a Java class")
        self._kind = FORMATTERS[formatter]
        self._shown = {part: part == "value" for part in _PARTS}
        for part in _PARTS:
            if (wanted := properties.get(f"print.{part}")) is not None:
                self._shown[part] = wanted.strip().lower() == "true"
        self._key_separator = properties.get("key.separator", "\t").encode()
        self._line_separator = properties.get("line.separator", "\n").encode()
        self._headers_separator = properties.get("headers.separator", ",").encode()
        self._null = properties.get("null.literal", "null").encode()
        self._key = _deserializer(properties.get("key.deserializer"))
        self._value = _deserializer(properties.get("value.deserializer"))
        self._header = _deserializer(properties.get("headers.deserializer"))

    def written(self, record: ReadRecord) -> bytes:
        """Return the bytes of one record. Raises ValueError for bytes that a deserializer refuses."""
        if self._kind == "nothing":
            return b""
        parts = [getattr(self, f"_{part}_of")(record) for part in _PARTS if self._shown[part]]
        # A line that does not have the value also ends with the line separator.
        return self._key_separator.join(parts) + self._line_separator if parts else b""

    @property
    def logs(self) -> bool:
        """True if each record is also logged."""
        return self._kind == "logging"

    def _timestamp_of(self, record: ReadRecord) -> bytes:
        if record.timestamp_type is None or record.timestamp < 0:
            return b"NO_TIMESTAMP"
        return f"{'LogAppendTime' if record.timestamp_type else 'CreateTime'}:{record.timestamp}".encode()

    def _partition_of(self, record: ReadRecord) -> bytes:
        return f"Partition:{record.partition}".encode()

    def _offset_of(self, record: ReadRecord) -> bytes:
        return f"Offset:{record.offset}".encode()

    def _delivery_of(self, record: ReadRecord) -> bytes:
        count = delivery_count(record)
        return b"Delivery:NOT_PRESENT" if count is None else b"Delivery:%d" % count

    def _epoch_of(self, record: ReadRecord) -> bytes:
        # Apache Kafka's tool removes the epoch of a record before it prints the record.
        return b"Epoch:NOT_PRESENT"

    def _headers_of(self, record: ReadRecord) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        written = [key.encode() + b":" + self._read(self._header, value) for key, value in record.headers]
        return self._headers_separator.join(written)

    def _key_of(self, record: ReadRecord) -> bytes:
        return self._read(self._key, record.key)

    def _value_of(self, record: ReadRecord) -> bytes:
        return self._read(self._value, record.value)

    def _read(self, deserializer: Callable[[bytes], str] | None, data: bytes | None) -> bytes:
        known = self._null if data is None else data
        return known if deserializer is None else deserializer(known).encode()


def formatter_properties(given: Given, words: Iterable[str]) -> dict[str, str]:
    """Return the properties of a formatter that the options of a console consumer stand for. `words`: KEY=VALUE, as
    --formatter-property has them."""
    from pykbroker.tools.cluster.client_properties import read_properties

    properties = read_properties(given.text("formatter-config"))
    for option, key in (("key-deserializer", "key.deserializer"), ("value-deserializer", "value.deserializer")):
        if named := given.text(option):
            properties[key] = named
    return properties | key_values(words)


def _deserializer(name: str | None) -> Callable[[bytes], str] | None:
    if not name:
        return None
    found = DESERIALIZERS.get(name.removeprefix(_SERIALIZATION))
    if found is None:
        raise NotServed(f"{name} is not supported by pykbroker: it names a Java class")
    return found
