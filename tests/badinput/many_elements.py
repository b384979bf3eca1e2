"""Requests with many elements: each array of each API, filled in the ways that make handlers compare elements.

Responsible for the requests. test_many_elements.py judges their cost.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

from pykbroker.api import TABLE
from pykbroker_wire.apis import APIS, ApiKey
from pykbroker_wire.primitives import TopLevel

#: The ways to make the elements of an array: by their number, and by the value of fields that do not distinguish
#: elements.
WAYS: Final = ("the same", "other names", "other numbers", "each twice", "every other unknown")

_NAMES: Final = ("name", "topic", "topic_name", "resource_name", "group_id", "key", "user", "feature", "principal")
_TEXTS: Final = {
    "group_id": "g",
    "group": "g",
    "transactional_id": "x",
    "protocol_type": "consumer",
    "host": "*",
    "mechanism": "PLAIN",
}
_NUMBERS: Final = {
    "resource_type": 2,
    "resource_type_filter": 2,
    "pattern_type": 3,
    "pattern_type_filter": 3,
    "operation": 3,
    "permission_type": 3,
    "num_partitions": -1,
    "replication_factor": -1,
    "timeout_ms": 30_000,
    "max_wait_ms": 0,
    "replica_id": -1,
    "acks": -1,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "count": 8,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "upgrade_type": 1,
    "timestamp": -1,
    "iterations": 4096,
    "producer_id": -1,
    "producer_epoch": -1,
    "session_epoch": -1,
    "current_leader_epoch": -1,
    "leader_epoch": -1,
    "generation_id_or_member_epoch": -1,
    "member_epoch": 0,
}


@dataclass(slots=True, frozen=True)
class Known:
    """A topic of the node."""

    topic: str
    topic_id: bytes


@dataclass(slots=True, frozen=True)
class Array:
    """One array of the requests of an API."""

    key: ApiKey
    request_class: type[TopLevel]
    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"{APIS[self.key].name} {'.'.join(self.path)}"

    def request(self, count: int, way: str, known: Known) -> TopLevel:
        """Return a request with `count` elements in the array, made in one of `WAYS`."""
        made: TopLevel = _made(self.request_class, self.path, count, way, known)
        return made


def arrays() -> Iterator[Array]:
    """Yield each array of each served API; an array within another one is in its only element."""
    for row in TABLE:
        module = import_module(f"pykbroker_wire.messages.{row.key.name.lower()}")
        cls = getattr(module, f"{APIS[row.key].name}Request")
        for path in _paths(cls):
            yield Array(row.key, cls, path)


class _Shape(NamedTuple):
    """The fields of a class, by the kind of their values."""

    arrays: tuple[tuple[str, Any], ...]
    """With the type of the elements."""
    structs: tuple[tuple[str, Any], ...]
    scalars: tuple[str, ...]


@cache
def _shape(cls: Any) -> _Shape:
    arrays, structs, scalars = [], [], []
    for name, hint in typing.get_type_hints(cls.__init__).items():
        element = _element(hint)
        if name == "return":
            continue
        if element is not None:
            arrays.append((name, element))
        elif _is_struct(hint):
            structs.append((name, hint))
        else:
            scalars.append(name)
    return _Shape(tuple(arrays), tuple(structs), tuple(scalars))


def _element(hint: Any) -> Any | None:
    """Return the type of the elements of an array, or None for another type."""
    for each in (hint, *typing.get_args(hint)):
        if typing.get_origin(each) is list:
            return typing.get_args(each)[0]
    return None


@cache
def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and hasattr(hint, "__slots__") and hint not in (int, str, bytes, bool, float)


def _paths(cls: type) -> Iterator[tuple[str, ...]]:
    shape = _shape(cls)
    for name, element in shape.arrays:
        yield (name,)
        if _is_struct(element):
            yield from ((name, *rest) for rest in _paths(element))
    for name, struct in shape.structs:
        yield from ((name, *rest) for rest in _paths(struct))


def _made(cls: type, path: tuple[str, ...], count: int, way: str, known: Known, number: int | None = None) -> Any:
    """Make an object. `path` leads from here to the array with `count` elements; all other arrays on the way have one
    element. `number`: that of this element, if it is one of many."""
    made = cls()
    shape = _shape(cls)
    for name, element in shape.arrays:
        inner: list[Any] = []
        if path and name == path[0]:
            rest = path[1:]
            numbers = (None,) if rest else range(count)
            if _is_struct(element):
                inner = [_made(element, rest, count, way, known, each) for each in numbers]
            else:
                inner = [_scalar(element, name, each, way, known) for each in numbers]
        setattr(made, name, inner)
    for name, struct in shape.structs:
        setattr(made, name, _made(struct, path[1:] if path and name == path[0] else (), count, way, known))
    for name in shape.scalars:
        _set(made, cls.__name__, name, number, way, known)
    return made


def _set(made: Any, owner: str, name: str, number: int | None, way: str, known: Known) -> None:
    value = getattr(made, name)
    if isinstance(value, bool):
        return
    if isinstance(value, str) or (value is None and name in (*_NAMES, *_TEXTS)):
        setattr(made, name, _text(owner, name, number, way, known))
    elif isinstance(value, bytes) and name == "topic_id":
        setattr(made, name, _topic_id(number, way, known))
    elif isinstance(value, int):
        setattr(made, name, _number(name, value, number, way))


def _scalar(kind: Any, array: str, number: int | None, way: str, known: Known) -> Any:
    if kind is str:
        return _text("", array, number, way, known)
    if kind is bytes:
        return _topic_id(number, way, known)
    return _number(array, 0, number, way, is_scalar=True)


def _number_of(number: int, way: str) -> int:
    return number // 2 if way == "each twice" else number


def _text(owner: str, name: str, number: int | None, way: str, known: Known) -> str:
    is_name = name in _NAMES or name.endswith("s")
    if number is not None and is_name and (way in ("other names", "each twice") or (way[:5] == "every" and number % 2)):
        return f"name-{_number_of(number, way)}"
    if name in _TEXTS:
        return _TEXTS[name]
    if "Config" in owner and name == "name":
        return "retention.ms"
    return known.topic if is_name else ""


def _topic_id(number: int | None, way: str, known: Known) -> bytes:
    if number is not None and (way in ("other names", "each twice") or (way[:5] == "every" and number % 2)):
        return b"id" + _number_of(number, way).to_bytes(14, "big")
    return known.topic_id


def _number(name: str, value: int, number: int | None, way: str, is_scalar: bool = False) -> int:
    is_index = is_scalar or name.endswith(("index", "partition", "_id", "partition_id"))
    if number is not None and is_index and name not in _NUMBERS and way in ("other numbers", "each twice"):
        return _number_of(number, way)
    return _NUMBERS.get(name, 0 if is_index else value)
