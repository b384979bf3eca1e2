"""A data directory written by pykbroker_log, and what the data source reads in it without a Spark session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from pykbroker_log import names
from pykbroker_log.checkpoints import encode_offsets, encode_partition_metadata, encode_properties
from pykbroker_log.log_config import LogConfig
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.partition_log import PartitionLog
from pyspark_pykbroker.piece_reader import read_piece
from pyspark_pykbroker.pieces import Piece
from pyspark_pykbroker.ranges import plan
from pyspark_pykbroker.row_schema import all_columns
from pyspark_pykbroker.source_options import SourceOptions
from pyspark_pykbroker.splitting import split
from testkit.logs.helpers import NOW, TOPIC_ID, open_log

ALL = [field.name for field in all_columns(True)]
SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100)


class DataDirectory:
    def __init__(self, path: Path, cluster_id: str = "cluster", version: int = 1) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        properties = {"version": str(version), "cluster.id": cluster_id, "node.id": "1"}
        (path / names.META_PROPERTIES).write_bytes(encode_properties(properties, NOW))
        self.logs: dict[tuple[str, int], PartitionLog] = {}

    def log(
        self, topic: str = "t", partition: int = 0, config: LogConfig = SMALL, topic_id: bytes = TOPIC_ID
    ) -> PartitionLog:
        folder = self.path / f"{topic}-{partition}"
        folder.mkdir()
        made = open_log(OsDisk(), path=str(folder), config=config)
        (folder / names.PARTITION_METADATA).write_bytes(encode_partition_metadata(topic_id))
        self.logs[topic, partition] = made
        return made

    def checkpoint(self) -> None:
        """Write the checkpoints that a broker writes every few seconds, and flush the logs with their indexes."""
        for log in self.logs.values():
            log.flush()
        marks = {key: log.high_watermark for key, log in self.logs.items()}
        starts = {key: log.log_start_offset for key, log in self.logs.items() if log.log_start_offset}
        (self.path / names.HIGH_WATERMARKS).write_bytes(encode_offsets(marks))
        (self.path / names.LOG_START_OFFSETS).write_bytes(encode_offsets(starts))

    def options(self, **given: object) -> SourceOptions:
        texts = {"path": str(self.path), "includeHeaders": "true"}
        if not {"assign", "subscribePattern"} & given.keys():
            texts["subscribe"] = "t"
        real = {"isolation": "isolation.level"}
        return SourceOptions.parse(texts | {real.get(name, name): str(value) for name, value in given.items()})

    def pieces(self, **given: object) -> list[Piece]:
        options = self.options(**given)
        return split(plan(options), options)

    def rows(self, columns: list[str] = ALL, **given: object) -> list[dict[str, Any]]:
        return read(self.pieces(**given), self.options(**given), columns)

    def offsets(self, **given: object) -> list[int]:
        return [row["offset"] for row in self.rows(["offset"], **given)]


def read(pieces: list[Piece], options: SourceOptions, columns: list[str] = ALL) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for piece in pieces:
        for batch in read_piece(piece, columns, options):
            batch.validate(full=True)
            found += pa.Table.from_batches([batch]).to_pylist()
    return found
