"""Sends the records of kafka-producer-perf-test.

Responsible for payloads, pace, transactions and times. Not responsible for the command line (producer_perf_test.py) or
for the lines that show the times (send_stats.py).
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from os import path
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from pykbroker.tools.cluster.client_failure import flush
from pykbroker.tools.kafka.perf_report import ClientLoad, print_metrics
from pykbroker.tools.kafka.send_stats import SendStats
from pykbroker.tools.kafka.tool_clients import bootstrap_of, made, settings_of, told_as_value_error
from pykbroker.tools.kafka.topic_filter import compiled

if TYPE_CHECKING:
    from kafka import KafkaProducer

#: Unanswered records have at most this many bytes, as with Java's buffer.memory.
_MOST_BYTES: Final = 32 << 20
_MOST_RECORDS: Final = 20_000
#: The number of different random payloads; they repeat in turn.
_DIFFERENT: Final = 1000
_LETTERS: Final = bytes(ord("A") + number % 26 for number in range(256))


@dataclass(slots=True, frozen=True)
class SendPlan:
    """A run: its topic, its records and its pace."""

    topic: str
    records: int
    #: records per second; below 0 for no limit
    rate: float
    #: number of records before the steady state; 0 if the run has none
    warmup: int
    interval_ms: int
    #: duration of a transaction, or None if the run has none
    transaction_ms: int | None
    shows_metrics: bool


@dataclass(slots=True, frozen=True)
class Payloads:
    """A function from the number of a record to its payload, and the size of the largest payload."""

    of: Callable[[int], bytes]
    most_bytes: int


def payloads_of(record_bytes: int | None, file: str | None, delimiter: str, seed: int) -> Payloads:
    """Return the payloads. Without a size and a file, the payload is the number of the record as text. Raises
    ValueError and OSError for the file."""
    chance = Random(seed)  # noqa: S311  # contents of a load
    if file is not None:
        listed = read_payloads(file, delimiter)
        return Payloads(lambda _: chance.choice(listed), max(map(len, listed), default=0)) if listed else _NONE
    if record_bytes is None:
        return Payloads(lambda number: b"%d" % number, 20)
    most = max(1, min(_DIFFERENT, _MOST_BYTES // record_bytes))
    different = [chance.randbytes(record_bytes).translate(_LETTERS) for _ in range(most)]
    return Payloads(lambda number: different[number % len(different)], record_bytes)


def _no_payload(_: int) -> bytes:
    raise ValueError("No payload file, record size or payload-monotonic option provided.")


_NONE: Final = Payloads(_no_payload, 0)


def read_payloads(file: str, delimiter: str) -> list[bytes]:
    """Return the payloads in a file. Raises ValueError."""
    print(f"Reading payloads from: {path.abspath(file)}")
    if not path.exists(file) or not path.getsize(file):
        raise ValueError("File does not exist or empty file provided.")
    # The default of the option is "\n" as two characters.
    written = "\n" if delimiter == "\\n" else delimiter
    pattern = compiled(written, re.ASCII)
    text = Path(file).read_bytes().decode(errors="replace")
    listed = [part.encode() for part in parts_of(text, pattern)]
    print(f"Number of records read: {len(listed)}")
    return listed


def parts_of(text: str, delimiter: re.Pattern[str]) -> Iterator[str]:
    """Yield the parts between delimiters, without a first or last part that is empty. Java's Scanner does the same."""
    begin = 0
    for found in delimiter.finditer(text):
        if found.end() == found.start() and found.start() in (0, len(text)):
            continue
        if found.start() or found.end() == found.start():
            yield text[begin : found.start()]
        begin = found.end()
    if begin < len(text):
        yield text[begin:]


def sent(plan: SendPlan, payloads: Payloads, properties: dict[str, str]) -> int:
    """Send all records and print the times. Returns the exit status. Raises ValueError and the errors of properties."""
    producer = _producer(properties)
    try:
        with told_as_value_error():
            _send_all(plan, payloads, producer)
    finally:
        producer.close()
    return 0


