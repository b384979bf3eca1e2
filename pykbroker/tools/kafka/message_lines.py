"""Parses lines of text as records, as kafka-console-producer does: keys, headers and nulls by their separators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field


class BadLine(Exception):
    """A line cannot be parsed, or separators are wrong. The message is Kafka's."""


@dataclass(slots=True, frozen=True)
class LineRecord:
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


class LineReader:
    """`LineReader({"parse.key": "true"}).records(lines)`. Raises BadLine for separators that are the same."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._parse_key = _flag(properties, "parse.key")
        self._parse_headers = _flag(properties, "parse.headers")
        self._ignore_error = _flag(properties, "ignore.error")
        self._key_separator = properties.get("key.separator", "\t")
        self._headers_delimiter = properties.get("headers.delimiter", "\t")
        self._headers_separator = properties.get("headers.separator", ",")
        self._header_separator = properties.get("headers.key.separator", ":")
        self._null = properties.get("null.marker")
        names = {
            "headers.delimiter": self._headers_delimiter,
            "headers.separator": self._headers_separator,
            "headers.key.separator": self._header_separator,
        }
        listed = list(names.items())
        for place, (first, value) in enumerate(listed):
            for second, other in listed[place + 1 :]:
                if value == other:
                    raise BadLine(f"{first} and {second} may not be equal")
        for name, value in {"key.separator": self._key_separator, **names}.items():
            if value == self._null:
                raise BadLine(f"null.marker and {name} may not be equal")

    def records(self, lines: Iterable[str]) -> Iterator[LineRecord]:
        """Yield one record for each line. Raises BadLine with the number of the line."""
        for number, line in enumerate(lines, start=1):
            yield self._record(line, number)

    def _record(self, line: str, number: int) -> LineRecord:
        start = 0
        headers = key = None
        if self._parse_headers:
            headers, start = self._cut(line, start, self._headers_delimiter, "headers delimiter", number)
        if self._parse_key:
            key, start = self._cut(line, start, self._key_separator, "key separator", number)
        return LineRecord(
            self._bytes(key),
            self._bytes(line[start:]),
            [] if headers is None or headers == self._null else self._headers(headers, number),
        )

    def _cut(self, line: str, start: int, separator: str, name: str, number: int) -> tuple[str | None, int]:
        """Return the text up to the separator, and the position where the rest begins."""
        end = line.find(separator, start)
        if end < 0:
            if self._ignore_error:
                return None, start
            raise BadLine(f"No {name} found on line number {number}: '{line}'")
        return line[start:end], end + len(separator)

    def _headers(self, written: str, number: int) -> list[tuple[str, bytes | None]]:
        found: list[tuple[str, bytes | None]] = []
        for pair in written.split(self._headers_separator):
            key, separator, value = pair.partition(self._header_separator)
            if not separator:
                if not self._ignore_error:
                    raise BadLine(f"No header key separator found in pair '{pair}' on line number {number}")
                found.append((pair, None))
                continue
            if key == self._null:
                raise BadLine(
                    f"Header keys should not be equal to the null marker '{self._null}' as they can't be null"
                )
            found.append((key, self._bytes(value)))
        return found

    def _bytes(self, text: str | None) -> bytes | None:
        return None if text is None or text == self._null else text.encode()


def _flag(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").strip().lower() == "true"
