"""The Parquet lake: `date=YYYY-MM-DD/topic=T/*.parquet`, each event once, although its writer may be killed at any
moment.

    lake/_staging/...                     what is being written, and what was when a driver was killed; nobody reads it
    lake/_log/<version>.json              the log: what was committed (`manifest`), in order, never changed
    lake/date=.../topic=.../*.parquet     the files, moved here after their commit

**The guarantee.** Of the batches that Spark completes, and of the one that it repeats after a crash, each event is in
the lake once. `read` sees exactly the committed batches, at any moment. A reader that lists the files (Spark and
others, which skip names that begin with `_` or `.`; with a glob, `date=*/topic=*/*.parquet` and not `**`, which looks
into `_staging` as well) never sees a row twice. It sees a committed batch as soon as its files are moved, file by
file; while a group of small files is compacted it misses the rows of that group for the moment between the removal of
the old files and the move of the new one (after a kill just there: until the driver starts again).

**Two drivers.** The later one takes the lake, the earlier one stops at its next commit (`log`).

**kill -9 and a loss of power.** All this holds when processes die. A loss of power is another matter: Hadoop's file:
does not fsync, neither here nor in Spark's own checkpoint, so a file or an entry of the log may be gone or empty
although later ones are there. That does not pass silently: the log is checked for holes, a batch number that the lake
does not expect is refused, and a Parquet file without its footer cannot be read; but a backup is needed then. On HDFS
blocks are on several machines before a file counts as written.
"""

from pipeline.lake.manifest import DataFile, LakeError, LakeTakenError
from pipeline.lake.table import SCHEMA, Lake, read

__all__ = ["SCHEMA", "DataFile", "Lake", "LakeError", "LakeTakenError", "read"]
