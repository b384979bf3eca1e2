"""The mark of a clean stop: the file `.kafka_cleanshutdown` of one log directory.

Responsible for when the file exists. The file promises the next start that no log needs recovery, and its broker epoch
proves to the controller that no record was lost (KIP-966). Not responsible for how logs are made durable before the
file is written (log_dirs.py), nor for what the controller does with the epoch.

The promise must never be false, and the epoch must not be lost without need:

1. Between `read` and the first `claim` a run changes no partition. If the run crashes, fails to start or stops in that
   time, every log is as the clean stop left it. The promise still holds, and the file stays, with its epoch.
2. Every method of `LogDir` that changes something of a partition, or returns a log that can be changed, calls `claim`
   first. `claim` returns when the file is durably gone: unlink, then fsync of the directory.
3. Therefore the first change comes after the fsync, and the start after a later crash finds no file. A crash between
   unlink and fsync may leave the file or remove it. Either is right, because nothing has changed yet.
4. If the unlink or the fsync fails, `claim` raises, nothing is changed, and the next caller tries both again. A missing
   file is not enough: only a successful fsync proves that it is gone.
5. `write` makes a new file after the last change of a run, and only if every log is closed cleanly and durable.
6. `keep` is for a stop before any change. The promise still holds, but the controller may have given this run a new
   epoch, and then it no longer accepts the old one: `keep` replaces the epoch by an atomic rename.
"""

from __future__ import annotations

from contextlib import suppress

from pykbroker_log import names
from pykbroker_log.checkpoints import decode_clean_shutdown, encode_clean_shutdown
from pykbroker_log.disk import Disk, read_file, write_atomic

#: Stands for an unknown epoch: no run of the broker was registered with it.
NO_EPOCH = -1


class CleanShutdown:
    """The clean shutdown file. Call `read` once; every method may raise OSError."""

    __slots__ = ("_disk", "_folder", "_path", "broker_epoch", "is_claimed", "was_clean")

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._path = f"{folder}/{names.CLEAN_SHUTDOWN}"
        #: the last stop left the file
        self.was_clean = False
        #: the epoch in that file
        self.broker_epoch = NO_EPOCH
        #: this run may change partitions
        self.is_claimed = False

    def read(self) -> None:
        """Find out whether the last run ended with a clean stop."""
        if self._disk.exists(self._path):
            self.broker_epoch = decode_clean_shutdown(read_file(self._disk, self._path))
            self.was_clean = True

    def claim(self) -> None:
        """Remove the file durably, so that partitions may be changed. Only the first call uses the disk."""
        if self.is_claimed:
            return
        if self.was_clean:
            with suppress(FileNotFoundError):
                self._disk.unlink(self._path)
            self._disk.fsync_dir(self._folder)
        self.is_claimed = True

    def write(self, broker_epoch: int) -> None:
        """Record that this stop is clean."""
        write_atomic(self._disk, self._path, encode_clean_shutdown(broker_epoch))

    def keep(self, broker_epoch: int) -> None:
        """End a run that has changed nothing: see 6."""
        if self.was_clean and broker_epoch not in (NO_EPOCH, self.broker_epoch):
            self.write(broker_epoch)
