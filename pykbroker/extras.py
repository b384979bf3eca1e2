"""The packages of an optional extra of pykbroker, for what is said when one is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from typing import Final

#: `click>=8.1,<9; extra == "tools"`, as the metadata of an installed package has it (PEP 508)
_OF_EXTRA: Final = re.compile(r"^(?P<package>[^;]+?)\s*;.*\bextra == ['\"](?P<extra>[^'\"]+)['\"]")
#: An extra that has the packages of another one.
_NESTED: Final = re.compile(r"^pykbroker\[(?P<extra>.+)\]$")
#: extra -> the modules that its packages bring and pykbroker imports
_MODULES: Final = {
    "balance": {"numpy"},
    "testcontainers": {"docker", "testcontainers"},
    "tools": {"click", "kafka", "rich"},
}


def is_of_extra(module: str | None, extra: str) -> bool:
    """Return True if a module that could not be imported (ImportError.name) comes with a package of this extra."""
    return module is not None and module.partition(".")[0] in _MODULES[extra]


def how_to_install(extra: str) -> str:
    """A command that installs the packages of this extra. It names them, since no index of packages need have
    pykbroker."""
    packages = " ".join(f"'{package}'" for package in _packages(extra))
    return f"pip install {packages}" if packages else f"install pykbroker with its extra {extra}"


def _packages(extra: str) -> Iterator[str]:
    try:
        requirements = metadata.requires("pykbroker") or []
    except metadata.PackageNotFoundError:
        # Run from its sources: nothing says what was wanted.
        return
    for requirement in requirements:
        match = _OF_EXTRA.match(requirement)
        if match is None or match["extra"] != extra:
            continue
        nested = _NESTED.match(match["package"])
        if nested is None:
            yield match["package"]
        else:
            yield from _packages(nested["extra"])
