"""Fsync of many files in one call, which Linux has and Python does not offer.

Responsible for the system calls, and for raising `Unavailable` if there are none. Used only by the package os_disk.

Files that are fsynced one after the other cost one commit of the file system's journal each; together they share one.
The medians below are for fifty files that a record was appended to, on a device whose fsync takes 3 to 4 ms (ext4,
Linux 6.18). They are 227 ms one after the other, 4.1 ms on sixteen threads, and 7.0 ms with syncfs(2). With the
kernel's asynchronous I/O, which this module uses, it is 1.8 ms. Each file has its own result there, nothing else in the
file system is written (as syncfs would), and no thread waits for the interpreter between two files.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence

# The largest number of files in one call.
MAX_FILES = 128

# The numbers of io_setup, io_getevents and io_submit, for which libc has no functions.
_NUMBERS = {"x86_64": (206, 208, 209), "aarch64": (0, 4, 2), "riscv64": (0, 4, 2)}
_FSYNC, _FDSYNC = 2, 3
_TELL_EVENT_FD = 1


class Unavailable(Exception):
    """The system has no such calls, a sandbox forbids them, or the kernel has no more contexts."""


class _Request(ctypes.Structure):
    """struct iocb on a little-endian machine."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("fd", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("more_flags", ctypes.c_uint32),
        ("event_fd", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    )


def _library() -> ctypes.CDLL | None:
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


_libc = _library()
_numbers = _NUMBERS.get(os.uname().machine) if _libc is not None and sys.byteorder == "little" else None


class Context:
    """The kernel's state of fsyncs under way; for one thread at a time. It is never destroyed, because that takes the
    kernel tens of milliseconds, and the process keeps only a few."""

    __slots__ = ("_events", "_id", "_pointers", "_requests", "_results", "_waiting")

    def __init__(self) -> None:
        """Raises Unavailable."""
        self._id = ctypes.c_ulong(0)
        if _numbers is None:
            raise Unavailable
        try:
            self._call(_numbers[0], ctypes.c_uint(MAX_FILES), ctypes.byref(self._id))
        except OSError as error:
            raise Unavailable from error
        requests = (_Request * MAX_FILES)()
        self._requests = [requests[index] for index in range(MAX_FILES)]
        self._pointers = (ctypes.c_void_p * MAX_FILES)(*map(ctypes.addressof, self._requests))
        self._events = (_Event * MAX_FILES)()
        self._results: list[int] = []
        self._waiting = 0
        for index, request in enumerate(self._requests):
            request.data = index

    @staticmethod
    def _call(number: int, *arguments: object) -> int:
        assert _libc is not None
        result = int(_libc.syscall(ctypes.c_long(number), *arguments))
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result

    def begin(self, descriptors: Sequence[int], *, folders: bool = False, event_fd: int | None = None) -> bool:
        """Begin to fsync at most MAX_FILES; return False if the kernel took none. No fsync may be under way. Files are
        synced with fdatasync; `folders` need fsync, because a file system may leave a new name out of fdatasync.
        `event_fd` is signalled for each fsync that has ended."""
        assert _numbers is not None
        assert not self._waiting
        for request, descriptor in zip(self._requests, descriptors, strict=False):
            request.fd = descriptor
            request.opcode = _FSYNC if folders else _FDSYNC
            request.more_flags = 0 if event_fd is None else _TELL_EVENT_FD
            request.event_fd = event_fd or 0
        count = len(descriptors)
        self._results = [-1] * count
        try:
            self._waiting = self._call(_numbers[2], self._id, ctypes.c_long(count), self._pointers)
        except OSError:
            return False
        return self._waiting > 0

    def collect(self, *, wait: bool) -> list[int] | None:
        """Return None while some fsyncs go on; with `wait`, wait for them. Then return for each file its errno, 0 if it
        is durable, or -1 if the kernel did not take it and nothing was tried."""
        assert _numbers is not None
        while self._waiting:
            waiting = ctypes.c_long(self._waiting)
            least = waiting if wait else ctypes.c_long(0)
            try:
                got = self._call(_numbers[1], self._id, least, waiting, ctypes.byref(self._events), None)
            except InterruptedError:
                continue
            for event in self._events[:got]:
                self._results[event.data] = -event.result
            self._waiting -= got
            if self._waiting and not wait:
                return None
        return self._results

    def fsync(self, descriptors: Sequence[int], *, folders: bool = False) -> list[int]:
        """Call `begin`, wait, and return the result of `collect`."""
        self.begin(descriptors, folders=folders)
        return self.collect(wait=True) or []
