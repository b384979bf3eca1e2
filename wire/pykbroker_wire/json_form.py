"""The JSON form of messages: of those on a disk as Apache Kafka's tools print it, of requests and responses as its
request log does (KIP-673).

Fields in the order of their schema, those of other versions left out, tagged ones only where they are not the default.
Bytes are base 64, uuids Kafka's text; of records there is no more than their size. `render` gives the text of Kafka's
JSON library: no spaces, everything but quotes, backslashes and control characters as it is.
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
#: (message, attribute) -> the text in place of a value that is secret; None: the value itself
Hide = Callable[[Message, str], str | None]


def _shows_everything(message: Message, attribute: str) -> None:
    """A `Hide`."""


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
    """Values as `json` takes them. `sizes`: say how many bytes records have, else they are an empty text. KeyError for
    a message that is not among `fields`."""
    flexible = version >= message.FLEXIBLE_FROM
    return _Form(version, flexible=flexible, fields=fields, hide=hide, sizes=sizes).struct(message)


def _size(records: Any) -> int:
    return sum(map(len, records)) if isinstance(records, list | tuple) else len(records)


def render(value: Any) -> str:
    """Compact JSON of what `to_json` returns."""
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
            # Also where it is an enum.
            return int.__repr__(value)
        case float():
            return _double(value)
        case _:
            return repr(value)


def _double(value: float) -> str:
    """As Java writes it: with an exponent from ten million on and below a thousandth."""
    if value == 0 or 1e-3 <= abs(value) < 1e7 or not isfinite(value):
        return _NOT_FINITE.get(repr(value), repr(value))
    mantissa, _, exponent = f"{Decimal(repr(value)).normalize():E}".partition("E")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
