"""`pykbroker.reserve`: room that is reserved for metadata on a disk that other data fills up.

Responsible for the file: created while there is room, and removed when a metadata write finds none. All its bytes are
written, so that the room is really allocated; on a file system that compresses, its zeros reserve nothing. Apache
Kafka ignores the file.
"""

from __future__ import annotations

import logging

from pykbroker_log.disk import Disk

FILE = "pykbroker.reserve"
#: The room that must be left after the reserve is created, and after a record is written.
MARGIN_BYTES = 256 * 1024
_PIECE_BYTES = 1024 * 1024

logger = logging.getLogger(__name__)


class Reserve:
    """The reserve of one metadata log; none is kept if `size_bytes` is 0. Methods raise OSError."""

    def __init__(self, disk: Disk, log_dir: str, folder: str, size_bytes: int) -> None:
        self._disk = disk
        self._log_dir = log_dir
        self._path = f"{folder}/{FILE}"
        self.size_bytes = size_bytes
        self.is_there = False

    def usable_bytes(self) -> int:
        """Return the room that is left on the disk, not counting the reserve."""
        return self._disk.usage(self._log_dir)[1]

    def make(self) -> bool:
        """Create the reserve if there is enough room. Return True if it exists now."""
        if self.is_there or not self.size_bytes:
            return self.is_there
        if self._disk.exists(self._path):
            file = self._disk.open(self._path)
            try:
                self.is_there = file.size() == self.size_bytes
            finally:
                file.close()
            if self.is_there:
                return True
            self._disk.unlink(self._path)
        if self.usable_bytes() < self.size_bytes + MARGIN_BYTES:
            return False
        file = self._disk.open(self._path, create=True)
        try:
            for position in range(0, self.size_bytes, _PIECE_BYTES):
                file.pwritev([bytes(min(_PIECE_BYTES, self.size_bytes - position))], position)
            self.is_there = True
        finally:
            file.close()
            if not self.is_there:
                self._disk.unlink(self._path)
        return True

    def give_up(self) -> bool:
        """Remove the reserve, so that metadata can use its room. Return False if there was none."""
        if not self.is_there:
            return False
        self.is_there = False
        self._disk.unlink(self._path)
        logger.warning("Log directory %s: the disk is full, so the metadata log uses its reserve now", self._log_dir)
        return True

    def give_up_found(self) -> bool:
        """Call `give_up` for a reserve of an earlier run that this run has not looked for yet."""
        self.is_there = self.size_bytes > 0 and self._disk.exists(self._path)
        return self.give_up()

    def has_room_for(self, size_bytes: int) -> bool:
        """Return True if `size_bytes` can be written, if necessary without the reserve."""
        if not self.size_bytes:
            return True
        if self.usable_bytes() >= size_bytes + MARGIN_BYTES:
            return True
        return self.give_up() and self.usable_bytes() >= size_bytes

    def has_room_for_all_of(self, size_bytes: int) -> bool:
        """Like `has_room_for`, but keep the reserve if giving it up would not be enough."""
        needed = size_bytes + MARGIN_BYTES
        if self.is_there and self.usable_bytes() < needed and self.usable_bytes() + self.size_bytes < needed:
            return False
        return self.has_room_for(size_bytes)
