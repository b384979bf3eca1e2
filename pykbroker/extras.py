"""The packages of an optional extra of pykbroker, for the message when one of them is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

#: `click>=8.1,<9; extra == "tools"`, as the metadata of an installed package has it (PEP 508)
_OF_EXTRA: Final = re.compile(r"^(?P<package>[^;]+?)\s*;.*\bextra == ['\"](?P<extra>[^'\"]+)['\"]")
#: A requirement on another extra of pykbroker, whose packages belong to this extra too.
_NESTED: Final = re.compile(r"^pykbroker\[(?P<extra>.+)\]$")
#: extra -> the modules of its packages that pykbroker imports
_MODULES: Final = {
    "testcontainers": {"docker", "testcontainers"},
    "tools": {"click", "kafka", "rich"},
}


def is_of_extra(module: str | None, extra: str) -> bool:
    """Return True if a module that could not be imported (ImportError.name) comes with a package of this extra."""
    return module is not None and module.partition(".")[0] in _MODULES[extra]


def how_to_install(extra: str) -> str:
    """Return a command that installs the packages of this extra. It names these packages and not pykbroker, which may
    be in no index of packages."""
    packages = " ".join(f"'{package}'" for package in _packages(extra))
    return f"pip install {packages}" if packages else f"install pykbroker with its extra {extra}"


def _packages(extra: str) -> Iterator[str]:
    # Imported only for the message, because it takes as long as the rest of a program that prints its help.
    from importlib import metadata

    try:
        requirements = metadata.requires("pykbroker") or []
    except metadata.PackageNotFoundError:
        # pykbroker runs from its sources, so there is no metadata with its requirements.
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
