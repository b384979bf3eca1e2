"""Log segments of pykbroker and of Apache Kafka as a Spark data source; docs/segments.md shows how it is used.

Spark imports every installed package whose name begins with `pyspark_` and takes its `DefaultSource`, so no call is
needed to register it. A wheel that came by `--py-files` is not installed, and needs `register(spark)`.
"""

from __future__ import annotations

from pyspark_pykbroker.batch_source import SegmentSource as DefaultSource
from pyspark_pykbroker.history import history_and_tail
from pyspark_pykbroker.registration import register

__all__ = ["DefaultSource", "history_and_tail", "register"]
