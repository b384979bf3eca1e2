"""Records to the topic of metrics, from a thread of their own, so that brokers that are away never delay a job."""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Mapping
from typing import Any

from pipeline import secured
from pipeline.broker import TIMEOUT_MS
from pipeline.errors import PipelineError

# The most records that wait for the brokers; beyond that the newest are not sent.
WAITING = 1000
CLOSE_S = 5


class Metrics:
    """Never raises. It prints once that records were not sent, and again after some have been sent."""

    def __init__(self, kafka: Mapping[str, str], topic: str) -> None:
        self._kafka = kafka
        self._topic = topic
        self._waiting: queue.Queue[tuple[str, Mapping[str, object]] | None] = queue.Queue(WAITING)
        self._said = False
        self._thread = threading.Thread(target=self._send_all, name="metrics", daemon=True)
        self._thread.start()

    def send(self, key: str, value: Mapping[str, object]) -> None:
        try:
            self._waiting.put_nowait((key, value))
        except queue.Full:
            self._failed("too many are waiting")

    def close(self) -> None:
        """Wait at most five seconds for records that are not sent yet."""
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(CLOSE_S)

    def _send_all(self) -> None:
        from kafka import KafkaProducer
        from kafka.errors import KafkaError

        producer: Any = None
        while (item := self._waiting.get()) is not None:
            try:
                if producer is None:
                    producer = KafkaProducer(
                        **secured.kafka_python(self._kafka), bootstrap_timeout_ms=TIMEOUT_MS, max_block_ms=TIMEOUT_MS
                    )
                value = json.dumps(item[1]).encode()
                producer.send(self._topic, key=item[0].encode(), value=value).get(TIMEOUT_MS / 1000)
                self._said = False
            except (KafkaError, OSError, PipelineError) as error:
                self._failed(str(error))
        if producer is not None:
            producer.close(CLOSE_S)

    def _failed(self, why: str) -> None:
        if not self._said:
            self._said = True
            print(f"metrics are not sent to {self._topic}; the jobs go on: {why}", file=sys.stderr, flush=True)
