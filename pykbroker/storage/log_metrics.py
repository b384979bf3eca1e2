"""Apache Kafka's numbers of every log: size, segments, first and last offset.

Nothing is kept for them: they are computed when somebody reads the metrics. A log that is not open yet has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykbroker.replica.partition import Partition


def log_gauges(partitions: Iterable[Partition]) -> Iterator[tuple[str, float]]:
    for partition in partitions:
        log = partition.log_if_open
        if log is not None:
            tags = f"topic={partition.topic},partition={partition.index}"
            yield f"kafka.log:type=Log,name=Size,{tags}", log.size_bytes
            yield f"kafka.log:type=Log,name=NumLogSegments,{tags}", len(log.files.segments)
            yield f"kafka.log:type=Log,name=LogStartOffset,{tags}", log.log_start_offset
            yield f"kafka.log:type=Log,name=LogEndOffset,{tags}", log.log_end_offset
