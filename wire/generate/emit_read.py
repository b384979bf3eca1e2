"""Emit the readers: one function per struct and variant, in the order of the fields.

The emitted code keeps two locals: `pos`, the next byte, and `n`, the lead (length) of the next field. A run of
fixed-width fields is one unpack, which also reads the lead that follows the run. `pos` stays on the last byte of a
compact lead, and on the first byte of a classic lead.
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

# Turns an expression into the statement that stores its value.
Sink = Callable[[str], str]


def reader_name(cls: Class, variant: Variant) -> str:
    return f"_read_{cls.name}{variant.suffix}"


class ReaderEmitter:
    """Writes the reader of one struct and variant to `code`, and the struct formats that it needs to `formats`."""

    def __init__(self, code: Code, cls: Class, variant: Variant, formats: set[str]) -> None:
        self.code = code
        self.cls = cls
        self.variant = variant
        self.formats = formats

    def emit(self) -> None:
        name = reader_name(self.cls, self.variant)
        with self.code.block(f"def {name}(buf: Buffer, pos: int, version: int) -> tuple[{self.cls.name}, int]:"):
            self.code(f"self = new({self.cls.name})")
            for field in self.cls.fields:
                # Set tagged fields too, because the tag section contains only fields that differ from the default.
                if not present(field, self.variant):
                    self.code(f"self.{snake(field.name)} = {default_expression(field, self.cls)}")
            has_lead = False
            sections = groups(self.cls, self.variant)
            for number, (versions, fields) in enumerate(sections):
                test = condition(versions, self.variant.versions)
                is_last = number == len(sections) - 1
                if not test:
                    has_lead = self._emit_fields(versions, fields, is_last and self.variant.flexible)
                    continue
                with self.code.block(f"if {test}:"):
                    self._emit_fields(versions, fields, False)
                with self.code.block("else:"):
                    for field in fields:
                        self.code(f"self.{snake(field.name)} = {default_expression(field, self.cls)}")
            if not self.variant.flexible:
                self.code("return self, pos")
                return
            if not has_lead:
                self.code("n = buf[pos]")
            if not any(tagged(field, self.variant) for field in self.cls.fields):
                self.code("return self, skip_tags(buf, pos) if n else pos + 1")
                return
            with self.code.block("if not n:"):
                self.code("return self, pos + 1")
            self._emit_tags()
            self.code("return self, pos")

    def _emit_fields(self, versions: Versions, fields: list[Field], tags_next: bool) -> bool:
        """Read `fields`; return True if the lead of the tag section was read too."""
        rest = list(fields)
        while rest:
            run: list[Field] = []
            while rest and is_fixed(rest[0]):
                run.append(rest.pop(0))
            following = rest.pop(0) if rest else None
            lead = ""
            if following is not None and not (following.is_struct and not following.array):
                lead = _lead_format(following, self.variant)
            elif following is None and tags_next:
                lead = "B"
            if run:
                self._emit_run(run, lead)
            elif lead == "B":
                self.code("n = buf[pos]")
            elif lead:
                self.code(f"(n,) = {self._use(lead)}(buf, pos)")
            if following is not None:
                self._emit_variable(versions, following, in_tag=False)
            elif lead:
                return True
        return False

    def _use(self, fmt: str) -> str:
        self.formats.add(fmt)
        return pack_name(fmt, "unpack")

    def _emit_run(self, run: list[Field], lead: str) -> None:
        targets = [f"self.{snake(field.name)}" for field in run] + (["n"] if lead else [])
        unpack = self._use("".join(FIXED[field.type][0] for field in run) + lead)
        if len(targets) == 1:
            self.code(f"({targets[0]},) = {unpack}(buf, pos)")
        else:
            line = f"{', '.join(targets)} = {unpack}(buf, pos)"
            if len(line) <= 108:
                self.code(line)
            else:
                self.code.listing("(", targets, f") = {unpack}(buf, pos)")
        self.code(f"pos += {sum(FIXED[field.type][1] for field in run)}")

    def _emit_variable(self, versions: Versions, field: Field, *, in_tag: bool) -> None:
        """Read a field of variable width; unless it is a struct, its lead is in `n` already."""
        name = f"self.{snake(field.name)}"
        nullable = field.nullable & versions
        if field.is_struct and not field.array:
            self._emit_struct(field, bool(nullable), in_tag)
        elif field.array:
            self._emit_array(field, bool(nullable))
        else:
            self._emit_scalar(
                field.type, is_compact(field, self.variant), bool(nullable), lambda value: f"{name} = {value}"
            )
        if nullable and nullable != versions:
            with self.code.block(f"if {opposite(nullable, versions)} and {name} is None:"):
                self.code("raise null_field()")

    def _emit_struct(self, field: Field, nullable: bool, in_tag: bool) -> None:
        inner = self.cls.structs[field.type]
        name = f"self.{snake(field.name)}"
        read = f"{reader_name(inner, inner.variant(self.variant.flexible))}(buf, pos, version)"
        if not nullable:
            self.code(f"{name}, pos = {read}")
            return
        if in_tag:
            self.code("n, pos = read_varint(buf, pos)")
            test = "if n:"
        else:
            # The lead is an int8, and a negative one means null.
            self.code("n = buf[pos]")
            self.code("pos += 1")
            test = "if n < 128:"
        with self.code.block(test):
            self.code(f"{name}, pos = {read}")
        with self.code.block("else:"):
            self.code(f"{name} = None")

    def _emit_scalar(self, kind: str, compact: bool, nullable: bool, sink: Sink) -> None:
        if compact:
            content = _content(kind, "pos + 1", "pos + n")
            long = "string" if kind == "string" else "bytes"
            if nullable:
                with self.code.block("if n > 127:"):
                    self.code(f"n, pos = long_nullable_{long}(buf, pos)")
                self.code(sink(f"{content} if n else None"))
                self.code("pos += n or 1")
            else:
                with self.code.block("if not 0 < n < 128:"):
                    self.code(f"n, pos = long_{long}(buf, pos)")
                self.code(sink(content))
                self.code("pos += n")
            return
        width = 2 if kind == "string" else 4
        if nullable:
            self.code(sink(f"{_content(kind, f'pos + {width}', f'pos + {width} + n')} if n >= 0 else None"))
            self.code(f"pos += n + {width} if n > 0 else {width}")
            return
        with self.code.block("if n < 0:"):
            self.code("raise null_field()")
        self.code(sink(_content(kind, f"pos + {width}", f"pos + {width} + n")))
        self.code(f"pos += n + {width}")

    def _emit_array(self, field: Field, nullable: bool) -> None:
        name = f"self.{snake(field.name)}"
        size = element_bytes(field, self.cls, self.variant)
        if is_compact(field, self.variant):
            with self.code.block("if n > 127:" if nullable else "if not 0 < n < 128:"):
                self.code(f"n, pos = long_{'nullable_' if nullable else ''}array(buf, pos, {size})")
            self.code("pos += 1")
            is_null, count = "if not n:", "n - 1"
        else:
            self.code("pos += 4")
            with self.code.block("if n > 127:"):
                self.code(f"check_count(buf, pos, n, {size})")
            is_null, count = "if n < 0:", "n"
            if not nullable:
                with self.code.block("if n < 0:"):
                    self.code("raise null_field()")
        if nullable:
            with self.code.block(is_null):
                self.code(f"{name} = None")
            with self.code.block("else:"):
                self._emit_elements(field, count)
        else:
            self._emit_elements(field, count)

    def _emit_elements(self, field: Field, count: str) -> None:
        local = snake(field.name)
        name = f"self.{local}"
        if field.type == "uuid":
            self.code(f"stop = pos + 16 * ({count})" if " " in count else f"stop = pos + 16 * {count}")
            self.code(f"{name} = [bytes(buf[at : at + 16]) for at in range(pos, stop, 16)]")
            self.code("pos = stop")
            return
        if field.type in FIXED:
            letter, width = FIXED[field.type]
            read = f'unpack_from(f">{{{count}}}{letter}", buf, pos)'
            if field.type == "int32":
                small = "n < 18" if " " in count else "n < 17"
                read = f"UNPACK_INT32S[{count}](buf, pos) if {small} else {read}"
            self.code(f"{name} = list({read})")
            self.code(f"pos += {width} * ({count})" if " " in count else f"pos += {width} * {count}")
            return
        if self.cls.kind == "request" and self.cls.message is None:
            # These are arrays inside an array: each may be small, so only a limit for all together helps.
            self.code(f"budget[0] -= {count}")
            with self.code.block("if budget[0] < 0:"):
                self.code("raise over_budget()")
        self.code(f"{name} = []")
        self.code(f"add_{local} = {name}.append")
        with self.code.block(f"for _ in range({count}):"):
            if field.is_struct:
                inner = self.cls.structs[field.type]
                read = reader_name(inner, inner.variant(self.variant.flexible))
                self.code(f"{local}_item, pos = {read}(buf, pos, version)")
                self.code(f"add_{local}({local}_item)")
            else:
                compact = is_compact(field, self.variant)
                if compact:
                    self.code("n = buf[pos]")
                else:
                    width = 2 if field.type == "string" else 4
                    self.code(f'n = int.from_bytes(buf[pos : pos + {width}], "big", signed=True)')
                self._emit_scalar(field.type, compact, False, lambda value: f"add_{local}({value})")

    def _emit_tags(self) -> None:
        self.code("n, pos = tag_count(buf, pos)")
        with self.code.block("for _ in range(n):"):
            self.code("tag, pos = read_varint(buf, pos)")
            self.code("size, pos = read_varint(buf, pos)")
            self.code("end = pos + size")
            word = "if"
            for field in sorted(self.cls.fields, key=lambda item: item.tag or 0):
                versions = tagged(field, self.variant)
                if not versions:
                    continue
                with self.code.block(f"{word} tag == {field.tag}:"):
                    word = "elif"
                    if condition(versions, self.variant.versions):
                        with self.code.block(f"if {opposite(versions, self.variant.versions)}:"):
                            self.code("raise bad_tag(tag, version)")
                    if is_fixed(field):
                        self._emit_run([field], "")
                    else:
                        if not (field.is_struct and not field.array):
                            self.code("n = buf[pos]")
                        self._emit_variable(versions, field, in_tag=True)
                    with self.code.block("if pos != end:"):
                        self.code("raise bad_tag_size(tag)")
            with self.code.block("else:"):
                self.code("pos = end")


def _lead_format(field: Field, variant: Variant) -> str:
    if is_compact(field, variant):
        return "B"
    return "h" if field.type == "string" and not field.array else "i"


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
