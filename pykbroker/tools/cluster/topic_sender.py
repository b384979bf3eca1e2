"""Sends records to a topic with kafka-python's producer.

Responsible for the limit of unanswered records, for the outcome of each record, and for sending records that
kafka-python's `send` refuses although a topic may have them. Not responsible for the source of the records.

Invariant: when `close` has returned, each record that was passed to `send` is counted once, as sent or as failed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pykbroker.tools.cluster.client_failure import failure_of, flush, told_failures
from pykbroker.tools.cluster.failure import AskFailed, exception_name
from pykbroker.tools.cluster.json_records import NewRecord
from pykbroker_wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafka import KafkaProducer

#: The most bytes and records that may be unanswered, because kafka-python's own buffer has no limit.
_MOST_BYTES: Final = 32 << 20
_MOST_RECORDS: Final = 20_000
#: The approximate size of a record without its key and value.
_RECORD_BYTES: Final = 200


class _Null:
    """Stands for a null value in the call of kafka-python's `send`, which refuses a record whose key and value are
    None. The serializer runs after that check, and replaces this object by None."""


_NULL: Final = _Null()
_NULL_HEADER: Final = "a header without a value cannot be sent with kafka-python"


class _NullSerializer:
    """A serializer in kafka-python's sense."""

    def serialize(self, topic: str, headers: object, data: object) -> object:
        return None if data is _NULL else data

    def close(self) -> None:
        """There is nothing to close."""


@dataclass(slots=True)
class Sent:
    """The number of records so far, by outcome."""

    records: int = 0
    bytes: int = 0
    failed: int = 0


class TopicSender:
    """Call `sender.send(record)` for each record, and `close()` at the end. `lost(number, record, failure)` is called
    for each record that failed, on kafka-python's thread. Raises AskFailed."""

    def __init__(
        self, topic: str, settings: Mapping[str, Any], lost: Callable[[int, NewRecord, AskFailed], None]
    ) -> None:
        """`settings`: kafka-python's settings, with bootstrap_servers."""
        from kafka import KafkaProducer
        from kafka.serializer import Serializer

        # The serializer inherits from kafka-python's class. Otherwise kafka-python would wrap it.
        serializer = type("NullSerializer", (_NullSerializer, Serializer), {})()
        self._topic, self._lost = topic, lost
        self.sent = Sent()
        self._given = 0
        self._waiting_records = self._waiting_bytes = 0
        self._changed = threading.Condition()
        defaults = {
            "client_id": "pykbroker-produce",
            "linger_ms": 5,
            "max_block_ms": 15_000,
            "value_serializer": serializer,
        }
        with told_failures():
            self._producer: KafkaProducer = KafkaProducer(**{**defaults, **settings})
        try:
            self._find_topic()
        except BaseException:
            self._producer.close(timeout=0)
            raise

    def _find_topic(self) -> None:
        """Find the topic before the first record is read from the input; the broker may create it."""
        from kafka.errors import KafkaTimeoutError

        try:
            with told_failures(but=KafkaTimeoutError):
                self._producer.partitions_for(self._topic)
        except KafkaTimeoutError:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise AskFailed(
                f"topic {self._topic} does not exist, and the cluster did not create it", exception_name(code), code
            ) from None

    def send(self, record: NewRecord) -> None:
        """Send a record; waits while too many are unanswered."""
        self._given += 1
        number, size = self._given, _size(record)
        with self._changed:
            self._changed.wait_for(self._has_room)
            self._waiting_records += 1
            self._waiting_bytes += size
        from kafka.errors import KafkaError as PythonClientError

        try:
            if any(value is None for _, value in record.headers):
                raise ValueError(_NULL_HEADER)
            future = self._producer.send(
                self._topic,
                key=record.key,
                value=_NULL if record.value is None else record.value,
                headers=record.headers,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
            )
        except (PythonClientError, AssertionError, ValueError) as error:
            self._ended(number, record, size, self._missing_partition(record) or failure_of(error))
            return
        except BaseException:
            # `close` must not wait for the outcome of this record.
            with self._changed:
                self._waiting_records -= 1
            raise
        future.add_both(self._answered, number, record, size)

    def _missing_partition(self, record: NewRecord) -> AskFailed | None:
        """Return the failure of a record for a partition that the topic does not have."""
        there = self._producer.partitions_for(self._topic)
        if record.partition is None or record.partition in there:
            return None
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        said = f"topic {self._topic} has no partition {record.partition}: it has {len(there)}, from 0 on"
        return AskFailed(said, exception_name(code), code)

    def close(self) -> None:
        """Wait for the outcome of every record, then close the producer."""
        with told_failures():
            flush(self._producer)
        with self._changed:
            self._changed.wait_for(lambda: self._waiting_records == 0)
        with told_failures():
            self._producer.close()

    def _has_room(self) -> bool:
        return not self._waiting_records or (
            self._waiting_records < _MOST_RECORDS and self._waiting_bytes < _MOST_BYTES
        )

    def _answered(self, number: int, record: NewRecord, size: int, answer: object) -> None:
        self._ended(number, record, size, failure_of(answer) if isinstance(answer, Exception) else None)

    def _ended(self, number: int, record: NewRecord, size: int, failure: AskFailed | None) -> None:
        if failure is not None:
            self._lost(number, record, failure)
        with self._changed:
            self._waiting_records -= 1
            self._waiting_bytes -= size
            if failure is None:
                self.sent.records += 1
                self.sent.bytes += size - _RECORD_BYTES
            else:
                self.sent.failed += 1
            self._changed.notify_all()


def _size(record: NewRecord) -> int:
    return _RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
