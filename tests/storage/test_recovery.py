"""The logs of an unclean stop come back one by one while the others serve."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pykbroker.replica.partition import Partition
from pykbroker.runtime.workers import Job, WorkerDied, finish
from pykbroker.storage import recovery
from pykbroker.storage.directories import close
from pykbroker_log.disk import read_file
from pykbroker_log.log_config import StorageError
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_wire.errors import ErrorCode, KafkaError
from testkit.acting import acts
from tests.coordinator.fakes import as_loop
from tests.replica.world import NOW_MS, World, batch, topic

GAUGES = "kafka.log:type=LogManager,name=remaining"


class Workers:
    """Replaces `Runtime.run_apart`. The test decides when a job is done, and with which result."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.jobs: list[tuple[str, Callable[[], Any], asyncio.Future[Any], Callable[[int], None]]] = []
        world.runtime.run_apart = self.run_apart  # type: ignore[method-assign, assignment]

    def run_apart(
        self, job: Job[Any], *args: Any, on_progress: Callable[[int], None], bytes_per_second: float | None = None
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.world.runtime.loop.create_future()
        name = ",".join(log.path.rpartition("/")[2] for log in args[0])
        work = lambda: finish(job, self.world.disk, *args, on_progress=on_progress)  # noqa: E731
        self.jobs.append((name, work, future, on_progress))
        return future

    @property
    def running(self) -> list[str]:
        return [name for name, _, future, _ in self.jobs if not future.done()]

    def end(self, name: str, error: Exception | None = None) -> None:
        for job, work, future, _ in self.jobs:
            if job == name and not future.done():
                if error is not None:
                    future.set_exception(error)
                else:
                    try:
                        future.set_result(work())
                    except Exception as raised:  # noqa: BLE001  # as from a worker
                        future.set_exception(raised)
                self.world.loop.settle()
                return
        raise AssertionError(f"{name} is not running: {self.running}")


@pytest.fixture(autouse=True)
def _everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "SMALL_BYTES", -1)


RECORDS = [topic("small", 1, (1,)), topic("middle", 1, (1,)), topic("large", 1, (1,)), topic("tiny", 1, (1,))]
SIZES = {"tiny": 1, "small": 10, "middle": 20, "large": 40}


def killed(sizes: dict[str, int] | None = None, directories: int = 1) -> MemoryDisk:
    """Return the disk of a killed node with these topics, each with its number of batches."""
    world = World(directories)
    for name, count in (sizes or SIZES).items():
        partition = world.create(name)
        for number in range(count):
            partition.append(batch(b"%d" % number), required_acks=1, now_ms=NOW_MS)
    for log_dir in world.log_dirs:
        log_dir.checkpoints.prepare_high_watermarks()()
    return world.disk.power_loss(Survive.EVERYTHING)


def restarted(
    disk: MemoryDisk, names: list[str] | None = None, config: dict[str, str] | None = None
) -> tuple[World, Workers]:
    world = World(disk=disk, config=config)
    workers = Workers(world)
    for name in names or list(SIZES):
        world.publish(*topic(name, 1, (1,)))
    world.replicas.start()
    world.loop.settle()
    return world, workers


