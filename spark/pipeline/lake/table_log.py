"""The files of a table's log, and the other names in its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.checkpoint import SparkFiles
from pipeline.lake import folder_lock, lease
from pipeline.lake.commits import FORMAT, Commit, NewerNoteError, decode
from pipeline.lake.positions import LakeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = "_delta_log"
OURS = (folder_lock.NAME, lease.FOLDER)


class TableLog:
    """The files of a table's log."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._files = SparkFiles(spark, path)
        self._place = path

    def newest(self) -> int:
        """Return the last version, or -1 without a table."""
        names = (name.partition(".") for name in self._files.names(LOG))
        return max((int(stem) for stem, _, kind in names if kind == "json" and stem.isdecimal()), default=-1)

    def read(self, version: int) -> Commit:
        """Raises FileNotFoundError; LakeError for an entry that is damaged or of a later version."""
        return self.decode(version, self.text(version))

    def text(self, version: int) -> str:
        """Raises FileNotFoundError."""
        return self._files.read(f"{LOG}/{version:020d}.json")

    def decode(self, version: int, text: str) -> Commit:
        try:
            return decode(version, text)
        except NewerNoteError:
            raise LakeError(
                f"version {version} of the lake {self._place} was written by a later pipeline; this one knows format "
                f"{FORMAT}",
                "Run the version of the pipeline that wrote the lake, or a later one",
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LakeError(
                f"version {version} in the log of the lake {self._place} is damaged ({type(error).__name__}: {error})",
                f"Restore {LOG}/{version:020d}.json from a backup",
            ) from error

    def strange_names(self) -> list[str]:
        """Return the names in a folder that is no Delta table."""
        return sorted(name for name in self._files.names("") if name not in OURS and name[0] != ".")
