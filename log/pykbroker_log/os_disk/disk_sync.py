"""Fsync of many files in one call, which Linux has and Python does not offer.

Responsible for the system calls, and for saying when there are none. Used by disk.py beside it only.

Files that are fsynced one after the other cost a commit of the file system's journal each; together they share it.
Fifty files that a record was appended to, on a device whose fsync takes 3 to 4 ms (ext4, Linux 6.18, medians): one
after the other 227 ms, on sixteen threads 4.1 ms, syncfs(2) 7.0 ms, and 1.8 ms with the kernel's asynchronous I/O,
which is what this is. Each file has a result of its own there, nothing else in the file system is written (syncfs
would), and no thread waits for the interpreter between two files.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence

# Files in one call.
MAX_FILES = 128

# io_setup, io_getevents, io_submit: libc has no functions for them.
_NUMBERS = {"x86_64": (206, 208, 209), "aarch64": (0, 4, 2), "riscv64": (0, 4, 2)}
_FSYNC, _FDSYNC = 2, 3


class Unavailable(Exception):
    """Another system, a sandbox that forbids it, or no more of them."""


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
    """The kernel's side of fsyncs under way; for one thread at a time. Never given back: that takes the kernel tens of
    milliseconds, and the process keeps a few."""

    __slots__ = ("_id",)

    def __init__(self) -> None:
        """Raises Unavailable."""
        self._id = ctypes.c_ulong(0)
        if _numbers is None:
            raise Unavailable
        try:
            self._call(_numbers[0], ctypes.c_uint(MAX_FILES), ctypes.byref(self._id))
        except OSError as error:
            raise Unavailable from error

    @staticmethod
    def _call(number: int, *arguments: object) -> int:
        assert _libc is not None
        result = int(_libc.syscall(ctypes.c_long(number), *arguments))
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result

    def fsync(self, descriptors: Sequence[int], *, folders: bool = False) -> list[int]:
        """Fsync at most MAX_FILES of them, and wait. For each its errno, 0 if all is well; -1: the kernel did not take
        it, nothing was tried. Of files what it takes to read them again (fdatasync); to a file system a new name in
        one of `folders` may be no such thing."""
        assert _numbers is not None
        count = len(descriptors)
        requests = (_Request * count)()
        pointers = (ctypes.c_void_p * count)()
        for index, descriptor in enumerate(descriptors):
            request = requests[index]
            request.data, request.fd = index, descriptor
            request.opcode = _FSYNC if folders else _FDSYNC
            pointers[index] = ctypes.addressof(request)
        results = [-1] * count
        try:
            waiting = self._call(_numbers[2], self._id, ctypes.c_long(count), pointers)
        except OSError:
            return results
        events = (_Event * count)()
        while waiting:
            try:
                got = self._call(
                    _numbers[1], self._id, ctypes.c_long(waiting), ctypes.c_long(waiting), ctypes.byref(events), None
                )
            except InterruptedError:
                continue
            for index in range(got):
                results[events[index].data] = -events[index].result
            waiting -= got
        return results
