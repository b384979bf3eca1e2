"""The slices that a read returns: bytes, or regions of a file that are ready to be sent to a socket.

A slice is `bytes` (copied with pread) or a region of the file. The connection passes a region to sendfile(2), or reads
and encrypts it when its client takes it. A region pays off only for large slices, and is allowed only below the
segment's stable end. Only an unclean truncation cuts off stable bytes; then the region comes back short and the
connection closes. Code that needs the bytes (to join, compress, encrypt) asks for no regions.
"""

from __future__ import annotations

from typing import TypeAlias

from pykbroker_log.disk import File, Region

Slice: TypeAlias = bytes | Region

# Below this size a copy costs less than the extra calls for a region.
REGION_BYTES = 64 * 1024


def cut(file: File, start: int, end: int, stable_end: int, regions: bool) -> Slice:
    """Return the bytes [start, end) of a segment, or fewer if the file is shorter. Raises OSError, ColdRead."""
    size = end - start
    if regions and size >= REGION_BYTES and end <= stable_end:
        region = file.region(start, size)
        if region is not None:
            return region
    return file.pread(size, start)
