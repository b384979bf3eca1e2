"""The lake: a Delta table, partitioned by `date` and `topic`, that has each event once, even if its writer is killed at
any moment.

    lake/_delta_log/<version>.json           Delta's log: a file for each commit, created whole or not at all
    lake/date=.../topic=.../*.parquet        the data; Delta's log names the files that count
    lake/_pipeline.lock                      only on `file:`: held while a driver commits (`folder_lock`)
    lake/_pipeline.lease/<number>.json       only on `s3a:`: the driver that holds the lake (`lease`)

Delta makes a commit atomic. The pipeline itself must recognise its commits: each commit of a driver has its job,
checkpoint, batch and offsets in its `userMetadata` (`commits`), and before each batch the pipeline checks what may
follow (`positions`). A batch is a transaction of Delta's own classes (`delta_log`). If there are two drivers, the later
one takes the lake, and the earlier one stops at its next commit (`table`). On an object store the later one stops while
the earlier one lives (`lease`). There a class of the pipeline's own creates the entries of the log, because Delta's
class overwrites entries there (`object_store`).

**kill -9 and a loss of power.** All this holds when processes are killed. It does not hold after a loss of power,
because Hadoop's file: does not fsync, neither here nor in Spark's own checkpoint. A loss is then noticed: a batch that
does not follow is refused, and a Parquet file without its footer cannot be read. But the data must come from a backup.
"""

from pipeline.lake.columns import SCHEMA
from pipeline.lake.commits import DataFile
from pipeline.lake.positions import LakeError, LakeTakenError
from pipeline.lake.table import Lake, read

__all__ = ["SCHEMA", "DataFile", "Lake", "LakeError", "LakeTakenError", "read"]
