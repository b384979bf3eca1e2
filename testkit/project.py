"""The requirements of pyproject.toml: of every installation, of an extra, and of a dependency group.

It is read from the file, because the installed metadata has no groups and may be of an earlier version of the file.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
_FILE: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NAME: Final[str] = _FILE["project"]["name"]
DEPENDENCIES: Final[list[str]] = _FILE["project"]["dependencies"]
#: extra -> its requirements
EXTRAS: Final[dict[str, list[str]]] = _FILE["project"]["optional-dependencies"]
#: The names of the dependency groups, which are for people who change pykbroker.
GROUPS: Final = tuple(_FILE["dependency-groups"])


def of_group(name: str) -> list[str]:
    """Return the requirements of a dependency group, with those of the groups that it includes (PEP 735)."""
    found: list[str] = []
    for one in _FILE["dependency-groups"][name]:
        found += [one] if isinstance(one, str) else of_group(one["include-group"])
    return found


def requirements() -> dict[str, list[str]]:
    """Return the requirements of each extra and of each group by name; no name is both."""
    assert not EXTRAS.keys() & set(GROUPS)
    return {**EXTRAS, **{name: of_group(name) for name in GROUPS}}
