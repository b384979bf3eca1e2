"""Emit the table of APIs and the index of each package, which find the generated modules. Neither imports a module of
messages before one of its names is used."""

from __future__ import annotations

from generate.code import WIDTH, Code
from generate.emit_module import GENERATED, flexible_from, stable
from generate.layout import Module, snake, stem
from generate.schema import Message


def emit_package(package: str, modules: list[Module]) -> str:
    code = Code()
    code(f'"""The generated classes of {package}/, each imported when its name is first asked for.')
    code()
    code(GENERATED.format(sources="wire/schemas"))
    code('"""')
    code()
    code("from __future__ import annotations")
    code()
    code("from importlib import import_module")
    code("from typing import TYPE_CHECKING, Any")
    code()
    code("from pykbroker_wire.primitives import TopLevel")
    code()
    base = "pykbroker_wire." + package.replace("/", ".")
    with code.block("if TYPE_CHECKING:"):
        for module in modules:
            for message in module.messages:
                code(f"from {base}.{module.name} import (")
                code(f"    {message.name} as {message.name},")
                code(")")
    code()
    code("# Class -> module.")
    code("_MODULES = {")
    for module in modules:
        for message in module.messages:
            code(f'    "{message.name}": "{module.name}",')
    code("}")
    tables = [("records", "metadata"), ("keys", "coordinator-key"), ("values", "coordinator-value")]
    used = []
    for word, kind in tables:
        rows = sorted((m.key, m.name) for module in modules for m in module.messages if m.kind == kind)
        if rows:
            used.append(word)
            code()
            code("# Type of the record -> class.")
            code(f"_{word.upper()} = {{")
            for key, name in rows:
                code(f'    {key}: "{name}",')
            code("}")
    code()
    code()
    with code.block("def __getattr__(name: str) -> Any:"):
        code("module = _MODULES.get(name)")
        with code.block("if module is None:"):
            code('raise AttributeError(f"module {__name__!r} has no attribute {name!r}")')
        code('value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)')
        code("return value")
    for word in used:
        code()
        code()
        singular = word[:-1]
        with code.block(f"def {singular}_class(record_type: int) -> type[TopLevel] | None:"):
            code(f"name = _{word.upper()}.get(record_type)")
            code("return None if name is None else globals().get(name) or __getattr__(name)")
    return code.text()


def emit_apis(messages: list[Message]) -> str:
    requests = sorted((m for m in messages if m.kind == "request"), key=lambda m: m.key or 0)
    code = Code()
    code('"""Every API of the protocol: key, versions, where it is served, and its two classes, imported on first use.')
    code()
    code(GENERATED.format(sources="wire/schemas"))
    code('"""')
    code()
    code("from __future__ import annotations")
    code()
    code("from enum import IntEnum")
    code("from importlib import import_module")
    code("from typing import Any, Final")
    code()
    code("from pykbroker_wire.primitives import NEVER, TopLevel")
    code()
    code()
    with code.block("class ApiKey(IntEnum):"):
        for message in requests:
            code(f"{snake(stem(message)).upper()} = {message.key}")
    code()
    code()
    with code.block("class Api:"):
        code('"""One API. MAX_VERSION is stable; `latest_version` may be one that Kafka does not advertise yet."""')
        code()
        code("__slots__ = (")
        for name in _SLOTS:
            code(f'    "{name}",')
        code(")")
        code()
        code("def __init__(")
        code("    self,")
        code("    key: ApiKey,")
        code("    name: str,")
        code("    module: str,")
        code("    versions: tuple[int, int, int],")
        code("    flexible_from: int,")
        code("    listeners: frozenset[str],")
        with code.block(") -> None:"):
            code("self.key: Final = key")
            code("self.name: Final = name")
            code("self.module: Final = module")
            code("self.min_version: Final = versions[0]")
            code("self.max_version: Final = versions[1]")
            code("self.latest_version: Final = versions[2]")
            code("self.flexible_from: Final = flexible_from")
            code("self.listeners: Final = listeners")
            code("self._request: type[TopLevel] | None = None")
            code("self._response: type[TopLevel] | None = None")
        for word in ("request", "response"):
            code()
            code("@property")
            with code.block(f"def {word}(self) -> type[TopLevel]:"):
                with code.block(f"if self._{word} is None:"):
                    code(f'self._{word} = self._load("{word.capitalize()}")')
                code(f"return self._{word}")
        code()
        with code.block("def _load(self, word: str) -> type[TopLevel]:"):
            code('found: Any = getattr(import_module(f"pykbroker_wire.messages.{self.module}"), self.name + word)')
            code("loaded: type[TopLevel] = found")
            code("return loaded")
        code()
        with code.block("def __repr__(self) -> str:"):
            code('return f"Api({self.name} {int(self.key)}, versions {self.min_version}-{self.max_version})"')
    code()
    code()
    served = [message for message in requests if message.versions]
    sets = sorted({message.listeners for message in served})
    for listeners in sets:
        names = ", ".join(f'"{item}"' for item in sorted(listeners))
        code(f"{_set_name(listeners)} = frozenset({{{names}}})")
    code()
    code("# Without the APIs that Kafka removed: they keep their key and have no version.")
    code("APIS: Final[dict[int, Api]] = {")
    code("    api.key: api")
    code("    for api in (")
    for message in served:
        since = flexible_from(message)
        versions = f"({message.versions.low}, {stable(message)}, {message.versions.high})"
        name, module = stem(message), snake(stem(message))
        flexible = "NEVER" if since is None else since
        key, where = f"ApiKey.{module.upper()}", _set_name(message.listeners)
        items = [key, f'"{name}"', f'"{module}"', versions, str(flexible), where]
        line = f"        Api({', '.join(items)}),"
        if len(line) <= WIDTH:
            code(line)
            continue
        code("        Api(")
        for item in items:
            code(f"            {item},")
        code("        ),")
    code("    )")
    code("}")
    return code.text()


def _set_name(listeners: tuple[str, ...]) -> str:
    return "_" + "_".join(sorted(item.upper() for item in listeners)) if listeners else "_NOWHERE"


_SLOTS = (
    "_request", "_response", "flexible_from", "key", "latest_version", "listeners", "max_version", "min_version",
    "module", "name",
)  # fmt: skip
