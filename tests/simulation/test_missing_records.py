"""A log that has lost records reports which ones."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable

import pytest

from pykbroker.controller.result import Result
from pykbroker.storage.missing import MOST_LINES
from pykbroker_log.disk import remove_tree, write_atomic, write_new
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pykbroker_wire.stored.metadata import ConfigRecord
from testkit.nodes.sim import TOPIC, Sim
from tests.simulation.recorded import METADATA, Recorded, contents, record, restarted

DAMAGES: dict[str, Callable[[MemoryDisk, str, bytes], None]] = {
    "removed": lambda disk, path, data: disk.unlink(path),
    "emptied": lambda disk, path, data: disk.open(path).truncate(0),
    "cut by a byte": lambda disk, path, data: disk.open(path).truncate(max(0, len(data) - 1)),
    "cut in half": lambda disk, path, data: disk.open(path).truncate(len(data) // 2),
    "cut to 30 bytes": lambda disk, path, data: disk.open(path).truncate(min(30, len(data))),
    "cut to 300 bytes": lambda disk, path, data: disk.open(path).truncate(min(300, len(data))),
    "garbage": lambda disk, path, data: write_new(disk, path, random.Random(1).randbytes(len(data) or 50)),
    "zeros": lambda disk, path, data: write_new(disk, path, bytes(len(data) or 50)),
}
CLEANS_AT_ONCE = {"min.cleanable.dirty.ratio": "0.01", "min.compaction.lag.ms": "0"}
LIVELY = {"log.cleaner.backoff.ms": "1000", "log.segment.delete.delay.ms": "1000"}
CASES = pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])


async def produce(sim: Sim) -> None:
    await sim.create("large", {"internal.segment.bytes": "700", "index.interval.bytes": "200"})
    await sim.create("small")
    await sim.create("empty")
    for number in range(15):
        await sim.send("large", b"%d" % number + b"x" * 100)
    await sim.send("small", b"one", b"two")
    await sim.send("small", b"three")


@functools.cache
def recording(clean: bool) -> Recorded:
    recorded = record(produce, clean=clean)
    assert len([name for name in recorded.disk.list("/data/large-0") if name.endswith(".log")]) > 3
    return recorded


#: Each damage after one of the two ends. A long run tries the other one.
ONCE = [(what, bool(number % 2)) for number, what in enumerate(DAMAGES)]


@pytest.mark.parametrize(("what", "clean"), ONCE)
@pytest.mark.slow
def test_each_file_of_a_data_directory_is_damaged(what: str, clean: bool) -> None:
    damage_each_file(what, clean)


@pytest.mark.long(amount="one damage to each file")
@pytest.mark.parametrize(("what", "clean"), [(what, not clean) for what, clean in ONCE])
def test_each_file_of_a_data_directory_is_damaged_after_the_other_end(what: str, clean: bool) -> None:
    damage_each_file(what, clean)


def damage_each_file(what: str, clean: bool) -> None:
    """The node has everything, or reports what is missing, or refuses to start."""
    recorded = recording(clean)
    for path in recorded.files():
        if path.startswith(METADATA):
            continue
        disk = recorded.copy()
        DAMAGES[what](disk, path, contents(disk, path))
        outcome = restarted(disk)
        if outcome.facts is None:
            assert "\n" not in outcome.refusal
            assert "/data" in outcome.refusal
            continue
        missing = outcome.facts.lacks(recorded.facts)
        folder = path.split("/")[2]
        told = [line for line in outcome.lines if folder in line] or folder.rpartition("-")[0] in outcome.facts.told
        assert not missing or told, f"{what} {path}: {missing} {outcome.lines}"


def unlink_segment(disk: MemoryDisk, folder: str, base: int) -> None:
    for name in disk.list(folder):
        if name.startswith(f"{base:020}."):
            disk.unlink(f"{folder}/{name}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "line"),
    [
        (12, "Partition large-0: the records from offset 12 to 14 are missing"),
        (4, "ends at position {}, offset 4: the records from offset 4 to 7 are missing"),
        (0, "nothing is left of what was before 00000000000000000004.log: the records from offset 0 to 3 are missing"),
    ],
)
def test_a_segment_that_is_gone_after_a_clean_stop_is_told(base: int, line: str) -> None:
    recorded = recording(True)
    disk = recorded.copy()
    folder = "/data/large-0"
    unlink_segment(disk, folder, base)
    outcome = restarted(disk)
    assert outcome.facts is not None
    wanted = line.format(len(contents(recorded.disk, f"{folder}/{0:020}.log")))
    assert len([told for told in outcome.lines if wanted in told]) == 1, outcome.lines
    missing = outcome.facts.lacks(recorded.facts)
    assert missing == [f"large {offset}" for offset in range(base, min(base + 4, 15))]


async def produce_and_say_tiered(sim: Sim) -> None:
    """Write what Apache Kafka's controller writes for a topic with tiers; ours refuses it."""
    await produce(sim)
    tiered = ConfigRecord(resource_type=TOPIC, resource_name="large", name="remote.storage.enable", value="true")
    controller = sim.node.controller.services.controller
    await controller.submit("written by a test", lambda state, now_ms: Result(None, [tiered]))