def code_of(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call()
    return caught.value.code


def use(partition: Partition) -> int:
    return partition.append(batch(b"more"), required_acks=1, now_ms=NOW_MS).first_offset


# -- one by one -------------------------------------------------------------------------------------------------------


def test_a_recovered_partition_serves_while_others_are_not_there_yet() -> None:
    world, workers = restarted(killed())
    partitions = {name: world.replicas.get(name, 0) for name in SIZES}
    for partition in partitions.values():
        for call in (
            partial(use, partition),
            partial(partition.read, 0, 100, read_committed=False, min_one=True),
            partial(getattr, partition, "log"),
            partial(partition.delete_records_before, 0),
            partition.active_producers,
            partial(partition.start_verification, 1, 0, 0, supports_epoch_bump=True),
        ):
            assert code_of(call) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    workers.end("tiny-0")
    assert use(partitions["tiny"]) == 1
    assert code_of(lambda: use(partitions["large"])) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    for name in ("small-0", "large-0", "middle-0"):
        workers.end(name)
    assert [use(partitions[name]) for name in ("small", "middle", "large")] == [10, 20, 40]
    assert partitions["large"].high_watermark == 41


def test_a_topic_made_meanwhile_is_served_at_once() -> None:
    world, _ = restarted(killed())
    assert use(world.create("new")) == 0


@acts(broker=("num.recovery.threads.per.data.dir",))
def test_so_many_at_once_and_the_small_ones_first_but_for_the_largest() -> None:
    world, workers = restarted(killed())
    assert workers.running == ["tiny-0", "large-0"]
    workers.end("tiny-0")
    assert workers.running == ["large-0", "small-0"]
    world.replicas.reconfigure(World.config_with({"num.recovery.threads.per.data.dir": "3"}))
    assert set(workers.running) == {"large-0", "small-0", "middle-0"}
    world, workers = restarted(killed(), config={"num.recovery.threads.per.data.dir": "1"})
    assert workers.running == ["tiny-0"]


def test_internal_topics_come_first() -> None:
    sizes = {"a": 1, "b": 2, "__consumer_offsets": 10, "__transaction_state": 20}
    _, workers = restarted(killed(sizes), list(sizes))
    assert set(workers.running) == {"__consumer_offsets-0", "__transaction_state-0"}


def test_next_to_nothing_is_recovered_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "SMALL_BYTES", 1000)
    world, workers = restarted(killed())
    assert set(workers.running) == {"large-0", "middle-0"}
    assert use(world.replicas.get("tiny", 0)) == 1


def test_who_waits_for_the_log_is_told() -> None:
    world, workers = restarted(killed())
    told = []
    world.replicas.get("tiny", 0).when_recovered(lambda: told.append("tiny"))
    world.replicas.get("large", 0).when_recovered(lambda: told.append("large"))
    assert not told
    workers.end("large-0")
    assert told == ["large"]


# -- the end of it ----------------------------------------------------------------------------------------------------


def test_the_stop_is_clean_only_when_everything_was_recovered() -> None:
    disk = killed()
    world, workers = restarted(disk)
    workers.end("tiny-0")
    use(world.replicas.get("tiny", 0))
    world.replicas.stop()
    world.loop.settle()
    assert not workers.running
    world.log_dirs[0].close(clean=True)
    assert not disk.exists("d0/.kafka_cleanshutdown")
    world, workers = restarted(disk)
    assert len(workers.running) == 2
    for name in ("tiny-0", "small-0", "middle-0", "large-0"):
        workers.end(name)
    assert world.replicas.get("tiny", 0).log.log_end_offset == 2
    world.replicas.stop()
    world.log_dirs[0].close(clean=True)
    assert disk.exists("d0/.kafka_cleanshutdown")
    world, workers = restarted(disk)
    assert not workers.jobs
    assert use(world.replicas.get("large", 0)) == 40


def test_a_crash_while_recovering_costs_the_work_only() -> None:
    disk = killed()
    world, workers = restarted(disk)
    workers.end("tiny-0")
    use(world.replicas.get("tiny", 0))
    workers.jobs[1][1]()  # recovered, and no part was notified
    world, workers = restarted(disk.power_loss(Survive.EVERYTHING))
    for name in ("tiny-0", "small-0", "middle-0", "large-0"):
        workers.end(name)
    assert [world.replicas.get(name, 0).log.log_end_offset for name in SIZES] == [2, 10, 20, 40]


def test_the_recovery_point_is_where_the_log_ends() -> None:
    disk = killed()
    world, workers = restarted(disk)
    workers.end("large-0")
    world.log_dirs[0].checkpoints.prepare_recovery_points()()
    assert b"large 0 40\n" in read_file(disk, "d0/recovery-point-offset-checkpoint")
    assert world.replicas.get("large", 0).log.recovery_point == 40


# -- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_log_whose_worker_dies_is_recovered_here(caplog: pytest.LogCaptureFixture) -> None:
    world, workers = restarted(killed())
    workers.end("large-0", WorkerDied("killed"))
    assert use(world.replicas.get("large", 0)) == 40
    assert "large-0: its log is recovered again, in the process of the node" in caplog.text
    # Its slot is free.
    assert len(workers.running) == 2


