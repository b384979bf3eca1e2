"""A file system on which every fsync takes a chosen time, like a disk without a write-back cache, on any machine."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Fsyncs that wait at the same time; Apache Kafka has eight threads, pykbroker hands over as many as there are.
THREADS = 64


@contextmanager
def slow_device(fsync_ms: float) -> Iterator[Path]:
    """Yield a folder on it. Raises RuntimeError if the machine has no FUSE, or no compiler."""
    home = Path(tempfile.mkdtemp(prefix="pykbroker-slow-"))
    try:
        program = _compile(home)
        for name in ("below", "mounted"):
            (home / name).mkdir()
        mounted = home / "mounted"
        options = f"max_threads={THREADS},max_idle_threads={THREADS},default_permissions"
        command = [str(program), str(home / "below"), str(round(fsync_ms * 1000)), str(mounted), "-o", options]
        subprocess.run(command, check=True)
        try:
            yield mounted
        finally:
            subprocess.run(["fusermount3", "-uz", mounted], check=True)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _compile(home: Path) -> Path:
    try:
        found = subprocess.run(
            ["pkg-config", "fuse3", "--cflags", "--libs"], capture_output=True, text=True, check=True
        ).stdout
        program = home / "slow_device"
        source = Path(__file__).with_suffix(".c")
        subprocess.run(["cc", "-O2", source, "-o", program, *shlex.split(found)], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RuntimeError(f"a C compiler, pkg-config and the headers of fuse3 are needed: {error}") from error
    return program
