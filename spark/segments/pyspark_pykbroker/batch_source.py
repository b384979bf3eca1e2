"""The data source that Spark finds by its name: `spark.read.format("pyspark_pykbroker")`.

Responsible for the calls that Spark makes. Not responsible for reading.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from pyspark_pykbroker.faults import message_first
from pyspark_pykbroker.pieces import Piece
from pyspark_pykbroker.row_schema import all_columns, columns_of
from pyspark_pykbroker.segment_stream import SegmentStreamReader
from pyspark_pykbroker.source_options import SourceOptions
from pyspark_pykbroker.worker_imports import keep_one_importer_of_each_archive

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)


class SegmentSource(DataSource):
    """`options`: source_options.py."""

    @classmethod
    def name(cls) -> str:
        return "pyspark_pykbroker"

    def schema(self) -> StructType:
        # Spark does not pass if it is for a batch or a stream. A stream accepts the options of a batch, and more.
        with message_first():
            return all_columns(SourceOptions.parse(self.options, streaming=True).include_headers)

    def reader(self, schema: StructType) -> SegmentReader:
        with message_first():
            options = SourceOptions.parse(self.options)
        tell_without_effect(options)
        return SegmentReader(options, columns_of(schema, options.include_headers))

    def streamReader(self, schema: StructType) -> SegmentStreamReader:
        with message_first():
            options = SourceOptions.parse(self.options, streaming=True)
        tell_without_effect(options)
        return SegmentStreamReader(options, columns_of(schema, options.include_headers))


def tell_without_effect(options: SourceOptions) -> None:
    """Log one line about the options that have no effect here."""
    if options.without_effect:
        logger.warning(
            "pyspark_pykbroker: these options have no effect, because no broker is asked: %s",
            ", ".join(options.without_effect),
        )


class SegmentReader(DataSourceReader):
    """Made once on the driver and sent to the executors."""

    def __init__(self, options: SourceOptions, names: list[str]) -> None:
        self._options = options
        self._names = names

    def partitions(self) -> list[Piece]:
        from pyspark_pykbroker.ranges import plan
        from pyspark_pykbroker.splitting import split

        with message_first():
            return split(plan(self._options), self._options)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        from pyspark_pykbroker.piece_reader import read_piece

        keep_one_importer_of_each_archive()
        # Spark passes None if there is no piece.
        if partition is not None:
            with message_first():
                yield from read_piece(_piece(partition), self._names, self._options)


def _piece(partition: InputPartition) -> Piece:
    assert isinstance(partition, Piece), partition
    return partition
