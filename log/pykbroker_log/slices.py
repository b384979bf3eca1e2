"""What a read returns instead of bytes: buffers that are ready to be written to a socket.

A slice is `bytes` (copied out with pread) or a read-only `memoryview` of a map of the file. A map is only worth
its price for large slices, and only allowed below the segment's stable end: nothing that is stable is ever cut off
by a truncation, except by an unclean one, and then a transport that reads the map gets EFAULT and closes that
connection. Python code must not look into a mapped slice (SIGBUS); callers that join, compress or encrypt ask for
`mapped=False`.
"""

from __future__ import annotations

from typing import TypeAlias

from pykbroker_log.disk import File

Slice: TypeAlias = bytes | memoryview

# Map and unmap cost about 4 microseconds and a page fault per 64 KiB; below this size pread is cheaper.
MAP_THRESHOLD_BYTES = 64 * 1024


def cut(file: File, start: int, end: int, stable_end: int, mapped: bool) -> Slice:
    """The bytes [start, end) of a segment. Raises OSError when they are not there."""
    size = end - start
    if mapped and size >= MAP_THRESHOLD_BYTES and end <= stable_end:
        # The map reaches as far as it may, so that the next reads find it long enough.
        view = file.map(stable_end)
        if view is not None:
            return view[start:end]
    return file.pread(size, start)
