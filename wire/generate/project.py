"""The generated files: their names, their contents, and which files the generator owns."""

from __future__ import annotations

from pathlib import Path

from generate import layout
from generate.emit_fields import emit_message_fields, emit_stored_fields
from generate.emit_index import emit_apis, emit_package
from generate.emit_module import emit_module
from generate.schema import Message, format_message, parse

VERSION_FILE = "KAFKA"


def schema_files(messages: dict[str, Message], version: str) -> dict[str, str]:
    files = {f"{name}.msg": format_message(message) for name, message in messages.items()}
    files[VERSION_FILE] = version + "\n"
    return files


def load(schemas: Path) -> list[Message]:
    return [parse(path.read_text()) for path in sorted(schemas.glob("*.msg"))]


def generated_files(messages: list[Message]) -> dict[str, str]:
    modules = layout.modules(messages)
    files = {module.path: emit_module(module) for module in modules}
    packages: dict[str, list[layout.Module]] = {"messages": []}
    for module in modules:
        packages.setdefault(module.package, []).append(module)
    for package, members in packages.items():
        files[f"{package}/__init__.py"] = emit_package(package, members)
    files["apis.py"] = emit_apis(messages)
    files["stored_fields.py"] = emit_stored_fields(modules)
    files["message_fields.py"] = emit_message_fields(modules)
    return files


def owned_schemas(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.msg")}


def owned_sources(package: Path) -> set[str]:
    found = {
        path.relative_to(package).as_posix() for top in ("messages", "stored") for path in (package / top).rglob("*.py")
    }
    # The only file in those folders that is written by hand.
    return found - {"stored/__init__.py"}


def write(root: Path, wanted: dict[str, str], owned: set[str], *, check: bool) -> list[str]:
    """Make `root` contain `wanted` and no other owned file. Return the changes, or with `check` those that are
    needed."""
    changed: list[str] = []
    for name, text in sorted(wanted.items()):
        path = root / name
        if path.exists() and path.read_text() == text:
            continue
        changed.append(f"{'new' if not path.exists() else 'changed'}: {name}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for name in sorted(owned - wanted.keys()):
        changed.append(f"gone: {name}")
        if not check:
            (root / name).unlink()
    return changed
