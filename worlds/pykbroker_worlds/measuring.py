"""Coverage of worlds: the worker and its forks are measured as pytest's own process is, and it counts their lines.

Nothing happens here if pytest's process is not measured, or if the worker measures itself because the user has
configured coverage for subprocesses.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

#: The arguments of the worker's `coverage.Coverage`, as JSON.
_SETTINGS: Final = "PYKBROKER_WORLDS_COVERAGE"
_OPTIONS: Final = ("branch", "cover_pylib", "timid", "source", "source_pkgs", "include", "omit")


def _measurement() -> Any | None:
    """Return the measurement that this process has started last, None without one."""
    coverage = sys.modules.get("coverage")
    return None if coverage is None else coverage.Coverage.current()


def for_worker(directory: Path) -> dict[str, str]:
    """Return what the environment of a worker needs, so that its forks leave their data in `directory`."""
    present = _measurement()
    if present is None:
        return {}
    settings = {option: present.get_option(f"run:{option}") for option in _OPTIONS}
    settings["config_file"] = present.config.config_file or False
    settings["data_file"] = str(directory / "data")
    return {_SETTINGS: json.dumps(settings)}


def start() -> None:
    """Measure this process, a worker, if pytest's process is measured."""
    settings = os.environ.pop(_SETTINGS, None)
    if settings is None or _measurement() is not None:
        return
    import_module("coverage").Coverage(**json.loads(settings), data_suffix=True).start()


def keep() -> None:
    """Keep what was measured in this fork: coverage would do so at an exit that does not come."""
    present = _measurement()
    if present is not None:
        present.stop()
        present.save()


def count(directory: Path) -> None:
    """Add what forks have left in `directory` to the measurement of this process."""
    present = _measurement()
    files = sorted(directory.iterdir())
    if present is None or not files:
        return
    coverage, data = sys.modules["coverage"], present.get_data()
    for file in files:
        of_fork = coverage.CoverageData(basename=str(file))
        of_fork.read()
        data.update(of_fork)
        of_fork.close()
        file.unlink()
