"""Hand-written parts compared with libraries that could replace them (docs/decisions/0016-by-hand-or-library.md).

    pip install caio javaproperties && python bench/libraries.py

Libraries that are not installed are left out. Each figure is the least of many rounds, and the two sides take turns,
because other work on the machine makes a round longer, never shorter.
"""

from __future__ import annotations

import concurrent.futures
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_PATHS = [str(ROOT / part) for part in ("", "wire", "log", "raft")]
sys.path[:0] = _PATHS
#: Modules that a node has loaded in any case before it needs these.
_LOADED = "import argparse, asyncio, concurrent.futures, ctypes, logging, re, subprocess, tempfile, uvloop"


def least(rounds: int, **sides: Callable[[], float]) -> dict[str, float]:
    found = {name: float("inf") for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            found[name] = min(found[name], side())
    return found


def show(title: str, unit: str, found: dict[str, float]) -> None:
    print(f"{title:58} " + "  ".join(f"{name} {value:10.2f} {unit}" for name, value in found.items()), flush=True)


def has(module: str) -> bool:
    if importlib.util.find_spec(module) is not None:
        return True
    print(f"{module} is not installed: left out")
    return False


def import_ms(statement: str) -> Callable[[], float]:
    code = f"{_LOADED}\nimport time\nbegin = time.perf_counter()\n{statement}\nprint(time.perf_counter() - begin)"

    def run() -> float:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        return float(done.stdout) * 1000

    return run


def cpu_us(times: int, call: Callable[[], object]) -> Callable[[], float]:
    def run() -> float:
        begin = time.thread_time()
        for _ in range(times):
            call()
        return (time.thread_time() - begin) / times * 1e6

    return run


# -- fsync together ----------------------------------------------------------------------------------------------------


def fsyncs() -> None:
    if not has("caio"):
        return
    from caio import linux_aio

    from pykbroker_log.os_disk.disk_sync import Context

    show(
        "import",
        "ms",
        least(15, ours=import_ms("import pykbroker_log.os_disk.disk_sync"), caio=import_ms("import caio")),
    )
    context, other = Context(), linux_aio.Context(max_requests=128)

    def caio(files: list[int]) -> None:
        operations = [linux_aio.Operation.fdsync(fd) for fd in files]
        left = other.submit(*operations)
        while left:
            left -= other.process_events(128, left, -1)
        for operation in operations:
            operation.get_value()

    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        for count in (1, 4, 50):
            files = [os.open(f"{folder}/{count}-{index}", os.O_RDWR | os.O_CREAT) for index in range(count)]
            ours = cpu_us(20, partial(context.fsync, files))
            show(
                f"CPU of a round of {count} files in memory",
                "us",
                least(50, ours=ours, caio=cpu_us(20, partial(caio, files))),
            )
            for fd in files:
                os.close(fd)


# -- worker processes --------------------------------------------------------------------------------------------------


def tell(disk: object) -> Generator[int, None, int]:
    """A job of ours that reports no progress."""
    yield from ()
    return os.getpid()


def sleeping(disk: object, path: str) -> Generator[int, None, None]:
    Path(path).write_text(str(os.getpid()))
    time.sleep(60)
    yield 0


def sleep_in_pool(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(60)


def workers() -> None:
    import asyncio

    from bench.libraries import tell  # a worker does not import the module that runs as `__main__`
    from pykbroker.runtime.workers import Workers

    loop = asyncio.new_event_loop()

    def ours() -> Iterator[float]:
        pool = Workers(loop, 1)
        for _ in range(2):
            begin = time.perf_counter()
            loop.run_until_complete(pool.run(tell))
            yield (time.perf_counter() - begin) * 1000
        pool.close()

    def futures() -> Iterator[float]:
        pool = concurrent.futures.ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        for _ in range(2):
            begin = time.perf_counter()
            pool.submit(os.getpid).result()
            yield (time.perf_counter() - begin) * 1000
        pool.shutdown()

    sides: dict[str, list[list[float]]] = {"ours": [], "concurrent.futures": []}
    for _ in range(10):
        sides["ours"].append(list(ours()))
        sides["concurrent.futures"].append(list(futures()))
    for index, title in enumerate(("first job of a worker, from nothing", "next job of it")):
        show(title, "ms", {name: min(run[index] for run in runs) for name, runs in sides.items()})
    show("alive after kill -9 of the parent, in the middle of a job", "s", {name: orphan(name) for name in sides})
    loop.close()


def orphan(side: str) -> float:
    """Return the seconds that a worker outlives its parent; 10 stands for longer."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/pid"
        parent = subprocess.Popen([sys.executable, __file__, side, path])
        while not os.path.exists(path) or not Path(path).read_text():
            time.sleep(0.01)
        worker = int(Path(path).read_text())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        begin = time.monotonic()
        while time.monotonic() - begin < 10:
            try:
                state = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                break
            if state == "Z":
                break
            time.sleep(0.01)
        else:
            os.kill(worker, signal.SIGKILL)
        return time.monotonic() - begin


def parent_of(side: str, path: str) -> None:
    if side == "ours":
        import asyncio

        from bench.libraries import sleeping
        from pykbroker.runtime.workers import Workers

        async def run() -> Any:
            return await Workers(asyncio.get_running_loop(), 1).run(sleeping, path)

        asyncio.run(run())
    else:
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            pool.submit(sleep_in_pool, path).result()


# -- .properties -------------------------------------------------------------------------------------------------------


def properties() -> None:
    if not has("javaproperties"):
        return
    import javaproperties

    from pykbroker.config.properties import parse

    text = "".join(f"# a comment\nthe.key.number.{number}=a value, another value {number}\n" for number in range(60))
    assert parse(text) == javaproperties.loads(text)
    show(
        "import",
        "ms",
        least(
            15, ours=import_ms("import pykbroker.config.properties"), javaproperties=import_ms("import javaproperties")
        ),
    )
    show(
        "60 keys",
        "us",
        least(
            50,
            ours=cpu_us(20, lambda: parse(text)),
            javaproperties=cpu_us(20, lambda: javaproperties.loads(text)),
        ),
    )


# -- libraries that are used although another way is faster -----------------------------------------------------------


def public_names() -> None:
    private = """
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
package = PathFinder.find_spec("crc32c")
found = PathFinder.find_spec("crc32c._crc32c", list(package.submodule_search_locations))
found.loader.exec_module(module_from_spec(found))
"""
    show("import of crc32c", "ms", least(15, public=import_ms("import crc32c"), extension=import_ms(private)))
    import cramjam
    import snappy

    def with_cramjam(packed: bytes) -> bytes:
        return bytes(cramjam.snappy.decompress_raw(packed))

    for size in (100, 1_000, 100_000):
        packed = snappy.compress(os.urandom(50) * (size // 50))
        times = max(3, 200_000 // size)
        show(
            f"snappy, {size} bytes",
            "us",
            least(
                30,
                python_snappy=cpu_us(times, partial(snappy.uncompress, packed)),
                cramjam=cpu_us(times, partial(with_cramjam, packed)),
            ),
        )


def main() -> None:
    for title, part in (
        ("Fsync of many files (log/pykbroker_log/os_disk/disk_sync.py)", fsyncs),
        ("Worker processes (pykbroker/runtime/workers.py)", workers),
        (".properties (pykbroker/config/properties.py)", properties),
        ("Public names", public_names),
    ):
        print(f"\n{title}")
        part()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        parent_of(*sys.argv[1:])
    else:
        main()
