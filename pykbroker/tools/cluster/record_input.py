"""Reads standard input and files as records to send, like `kcat -P`. Pure: blocks of bytes in, records out.

A record is the text between two delimiters. If the input ends with a delimiter, no record follows it. With a key
delimiter, the text before the first key delimiter is the key. Unlike kcat, which leaves them out, this module also
sends an empty record and an empty file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from pykbroker.tools.cluster.encodings import Encoding, decoded
from pykbroker.tools.cluster.json_records import BadInput, NewRecord, from_json


@dataclass(slots=True, frozen=True)
class Template:
    """Defaults for the fields that the input of a record does not have."""

    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    partition: int | None = None
    timestamp_ms: int | None = None
    #: if true, ignore the partitions that JSON records name
    any_partition: bool = False


@dataclass(slots=True, frozen=True)
class Written:
    """The format of the input."""

    delimiter: bytes = b"\n"
    key_delimiter: bytes | None = None
    #: if true, an empty key or value becomes null
    empty_is_null: bool = False
    key: Encoding = "text"
    value: Encoding = "text"


def pieces(blocks: Iterable[bytes], delimiter: bytes) -> Iterator[bytes]:
    """Yield the text between delimiters; memory holds one piece and one block."""
    assert delimiter, "a delimiter has at least one byte"
    kept = bytearray()
    for block in blocks:
        # A delimiter may lie across two blocks.
        searched = max(0, len(kept) - len(delimiter) + 1)
        kept += block
        start = 0
        while (end := kept.find(delimiter, max(start, searched))) >= 0:
            yield bytes(kept[start:end])
            start = end + len(delimiter)
        del kept[:start]
    if kept:
        yield bytes(kept)


class RecordMaker:
    """`RecordMaker(Written(), Template()).record(b"k:v")`. Raises BadInput."""

    def __init__(self, written: Written, template: Template) -> None:
        self._written, self._template = written, template

    def record(self, piece: bytes) -> NewRecord:
        written = self._written
        key: bytes | None = None
        value = piece
        if written.key_delimiter is not None:
            before, found, behind = piece.partition(written.key_delimiter)
            if found:
                key, value = before, behind
        return self._made(self._data(key, written.key, "key"), value)

    def whole(self, content: bytes) -> NewRecord:
        """Return a record whose value is the content of a file."""
        return self._made(None, content)

    def _made(self, key: bytes | None, value: bytes) -> NewRecord:
        template = self._template
        return NewRecord(
            template.key if key is None else self._null(key),
            self._null(self._data(value, self._written.value, "value")),
            list(template.headers),
            template.partition,
            template.timestamp_ms,
        )

    def _null(self, data: bytes | None) -> bytes | None:
        return None if not data and self._written.empty_is_null else data

    @staticmethod
    def _data(text: bytes | None, encoding: Encoding, what: str) -> bytes | None:
        try:
            return None if text is None else decoded(text, encoding)
        except ValueError as error:
            raise BadInput(f"the {what} is {error}") from None


class JsonRecords:
    """`JsonRecords(Template()).record(line)`: fields that are not in the line come from the template. Raises
    BadInput."""

    def __init__(self, template: Template, now_ms: int = 0) -> None:
        """`now_ms`: the current time, for timestamps that count from it."""
        self._template, self._now_ms = template, now_ms

    def record(self, piece: bytes) -> NewRecord:
        found, template = from_json(piece, self._now_ms), self._template
        partition = template.partition
        if partition is None and not template.any_partition:
            partition = found.partition
        return replace(
            found,
            key=template.key if found.key is None else found.key,
            headers=[*found.headers, *template.headers],
            partition=partition,
            timestamp_ms=found.timestamp_ms if template.timestamp_ms is None else template.timestamp_ms,
        )


def header_of(text: str) -> tuple[str, bytes | None]:
    """Parse a header of -H: name=value. Raises ValueError."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"header {text!r} is not NAME=VALUE")
    return name, value.encode("utf-8", "surrogateescape")
