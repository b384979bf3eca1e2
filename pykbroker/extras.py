"""The packages of an optional extra of pykbroker, for what is said when one is missing."""

from __future__ import annotations

import re
from importlib import metadata
from typing import Final

#: `click>=8.1,<9; extra == "tools"`, as the metadata of an installed package has it (PEP 508)
_OF_EXTRA: Final = re.compile(r"^(?P<package>[^;]+?)\s*;.*\bextra == ['\"](?P<extra>[^'\"]+)['\"]")


def how_to_install(extra: str) -> str:
    """A command that installs the packages of this extra: pykbroker itself may be in no index of packages."""
    found = []
    try:
        requirements = metadata.requires("pykbroker") or []
    except metadata.PackageNotFoundError:
        # Run from its sources.
        requirements = []
    for requirement in requirements:
        match = _OF_EXTRA.match(requirement)
        if match is not None and match["extra"] == extra:
            found.append(f"'{match['package']}'")
    return f"pip install {' '.join(found)}" if found else f"install pykbroker with its extra `{extra}`"


def is_of_extra(module: str | None, extra: str) -> bool:
    """Return True if a module that could not be imported belongs to a package of this extra."""
    return module is not None and module.partition(".")[0] in _MODULES[extra]


#: extra -> the modules that its packages bring and pykbroker imports
_MODULES: Final = {
    "tools": {"click", "rich", "kafka"},
}
