"""One process of a load: `python -m pykbroker.tools.bench.load_process`. It reads a plan from its standard input.

It prints JSON lines: `{"ready": true}` when it is connected, after which it waits for a line; `{"done": 500}` from time
to time; `{"told": ...}` at the end, or `{"failed": "..."}`.

Responsible for the work and its times. Not responsible for the statistics (`load_result.py`).
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import asdict
from random import Random
from typing import TYPE_CHECKING, Any, Final

from pykbroker.tools.bench.load_plan import LoadPlan, LoadTold, contents, due_ns, due_of, marked
from pykbroker.tools.cluster.client_failure import flush
from pykbroker.tools.cluster.client_properties import python_settings

if TYPE_CHECKING:
    from kafka import KafkaConsumer, KafkaProducer

_TELL_SECONDS: Final = 0.25
_POLL_MS: Final = 200
_MOST_BYTES: Final = 32 << 20
_MOST_RECORDS: Final = 20_000


def main() -> int:
    """Execute the plan in the first line of standard input; returns the exit status."""
    plan = LoadPlan(**json.loads(sys.stdin.readline()))
    work: dict[str, type[_Producing | _Consuming]] = {
        "produce": _Producing, "send": _Producing, "consume": _Consuming, "receive": _Receiving,
    }  # fmt: skip
    try:
        running = work[plan.work](plan)
        _say({"ready": True})
        if not sys.stdin.readline():
            return 1
        cpu_begun = time.process_time()
        told = running.run()
        told.cpu_seconds = time.process_time() - cpu_begun
        _say({"told": asdict(told)})
        running.close()
    except Exception as error:  # noqa: BLE001  # said by the process that has started this one
        _say({"failed": " ".join(str(error).split()) or type(error).__name__})
        return 1
    return 0


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


class _Progress:
    """Reports how many records are done, not too often."""

    def __init__(self) -> None:
        self._next = 0.0

    def tell(self, done: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _TELL_SECONDS
            _say({"done": done})


class _Producing:
    """Sends records, without a limit or at a rate; with `send`, each record contains the time when it was due."""

    def __init__(self, plan: LoadPlan) -> None:
        from kafka import KafkaProducer

        self._plan = plan
        settings, _ = python_settings(plan.properties, KafkaProducer.DEFAULT_CONFIG)
        settings["bootstrap_servers"] = plan.bootstrap.split(",")
        self._producer: KafkaProducer = KafkaProducer(**settings)
        self._producer.partitions_for(plan.topic)
        self._contents = contents(plan.record_bytes, Random(plan.run))  # noqa: S311  # contents of a load
        most = max(100, min(_MOST_RECORDS, _MOST_BYTES // max(1, plan.record_bytes)))
        self._most = most
        self._room = threading.BoundedSemaphore(most)
        self.told = LoadTold()

    def run(self) -> LoadTold:
        plan, told, progress = self._plan, self.told, _Progress()
        told.begun_ns = time.monotonic_ns()
        for number in range(plan.records):
            # With a rate, a latency begins when the record is due, so it includes the wait for room.
            due = due_ns(number, told.begun_ns, plan.rate) if plan.rate else 0
            self._room.acquire()
            now = time.monotonic_ns()
            if due > now:
                time.sleep((due - now) / 1e9)
            since = due or now
            value = self._contents[number % len(self._contents)]
            if plan.work == "send":
                value = marked(value, plan.run, since)
            try:
                future = self._producer.send(plan.topic, value)
            except Exception as error:  # noqa: BLE001  # counted, and the first is said
                self._ended(since, error)
                continue
            future.add_both(self._answered, since)
            progress.tell(told.records)
        flush(self._producer)
        for _ in range(self._most):
            self._room.acquire()
        told.ended_ns = time.monotonic_ns()
        return told

    def close(self) -> None:
        self._producer.close()

    def _answered(self, since: int, answer: object) -> None:
        self._ended(since, answer if isinstance(answer, Exception) else None)

    def _ended(self, since: int, error: Exception | None) -> None:
        told = self.told
        if error is None:
            told.records += 1
            told.bytes += self._plan.record_bytes
            if self._plan.work == "produce":
                told.latencies_ms.append((time.monotonic_ns() - since) / 1e6)
        else:
            told.failed += 1
            told.failure = told.failure or " ".join(str(error).split())
        self._room.release()


class _Consuming:
    """Reads records from the beginning of its partitions."""

    def __init__(self, plan: LoadPlan) -> None:
        from kafka import TopicPartition

        self._plan = plan
        self._consumer = _consumer(plan)
        places = [TopicPartition(plan.topic, number) for number in plan.partitions]
        self._consumer.assign(places)
        self._find(places)

    def _find(self, places: list[Any]) -> None:
        self._consumer.seek_to_beginning(*places)
        for place in places:
            self._consumer.position(place)

    def run(self) -> LoadTold:
        plan, told, progress = self._plan, LoadTold(), _Progress()
        last = told.begun_ns = told.ended_ns = time.monotonic_ns()
        while told.records < plan.records and time.monotonic_ns() - last < plan.patience_ms * 1_000_000:
            found = self._consumer.poll(timeout_ms=_POLL_MS, max_records=min(5000, plan.records - told.records))
            if not found:
                continue
            now = time.monotonic_ns()
            before = told.records
            for records in found.values():
                self._take(told, records, now)
            if told.records > before:
                last = told.ended_ns = now
            progress.tell(told.records)
        return told

    def _take(self, told: LoadTold, records: list[Any], now: int) -> None:
        told.records += len(records)
        told.bytes += sum(len(record.key or b"") + len(record.value or b"") for record in records)

    def close(self) -> None:
        self._consumer.close()


class _Receiving(_Consuming):
    """Reads the records of one run that come after the present end of its partitions, and their latencies."""

    def _find(self, places: list[Any]) -> None:
        self._consumer.seek_to_end(*places)
        for place in places:
            self._consumer.position(place)

    def _take(self, told: LoadTold, records: list[Any], now: int) -> None:
        for record in records:
            due = due_of(record.value, self._plan.run)
            if due is not None:
                told.records += 1
                told.bytes += len(record.value)
                told.latencies_ms.append((now - due) / 1e6)


def _consumer(plan: LoadPlan) -> KafkaConsumer:
    from kafka import KafkaConsumer

    settings, _ = python_settings(plan.properties, KafkaConsumer.DEFAULT_CONFIG)
    settings |= {"bootstrap_servers": plan.bootstrap.split(","), "group_id": None, "enable_auto_commit": False}
    return KafkaConsumer(**settings)


if __name__ == "__main__":
    sys.exit(main())
