"""Write generated records to Kafka with exact timestamps and partitions, idempotent, at a rate or at full speed.

If a broker is away, the sender waits for it without a limit; it loses no record and writes none twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from example.records import Record
from example.topics import Reached, settings

#: librdkafka's largest timeout, so that nothing times out.
_FOR_EVER_MS = 2**31 - 1
_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Delivered:
    """The place of a record, and when its acknowledgement arrived (wall clock, milliseconds)."""

    record: Record
    topic: str
    offset: int
    at_ms: int


class Sender:
    """Sends records. `delivered` grows while `send` runs, and another thread may read it.

    `rate`: records a second; 0 is as fast as possible. It may be changed while `send` runs.
    """

    def __init__(self, kafka: Reached, *, rate: float = 0, topics: Mapping[str, str] | None = None) -> None:
        """`topics`: the names of topics on this cluster, if they differ."""
        self.rate = rate
        self.delivered: list[Delivered] = []
        self._topics = dict(topics or {})
        self._failure: KafkaError | None = None
        self._producer = Producer(
            {
                **settings(kafka),
                "enable.idempotence": True,
                "acks": "all",
                "message.timeout.ms": _FOR_EVER_MS,
                "linger.ms": 5,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 1,
            }
        )

    def send(self, records: Iterable[Record]) -> None:
        """Return when all records are acknowledged. Raises KafkaException if the broker finally refuses a record."""
        due = time.monotonic()
        for record in records:
            topic = self._topics.get(record.topic, record.topic)
            while len(self._producer) >= _AT_ONCE:
                self._producer.poll(0.05)
            self._producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=record.partition,
                timestamp=record.arrival_ms,
                headers=list(record.headers),
                on_delivery=self._report(record, topic),
            )
            self._check()
            due = self._wait(due)
        while self._producer.flush(1.0):
            self._check()
        self._check()

    def _wait(self, due: float) -> float:
        """Wait until the next record is due, and return that time."""
        self._producer.poll(0)
        while (rate := self.rate) and (left := due + 1 / rate - time.monotonic()) > 0:
            self._producer.poll(min(left, 0.1))  # returns with every acknowledgement
        # The rate is not raised afterwards for records that could not be sent while the broker was away.
        return max(due + 1 / rate, time.monotonic() - 0.1) if rate else time.monotonic()

    def _report(self, record: Record, topic: str) -> Callable[[KafkaError | None, Message], Any]:
        def report(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is not None or offset is None:
                self._failure = error
            else:
                self.delivered.append(Delivered(record, topic, offset, time.time_ns() // 1_000_000))

        return report

    def _check(self) -> None:
        if self._failure is not None:
            raise KafkaException(self._failure)
