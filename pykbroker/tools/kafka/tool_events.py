"""The lines of JSON with which kafka-verifiable-producer and both verifiable consumers report events to a test."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING

from pykbroker.entry.lost_output import output_bytes

if TYPE_CHECKING:
    from pykbroker.tools.cluster.record_format import ReadRecord

_printing = threading.Lock()


def print_event(name: str, **fields: object) -> None:
    """Print one line as Jackson writes it: the time comes first, and there are no blanks. A lock keeps the lines of
    threads apart. Raises LostOutput if there is no standard output, because nothing may count as reported then."""
    output_bytes()
    event = {"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}
    line = json.dumps(event, separators=(",", ":"), ensure_ascii=False)
    with _printing:
        print(line, flush=True)


def print_record(record: ReadRecord) -> None:
    """Print the event of one record that was read, which --verbose asks for."""
    print_event(
        "record_data",
        key=_text(record.key),
        value=_text(record.value),
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
    )


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def java_class(error: BaseException) -> str:
    """Return the name that Java has for the class of a client's error. For an error that is not of the protocol, return
    Python's name."""
    name = type(error).__name__
    if not name.endswith("Error"):
        return f"class {name}"
    return f"class org.apache.kafka.common.errors.{name.removesuffix('Error').removeprefix('Kafka')}Exception"
