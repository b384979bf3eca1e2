"""The directories where `pykbroker start` keeps data when no option names one.

Imports little, because `pykbroker health` looks for nodes there.
"""

from __future__ import annotations

import os
from typing import Final

#: The beginning of the name of a directory of `--ephemeral`.
EPHEMERAL_PREFIX: Final = "pykbroker-"
#: The default directories of one node, and of a cluster.
NODE, CLUSTER = "pykbroker", "pykbroker-cluster"


def default_data_dir(name: str = NODE) -> str:
    base = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(base, name)


def ephemeral_dirs() -> list[str]:
    """Return the directories that may belong to a node or a cluster with --ephemeral. Only directories of this user
    are among them, because every user may make one where temporary files are."""
    # The `tempfile` module has the same rule, and costs a probe more time than the rest of it.
    named = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    base = next(filter(None, named), "/tmp")  # noqa: S108  # the owner is checked
    try:
        entries = sorted(os.scandir(base), key=lambda entry: entry.name)
    except OSError:
        return []
    return [entry.path for entry in entries if entry.name.startswith(EPHEMERAL_PREFIX) and _is_own_directory(entry)]


def _is_own_directory(entry: os.DirEntry[str]) -> bool:
    try:
        is_own = entry.stat(follow_symlinks=False).st_uid == os.getuid()
        return is_own and entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
