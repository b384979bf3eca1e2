"""A snapshot that is being fetched: its `.part` file, until it is put in place next to the metadata log.

Responsible for the bytes and for the name. Not responsible for the log that starts after the snapshot, nor for the
position of the next part. Invariant: at most one such file exists, and it is removed when its fetch is given up.
"""

from __future__ import annotations

from pykbroker_log.disk import Disk, File, read_file
from pykbroker_raft import checkpoint
from pykbroker_raft.log_view import OffsetAndEpoch


class PartialSnapshot:
    """The parts of a snapshot in `folder`. Methods raise OSError."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._id: OffsetAndEpoch | None = None
        self._file: File | None = None

    def _path(self, snapshot: OffsetAndEpoch) -> str:
        return f"{self._folder}/{checkpoint.file_name(snapshot)[: -len('.checkpoint')]}-fetch.checkpoint.part"

    def write(self, snapshot: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Write the next part. A part at position 0, or of another snapshot, drops what was fetched before."""
        if self._file is None or self._id != snapshot or position == 0:
            self.drop()
            self._id = snapshot
            self._file = self._disk.open(self._path(snapshot), create=True)
            self._file.truncate(0)
        self._file.pwritev([data], position)

    def put_in_place(self, snapshot: OffsetAndEpoch) -> tuple[int, checkpoint.Snapshot]:
        """Give the file its final name, durably. Return its size and content. Raises CorruptMetadataSnapshot if it is
        not whole, and then it was removed."""
        file, path = self._file, self._path(snapshot)
        if file is None or self._id != snapshot:
            raise AssertionError(f"snapshot {snapshot} was not fetched")
        file.fsync()
        size = file.size()
        try:
            content = checkpoint.decode(read_file(self._disk, path))
        except checkpoint.CorruptMetadataSnapshot:
            self.drop()
            raise
        self.close()
        self._disk.rename(path, f"{self._folder}/{checkpoint.file_name(snapshot)}")
        self._id = None
        self._disk.fsync_dir(self._folder)
        return size, content

    def drop(self) -> None:
        """Remove what was fetched, and free its room."""
        self.close()
        if self._id is not None:
            path, self._id = self._path(self._id), None
            if self._disk.exists(path):
                self._disk.unlink(path)

    def close(self) -> None:
        """Close the file; the next start removes it."""
        if self._file is not None:
            self._file.close()
            self._file = None
