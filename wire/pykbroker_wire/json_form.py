"""The JSON form of messages that lie on a disk, as Apache Kafka's tools print it.

Fields in the order of their schema, those of other versions left out, tagged ones only where they are not the default.
Bytes are base 64, uuids Kafka's text. `render` gives the text of Kafka's JSON library: no spaces, everything but
quotes, backslashes and control characters as it is.
"""

from __future__ import annotations

import base64
from decimal import Decimal
from math import isfinite
from typing import Any

from pykbroker_wire.primitives import Message, TopLevel, uuid_to_str
from pykbroker_wire.stored_fields import STORED_FIELDS

_ESCAPES = {
    **{code: f"\\u{code:04X}" for code in range(32)},
    **{ord(char): f"\\{name}" for char, name in zip('"\\\b\f\n\r\t', '"\\bfnrt', strict=True)},
}
_NOT_FINITE = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def to_json(message: TopLevel, version: int) -> dict[str, Any]:
    """Values as `json` takes them. KeyError for a message that no log holds."""
    return _struct(message, version, flexible=version >= message.FLEXIBLE_FROM)


def _struct(message: Message, version: int, *, flexible: bool) -> dict[str, Any]:
    cls = type(message)
    found: dict[str, Any] = {}
    default: Message | None = None
    for name, attribute, kind, low, high, tagged_low, tagged_high in STORED_FIELDS[
        f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}"
    ]:
        if not low <= version <= high:
            continue
        value = getattr(message, attribute)
        if tagged_low <= version <= tagged_high:
            default = default or cls()
            if not flexible or value == getattr(default, attribute):
                continue
        if isinstance(value, list):
            found[name] = [_value(one, kind, version, flexible) for one in value]
        else:
            found[name] = _value(value, kind, version, flexible)
    return found


def _value(value: Any, kind: str, version: int, flexible: bool) -> Any:
    if value is None:
        return None
    if kind == "uuid":
        return uuid_to_str(value)
    if kind == "bytes":
        return base64.b64encode(value).decode()
    if isinstance(value, Message):
        return _struct(value, version, flexible=flexible)
    return value


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
