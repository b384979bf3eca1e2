"""Replicas that move between log directories of a whole node while it serves, has faults, and is restarted."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from pykbroker.runtime.workers import CUT_OFF
from pykbroker.storage import moves
from pykbroker_log.copying import copy_stretch
from pykbroker_log.memory_disk import Survive
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from pykbroker_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from testkit.acting import acts
from testkit.nodes.sim import BROKER, Sim, playing
from tests.simulation.test_disk_faults import STORAGE, log_dirs, values

T = TypeVar("T")
Play = Callable[..., Any]
THREE = {"log.dirs": "/one,/two,/three", "metadata.log.dir": "/meta"}
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
SMALL = {"internal.segment.bytes": "3000", "file.delete.delay.ms": "0"}


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    # So that the last turn of a move does not copy these small logs as a whole.
    monkeypatch.setattr(moves, "LAST_BYTES", 500)
    with playing(THREE) as run:
        yield run


async def alter(sim: Sim, topic: str, path: str, index: int = 0) -> int:
    wanted = AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[index])])
    answer = await sim.call(AlterReplicaLogDirsRequest(dirs=[wanted]))
    return int(answer.results[0].partitions[0].error_code)


async def where(sim: Sim, topic: str) -> tuple[list[str], list[str]]:
    """Return the directories with a log of the topic, and those with a copy that is being made."""
    logs: list[str] = []
    copies: list[str] = []
    for path, result in (await log_dirs(sim)).items():
        for found in result.topics:
            if found.name == topic:
                for partition in found.partitions:
                    (copies if partition.is_future_key else logs).append(path)
    return logs, copies


def folders(sim: Sim, topic: str) -> list[str]:
    return [
        f"{root}/{name}"
        for root in ("/one", "/two", "/three")
        for name in sim.disk.list(root)
        if name.startswith(topic)
    ]


async def filled(sim: Sim, count: int = 30, configs: dict[str, str] | None = None) -> list[bytes]:
    """Create a topic `t` in /one, with several segments."""
    assert await alter(sim, "t", "/one") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await sim.create("t", {**SMALL, **(configs or {})})
    sent = [b"%03d" % number + b"x" * 500 for number in range(count)]
    for value in sent:
        await sim.send("t", value)
    assert await where(sim, "t") == (["/one"], [])
    return sent


async def settled(sim: Sim) -> None:
    """Wait until no replica is moving."""
    for _ in range(1000):
        await asyncio.sleep(0.1)
        if not sim.node.services.replicas.logs.moves._moves:
            return
    raise AssertionError("it never ends")


def test_a_replica_moves(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        sent = await filled(sim)
        assert len(sim.files("t", root="/one")) > 4
        assert await alter(sim, "t", "/two") == ErrorCode.NONE
        await settled(sim)
        assert await where(sim, "t") == (["/two"], [])
        assert await values(sim, "t") == sent
        await asyncio.sleep(2)
        assert folders(sim, "t") == ["/two/t-0"]
        image = sim.node.loader.image.topics.partition("t", 0)
        two = next(log_dir for log_dir in sim.node.services.replicas.logs.directories if log_dir.path == "/two")
        assert image is not None
        assert image.directory(1) == two.directory_id
        await sim.send("t", b"after")
        for _ in range(2):
            await sim.sim_node.stop()
            await sim.sim_node.start()
            assert await values(sim, "t") == [*sent, b"after"]
        assert await where(sim, "t") == (["/two"], [])

    play(scenario)


def test_a_replica_moves_while_it_is_written_to(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        sent = await filled(sim)
        done = asyncio.Event()

        async def write() -> None:
            while not done.is_set():
                value = b"%05d" % len(sent) + b"y" * 300
                answer = await sim.produce(
                    "t", sim.batch(value, producer_id=7, producer_epoch=0, base_sequence=len(sent))
                )
                assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, len(sent))
                sent.append(value)
                await asyncio.sleep(0)

        writing = asyncio.ensure_future(write())
        for path in ("/two", "/three", "/one"):
            assert await alter(sim, "t", path) == ErrorCode.NONE
            await settled(sim)
            assert await where(sim, "t") == ([path], [])
        done.set()
        await writing
        assert len(sent) > 100
        assert await values(sim, "t") == sent

    play(scenario)


@pytest.mark.parametrize("clean", [True, False])
def test_a_move_goes_on_after_a_restart(play: Play, clean: bool) -> None:
    async def scenario(sim: Sim) -> None:
        sent = await filled(sim)
        await sim.alter(BROKER, "", {RATE: "1000"})
        assert await alter(sim, "t", "/two") == ErrorCode.NONE
        await asyncio.sleep(5)
        logs, copies = await where(sim, "t")
        assert (logs, copies) == (["/one"], ["/two"])
        (topic,) = [topic for topic in (await log_dirs(sim))["/two"].topics if topic.name == "t"]
        assert 2_000 < topic.partitions[0].partition_size < 8_000
        assert 10 < topic.partitions[0].offset_lag < 28
        if clean:
            await sim.sim_node.stop()
        else:
            sim.sim_node.kill(Survive.EVERYTHING)
        await sim.sim_node.start()
        assert len([name for name in folders(sim, "t") if "future" in name]) == 1
        await sim.send("t", b"meanwhile")
        await asyncio.sleep(3)
        (topic,) = [topic for topic in (await log_dirs(sim))["/two"].topics if topic.name == "t"]
        # It continues from where it was.
        assert topic.partitions[0].partition_size > 4_000
        await sim.alter(BROKER, "", {RATE: None})
        await settled(sim)
        assert await where(sim, "t") == (["/two"], [])
        assert await values(sim, "t") == [*sent, b"meanwhile"]

    play(scenario)


@acts(broker=("replica.alter.log.dirs.io.max.bytes.per.second",))
def test_moves_share_a_throttle(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        sent = await filled(sim)

        async def copied() -> int:
            (topic,) = [topic for topic in (await log_dirs(sim))["/two"].topics if topic.name == "t"]
            return int(topic.partitions[0].partition_size)

        await sim.alter(BROKER, "", {RATE: "600"})
        assert await alter(sim, "t", "/two") == ErrorCode.NONE
        await asyncio.sleep(10)
        assert 5_000 <= await copied() <= 7_500
        # A lower rate applies at once, also to what has been copied already.
        await sim.alter(BROKER, "", {RATE: "6"})
        before = await copied()
        await asyncio.sleep(60)
        assert await copied() - before <= 1_200
        await sim.alter(BROKER, "", {RATE: None})
        await settled(sim)
        assert await values(sim, "t") == sent

    play(scenario)


@acts(broker=("num.replica.alter.log.dirs.threads",))
def test_so_many_replicas_are_copied_at_once(play: Play) -> None:
    async def most_at_once(sim: Sim) -> int:
        for number in range(8):
            await alter(sim, f"t{number}", "/one")
            await sim.create(f"t{number}")
            await sim.send(f"t{number}", b"x" * 3_000)
        copying = sim.node.services.replicas.logs.moves
        step, most = copying._copy, 0

        def watched(*args: Any) -> None:
            nonlocal most
            step(*args)
            most = max(most, len(copying._busy))

        copying._copy = watched  # type: ignore[method-assign,assignment]
        answers = await asyncio.gather(*(alter(sim, f"t{number}", "/two") for number in range(8)))
        assert answers == [ErrorCode.NONE] * 8
        await settled(sim)
        return most

    assert play(most_at_once) == 3  # the number of directories
    assert play(most_at_once, {"num.replica.alter.log.dirs.threads": "1"}) == 1
    assert play(most_at_once, {"num.replica.alter.log.dirs.threads": "2"}) == 2


@acts(broker=("cordoned.log.dirs",))
def test_a_cordoned_directory_gets_no_new_replicas(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        for number in range(4):
            await sim.create(f"t{number}")
            assert (await where(sim, f"t{number}"))[0] in (["/one"], ["/three"])
        assert {path: result.is_cordoned for path, result in (await log_dirs(sim)).items()} == {
            "/one": False, "/two": True, "/three": False,
        }  # fmt: skip
        assert await alter(sim, "t0", "/two") == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        await sim.alter(BROKER, "1", {"cordoned.log.dirs": "*"})
        assert (await sim.try_create("none")).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        await sim.send("t0", b"goes on")
        await sim.alter(BROKER, "1", {"cordoned.log.dirs": "/one,/three"})
        await sim.create("new")
        assert await where(sim, "new") == (["/two"], [])
        assert await alter(sim, "t0", "/two") == ErrorCode.NONE
        await settled(sim)
        assert await where(sim, "t0") == (["/two"], [])
        assert await values(sim, "t0") == [b"goes on"]
        # A setting of this run stays in force after the next start.
        await sim.sim_node.stop()
        await sim.sim_node.start()
        await sim.create("newer")
        assert await where(sim, "newer") == (["/two"], [])

    play(scenario, {"cordoned.log.dirs": "/two"})


def test_a_move_is_given_up_or_sent_elsewhere(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        sent = await filled(sim)
        await sim.alter(BROKER, "", {RATE: "1000"})
        assert await alter(sim, "t", "/two") == ErrorCode.NONE
        await asyncio.sleep(3)
        assert await alter(sim, "t", "/two") == ErrorCode.NONE
        assert await where(sim, "t") == (["/one"], ["/two"])
        assert await alter(sim, "t", "/three") == ErrorCode.NONE
        await asyncio.sleep(3)
        assert await where(sim, "t") == (["/one"], ["/three"])
        assert await alter(sim, "t", "/one") == ErrorCode.NONE
        await asyncio.sleep(3)
        assert await where(sim, "t") == (["/one"], [])
        assert folders(sim, "t") == ["/one/t-0"]
        await sim.alter(BROKER, "", {RATE: None})
        assert await alter(sim, "t", "/two") == ErrorCode.NONE
        await settled(sim)
        assert await where(sim, "t") == (["/two"], [])
        assert await values(sim, "t") == sent

    play(scenario)


def test_what_is_refused(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        await filled(sim)
        assert await alter(sim, "t", "/nowhere") == ErrorCode.LOG_DIR_NOT_FOUND
        assert await alter(sim, "t", "/one/") == ErrorCode.LOG_DIR_NOT_FOUND
        assert await alter(sim, "unknown", "/two") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await alter(sim, "t", "/two", index=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        long = "x" * 230
        await sim.create(long)
        assert await alter(sim, long, "/two") == ErrorCode.INVALID_TOPIC_EXCEPTION
        sim.node.services.replicas.logs.directories._log_dirs[2].offline = True
        assert await alter(sim, "t", "/three") == STORAGE
        # A copy may be in a directory that the node cannot read.
        assert await alter(sim, "t", "/two") == STORAGE

    play(scenario)


def test_a_replica_is_made_where_it_was_said_before(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        for number, path in enumerate(["/three", "/three", "/one", "/three"]):
            await alter(sim, f"t{number}", path)
            await sim.create(f"t{number}")
            await sim.send(f"t{number}", b"x")
            assert await where(sim, f"t{number}") == ([path], [])

    play(scenario)


def test_records_are_deleted_and_segments_retired_under_a_move(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        sent = await filled(sim)
        await sim.alter(BROKER, "", {RATE: "200"})
        assert await alter(sim, "t", "/two") == ErrorCode.NONE
        await asyncio.sleep(3)
        partition = DeleteRecordsPartition(partition_index=0, offset=20)
        topics = [DeleteRecordsTopic(name="t", partitions=[partition])]
        answer = await sim.call(DeleteRecordsRequest(topics=topics, timeout_ms=10_000))
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        # Retention deletes the files that were being copied.
        await asyncio.sleep(8)
        assert await where(sim, "t") == (["/one"], ["/two"])
        assert len(sim.files("t", root="/one")) < 4
        await sim.alter(BROKER, "", {RATE: None})
        await settled(sim)
        assert await where(sim, "t") == (["/two"], [])
        log = sim.log("t")
        assert (log.log_start_offset, log.log_end_offset) == (20, 30)
        answer = (await sim.fetch("t", 20)).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.NONE
        assert (await sim.fetch("t", 19)).responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        await sim.send("t", sent[0])

    play(scenario)


def test_a_topic_is_deleted_under_a_move(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        await filled(sim)
        await sim.alter(BROKER, "", {RATE: "1000"})
        assert await alter(sim, "t", "/two") == ErrorCode.NONE
        await asyncio.sleep(3)
        assert await where(sim, "t") == (["/one"], ["/two"])
        await sim.delete("t")
        await asyncio.sleep(70)
        assert folders(sim, "t") == []
        sim.topic_ids.clear()
        await sim.create("t")
        await sim.send("t", b"new")
        assert await values(sim, "t") == [b"new"]

    play(scenario)


@pytest.mark.parametrize("operation", ["pwritev", "fsync", "create", "rename"])
@pytest.mark.parametrize("failing", ["/one", "/two"])
def test_a_directory_dies_under_a_move(play: Play, failing: str, operation: str) -> None:
    async def scenario(sim: Sim) -> None:
        sent = await filled(sim)
        await alter(sim, "other", "/three")
        await sim.create("other")
        await sim.send("other", b"kept")
        await sim.alter(BROKER, "", {RATE: "5000"})
        assert await alter(sim, "t", "/two") == ErrorCode.NONE
        sim.disk.fail_next(operation, path_contains=f"{failing}/t-0", skip=2, count=None)
        await sim.alter(BROKER, "", {RATE: None})
        for _ in range(10):
            await sim.produce("t", sim.batch(b"z" * 900))
        await asyncio.sleep(10)
        logs, copies = await where(sim, "t")
        assert copies == []
        found = {path: result.error_code for path, result in (await log_dirs(sim)).items()}
        assert found["/three"] == ErrorCode.NONE
        if logs:
            assert (await values(sim, "t"))[: len(sent)] == sent
            await sim.send("t", b"goes on")
        assert await values(sim, "other") == [b"kept"]
        await sim.sim_node.stop()
        await sim.sim_node.start()
        await settled(sim)
        assert (await values(sim, "t"))[: len(sent)] == sent
        assert len((await where(sim, "t"))[0]) == 1

    play(scenario)


def test_a_copy_that_dies_of_sigbus_costs_the_directory_it_goes_to(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(sim: Sim) -> None:
        sent = await filled(sim)
        runtime = sim.node.services.runtime
        run_apart = runtime.run_apart

        def dying(job: Any, *args: Any, **options: Any) -> Any:
            if job is not copy_stretch:
                return run_apart(job, *args, **options)
            died: asyncio.Future[Any] = runtime.loop.create_future()
            died.set_exception(OSError(errno.EIO, CUT_OFF))
            return died

        monkeypatch.setattr(runtime, "run_apart", dying)
        assert await alter(sim, "t", "/two") == ErrorCode.NONE
        await settled(sim)
        found = {path: result.error_code for path, result in (await log_dirs(sim)).items()}
        assert found == {"/one": ErrorCode.NONE, "/two": ErrorCode.KAFKA_STORAGE_ERROR, "/three": ErrorCode.NONE}
        assert await where(sim, "t") == (["/one"], [])
        await sim.send("t", b"goes on")
        assert await values(sim, "t") == [*sent, b"goes on"]

    play(scenario)


def test_a_copy_that_does_not_fit_is_given_up(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        sent = await filled(sim)
        sim.disk.capacity_bytes = sim.disk.used_bytes + 5_000
        assert await alter(sim, "t", "/two") == ErrorCode.NONE
        await settled(sim)
        assert await where(sim, "t") == (["/one"], [])
        assert folders(sim, "t") == ["/one/t-0"]
        assert [result.error_code for result in (await log_dirs(sim)).values()] == [ErrorCode.NONE] * 3
        assert await values(sim, "t") == sent
        name = "kafka.server:type=ReplicaAlterLogDirsManager,name=FailedPartitionsCount,clientId=ReplicaAlterLogDirs"
        assert sim.node.services.metrics.snapshot()[name] == 1
        sim.disk.capacity_bytes = 1 << 40
        assert await alter(sim, "t", "/two") == ErrorCode.NONE
        await settled(sim)
        assert await where(sim, "t") == (["/two"], [])
        assert await values(sim, "t") == sent

    play(scenario)


def test_a_damaged_log_does_not_move(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        await filled(sim)
        name = sim.files("t", root="/one")[1]
        file = sim.disk.open(f"/one/t-0/{name}")
        file.pwritev([bytes([file.pread(1, 300)[0] ^ 1])], 300)
        assert await alter(sim, "t", "/two") == ErrorCode.NONE
        await settled(sim)
        assert await where(sim, "t") == (["/one"], [])
        assert folders(sim, "t") == ["/one/t-0"]
        await sim.send("t", b"goes on")

    play(scenario)
