"""Standard output that can no longer be written: its reader has closed it, or the disk is full.

Responsible for the difference between this failure and other errors of the system, which a command may handle itself.
Responsible also for the end of the process, at which the interpreter must not try to write once more. Not responsible
for the exit status and the line about the failure (entry/failures.py, tools/kafka/__main__.py).
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO


class LostOutput(Exception):
    """Standard output cannot be written. This is no OSError, so a command that reports an error of its files or of the
    network does not catch it. `reason` is the OSError."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(f"standard output cannot be written: {reason.strerror}")
        self.reason = reason

    @property
    def is_unwanted(self) -> bool:
        """Return True if the reader of a pipe has closed it, which is no failure that a user wants to read about."""
        return isinstance(self.reason, BrokenPipeError)

    def of_system(self) -> OSError:
        """Return an OSError whose `strerror` is the sentence; for a closed pipe it is a BrokenPipeError."""
        return OSError(self.reason.errno, str(self))


@contextmanager
def watched_output() -> Iterator[None]:
    """Within the block, a write to `sys.stdout` that fails raises LostOutput. The block ends with an OSError in its
    place (see `LostOutput.of_system`), and the output that is left is dropped.
    """
    before = sys.stdout
    sys.stdout = _watched(before)
    try:
        try:
            yield
        finally:
            # A shell can start a program without a standard output, and Python then has none.
            if sys.stdout is not None:
                sys.stdout.flush()
    except LostOutput as error:
        drop_output()
        raise error.of_system() from None
    finally:
        sys.stdout = before


def output_bytes() -> BinaryIO:
    """Return standard output for bytes. Raises LostOutput if the program was started without one."""
    if sys.stdout is None:
        raise LostOutput(OSError(errno.EBADF, os.strerror(errno.EBADF)))
    return sys.stdout.buffer


def _watched(stream: Any) -> Any:
    """Return a stream that writes to the same file. A stream in memory, or None, is returned itself."""
    try:
        descriptor = stream.fileno() if isinstance(stream, io.TextIOWrapper) else None
    except OSError:
        descriptor = None
    if descriptor is None:
        return stream
    stream.flush()
    raw: Any = _WatchedFile(descriptor, "wb", closefd=False)
    return io.TextIOWrapper(
        # There is no buffer where the interpreter has none (python -u).
        raw if stream.write_through else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        newline="\n",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _WatchedFile(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise LostOutput(error) from None


def drop_output() -> None:
    """Send standard output to the null device, with everything that its buffer still holds. Without this, Python's
    flush at exit would fail again."""
    if sys.stdout is None:
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
