"""What a read returns instead of bytes: what is ready to be put on a socket.

A slice is `bytes` (copied out with pread), or a region of the file: the connection hands it to sendfile(2), or reads
and encrypts it as its client takes it. A region is only worth its price for large slices, and only allowed below the
segment's stable end: nothing that is stable is ever cut off by a truncation, except by an unclean one, and then the
region comes back short and the connection closes. Code that looks into the bytes (to join, compress, encrypt) asks for
no regions.
"""

from __future__ import annotations

from typing import TypeAlias

from pykbroker_log.disk import File, Region

Slice: TypeAlias = bytes | Region

# Below this size a copy is cheaper than the calls that a region needs of its own.
REGION_BYTES = 64 * 1024


def cut(file: File, start: int, end: int, stable_end: int, regions: bool) -> Slice:
    """The bytes [start, end) of a segment; fewer when they are not there. Raises OSError, ColdRead."""
    size = end - start
    if regions and size >= REGION_BYTES and end <= stable_end:
        region = file.region(start, size)
        if region is not None:
            return region
    return file.pread(size, start)
