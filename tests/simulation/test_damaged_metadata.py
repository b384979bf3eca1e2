"""Damage in the metadata log never makes the cluster smaller."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable

import pytest

from pykbroker_log.disk import remove_tree, write_new
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_raft.intact import CUT_AT_KEY
from pykbroker_raft.metadata_storage import UNUSABLE, MetadataStorage, StorageConfig
from pykbroker_raft.reserve import FILE as RESERVE
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.record import iter_records
from testkit.acting import acts
from testkit.nodes.sim import TOPIC, Sim
from tests.simulation.recorded import METADATA, Recorded, contents, flip, record, restarted

NOW = 1_700_000_000_000
LOG = f"{METADATA}/{0:020}.log"


async def make_topics(sim: Sim) -> None:
    for name in ("first", "second", "third"):
        await sim.create(name, {"retention.ms": "100000"})
        await sim.send(name, b"a record of " + name.encode(), b"another")
    await sim.alter(TOPIC, "first", {"retention.ms": "200000"})
    await sim.alter(TOPIC, "second", {"retention.ms": None, "max.message.bytes": "5000"})


@functools.cache
def recording(clean: bool) -> Recorded:
    return record(make_topics, clean=clean)


CASES = pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])


def values_of(recorded: Recorded, storage: MetadataStorage) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset, end = storage.log.log_start_offset, storage.log.log_end_offset
    while offset < end:
        data = storage.read(offset, 1 << 20, end)
        for position, header in iter_batches(data):
            for one in iter_records(data, position, header):
                found[one.offset] = bytes(one.value or b"")
            offset = header.next_offset
    return found


def opened(recorded: Recorded, path: str, position: int, bit: int) -> dict[int, bytes] | str:
    """Return the records of a metadata folder with one bit flipped, or why it cannot be opened."""
    disk = recorded.copy()
    flip(disk, path, position, bit)
    damaged = contents(disk, path)
    try:
        storage = MetadataStorage.open(disk, "/data", StorageConfig(), NOW)
        storage.read_election_state()
    except UNUSABLE as error:
        assert contents(disk, path) == damaged, "a refused start has changed the file"
        return str(error)
    return values_of(recorded, storage)


def beside(recorded: Recorded) -> list[str]:
    """The files next to the metadata log whose content matters."""
    return [path for path in recorded.files(METADATA) if path != LOG and not path.endswith(RESERVE)]


def flip_every_byte(recorded: Recorded, path: str, bits: list[int], first: int = 0, step: int = 1) -> int:
    """Return how many starts were refused. `first` and `step`: of which positions."""
    intact = values_of(recorded, MetadataStorage.open(recorded.copy(), "/data", StorageConfig(), NOW))
    refused = 0
    for position in range(first, len(contents(recorded.disk, path)), step):
        for bit in bits:
            outcome = opened(recorded, path, position, bit)
            if isinstance(outcome, str):
                assert "\n" not in outcome
                assert METADATA in outcome or "quorum-state" in outcome, outcome
                refused += 1
            else:
                assert outcome == intact, f"bit {bit} at {position} of {path}"
    return refused


@CASES
@pytest.mark.slow
def test_a_flip_in_every_byte_of_the_log_loses_nothing(clean: bool) -> None:
    """Each case has the half of the bytes. Their meaning is the same after both ends."""
    recorded = recording(clean)
    size = len(contents(recorded.disk, LOG))
    refused = flip_every_byte(recorded, LOG, [0], first=int(clean), step=2)
    # The checksum covers nearly all bytes.
    assert refused > size / 2 * 0.9


@CASES
@pytest.mark.slow
def test_a_flip_in_every_byte_of_the_files_beside_the_log_loses_nothing(clean: bool) -> None:
    recorded = recording(clean)
    for path in beside(recorded):
        flip_every_byte(recorded, path, [0 if clean else 5])
    # The content of the reserve does not matter: only its size counts.
    reserve = f"{METADATA}/{RESERVE}"
    assert flip_every_byte(recorded, reserve, [0], step=len(contents(recorded.disk, reserve)) // 3) == 0


@CASES
@pytest.mark.long(amount="every bit of the metadata log flipped")
@pytest.mark.timeout(3600)
def test_a_flip_of_every_bit_loses_nothing(clean: bool) -> None:
    recorded = recording(clean)
    for path in (LOG, *beside(recorded)):
        flip_every_byte(recorded, path, list(range(8)))


@CASES
@pytest.mark.slow
def test_a_node_refuses_a_damaged_metadata_log_and_changes_nothing(clean: bool) -> None:
    recorded = recording(clean)
    size = len(contents(recorded.disk, LOG))
    for position in range(0, size, size // 16):
        disk = recorded.copy()
        flip(disk, LOG, position, 3)
        outcome = restarted(disk)
        if outcome.facts is None:
            assert outcome.refusal.startswith("The metadata log in /data cannot be used: ")
            assert f"{LOG} at position " in outcome.refusal
            assert ", offset " in outcome.refusal
            assert "\n" not in outcome.refusal
            # With the original file the node starts: nothing was set aside, nothing cut.
            flip(outcome.disk, LOG, position, 3)
            outcome = restarted(outcome.disk)
        assert outcome.facts is not None
        assert outcome.facts.lacks(recorded.facts) == []
        assert not any(name.endswith("-stray") for name in outcome.disk.list("/data"))


@acts(broker=("pykbroker.metadata.log.cut.at",))
def test_only_the_offset_that_the_refusal_named_gives_records_up() -> None:
    recorded = recording(True)
    middle = contents(recorded.disk, LOG).index(b"second") - 40
    disk = recorded.copy()
    flip(disk, LOG, middle, 3)
    refused = restarted(disk)
    assert refused.facts is None
    named = int(refused.refusal.rpartition(f"{CUT_AT_KEY}=")[2].partition(":")[0])
    assert f"offset {named}" in refused.refusal
    again = restarted(refused.disk, {CUT_AT_KEY: str(named + 1)})
    assert again.refusal == refused.refusal
    cut = restarted(again.disk, {CUT_AT_KEY: str(named)})
    assert cut.facts is not None
    assert set(cut.facts.topics) == {"first"}
    assert cut.facts.records["first"] == recorded.facts.records["first"]
    lines = "\n".join(cut.lines)
    assert f"from offset {named} to " in lines
    assert f"as {CUT_AT_KEY} says" in lines
    # The lines name the files with the rest of the log and of the topics.
    assert any(".corrupt-" in name and name in lines for name in cut.disk.list(METADATA))
    strays = [name for name in cut.disk.list("/data") if name.endswith("-stray")]
    assert sorted(name.partition("-")[0] for name in strays) == ["second", "third"]
    assert all(name in lines for name in strays)
    # It acts once: the next start does not need it, and ignores it.
    for config in ({}, {CUT_AT_KEY: str(named)}):
        later = restarted(cut.disk.power_loss(Survive.EVERYTHING), config)
        assert later.facts is not None, later.refusal
        assert set(later.facts.topics) == {"first"}


@CASES
def test_the_torn_end_of_a_write_is_cut(clean: bool) -> None:
    recorded = recording(clean)
    data = contents(recorded.disk, LOG)
    for torn in (b"\0", data[:40], data[:70], bytes(200)):
        disk = recorded.copy()
        disk.open(LOG).pwritev([torn], len(data))
        outcome = restarted(disk)
        assert outcome.facts is not None, outcome.refusal
        assert outcome.facts.lacks(recorded.facts) == []


def test_without_the_note_only_a_torn_end_is_cut() -> None:
    """As in a directory that Apache Kafka has written."""
    recorded = recording(False)
    size = len(contents(recorded.disk, LOG))
    for position in (20, size // 2):
        disk = recorded.copy()
        disk.unlink(f"{METADATA}/pykbroker.flushed")
        flip(disk, LOG, position, 3)
        outcome = restarted(disk)
        assert outcome.facts is None
        assert "may have been committed" in outcome.refusal
    disk = recorded.copy()
    disk.unlink(f"{METADATA}/pykbroker.flushed")
    disk.open(LOG).pwritev([b"torn"], size)
    outcome = restarted(disk)
    assert outcome.facts is not None
    assert outcome.facts.lacks(recorded.facts) == []


@pytest.mark.slow
def test_a_node_with_a_flip_in_its_vote_starts_with_everything_or_refuses() -> None:
    recorded = recording(False)
    path = f"{METADATA}/quorum-state"
    for position in range(0, len(contents(recorded.disk, path)), 3):
        disk = recorded.copy()
        flip(disk, path, position, 1)
        outcome = restarted(disk)
        assert outcome.facts is not None or "quorum-state" in outcome.refusal
        assert outcome.facts is None or outcome.facts.lacks(recorded.facts) == []


DAMAGES: dict[str, Callable[[MemoryDisk, str, bytes], None]] = {
    "removed": lambda disk, path, data: disk.unlink(path),
    "emptied": lambda disk, path, data: disk.open(path).truncate(0),
    "cut by a byte": lambda disk, path, data: disk.open(path).truncate(max(0, len(data) - 1)),
    "cut in half": lambda disk, path, data: disk.open(path).truncate(len(data) // 2),
    "cut to 30 bytes": lambda disk, path, data: disk.open(path).truncate(min(30, len(data))),
    "garbage": lambda disk, path, data: write_new(disk, path, random.Random(1).randbytes(len(data) or 50)),
    "zeros": lambda disk, path, data: write_new(disk, path, bytes(len(data) or 50)),
}


async def make_a_snapshot(sim: Sim) -> None:
    await make_topics(sim)
    for number in range(3):
        await sim.create(f"more{number}")
    await sim.alter(TOPIC, "third", {"retention.ms": "300000"})


WITH_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "1500"}
WITH_SEGMENTS = {"internal.metadata.log.segment.bytes": "1200"}


@functools.cache
def larger(segments: bool, snapshots: bool, clean: bool) -> Recorded:
    config = (WITH_SEGMENTS if segments else {}) | (WITH_SNAPSHOTS if snapshots else {})
    recorded = record(make_a_snapshot, config, clean=clean)
    assert (len([name for name in recorded.disk.list(METADATA) if name.endswith(".log")]) > 2) == segments
    assert (len([name for name in recorded.disk.list(METADATA) if name.endswith(".checkpoint")]) > 1) == snapshots
    return recorded


def is_of_any_pair(case: tuple[str, bool, bool, bool]) -> bool:
    """Return True for one fourth of the cases, which have every pair of two values: each damage with a folder and with
    its opposite."""
    what, *folder = case
    number = list(DAMAGES).index(what) % 4
    chosen = [bool(number & 1), bool(number & 2), False]
    return folder in (chosen, [not each for each in chosen])


ALL = list(itertools.product(DAMAGES, [False, True], [False, True], [False, True]))


@pytest.mark.parametrize(("what", "segments", "snapshots", "clean"), [case for case in ALL if is_of_any_pair(case)])
@pytest.mark.slow
def test_each_file_of_the_metadata_folder_is_damaged(what: str, segments: bool, snapshots: bool, clean: bool) -> None:
    damage_each_file(what, larger(segments, snapshots, clean))


@pytest.mark.long(amount="one damage to each file of one folder")
@pytest.mark.parametrize(("what", "segments", "snapshots", "clean"), [case for case in ALL if not is_of_any_pair(case)])
def test_each_file_of_every_metadata_folder_is_damaged(what: str, segments: bool, snapshots: bool, clean: bool) -> None:
    damage_each_file(what, larger(segments, snapshots, clean))


def damage_each_file(what: str, recorded: Recorded) -> None:
    """The start is refused, or the node has everything."""
    for path in recorded.files(METADATA):
        disk = recorded.copy()
        DAMAGES[what](disk, path, contents(disk, path))
        outcome = restarted(disk)
        if outcome.facts is None:
            assert "\n" not in outcome.refusal
            assert "/data" in outcome.refusal
        else:
            assert outcome.facts.lacks(recorded.facts) == [], f"{what} {path}"
            assert not any(name.endswith("-stray") for name in outcome.disk.list("/data")), f"{what} {path}"


@CASES
def test_replicas_without_any_metadata_are_not_set_aside(clean: bool) -> None:
    recorded = recording(clean)
    disk = recorded.copy()
    remove_tree(disk, METADATA)
    outcome = restarted(disk)
    assert "has no records, but there are 3 replicas: /data/first-0, /data/second-0" in outcome.refusal
    assert not any(name.endswith("-stray") for name in outcome.disk.list("/data"))
