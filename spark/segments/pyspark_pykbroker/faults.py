"""Errors of options and of data directories: one class for each action that an operator can take.

Every message names the file or the option, describes the error, and ends with what to do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


class SegmentsError(Exception):
    """The read is impossible, or not complete."""


class WrongOption(SegmentsError):
    """An option is unknown, is missing, or contradicts another one."""


class NotADataDirectory(SegmentsError):
    """A folder is not one of a broker's `log.dirs`, or belongs to another cluster than the others."""


class UnknownFormat(SegmentsError):
    """A file has a version that this reader does not know."""


class DamagedSegment(SegmentsError):
    """Bytes below the high watermark are not those that a broker wrote."""


class RecordsLost(SegmentsError):
    """Requested records are gone: by retention, with a deleted topic, or their offsets are not in the log."""


class NotYet(SegmentsError):
    """The broker has not yet written the checkpoint with the offset up to which the records are safe."""


@contextmanager
def message_first() -> Iterator[None]:
    """Let Spark show the message of an error first, in a Python process of Spark's that ends with the error.

    Spark shows Python's text of an exception, where the message comes after the traceback. Spark's workers leave the
    traceback out if an environment variable asks for it. In other places Python prints the cause before the traceback,
    and a cause that was never raised has no traceback of its own.
    """
    try:
        yield
    except SegmentsError as error:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise error.with_traceback(None) from type(error)(*error.args)
