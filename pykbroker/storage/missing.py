"""Logs that end before the offsets in their directory's checkpoints, or are gone: one line for each, or one for many.

Responsible for the lines. A loss of power may shorten all logs of a node, so their number is bounded. Not responsible
for finding the loss (pykbroker_log/log_dirs.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykbroker.runtime import Runtime

logger = logging.getLogger(__name__)

#: Logs with a line of their own. The others share a line from time to time.
MOST_LINES = 20
_TOGETHER_SECONDS = 5.0
_MOST_NAMES = 10


class MissingRecords:
    """The lines of one node about missing records."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._told = 0
        self._waiting: list[str] = []

    def tell(self, partition: str, missing: range) -> None:
        """Report that the log ends at the first of these offsets."""
        self._tell(
            f"Partition {partition}: the records from offset {missing.start} to {missing.stop - 1} are missing: they "
            f"had been committed or flushed, and the log ends at offset {missing.start}",
            f"{partition} from {missing.start} to {missing.stop - 1}",
        )

    def tell_folder(self, partition: str, end: int) -> None:
        """Report that the log had this end offset, and that its folder is not there."""
        self._tell(
            f"Partition {partition}: its folder is missing, which had records up to offset {end - 1}; the log begins "
            "empty, as with Apache Kafka. If the folder still exists, stop the node and bring it back",
            f"{partition} from 0 to {end - 1}",
        )

    def _tell(self, line: str, short: str) -> None:
        self._told += 1
        if self._told <= MOST_LINES:
            logger.warning("%s", line)
            return
        if not self._waiting:
            self._runtime.loop.call_later(_TOGETHER_SECONDS, self._tell_together)
        self._waiting.append(short)

    def _tell_together(self) -> None:
        waiting, self._waiting = self._waiting, []
        logger.warning(
            "%d more logs miss records that had been committed or flushed: %s%s",
            len(waiting),
            ", ".join(waiting[:_MOST_NAMES]),
            ", ..." if len(waiting) > _MOST_NAMES else "",
        )
