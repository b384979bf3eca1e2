"""The piece that one task reads. It is sent to an executor: it is small, and it has offsets instead of files, because
files change their names and positions in the meantime."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from pyspark_pykbroker.directories import Replica


@dataclass(frozen=True)
class Piece(InputPartition):
    """The offsets [start, end) of a partition, in the folder of one replica."""

    topic: str
    partition: int
    folder: str
    topic_id: str
    start: int
    end: int

    @classmethod
    def of(cls, replica: Replica, start: int, end: int) -> Piece:
        return cls(replica.topic, replica.partition, replica.folder, replica.topic_id, start, end)
