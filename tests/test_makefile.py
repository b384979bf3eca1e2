"""Each target says at its start what it installs and how long it takes, and `make unit` installs no system package."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "Makefile").read_text(encoding="utf-8")


def targets() -> list[str]:
    (line,) = re.findall(r"^\.PHONY: (.+)$", TEXT, re.MULTILINE)
    return str(line).split()


def prerequisites(target: str) -> list[str]:
    (line,) = re.findall(rf"^{re.escape(target)}:(?!=)(.*)$", TEXT, re.MULTILINE)
    return str(line).replace("|", " ").split()


def rules() -> dict[str, list[str]]:
    """Each target with what it asks for, variables of the Makefile unexpanded."""
    found = re.findall(r"^([^\s#:=]+):(?!=)(.*)$", TEXT, re.MULTILINE)
    return {target: asked.replace("|", " ").split() for target, asked in found}


@pytest.mark.parametrize("target", targets())
def test_each_target_speaks_before_it_installs(target: str) -> None:
    assert prerequisites(target)[0] == f"say-{target}"
    assert re.search(rf"^SAYS_{target} := .+$", TEXT, re.MULTILINE)


def test_nothing_is_said_of_a_target_that_is_not_there() -> None:
    assert set(re.findall(r"^SAYS_(\S+) :=", TEXT, re.MULTILINE)) == set(targets())


@pytest.mark.parametrize("target", ["unit", "quick", "run", "install"])
def test_no_system_package_is_installed_for_it(target: str) -> None:
    asked, waiting = set[str](), [target]
    while waiting:
        name = waiting.pop()
        if name not in asked:
            asked.add(name)
            waiting += rules().get(name, [])
    assert not asked & {"system", "java", "test-env"}


@pytest.mark.slow
def test_the_asked_target_alone_speaks() -> None:
    said = subprocess.run(
        ["make", "-n", "lint-env", "clean"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    spoken = re.findall(r"^make (\S+): ", said, re.MULTILINE)
    assert spoken == ["lint-env", "clean"]
