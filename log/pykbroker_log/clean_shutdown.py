"""The sign of a clean stop: the file `.kafka_cleanshutdown` of one log directory.

Responsible for when the file is there. It promises the next start that no log needs recovery, and it has the broker
epoch that proves to the controller that no record was lost (KIP-966). Not responsible for how logs are made durable
before it is written (log_dirs.py), nor for what the controller does with the epoch.

The first promise must never be false, and the second must not be lost without need:

1. Between `read` and the first `claim` a run changes no partition. A crash, a start that fails and a stop leave every
   log as the clean stop left it. The sign is still true, and it stays, with its epoch.
2. Every method of `LogDir` that changes something of a partition, or hands out a log that can be changed, calls `claim`
   first. `claim` returns when the sign is durably gone: unlink, then fsync of the directory.
3. Therefore the first change comes after the fsync, and a crash after a change finds no sign. A crash between unlink
   and fsync may leave the sign or take it. Both are true, because nothing has changed yet.
4. If the unlink or the fsync fails, `claim` raises, nothing is changed, and the next caller tries both again. That the
   file has gone already is no proof: only a successful fsync is.
5. `write` makes a new sign after the last change of a run, and only if every log is closed cleanly and durable.
6. `keep` is for a stop before any change. The sign is still true, but the controller may have given this run a new
   epoch by then, and would not know the old one again: `keep` puts the new one into it, by an atomic rename.
"""

from __future__ import annotations

from contextlib import suppress

from pykbroker_log import names
from pykbroker_log.checkpoints import decode_clean_shutdown, encode_clean_shutdown
from pykbroker_log.disk import Disk, read_file, write_atomic

#: No run of the broker was registered with this epoch.
NO_EPOCH = -1


class CleanShutdown:
    """`read` once; every method may raise OSError."""

    __slots__ = ("_disk", "_folder", "_path", "broker_epoch", "is_claimed", "was_clean")

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._path = f"{folder}/{names.CLEAN_SHUTDOWN}"
        #: the last stop left a sign
        self.was_clean = False
        #: in that sign
        self.broker_epoch = NO_EPOCH
        #: this run may change partitions
        self.is_claimed = False

    def read(self) -> None:
        """Find out how the last run ended."""
        if self._disk.exists(self._path):
            self.broker_epoch = decode_clean_shutdown(read_file(self._disk, self._path))
            self.was_clean = True

    def claim(self) -> None:
        """Return when partitions may be changed. Only the first call touches the disk."""
        if self.is_claimed:
            return
        if self.was_clean:
            with suppress(FileNotFoundError):
                self._disk.unlink(self._path)
            self._disk.fsync_dir(self._folder)
        self.is_claimed = True

    def write(self, broker_epoch: int) -> None:
        """Say that this stop is clean."""
        write_atomic(self._disk, self._path, encode_clean_shutdown(broker_epoch))

    def keep(self, broker_epoch: int) -> None:
        """This run ends and has changed nothing: see 6."""
        if self.was_clean and broker_epoch not in (NO_EPOCH, self.broker_epoch):
            self.write(broker_epoch)
