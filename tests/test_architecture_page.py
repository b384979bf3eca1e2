"""docs/architecture.md names only what exists, and stays short enough to be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.long_runs import ROOT, git

PAGE = ROOT / "docs" / "architecture.md"
#: A path on the page may leave out the folder of the layer or of the package.
BELOW = (
    "",
    "pykbroker/",
    "wire/pykbroker_wire/",
    "log/pykbroker_log/",
    "raft/pykbroker_raft/",
    "worlds/pykbroker_worlds/",
)


def names() -> list[str]:
    return sorted(set(re.findall(r"`([^`]+)`", PAGE.read_text(encoding="utf-8"))))


@pytest.fixture(scope="module")
def files() -> list[str]:
    return git("ls-files").splitlines()


@pytest.fixture(scope="module")
def words(files: list[str]) -> set[str]:
    """Every word of the code, whole: also with the dots and dashes of a configuration key."""
    found: set[str] = set()
    for name in files:
        if name.endswith((".py", ".toml")) or name == "Makefile":
            text = (ROOT / name).read_text(encoding="utf-8")
            found.update(re.findall(r"[\w.-]*\w", text))
            found.update(re.findall(r"\w+", text))
    return found


@pytest.mark.slow
def test_every_name_in_backticks_exists(files: list[str], words: set[str]) -> None:
    folders = {str(parent) + "/" for file in files for parent in Path(file).parents}
    endings = {file.rpartition("/")[2] for file in files}

    def exists(name: str) -> bool:
        if name.endswith("/"):
            return any(f"{below}{name}" in folders for below in BELOW) or any(f.endswith("/" + name) for f in folders)
        if "/" in name:
            return any(f"{below}{name}" in files for below in BELOW)
        if name.endswith(".py"):
            return name in endings
        plain = name.partition("=")[0]
        return plain in words or all(part in words for part in re.findall(r"\w+", plain))

    assert [name for name in names() if not exists(name)] == []


def test_it_stays_readable() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert len(lines) < 300
    assert [line for line in lines if len(line) > 120] == []


def test_the_readme_has_at_most_200_lines() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200
