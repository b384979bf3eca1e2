"""Writes lines from the event loop to a file without waiting for the disk, through a bounded queue and a thread.

If the queue has too many lines or bytes, a new line is dropped and counted. If the disk took only a part of a line, a
line end is written before the next line. Not responsible for the content of a line.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from typing import Final

logger = logging.getLogger(__name__)
_BATCH = 1000
#: The most bytes of lines that wait or are being written.
MOST_BYTES: Final = 16 << 20


class LineFile:
    """Appends to the file at `path`. If the file is new, only its owner may read and write it. Raises OSError if it
    cannot be opened."""

    def __init__(self, path: str, most_waiting: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._most_waiting = most_waiting
        self._waiting: deque[bytes] = deque()
        #: the bytes put into the queue, which only the event loop counts, and the bytes of lines that are done, which
        #: only the thread counts
        self._bytes_in = self._bytes_out = 0
        self._is_torn = False
        self._wake = threading.Event()
        self._is_closed = False
        self._has_failed = False
        self.dropped = 0
        self._thread = threading.Thread(target=self._write_all, name="line-file", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Queue a line, which is passed without a line end. Return at once."""
        data = line.encode() + b"\n"
        bytes_waiting = self._bytes_in - self._bytes_out
        if len(self._waiting) >= self._most_waiting or bytes_waiting + len(data) > MOST_BYTES:
            self.dropped += 1
            return
        self._bytes_in += len(data)
        self._waiting.append(data)
        if not self._wake.is_set():
            self._wake.set()

    def close(self) -> None:
        """Write the waiting lines, end the thread, and close the file. Blocks until that is done."""
        self._is_closed = True
        self._wake.set()
        self._thread.join()
        os.close(self._file)

    def _write_all(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            # Read the flag before the queue is emptied, so that lines that were queued before `close` are written.
            is_last = self._is_closed
            while self._waiting:
                count = min(len(self._waiting), _BATCH)
                data = b"".join(self._waiting.popleft() for _ in range(count))
                self._append(data)
                self._bytes_out += len(data)
            if is_last:
                return

    def _append(self, data: bytes) -> None:
        if self._is_torn:
            data = b"\n" + data
        try:
            while data:
                written = os.write(self._file, data)
                self._is_torn = not data[:written].endswith(b"\n")
                data = data[written:]
        except OSError as error:
            self.dropped += data.removeprefix(b"\n").count(b"\n")
            if not self._has_failed:
                self._has_failed = True
                logger.error("Line file: lines are lost, because they cannot be written: %s", error.strerror)
