"""A replica's copy in another log directory, as far as this process knows the content of its `-future` folder.

Responsible for how far the copy reaches and whether it can be continued. Not responsible for the copying (moves.py).
"""

from __future__ import annotations


class FutureCopy:
    __slots__ = ("_is_pristine", "end_offset", "folder", "is_clean", "must_look", "size_bytes")

    def __init__(self, folder: str, *, must_look: bool) -> None:
        """`must_look` is True if the folder may have a copy of an earlier run."""
        #: the path
        self.folder = folder
        #: True while the content of the folder is unknown
        self.must_look = must_look
        # True if nothing was ever written there.
        self._is_pristine = not must_look
        #: the end of the copy, None if it has to begin anew
        self.end_offset: int | None = None
        self.size_bytes = 0
        #: True if no worker was interrupted while it wrote
        self.is_clean = False

    def begin_anew(self) -> None:
        """Note that the copied records are of no use."""
        self.end_offset = None

    def has_other_records(self, start_offset: int) -> bool:
        """Return True if records must be removed before the copy can begin at `start_offset`. A new folder begins at
        offset 0."""
        return self.end_offset is None and not (self._is_pristine and start_offset == 0)

    def is_being_written(self) -> None:
        self.is_clean = self._is_pristine = False

    def was_written(self, end_offset: int, size_bytes: int) -> None:
        """Note that a worker has ended well."""
        self.is_clean = True
        self.end_offset, self.size_bytes = end_offset, size_bytes

    def offset_lag(self, log_start_offset: int, log_end_offset: int) -> int:
        """Return the number of offsets of the log that the copy lacks."""
        return log_end_offset - (self.end_offset if self.end_offset is not None else log_start_offset)
