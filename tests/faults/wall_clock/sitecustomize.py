"""A wall clock that a test may set: Python imports this file at the start of a process whose path has this folder.

The wall clock of this process alone is ahead of the machine's by as many nanoseconds as the first eight bytes of the
file PYKBROKER_TEST_CLOCK say (signed, little-endian). The steady clock is the machine's: Linux has a time namespace for
that one, and none for the wall clock.
"""

import mmap
import os
import time
from struct import Struct

_OFFSET = Struct("<q")
_wall_clock_ns = time.time_ns

if "PYKBROKER_TEST_CLOCK" in os.environ:
    with open(os.environ["PYKBROKER_TEST_CLOCK"], "rb") as _file:
        _offset = mmap.mmap(_file.fileno(), _OFFSET.size, access=mmap.ACCESS_READ)

    def _time_ns() -> int:
        ahead: int = _OFFSET.unpack_from(_offset)[0]
        return _wall_clock_ns() + ahead

    def _time() -> float:
        return _time_ns() / 1e9

    time.time_ns = _time_ns
    time.time = _time
