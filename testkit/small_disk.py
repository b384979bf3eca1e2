"""A file system of a few megabytes, for tests of full disks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def mount(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["mount", *arguments], capture_output=True, check=False)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a tmpfs of this size, or skip if mounting is not allowed."""
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    mounted = mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    if mounted.returncode:
        pytest.skip(f"mounting is not allowed here: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)
