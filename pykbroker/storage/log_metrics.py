"""Apache Kafka's numbers of every log: size, segments, first and last offset.

Nothing is kept for them: they are computed when a client reads the metrics. A log that is not open yet has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykbroker.storage.log_handle import LogHandle


def log_gauges(handles: Iterable[LogHandle]) -> Iterator[tuple[str, float]]:
    for handle in handles:
        log = handle.log
        if log is not None:
            tags = f"topic={handle.topic},partition={handle.index}"
            yield f"kafka.log:type=Log,name=Size,{tags}", log.size_bytes
            yield f"kafka.log:type=Log,name=NumLogSegments,{tags}", len(log.files.segments)
            yield f"kafka.log:type=Log,name=LogStartOffset,{tags}", log.log_start_offset
            yield f"kafka.log:type=Log,name=LogEndOffset,{tags}", log.log_end_offset
