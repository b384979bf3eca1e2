"""Clients that repeat an action in a thread of their own, while a test does something else."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager


class InBackground(ABC):
    """`with client.going_on(): ...`; `_run` goes on until `_stop` is set."""

    def __init__(self, patience_s: float) -> None:
        """`patience_s`: how long the end of `_run` is waited for."""
        self._patience_s = patience_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join(self._patience_s)

    @abstractmethod
    def _run(self) -> None: ...
