"""A real node that reports its resources.

As a program it is `pykbroker start` with a reader of its standard input: each line is answered with one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
ROOTS = [Path(__file__).resolve().parents[2] / name for name in ("", "wire", "log", "raft")]


class WatchedNode:
    """The process, its address, its log, and its resources."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log_file: Path) -> None:
        self.process = process
        self.port = port
        self.log_file = log_file

    def log(self) -> list[str]:
        return self.log_file.read_text(errors="replace").splitlines()

    def complaints(self) -> list[str]:
        """Return log lines that no client may provoke, each with the traceback after it."""
        found: list[str] = []
        inside = False
        for line in self.log():
            if line.startswith("["):
                inside = " ERROR " in line or " CRITICAL " in line
            if inside or "Traceback" in line:
                inside = True
                found.append(line)
        return found

    def holds(self) -> dict[str, int]:
        """Return the node's own counts, and those of the operating system."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"?\n")
        self.process.stdin.flush()
        counts: dict[str, int] = json.loads(self.process.stdout.readline())
        assert "failed" not in counts, counts
        proc = Path(f"/proc/{self.process.pid}")
        for line in (proc / "status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                counts["anonymous_kib"] = int(line.split()[1])
        counts["sockets"] = counts["open_files"] = 0
        for descriptor in (proc / "fd").iterdir():
            try:
                target = str(descriptor.readlink())
            except OSError:
                continue
            counts["sockets" if target.startswith("socket:") else "open_files"] += 1
        return counts

    def settles(self, goal: dict[str, int], timeout_s: float = 10) -> dict[str, int]:
        """Wait until no count is above the goal; return the counts."""
        return self._when(lambda found: all(found[name] <= most for name, most in goal.items()), timeout_s)

    def reaches(self, goal: dict[str, int], timeout_s: float = 1) -> dict[str, int]:
        """Wait until no count is below the goal; return the counts."""
        return self._when(lambda found: all(found[name] >= least for name, least in goal.items()), timeout_s)

    def _when(self, good: Callable[[dict[str, int]], bool], timeout_s: float) -> dict[str, int]:
        deadline = time.monotonic() + timeout_s
        while not good(found := self.holds()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return found


@contextmanager
def watched_node(config: Mapping[str, str] | None = None) -> Iterator[WatchedNode]:
    with tempfile.TemporaryDirectory(prefix="pykbroker-badinput-") as folder:
        log_file = Path(folder) / "log"
        command = [sys.executable, str(Path(__file__).resolve()), "--data-dir", f"{folder}/data", "--port", "0"]
        for key, value in (config or {}).items():
            command += ["--set", f"{key}={value}"]
        with log_file.open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        try:
            assert process.stdout is not None
            ready = process.stdout.readline().decode()
            if not ready:
                raise RuntimeError(f"the node did not start:\n{log_file.read_text()[-3000:]}")
            yield WatchedNode(process, int(ready.rpartition(":")[2]), log_file)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)
            assert process.stdout is not None
            process.stdout.close()


def _serve() -> int:
    """Run the program."""
    sys.path[:0] = [str(root) for root in ROOTS]
    from pykbroker.__main__ import main
    from pykbroker.node import node as running

    nodes: list[Any] = []
    make = running.Node.__init__

    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        nodes.append(self)

    running.Node.__init__ = remember  # type: ignore[method-assign]

    def listen() -> None:
        for _ in sys.stdin:
            try:
                print(json.dumps(count(nodes[0])), flush=True)
            except Exception as error:  # noqa: BLE001 - told to the test
                print(json.dumps({"failed": repr(error)}), flush=True)

    def count(node: Any) -> dict[str, int]:
        services = node.services
        connections = [one for listener in node.listeners for one in list(listener.connections)]
        return {
            "connections": len(connections),
            "receive_bytes": sum(one._received.memory_bytes for one in connections),
            "unanswered": sum(one._replies.parked for one in connections),
            "parked_fetches": services.replicas.purgatory.count,
            "fetch_sessions": len(services.fetch_sessions),
        }

    threading.Thread(target=listen, daemon=True).start()
    return main(["start", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(_serve())
