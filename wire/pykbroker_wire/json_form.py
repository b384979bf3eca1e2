"""The JSON form of messages: stored messages as Apache Kafka's tools print them, requests and responses as its request
log contains them (KIP-673).

Fields are in the order of their schema, without those of other versions; tagged fields appear only if they are not the
default. Bytes are base 64, uuids are Kafka's text, and records are only a size. `render` returns the text of Kafka's
JSON library: no spaces, and only quotes, backslashes and control characters are escaped.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from decimal import Decimal
from math import isfinite
from typing import Any, Final

from pykbroker_wire.primitives import Message, TopLevel, uuid_to_str
from pykbroker_wire.stored_fields import STORED_FIELDS

_ESCAPES = {
    **{code: f"\\u{code:04X}" for code in range(32)},
    **{ord(char): f"\\{name}" for char, name in zip('"\\\b\f\n\r\t', '"\\bfnrt', strict=True)},
}
_NOT_FINITE = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


#: See stored_fields.py and message_fields.py.
Fields = Mapping[str, tuple[tuple[str, str, str, int, int, int, int], ...]]
#: (message, attribute) -> the text that replaces a secret value; None to show the value itself
Hide = Callable[[Message, str], str | None]


def _shows_everything(message: Message, attribute: str) -> None:
    """A `Hide` that hides no value."""


class _Form:
    __slots__ = ("fields", "flexible", "hide", "sizes", "version")

    def __init__(self, version: int, *, flexible: bool, fields: Fields, hide: Hide, sizes: bool) -> None:
        self.version: Final = version
        self.flexible: Final = flexible
        self.fields: Final = fields
        self.hide: Final = hide
        self.sizes: Final = sizes

    def struct(self, message: Message) -> dict[str, Any]:
        cls = type(message)
        version = self.version
        found: dict[str, Any] = {}
        default: Message | None = None
        for name, attribute, kind, low, high, tagged_low, tagged_high in self.fields[
            f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}"
        ]:
            if not low <= version <= high:
                continue
            value = getattr(message, attribute)
            if tagged_low <= version <= tagged_high:
                default = default or cls()
                if not self.flexible or value == getattr(default, attribute):
                    continue
            if (hidden := self.hide(message, attribute)) is not None:
                found[name] = hidden
            elif kind == "records" and value is not None:
                if self.sizes:
                    found[f"{name}SizeInBytes"] = _size(value)
                else:
                    found[name] = ""
            elif isinstance(value, list | tuple):
                found[name] = [self.value(one, kind) for one in value]
            else:
                found[name] = self.value(value, kind)
        return found

    def value(self, value: Any, kind: str) -> Any:
        if value is None:
            return None
        if kind == "uuid":
            return uuid_to_str(value)
        if kind == "bytes":
            return base64.b64encode(value).decode()
        if isinstance(value, Message):
            return self.struct(value)
        return value


def to_json(
    message: TopLevel,
    version: int,
    *,
    fields: Fields = STORED_FIELDS,
    hide: Hide = _shows_everything,
    sizes: bool = False,
) -> dict[str, Any]:
    """Return values that `json` accepts. Records become their size in bytes if `sizes` is set, else an empty text.
    Raises KeyError for a message that is not among `fields`."""
    flexible = version >= message.FLEXIBLE_FROM
    return _Form(version, flexible=flexible, fields=fields, hide=hide, sizes=sizes).struct(message)


def _size(records: Any) -> int:
    return sum(map(len, records)) if isinstance(records, list | tuple) else len(records)


def render(value: Any) -> str:
    """Return compact JSON of a result of `to_json`."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value.translate(_ESCAPES)}"'
        case dict():
            return "{" + ",".join(f"{render(name)}:{render(one)}" for name, one in value.items()) + "}"
        case list():
            return "[" + ",".join(map(render, value)) + "]"
        case int():
            # The explicit call also covers enums.
            return int.__repr__(value)
        case float():
            return _double(value)
        case _:
            return repr(value)


def _double(value: float) -> str:
    """Write a double as Java does: with an exponent from ten million on and below a thousandth."""
    if value == 0 or 1e-3 <= abs(value) < 1e7 or not isfinite(value):
        return _NOT_FINITE.get(repr(value), repr(value))
    mantissa, _, exponent = f"{Decimal(repr(value)).normalize():E}".partition("E")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
