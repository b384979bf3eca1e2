"""Modules and commands that scripts, images, units and processes start by name exist, also after a move."""

from __future__ import annotations

import ast
import re
from importlib.util import find_spec
from pathlib import Path

from pykbroker.entry.own_commands import OWN_COMMANDS
from pykbroker.tools.commands.main import HIDDEN, SECTIONS
from tests.long_runs import git
from tests.parsed import parsed

ROOT = Path(__file__).parents[1]
#: `python -m pykbroker.x`, also as words of a list
MODULE = re.compile(r"""-m["',]*\s+["']?(pykbroker[\w.]*)""")
#: `/opt/pykbroker/bin/pykbroker health`, `$pykbroker start`
COMMAND = re.compile(r"""(?:bin/pykbroker|"\$pykbroker"|-m["',]*\s+["']?pykbroker)(?: |["'], ["'])([a-z][a-z-]+)\b""")

#: Changes of the past, stored results, and this file.
SKIPPED = (
    "CHANGELOG.md",
    "bench/results",
    "changes/",
    "tests/golden",
    "tests/ledger",
    "tests/test_started",
    "wire/schemas",
)


def texts() -> dict[str, str]:
    """Return the texts that may start a module or a command: sources, scripts, files of images, pages."""
    found = {}
    for name in git("ls-files").splitlines():
        path = ROOT / name
        if name.startswith(SKIPPED) or not path.is_file():
            continue
        try:
            found[name] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    return found


def starts(module: str) -> bool:
    """Return True if `python -m` runs it: a package by its `__main__`, a module by what stands under its condition."""
    spec = find_spec(module)
    if spec is not None and spec.submodule_search_locations:
        spec = find_spec(f"{module}.__main__")
    if spec is None or spec.origin is None:
        return False
    return "__name__ == '__main__'" in ast.unparse(parsed(Path(spec.origin)))


def test_each_module_that_is_started_by_name_is_there() -> None:
    asked: dict[str, set[str]] = {}
    for name, text in texts().items():
        for module in MODULE.findall(text):
            asked.setdefault(module.rstrip("."), set()).add(name)
    assert {
        "pykbroker",
        "pykbroker.tools.kafka",
        "pykbroker.tools.kafka.cub",
        "pykbroker.tools.bench.load_process",
    } <= asked.keys()
    assert {module: names for module, names in asked.items() if not starts(module)} == {}


def test_each_command_that_is_started_by_name_is_there() -> None:
    known = {name for commands in SECTIONS.values() for name in commands} | set(HIDDEN)
    assert OWN_COMMANDS.keys() <= known
    asked: dict[str, set[str]] = {}
    for name, text in texts().items():
        for command in COMMAND.findall(text):
            asked.setdefault(command, set()).add(name)
    assert {"start", "in-container", "storage", "dump-log"} <= asked.keys()
    assert {command: names for command, names in asked.items() if command not in known} == {}


def test_the_probe_of_the_image_is_there() -> None:
    file = (ROOT / "docker/Dockerfile").read_text(encoding="utf-8")
    (probe,) = re.findall(r'HEALTHCHECK .* CMD \["/etc/kafka/docker/(\w+)"\]', file)
    assert (ROOT / "docker/scripts/kafka" / probe).is_file()
