"""The one driver that writes a lake, with Spark and Delta Lake.

**A commit** is Delta's: atomic, with a `Note` in its `userMetadata`. **The fence**: a driver that starts commits a
claim, without rows, under the next epoch. All drivers write under one `txnAppId`, with their epoch in the upper bits of
`txnVersion`, and two transactions that have both read it conflict (`delta_log`). So after a claim the driver before it
cannot commit a batch, wherever it was interrupted. It finds the claim in the log and stops with `LakeTakenError`.
Nothing here depends on a clock.

It is not enough that Delta reports a commit as made, because Delta does not report a version that it has skipped. So
after each write this module reads the log, which must contain the note.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipeline.lake import columns, compaction, folder_lock, object_store
from pipeline.lake.columns import PARTITIONS, SCHEMA
from pipeline.lake.commits import (
    APP_ID,
    BATCH,
    CLAIM,
    COMPACTION,
    Commit,
    DataFile,
    Note,
    Position,
    State,
    transaction_version,
)
from pipeline.lake.delta_log import DeltaLog
from pipeline.lake.positions import (
    LakeError,
    LakeTakenError,
    is_committed,
    known,
    refuse_foreign,
    refuse_stranger,
)
from pipeline.lake.table_log import LOG, TableLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SCHEMES = ("file", "hdfs", object_store.SCHEME)
# Another driver's commit can overtake a claim; it does so this often in a row only if something is wrong.
ATTEMPTS = 20


class Lake:
    """The one driver that writes a lake, partitioned by the columns `date` and `topic`.

    Call `claim` first. After an exception, do not use it again."""

    def __init__(self, spark: SparkSession, path: str, *, job: str = "lake", schema: str = SCHEMA) -> None:
        """Raises LakeError for a file system on which two drivers would not notice each other."""
        # Settings for one OPTIMIZE need a session of their own, because the jobs of a driver share one.
        self._spark = spark.newSession()
        self._path = path
        self._job = job
        self._schema = schema
        self._writer = uuid.uuid4().hex
        with object_store.reached(path):
            self._scheme, self._folder = _where(spark, path)
            if self._scheme not in SCHEMES:
                raise LakeError(
                    f"the lake {path} is on {self._scheme}:, on which the pipeline was never tried",
                    f"Put the lake on one of {', '.join(f'{each}:' for each in SCHEMES)}",
                )
            self._log = TableLog(spark, path)
            self._delta = DeltaLog(self._spark, path)
            on_object_store = self._scheme == object_store.SCHEME
            self._lease = object_store.lease(spark, path, self._writer) if on_object_store else None
        self._epoch = 0
        self._version = -1
        self._text = ""  # a digest of the entry of that version
        self._state = State()
        self._files: dict[str, DataFile] | None = None  # None until they are listed
        self._added = 0  # the number of files written since the claim

    def claim(self, query_id: str | None) -> None:
        """Become the lake's writer, before anything else; create the table if it does not exist.

        `query_id` is the id in the checkpoint's metadata, None if the query has not run yet.

        Raises:
            LakeError: another checkpoint's events are in the lake, another writer has changed it, or it is another
            table.
            LakeTakenError: on an object store, another driver holds the lease.
        """
        self._take_lease()
        try:
            with self._alone():
                self._take(query_id, release=False)
        except BaseException:
            self.close()
            raise

    def release(self) -> None:
        """Let the next checkpoint continue this lake, whichever it is and wherever it stands (`--adopt-lake`).

        Raises:
            LakeError: it is a table of other columns.
            LakeTakenError: on an object store, another driver holds the lease.
        """
        self._take_lease()
        try:
            with self._alone():
                self._take(None, release=True)
        finally:
            self.close()

    def close(self) -> None:
        """Give the lease back, so that the next driver need not wait `lease.PATIENCE_S`."""
        if self._lease is not None:
            with object_store.reached(self._path):
                self._lease.give_back()

    def close_behind(self, query: StreamingQuery) -> None:
        """Call `close` as soon as a query ends or fails. The process lives until that is done."""
        if self._lease is not None:
            threading.Thread(target=self._close_behind, args=(query,), name="end of the lake").start()

    def commit(self, frame: DataFrame, query_id: str, batch_id: int, plan: str, offsets: Sequence[Any] = ()) -> bool:
        """Write a micro-batch once; return False if it is in the lake already. `plan` distinguishes two batches of one
        number; `offsets` (the end of the batch for each source) are recorded for people.

        Spark computes a repeated batch again, because it takes the state of its deduplication and the watermark from
        it, but none of its rows is written.

        Raises:
            LakeError: the batch cannot be the next one, or another writer has changed the table.
            LakeTakenError: another driver has claimed the lake.
        """
        with self._alone():
            self._look()
            position = Position(batch_id, plan)
            if is_committed(self._path, self._state, query_id, position):
                frame.write.format("noop").mode("overwrite").save()
                return False
            note = self._note(BATCH, State(query_id, position), offsets=list(offsets))
            try:
                # Otherwise each task would write its own file into each partition. The hint `rebalance` would also
                # split large partitions, but Spark ignores it in queries that keep state.
                self._append(frame.repartition(*PARTITIONS), note, batch_id)
            except Exception:
                self._look()  # raises an error that is clearer than Delta's conflict
                raise
            self._look()
            if self._state != note.state:
                raise self._taken()
            self._delta.checkpoint_if_due()
            return True

    def compact(self, min_files: int, target_file_bytes: int) -> int:
        """Replace many files by one where `compaction.choose` asks for it; return the number of files that are gone.

        There is one OPTIMIZE for each partition. Readers see the table before it or after it. The old files stay on the
        disk until VACUUM for readers that still use them.

        Raises:
            LakeTakenError: another driver has claimed the lake.
        """
        with self._alone():
            if self._added < min_files:
                return 0  # a new driver lists the table only after it has written this many files itself
            self._look()
            if self._files is None:
                self._files = {file.path: file for file in self._delta.files()}
            before = len(self._files)
            for group in compaction.choose(self._files.values(), min_files, target_file_bytes):
                self._optimize(group, target_file_bytes)
                self._look()
            return before - len(self._files)

    def files(self) -> list[DataFile]:
        """Return the files of the lake now."""
        return self._delta.files()

    def _take_lease(self) -> None:
        if self._lease is not None:
            with object_store.reached(self._path):
                self._lease.take()
            self._lease.keep()

    def _close_behind(self, query: StreamingQuery) -> None:
        with suppress(Exception):  # the query itself reports its error
            query.awaitTermination()
        with suppress(Exception):  # the store does not answer, so the next driver waits
            self.close()

    def _alone(self) -> AbstractContextManager[None]:
        if self._lease is not None:
            self._lease.check()
        return folder_lock.held(self._folder) if self._scheme == "file" else nullcontext()

    def _take(self, query_id: str | None, *, release: bool) -> None:
        for attempt in range(ATTEMPTS):
            newest = self._log.newest()
            found = known(self._log.read, newest)
            if newest < 0:
                self._refuse_strange_folder()
                found = replace(found, state=State())
            elif not release:
                refuse_stranger(self._path, query_id, found.state)
                refuse_foreign(self._path, found.foreign)
            if newest >= 0:
                columns.refuse_others(self._spark, self._path, self._schema, adopting=release)
            state = replace(found.state or State(), released=True) if release else found.state
            assert state is not None
            # The claim skips an epoch that is no longer in the log.
            self._epoch = found.epoch + (1 << attempt)
            note = self._note(CLAIM, state, follows=newest, releases=release)
            if self._claimed(note, newest):
                self._version = newest
                self._look_at_once(newest)
                return
        raise LakeTakenError(f"other drivers keep writing to the lake {self._path}", "Stop all but one of them")

    def _claimed(self, note: Note, newest: int) -> bool:
        """Return True if the claim is in the log and the driver before it made no commit in between."""
        nothing = columns.nothing(self._spark, self._schema)
        try:
            writer = nothing.write.format("delta").mode("errorifexists" if newest < 0 else "append")
            writer.partitionBy(*PARTITIONS).options(**self._options(note, None)).save(self._path)
        except Exception:
            if self._log.newest() == newest:
                raise
            return False  # another driver was faster
        return any(self._log.read(version).note == note for version in range(newest + 1, self._log.newest() + 1))

    def _look_at_once(self, newest: int) -> None:
        """Read the final state of the log: after a claim the driver before it cannot commit."""
        found = known(self._log.read, self._log.newest())
        refuse_foreign(self._path, found.foreign)
        assert found.state is not None
        self._state = found.state
        self._version = self._log.newest()
        self._text = _digest(self._log.text(self._version))

    def _look(self) -> None:
        """Read the commits that were made since.

        Raises:
            LakeTakenError: another driver has claimed the lake.
            LakeError: another writer has changed the table, or it is no longer the same table.
        """
        try:
            unchanged = _digest(self._log.text(self._version)) == self._text
        except FileNotFoundError:
            unchanged = False
        if not unchanged:
            raise LakeError(
                f"version {self._version} of the lake {self._path} is gone, or another one than this driver has seen",
                "Was the table deleted, restored from a backup, or written by two drivers at once? Stop all drivers, "
                "look at it, and start one",
            )
        while True:
            try:
                text = self._log.text(self._version + 1)
            except FileNotFoundError:
                return
            self._apply(self._log.decode(self._version + 1, text))
            self._version += 1
            self._text = _digest(text)

    def _apply(self, commit: Commit) -> None:
        note = commit.note
        if note is None and commit.changes:
            refuse_foreign(self._path, (commit,))
        if note is not None and note.writer != self._writer and note.kind != COMPACTION:
            raise self._taken()
        if note is not None and note.kind == BATCH:
            self._state = note.state
        self._added += len(commit.adds)
        if self._files is not None:
            self._files.update((file.path, file) for file in commit.adds)
            for path in commit.removes:
                self._files.pop(path, None)

    def _note(self, kind: str, state: State, **more: Any) -> Note:
        return Note(kind, self._writer, self._epoch, self._job, state, **more)

    def _append(self, frame: DataFrame, note: Note, batch_id: int) -> None:
        transaction = self._delta.begin(self._version)
        if transaction.version > self._version:
            self._look()  # Delta would not report a claim that the transaction has read already
        transaction.commit(frame, PARTITIONS, self._options(note, batch_id))

    def _options(self, note: Note, batch_id: int | None) -> dict[str, str]:
        return {
            "mergeSchema": "true",  # a new field of events becomes a column
            "txnAppId": APP_ID,
            "txnVersion": str(transaction_version(note.epoch, batch_id)),
            "userMetadata": note.encode(),
        }

    def _optimize(self, group: Sequence[DataFile], target_file_bytes: int) -> None:
        from delta.tables import DeltaTable

        delta = "spark.databricks.delta"
        conf = self._spark.conf
        conf.set(f"{delta}.commitInfo.userMetadata", self._note(COMPACTION, self._state).encode())
        conf.set(f"{delta}.optimize.minFileSize", str(compaction.threshold(group)))
        # A group may be up to twice the target; with a limit below the sum OPTIMIZE would leave files out.
        conf.set(f"{delta}.optimize.maxFileSize", str(2 * target_file_bytes))
        conf.set(f"{delta}.stats.collect", "true")  # the files of batches have no statistics
        try:
            table = DeltaTable.forPath(self._spark, self._path)
            table.optimize().where(compaction.predicate(group)).executeCompaction()
        except Exception as error:
            if not _is_conflict(error):  # another OPTIMIZE was faster, so its files are there
                raise

    def _taken(self) -> LakeTakenError:
        return LakeTakenError(
            f"another driver has claimed the lake {self._path}, so this one stops; nothing is lost",
            "Run one driver for each lake",
        )

    def _refuse_strange_folder(self) -> None:
        strange = self._log.strange_names()
        if "_log" in strange:
            raise LakeError(
                f"the lake {self._path} is of an earlier version of this pipeline: Parquet files with a log of their "
                "own, and no Delta table",
                "docs/lake.md says how it becomes one; or name another folder",
            )
        if strange:
            raise LakeError(
                f"{self._path} is no Delta table, and is not empty: it has {', '.join(strange[:3])}",
                f"Name a new folder, or restore the lake's {LOG}/: without it nothing says what belongs to the lake",
            )


def read(spark: SparkSession, path: str) -> DataFrame:
    """Return the lake as of now: every committed event once, also while a batch is written or files are compacted.

    Raises:
        LakeError: there is no lake.
    """
    if object_store.is_object_store(path):
        object_store.install(spark)
    if TableLog(spark, path).newest() < 0:
        raise LakeError(f"there is no lake at {path}", "Name the folder that the job `lake` writes")
    return spark.read.format("delta").load(path)


def _where(spark: SparkSession, path: str) -> tuple[str, str]:
    """Return the scheme of a path, and its path on that file system."""
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    there = jvm.org.apache.hadoop.fs.Path(path)
    uri = there.getFileSystem(session.sessionState().newHadoopConf()).makeQualified(there).toUri()
    return str(uri.getScheme()), str(uri.getPath())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _is_conflict(error: Exception) -> bool:
    """Return True if Delta has found that another transaction conflicts with this one."""
    name = getattr(getattr(error, "java_exception", None), "getClass", None)
    text = str(name().getName()) if name else str(error)
    return "Concurrent" in text or "MetadataChanged" in text or "ProtocolChanged" in text
