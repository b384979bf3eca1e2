"""Emit the facts that the JSON form of messages needs; the classes themselves only read and write bytes."""

from __future__ import annotations

from collections.abc import Callable

from generate.code import WIDTH, Code
from generate.emit_module import GENERATED
from generate.layout import Class, Module, snake
from generate.schema import Field

#: Types whose JSON form is not the value itself.
_CONVERTED = ("bytes", "records", "uuid")


def is_stored(cls: Class) -> bool:
    """Return True if the class can be stored on disk: a record of a log, or part of such a record."""
    return cls.kind in ("metadata", "coordinator-key", "coordinator-value", "data")


def emit_stored_fields(modules: list[Module]) -> str:
    return _emit_fields(
        modules,
        "STORED_FIELDS",
        "The fields of everything that lies on a disk, for its JSON form (`json_form.py`).",
        is_stored,
    )


def emit_message_fields(modules: list[Module]) -> str:
    return _emit_fields(
        modules,
        "MESSAGE_FIELDS",
        "The fields of every request and response, for its JSON form (`json_form.py`).",
        lambda cls: cls.kind in ("request", "response"),
    )


def _emit_fields(modules: list[Module], table: str, title: str, wanted: Callable[[Class], bool]) -> str:
    code = Code()
    code(f'"""{title}')
    code()
    code(GENERATED.format(sources="wire/schemas"))
    code('"""')
    code()
    code("from __future__ import annotations")
    code()
    code("from typing import Final")
    code()
    code("# Module and class -> its fields: name in JSON, attribute, type where it is converted, first and last")
    code("# version, first and last version in which it is a tagged field.")
    code(f"{table}: Final[dict[str, tuple[tuple[str, str, str, int, int, int, int], ...]]] = {{")
    for module in modules:
        for cls in module.classes:
            if not wanted(cls):
                continue
            name = f"{module.name}.{cls.name}"
            rows = [_row(field) for field in cls.fields]
            line = f'    "{name}": ({rows[0]},),' if len(rows) == 1 else ""
            if not rows:
                code(f'    "{name}": (),')
            elif line and len(line) <= WIDTH:
                code(line)
            else:
                code(f'    "{name}": (')
                for row in rows:
                    code(f"        {row},")
                code("    ),")
    code("}")
    return code.text()


def _row(field: Field) -> str:
    name = field.name[0].lower() + field.name[1:]
    kind = field.type if field.type in _CONVERTED else ""
    versions = (field.versions.low, field.versions.high, field.tagged.low, field.tagged.high)
    return f'("{name}", "{snake(field.name)}", "{kind}", {", ".join(map(str, versions))})'
