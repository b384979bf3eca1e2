"""A worker keeps one of Python's cached importers for each archive, and imports still work."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

from pyspark_pykbroker.worker_imports import keep_one_importer_of_each_archive


def test_one_importer_of_each_archive_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "parts.zip"

    def write(*names: str) -> None:
        with zipfile.ZipFile(archive, "w") as made:
            for name in names:
                made.writestr(f"seg_a/{name}", "")
                made.writestr(f"seg_a/b/{name}", "")

    def importers() -> list[str]:
        found = [each for each in sys.path_importer_cache.values() if isinstance(each, zipimporter)]
        return [each.prefix for each in found if each.archive == str(archive)]

    write("__init__.py", "c.py")
    monkeypatch.syspath_prepend(str(archive))
    importlib.import_module("seg_a.b.c")
    assert len(importers()) == 3
    keep_one_importer_of_each_archive()
    assert importers() == [""]
    importlib.import_module("seg_a.c")
    # An archive that has changed is still noticed.
    write("__init__.py", "c.py", "later.py")
    keep_one_importer_of_each_archive()
    importlib.invalidate_caches()
    importlib.import_module("seg_a.b.later")
