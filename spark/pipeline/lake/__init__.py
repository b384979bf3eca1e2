"""The lake: a Delta table, partitioned by `date` and `topic`, that has each event once, although its writer may be
killed at any moment.

    lake/_delta_log/<version>.json           Delta's log: a file for each commit, created whole or not at all
    lake/date=.../topic=.../*.parquet        the data; which of it counts, the log says
    lake/_pipeline.lock                      only on `file:`: held while a driver commits (`folder_lock`)
    lake/_pipeline.lease/<number>.json       only on `s3a:`: which driver lives (`lease`)

Delta makes a commit atomic. What is the pipeline's own is to know which commit is which: each commit of a driver says
in its `userMetadata` of which job, checkpoint, batch and offsets it is (`commits`), and what may follow it is judged
before each batch (`positions`). A batch is a transaction of Delta's own classes (`delta_log`). Two drivers: the later
one takes the lake, the earlier one stops at its next commit (`table`). On an object store the later one stops, as long
as the earlier one lives (`lease`), and the entries of the log are created by a class of the pipeline's own, because
Delta's overwrites there (`object_store`).

**kill -9 and a loss of power.** All this holds when processes die. A loss of power is another matter: Hadoop's file:
does not fsync, neither here nor in Spark's own checkpoint. What is missing then does not pass silently: a batch that
does not follow is refused, and a Parquet file without its footer cannot be read; but a backup is needed.
"""

from pipeline.lake.columns import SCHEMA
from pipeline.lake.commits import DataFile
from pipeline.lake.positions import LakeError, LakeTakenError
from pipeline.lake.table import Lake, read

__all__ = ["SCHEMA", "DataFile", "Lake", "LakeError", "LakeTakenError", "read"]
