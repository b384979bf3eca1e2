"""Delta's own log of a table, through py4j, for calls that its public options lack or that they make slow.

These classes of Delta are public in Java, but Delta does not promise to keep them. They are those of version
`session.DELTA`, and only this module uses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pipeline.lake.commits import APP_ID, DataFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Versions from one checkpoint of the log to the next.
CHECKPOINT_EVERY = 50


class DeltaLog:
    """The log of an existing table."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._none = jvm.scala.Option.empty()
        self._background = ThreadPoolExecutor(1, thread_name_prefix="checkpoint-of-the-lake")
        self._checkpoint: Future[None] | None = None

    def files(self) -> list[DataFile]:
        """Return the files of the table now."""
        from pyspark.sql import DataFrame

        frame = DataFrame(self._updated().allFiles().toDF(), self._spark)
        rows = frame.select("path", "size", "partitionValues").collect()
        return [DataFile(row.path, row.size, tuple(sorted(row.partitionValues.items()))) for row in rows]

    def begin(self, known: int) -> Append:
        """Begin a transaction on the `known` version if Delta has that in memory, else on the newest one.

        Delta looks for the newest one in the folder."""
        log = self._log()
        snapshot = log.unsafeVolatileSnapshot()
        if snapshot.version() != known:
            snapshot = self._updated()
        return Append(self._spark, log, log.startTransaction(self._none, self._jvm.scala.Option.apply(snapshot)))

    def checkpoint_if_due(self) -> None:
        """Begin a checkpoint of the log in a thread, because a batch in which Delta makes it would take seconds longer.

        Raises the error of the thread before it. It raises no error if Delta could not write a checkpoint, because the
        log is complete without it and Delta only warns.
        """
        if self._checkpoint is not None and not self._checkpoint.done():
            return
        if self._checkpoint is not None:
            self._checkpoint.result()
        snapshot = self._log().unsafeVolatileSnapshot()
        if snapshot.version() - max(0, snapshot.checkpointProvider().version()) >= CHECKPOINT_EVERY:
            self._checkpoint = self._background.submit(self._write_checkpoint, snapshot)

    def _write_checkpoint(self, snapshot: Any) -> None:
        self._log().checkpoint(snapshot, self._none)
        self._updated()  # otherwise Delta would keep all the entries that the checkpoint replaces

    def _log(self) -> Any:
        return self._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._spark._jsparkSession, self._path)

    def _updated(self) -> Any:
        return self._log().update(False, self._none, self._none)


class Append:
    """A transaction that adds rows, under the next `txnVersion`.

    Delta's option `txnVersion` compares the version with the table's last one, and for that it replays the log in Spark
    jobs in each batch. A driver knows the last one, because it reads every entry. So this transaction only records that
    it has read the last one: then it conflicts with every commit that writes another one after `version`.
    """

    def __init__(self, spark: SparkSession, log: Any, transaction: Any) -> None:
        self._jvm: Any = spark._jvm
        self._spark = spark
        self._log = log
        self._transaction = transaction
        self._transaction.readTxn().addOne(APP_ID)

    @property
    def version(self) -> int:
        """The version that it has read. Delta checks later commits for conflicts, but not this one and earlier ones."""
        return int(self._transaction.readVersion())

    def commit(self, frame: DataFrame, by: Sequence[str], options: dict[str, str]) -> None:
        """Write the rows, partitioned `by` columns, with a DataFrameWriter's `options`; `txnVersion` is one of them."""
        delta = self._jvm.org.apache.spark.sql.delta
        scala = self._jvm.org.apache.spark.api.python.PythonUtils
        some, none = self._jvm.scala.Option.apply, self._jvm.scala.Option.empty()
        session: Any = self._spark._jsparkSession
        mode = self._jvm.org.apache.spark.sql.SaveMode.Append
        columns = scala.toSeq(list(by))
        write = delta.commands.WriteIntoDelta(
            self._log,
            mode,
            delta.DeltaOptions(scala.toScalaMap(options), session.sessionState().conf()),
            columns,
            scala.toScalaMap({}),
            frame._jdf,
            none,
            none,
        )
        written = write.writeAndReturnCommitData(self._transaction, session, none, False)
        operation = delta.DeltaOperations.Write(mode, some(columns), none, some(options["userMetadata"]))
        self._transaction.commit(written.actions(), operation, written.stringTags())
