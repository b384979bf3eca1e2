"""SIGTERM and SIGINT let the running batches finish, then end the program. A second signal ends it at once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pipeline.reports import began

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

SIGNALS = (signal.SIGTERM, signal.SIGINT)
LOOK_S = 0.05


class Stop:
    """Notes if a signal asked to stop. Enter it after the Spark session is made, which takes SIGINT for itself."""

    def __init__(self) -> None:
        self.asked = False
        self._before: list[Any] = []

    def __enter__(self) -> Stop:
        self._before = [signal.signal(number, self._ask) for number in SIGNALS]
        return self

    def __exit__(self, *raised: object) -> None:
        for number, handler in zip(SIGNALS, self._before, strict=True):
            signal.signal(number, handler)

    def _ask(self, number: int, frame: Any) -> None:
        self.asked = True
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)


def finish(queries: Iterable[StreamingQuery], look: Callable[[], None]) -> None:
    """Stop each query after its running batch; Spark interrupts a batch that begins after that, and repeats it
    later."""
    running = {query: began(query) for query in queries if query.isActive}
    while running:
        for query, before in list(running.items()):
            if began(query) != before or not query.isActive or not query.status["isTriggerActive"]:
                query.stop()
                del running[query]
        look()
        time.sleep(LOOK_S)
