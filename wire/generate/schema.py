"""The schema language: the definition of a message, read from and written to `wire/schemas/*.msg`.

Responsible only for the model (Versions, Field, Struct, Message) and its text form. Definitions come from convert.py,
and the emitters use them. `parse(format_message(m)) == m` holds for every message.

The language, by example:

    request MetadataRequest 3, versions 0-13, flexible 9+, listeners broker

    Topics: [MetadataRequestTopic] 0+, nullable 1+
      TopicId: uuid 10+, ignorable
      Name: string 0+, nullable 10+
    AllowAutoTopicCreation: bool 4+, default true, ignorable
    Cursor: Cursor 10+, tag 0, nullable, default null

    struct Cursor 10+
      TopicName: string 10+

A line is one field: name, type, the versions that have it, then its options. `[T]` is an array of T. A type that starts
with a capital is a struct, whose fields follow indented or in a `struct` block below. `nullable` and `tag N` hold for
all versions of the field unless a range follows. A line that starts with `#` is a comment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# "3+" has no end: the highest number that a version, an int16, can have.
OPEN = 32767

PRIMITIVES = {
    "bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "uuid", "string", "bytes", "records",
}  # fmt: skip

KINDS = ("request", "response", "header", "data", "metadata", "coordinator-key", "coordinator-value")

_RANGE = re.compile(r"(\d+)(?:(\+)|-(\d+))?$")
_FIELD = re.compile(r"(\w+): (\[?)(\w+)(\]?) (none|[\d+-]+)((?:, [^,]+)*)$")


class SchemaError(Exception):
    """A schema file is not valid."""


@dataclass(frozen=True, slots=True, order=True)
class Versions:
    """A contiguous range of versions, both ends included; empty when `low > high`."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        if text == "none":
            return NONE
        match = _RANGE.match(text)
        if match is None:
            raise SchemaError(f"not a range of versions: {text!r}")
        low = int(match[1])
        return cls(low, OPEN if match[2] else int(match[3] or low))

    def __str__(self) -> str:
        if not self:
            return "none"
        if self.high == OPEN:
            return f"{self.low}+"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"

    def __bool__(self) -> bool:
        return self.low <= self.high

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def __and__(self, other: Versions) -> Versions:
        both = Versions(max(self.low, other.low), min(self.high, other.high))
        return both if both else NONE

    def covers(self, other: Versions) -> bool:
        return self & other == other

    def minus(self, other: Versions) -> Versions:
        """Return this range without `other`. Raises SchemaError if two ranges are left, which no Kafka definition
        needs."""
        if not self & other:
            return self
        if other.covers(self):
            return NONE
        if other.low <= self.low:
            return Versions(other.high + 1, self.high)
        if other.high >= self.high:
            return Versions(self.low, other.low - 1)
        raise SchemaError(f"{self} without {other} is not one range")


NONE = Versions(0, -1)
ALL = Versions(0, OPEN)


@dataclass(slots=True)
class Field:
    name: str
    type: str
    versions: Versions
    array: bool = False
    nullable: Versions = NONE
    default: str = ""
    tag: int | None = None
    tagged: Versions = NONE
    ignorable: bool = False
    map_key: bool = False
    # Only RequestHeader.ClientId has one: the field keeps the classic form in flexible versions.
    flexible: Versions | None = None
    fields: list[Field] | None = None

    @property
    def is_struct(self) -> bool:
        return self.type not in PRIMITIVES


@dataclass(slots=True)
class Struct:
    name: str
    versions: Versions
    fields: list[Field]


@dataclass(slots=True)
class Message:
    name: str
    kind: str
    key: int | None
    versions: Versions
    flexible: Versions
    listeners: tuple[str, ...] = ()
    # The last of `versions` exists, but Kafka neither advertises nor freezes it yet.
    latest_unstable: bool = False
    # The component of Kafka that stores this record on disk; empty for messages that are sent over the network.
    home: str = ""
    fields: list[Field] = field(default_factory=list)
    structs: list[Struct] = field(default_factory=list)


