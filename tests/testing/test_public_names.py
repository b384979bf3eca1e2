"""The names of `pykbroker.testing`: all can be imported, are shown by `dir`, and load nothing before."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from pykbroker import testing
from testkit.nodes.processes import environment


def test_every_name_is_there_and_is_shown() -> None:
    imported: dict[str, str | None] = {}
    for node in ast.walk(ast.parse(Path(testing.__file__).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pykbroker"):
            imported |= {alias.name: node.module for alias in node.names if alias.name in testing.__all__}
    assert imported == testing._HOMES
    assert sorted(imported) == sorted(testing.__all__)
    assert set(testing.__all__) <= set(dir(testing))
    for name in testing.__all__:
        assert getattr(testing, name) is not None


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Brokers'"):
        _ = testing.Brokers


@pytest.mark.slow
def test_dir_imports_nothing() -> None:
    code = (
        "import sys, pykbroker.testing; dir(pykbroker.testing); "
        "print([name for name in sys.modules if name.startswith('pykbroker_wire') or name == 'asyncio'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
