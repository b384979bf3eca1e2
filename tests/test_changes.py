"""Each change that is not released yet has a file in changes/, and towncrier makes a section of CHANGELOG.md of it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CHANGES = ROOT / "changes"
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
KINDS = {kind["directory"] for kind in SETTINGS["type"]}


def fragments() -> list[Path]:
    return sorted(file for file in CHANGES.iterdir() if file.name not in SETTINGS["ignore"])


def test_each_file_is_a_change() -> None:
    wrong = [file.name for file in fragments() if not re.fullmatch(rf"[\w-]+\.({'|'.join(KINDS)})\.md", file.name)]
    assert not wrong
    texts = {file.name: file.read_text(encoding="utf-8") for file in fragments()}
    # One paragraph: it becomes one item of a list.
    assert not [
        name for name, text in texts.items() if not text.strip() or "\n\n" in text or text.startswith(("-", "#"))
    ]


def test_the_page_has_its_place_for_them() -> None:
    text = (ROOT / SETTINGS["filename"]).read_text(encoding="utf-8")
    assert text.count(SETTINGS["start_string"]) == 1
    assert "[Unreleased]" not in text


@pytest.mark.slow
def test_a_release_has_each_of_them(tmp_path: Path) -> None:
    pytest.importorskip("towncrier", reason="towncrier is missing: make test-env installs it")
    for name in ("pyproject.toml", "CHANGELOG.md"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "changes").mkdir()
    for file in CHANGES.iterdir():
        (tmp_path / "changes" / file.name).write_bytes(file.read_bytes())
    command = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", "9.9.9", "--date", "2026-01-31"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8")
    section = text.partition("## [9.9.9] - 2026-01-31\n\n")[2].partition("\n## [")[0]
    assert section.count("\n- ") == len(fragments())
    for file in fragments():
        assert f"- {file.read_text(encoding='utf-8').strip()}" in section
    assert "===" not in section
    heads = re.findall(r"^### (.+)$", section, re.MULTILINE)
    assert heads == [kind["name"] for kind in SETTINGS["type"] if kind["name"] in heads]
