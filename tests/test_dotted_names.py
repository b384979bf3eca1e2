"""A dotted name of ours exists, if a page or the head of a module names it in backticks: `pykbroker.testing.Cluster`,
`PartitionLog.append_as_leader`, `flush_state.sync`.

tests/test_named_options.py does the same for paths, options and keys, tests/test_named_modules.py for files.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

import pytest

from pykbroker.config import key_table
from pykbroker_raft import flushed_note, reserve
from tests.long_runs import ROOT, git
from tests.parsed import parsed
from tests.test_named_options import readers

_NAME: Final = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(.*\))?")
#: The folder of each package whose names are ours.
_FOLDERS: Final = {
    "pykbroker": "pykbroker",
    "pykbroker_wire": "wire/pykbroker_wire",
    "pykbroker_log": "log/pykbroker_log",
    "pykbroker_raft": "raft/pykbroker_raft",
    "pykbroker_worlds": "worlds/pykbroker_worlds",
    "pipeline": "spark/pipeline",
    "pyspark_pykbroker": "spark/segments/pyspark_pykbroker",
    "testkit": "testkit",
    "tests": "tests",
    "compat_tests": "compat_tests",
    "bench": "bench",
}
_FILE_ENDINGS: Final = frozenset(["json", "md", "msg", "py", "toml", "whl"])
#: (reader, name) and the reason why it names nothing of ours.
APART: Final = {
    ("docs/decisions/0001-component-folders.md", "pykbroker.wire"): "what was not done",
    ("spark/segments/README.md", "pyspark_pykbroker._parts"): "made when the wheel is built",
    ("tests/golden/records/README.md", "ProduceRequest.validateRecords"): "Apache Kafka's",
}


class Code:
    """The modules and classes of these files. A file is parsed when a name leads to it."""

    def __init__(self, files: set[str]) -> None:
        self._files = files
        self._trees: dict[str, ast.Module] = {}
        self._modules: dict[str, list[str]] = defaultdict(list)
        self._classes: dict[str, list[str]] = defaultdict(list)
        for file in files:
            if file.endswith(".py"):
                self._modules[PurePosixPath(file).stem].append(file)
                text = (ROOT / file).read_text(encoding="utf-8")
                for name in re.findall(r"^class (\w+)", text, re.MULTILINE):
                    self._classes[name].append(file)

    def has(self, name: str) -> bool:
        """Return True if the name exists, or if it is none of ours."""
        first, *rest = name.split(".")
        if first in _FOLDERS:
            return self._has_path(_FOLDERS[first], rest)
        if first in self._classes:
            return any(self._has_member(file, first, rest[0]) for file in self._classes[first])
        # Without an underscore the first word may be any other: a variable, or the beginning of a key.
        if "_" in first and first in self._modules:
            return any(rest[0] in names(self._tree(file)) for file in self._modules[first])
        return True

    def _has_path(self, folder: str, rest: list[str]) -> bool:
        while rest and any(file.startswith(f"{folder}/{rest[0]}/") for file in self._files):
            folder, rest = f"{folder}/{rest[0]}", rest[1:]
        if not rest:
            return True
        if f"{folder}/{rest[0]}.py" in self._files:
            module, rest = f"{folder}/{rest[0]}.py", rest[1:]
        else:
            module = f"{folder}/__init__.py"
        if not rest:
            return True
        if module not in self._files or rest[0] not in names(self._tree(module)):
            return False
        homes = self._classes.get(rest[0], [])
        return len(rest) == 1 or any(self._has_member(file, rest[0], rest[1]) for file in homes)

    def _has_member(self, file: str, name: str, member: str) -> bool:
        for node in ast.walk(self._tree(file)):
            if isinstance(node, ast.ClassDef) and node.name == name:
                bases = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
                return member in members(node) or any(
                    self._has_member(home, base, member) for base in bases for home in self._classes.get(base, [])
                )
        return False

    def _tree(self, file: str) -> ast.Module:
        if file not in self._trees:
            self._trees[file] = parsed(ROOT / file)
        return self._trees[file]


def names(tree: ast.Module) -> set[str]:
    """Return what can be had of a module: its definitions and its imports, also those under a condition."""
    found = members(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.update(alias.asname or alias.name for alias in node.names)
    return found


def members(of: ast.Module | ast.ClassDef) -> set[str]:
    """Return the functions, classes and variables of a module, or the attributes of a class."""
    found: set[str] = set()
    for node in ast.walk(of):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def dotted(span: str) -> Iterator[str]:
    """Yield the name without its parentheses. The name of a file is none."""
    found = _NAME.fullmatch(span)
    if found and found[1].rpartition(".")[2] not in _FILE_ENDINGS and found[1] not in (flushed_note.FILE, reserve.FILE):
        yield found[1]


@pytest.mark.slow
def test_each_dotted_name_exists() -> None:
    files = set(git("ls-files").splitlines())
    code = Code(files)
    known_keys = {*key_table.STATIC_KEYS, *key_table.DYNAMIC_ONLY_KEYS, *key_table.TOPIC_KEYS, *key_table.GROUP_KEYS}
    looked_at, missing = 0, set()
    for reader, named in readers(sorted(files)):
        for name in (name for span in named for name in dotted(span) if name not in known_keys):
            looked_at += 1
            if not code.has(name):
                missing.add((reader, name))
    assert looked_at > 300
    assert missing == APART.keys()


def test_what_is_a_name_of_ours() -> None:
    code = Code(set(git("ls-files", "log", "pykbroker/testing").splitlines()))
    there = [
        "pykbroker.testing.Cluster",
        "pykbroker_log.disk.Disk.fsyncs",
        "PartitionLog.end_offset",
        "flush_state.sync",
    ]
    assert [name for name in there if not code.has(name)] == []
    gone = ["pykbroker.testing.Clusters", "pykbroker_log.disc", "PartitionLog.appended_by_leader", "flush_state.synced"]
    assert [name for name in gone if code.has(name)] == []
    of_others = ["asyncio.Future", "retention.ms"]
    assert [name for name in of_others if not code.has(name)] == []
    assert [*dotted("Broker.stop()"), *dotted("a b.c"), *dotted("word")] == ["Broker.stop"]
