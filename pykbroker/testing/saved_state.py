"""`SavedState`: the state of a broker or a cluster at one moment, to which it can be put back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from pykbroker.testing.client_time import Moved


@dataclass(frozen=True, slots=True)
class SavedState:
    """A value that `snapshot()` returns and `restore()` takes. It ends with the broker or the cluster that made it.

    `owner`: that broker or cluster. `copies`: node id -> the path of the copy of its directories. `end_offset`: the end
    of the metadata log. `nodes`: the nodes of a cluster that served. `stands`: the node that begins the first election
    of a cluster that is put back. `moved`: how the clock that clients feel had moved.
    """

    owner: object
    copies: Mapping[int, str]
    end_offset: int
    moved: Moved
    nodes: tuple[int, ...] = ()
    stands: int | None = None

    @property
    def exists(self) -> bool:
        return all(os.path.isdir(path) for path in self.copies.values())

    def delete(self) -> None:
        """Remove the files of the snapshot, which can no longer be restored. A second call changes nothing."""
        for path in self.copies.values():
            shutil.rmtree(path, ignore_errors=True)
