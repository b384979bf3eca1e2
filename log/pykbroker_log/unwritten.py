"""Sends appended bytes to the device before the kernel has too many of them, so that appends do not wait.

A kernel lets dirty pages pile up for half a minute or a tenth of the memory, and makes the next writer wait while
it catches up. Responsible for which stretches of a log are due. Not responsible for when, and on which thread, the
device is asked (storage/upkeep.py in the node). Not responsible for durability either: nothing here promises it
(flush_state.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pykbroker_log.disk import File, FileClosed
from pykbroker_log.segments import Segments


class Stretch(NamedTuple):
    file: File
    position: int
    size: int


def unwritten(segments: Segments, least_bytes: int) -> list[Stretch]:
    """Return the stretches that were appended since the last call, newest segment first; the active segment's only if
    it has at least `least_bytes`."""
    found: list[Stretch] = []
    for segment in reversed(segments):
        taken = segment.take_unwritten(least_bytes)
        if taken is not None:
            found.append(Stretch(segment.file, *taken))
        elif segment is not segments[-1]:
            # Earlier segments were taken when they were the newest.
            break
        least_bytes = 1
    return found


def write_back(stretches: Sequence[Stretch]) -> None:
    """Start the writes to the device; may wait for it."""
    for file, position, size in stretches:
        try:
            file.write_back(position, size)
        except (FileClosed, FileNotFoundError):
            # The segment was retired, replaced or moved in the meantime.
            continue