def _send_all(plan: SendPlan, payloads: Payloads, producer: KafkaProducer) -> None:
    if plan.transaction_ms is not None:
        producer.init_transactions()
    # kafka-python takes 0.1 s to find a topic. This must not count as time of the cluster.
    producer.partitions_for(plan.topic)
    _Sending(plan, payloads, producer).run()
    if plan.shows_metrics:
        print_metrics(producer.metrics(raw=True))


def _producer(properties: dict[str, str]) -> KafkaProducer:
    from kafka import KafkaProducer

    bootstrap = bootstrap_of(properties, "producer")
    if properties.get("acks", "all") not in ("all", "-1"):
        properties.setdefault("enable.idempotence", "false")
    if "transactional.id" in properties and properties.get("enable.idempotence", "true").strip().lower() != "true":
        raise ValueError("Cannot set a transactional.id without also enabling idempotence.")
    client: KafkaProducer = made(KafkaProducer, settings_of(properties, KafkaProducer, "producer", bootstrap))
    return client


class _Sending:
    """One run. The client's thread reports acknowledgements."""

    def __init__(self, plan: SendPlan, payloads: Payloads, producer: KafkaProducer) -> None:
        self._plan = plan
        self._payloads = payloads
        self._producer = producer
        # kafka-python does not limit its buffer, so this class does. Payloads of 0 bytes need a limit too.
        self._most = max(100, min(_MOST_RECORDS, _MOST_BYTES // max(1, payloads.most_bytes)))
        self._room = threading.BoundedSemaphore(self._most)
        self._load = ClientLoad()

    def run(self) -> None:
        plan = self._plan
        if plan.warmup:
            print(
                f"Warmup first {plan.warmup} records. Steady state results will print after the complete test summary.",
                flush=True,
            )
        everything = SendStats(plan.records, _now_ms(), plan.interval_ms, _say)
        counted = [everything]
        began = time.monotonic()
        in_transaction, transaction_began_ms = 0, 0
        for number in range(plan.records):
            payload = self._payloads.of(number)
            if plan.transaction_ms is not None and not in_transaction:
                self._producer.begin_transaction()
                transaction_began_ms = _now_ms()
            if plan.warmup and number == plan.warmup:
                steady = SendStats(plan.records - plan.warmup, _now_ms(), plan.interval_ms, _say, is_steady=True)
                everything.silence()
                counted = [everything, steady]
            self._room.acquire()
            sent_ms = _now_ms()
            self._send(payload, sent_ms, counted)
            in_transaction += 1
            if plan.transaction_ms is not None and plan.transaction_ms <= sent_ms - transaction_began_ms:
                self._producer.commit_transaction()
                in_transaction = 0
            self._pause(began, number + 1)
        if plan.transaction_ms is not None and in_transaction:
            self._producer.commit_transaction()
        self._flush()
        ended_ms = _now_ms()
        for stats in counted:
            _say(stats.total_line(ended_ms))
        self._load.warn()

    def _pause(self, began: float, done: int) -> None:
        """Wait as long as the rate requires."""
        rate = self._plan.rate
        if rate == 0 and done < self._plan.records:
            # With a rate of 0, Apache Kafka's tool does not end either.
            threading.Event().wait()
        if rate > 0:
            time.sleep(max(0.0, began + done / rate - time.monotonic()))

    def _flush(self) -> None:
        flush(self._producer)
        for _ in range(self._most):
            self._room.acquire()

    def _send(self, payload: bytes, sent_ms: int, counted: Sequence[SendStats]) -> None:
        def answered(answer: Any) -> None:
            now_ms = _now_ms()
            try:
                if isinstance(answer, Exception):
                    print(" ".join(str(answer).split()), file=sys.stderr)
                    return
                for stats in counted:
                    stats.record(now_ms - sent_ms, len(payload), now_ms)
            finally:
                self._room.release()

        try:
            future = self._producer.send(self._plan.topic, payload)
        except Exception as error:  # noqa: BLE001  # one record that is not sent, as with a failed acknowledgement
            answered(error)
            return
        future.add_both(answered)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _say(line: str) -> None:
    print(line, flush=True)
