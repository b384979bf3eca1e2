"""What can be wrong with options and with data directories: one class for each thing that an operator does about it.

Every message names the file or the option, says what was found, and ends with what to do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


class SegmentsError(Exception):
    """Nothing can be read, or not all of it."""


class WrongOption(SegmentsError):
    """An option is unknown, is missing, or contradicts another one."""


class NotADataDirectory(SegmentsError):
    """A folder is not what a broker's `log.dirs` names, or belongs to another cluster than the others."""


class UnknownFormat(SegmentsError):
    """A file has a version that this reader does not know."""


class DamagedSegment(SegmentsError):
    """Bytes below the high watermark are not what a broker wrote."""


class RecordsLost(SegmentsError):
    """Records that were asked for are gone: retention, a deleted topic, offsets that the log does not have."""


class NotYet(SegmentsError):
    """The broker has not written the checkpoint that says how far the records are safe."""


@contextmanager
def message_first() -> Iterator[None]:
    """Let what Spark shows of an error begin with its message, in a Python process of Spark's that ends with it.

    Spark shows Python's text of an exception, where the message comes after the traceback. Its workers leave a
    traceback out if their environment says so. Where they do not look there, a cause comes before the traceback, and
    one that was never raised has none of its own.
    """
    try:
        yield
    except SegmentsError as error:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise error.with_traceback(None) from type(error)(*error.args)
