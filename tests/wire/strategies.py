"""Hypothesis strategies for messages, by reflection on the schemas: they shrink to the smallest message that fails."""

from __future__ import annotations

import functools
from typing import Any

from hypothesis import strategies as st

from generate.layout import snake
from generate.schema import Field
from testkit.messages.catalogue import BOUNDS, Entry

# Includes lengths around the first one that does not fit into a single byte.
_BYTES = st.one_of(st.binary(max_size=6), st.sampled_from((126, 127, 128)).map(bytes))
_TEXT = st.one_of(st.text(st.characters(codec="utf-8"), max_size=6), st.sampled_from((126, 127, 128)).map("x".__mul__))
_UUID = st.binary(min_size=16, max_size=16)
# The tests compare by equality, which NaN does not have.
_FLOAT = st.floats(allow_nan=False)


def messages(item: Entry, version: int) -> st.SearchStrategy[Any]:
    return _struct(item, item.message.name, version, 0)


@functools.cache
def _struct(item: Entry, name: str, version: int, depth: int) -> st.SearchStrategy[Any]:
    cls = item.top if name == item.message.name else item.top.structs[name]
    flexible = version in item.message.flexible
    arguments = {
        snake(field.name): _field(item, field, version, depth)
        for field in cls.fields
        if version in field.versions and (flexible or version not in field.tagged)
    }
    return st.builds(getattr(item.module, cls.name), **arguments)


def _field(item: Entry, field: Field, version: int, depth: int) -> st.SearchStrategy[Any]:
    one = _value(item, field, version, depth)
    if field.array:
        one = st.lists(one, max_size=2 if depth < 2 else 1)
    return st.none() | one if version in field.nullable else one


def _value(item: Entry, field: Field, version: int, depth: int) -> st.SearchStrategy[Any]:
    match field.type:
        case "bool":
            return st.booleans()
        case "string":
            return _TEXT
        case "bytes" | "records":
            return _BYTES
        case "uuid":
            return _UUID
        case "float64":
            return _FLOAT
        case kind if kind in BOUNDS:
            low, high = BOUNDS[kind]
            return st.integers(low, high)
        case kind:
            return _struct(item, kind, version, depth + 1)
