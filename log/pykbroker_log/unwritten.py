"""What logs have written is sent to the device before the kernel has too much of it: then appends do not wait.

A kernel lets dirty pages pile up for half a minute or a tenth of the memory, and makes the next writer wait while
it catches up. Responsible for which stretches of a log are due. Not responsible for when one looks, or on which thread
the device is asked (storage/upkeep.py in the node), nor for durability: nothing here is a promise (flush_state.py).
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
    """What was appended since the last time, newest segment first; of the active one no less than `least_bytes`."""
    found: list[Stretch] = []
    for segment in reversed(segments):
        taken = segment.take_unwritten(least_bytes)
        if taken is not None:
            found.append(Stretch(segment.file, *taken))
        elif segment is not segments[-1]:
            # What lies before it was taken when it was the newest.
            break
        least_bytes = 1
    return found


def write_back(stretches: Sequence[Stretch]) -> None:
    """Ask the device; may wait for it."""
    for file, position, size in stretches:
        try:
            file.write_back(position, size)
        except (FileClosed, FileNotFoundError):
            # Retired, replaced or moved meanwhile.
            continue
