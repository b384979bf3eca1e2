"""The hooks of pre-commit are checks of `make lint`."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any

import pytest
import yaml

from testkit.project import ROOT, of_group

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
(REPOSITORY,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
#: Programs of the group `lint` -> the distribution.
PROGRAMS = {"ruff": "ruff", "mypy": "mypy", "lint-imports": "import-linter"}


def checks() -> list[str]:
    """Return the commands of `make lint`, as words of this directory."""
    found = re.findall(r"^\tcheck (?:env \S+ )?(.+); \\$", MAKEFILE, re.MULTILINE)
    return [line.replace("$(BIN)/", ".venv/bin/") for line in found]


def test_nothing_is_downloaded() -> None:
    assert REPOSITORY["repo"] == "local"
    assert {hook["language"] for hook in REPOSITORY["hooks"]} == {"system"}


@pytest.mark.parametrize("hook", REPOSITORY["hooks"], ids=lambda hook: hook["id"])
def test_a_hook_is_a_check_of_make_lint(hook: dict[str, Any]) -> None:
    # Files that are named on a command line are looked at although they are excluded, unless this option is given.
    entry = hook["entry"].removesuffix(" --force-exclude")
    files = "" if hook.get("pass_filenames") is False else r"(?: \.| \$\(FORMATTED\))?"
    assert [line for line in checks() if re.fullmatch(re.escape(entry) + files, line)], "make lint runs something else"


@pytest.mark.parametrize("hook", REPOSITORY["hooks"], ids=lambda hook: hook["id"])
def test_its_command_is_there(hook: dict[str, Any]) -> None:
    program, *words = hook["entry"].removeprefix(".venv/bin/").split()
    if program != "python":
        assert any(one.startswith(PROGRAMS[program]) for one in of_group("lint"))
    elif words[0] == "-m":
        assert find_spec(words[1]) is not None
    else:
        assert (ROOT / words[0]).exists()


def test_the_same_folders_are_formatted() -> None:
    (folders,) = re.findall(r"^FORMATTED := (.+)$", MAKEFILE, re.MULTILINE)
    (files,) = (hook["files"] for hook in REPOSITORY["hooks"] if hook["id"] == "ruff-format")
    assert files == f"^({'|'.join(folders.split())})/"
