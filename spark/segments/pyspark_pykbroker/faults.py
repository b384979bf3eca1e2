"""What can be wrong with options and with data directories: one class for each thing that an operator does about it.

Every message names the file or the option, says what was found, and ends with what to do.
"""

from __future__ import annotations


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
