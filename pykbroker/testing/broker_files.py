"""The directories of an embedded broker: its own temporary one or those of its owner, and copies of their contents.

Responsible for where they are, for replacing their contents between two runs, and for removing what is temporary. Not
responsible for the node, nor for which files a copy has (state_copy.py).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from pykbroker.storage.format import StorageFormatError
from pykbroker.testing.state_copy import MayLink, copy_settled, copy_tree, new_folder, remove_contents
from pykbroker_log import names
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.os_disk.locks import readers_lock
from pykbroker_raft.metadata_storage import DIRECTORY as METADATA
from pykbroker_raft.reserve import FILE as RESERVE

#: the log directory, and the one that was there before, within what was staged
_DATA, _OLD = "data", "old"


class BrokerFiles:
    """Call `open` before the first run, `close` after the last."""

    def __init__(self, data_dir: str | None, state: str | None) -> None:
        """`data_dir`: a directory that stays; without it the broker gets a temporary one. `state`: a directory of a
        stopped broker, with a copy of which it begins."""
        self._data_dir = data_dir
        self._state = state
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        #: a copy of the contents to which a reset returns, once there is one
        self._beginning: str | None = None
        #: folders that `tidy` removes
        self._leavings: list[str] = []
        self._remover: ThreadPoolExecutor | None = None

    def open(self) -> str:
        """Make the directory ready for the first run, and return its path. Raises StorageFormatError or OSError."""
        if self._data_dir is not None:
            return self._data_dir
        temporary = self._temporary = tempfile.TemporaryDirectory(prefix="pykbroker-")
        path = f"{temporary.name}/{_DATA}"
        os.mkdir(path, 0o700)
        self._begin(path)
        return path

    def is_temporary(self, paths: Sequence[str]) -> bool:
        """Return True if all these directories are removed at the end."""
        return self._temporary is not None and paths == [f"{self._temporary.name}/{_DATA}"]

    def copy(self, log_dirs: Sequence[LogDir], broker_epoch: int) -> str:
        """Copy the directories of a node that stands still, and return the path of the copy. Raises OSError."""
        with new_folder(self._own_folder(), "snapshot-") as path:
            copy_settled(log_dirs, path, broker_epoch)
        return path

    def stage(self, copy: str | None) -> str:
        """Copy a copy for `replace`, or with None the contents with which the first run began, and return the path. A
        node may run. Raises StorageFormatError or OSError, and leaves nothing then."""
        with new_folder(self._own_folder(), "staged-") as staged:
            if copy is None:
                copy = self._beginning
            if copy is None:
                os.mkdir(f"{staged}/0", 0o700)
                self._begin(f"{staged}/0")
            else:
                for name in os.listdir(copy):
                    copy_tree(f"{copy}/{name}", f"{staged}/{name}", may_link=MayLink.ALL)
        return staged

    def replace(self, staged: str, paths: Sequence[str]) -> None:
        """Put the directories that were staged in the place of these, which no node may use. `tidy` removes the old
        ones. Raises OSError."""
        for number, path in enumerate(paths):
            if self.is_temporary([path]):
                old = f"{staged}/{_OLD}"
                os.rename(path, old)
                os.rename(f"{staged}/{number}", path)
            else:
                # The directory itself may be a mount point.
                remove_contents(path)
                copy_tree(f"{staged}/{number}", path)
        self._leavings.append(staged)

    def keep_beginning(self) -> None:
        """Keep a copy of the present contents, to which later resets return. Call it before the node runs. A second
        call changes nothing. Raises OSError."""
        if self._beginning is None and self._temporary is not None:
            with new_folder(self._own_folder(), "beginning-") as path:
                copy_tree(f"{self._temporary.name}/{_DATA}", f"{path}/0", may_link=MayLink.ALL)
            self._beginning = path

    def keep_reserve(self) -> None:
        """Move the reserve of the metadata log from the directory that was replaced last, so that it is not written
        again. Raises OSError."""
        if self._leavings and self._temporary is not None:
            reserve = f"{METADATA}/{RESERVE}"
            # The node may have none, and a directory that is not formatted has no folder for it.
            with suppress(FileNotFoundError):
                os.rename(f"{self._leavings[-1]}/{_OLD}/{reserve}", f"{self._temporary.name}/{_DATA}/{reserve}")

    def tidy(self) -> None:
        """Remove what `replace` has left, on a thread. Call it when the next run serves, which need not wait for it."""
        if self._remover is None:
            self._remover = ThreadPoolExecutor(1, thread_name_prefix="pykbroker-remover")
        leavings, self._leavings = self._leavings, []
        for folder in leavings:
            self._remover.submit(shutil.rmtree, folder, ignore_errors=True)

    def close(self) -> None:
        """Remove everything that is temporary."""
        remover, self._remover = self._remover, None
        if remover is not None:
            remover.shutdown()
        self._leavings.clear()
        self._beginning = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _begin(self, path: str) -> None:
        if self._state is None:
            return
        if not os.path.isfile(f"{self._state}/{names.META_PROPERTIES}"):
            raise StorageFormatError(f"{self._state} is no log directory, because it has no {names.META_PROPERTIES}")
        try:
            with readers_lock(f"{self._state}/{names.LOCK}"):
                copy_tree(self._state, path)
        except BlockingIOError as error:
            raise StorageFormatError(f"{self._state} cannot be copied, because a broker uses it: {error}") from error

    def _own_folder(self) -> str:
        """Return the temporary directory, which a broker without one gets now."""
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="pykbroker-")
        return self._temporary.name
