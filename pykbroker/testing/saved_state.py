"""`SavedState`: the state of a broker or a cluster at one moment, to which it can be put back."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass

from pykbroker.testing.client_time import Moved


@dataclass(frozen=True, slots=True)
class SavedState:
    """A value that `snapshot()` returns and `restore()` takes. It ends with the broker or the cluster that made it.

    `owner`: that broker or cluster. `path`: the folder with the copies of a broker's directories, or of a cluster with
    a folder for each node. `end_offset`: the end of the metadata log. `nodes`: the nodes of a cluster that served.
    `stands`: the node that begins the first election of a cluster that is put back. `moved`: how the clock that clients
    feel had moved.
    """

    owner: object
    path: str
    end_offset: int
    moved: Moved
    nodes: tuple[int, ...] = ()
    stands: int | None = None

    @property
    def exists(self) -> bool:
        """True until the snapshot is deleted, or its broker or cluster ends."""
        return os.path.isdir(self.path)

    def delete(self) -> None:
        """Remove the files of the snapshot, which can no longer be restored. A second call changes nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
