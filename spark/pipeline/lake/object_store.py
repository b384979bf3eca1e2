"""The lake's requirement of an object store: it creates an object only if the object is absent.

Only `s3a:`. The class for Delta's log is Java (ExclusiveLogStore.java) and its name is in Delta's own setting,
`spark.delta.logStore.s3a.impl`. The driver compiles it with Janino, Spark's compiler for queries, so no JDK and no
further jar is needed. The lease uses the same method, so both use the client, the credentials and the endpoint of
`fs.s3a.*`.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import secured
from pipeline.lake.lease import FOLDER, Holder, Lease
from pipeline.lake.positions import LakeError

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError
    from pyspark.sql import SparkSession

SCHEME = "s3a"
CLASS = "pipeline.lake.ExclusiveLogStore"
SETTING = "spark.delta.logStore.s3a.impl"
FILE_SYSTEM = "org.apache.hadoop.fs.s3a.S3AFileSystem"


def is_object_store(place: str) -> bool:
    """Return True if a path or URI needs the packages and settings of S3A."""
    return place.lower().startswith(f"{SCHEME}:")


def install(spark: SparkSession) -> None:
    """Compile the class for Delta's log, once for each JVM, if Spark has the S3A classes that it needs."""
    jvm: Any = spark._jvm
    loadable = jvm.org.apache.spark.util.Utils.classIsLoadable
    if loadable(CLASS) or not loadable(FILE_SYSTEM):
        return
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(resources.files("pipeline.lake").joinpath("ExclusiveLogStore.java").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="pipeline-classes-") as folder:
        for entry in compiler.getBytecodes().entrySet():
            file = Path(folder, f"{entry.getKey().replace('.', '/')}.class")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(bytes(entry.getValue()))
        loader.addURL(jvm.java.io.File(folder).toURI().toURL())
        jvm.java.lang.Class.forName(CLASS, True, loader)  # from now on it needs no file


@contextmanager
def reached(place: str) -> Iterator[None]:
    """Turn an error of the store or its settings into one line.

    Raises:
        LakeError: instead of a Java error.
    """
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        raise LakeError(
            f"the lake {place} cannot be used: {_reason(error)}",
            "Look at spark.hadoop.fs.s3a.* in [spark] (endpoint, region, credentials), and whether the bucket exists",
        ) from error


def _reason(error: Py4JJavaError) -> str:
    return secured.scrubbed(str(error.java_exception.toString()).splitlines()[0])


def lease(spark: SparkSession, place: str, driver: str) -> Lease:
    """Raises LakeError if Spark was started without the settings for a lake on an object store."""
    install(spark)
    if spark.sparkContext.getConf().get(SETTING) != CLASS:
        raise LakeError(
            f"Spark was started without {SETTING} = {CLASS}; on {place} Delta would overwrite another driver's commits",
            "Start it through pipeline.session, or with that setting",
        )
    return Lease(S3AFiles(spark, place), place, Holder(driver, f"process {os.getpid()} on {socket.gethostname()}"))


class S3AFiles:
    """`LeaseFiles` in the folder of a lake."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        jvm: Any = spark._jvm
        session: Any = spark._jsparkSession
        self._jvm = jvm
        self._place = place
        self._conf = session.sessionState().newHadoopConf()
        self._folder = jvm.org.apache.hadoop.fs.Path(place, FOLDER)
        self._files = self._folder.getFileSystem(self._conf)

    def names(self) -> list[str]:
        from py4j.protocol import Py4JJavaError

        try:
            return [each.getPath().getName() for each in self._files.listStatus(self._folder)]
        except Py4JJavaError as error:
            if _is_missing(error):
                return []
            raise

    def read(self, name: str) -> str:
        from py4j.protocol import Py4JJavaError

        try:
            stream = self._files.open(self._path(name))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()
        except Py4JJavaError as error:
            if _is_missing(error):
                raise FileNotFoundError(name) from None
            raise

    def create(self, name: str, text: str) -> bool:
        return bool(self._jvm.pipeline.lake.ExclusiveLogStore.create(self._path(name), text, self._conf))

    def write(self, name: str, text: str) -> None:
        stream = self._files.create(self._path(name), True)
        stream.write(bytearray(text.encode()))
        stream.close()

    def delete(self, name: str) -> None:
        self._files.delete(self._path(name), False)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._folder, name)


def _is_missing(error: Py4JJavaError) -> bool:
    return bool(error.java_exception.getClass().getName() == "java.io.FileNotFoundException")
