"""The lines of JSON by which kafka-verifiable-producer and -consumer tell a test what happened, and their end."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from types import FrameType

_printing = threading.Lock()


def print_event(name: str, **fields: object) -> None:
    """One line as Jackson writes it: the time first, no blanks. Threads do not mix their lines."""
    event = {"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}
    line = json.dumps(event, separators=(",", ":"), ensure_ascii=False)
    with _printing:
        print(line, flush=True)


class StopSignals:
    """`with StopSignals() as stopped: while not stopped: ...`: SIGTERM and SIGINT end the loop, not the process."""

    def __init__(self) -> None:
        self.number: int | None = None

    def __bool__(self) -> bool:
        return self.number is not None

    @property
    def status(self) -> int:
        """The exit status: a JVM's after a signal."""
        return 0 if self.number is None else 128 + self.number

    def __enter__(self) -> StopSignals:
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.number = number


def java_class(error: BaseException) -> str:
    """How Java names the class of a client's error, where kafka-python has an error of the protocol for it."""
    name = type(error).__name__
    if not name.endswith("Error"):
        return f"class {name}"
    return f"class org.apache.kafka.common.errors.{name.removesuffix('Error').removeprefix('Kafka')}Exception"


def warn_unknown(keys: list[str], client: str) -> None:
    for key in keys:
        print(f"WARN {key} is no setting of the Python {client} and has no effect", file=sys.stderr)