class Threads:
    """Calls that threads have not made yet."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.calls: list[tuple[asyncio.Future[Any], Callable[[], Any]]] = []
        monkeypatch.setattr(world.runtime, "run_blocking", self._take)

    def _take(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.world.loop.create_future()
        self.calls.append((future, partial(function, *arguments)))
        return future

    def end_one(self) -> None:
        future, call = self.calls.pop(0)
        try:
            future.set_result(call())
        except OSError as error:
            future.set_exception(error)
        self.world.loop.settle()


def test_without_workers_a_thread_recovers_and_the_loop_touches_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    world, workers = restarted(killed())
    threads = Threads(world, monkeypatch)
    before = len(world.disk.calls)
    workers.end("large-0", WorkerDied("killed"))
    assert len(world.disk.calls) == before
    while world.replicas.get("large", 0).recovering:
        threads.end_one()
    assert len(world.disk.calls) > before
    assert use(world.replicas.get("large", 0)) == 40


def test_a_topic_that_is_deleted_while_a_thread_recovers_it_is_not_touched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, workers = restarted(killed())
    threads = Threads(world, monkeypatch)
    workers.end("large-0", WorkerDied("killed"))
    threads.end_one()
    world.delete("large")
    # The part that was under way meets a folder that is gone.
    threads.end_one()
    assert "large-0" not in world.folders()
    assert not world.failures
    # Its slot is free.
    assert len(workers.running) == 2


def test_a_stop_waits_for_the_thread_that_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    world, workers = restarted(killed())
    threads = Threads(world, monkeypatch)
    workers.end("large-0", WorkerDied("killed"))
    world.replicas.stop()
    ended = asyncio.Task(world.replicas.logs.recovery.ended(), loop=as_loop(world.loop))
    world.loop.settle()
    assert not ended.done()
    threads.end_one()
    assert ended.done()
    assert not threads.calls
    assert world.replicas.get("large", 0).recovering


def test_a_thread_looks_how_much_there_is_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(disk=killed())
    Workers(world)
    for name in SIZES:
        world.publish(*topic(name, 1, (1,)))
    threads = Threads(world, monkeypatch)
    world.replicas.start()
    before = len(world.disk.calls)
    world.loop.settle()
    assert len(world.disk.calls) == before
    assert world.replicas.logs.recovery.progress.so_far() is None
    world.delete("middle")
    threads.end_one()
    assert world.replicas.logs.recovery.progress.so_far() is not None
    assert {name: world.replicas.get(name, 0).recovering for name in ("tiny", "small", "large")} == {
        "tiny": True,
        "small": True,
        "large": True,
    }


def test_a_disk_that_fails_takes_its_directory_offline() -> None:
    world, workers = restarted(killed())
    workers.end("tiny-0")
    workers.end("large-0", OSError(errno.EIO, "broken"))
    assert [log_dir.path for log_dir, _ in world.failures] == ["d0"]
    assert not workers.running
    for partition in world.replicas:
        assert code_of(partial(use, partition)) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_full_disk_is_tried_again() -> None:
    world, workers = restarted(killed())
    workers.end("tiny-0", OSError(errno.ENOSPC, "full"))
    assert not world.failures
    assert code_of(lambda: use(world.replicas.get("tiny", 0))) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    for name in ("large-0", "small-0", "middle-0"):
        workers.end(name)
    world.loop.advance(11)
    workers.end("tiny-0")
    assert use(world.replicas.get("tiny", 0)) == 1


def test_a_bug_costs_one_partition(caplog: pytest.LogCaptureFixture) -> None:
    world, workers = restarted(killed())
    told: list[str] = []
    world.replicas.get("tiny", 0).when_recovered(lambda: told.append("tiny"))
    workers.end("tiny-0", ValueError("a bug"))
    assert told == ["tiny"]
    assert code_of(lambda: use(world.replicas.get("tiny", 0))) == ErrorCode.KAFKA_STORAGE_ERROR
    assert "tiny-0: its log cannot be recovered, so the partition stays offline: a bug" in caplog.text
    workers.end("large-0")
    assert use(world.replicas.get("large", 0)) == 40


def test_a_topic_that_is_deleted_and_made_again_meanwhile() -> None:
    world, workers = restarted(killed())
    assert "large-0" in workers.running
    world.delete("large")
    world.delete("middle")
    world.loop.settle()
    assert set(workers.running) == {"tiny-0", "small-0"}
    assert use(world.create("large", unique=1)) == 0
    workers.end("tiny-0")
    workers.end("small-0")
    assert not any(name.startswith("middle") for name, *_ in workers.jobs)


def test_a_folder_of_another_topic_of_that_name_is_not_recovered() -> None:
    disk = killed({"t": 3})
    world = World(disk=disk)
    workers = Workers(world)
    world.publish(*topic("t", 1, (1,), 5))
    world.replicas.start()
    world.loop.settle()
    assert not workers.jobs
    assert use(world.replicas.get("t", 0)) == 0


# -- telling ----------------------------------------------------------------------------------------------------------


def test_progress_is_told_and_measured(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world, workers = restarted(killed())
    total = sum(size for name in SIZES for _, size in world.disk.scan(f"d0/{name}-0") if _.endswith(".log"))
    assert world.replicas.logs.recovery.progress.so_far() == (0, total, 4)
    gauges = {name: value for name, value in world.metrics.snapshot().items() if name.startswith(GAUGES)}
    assert gauges == {
        f"{GAUGES}LogsToRecover,dir=d0": 4,
        f"{GAUGES}SegmentsToRecover,dir=d0,threadNum=0": 1,
        f"{GAUGES}SegmentsToRecover,dir=d0,threadNum=1": 1,
    }
    caplog.clear()
    workers.jobs[1][3](1000)
    for _ in range(5):
        world.loop.advance(2)
    lines = [message for message in caplog.messages if "logs left" in message]
    assert len(lines) >= 5
    assert lines[0].startswith("Recovering the logs in d0: 4 logs left, ")
    assert world.replicas.logs.recovery.progress.so_far() == (1000, total, 4)
    for name in ("tiny-0", "large-0", "small-0", "middle-0"):
        workers.end(name)
    assert world.replicas.logs.recovery.progress.so_far() is None
    assert not [name for name in world.metrics.snapshot() if name.startswith(GAUGES)]
    caplog.clear()
    world.loop.advance(10)
    assert not caplog.messages


def test_empty_logs_are_counted_and_each_is_a_line_of_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    sizes = {"tiny": 1, "none": 0, "nothing": 0}
    _, workers = restarted(killed(sizes), list(sizes))
    for name in ("none-0", "tiny-0", "nothing-0"):
        workers.end(name)
    assert [line.partition(":")[0] for line in caplog.messages if line.startswith("Partition ")] == ["Partition tiny-0"]
    (end,) = [line for line in caplog.messages if line.startswith("Recovered the logs in ")]
    assert end.startswith("Recovered the logs in d0: 3 logs, of which 2 are empty, ")


def test_directories_are_recovered_beside_each_other() -> None:
    disk = killed(directories=2)
    world, workers = restarted(disk)
    held = {log_dir.path: len(log_dir.folders.partitions) for log_dir in world.log_dirs}
    assert len(workers.running) == sum(min(2, count) for count in held.values())


def test_warnings_are_the_partitions(caplog: pytest.LogCaptureFixture) -> None:
    disk = killed()
    file = disk.open("d0/large-0/00000000000000000000.log")
    file.pwritev([b"\xff"], 70 * 3)
    _, workers = restarted(disk)
    workers.end("large-0")
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert warnings[0].startswith("Partition large-0: 00000000000000000000.log is damaged at position ")


def test_logs_of_a_clean_stop_are_opened_on_first_use_and_then_one_by_one() -> None:
    disk = killed()
    world, workers = restarted(disk)
    for name in ("tiny-0", "large-0", "small-0", "middle-0"):
        workers.end(name)
    world.replicas.stop()
    world.log_dirs[0].close(clean=True)
    world, workers = restarted(disk)
    assert not workers.jobs
    partitions = [world.replicas.get(name, 0) for name in SIZES]
    assert not [partition for partition in partitions if partition.log_if_open]
    described = world.replicas.logs.directories.describe(None)[0].replicas
    assert {replica.topic: replica.size_bytes > 0 for replica in described} == dict.fromkeys(SIZES, True)
    use(partitions[2])
    world.replicas.logs.opener.serve()
    world.loop.turn()
    assert [partition.log_if_open is not None for partition in partitions] == [True, False, True, False]
    world.loop.advance(1)
    assert all(partition.log_if_open for partition in partitions)
    assert world.replicas.logs.directories.describe(None)[0].replicas


# -- the stop ---------------------------------------------------------------------------------------------------------


def end(world: World, jobs: int) -> None:
    """Run `close` to its end. Blocking calls are immediate in this world."""
    loop = asyncio.new_event_loop()
    world.runtime.run_blocking = partial(run_here, loop)  # type: ignore[method-assign]
    try:
        loop.run_until_complete(close(world.runtime, world.log_dirs[0], clean=True, broker_epoch=7, jobs=jobs))
    finally:
        loop.close()


def run_here(loop: asyncio.AbstractEventLoop, function: Callable[..., Any], *args: object) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = loop.create_future()
    try:
        future.set_result(function(*args))
    except Exception as error:  # noqa: BLE001  # any error of a call is its result
        future.set_exception(error)
    return future


@pytest.mark.parametrize("jobs", [1, 3, 100])
def test_every_log_is_durable_after_a_stop(jobs: int) -> None:
    world = World()
    for number in range(7):
        use(world.create(f"t{number}"))
    world.disk.fsync_dir(".")
    end(world, jobs)
    disk = world.disk.power_loss()
    world, workers = restarted(disk, [f"t{number}" for number in range(7)])
    assert not workers.jobs
    assert [partition.log.log_end_offset for partition in world.replicas] == [1] * 7


def test_a_log_that_cannot_be_made_durable_is_no_clean_stop() -> None:
    world = World()
    for number in range(4):
        use(world.create(f"t{number}"))
    world.disk.fail_next("fsync", errno.EIO, path_contains="d0/t2-0/", count=None)
    with pytest.raises(StorageError):
        end(world, 2)
    assert not world.disk.exists("d0/.kafka_cleanshutdown")
    world.disk.heal()
    disk = world.disk.power_loss(Survive.EVERYTHING)
    world, workers = restarted(disk, [f"t{number}" for number in range(4)])
    while workers.running:
        workers.end(workers.running[0])
    assert [partition.log.log_end_offset for partition in world.replicas] == [1] * 4


# -- many small ones --------------------------------------------------------------------------------------------------


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    monkeypatch.setattr(recovery, "SMALL_BYTES", 1000)
    monkeypatch.setattr(recovery, "DIRECT_LOGS", 3)
    monkeypatch.setattr(recovery, "SMALL_PER_JOB", 3)
    return {"a": 1, "b": 2, "c": 3, "d": 4, "large": 40}


def test_small_logs_share_a_job(many: dict[str, int]) -> None:
    world, workers = restarted(killed(many), list(many))
    assert workers.running == ["a-0,b-0,c-0", "large-0"]
    for job in list(workers.running):
        workers.end(job)
    assert workers.running == ["d-0"]
    workers.end("d-0")
    # No request has asked for them yet.
    assert not [partition for partition in world.replicas if partition.log_if_open]
    assert {name: use(world.replicas.get(name, 0)) for name in many} == many


def test_what_was_recovered_is_opened_when_nobody_asks(many: dict[str, int]) -> None:
    world, workers = restarted(killed(many), list(many))
    world.replicas.logs.opener.serve()
    while workers.running:
        workers.end(workers.running[0])
        world.loop.advance(1)
    assert all(partition.log_if_open for partition in world.replicas)


def test_a_job_that_fails_costs_only_the_log_that_made_it_fail(
    many: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    world, workers = restarted(killed(many), list(many))
    workers.end("a-0,b-0,c-0", ValueError("a bug"))
    workers.end("large-0")
    assert workers.running == ["a-0", "b-0"]
    workers.end("a-0")
    workers.end("b-0", ValueError("a bug"))
    while workers.running:
        workers.end(workers.running[0])
    assert code_of(lambda: use(world.replicas.get("b", 0))) == ErrorCode.KAFKA_STORAGE_ERROR
    assert [use(world.replicas.get(name, 0)) for name in ("a", "c", "d", "large")] == [1, 3, 4, 40]


def test_a_topic_that_is_deleted_ends_the_job_and_the_others_wait_again(many: dict[str, int]) -> None:
    world, workers = restarted(killed(many), list(many))
    world.delete("b")
    world.loop.settle()
    assert workers.running == ["large-0", "a-0,c-0,d-0"]
    for job in list(workers.running):
        workers.end(job)
    assert [use(world.replicas.get(name, 0)) for name in ("a", "c", "d", "large")] == [1, 3, 4, 40]


def test_a_worker_that_dies_with_many_logs(many: dict[str, int]) -> None:
    world, workers = restarted(killed(many), list(many))
    workers.end("a-0,b-0,c-0", WorkerDied("killed"))
    assert [use(world.replicas.get(name, 0)) for name in ("a", "b", "c")] == [1, 2, 3]
