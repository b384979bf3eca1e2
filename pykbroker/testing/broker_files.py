"""The directories of an embedded broker: its own temporary one or those of its owner, and copies of their contents.

Responsible for where they are, for replacing their contents between two runs, and for removing what is temporary. Not
responsible for the node, nor for which files a copy has (state_copy.py).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Sequence

from pykbroker.storage.format import StorageFormatError
from pykbroker.testing.state_copy import copy_settled, copy_tree, new_folder, remove_contents
from pykbroker_log import names
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.os_disk.locks import readers_lock


class BrokerFiles:
    """Call `open` before the first run, `close` after the last."""

    def __init__(self, data_dir: str | None, state: str | None) -> None:
        """`data_dir`: a directory that stays; without it the broker gets a temporary one. `state`: a directory of a
        stopped broker, with a copy of which it begins."""
        self._data_dir = data_dir
        self._state = state
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._removals: list[threading.Thread] = []

    def open(self) -> str:
        """Make the directory ready for the first run, and return its path. Raises StorageFormatError or OSError."""
        if self._data_dir is not None:
            return self._data_dir
        temporary = self._temporary = tempfile.TemporaryDirectory(prefix="pykbroker-")
        path = f"{temporary.name}/data"
        os.mkdir(path, 0o700)
        self._begin(path)
        return path

    def is_temporary(self, paths: Sequence[str]) -> bool:
        """Return True if all these directories are removed at the end."""
        return self._temporary is not None and paths == [f"{self._temporary.name}/data"]

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
                os.mkdir(f"{staged}/0", 0o700)
                self._begin(f"{staged}/0")
            else:
                for name in os.listdir(copy):
                    copy_tree(f"{copy}/{name}", f"{staged}/{name}", may_link=True)
        return staged

    def replace(self, staged: str, paths: Sequence[str]) -> None:
        """Put the directories that were staged in the place of these, which no node may use. Raises OSError."""
        for number, path in enumerate(paths):
            if self.is_temporary([path]):
                old = tempfile.mkdtemp(prefix="old-", dir=self._own_folder())
                os.rename(path, f"{old}/{number}")
                os.rename(f"{staged}/{number}", path)
                self._remove(old)
            else:
                # The directory itself may be a mount point.
                remove_contents(path)
                copy_tree(f"{staged}/{number}", path)
        self._remove(staged)

    def close(self) -> None:
        """Remove everything that is temporary."""
        for removal in self._removals:
            removal.join()
        self._removals.clear()
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

    def _remove(self, path: str) -> None:
        """Remove a directory on a thread, because the next run need not wait for it."""
        removal = threading.Thread(target=shutil.rmtree, args=(path,), kwargs={"ignore_errors": True}, daemon=True)
        self._removals = [thread for thread in self._removals if thread.is_alive()]
        self._removals.append(removal)
        removal.start()

    def _own_folder(self) -> str:
        """Return the temporary directory, which a broker without one gets now."""
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="pykbroker-")
        return self._temporary.name
