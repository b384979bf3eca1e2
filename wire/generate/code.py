"""Python text: indentation, line breaking, and the expressions for fields that both emitters use."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager

from generate.layout import Class, Variant, snake
from generate.schema import NONE, OPEN, Field, Versions

WIDTH = 120

# Type -> letter of the struct module, bytes.
FIXED = {
    "bool": ("?", 1), "int8": ("b", 1), "int16": ("h", 2), "uint16": ("H", 2), "int32": ("i", 4), "uint32": ("I", 4),
    "int64": ("q", 8), "float64": ("d", 8), "uuid": ("16s", 16),
}  # fmt: skip

PYTHON_TYPES = {
    "bool": "bool", "int8": "int", "int16": "int", "uint16": "int", "int32": "int", "uint32": "int", "int64": "int",
    "float64": "float", "uuid": "bytes", "string": "str", "bytes": "bytes",
}  # fmt: skip


class Code:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0

    def __call__(self, line: str = "") -> None:
        indent = "    " * self._depth
        for part in _wrapped(line, WIDTH - len(indent)):
            self.lines.append(indent + part if part else "")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self(head)
        self._depth += 1
        yield
        self._depth -= 1

    def listing(self, head: str, items: list[str], tail: str) -> None:
        """Write `head`, the items and `tail` on one line if they fit, else each item on a line of its own."""
        line = head + ", ".join(items) + tail
        if len(line) + 4 * self._depth <= WIDTH:
            self(line)
            return
        self(head)
        for item in items:
            self("    " + item + ",")
        self(tail.lstrip())

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def _wrapped(line: str, width: int) -> list[str]:
    """Break a line that is too long as ruff would: a signature at its parameters, a condition at its `or`s, an
    assignment after its equals sign."""
    if len(line) <= width:
        return [line]
    if line.startswith("def ") and line.endswith(":"):
        head, _, signature = line.partition("(")
        parameters, _, tail = signature.rpartition(") -> ")
        return [f"{head}(", f"    {parameters}", f") -> {tail}"]
    if line.startswith("if ") and " or " in line:
        first, *rest = line.removeprefix("if ").removesuffix(":").split(" or ")
        return ["if (", f"    {first}", *(f"    or {item}" for item in rest), "):"]
    name, equals, value = line.partition(" = ")
    if equals:
        return [f"{name} = (", f"    {value}", ")"]
    call, _, argument = line.removesuffix(")").partition("(")
    if " if " in argument:
        return [f"{call}(", f"    {argument}", ")"]
    return [line]


def condition(wanted: Versions, known: Versions) -> str:
    """Return the condition that separates `wanted` from the rest of `known`; empty if there is no rest."""
    part = wanted & known
    if part == known:
        return ""
    if part.high == known.high:
        return f"version >= {part.low}"
    if part.low == known.low:
        return f"version <= {part.high}"
    return f"{part.low} <= version <= {part.high}"


def opposite(wanted: Versions, known: Versions) -> str:
    part = wanted & known
    if part.high == known.high:
        return f"version < {part.low}"
    if part.low == known.low:
        return f"version > {part.high}"
    return f"not {part.low} <= version <= {part.high}"


def present(field: Field, variant: Variant) -> Versions:
    """Return the versions of this variant in which the field is at its own place, not among the tags."""
    return (field.versions & variant.versions).minus(field.tagged)


def tagged(field: Field, variant: Variant) -> Versions:
    return field.versions & field.tagged & variant.versions if variant.flexible else NONE


def is_compact(field: Field, variant: Variant) -> bool:
    return variant.flexible and (field.flexible is None or bool(field.flexible))


def is_fixed(field: Field) -> bool:
    return field.type in FIXED and not field.array


def groups(cls: Class, variant: Variant) -> list[tuple[Versions, list[Field]]]:
    """Return the fields in order, in groups: neighbours with the same versions are one group."""
    found: list[tuple[Versions, list[Field]]] = []
    for field in cls.fields:
        versions = present(field, variant)
        if not versions:
            continue
        if found and found[-1][0] == versions:
            found[-1][1].append(field)
        else:
            found.append((versions, [field]))
    return found


def may_be_none(field: Field) -> bool:
    return bool(field.nullable) or field.default == "null" or field.type == "records"


def default_expression(field: Field, cls: Class) -> str:
    """Return the expression of a fresh default value."""
    if field.default == "null" or field.type == "records":
        return "None"
    if field.array:
        return "[]"
    match field.type:
        case "bool":
            return "True" if field.default == "true" else "False"
        case "string":
            return '"' + field.default + '"'
        case "bytes":
            return 'b""'
        case "uuid":
            return repr(base64.urlsafe_b64decode(field.default + "==")) if field.default else "ZERO_UUID"
        case "float64":
            return repr(float(field.default or 0))
        case _ if field.type in FIXED:
            return str(int(field.default or "0", 0))
        case _:
            return f"{cls.structs[field.type].name}()"


def python_type(field: Field, cls: Class) -> str:
    if field.type == "records":
        # The records of a request are a view of the received buffer, those of a response may be several buffers.
        return "Buffer | None" if cls.kind == "request" else "RecordsOut | None"
    inner = PYTHON_TYPES.get(field.type) or cls.structs[field.type].name
    kind = f"list[{inner}]" if field.array else inner
    return f"{kind} | None" if may_be_none(field) else kind


def differs(field: Field, cls: Class, owner: str = "m") -> str:
    """Return a Python condition that is true if `owner.field` is not the default."""
    name = f"{owner}.{snake(field.name)}"
    default = default_expression(field, cls)
    if default == "None":
        return f"{name} is not None"
    if field.is_struct and not field.array:
        # Compare field by field: an object to compare with would cost more than the rest of a small message.
        inner = cls.structs[field.type]
        tests = [differs(item, inner, name) for item in inner.fields]
        return " or ".join([f"{name} is None", *tests] if field.nullable else tests)
    if default in ("[]", '""', 'b""', "0", "False"):
        return f"{name} is None or {name}" if field.nullable else name
    if default == "True":
        return f"not {name}"
    return f"{name} != {default}"


def pack_name(fmt: str, prefix: str) -> str:
    return f"_{prefix}_{fmt.replace('16s', 'u').replace('?', 't')}"


def least_bytes(cls: Class, variant: Variant) -> int:
    """Return the smallest size of one struct in any version of the variant; the count of an array is checked with
    it."""
    top = min(variant.versions.high, OPEN)
    return max(1, min(_struct_bytes(cls, variant, version) for version in range(variant.versions.low, top + 1)))


def _struct_bytes(cls: Class, variant: Variant, version: int) -> int:
    total = 1 if variant.flexible else 0
    for field in cls.fields:
        if version not in present(field, variant):
            continue
        if is_fixed(field):
            total += FIXED[field.type][1]
        elif field.is_struct and not field.array:
            inner = cls.structs[field.type]
            total += 1 if field.nullable else _struct_bytes(inner, inner.variant(variant.flexible), version)
        elif is_compact(field, variant):
            total += 1
        else:
            total += 2 if field.type == "string" and not field.array else 4
    return total


def element_bytes(field: Field, cls: Class, variant: Variant) -> int:
    if field.type in FIXED:
        return FIXED[field.type][1]
    if field.is_struct:
        inner = cls.structs[field.type]
        return least_bytes(inner, inner.variant(variant.flexible))
    if is_compact(field, variant):
        return 1
    return 2 if field.type == "string" else 4
