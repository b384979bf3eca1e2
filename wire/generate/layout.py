"""The places and names of generated code. No code is emitted here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from generate.schema import NONE, Field, Message, Struct, Versions

# Python keywords and names that the generated functions use themselves.
_RESERVED = {"from", "is", "in", "class", "global", "pass", "def", "self", "None", "True", "False"}

SUBPACKAGES = {
    "metadata": "stored/metadata",
    "group": "stored/group",
    "transaction": "stored/transaction",
    "share": "stored/share",
    "storage": "stored/storage",
    "raft": "stored/raft",
}


def snake(name: str) -> str:
    """Convert a name as Kafka does: an underscore before a capital that follows a small letter."""
    out: list[str] = []
    capital_before = True
    for char in name:
        if char.isupper():
            if not capital_before:
                out.append("_")
            out.append(char.lower())
            capital_before = True
        else:
            out.append(char)
            capital_before = False
    text = "".join(out)
    return text + "_" if text in _RESERVED else text


def stem(message: Message) -> str:
    """Return the common name of a request and its response, or of a key and its value: ProduceRequest -> Produce."""
    match message.kind:
        case "request":
            return message.name.removesuffix("Request")
        case "response":
            return message.name.removesuffix("Response")
        case "coordinator-key":
            return message.name.removesuffix("Key")
        case "coordinator-value":
            return message.name.removesuffix("Value")
        case _:
            return "ConsumerProtocol" if message.name.startswith("ConsumerProtocol") else message.name


@dataclass(slots=True)
class Variant:
    """A range of versions with one reader and one writer: all classic versions, or all flexible versions."""

    versions: Versions
    flexible: bool
    # "" if the struct has only one variant.
    suffix: str


@dataclass(slots=True)
class Class:
    """One class to generate: a message or a struct inside it."""

    name: str
    # The kind of the message: request, response, ...
    kind: str
    versions: Versions
    fields: list[Field]
    variants: list[Variant]
    # The message, if the class is a message and not a struct inside one.
    message: Message | None = None
    # Kafka's name of a struct -> the class in this module.
    structs: dict[str, Class] = field(default_factory=dict)

    def variant(self, flexible: bool) -> Variant:
        return next(item for item in self.variants if item.flexible == flexible)


@dataclass(slots=True)
class Module:
    package: str
    name: str
    messages: list[Message]
    classes: list[Class]

    @property
    def path(self) -> str:
        return f"{self.package}/{self.name}.py"


def _variants(versions: Versions, flexible: Versions) -> list[Variant]:
    classic = Variant(versions.minus(flexible), False, "_classic")
    compact = Variant(versions & flexible, True, "_flexible")
    both = [item for item in (classic, compact) if item.versions]
    if len(both) == 1:
        both[0].suffix = ""
    return both


def _inline_structs(fields: list[Field], versions: Versions) -> Iterator[tuple[Struct, Versions]]:
    for item in fields:
        if item.fields is not None:
            inner = versions & item.versions
            yield Struct(item.type, item.versions, item.fields), inner
            yield from _inline_structs(item.fields, inner)


def _struct_list(message: Message) -> list[tuple[Struct, Versions]]:
    found = [(struct, message.versions & struct.versions) for struct in message.structs]
    for struct, versions in list(found):
        found += _inline_structs(struct.fields, versions)
    found += _inline_structs(message.fields, message.versions)
    return found


def modules(messages: list[Message]) -> list[Module]:
    grouped: dict[tuple[str, str], list[Message]] = {}
    for message in messages:
        if not message.versions:
            continue
        package = SUBPACKAGES[message.home] if message.home else "messages"
        grouped.setdefault((package, snake(stem(message))), []).append(message)
    order = ("request", "response", "coordinator-key", "coordinator-value")
    found: list[Module] = []
    for (package, name), members in sorted(grouped.items()):
        members.sort(key=lambda m: (order.index(m.kind) if m.kind in order else 9, m.name))
        found.append(Module(package, name, members, _classes(members)))
    return found


def _classes(members: list[Message]) -> list[Class]:
    names = [struct.name for message in members for struct, _ in _struct_list(message)]
    taken = {message.name for message in members}
    classes: list[Class] = []
    for message in members:
        structs: dict[str, Class] = {}
        flexible = message.flexible or NONE
        for struct, versions in _struct_list(message):
            name = struct.name
            if names.count(name) > 1 or name in taken:
                name = message.name.removeprefix(stem(message)) + name
            structs[struct.name] = Class(
                name, message.kind, versions, struct.fields, _variants(versions, flexible), None, structs
            )
        variants = _variants(message.versions, flexible)
        top = Class(message.name, message.kind, message.versions, message.fields, variants, message, structs)
        classes += [top, *structs.values()]
    return classes
