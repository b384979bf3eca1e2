"""Runs of pytest with pykbroker's plugin, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from importlib.metadata import entry_points
from pathlib import Path

from testkit.nodes.processes import environment

PLUGIN = "pykbroker.testing.pytest_plugin"


def run_pytest(folder: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(textwrap.dedent(source), encoding="utf-8")
    # An installed plugin is found by its entry point, and naming it as well would load it twice.
    named = [] if "pykbroker" in installed_plugins() else ["-p", PLUGIN]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *named, *arguments, str(folder)]
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )


def installed_plugins() -> set[str]:
    return {point.name for point in entry_points(group="pytest11")}
