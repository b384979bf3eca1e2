"""A coordinator that loads a million committed offsets under load: how long it takes, and the latencies of producers.

    .venv/bin/python bench/loading.py [--offsets 1000000] [--groups 1000] [--only pykbroker]

OffsetCommit requests fill each side, which is then stopped and started again. "after a restart" is from the first
Metadata response until ListGroups no longer reports that groups are loading. Then, on pykbroker, every partition of the
offsets topic gets a new leader epoch while one connection produces, one request at a time. The latencies of that time
are printed next to those of the same seconds without loading. A callback that runs in each turn of the loop measures
the longest turn inside the broker, in wall-clock and CPU time, because on a busy machine other processes use the CPU in
between.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / part) for part in ("", "wire", "log", "raft")]

from bench import raw  # noqa: E402
from bench.groups import COMMIT_VERSION, commit_request, ready  # noqa: E402
from bench.servers import ApacheKafka, Pykbroker, Server  # noqa: E402
from pykbroker_wire.messages.list_groups import ListGroupsRequest  # noqa: E402

_TURN_FILE = "PYKBROKER_BENCH_TURNS"


# -- inside the broker -------------------------------------------------------------------------------------------------


class _Watch:
    """The longest turn of the loop while the coordinator loads; SIGUSR1 makes it load everything again."""

    def __init__(self, node: Any, path: str) -> None:
        self._node = node
        self._path = path
        self._loop = asyncio.get_event_loop()
        self._wall = self._cpu = 0.0
        self._began = self._began_cpu = 0.0
        self._epochs = 1_000
        self._turn = (time.perf_counter(), time.thread_time())
        self._collecting = self._collected = 0.0
        gc.callbacks.append(self._collection)
        self._loop.add_signal_handler(signal.SIGUSR1, self._load_again)
        self._loop.call_soon(self._each_turn)

    def _coordinator(self) -> Any:
        broker = self._node._broker
        return None if broker is None else broker.groups.coordinator

    def _collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self._collected = max(self._collected, time.thread_time() - self._collecting)

    def _load_again(self) -> None:
        coordinator = self._coordinator()
        self._epochs += 1
        for host in list(coordinator._hosts.values()):
            coordinator._leadership_changed(host.partition, True, self._epochs)

    def _each_turn(self) -> None:
        now, cpu = time.perf_counter(), time.thread_time()
        coordinator = self._coordinator()
        loading = coordinator is not None and any(not host.ready for host in coordinator._hosts.values())
        if loading:
            if not self._began:
                self._began, self._began_cpu = now, cpu
                self._wall = self._cpu = self._collected = 0.0
            else:
                self._wall = max(self._wall, now - self._turn[0])
                self._cpu = max(self._cpu, cpu - self._turn[1])
        elif self._began:
            found = {
                "seconds": now - self._began,
                "cpu": cpu - self._began_cpu,
                "longest turn, ms": self._wall * 1000,
                "longest turn, ms of CPU": self._cpu * 1000,
                "longest collection, ms": self._collected * 1000,
            }
            Path(self._path + ".new").write_text(json.dumps(found))
            os.replace(self._path + ".new", self._path)
            self._began = 0.0
        self._turn = (now, cpu)
        self._loop.call_soon(self._each_turn)


def serve(arguments: list[str]) -> int:
    """Run `pykbroker start` with the watch in it."""
    from pykbroker.__main__ import main as pykbroker
    from pykbroker.node import node

    class Watched(node.Node):
        async def start(self) -> None:
            _Watch(self, os.environ[_TURN_FILE])
            await super().start()

    node.Node = Watched  # type: ignore[misc]
    return pykbroker(["start", *arguments])


class WatchedPykbroker(Pykbroker):
    def command(self) -> list[str]:
        os.environ[_TURN_FILE] = str(self.turns)
        plain = super().command()
        return [plain[0], str(Path(__file__)), "--serve", *plain[plain.index("start") + 1 :]]

    @property
    def turns(self) -> Path:
        return self.directory / "turns.json"


# -- outside -----------------------------------------------------------------------------------------------------------


def fill(server: Server, groups: int, per_group: int) -> list[str]:
    client = raw.Client(server.address)
    topic_id = client.create_topic("committed", per_group)
    names = [f"group-{number}" for number in range(groups)]
    ready(client, topic_id, names[:100])
    for name in names:
        request = commit_request(name, topic_id, [(index, index) for index in range(per_group)])
        answer = client.call(request, COMMIT_VERSION)
        assert not any(part.error_code for part in answer.topics[0].partitions)
    client.close()
    return names


def stop(server: Server) -> None:
    assert server.process is not None
    os.killpg(server.process.pid, signal.SIGTERM)
    server.process.wait(60)


def until_loaded(server: Server, expected: int) -> float:
    client = raw.Client(server.address)
    start = time.perf_counter()
    while True:
        answer = client.call(ListGroupsRequest(), 5)
        if not answer.error_code and len(answer.groups) >= expected:
            client.close()
            return time.perf_counter() - start
        time.sleep(0.005)


def produce_for(server: Server, topic_id: bytes, seconds: float) -> raw.Load:
    return raw.produce(
        server.address, topic_id, connections=1, in_flight=1, records=1, value_bytes=100, seconds=seconds
    )


def percentiles(load: raw.Load) -> str:
    found = ", ".join(f"p{share * 100:g} {load.percentile(share) * 1000:.2f} ms" for share in (0.5, 0.99, 0.999))
    return f"{found} ({load.requests} requests)"


def measure(server: Server, groups: int, per_group: int, repeat: int) -> None:
    print(f"{server.name}: {groups * per_group:,} committed offsets of {groups:,} groups")
    server.start()
    begin = time.perf_counter()
    fill(server, groups, per_group)
    print(f"  committed in {time.perf_counter() - begin:.1f} s")
    stop(server)
    _restart(server)
    seconds = until_loaded(server, groups)
    print(f"  after a restart: ready for clients in {server.ready_seconds:.2f} s, loaded {seconds:.2f} s later")
    if not isinstance(server, WatchedPykbroker):
        return
    print(f"  in the broker: {json.loads(server.turns.read_text())}")
    client = raw.Client(server.address)
    topic_id = client.create_topic("produced", 1)
    client.close()
    raw.produce(server.address, topic_id, connections=1, in_flight=1, records=1, value_bytes=100, seconds=1.0)
    assert server.process is not None
    seconds = float(json.loads(server.turns.read_text())["cpu"])
    for _ in range(repeat):
        server.turns.unlink()
        quiet = produce_for(server, topic_id, seconds)
        os.kill(server.process.pid, signal.SIGUSR1)
        # Nearly all of this time is within the loading, which takes longer while a producer runs.
        busy = produce_for(server, topic_id, seconds)
        while not server.turns.exists():
            time.sleep(0.01)
        print(f"  Produce without loading: {percentiles(quiet)}")
        print(f"  Produce while loading:   {percentiles(busy)}")
        print(f"  in the broker: {json.loads(server.turns.read_text())}")


def _restart(server: Server) -> None:
    """Start it without formatting again."""
    server.prepare = lambda: None  # type: ignore[method-assign]
    server.start()


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        return serve(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--offsets", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=("pykbroker", "kafka"))
    options = parser.parse_args()
    sides: list[type[Server]] = [WatchedPykbroker] if options.only != "kafka" else []
    if options.only != "pykbroker":
        sides.append(ApacheKafka)
    for side in sides:
        server = side()
        try:
            measure(server, options.groups, options.offsets // options.groups, options.repeat)
        finally:
            server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
