"""Shared parts of the driver's tests: runtimes on a real loop, a listener that records its calls, a formatted
directory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

from pykbroker.quorum.channel import QuorumPeers
from pykbroker.quorum.driver import QuorumDriver
from pykbroker.quorum.known_quorum import KnownQuorum
from pykbroker.quorum.replica_opening import QuorumConfig
from pykbroker.runtime import OnEnded, when_done
from pykbroker.runtime.client_clock import ClientClock, LoopClock
from pykbroker.runtime.workers import Job, finish
from pykbroker_log.disk import Disk, File, parent_of
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_raft.metadata_storage import StorageConfig, format_voters
from pykbroker_raft.raft_node import RaftConfig
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet

T = TypeVar("T")

DIRECTORY_ID = bytes(range(16))
ENDPOINTS = (Endpoint("CONTROLLER", "controller", 9093),)
CLUSTER = "quorum-tests"
WALL_MS = 1_700_000_000_000


class InlineRuntime:
    """A runtime with a real loop, a memory disk, and blocking calls that run at once, as in the simulation. `hold`
    keeps them waiting, so that a test sees the state in between."""

    def __init__(self, disk: Disk | None = None) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.client_clock: ClientClock = LoopClock(self.loop)
        self.disk: Disk = disk if disk is not None else MemoryDisk()
        self.random = random.Random(7)
        self.most_connections = 0
        self.wall_ms = WALL_MS
        self.held: list[Callable[[], None]] | None = None
        self.blocking_calls = 0

    def now_ms(self) -> int:
        self.wall_ms += 1
        return self.wall_ms

    def keep(self) -> None:
        pass

    def stopwatch_ms(self) -> float:
        return self.loop.time() * 1000

    def cpu_ms(self) -> float:
        return 0.0

    def run_blocking(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.loop.create_future()

        def run() -> None:
            self.blocking_calls += 1
            try:
                result = function(*args)
            except Exception as error:  # noqa: BLE001  # as a thread pool passes it on
                future.set_exception(error)
            else:
                future.set_result(result)

        if self.held is None:
            run()
        else:
            self.held.append(run)
        return future

    def fsync(self, files: Sequence[File], ended: OnEnded) -> None:
        when_done(self.run_blocking(self.disk.fsync_files, files), ended)

    def beside(self) -> Any:
        raise NotImplementedError

    def run_apart(
        self,
        job: Job[T],
        *args: object,
        on_progress: Callable[[Any], None] | None = None,
        bytes_per_second: float | None = None,
    ) -> asyncio.Future[T]:
        return self.run_blocking(lambda: finish(job, self.disk, *args, on_progress=on_progress))

    def hold(self) -> None:
        self.held = []

    def release(self) -> None:
        held, self.held = self.held or [], None
        for run in held:
            run()

    def watch_turns(self, report: Any) -> Any:
        raise AssertionError("no turns here")

    def own_name(self) -> Any:
        raise AssertionError("no names here")

    def listen(self, *args: Any) -> Any:
        raise AssertionError("no sockets here")

    def listen_at(self, *args: Any) -> Any:
        raise AssertionError("no sockets here")

    def connect(self, *args: Any) -> Any:
        raise AssertionError("no sockets here")


class Listener:
    """Records its calls, as lines."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.values: list[bytes] = []
        self.on_commit: Callable[[], None] | None = None

    def handle_commit(self, base_offset: int, epoch: int, timestamp_ms: int, values: list[bytes]) -> None:
        self.told.append(f"commit {base_offset} epoch {epoch} {b' '.join(values).decode()}")
        self.values += values
        if self.on_commit is not None:
            self.on_commit()

    def handle_snapshot(self, offset: int, epoch: int, values: Iterator[bytes]) -> None:
        self.values = list(values)
        self.told.append(f"snapshot {offset} epoch {epoch} {b' '.join(self.values).decode()}")

    def handle_leader(self, leader_id: int | None, epoch: int) -> None:
        self.told.append(f"leader {leader_id} epoch {epoch}")


def voter_set() -> VoterSet:
    return VoterSet.of([VoterNode(ReplicaKey(1, DIRECTORY_ID), ENDPOINTS)])


def format_one(disk: Disk, log_dir: str) -> None:
    disk.make_dirs(log_dir)
    disk.fsync_dir(parent_of(log_dir))
    format_voters(disk, log_dir, voter_set(), WALL_MS)


def raft_config(**fields: Any) -> RaftConfig:
    return RaftConfig(
        **{"node_id": 1, "directory_id": DIRECTORY_ID, "cluster_id": CLUSTER, "endpoints": ENDPOINTS, **fields}
    )


def driver(
    runtime: Any,
    log_dir: str = "meta",
    *,
    peers: QuorumPeers | None = None,
    on_failure: Callable[[BaseException], None] = lambda error: None,
    on_snapshot_due: Callable[[QuorumDriver], object] | None = None,
    on_short_of_room: Callable[[], None] = lambda: None,
    storage: StorageConfig | None = None,
    snapshot_bytes: int = 20 << 20,
    **fields: Any,
) -> QuorumDriver:
    config = QuorumConfig(raft_config(**fields), log_dir, storage or StorageConfig(), snapshot_bytes, 0)
    made = QuorumDriver(runtime, config, peers, on_failure=on_failure, on_snapshot_due=on_snapshot_due)
    was_short = False

    def look(known: KnownQuorum) -> None:
        nonlocal was_short
        if known.is_short_of_room and not was_short:
            on_short_of_room()
        was_short = known.is_short_of_room

    made.when_known(look)
    return made


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Let the loop run until a condition holds."""

    async def wait() -> None:
        while not condition():  # noqa: ASYNC110  # any turn of the loop may make it true
            await asyncio.sleep(0)

    await asyncio.wait_for(wait(), seconds)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())
