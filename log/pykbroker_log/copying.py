"""A second copy of a log's records in another folder: how a replica moves to another directory while it serves.

Responsible for which bytes come next and for writing them, a stretch at a time, in a worker process. Not responsible
for when (storage/moves.py), nor for the last step, in which the copy replaces the log (`PartitionLog.take_over`).

Invariants:
* The copy is an ordinary log, to which batches are appended as a follower appends them: every batch's checksum was
  checked, and the indexes are the copy's own. After a kill in the middle of a stretch it is a log that was not closed.
* When a stretch is done, the copy is durable up to its reported end.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pykbroker_log.disk import Disk, parent_of
from pykbroker_log.log_config import LogConfig, StorageError
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.segments import Piece
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.batch import HEADER_SIZE, BatchHeader

_CHUNK_BYTES = 1 << 20


@dataclass(slots=True, frozen=True)
class Target:
    """The copy. `is_clean` is True if the last stretch was completed. Otherwise only records before `recovery_point`
    count, because a power loss may have removed files after it. `is_gapless` is True if the log that is copied is
    gapless."""

    path: str
    topic: str
    partition: int
    topic_id: bytes
    config: LogConfig
    is_clean: bool
    recovery_point: int
    is_gapless: bool

    def open(self, disk: Disk, now_ms: int) -> PartitionLog:
        """Raises StorageError, InconsistentTopicId."""
        return PartitionLog.open(
            disk,
            self.path,
            topic=self.topic,
            partition=self.partition,
            topic_id=self.topic_id,
            config=self.config,
            now_ms=now_ms,
            clean=self.is_clean,
            recovery_point=self.recovery_point,
            dense=self.is_gapless,
        )


@dataclass(slots=True, frozen=True)
class Copied:
    """The progress of a copy. `last` is the base offset and checksum of its last batch, which identify that batch
    later."""

    end_offset: int
    size_bytes: int
    last: tuple[int, int] | None


# -- the log that is copied -------------------------------------------------------------------------------------------


@contextmanager
def _reading(log: PartitionLog) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(parent_of(log.path), error) from error


def stretch(log: PartitionLog, offset: int, max_bytes: int) -> tuple[int, list[Piece]]:
    """Return about `max_bytes` of the batches from `offset` on, and the offset at which they begin. Raises
    StorageError."""
    with _reading(log):
        return log.files.segments.stretch(offset, max_bytes)


def bytes_from(log: PartitionLog, offset: int) -> int:
    """Return the size in bytes of the batches from `offset` on. Raises StorageError."""
    with _reading(log):
        return log.files.segments.bytes_from(offset)


def is_copy(log: PartitionLog, copied: Copied) -> bool:
    """Return True if the copy is a prefix of this log. Only the copy's last batch is compared: if this log has that
    batch, everything before it is the same too. Raises StorageError."""
    if copied.last is None or copied.end_offset > log.log_end_offset:
        return False
    offset, checksum = copied.last
    with _reading(log):
        found = log.files.segments.locate(offset)
        return found is not None and found[2] == offset and found[0].header_at(found[1]).crc == checksum


# -- the copy ---------------------------------------------------------------------------------------------------------


def copy_stretch(
    disk: Disk, target: Target, start_offset: int | None, pieces: Sequence[Piece], now_ms: int
) -> Generator[int, None, Copied]:
    """Append the batches in `pieces` to the copy; a job for a worker process. With `start_offset`, drop everything in
    the copy and begin there. Raises StorageError, which names the directory that failed, and KafkaError
    CORRUPT_MESSAGE."""
    log = target.open(disk, now_ms)
    if not target.is_clean:
        log.truncate_to(target.recovery_point)
    if start_offset is not None:
        log.truncate_fully_and_start_at(start_offset)
    for piece in pieces:
        yield from _copy(disk, log, piece, now_ms)
    with _reading(log):
        last = log.files.segments.last_batch()
    log.close(clean=True)
    return Copied(log.log_end_offset, log.size_bytes, (last.base_offset, last.crc) if last else None)


def _copy(disk: Disk, log: PartitionLog, piece: Piece, now_ms: int) -> Generator[int, None, None]:
    position = piece.start
    least = 0
    try:
        file = disk.open(piece.path)
    except OSError as error:
        raise _of_source(piece, error) from error
    try:
        while position < piece.end:
            try:
                data = file.pread(max(least, min(_CHUNK_BYTES, piece.end - position)), position)
            except OSError as error:
                raise _of_source(piece, error) from error
            try:
                done = log.append_as_follower(data, now_ms=now_ms).byte_count
            except KafkaError as error:
                raise KafkaError(error.code, f"{piece.path} from position {position} on: {error.message}") from error
            if not done:
                # The chunk does not contain the whole of its first batch.
                least = _length_at(piece, position, data)
                continue
            position, least = position + done, 0
            yield done
    finally:
        file.close()


def _length_at(piece: Piece, position: int, data: bytes) -> int:
    """Return the length of the batch that begins with these bytes."""
    length = BatchHeader.parse(data).size_in_bytes if len(data) >= HEADER_SIZE else HEADER_SIZE
    if not len(data) < length <= piece.size - position:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{piece.path}: no whole batch at position {position}")
    return length


def _of_source(piece: Piece, error: OSError) -> StorageError:
    return StorageError(parent_of(parent_of(piece.path)), error)
