"""constraints.txt has names and versions, and nothing in it contradicts pyproject.toml."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from testkit.project import DEPENDENCIES, GROUPS, requirements

ROOT = Path(__file__).resolve().parents[1]
LINES = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
#: The extras of the development environment, in addition to its groups and to the dependencies of every installation.
WITH_EXTRAS = ("tools", "pipeline")
ASKED = {"": DEPENDENCIES, **{name: requirements()[name] for name in (*WITH_EXTRAS, *GROUPS)}}


def pinned() -> dict[str, str]:
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in LINES)}


def test_there_are_names_and_versions_alone() -> None:
    wrong = [line for line in LINES if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9._+!]+", line)]
    assert not wrong


@pytest.mark.parametrize("name", ASKED)
def test_each_requirement_has_a_version_that_it_allows(name: str) -> None:
    versions = pinned()
    for requirement in map(Requirement, ASKED[name]):
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
