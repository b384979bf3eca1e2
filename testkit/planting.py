"""Planted bugs: a change of one or two expressions in the source of a method, for a test that has to notice it.

A text that is no longer there fails the test, so a bug cannot vanish with a rewrite.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

#: a method, and what replaces which text in it
Edit = tuple[Callable[..., Any], str, str]


def plant(patch: pytest.MonkeyPatch, edits: list[Edit]) -> None:
    sources: dict[Callable[..., Any], str] = {}
    for method, old, new in edits:
        source = sources.get(method) or textwrap.dedent(inspect.getsource(method))
        assert source.count(old) == 1, f"{old!r} in {method.__qualname__}"
        sources[method] = source.replace(old, new)
    for method, source in sources.items():
        module = sys.modules[method.__module__]
        defined: dict[str, Any] = {}
        # All names of the module, and one for a bug.
        code = compile("from __future__ import annotations\n" + source, method.__qualname__, "exec")
        exec(code, {**vars(module), "RELEASED": 0}, defined)
        patch.setattr(getattr(module, method.__qualname__.split(".")[0]), method.__name__, defined[method.__name__])