@pytest.mark.slow
@pytest.mark.parametrize("is_tiered", [False, True])
def test_a_checkpointed_start_before_the_first_segment_is_a_tier_only_if_the_topic_says_so(is_tiered: bool) -> None:
    """The files alone do not say whether the first records are in a tier or lost."""
    recorded = record(produce_and_say_tiered, clean=True) if is_tiered else recording(True)
    disk = recorded.copy()
    folder = "/data/large-0"
    unlink_segment(disk, folder, 0)
    write_atomic(disk, "/data/log-start-offset-checkpoint", b"0\n1\nlarge 0 0\n")
    before = {path: contents(disk, path) for path in Recorded(disk, recorded.facts).files() if "large" in path}
    outcome = restarted(disk)
    lost = [line for line in outcome.lines if "the records from offset 0 to 3 are missing" in line]
    if not is_tiered:
        assert outcome.facts is not None
        assert len(lost) == 1
        assert outcome.facts.lacks(recorded.facts) == [f"large {offset}" for offset in range(4)]
        return
    assert outcome.facts is None
    assert "remote.storage.enable=true" in outcome.refusal
    assert "of topic large" in outcome.refusal
    assert lost == []
    # Apache Kafka finds its log as it has left it.
    assert {path: contents(outcome.disk, path) for path in before} == before
    assert contents(outcome.disk, "/data/log-start-offset-checkpoint") == b"0\n1\nlarge 0 0\n"


def test_an_end_below_the_high_watermark_is_told_after_kill_9() -> None:
    recorded = recording(False)
    disk = recorded.copy()
    path = f"/data/small-0/{0:020}.log"
    disk.open(path).truncate(len(contents(disk, path)) - 5)
    outcome = restarted(disk)
    assert outcome.facts is not None
    assert outcome.facts.lacks(recorded.facts) == ["small 2"]
    assert [line for line in outcome.lines if "small-0" in line] == [
        "Partition small-0: the records from offset 2 to 2 are missing: they had been committed or flushed, and the "
        "log ends at offset 2"
    ]


@CASES
def test_a_folder_that_is_gone_is_told(clean: bool) -> None:
    recorded = recording(clean)
    disk = recorded.copy()
    remove_tree(disk, "/data/small-0")
    remove_tree(disk, "/data/empty-0")
    outcome = restarted(disk)
    assert outcome.facts is not None
    assert outcome.facts.lacks(recorded.facts) == ["small 0", "small 1", "small 2"]
    # A log without records has lost nothing.
    assert [line for line in outcome.lines if "missing" in line] == [
        "Partition small-0: its folder is missing, which had records up to offset 2; the log begins empty, as with "
        "Apache Kafka. If the folder still exists, stop the node and bring it back"
    ]
    # Its checkpoint is of the new log now.
    assert not [line for line in restarted(outcome.disk).lines if "missing" in line]


@CASES
def test_what_is_appended_behind_a_cut_is_readable(clean: bool) -> None:
    """The half of a batch that a cut leaves must not stay between two batches."""
    recorded = recording(clean)
    path = f"/data/small-0/{0:020}.log"
    disk = recorded.copy()
    disk.open(path).truncate(len(contents(disk, path)) - 5)

    async def append(sim: Sim) -> None:
        await sim.send("small", b"four", b"five")

    outcome = restarted(disk, then=append)
    assert outcome.facts is not None
    assert outcome.facts.records["small"] == {0: b"one", 1: b"two", 2: b"four", 3: b"five"}
    again = restarted(outcome.disk.power_loss(Survive.EVERYTHING))
    assert again.facts is not None
    assert again.facts.records["small"] == outcome.facts.records["small"]


def test_many_logs_share_a_line() -> None:
    async def many(sim: Sim) -> None:
        await sim.create("many", partitions=60)
        for partition in range(60):
            await sim.produce("many", sim.batch(b"x"), partition=partition)

    recorded = record(many, clean=True)
    disk = recorded.copy()
    for partition in range(60):
        disk.open(f"/data/many-{partition}/{0:020}.log").truncate(0)

    async def open_all(sim: Sim) -> None:
        await asyncio.sleep(60)

    outcome = restarted(disk, then=open_all)
    assert outcome.facts is not None
    alone = [line for line in outcome.lines if line.startswith("Partition many-")]
    shared = [line for line in outcome.lines if "more logs miss records" in line]
    assert (len(alone), len(shared)) == (MOST_LINES, 1)
    assert shared[0].startswith(f"{60 - MOST_LINES} more logs")


@CASES
@pytest.mark.slow
def test_nothing_is_said_of_records_that_were_to_go(clean: bool) -> None:
    """Retention, DeleteRecords, compaction, a topic that was deleted and created again."""

    async def live(sim: Sim) -> None:
        await produce(sim)
        await sim.create("kept", {"internal.segment.bytes": "700", "retention.bytes": "1500"})
        await sim.create("compacted", {"internal.segment.bytes": "700", "cleanup.policy": "compact"} | CLEANS_AT_ONCE)
        for number in range(15):
            await sim.send("kept", b"%d" % number + b"x" * 100)
            await sim.produce("compacted", sim.batch(b"x" * 100, key=b"%d" % (number % 2)))
        partition = DeleteRecordsPartition(partition_index=0, offset=6)
        topic = DeleteRecordsTopic(name="large", partitions=[partition])
        await sim.call(DeleteRecordsRequest(topics=[topic], timeout_ms=30_000))
        await asyncio.sleep(60)
        assert sim.log("kept").log_start_offset > 0
        assert len(await sim.everything("compacted")) < 10
        await sim.delete("small")
        sim.topic_ids.clear()
        await sim.create("small")
        await sim.send("small", b"one")

    outcome = restarted(record(live, LIVELY, clean=clean).copy(), LIVELY)
    for _ in range(2):
        assert outcome.facts is not None
        assert outcome.lines == []
        outcome = restarted(outcome.disk.power_loss(Survive.EVERYTHING), LIVELY)
