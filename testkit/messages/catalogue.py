"""Every message of the schemas with its generated class, and values for them: the cases of the tests.

Only tests use reflection over the schemas, never the package itself. Values come from a `random.Random`, so that a seed
identifies a test case.
"""

from __future__ import annotations

import functools
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from generate import layout
from generate.layout import snake
from generate.project import load
from generate.schema import Field, Message
from pykbroker_wire.primitives import TopLevel

WIRE = Path(__file__).resolve().parents[2] / "wire"

# In the style "full" every field differs from its default, in "empty" it is null if that is allowed and else the
# smallest value, and in "random" it has any value.
Style = Literal["full", "empty", "random"]
PLAIN_STYLES: tuple[Style, ...] = ("full", "empty")

BOUNDS = {
    "int8": (-128, 127), "int16": (-32768, 32767), "uint16": (0, 65535), "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1), "int64": (-(2**63), 2**63 - 1),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Entry:
    message: Message
    top: layout.Class
    cls: type[TopLevel]
    module: Any

    @property
    def versions(self) -> range:
        return range(self.message.versions.low, self.message.versions.high + 1)

    def __repr__(self) -> str:
        return self.message.name


@functools.cache
def schemas() -> tuple[Message, ...]:
    return tuple(load(WIRE / "schemas"))


@functools.cache
def entries() -> tuple[Entry, ...]:
    found = []
    for module in layout.modules(list(schemas())):
        loaded = import_module(f"pykbroker_wire.{module.package.replace('/', '.')}.{module.name}")
        for cls in module.classes:
            if cls.message:
                found.append(Entry(cls.message, cls, getattr(loaded, cls.name), loaded))
    return tuple(found)


def entry(name: str) -> Entry:
    return next(item for item in entries() if item.message.name == name)


def cases() -> Iterator[tuple[Entry, int]]:
    for item in entries():
        for version in item.versions:
            yield item, version


class Maker:
    """Makes messages with one `random.Random` in one style."""

    def __init__(self, rng: random.Random, style: Style) -> None:
        self.rng = rng
        self.style: Style = style

    def message(self, item: Entry, version: int) -> TopLevel:
        made = self._struct(item, item.top, version, 0)
        assert isinstance(made, TopLevel)
        return made

    def value(self, item: Entry, cls: layout.Class, field: Field, version: int) -> Any:
        return self._value(item, cls, field, version, 1)

    def _struct(self, item: Entry, cls: layout.Class, version: int, depth: int) -> Any:
        flexible = version in item.message.flexible
        values = {}
        for field in cls.fields:
            # At its place or among the tags; a tag only exists in flexible versions.
            if version in field.versions and (flexible or version not in field.tagged):
                values[snake(field.name)] = self._field(item, cls, field, version, depth)
        return getattr(item.module, cls.name)(**values)

    def _field(self, item: Entry, cls: layout.Class, field: Field, version: int, depth: int) -> Any:
        nullable = version in field.nullable
        if nullable and (self.style == "empty" or (self.style == "random" and self.rng.random() < 0.2)):
            return None
        if not field.array:
            return self._value(item, cls, field, version, depth)
        return [self._value(item, cls, field, version, depth) for _ in range(self._count(field, depth))]

    def _count(self, field: Field, depth: int) -> int:
        if self.style == "empty":
            return 0
        if self.style == "full":
            return 2 if depth == 0 else 1
        if depth == 0 and self.rng.random() < 0.02:
            # The length needs more than one byte.
            return self.rng.randrange(126, 140)
        return self.rng.choice((0, 1, 1, 2, 3) if depth < 2 else (0, 1))

    def _value(self, item: Entry, cls: layout.Class, field: Field, version: int, depth: int) -> Any:
        rng, kind = self.rng, field.type
        if field.is_struct:
            return self._struct(item, cls.structs[kind], version, depth + 1)
        if self.style == "empty" and kind in ("string", "bytes", "records"):
            return "" if kind == "string" else b""
        match kind:
            case "bool":
                return field.default != "true" if self.style == "full" else rng.random() < 0.5
            case "string":
                return self._text()
            case "bytes" | "records":
                return rng.randbytes(rng.choice((1, 7, 126, 127, 128, 600) if self.style == "random" else (5,)))
            case "uuid":
                return bytes(16) if self.style == "empty" else rng.randbytes(16)
            case "float64":
                return rng.choice((1.5, -0.25, 3e300, struct.unpack(">d", b"\x40" + rng.randbytes(7))[0]))
            case _:
                low, high = BOUNDS[kind]
                if self.style == "empty":
                    return 0
                if self.style == "random":
                    return rng.choice((low, high, 0, 1, rng.randint(low, high)))
                return rng.randint(2, 100)

    def _text(self) -> str:
        rng = self.rng
        alphabet = "abcXYZ.-_ 019" if self.style == "full" else 'ab"\\\n\u0000é€\U0001f600'
        size = rng.randrange(1, 9)
        if self.style == "random" and rng.random() < 0.1:
            size = rng.choice((0, 125, 126, 127, 128, 300))
        return "".join(rng.choice(alphabet) for _ in range(size))


def bombs(item: Entry, version: int, count: int) -> Iterator[TopLevel]:
    """Yield for each array in a message the smallest message in which it has `count` elements of the smallest kind."""
    maker = Maker(random.Random(0), "empty")

    def fill(cls: layout.Class, path: tuple[Field, ...]) -> Iterator[tuple[Field, ...]]:
        for field in cls.fields:
            if version not in field.versions or (version in field.tagged and version not in item.message.flexible):
                continue
            if field.array:
                yield (*path, field)
            if field.is_struct:
                yield from fill(cls.structs[field.type], (*path, field))

    for path in fill(item.top, ()):
        message = maker.message(item, version)
        owner: Any = message
        for depth, field in enumerate(path):
            cls = item.top if depth == 0 else item.top.structs[path[depth - 1].type]
            last = depth == len(path) - 1
            made = [maker.value(item, cls, field, version) for _ in range(count if last else 1)]
            setattr(owner, snake(field.name), made if field.array else made[0])
            owner = made[0]
        yield message


def make(item: Entry, version: int, style: Style, seed: int = 0) -> TopLevel:
    return Maker(random.Random(f"{item.message.name} {version} {style} {seed}"), style).message(item, version)
