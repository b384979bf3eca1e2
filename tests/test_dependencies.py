"""Every dependency of pyproject.toml is imported where it is for, and nothing else is."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from testkit.project import DEPENDENCIES, EXTRAS, requirements
from tests.parsed import imported, parsed
from tests.test_house import MODULES

ROOT = Path(__file__).parents[1]
OWN = {"pykbroker", "pykbroker_wire", "pykbroker_log", "pykbroker_raft", "pykbroker_worlds"}
PRODUCT = [
    ROOT / folder
    for folder in (
        "pykbroker",
        "wire/pykbroker_wire",
        "log/pykbroker_log",
        "raft/pykbroker_raft",
        "worlds/pykbroker_worlds",
    )
]
#: The beginning of modules -> packages that they may import beside those of pyproject's `dependencies`.
MAY_IMPORT = {
    "pykbroker.tools.": {"click", "kafka", "rich"},
    "pykbroker.tools.balance.": {"numpy"},
    "pykbroker.tools.commands.balance_": {"numpy"},
    "pykbroker.testing.kafka_test_utils": {"kafka"},
    "pykbroker.testing.pykbroker_container": {"testcontainers"},
    "pykbroker.testing.pytest_plugin": {"pytest"},
    "pykbroker_worlds.pytest_plugin": {"pytest"},
    "pykbroker_worlds.worker": {"pytest"},
}
#: extra or group -> where it is for
FOLDERS = {
    "tools": ["pykbroker/tools"],
    "balance": ["pykbroker"],
    "spark": ["spark", "compat_tests"],
    "pipeline": ["spark"],
    "test": ["testkit", "tests", "compat_tests"],
    "unit": ["tests"],
    "bench": ["bench"],
    "pytest": ["pykbroker"],
    "testcontainers": ["pykbroker"],
}
#: Packages without an import statement, because pytest, a name, or the programs of a page of docs/ load them.
BY_NAME = {"pytest-timeout", "pytest-xdist", "pytest-asyncio", "kio", "matplotlib"}


def names(requirements: list[str]) -> set[str]:
    return {normal(re.split(r"[^A-Za-z0-9._-]", requirement)[0]) for requirement in requirements} - OWN


def normal(distribution: str) -> str:
    """One spelling of a name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def imports(folders: list[Path]) -> set[str]:
    """Dotted names of what the sources import, of files and folders; generated messages import nothing from outside."""
    found: set[str] = set()
    for folder in folders:
        for path in folder.rglob("*.py") if folder.is_dir() else [folder]:
            if path.parent.name not in ("messages", "stored"):
                found |= imports_of(path)
    return found


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Several tests ask for the same file, and parsing is what takes their time."""
    tree = parsed(path)
    found = imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "importorskip":
            found.update(str(ast.literal_eval(argument)) for argument in node.args)
    return frozenset(found)


@cache
def known_distributions() -> Mapping[str, list[str]]:
    """The distributions of each top-level name, which are read from the metadata of all that is installed."""
    return packages_distributions()


def distributions(imported: set[str]) -> set[str]:
    known = known_distributions()
    return {
        normal(distribution)
        for name in imported
        for distribution in known.get(name.partition(".")[0], [name.partition(".")[0]])
    } - OWN


@cache
def modules_of(wanted: frozenset[str]) -> set[str]:
    """Return the top-level names that these distributions have, which are their own names if they are not installed."""
    installed = {name for name, found in known_distributions().items() if wanted.intersection(map(normal, found))}
    return installed | {name.replace("-", "_") for name in wanted}


def foreign(imported: set[str]) -> set[str]:
    return {name for name in imported if name.partition(".")[0] not in (OWN | set(sys.stdlib_module_names))}


@pytest.mark.slow
def test_each_dependency_is_imported_by_the_product_and_nothing_else_is() -> None:
    third_party = foreign(imports(PRODUCT))
    wanted = names(DEPENDENCIES)
    # The packages of the parts for users' tests, and those of an extra.
    optional = {"pytest", "testcontainers", "numpy", *names(EXTRAS["tools"])}
    assert distributions(third_party) - optional == wanted
    private = [name for name in third_party if any(part.startswith("_") for part in name.split("."))]
    assert not private, "another release may not have them"


@pytest.mark.slow
def test_only_the_tools_import_the_packages_of_the_tools() -> None:
    """Wherever the import statement stands. Only the program (`__main__`) imports the tools."""
    base = names(DEPENDENCIES)
    wrong, programs = {}, set()
    for module, path in MODULES.items():
        imported = imports([path])
        own = [packages for begin, packages in MAY_IMPORT.items() if f"{module}.".startswith(begin)]
        outside = {name for name in foreign(imported) if not distributions({name}) <= base}
        found = {name.partition(".")[0] for name in outside}.difference(*own)
        if found:
            wrong[module] = found
        if any(f"{name}.".startswith("pykbroker.tools.") for name in imported) and "tools" not in module.split("."):
            programs.add(module)
    assert wrong == {}
    assert programs == {"pykbroker.__main__"}


@pytest.mark.slow
@pytest.mark.parametrize("extra", sorted(FOLDERS))
def test_each_dependency_of_an_extra_is_imported_where_it_is_for(extra: str) -> None:
    wanted = names(requirements()[extra]) - BY_NAME
    left = set(wanted)
    for path in (path for folder in FOLDERS[extra] for path in (ROOT / folder).rglob("*.py")):
        # Few files name what is left. The others are not parsed.
        if modules_of(frozenset(left)).intersection(re.findall(r"\w+", path.read_text(encoding="utf-8"))):
            left -= distributions(set(imports_of(path)))
    assert left == set()


def test_every_extra_is_looked_at() -> None:
    assert requirements().keys() - {"lint"} == FOLDERS.keys()


def test_what_only_developers_need_is_no_extra() -> None:
    """Metadata of a wheel has the extras, and users take each of them for something that they can install."""
    assert EXTRAS.keys() == {"tools", "pytest", "testcontainers", "balance", "spark", "pipeline"}
