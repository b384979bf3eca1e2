"""Files with more than one name, and copies of files, by the operating system's calls.

Responsible for copying bytes, by a clone where the file system can share them (FICLONE), and for giving a name a file
of its own before that file is changed. Not responsible for when a file is changed (files.py), nor for which files get
a second name (forking.py).

Invariant: a file with several names is never written to and never cut. `own_copy` puts a copy in the place of one name,
and the other names keep the file with its bytes. Otherwise a change under one name would change the other one's log,
and another program that has mapped the file there would be killed when it reads beyond the new end (SIGBUS).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from pykbroker_log import names

# ioctl(2): the target shares the blocks of the source until one of them is changed. Python has no name for it.
_FICLONE = 0x40049409
# Up to this size one read and one write cost less than the calls that copy in the kernel.
_SMALL_BYTES = 128 * 1024
_PIECE_BYTES = 1024 * 1024
_COPY_IN_KERNEL = getattr(os, "copy_file_range", None)
_NOT_IN_KERNEL = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM)


class LinkChanges:
    """The number of times that this process has changed which file a name stands for, or how many names a file has. An
    open file looks at its links again when the number has changed."""

    count = 0


def link(source: str, target: str) -> None:
    """Give the file another name. Raises OSError, for example with EXDEV on another file system."""
    os.link(source, target)
    LinkChanges.count += 1


def copy(source: str, target: str, *, keeps_time: bool) -> int:
    """Copy a file to a new name, with its time of change if that is wanted. Return the number of bytes that were
    written: 0 for a clone. Raises OSError, and leaves nothing then."""
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.fstat(reading)
        writing = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            written = _fill(reading, writing, found.st_size)
            if keeps_time:
                os.utime(writing, ns=(found.st_atime_ns, found.st_mtime_ns))
        except OSError:
            os.unlink(target)
            raise
        finally:
            os.close(writing)
    finally:
        os.close(reading)
    return written


def is_named(fd: int, path: str) -> bool:
    """Return True if `path` still stands for this open file, or the file has no name at all. Raises OSError, and
    FileNotFoundError if the file has only other names."""
    opened = os.fstat(fd)
    if not opened.st_nlink:
        return True
    named = os.stat(path)
    return (named.st_ino, named.st_dev) == (opened.st_ino, opened.st_dev)


def has_other_names(fd: int) -> bool:
    return os.fstat(fd).st_nlink > 1


def own_copy(fd: int, path: str, size: int | None, *, is_durable: bool) -> None:
    """Put a copy in the place of `path`: the first `size` bytes, or all if `size` is None. With `is_durable` the copy
    is durable under that name on return. Raises OSError, and then the name stands for the old file or for the copy."""
    found = os.fstat(fd)
    # A log that is opened removes a copy that has not got its name.
    temporary = path + names.UNFINISHED
    writing = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.fchmod(writing, stat.S_IMODE(found.st_mode))
            _fill(fd, writing, found.st_size if size is None else min(size, found.st_size))
            if is_durable:
                os.fsync(writing)
        finally:
            os.close(writing)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
    LinkChanges.count += 1
    if is_durable:
        folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _fill(reading: int, writing: int, size: int) -> int:
    """Copy the first `size` bytes into an empty file. Return the number of bytes that were written."""
    if not size:
        return 0
    try:
        fcntl.ioctl(writing, _FICLONE, reading)
    except OSError:
        # This file system has no clones, or the files are on two. The copy finds any other error too.
        return _copy_bytes(reading, writing, size)
    if os.fstat(writing).st_size > size:
        os.ftruncate(writing, size)
    return 0


def _copy_bytes(reading: int, writing: int, size: int) -> int:
    done = 0
    if size > _SMALL_BYTES and _COPY_IN_KERNEL is not None:
        try:
            while done < size and (count := _COPY_IN_KERNEL(reading, writing, size - done, done, done)):
                done += count
        except OSError as error:
            if error.errno not in _NOT_IN_KERNEL:
                raise
    while done < size and (piece := os.pread(reading, min(_PIECE_BYTES, size - done), done)):
        view = memoryview(piece)
        while view:
            count = os.pwrite(writing, view, done)
            done += count
            view = view[count:]
    if done < size:
        raise OSError(errno.EIO, "the file became shorter while it was copied")
    return done
