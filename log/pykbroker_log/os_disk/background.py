"""Fsyncs without a waiting thread: the kernel does them, and a descriptor becomes readable when one has ended.

A thread that waits for an fsync must be woken for it, must take the interpreter's lock from the thread that woke it,
and must wake that thread when the device is done. On a fast device these steps take longer than the fsync.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from pykbroker_log.disk import File, FileClosed
from pykbroker_log.os_disk.descriptors import Descriptor
from pykbroker_log.os_disk.disk_sync import MAX_FILES, Context
from pykbroker_log.os_disk.files import OsFile

Taken = Sequence[tuple[OsFile, Descriptor]]


def take_open(files: Sequence[File]) -> Taken:
    """Return the files that their owner has not closed, each with the descriptor that keeps it open."""
    taken = []
    for file in files:
        assert isinstance(file, OsFile)
        try:
            taken.append((file, file.take()))
        except FileClosed:
            continue
    return taken


def untried(taken: Taken, results: Sequence[int]) -> list[OsFile]:
    """Return the files that the kernel did not take; all others are durable. Raises the OSError of an fsync that
    failed."""
    for (file, _), code in zip(taken, results, strict=True):
        if code > 0:
            raise OSError(code, os.strerror(code), file.path)
    return [file for (file, _), code in zip(taken, results, strict=True) if code < 0]


class BackgroundFsyncs:
    """Implements `disk.Fsyncs`. `close` returns the context to `contexts`, unless a batch is under way."""

    __slots__ = ("_context", "_contexts", "_event_fd", "_taken")

    def __init__(self, context: Context, contexts: list[Context]) -> None:
        self._context = context
        self._contexts = contexts
        self._event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._taken: Taken = ()

    def fileno(self) -> int:
        return self._event_fd

    def begin(self, files: Sequence[File]) -> bool:
        if len(files) > MAX_FILES:
            return False
        try:
            taken = take_open(files)
        except OSError:
            return False
        if not self._context.begin([descriptor.fd for _, descriptor in taken], event_fd=self._event_fd):
            return False
        self._taken = taken
        return True

    def ended(self) -> Sequence[File] | None:
        try:
            os.eventfd_read(self._event_fd)
        except BlockingIOError:
            return None
        results = self._context.collect(wait=False)
        if results is None or not self._taken:
            return None
        taken, self._taken = self._taken, ()
        return untried(taken, results)

    def close(self) -> None:
        os.close(self._event_fd)
        if not self._taken:
            self._contexts.append(self._context)
