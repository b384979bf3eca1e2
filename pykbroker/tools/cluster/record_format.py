"""Format strings, with which a record that was read is printed, as with `kcat -f`. Pure.

Responsible for the tokens (%s, %k, ...) and for the plain form of a record: its value and a delimiter, with the key
before them if the caller wants it.

Invariant: a key and a value are printed byte by byte; they are decoded only on request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, Protocol, TypeAlias

from pykbroker.tools.cluster.encodings import Encoding, encoded
from pykbroker.tools.cluster.escapes import as_bytes, unescaped

_NULL: Final = b"NULL"
_SIZE: Final = Struct(">i")


class ReadRecord(Protocol):
    """The attributes that a record needs to be printed. kafka-python's ConsumerRecord has them, and so has a
    DeliveredRecord of a share group."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int:
        """Milliseconds since the epoch, or -1 if there is none."""

    @property
    def timestamp_type(self) -> int | None:
        """0 for the producer's time, 1 for the broker's."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


def delivery_count(record: ReadRecord) -> int | None:
    """Return how often a record of a share group was delivered, this time included. It is None for a record that was
    not read as a member of a share group."""
    found: int | None = getattr(record, "delivery_count", None)
    return found


@dataclass(slots=True, frozen=True)
class Shown:
    """The encodings of keys and of values. `null` is printed for a key or value that is null."""

    key: Encoding = "text"
    value: Encoding = "text"
    null: bytes = b""


_Part: TypeAlias = Callable[[ReadRecord], bytes]


class FormatString:
    """`FormatString(r"%t %o: %s\\n", Shown()).written(record)`. Raises ValueError for an unknown token."""

    def __init__(self, text: str, shown: Shown) -> None:
        self._parts = _parsed(text, _tokens(shown))

    def written(self, record: ReadRecord) -> bytes:
        return b"".join([part if isinstance(part, bytes) else part(record) for part in self._parts])


class DelimitedFormat:
    """The value and a delimiter; with `key_delimiter`, first the key and that delimiter."""

    def __init__(self, delimiter: bytes, key_delimiter: bytes | None, shown: Shown) -> None:
        tokens = _tokens(shown)
        self._key, self._value = tokens["k"], tokens["s"]
        self._delimiter, self._key_delimiter = delimiter, key_delimiter

    def written(self, record: ReadRecord) -> bytes:
        value = self._value(record) + self._delimiter
        return value if self._key_delimiter is None else self._key(record) + self._key_delimiter + value


def _tokens(shown: Shown) -> dict[str, _Part]:
    def key(record: ReadRecord) -> bytes:
        return shown.null if record.key is None else encoded(record.key, shown.key)

    def value(record: ReadRecord) -> bytes:
        return shown.null if record.value is None else encoded(record.value, shown.value)

    return {
        "s": value,
        "S": lambda record: b"%d" % _size(record.value),
        "R": lambda record: _SIZE.pack(_size(record.value)),
        "k": key,
        "K": lambda record: b"%d" % _size(record.key),
        "T": lambda record: b"%d" % record.timestamp,
        "h": _headers,
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "d": _delivery_count,
    }


def _delivery_count(record: ReadRecord) -> bytes:
    count = delivery_count(record)
    return b"" if count is None else b"%d" % count


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(record: ReadRecord) -> bytes:
    return b",".join(
        name.encode("utf-8", "surrogateescape") + b"=" + (_NULL if value is None else value)
        for name, value in record.headers
    )


def _parsed(text: str, tokens: dict[str, _Part]) -> list[bytes | _Part]:
    parts: list[bytes | _Part] = []
    start = place = 0
    while (place := text.find("%", place)) >= 0:
        if _is_escaped(text, start, place):
            place += 1
            continue
        parts.append(unescaped(text[start:place]))
        token = text[place + 1 : place + 2]
        if token == "%":  # noqa: S105  # a letter of a format
            parts.append(b"%")
        elif token in tokens:
            parts.append(tokens[token])
        else:
            known = " ".join(f"%{name}" for name in tokens)
            what = f"%{token} is no token" if token else "a % stands at the end"
            raise ValueError(f"format {as_bytes(text).decode('utf-8', 'replace')!r}: {what}; known are {known} %%")
        start = place = place + 2
    parts.append(unescaped(text[start:]))
    return [part for part in parts if part != b""]


def _is_escaped(text: str, start: int, place: int) -> bool:
    """Return True if an odd number of backslashes is directly before the place."""
    before = text[start:place]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1
