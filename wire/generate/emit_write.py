"""Emit the writers: one function per struct and variant, in the order of the fields.

The emitted code passes pieces to `write`, the `append` of a list that is joined at the end. A run of fixed-width fields
is one pack; an empty tag section right after a run is a pad byte of that pack.
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


class WriterEmitter:
    """Writes the writer of one struct and variant to `code`, and the struct formats that it needs to `formats`."""

    def __init__(self, code: Code, cls: Class, variant: Variant, formats: set[str]) -> None:
        self.code = code
        self.cls = cls
        self.variant = variant
        self.formats = formats

    def emit(self) -> None:
        with self.code.block(
            f"def {writer_name(self.cls, self.variant)}(m: {self.cls.name}, write: Write, version: int) -> None:"
        ):
            before = len(self.code.lines)
            for field in self.cls.fields:
                if not present(field, self.variant) and not tagged(field, self.variant):
                    self._emit_unsupported(field)
            known_tags = [field for field in self.cls.fields if tagged(field, self.variant)]
            for field in known_tags:
                self._emit_early_tag(field)
            padded = False
            sections = groups(self.cls, self.variant)
            for number, (versions, fields) in enumerate(sections):
                test = condition(versions, self.variant.versions)
                pad = number == len(sections) - 1 and self.variant.flexible and not known_tags and not test
                if not test:
                    padded = self._emit_fields(versions, fields, pad)
                    continue
                with self.code.block(f"if {test}:"):
                    self._emit_fields(versions, fields, False)
                missing = [field for field in fields if not field.ignorable and not tagged(field, self.variant)]
                if missing:
                    with self.code.block("else:"):
                        for field in missing:
                            self._emit_unsupported(field)
            if self.variant.flexible:
                if known_tags:
                    self._emit_tags(known_tags)
                elif not padded:
                    self.code("write(ZERO)")
            if len(self.code.lines) == before:
                self.code("pass")

    def _emit_early_tag(self, field: Field) -> None:
        """Refuse a tagged field that is set although the first versions of this variant do not have it yet."""
        versions = tagged(field, self.variant)
        if field.ignorable or present(field, self.variant) or not condition(versions, self.variant.versions):
            return
        test = differs(field, self.cls)
        test = f"({test})" if " or " in test else test
        with self.code.block(f"if {opposite(versions, self.variant.versions)} and {test}:"):
            self.code(f'raise unsupported("{self.cls.name}.{snake(field.name)}", version)')

    def _emit_unsupported(self, field: Field) -> None:
        if not field.ignorable:
            with self.code.block(f"if {differs(field, self.cls)}:"):
                self.code(f'raise unsupported("{self.cls.name}.{snake(field.name)}", version)')

    def _use(self, fmt: str) -> str:
        self.formats.add(fmt)
        return pack_name(fmt, "pack")

    def _emit_fields(self, versions: Versions, fields: list[Field], pad: bool) -> bool:
        """Write `fields`; return True if the empty tag section was written too."""
        rest = list(fields)
        while rest:
            run: list[Field] = []
            while rest and is_fixed(rest[0]):
                run.append(rest.pop(0))
            if run:
                padded = pad and not rest
                fmt = "".join(FIXED[field.type][0] for field in run) + ("x" if padded else "")
                self.code.listing(f"write({self._use(fmt)}(", [f"m.{snake(field.name)}" for field in run], "))")
                if padded:
                    return True
            if rest:
                self._emit_variable(versions, rest.pop(0), "write")
        return False

    def _emit_variable(self, versions: Versions, field: Field, write: str) -> None:
        name = f"m.{snake(field.name)}"
        nullable = field.nullable & versions
        is_struct = field.is_struct and not field.array
        if not nullable and field.type != "records" and not (is_struct and field.nullable):
            if field.nullable or field.default == "null":
                # It is null only in other versions, but the type checker cannot know that.
                with self.code.block(f"if {name} is None:"):
                    self.code(f'raise null_write("{self.cls.name}.{snake(field.name)}")')
            self._emit_value(field, write)
            return
        with self.code.block(f"if {name} is None:"):
            if nullable != versions:
                if nullable:
                    with self.code.block(f"if {opposite(nullable, versions)}:"):
                        self.code(f'raise null_write("{self.cls.name}.{snake(field.name)}")')
                else:
                    self.code(f'raise null_write("{self.cls.name}.{snake(field.name)}")')
            if nullable:
                self.code(f"{write}({_null(field, self.variant, in_tag=write != 'write')})")
        with self.code.block("else:"):
            if is_struct and nullable:
                self.code(f'{write}(b"\\x01")')
            self._emit_value(field, write)

    def _emit_value(self, field: Field, write: str) -> None:
        name = f"m.{snake(field.name)}"
        compact = is_compact(field, self.variant)
        if field.is_struct and not field.array:
            inner = self.cls.structs[field.type]
            self.code(f"{writer_name(inner, inner.variant(self.variant.flexible))}({name}, {write}, version)")
        elif field.array:
            self.code(f"size = len({name})")
            self.code(f"{write}({_lead(compact)})")
            self._emit_elements(field, write)
        else:
            self._emit_scalar(field.type, compact, name, write)

    def _emit_scalar(self, kind: str, compact: bool, value: str, write: str) -> None:
        match kind:
            case "string":
                self.code(f"text = {value}.encode()")
                self.code("size = len(text)")
                lead = "COMPACT[size] if size < 127 else compact_string(size)" if compact else "pack_int16(size)"
                self.code(f"{write}({lead})")
                self.code(f"{write}(text)")
            case "bytes":
                self.code(f"size = len({value})")
                self.code(
                    f"{write}(COMPACT[size] if size < 127 else compact(size))"
                    if compact
                    else f"{write}(pack_int32(size))"
                )
                self.code(f"{write}({value})")
            case _:
                self.code(f"size = records_size({value})")
                self.code(
                    f"{write}(COMPACT[size] if size < 127 else compact(size))"
                    if compact
                    else f"{write}(pack_int32(size))"
                )
                self.code(f"write_records({write}, {value})")

    def _emit_elements(self, field: Field, write: str) -> None:
        name = f"m.{snake(field.name)}"
        if field.type == "uuid":
            self.code(f'{write}(b"".join({name}))')
            return
        if field.type in FIXED:
            packed = f'pack(f">{{size}}{FIXED[field.type][0]}", *{name})'
            if field.type == "int32":
                packed = f"PACK_INT32S[size](*{name}) if size < 17 else {packed}"
            self.code(f"{write}({packed})")
            return
        local = f"{snake(field.name)}_item"
        with self.code.block(f"for {local} in {name}:"):
            if field.is_struct:
                inner = self.cls.structs[field.type]
                self.code(f"{writer_name(inner, inner.variant(self.variant.flexible))}({local}, {write}, version)")
            else:
                self._emit_scalar(field.type, is_compact(field, self.variant), local, write)

    def _emit_tags(self, fields: list[Field]) -> None:
        self.code("tags: list[tuple[int, bytes]] = []")
        if not all(is_fixed(field) for field in fields):
            self.code("parts: list[Buffer]")
        for field in sorted(fields, key=lambda item: item.tag or 0):
            versions = tagged(field, self.variant)
            test = differs(field, self.cls)
            extra = condition(versions, self.variant.versions)
            if extra:
                test = f"{extra} and ({test})" if " or " in test else f"{extra} and {test}"
            name = f"m.{snake(field.name)}"
            with self.code.block(f"if {test}:"):
                if is_fixed(field):
                    self.code(f"tags.append(({field.tag}, {self._use(FIXED[field.type][0])}({name})))")
                    continue
                self.code("parts = []")
                if default_expression(field, self.cls) == "None" and not (field.is_struct and not field.array):
                    # Not null here, because of the test above.
                    self._emit_value(field, "parts.append")
                elif default_expression(field, self.cls) == "None":
                    self.code('parts.append(b"\\x01")')
                    self._emit_value(field, "parts.append")
                else:
                    self._emit_variable(versions, field, "parts.append")
                self.code(f'tags.append(({field.tag}, b"".join(parts)))')
        with self.code.block("if tags:"):
            self.code("write_tags(write, tags)")
        with self.code.block("else:"):
            self.code("write(ZERO)")


def _null(field: Field, variant: Variant, in_tag: bool) -> str:
    if field.is_struct and not field.array and not in_tag:
        return 'b"\\xff"'
    if is_compact(field, variant):
        return "ZERO"
    return "NULL_INT16" if field.type == "string" and not field.array else "NULL_INT32"


def _lead(compact: bool) -> str:
    return "COMPACT[size] if size < 127 else compact(size)" if compact else "pack_int32(size)"
