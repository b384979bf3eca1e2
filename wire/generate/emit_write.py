"""Emit the writers: one function per struct and variant, straight down the fields.

The code it writes hands pieces to `write`, the `append` of a list that is joined at the end. A run of fixed-width fields
is one pack; an empty tag section right behind a run is a pad byte of that pack.
"""

from __future__ import annotations

from generate.code import (
    FIXED,
    Code,
    condition,
    default_expression,
    differs,
    groups,
    is_compact,
    is_fixed,
    opposite,
    pack_name,
    present,
    tagged,
)
from generate.layout import Class, Variant, snake
from generate.schema import Field, Versions


def writer_name(cls: Class, variant: Variant) -> str:
    return f"_write_{cls.name}{variant.suffix}"


def emit_writer(code: Code, cls: Class, variant: Variant, formats: set[str]) -> None:
    with code.block(f"def {writer_name(cls, variant)}(m: {cls.name}, write: Write, version: int) -> None:"):
        before = len(code.lines)
        for field in cls.fields:
            if not present(field, variant) and not tagged(field, variant):
                _emit_unsupported(code, cls, field)
        known_tags = [field for field in cls.fields if tagged(field, variant)]
        for field in known_tags:
            # A tagged field of later versions of this variant.
            versions = (field.versions & variant.versions).minus(present(field, variant))
            if condition(versions, variant.versions) and not present(field, variant) and not field.ignorable:
                test = differs(field, cls)
                test = f"({test})" if " or " in test else test
                with code.block(f"if {opposite(versions, variant.versions)} and {test}:"):
                    code(f'raise unsupported("{cls.name}.{snake(field.name)}", version)')
        padded = False
        sections = groups(cls, variant)
        for number, (versions, fields) in enumerate(sections):
            test = condition(versions, variant.versions)
            pad = number == len(sections) - 1 and variant.flexible and not known_tags and not test
            if not test:
                padded = _emit_fields(code, cls, variant, versions, fields, formats, pad)
                continue
            with code.block(f"if {test}:"):
                _emit_fields(code, cls, variant, versions, fields, formats, False)
            missing = [field for field in fields if not field.ignorable and not tagged(field, variant)]
            if missing:
                with code.block("else:"):
                    for field in missing:
                        _emit_unsupported(code, cls, field)
        if variant.flexible:
            if known_tags:
                _emit_tags(code, cls, variant, known_tags, formats)
            elif not padded:
                code("write(ZERO)")
        if len(code.lines) == before:
            code("pass")


def _emit_unsupported(code: Code, cls: Class, field: Field) -> None:
    if not field.ignorable:
        with code.block(f"if {differs(field, cls)}:"):
            code(f'raise unsupported("{cls.name}.{snake(field.name)}", version)')


def _use(fmt: str, formats: set[str]) -> str:
    formats.add(fmt)
    return pack_name(fmt, "pack")


def _emit_fields(
    code: Code, cls: Class, variant: Variant, versions: Versions, fields: list[Field], formats: set[str], pad: bool
) -> bool:
    """Write `fields`; true when the empty tag section is written too."""
    rest = list(fields)
    while rest:
        run: list[Field] = []
        while rest and is_fixed(rest[0]):
            run.append(rest.pop(0))
        if run:
            padded = pad and not rest
            fmt = "".join(FIXED[field.type][0] for field in run) + ("x" if padded else "")
            code.listing(f"write({_use(fmt, formats)}(", [f"m.{snake(field.name)}" for field in run], "))")
            if padded:
                return True
        if rest:
            _emit_variable(code, cls, variant, versions, rest.pop(0), "write")
    return False


def _emit_variable(code: Code, cls: Class, variant: Variant, versions: Versions, field: Field, write: str) -> None:
    name = f"m.{snake(field.name)}"
    nullable = field.nullable & versions
    is_struct = field.is_struct and not field.array
    if not nullable and field.type != "records" and not (is_struct and field.nullable):
        if field.nullable or field.default == "null":
            # Null in other versions only; the type checker wants to be told.
            with code.block(f"if {name} is None:"):
                code(f'raise null_write("{cls.name}.{snake(field.name)}")')
        _emit_value(code, cls, variant, field, write)
        return
    with code.block(f"if {name} is None:"):
        if nullable != versions:
            if nullable:
                with code.block(f"if {opposite(nullable, versions)}:"):
                    code(f'raise null_write("{cls.name}.{snake(field.name)}")')
            else:
                code(f'raise null_write("{cls.name}.{snake(field.name)}")')
        if nullable:
            code(f"{write}({_null(field, variant, in_tag=write != 'write')})")
    with code.block("else:"):
        if is_struct and nullable:
            code(f'{write}(b"\\x01")')
        _emit_value(code, cls, variant, field, write)


