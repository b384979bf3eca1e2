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


def imported(tree: ast.AST) -> set[str]:
    """Return the dotted names of the import statements in a tree, also of those in functions: `a.b` for `import a.b`,
    `a.b.c` for `from a.b import c`. Relative imports are left out."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found
