"""Emit the readers: one function per struct and variant, straight down the fields.

The code it writes keeps two locals: `pos`, the next byte, and `n`, the lead (length) of the next string, bytes or array.
A run of fixed-width fields is one unpack, which also takes the lead that follows the run. Compact leads are read with
`pos` left on their last byte; classic leads with `pos` left on their first.
"""

from __future__ import annotations

from collections.abc import Callable

from generate.code import (
    FIXED,
    Code,
    condition,
    default_expression,
    element_bytes,
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

# Turns an expression into the statement that keeps its value.
Sink = Callable[[str], str]


def reader_name(cls: Class, variant: Variant) -> str:
    return f"_read_{cls.name}{variant.suffix}"


def emit_reader(code: Code, cls: Class, variant: Variant, formats: set[str]) -> None:
    head = f"def {reader_name(cls, variant)}(buf: Buffer, pos: int, version: int) -> tuple[{cls.name}, int]:"
    with code.block(head):
        code(f"self = new({cls.name})")
        for field in cls.fields:
            # Tagged fields too: the tag section only speaks of what differs from the default.
            if not present(field, variant):
                code(f"self.{snake(field.name)} = {default_expression(field, cls)}")
        has_lead = False
        sections = groups(cls, variant)
        for number, (versions, fields) in enumerate(sections):
            test = condition(versions, variant.versions)
            is_last = number == len(sections) - 1
            if not test:
                has_lead = _emit_fields(code, cls, variant, versions, fields, formats, is_last and variant.flexible)
                continue
            with code.block(f"if {test}:"):
                _emit_fields(code, cls, variant, versions, fields, formats, False)
            with code.block("else:"):
                for field in fields:
                    code(f"self.{snake(field.name)} = {default_expression(field, cls)}")
        if not variant.flexible:
            code("return self, pos")
            return
        if not has_lead:
            code("n = buf[pos]")
        if not any(tagged(field, variant) for field in cls.fields):
            code("return self, skip_tags(buf, pos) if n else pos + 1")
            return
        with code.block("if not n:"):
            code("return self, pos + 1")
        _emit_tags(code, cls, variant, formats)
        code("return self, pos")


def _emit_fields(
    code: Code, cls: Class, variant: Variant, versions: Versions, fields: list[Field], formats: set[str], tags_next: bool
) -> bool:
    """Read `fields`; true when the lead of the tag section was taken along."""
    rest = list(fields)
    while rest:
        run: list[Field] = []
        while rest and is_fixed(rest[0]):
            run.append(rest.pop(0))
        following = rest.pop(0) if rest else None
        lead = ""
        if following is not None and not (following.is_struct and not following.array):
            lead = _lead_format(following, variant)
        elif following is None and tags_next:
            lead = "B"
        if run:
            _emit_run(code, run, lead, formats)
        elif lead == "B":
            code("n = buf[pos]")
        elif lead:
            code(f"(n,) = {_use(lead, formats)}(buf, pos)")
        if following is not None:
            _emit_variable(code, cls, variant, versions, following, in_tag=False)
        elif lead:
            return True
    return False


def _use(fmt: str, formats: set[str]) -> str:
    formats.add(fmt)
    return pack_name(fmt, "unpack")


def _lead_format(field: Field, variant: Variant) -> str:
    if is_compact(field, variant):
        return "B"
    return "h" if field.type == "string" and not field.array else "i"


def _emit_run(code: Code, run: list[Field], lead: str, formats: set[str]) -> None:
    targets = [f"self.{snake(field.name)}" for field in run] + (["n"] if lead else [])
    unpack = _use("".join(FIXED[field.type][0] for field in run) + lead, formats)
    if len(targets) == 1:
        code(f"({targets[0]},) = {unpack}(buf, pos)")
    else:
        line = f"{', '.join(targets)} = {unpack}(buf, pos)"
        if len(line) <= 108:
            code(line)
        else:
            code.listing("(", targets, f") = {unpack}(buf, pos)")
    code(f"pos += {sum(FIXED[field.type][1] for field in run)}")


def _emit_variable(
    code: Code, cls: Class, variant: Variant, versions: Versions, field: Field, *, in_tag: bool
) -> None:
    """A field of variable width whose lead, unless it is a struct, is in `n` already."""
    name = f"self.{snake(field.name)}"
    nullable = field.nullable & versions
    if field.is_struct and not field.array:
        _emit_struct(code, cls, variant, field, bool(nullable), in_tag)
    elif field.array:
        _emit_array(code, cls, variant, field, bool(nullable))
    else:
        _emit_scalar(code, field.type, is_compact(field, variant), bool(nullable), lambda value: f"{name} = {value}")
    if nullable and nullable != versions:
        with code.block(f"if {opposite(nullable, versions)} and {name} is None:"):
            code("raise null_field()")


def _emit_struct(code: Code, cls: Class, variant: Variant, field: Field, nullable: bool, in_tag: bool) -> None:
    inner = cls.structs[field.type]
    name = f"self.{snake(field.name)}"
    read = f"{reader_name(inner, inner.variant(variant.flexible))}(buf, pos, version)"
    if not nullable:
        code(f"{name}, pos = {read}")
        return
    if in_tag:
        code("n, pos = read_varint(buf, pos)")
        test = "if n:"
    else:
        # An int8: negative is null, anything else is not.
        code("n = buf[pos]")
        code("pos += 1")
        test = "if n < 128:"
    with code.block(test):
        code(f"{name}, pos = {read}")
    with code.block("else:"):
        code(f"{name} = None")


def _content(kind: str, start: str, end: str) -> str:
    data = f"buf[{start} : {end}]"
    match kind:
        case "string":
            return f'str({data}, "utf-8", "replace")'
        case "bytes":
            return f"bytes({data})"
        case _:
            # Records stay a view of the received buffer.
            return data


def _emit_scalar(code: Code, kind: str, compact: bool, nullable: bool, sink: Sink) -> None:
    if compact:
        content = _content(kind, "pos + 1", "pos + n")
        long = "string" if kind == "string" else "bytes"
        if nullable:
            with code.block("if n > 127:"):
                code(f"n, pos = long_nullable_{long}(buf, pos)")
            code(sink(f"{content} if n else None"))
            code("pos += n or 1")
        else:
            with code.block("if not 0 < n < 128:"):
                code(f"n, pos = long_{long}(buf, pos)")
            code(sink(content))
            code("pos += n")
        return
    width = 2 if kind == "string" else 4
    if nullable:
        code(sink(f"{_content(kind, f'pos + {width}', f'pos + {width} + n')} if n >= 0 else None"))
        code(f"pos += n + {width} if n > 0 else {width}")
        return
    with code.block("if n < 0:"):
        code("raise null_field()")
    code(sink(_content(kind, f"pos + {width}", f"pos + {width} + n")))
    code(f"pos += n + {width}")


def _emit_array(code: Code, cls: Class, variant: Variant, field: Field, nullable: bool) -> None:
    name = f"self.{snake(field.name)}"
    size = element_bytes(field, cls, variant)
    if is_compact(field, variant):
        with code.block("if n > 127:" if nullable else "if not 0 < n < 128:"):
            code(f"n, pos = long_{'nullable_' if nullable else ''}array(buf, pos, {size})")
        code("pos += 1")
        is_null, count = "if not n:", "n - 1"
    else:
        code("pos += 4")
        with code.block("if n > 127:"):
            code(f"check_count(buf, pos, n, {size})")
        is_null, count = "if n < 0:", "n"
        if not nullable:
            with code.block("if n < 0:"):
                code("raise null_field()")
    if nullable:
        with code.block(is_null):
            code(f"{name} = None")
        with code.block("else:"):
            _emit_elements(code, cls, variant, field, count)
    else:
        _emit_elements(code, cls, variant, field, count)


def _emit_elements(code: Code, cls: Class, variant: Variant, field: Field, count: str) -> None:
    local = snake(field.name)
    name = f"self.{local}"
    if field.type == "uuid":
        code(f"end = pos + 16 * ({count})" if " " in count else f"end = pos + 16 * {count}")
        code(f"{name} = [bytes(buf[at : at + 16]) for at in range(pos, end, 16)]")
        code("pos = end")
        return
    if field.type in FIXED:
        letter, width = FIXED[field.type]
        code(f'{name} = list(unpack_from(f">{{{count}}}{letter}", buf, pos))')
        code(f"pos += {width} * ({count})" if " " in count else f"pos += {width} * {count}")
        return
    code(f"{name} = []")
    code(f"add_{local} = {name}.append")
    with code.block(f"for _ in range({count}):"):
        if field.is_struct:
            inner = cls.structs[field.type]
            read = reader_name(inner, inner.variant(variant.flexible))
            code(f"{local}_item, pos = {read}(buf, pos, version)")
            code(f"add_{local}({local}_item)")
        else:
            compact = is_compact(field, variant)
            if compact:
                code("n = buf[pos]")
            else:
                width = 2 if field.type == "string" else 4
                code(f'n = int.from_bytes(buf[pos : pos + {width}], "big", signed=True)')
            _emit_scalar(code, field.type, compact, False, lambda value: f"add_{local}({value})")


def _emit_tags(code: Code, cls: Class, variant: Variant, formats: set[str]) -> None:
    code("n, pos = tag_count(buf, pos)")
    with code.block("for _ in range(n):"):
        code("tag, pos = read_varint(buf, pos)")
        code("size, pos = read_varint(buf, pos)")
        code("end = pos + size")
        word = "if"
        for field in sorted(cls.fields, key=lambda item: item.tag or 0):
            versions = tagged(field, variant)
            if not versions:
                continue
            with code.block(f"{word} tag == {field.tag}:"):
                word = "elif"
                if condition(versions, variant.versions):
                    with code.block(f"if {opposite(versions, variant.versions)}:"):
                        code("raise bad_tag(tag, version)")
                if is_fixed(field):
                    _emit_run(code, [field], "", formats)
                else:
                    if not (field.is_struct and not field.array):
                        code("n = buf[pos]")
                    _emit_variable(code, cls, variant, versions, field, in_tag=True)
                with code.block("if pos != end:"):
                    code("raise bad_tag_size(tag)")
        with code.block("else:"):
            code("pos = end")