def _null(field: Field, variant: Variant, in_tag: bool) -> str:
    if field.is_struct and not field.array and not in_tag:
        return 'b"\\xff"'
    if is_compact(field, variant):
        return "ZERO"
    return "NULL_INT16" if field.type == "string" and not field.array else "NULL_INT32"


def _emit_value(code: Code, cls: Class, variant: Variant, field: Field, write: str) -> None:
    name = f"m.{snake(field.name)}"
    compact = is_compact(field, variant)
    if field.is_struct and not field.array:
        inner = cls.structs[field.type]
        code(f"{writer_name(inner, inner.variant(variant.flexible))}({name}, {write}, version)")
    elif field.array:
        code(f"size = len({name})")
        if compact:
            code(f"{write}(COMPACT[size] if size < 127 else compact(size))")
        else:
            code(f"{write}({_pack('i')}(size))")
        _emit_elements(code, cls, variant, field, write)
    else:
        _emit_scalar(code, field.type, compact, name, write)


def _pack(letter: str) -> str:
    return {"h": "pack_int16", "i": "pack_int32"}[letter]


def _emit_scalar(code: Code, kind: str, compact: bool, value: str, write: str) -> None:
    match kind:
        case "string":
            code(f"text = {value}.encode()")
            code("size = len(text)")
            if compact:
                code(f"{write}(COMPACT[size] if size < 127 else compact_string(size))")
            else:
                code(f"{write}({_pack('h')}(size))")
            code(f"{write}(text)")
        case "bytes":
            code(f"size = len({value})")
            code(f"{write}(COMPACT[size] if size < 127 else compact(size))" if compact else f"{write}(pack_int32(size))")
            code(f"{write}({value})")
        case _:
            code(f"size = records_size({value})")
            code(f"{write}(COMPACT[size] if size < 127 else compact(size))" if compact else f"{write}(pack_int32(size))")
            code(f"write_records({write}, {value})")


def _emit_elements(code: Code, cls: Class, variant: Variant, field: Field, write: str) -> None:
    name = f"m.{snake(field.name)}"
    if field.type == "uuid":
        code(f'{write}(b"".join({name}))')
        return
    if field.type in FIXED:
        code(f'{write}(pack(f">{{size}}{FIXED[field.type][0]}", *{name}))')
        return
    local = f"{snake(field.name)}_item"
    with code.block(f"for {local} in {name}:"):
        if field.is_struct:
            inner = cls.structs[field.type]
            code(f"{writer_name(inner, inner.variant(variant.flexible))}({local}, {write}, version)")
        else:
            _emit_scalar(code, field.type, is_compact(field, variant), local, write)


def _emit_tags(code: Code, cls: Class, variant: Variant, fields: list[Field], formats: set[str]) -> None:
    code("tags: list[tuple[int, bytes]] = []")
    if not all(is_fixed(field) for field in fields):
        code("parts: list[Buffer]")
    for field in sorted(fields, key=lambda item: item.tag or 0):
        versions = tagged(field, variant)
        test = differs(field, cls)
        extra = condition(versions, variant.versions)
        if extra:
            test = f"{extra} and ({test})" if " or " in test else f"{extra} and {test}"
        name = f"m.{snake(field.name)}"
        with code.block(f"if {test}:"):
            if is_fixed(field):
                code(f"tags.append(({field.tag}, {_use(FIXED[field.type][0], formats)}({name})))")
                continue
            code("parts = []")
            if default_expression(field, cls) == "None" and not (field.is_struct and not field.array):
                # Not null here, the test above says so.
                _emit_value(code, cls, variant, field, "parts.append")
            elif default_expression(field, cls) == "None":
                code('parts.append(b"\\x01")')
                _emit_value(code, cls, variant, field, "parts.append")
            else:
                _emit_variable(code, cls, variant, versions, field, "parts.append")
            code(f'tags.append(({field.tag}, b"".join(parts)))')
    with code.block("if tags:"):
        code("write_tags(write, tags)")
    with code.block("else:"):
        code("write(ZERO)")