def _format_field(item: Field, indent: int) -> list[str]:
    kind = f"[{item.type}]" if item.array else item.type
    parts = [f"{'  ' * indent}{item.name}: {kind} {item.versions}"]
    if item.map_key:
        parts.append("key")
    if item.nullable:
        parts.append("nullable" if item.nullable == item.versions else f"nullable {item.nullable}")
    if item.tag is not None:
        parts.append(f"tag {item.tag}" if item.tagged == item.versions else f"tag {item.tag} from {item.tagged}")
    if item.default:
        parts.append(f"default {item.default}")
    if item.flexible is not None:
        parts.append(f"flexible {item.flexible}")
    if item.ignorable:
        parts.append("ignorable")
    lines = [", ".join(parts)]
    for inner in item.fields or ():
        lines += _format_field(inner, indent + 1)
    return lines


def format_message(message: Message) -> str:
    head = [f"{message.kind} {message.name}" + ("" if message.key is None else f" {message.key}")]
    head.append(f"versions {message.versions}" + (" last unstable" if message.latest_unstable else ""))
    if message.versions:
        head.append(f"flexible {message.flexible}")
    if message.listeners:
        head.append("listeners " + " ".join(message.listeners))
    if message.home:
        head.append(f"home {message.home}")
    lines = [", ".join(head)]
    if message.fields:
        lines.append("")
    for item in message.fields:
        lines += _format_field(item, 0)
    for struct in message.structs:
        lines += ["", f"struct {struct.name} {struct.versions}"]
        for item in struct.fields:
            lines += _format_field(item, 1)
    return "\n".join(lines) + "\n"


def _parse_head(line: str) -> Message:
    first, *rest = line.split(", ")
    kind, name, *key = first.split(" ")
    if kind not in KINDS or len(key) > 1:
        raise SchemaError(f"not the head of a message: {line!r}")
    message = Message(name, kind, int(key[0]) if key else None, NONE, NONE)
    for item in rest:
        word, _, value = item.partition(" ")
        match word:
            case "versions":
                text, _, last = value.partition(" ")
                message.versions = Versions.parse(text)
                message.latest_unstable = last == "last unstable"
            case "flexible":
                message.flexible = Versions.parse(value)
            case "listeners":
                message.listeners = tuple(value.split(" "))
            case "home":
                message.home = value
            case _:
                raise SchemaError(f"unknown word {word!r} in {line!r}")
    return message


def _parse_field(line: str) -> Field:
    match = _FIELD.match(line)
    if match is None or bool(match[2]) != bool(match[4]):
        raise SchemaError(f"not a field: {line!r}")
    versions = Versions.parse(match[5])
    item = Field(match[1], match[3], versions, array=bool(match[2]))
    for option in match[6].split(", ")[1:]:
        word, _, value = option.partition(" ")
        match word:
            case "key":
                item.map_key = True
            case "ignorable":
                item.ignorable = True
            case "nullable":
                item.nullable = Versions.parse(value) if value else versions
            case "tag":
                tag, _, since = value.partition(" from ")
                item.tag = int(tag)
                item.tagged = Versions.parse(since) if since else versions
            case "default":
                item.default = value
            case "flexible":
                item.flexible = Versions.parse(value)
            case _:
                raise SchemaError(f"unknown word {word!r} in {line!r}")
    if item.is_struct and not item.type[0].isupper():
        raise SchemaError(f"unknown type {item.type!r} in {line!r}")
    return item


def parse(text: str) -> Message:
    message: Message | None = None
    # The list for the next field, by depth: levels[0] is the message's own fields or those of a struct block.
    levels: list[list[Field]] = []
    base = 0
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        indent = (len(line) - len(line.lstrip(" "))) // 2
        if message is None:
            message = _parse_head(stripped)
            levels = [message.fields]
        elif indent == 0 and stripped.startswith("struct "):
            _, name, versions = stripped.split(" ")
            struct = Struct(name, Versions.parse(versions), [])
            message.structs.append(struct)
            levels, base = [struct.fields], 1
        else:
            depth = indent - base
            if not 0 <= depth < len(levels) + 1:
                raise SchemaError(f"indented too far: {line!r}")
            if depth == len(levels):
                owner = levels[-1][-1]
                if not owner.is_struct:
                    raise SchemaError(f"{owner.name} is no struct and has no fields: {line!r}")
                owner.fields = []
                levels.append(owner.fields)
            del levels[depth + 1 :]
            levels[depth].append(_parse_field(stripped))
    if message is None:
        raise SchemaError("an empty schema")
    return message
