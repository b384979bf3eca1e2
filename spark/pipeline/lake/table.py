"""The one driver that writes a lake, with Spark and Delta Lake.

**A commit** is Delta's: atomic, with a `Note` in its `userMetadata`. **The fence**: a driver that starts commits a
claim, without rows, under the next epoch. All drivers write under one `txnAppId`, their epoch in the upper bits of
`txnVersion`, and two transactions that have both read it conflict (`delta_log`). So after a claim no batch of the
driver before it can be committed, at whatever moment it stands still. It finds the claim in the log and stops:
`LakeTakenError`. Nothing here looks at a clock.

Delta's word that a commit was made is not enough, because it says nothing of a version that it has passed over: after
each write the log is read, and must have the note.
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
# Another driver's commit can overtake a claim; so often in a row only if something is wrong.
ATTEMPTS = 20


class Lake:
    """The one driver that writes a lake, partitioned by the columns `date` and `topic`.

    `claim` first; after an exception it is of no more use."""

    def __init__(self, spark: SparkSession, path: str, *, job: str = "lake", schema: str = SCHEMA) -> None:
        """Raises LakeError for a file system on which two drivers would not find each other."""
        # A session of its own for what is set for one OPTIMIZE: the jobs of a driver share theirs.
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
        self._files: dict[str, DataFile] | None = None  # None: not asked for yet
        self._added = 0  # files, since the claim

    def claim(self, query_id: str | None) -> None:
        """Become the lake's writer, before anything else; makes the table where there is none.

        `query_id` is the id in the checkpoint's metadata, None if the query has not run yet.

        Raises:
            LakeError: another checkpoint's events are in the lake, another writer has changed it, it is another table.
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
        """Let the next checkpoint go on with this lake, whichever it is and wherever it stands (`--adopt-lake`).

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
        """Gives the lease back, so that the next driver need not wait. Without it that waits `lease.PATIENCE_S`."""
        if self._lease is not None:
            with object_store.reached(self._path):
                self._lease.give_back()

    def close_behind(self, query: StreamingQuery) -> None:
        """`close` as soon as a query ends, also when it fails. The process lives until that is done."""
        if self._lease is not None:
            threading.Thread(target=self._close_behind, args=(query,), name="end of the lake").start()

    def commit(self, frame: DataFrame, query_id: str, batch_id: int, plan: str, offsets: Sequence[Any] = ()) -> bool:
        """Write a micro-batch, once: False if it was in the lake already. `plan` tells apart two batches of one number,
        `offsets` (where the batch ends, by source) are noted for people.

        A repeated batch is computed again all the same, for Spark takes the state of its deduplication and the
        watermark from it; nothing of it is written.

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
                # Else each task would write a file of its own into each partition. The hint `rebalance` would also
                # split large partitions, but Spark ignores it in queries that keep state.
                self._append(frame.repartition(*PARTITIONS), note, batch_id)
            except Exception:
                self._look()  # what another driver or writer has done says more than Delta's conflict
                raise
            self._look()
            if self._state != note.state:
                raise self._taken()
            self._delta.checkpoint_if_due()
            return True

    def compact(self, min_files: int, target_file_bytes: int) -> int:
        """Put one file in the place of many where `compaction.choose` says so; how many files have gone.

        One OPTIMIZE for each partition. Readers see the table before it or behind it; the old files stay on the disk
        for those that read them, until VACUUM.

        Raises:
            LakeTakenError: another driver has claimed the lake.
        """
        with self._alone():
            if self._added < min_files:
                return 0  # a driver that has just started lists the table only when it has made so many files itself
            self._look()
            if self._files is None:
                self._files = {file.path: file for file in self._delta.files()}
            before = len(self._files)
            for group in compaction.choose(self._files.values(), min_files, target_file_bytes):
                self._optimize(group, target_file_bytes)
                self._look()
            return before - len(self._files)

    def files(self) -> list[DataFile]:
        """What is in the lake now."""
        return self._delta.files()

    def _take_lease(self) -> None:
        if self._lease is not None:
            with object_store.reached(self._path):
                self._lease.take()
            self._lease.keep()

    def _close_behind(self, query: StreamingQuery) -> None:
        with suppress(Exception):  # what has ended it, says the query itself
            query.awaitTermination()
        with suppress(Exception):  # the store does not answer: the next driver waits
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
            # An epoch that the log does not say any more is jumped over.
            self._epoch = found.epoch + (1 << attempt)
            note = self._note(CLAIM, state, follows=newest, releases=release)
            if self._claimed(note, newest):
                self._version = newest
                self._look_at_once(newest)
                return
        raise LakeTakenError(f"other drivers keep writing to the lake {self._path}", "Stop all but one of them")

    def _claimed(self, note: Note, newest: int) -> bool:
        """Whether the claim is in the log, and the driver before it has made none of its commits meanwhile."""
        nothing = self._spark.createDataFrame([], self._schema)
        try:
            writer = nothing.write.format("delta").mode("errorifexists" if newest < 0 else "append")
            writer.partitionBy(*PARTITIONS).options(**self._options(note, None)).save(self._path)
        except Exception:
            if self._log.newest() == newest:
                raise
            return False  # another driver was faster
        return any(self._log.read(version).note == note for version in range(newest + 1, self._log.newest() + 1))

    def _look_at_once(self, newest: int) -> None:
        """After a claim nothing of the driver before it comes any more: what the log says is final."""
        found = known(self._log.read, self._log.newest())
        refuse_foreign(self._path, found.foreign)
        assert found.state is not None
        self._state = found.state
        self._version = self._log.newest()
        self._text = _digest(self._log.text(self._version))

    def _look(self) -> None:
        """Reads what was committed since.

        Raises:
            LakeTakenError: another driver has claimed the lake.
            LakeError: another writer has changed the table, or it is not the table of before.
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
            self._look()  # of a claim that the transaction has read already, Delta would say nothing
        transaction.commit(frame, PARTITIONS, self._options(note, batch_id))

    def _options(self, note: Note, batch_id: int | None) -> dict[str, str]:
        return {
            "mergeSchema": "true",  # a field that events have gained becomes a column
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
        # A group may be up to twice the target; below its own sum OPTIMIZE would leave files alone.
        conf.set(f"{delta}.optimize.maxFileSize", str(2 * target_file_bytes))
        conf.set(f"{delta}.stats.collect", "true")  # files of batches have none
        try:
            table = DeltaTable.forPath(self._spark, self._path)
            table.optimize().where(compaction.predicate(group)).executeCompaction()
        except Exception as error:
            if not _is_conflict(error):  # another OPTIMIZE was faster: the files are what that has made of them
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
    """The lake as of now: every committed event once, also while a batch is written or files are compacted.

    Raises:
        LakeError: there is no lake.
    """
    if object_store.is_object_store(path):
        object_store.install(spark)
    if TableLog(spark, path).newest() < 0:
        raise LakeError(f"there is no lake at {path}", "Name the folder that the job `lake` writes")
    return spark.read.format("delta").load(path)


def _where(spark: SparkSession, path: str) -> tuple[str, str]:
    """The scheme of a path, and its path on that file system."""
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    there = jvm.org.apache.hadoop.fs.Path(path)
    uri = there.getFileSystem(session.sessionState().newHadoopConf()).makeQualified(there).toUri()
    return str(uri.getScheme()), str(uri.getPath())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _is_conflict(error: Exception) -> bool:
    """Whether Delta has found another transaction in the way of this one."""
    name = getattr(getattr(error, "java_exception", None), "getClass", None)
    text = str(name().getName()) if name else str(error)
    return "Concurrent" in text or "MetadataChanged" in text or "ProtocolChanged" in text
