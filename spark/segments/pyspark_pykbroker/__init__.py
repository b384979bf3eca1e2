"""Log segments of pykbroker and of Apache Kafka as a Spark data source; docs/segments.md shows how it is used.

Spark imports every package whose name begins with `pyspark_` and takes its `DefaultSource`: no call registers it.
"""

from __future__ import annotations

from pyspark_pykbroker.batch_source import SegmentSource as DefaultSource
from pyspark_pykbroker.history import history_and_tail

__all__ = ["DefaultSource", "history_and_tail"]
