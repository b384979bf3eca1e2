"""Runs a command that reads files through memory maps: in a new process, because such a read can end the process.

If a file is truncated while it is read, or its device cannot read it, the new process gets SIGBUS and ends without a
message. The parent waits for it and prints the name of the file.

Responsible for the process and its end. Not responsible for its output, which goes to the same streams.

Invariant: the new process ends at the latest when its parent ends, also if SIGKILL ends the parent.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TypeAlias

from pykbroker.entry.lost_output import LostOutput

_PATH_BYTES = 4096

#: Calls its argument with the name of each file before it maps the file; returns the exit status.
Work: TypeAlias = Callable[[Callable[[str], None]], int]


def run_apart(work: Work) -> int:
    """Run `work` in a process of its own; returns its exit status."""
    page = mmap.mmap(-1, _PATH_BYTES)
    ends, held = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        os.close(held)
        _run(work, page, ends)
    os.close(ends)
    try:
        _, status = os.waitpid(child, 0)
    finally:
        os.close(held)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGBUS:
        path = os.fsdecode(page[:].rstrip(b"\0"))
        print(f"pykbroker: {path}: became shorter while it was read, or its device failed (SIGBUS)", file=sys.stderr)
        return 1
    # If a signal ended the process, return the status that a shell reports.
    return code if code >= 0 else 128 - code


def _run(work: Work, page: mmap.mmap, ends: int) -> None:
    """Run in the new process; does not return."""

    def note(path: str) -> None:
        page[:] = os.fsencode(path)[:_PATH_BYTES].ljust(_PATH_BYTES, b"\0")

    def end_with_parent() -> None:
        os.read(ends, 1)
        os._exit(1)

    status = 1
    try:
        # Only the parent handles Ctrl-C. This process ends when the parent ends.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=end_with_parent, daemon=True).start()
        status = work(note)
        sys.stdout.flush()
    except LostOutput as error:
        if not error.is_unwanted:
            print(f"pykbroker: {error}", file=sys.stderr)
    except BaseException:  # noqa: BLE001  # as the interpreter does with what nothing catches
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(status)
