"""The protocol's `Files`, on Hadoop's FileSystem: the driver's JVM has it, and file: and hdfs: are alike through it,
almost.

What differs, and is settled here:

* **Creating a file if it is absent.** HDFS refuses to rename over an existing file, in one step of the name node.
  Hadoop's file: has no such operation: its rename replaces, its create looks and then creates. There a hard link is
  used, which the operating system refuses if the name exists.
* **Object stores** have neither: `SCHEMES` are those that have been looked at.
* **Checksums.** file: writes `.name.crc` beside each file and moves it in a second step. A data file whose checksum
  was left behind is read without; a checksum without its file is hidden from Spark by its leading dot, like `_log`
  and `_staging`.
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Any

from pipeline.lake.manifest import STAGING, LakeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMES = ("file", "hdfs")


class HadoopFiles:
    def __init__(self, spark: SparkSession, root: str) -> None:
        """`root` is a folder as Spark takes it: a path of the default file system, or with its scheme."""
        jvm: Any = spark._jvm
        self._jvm = jvm
        # Spark's session settings (spark.hadoop.*) are part of it.
        session: Any = spark._jsparkSession
        self._conf = session.sessionState().newHadoopConf()
        self._fs = jvm.org.apache.hadoop.fs.Path(root).getFileSystem(self._conf)
        self._root = self._fs.makeQualified(jvm.org.apache.hadoop.fs.Path(root))
        self.scheme = str(self._root.toUri().getScheme())

    def uri(self, path: str = "") -> str:
        """The whole address of a path, for Spark."""
        return str(self._path(path).toString())

    def names(self, folder: str) -> list[str]:
        try:
            return [status.getPath().getName() for status in self._fs.listStatus(self._path(folder))]
        except Exception as error:
            if _is_missing(error):
                return []
            raise

    def walk(self, folder: str) -> list[tuple[str, int]]:
        """Every file below a folder: its path relative to that folder, and its bytes."""
        start = self._path(folder)
        base = start.toUri().getPath()
        found = []
        iterator = self._fs.listFiles(start, True)
        while iterator.hasNext():
            status = iterator.next()
            found.append((str(status.getPath().toUri().getPath())[len(base) + 1 :], int(status.getLen())))
        return sorted(found)

    def rows(self, path: str) -> int:
        """The number of rows that a Parquet file's footer states."""
        parquet = self._jvm.org.apache.parquet.hadoop
        reader = parquet.ParquetFileReader.open(parquet.util.HadoopInputFile.fromPath(self._path(path), self._conf))
        try:
            return int(reader.getRecordCount())
        finally:
            reader.close()

    def read(self, path: str) -> str:
        try:
            stream = self._fs.open(self._path(path))
        except Exception as error:
            if _is_missing(error):
                raise FileNotFoundError(path) from None
            raise
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def publish(self, path: str, text: str) -> bool:
        draft = f"{STAGING}/{uuid.uuid4()}.draft"
        stream = self._fs.create(self._path(draft), False)
        stream.write(text.encode())
        stream.close()
        self._fs.mkdirs(self._path(path).getParent())
        if self.scheme != "file":
            return bool(self._fs.rename(self._path(draft), self._path(path)))
        try:
            os.link(self._path(draft).toUri().getPath(), self._path(path).toUri().getPath())
        except (FileExistsError, FileNotFoundError):  # the second: whoever claimed the lake has cleared the drafts
            return False
        except OSError as error:
            raise LakeError(
                f"{self.uri(path)} cannot be created: {error.strerror}",
                "The lake's file system must have hard links, and room",
            ) from error
        self.delete(draft)
        return True

    def exists(self, path: str) -> bool:
        return bool(self._fs.exists(self._path(path)))

    def move(self, source: str, target: str) -> None:
        if not self.exists(source):
            raise FileNotFoundError(source)
        self._fs.mkdirs(self._path(target).getParent())
        try:
            moved = self._fs.rename(self._path(source), self._path(target))
        except Exception as error:
            if _is_missing(error):
                raise FileNotFoundError(source) from None
            raise
        if not moved:
            raise FileNotFoundError(f"{source} could not be renamed to {target}")

    def delete(self, path: str) -> None:
        self._fs.delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path) if path else self._root


def _is_missing(error: Exception) -> bool:
    java = getattr(error, "java_exception", None)
    return java is not None and java.getClass().getName() in (
        "java.io.FileNotFoundException",
        "java.nio.file.NoSuchFileException",
    )
