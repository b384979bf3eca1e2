"""The workflows of a public host call targets that are there, on the Pythons that are promised, with few rights."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / ".github/workflows").glob("*.yml"))


def load(file: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def steps(file: Path) -> list[dict[str, Any]]:
    return [step for job in load(file)["jobs"].values() for step in job["steps"]]


def test_there_are_workflows() -> None:
    assert [file.name for file in FILES] == ["release.yml", "tests.yml"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_calls_what_is_there(file: Path) -> None:
    (targets,) = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for step in steps(file):
        for target in re.findall(r"\bmake ([a-z-]+)", step.get("run", "")):
            assert target in targets.split()
        for script in re.findall(r"(\S+/run)\b", step.get("run", "")):
            assert (ROOT / script).exists()
        if "uses" in step:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@(v\d[\w.]*|release/v\d+)", step["uses"])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_has_few_rights_and_an_end(file: Path) -> None:
    workflow = load(file)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 180, name
        # A job that may write waits for an approval.
        if "write" in job.get("permissions", {}).values():
            assert job["environment"] == "release", name


def test_the_quick_tests_run_on_every_python_that_is_promised() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    (tests,) = [file for file in FILES if file.name == "tests.yml"]
    assert load(tests)["jobs"]["quick"]["strategy"]["matrix"]["python"] == promised
    assert f">={promised[0]}" == project["requires-python"]
