"""The log cleaner of a whole node: its configuration, its metrics, and its behaviour after errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykbroker_log.compaction import CleaningJob
from pykbroker_log.memory_disk import Survive
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from testkit.acting import acts
from testkit.nodes.sim import BROKER, TOPIC, Sim, open_sims

COMPACTED = {"cleanup.policy": "compact", "internal.segment.bytes": "250", "min.cleanable.dirty.ratio": "0.01"}
CLEANER = "kafka.log:type=LogCleaner,name="
MANAGER = "kafka.log:type=LogCleanerManager,name="


@pytest.fixture
def sims() -> Iterator[Callable[..., Sim]]:
    with open_sims() as make:
        yield make


async def fill(sim: Sim, topic: str = "t", count: int = 9) -> None:
    for number in range(count):
        answer = await sim.produce(topic, sim.batch(b"%d" % number * 100, key=b"k"))
        assert answer.error_code == ErrorCode.NONE, answer


async def records(sim: Sim, topic: str = "t") -> int:
    return sum(header.record_count for header in await sim.everything(topic))


def watch(sim: Sim) -> list[tuple[float, CleaningJob, float | None]]:
    """When a worker was asked for what, and how fast it may be."""
    runtime: Any = sim.node.services.runtime
    asked: list[tuple[float, CleaningJob, float | None]] = []
    run_apart = runtime.run_apart

    def run(job: Any, *args: Any, **named: Any) -> Any:
        if isinstance(args[0], CleaningJob):
            asked.append((runtime.loop.time(), args[0], named.get("bytes_per_second")))
        return run_apart(job, *args, **named)

    runtime.run_apart = run
    return asked


@acts(
    broker=(
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
    )
)
def test_the_cleaner_is_reconfigured_while_it_runs(sims: Callable[..., Sim]) -> None:
    async def scenario(sim: Sim) -> None:
        for topic in ("t", "u"):
            await sim.create(topic, COMPACTED)
        asked = watch(sim)
        await fill(sim)
        await fill(sim, "u")
        await asyncio.sleep(20)
        assert [(cleaning.memory.map_bytes, cleaning.memory.load_factor) for _, cleaning, _ in asked] == [
            (128 << 20, 0.9)
        ] * 2
        assert asked[0][1].memory.io_buffer_bytes == 256 << 10
        assert {"/data/t-0", "/data/u-0"} == {cleaning.folder for _, cleaning, _ in asked}
        asked.clear()
        await sim.alter(
            BROKER,
            "",
            {
                "log.cleaner.threads": "2",
                "log.cleaner.dedupe.buffer.size": "10000000",
                "log.cleaner.io.buffer.load.factor": "0.5",
                "log.cleaner.io.buffer.size": "40000",
                "log.cleaner.io.max.bytes.per.second": "1000000",
                "log.cleaner.backoff.ms": "100",
            },
        )
        await fill(sim)
        begun = sim.world.loop.time()
        await asyncio.sleep(1)
        at, cleaning, rate = asked[0]
        assert at - begun < 0.2
        memory = cleaning.memory
        # Shared by two threads.
        assert (memory.map_bytes, memory.load_factor, memory.io_buffer_bytes, rate) == (5_000_000, 0.5, 10_000, 500_000)
        assert await records(sim) < 4

    sims().run(scenario)


@acts(broker=("log.cleaner.enable",))
def test_without_a_cleaner_nothing_is_compacted(sims: Callable[..., Sim]) -> None:
    async def scenario(sim: Sim) -> int:
        await sim.create("t", COMPACTED)
        await fill(sim)
        await asyncio.sleep(60)
        return await records(sim)

    assert sims({"log.cleaner.enable": "false"}).run(scenario) == 9
    assert sims().run(scenario) < 4


def test_a_topic_becomes_compacted_and_stops_being_it(sims: Callable[..., Sim]) -> None:
    async def scenario(sim: Sim) -> None:
        await sim.create("t", {**COMPACTED, "cleanup.policy": "delete"})
        await fill(sim)
        answer = await sim.produce("t", sim.batch(b"without a key", key=None))
        assert answer.error_code == ErrorCode.NONE
        await fill(sim, count=4)
        await asyncio.sleep(60)
        assert await records(sim) == 14
        await sim.alter(TOPIC, "t", {"cleanup.policy": "compact"})
        answer = await sim.produce("t", sim.batch(b"without a key", key=None))
        assert answer.error_code == ErrorCode.INVALID_RECORD, "refused from now on"
        await asyncio.sleep(60)
        left = await records(sim)
        assert left < 5, "the one without a key is gone as well"
        await sim.alter(TOPIC, "t", {"cleanup.policy": "delete"})
        await fill(sim)
        await asyncio.sleep(60)
        assert await records(sim) == left + 9
        # A compacted log has gaps, and recovery after a crash does not take them for a loss.
        end = sim.log("t").log_end_offset
        sim.sim_node.kill(Survive.EVERYTHING)
        await sim.sim_node.start()
        assert (await sim.recovered("t")).log_end_offset == end
        assert await records(sim) == left + 9

    sims().run(scenario)


def test_compact_and_delete_both_act(sims: Callable[..., Sim]) -> None:
    async def scenario(sim: Sim) -> None:
        await sim.create("t", {**COMPACTED, "cleanup.policy": "compact,delete", "retention.ms": "40000"})
        await fill(sim)
        await asyncio.sleep(20)
        assert 0 < await records(sim) < 4
        assert sim.log("t").log_start_offset == 0
        await asyncio.sleep(60)
        await fill(sim, count=1)
        assert sim.log("t").log_start_offset > 0, "the cleaner looks after retention as well"

    sims({"log.retention.check.interval.ms": "100000000"}).run(scenario)


def test_damage_costs_this_log_its_cleaning_and_no_other(
    sims: Callable[..., Sim], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario(sim: Sim) -> None:
        for topic in ("t", "u"):
            await sim.create(topic, COMPACTED)
            await fill(sim, topic)
        segment = sim.log("t").files.segments[0]
        segment.file.pwritev([b"?"], 80)
        await asyncio.sleep(60)
        assert await records(sim, "u") < 4
        assert len(sim.files("t")) > 4
        metrics = sim.node.services.metrics.snapshot()
        assert metrics[f"{MANAGER}uncleanable-partitions-count,logDirectory=/data"] == 1
        assert metrics[f"{MANAGER}uncleanable-bytes,logDirectory=/data"] > 800
        assert metrics[f"{CLEANER}DeadThreadCount"] == 0
        assert metrics[f"{MANAGER}time-since-last-run-ms"] <= 15_000
        assert 0 < metrics[f"{CLEANER}cleaner-recopy-percent"] < 100
        assert f"{MANAGER}max-dirty-percent" in metrics
        await sim.delete("t")
        await asyncio.sleep(1)
        assert sim.node.services.metrics.snapshot()[f"{MANAGER}uncleanable-partitions-count,logDirectory=/data"] == 0

    sims().run(scenario)
    said = [record.getMessage() for record in caplog.records]
    assert any(
        "Marking its partition (t-0) as uncleanable" in line and "00000.log at position" in line for line in said
    )
    assert any("cleaned log u-0 (dirty section = [0, 8])" in line and "fewer messages" in line for line in said)


def test_the_checkpoint_is_apache_kafkas_file(sims: Callable[..., Sim]) -> None:
    async def scenario(sim: Sim) -> None:
        await sim.create("t", COMPACTED)
        await fill(sim)
        await asyncio.sleep(60)
        active = sim.log("t").files.segments[-1].base_offset
        file = sim.disk.open("/data/cleaner-offset-checkpoint")
        assert file.pread(1000, 0) == f"0\n1\nt 0 {active}\n".encode()
        asked = watch(sim)
        await asyncio.sleep(60)
        assert asked == [], "nothing new, nothing to do"
        await sim.delete("t")
        sim.topic_ids.clear()
        await sim.create("t", COMPACTED)
        await fill(sim)
        await asyncio.sleep(60)
        assert asked[0][1].first_dirty_offset == 0, "another topic of the same name begins afresh"

    sims().run(scenario)


def test_a_log_is_known_to_have_gaps_before_it_has_them(sims: Callable[..., Sim]) -> None:
    async def scenario(sim: Sim) -> None:
        await sim.create("t", COMPACTED)
        known: list[bytes] = []
        runtime: Any = sim.node.services.runtime
        run_apart = runtime.run_apart

        def run(job: Any, *args: Any, **named: Any) -> Any:
            if isinstance(args[0], CleaningJob):
                # As a start finds it that follows a loss of power.
                disk = sim.disk.power_loss(Survive.NOTHING)
                known.append(disk.open("/data/cleaner-offset-checkpoint").pread(1000, 0))
            return run_apart(job, *args, **named)

        runtime.run_apart = run
        await fill(sim)
        await asyncio.sleep(60)
        assert known[0] == b"0\n1\nt 0 0\n"

    sims().run(scenario)


def test_a_log_that_moves_is_compacted_when_it_has_arrived(sims: Callable[..., Sim]) -> None:
    """The copied batches must stay in place: the cleaner waits, and continues in the other directory."""

    async def scenario(sim: Sim) -> None:
        await sim.create("t", COMPACTED)
        [source] = [root for root in ("/one", "/two") if f"{root}/t-0" in sim.log("t").path]
        target = "/two" if source == "/one" else "/one"
        asked = watch(sim)
        await sim.alter(BROKER, "", {"replica.alter.log.dirs.io.max.bytes.per.second": "1"})
        wanted = AlterReplicaLogDir(path=target, topics=[AlterReplicaLogDirTopic(name="t", partitions=[0])])
        await fill(sim)
        answer = await sim.call(AlterReplicaLogDirsRequest(dirs=[wanted]))
        assert answer.results[0].partitions[0].error_code == ErrorCode.NONE
        await asyncio.sleep(60)
        await fill(sim)
        await asyncio.sleep(60)
        assert sim.log("t").path == f"{source}/t-0", "it is still on its way"
        assert asked == []
        assert await records(sim) == 18

        await sim.alter(BROKER, "", {"replica.alter.log.dirs.io.max.bytes.per.second": None})
        await asyncio.sleep(60)
        assert sim.log("t").path == f"{target}/t-0"
        assert {cleaning.folder for _, cleaning, _ in asked} == {f"{target}/t-0"}
        assert await records(sim) < 4
        assert (await sim.everything("t"))[-1].next_offset == 18
        sim.sim_node.kill(Survive.NOTHING)
        await sim.sim_node.start()
        assert (await sim.recovered("t")).path == f"{target}/t-0"

    sims({"log.dirs": "/one,/two"}).run(scenario)
