"""Python sources as trees, for tests that look at the code itself."""

from __future__ import annotations

import ast
import gc
from pathlib import Path


def parsed(path: Path) -> ast.Module:
    """Return the tree of a module. The garbage collector is off during this, because a finaliser that runs within
    `ast.parse` may end it with a SystemError (CPython issue 106905)."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        if was_enabled:
            gc.enable()
