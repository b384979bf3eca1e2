"""constraints.txt has names and versions, and nothing in it contradicts pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LINES = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
#: The extras of the development environment, in addition to the dependencies of every installation.
EXTRAS = ("tools", "test", "lint", "unit", "bench", "pipeline")


def pinned() -> dict[str, str]:
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in LINES)}


def test_there_are_names_and_versions_alone() -> None:
    wrong = [line for line in LINES if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9._+!]+", line)]
    assert not wrong


@pytest.mark.parametrize("extra", ["", *EXTRAS])
def test_each_requirement_has_a_version_that_it_allows(extra: str) -> None:
    asked = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    versions = pinned()
    for requirement in map(Requirement, asked):
        if requirement.name == PROJECT["name"]:
            continue  # an extra that has the packages of another one, which is looked at by itself
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            version = versions.get(canonicalize_name(requirement.name))
            assert version is not None, f"{requirement.name} is not there: make constraints"
            assert requirement.specifier.contains(version, prereleases=True), f"{requirement}: make constraints"


def test_the_environments_of_ci_are_made_with_it() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for marker in (".test", ".lint", ".unit"):
        (recipe,) = re.findall(rf"^\$\(VENV\)/{re.escape(marker)}: (.*\n(?:\t.*\n)+)", makefile, re.MULTILINE)
        assert "-c $(CONSTRAINTS)" in recipe
    ci = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert {"make test-env", "make lint-env"} <= {
        line.removeprefix("timed ").partition(" ||")[0] for line in ci.splitlines()
    }
