"""The bounds within which a partition may be read: its log start, its high watermark, its last stable offset.

Responsible for the two ends of one replica. Not responsible for the range that was asked for (ranges.py).

The last stable offset is the first offset of the oldest transaction without a marker below the high watermark. The
newest usable producer snapshot has the open transactions; the batch headers after it have the changes since.
"""

from __future__ import annotations

import logging
import os
from typing import NamedTuple

from pykbroker_log import names
from pykbroker_log.producers import CorruptProducerSnapshot, ProducerStates
from pyspark_pykbroker.directories import Replica, high_watermark_of
from pyspark_pykbroker.faults import DamagedSegment
from pyspark_pykbroker.log_view import LogView, list_segments, settled
from pyspark_pykbroker.segment_file import ADVICE
from pyspark_pykbroker.source_options import Isolation

logger = logging.getLogger(__name__)


class Bounds(NamedTuple):
    """[start, end) may be read."""

    start: int
    end: int


def bounds_of(replica: Replica, isolation: Isolation) -> Bounds:
    """Raises NotYet, RecordsLost, DamagedSegment."""
    listing = list_segments(replica.folder)
    start = max(replica.log_start, listing[0][0] if listing else 0)
    if replica.high_watermark is None and _is_empty(replica.folder):
        return Bounds(start, start)
    end = max(start, high_watermark_of(replica))
    if not listing and start < end:
        raise DamagedSegment(
            f"{replica.folder} has no .log file, but offsets up to {end} were safe (high watermark): its files were "
            f"deleted, or not copied. {ADVICE}"
        )
    if isolation is Isolation.READ_COMMITTED:
        end = settled(replica.folder, lambda: last_stable_offset(replica.folder, start, end))
    return Bounds(start, end)


def _is_empty(folder: str) -> bool:
    return not any(segment.size for segment in settled(folder, lambda: LogView(folder)).segments)


def last_stable_offset(folder: str, start: int, high_watermark: int) -> int:
    """Return the last stable offset, which is between `start` and `high_watermark`. Raises the errors of LogView."""
    states = ProducerStates()
    scanned = max(_load_snapshot(folder, states, high_watermark), start)
    if scanned < high_watermark:
        for segment, position, header in LogView(folder, scanned, high_watermark).batches(scanned, high_watermark):
            if header.producer_id >= 0 and (header.is_transactional or header.is_control):
                segment.check(position, header)
                states.replay(header, segment.batch(position, header))
    first = states.transactions.first_undecided()
    return high_watermark if first < 0 else max(start, min(first, high_watermark))


def _load_snapshot(folder: str, states: ProducerStates, high_watermark: int) -> int:
    """Fill `states` from the newest producer snapshot at or before the high watermark. Returns its offset, or 0."""
    found = [parsed for name in os.listdir(folder) if (parsed := names.parse_segment_file(name)) is not None]
    offsets = [each.base_offset for each in found if each.kind == names.SNAPSHOT and not each.state]
    for offset in sorted((offset for offset in offsets if offset <= high_watermark), reverse=True):
        path = os.path.join(folder, names.segment_file(offset, names.SNAPSHOT))
        try:
            with open(path, "rb") as opened:
                # With the time 0 (the epoch) no producer expires.
                states.load(opened.read(), offset, 0)
            return offset
        except FileNotFoundError:
            continue
        except CorruptProducerSnapshot as error:
            logger.warning("%s: %s: an older snapshot is used, and more of the log is read", path, error)
    return 0
