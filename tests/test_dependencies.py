"""Every dependency of pyproject.toml is imported where it is for, and nothing else is."""

from __future__ import annotations

import ast
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from testkit.project import DEPENDENCIES, EXTRAS, requirements
from tests.parsed import imported, parsed
from tests.test_house import MODULES

ROOT = Path(__file__).parents[1]
OWN = {"pykbroker", "pykbroker_wire", "pykbroker_log", "pykbroker_raft"}
PRODUCT = [ROOT / folder for folder in ("pykbroker", "wire/pykbroker_wire", "log/pykbroker_log", "raft/pykbroker_raft")]
#: The beginning of modules -> packages that they may import beside those of pyproject's `dependencies`.
MAY_IMPORT = {
    "pykbroker.tools.": {"click", "kafka", "rich"},
    "pykbroker.tools.balance.": {"numpy"},
    "pykbroker.tools.commands.balance_": {"numpy"},
    "pykbroker.testing.kafka_test_utils": {"kafka"},
    "pykbroker.testing.pykbroker_container": {"testcontainers"},
    "pykbroker.testing.pytest_plugin": {"pytest"},
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
            if path.parent.name in ("messages", "stored"):
                continue
            tree = parsed(path)
            found |= imported(tree)
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "importorskip":
                    found.update(str(ast.literal_eval(argument)) for argument in node.args)
    return found


def distributions(imported: set[str]) -> set[str]:
    known = packages_distributions()
    return {
        normal(distribution)
        for name in imported
        for distribution in known.get(name.partition(".")[0], [name.partition(".")[0]])
    } - OWN


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
    imported = distributions(imports([ROOT / folder for folder in FOLDERS[extra]]))
    assert names(requirements()[extra]) - BY_NAME <= imported


def test_every_extra_is_looked_at() -> None:
    assert requirements().keys() - {"lint"} == FOLDERS.keys()


def test_what_only_developers_need_is_no_extra() -> None:
    """Metadata of a wheel has the extras, and users take each of them for something that they can install."""
    assert EXTRAS.keys() == {"tools", "pytest", "testcontainers", "balance", "spark", "pipeline"}
