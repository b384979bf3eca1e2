"""Lost records below the durable end of the metadata log are noticed, unless another program had the log since."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from pykbroker_log.disk import Disk, read_file, write_atomic
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_raft import election_state, flushed_note
from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.flushed_note import MARK, read_note
from pykbroker_raft.intact import LostMetadata
from pykbroker_raft.metadata_storage import DIRECTORY, MetadataStorage, StorageConfig
from pykbroker_wire.records.batch import build_batch
from pykbroker_wire.records.crc import crc32c
from testkit.logs.prefixes import Crash, examine
from tests.raft.another_owner import stay_of_another_owner

NOW = 1_700_000_000_000
OURS = ElectionState(5, 2, None, (1, 2, 3), 0)


def batch(offset: int, epoch: int) -> bytes:
    return build_batch([(None, b"%d in %d" % (offset, epoch), (), NOW)], base_offset=offset, leader_epoch=epoch)


class Directory:
    """A directory in which pykbroker has flushed ten records of epoch 3, and has then seen epoch 5."""

    def __init__(self, disk: Disk, log_dir: str) -> None:
        self.disk, self.log_dir = disk, log_dir
        self.folder = f"{log_dir}/{DIRECTORY}"
        self.log = f"{self.folder}/{0:020}.log"
        disk.make_dirs(log_dir)
        storage = self.open()
        disk.fsync_dir(log_dir)
        storage.write_election_state(ElectionState(3, 1, None, (1, 2, 3), 0))
        for offset in range(10):
            storage.append(batch(offset, 3), 3, NOW)
        storage.note_flushed(storage.flush())
        storage.write_election_state(OURS)
        storage.close()

    def open(self) -> MetadataStorage:
        storage = MetadataStorage.open(self.disk, self.log_dir, StorageConfig(), NOW)
        storage.log_view()
        return storage

    def end(self) -> int:
        """Return the log end offset at the next start."""
        storage = self.open()
        end = storage.log.log_end_offset
        storage.close()
        return end

    def kafka(self, state: ElectionState = OURS, *, cut_at: int = 10, append: int = 0) -> None:
        def batches(end: int) -> list[bytes]:
            return [batch(offset, state.epoch) for offset in range(end, end + append)]

        stay_of_another_owner(self.disk, self.folder, state, cut_at=cut_at, append=batches, now_ms=NOW)

    def lose_end(self, records: int) -> None:
        """Cut the log's file as no program does."""
        file = self.disk.open(self.log)
        file.truncate(file.size() - records * len(batch(0, 3)))
        file.close()

    def damage(self, offset: int) -> None:
        file = self.disk.open(self.log)
        at = offset * len(batch(0, 3)) + 70
        file.pwritev([bytes([file.pread(1, at)[0] ^ 1])], at)
        file.close()

    def note(self) -> bytes:
        return read_file(self.disk, f"{self.folder}/{flushed_note.FILE}")

    def quorum_state(self) -> bytes:
        return read_file(self.disk, f"{self.folder}/{election_state.FILE}")


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(OsDisk(), str(tmp_path))


@pytest.mark.parametrize("epoch", [5, 6])
@pytest.mark.parametrize("append", [0, 1, 20])
def test_records_that_another_owner_has_cut_off_are_not_missed(directory: Directory, epoch: int, append: int) -> None:
    directory.kafka(ElectionState(epoch, 2), cut_at=7, append=append)
    assert directory.end() == 7 + append


def test_what_another_owner_has_written_beyond_the_note_is_never_cut(directory: Directory) -> None:
    """The note is exact only for pykbroker's own records. Whole batches after damage may have been acknowledged."""
    directory.kafka(append=10)
    directory.damage(15)
    with pytest.raises(LostMetadata, match="offset 15 on may have been committed"):
        directory.open()


def test_records_that_a_log_of_our_own_has_lost_are_missed(directory: Directory) -> None:
    directory.lose_end(2)
    with pytest.raises(LostMetadata, match="The records from offset 8 to 9 were durable"):
        directory.open()


def test_records_that_were_found_after_another_owner_are_missed_later(directory: Directory) -> None:
    """One start makes the log pykbroker's own again."""
    directory.kafka(cut_at=7, append=1)
    assert directory.end() == 8
    directory.lose_end(2)
    with pytest.raises(LostMetadata, match="The records from offset 6 to 7 were durable"):
        directory.open()


def test_apache_kafka_finds_its_own_form_in_the_first_line_of_quorum_state(directory: Directory) -> None:
    first, rest = directory.quorum_state().split(b"\n")
    assert first.rstrip() == OURS.to_bytes()
    assert json.loads(first) == json.loads(directory.quorum_state()) == json.loads(OURS.to_bytes())
    assert rest == b""


def test_the_mark_comes_back_and_nothing_else_of_quorum_state_changes(directory: Directory) -> None:
    theirs = ElectionState(9, 3, None, (1, 2, 3), 0)
    directory.kafka(theirs)
    assert directory.quorum_state() == theirs.to_bytes()
    directory.end()
    assert directory.quorum_state() == theirs.to_bytes() + MARK


def earlier_release(directory: Directory) -> None:
    """Make the two files as a release without the mark has left them."""
    digits = b"%020d" % 10
    line = b"%s %08x\n" % (digits, crc32c(digits))
    write_atomic(directory.disk, f"{directory.folder}/{election_state.FILE}", OURS.to_bytes())
    write_atomic(directory.disk, f"{directory.folder}/{flushed_note.FILE}", line * 2)


def some_time_passes(directory: Directory) -> None:
    """Make the note older, as it is when another program comes later."""
    path = f"{directory.folder}/{flushed_note.FILE}"
    os.utime(path, ns=(0, os.stat(path).st_mtime_ns - 2_000_000))


def test_the_note_of_an_earlier_release_counts_without_the_mark(directory: Directory) -> None:
    earlier_release(directory)
    assert read_note(directory.disk, directory.folder).offset == 10
    directory.lose_end(1)
    with pytest.raises(LostMetadata):
        directory.open()


@pytest.mark.parametrize("epoch", [5, 6])
@pytest.mark.parametrize("append", [0, 1, 20])
def test_another_owner_may_come_between_an_earlier_release_and_this_one(
    directory: Directory, epoch: int, append: int
) -> None:
    """The note has no mark to lose, but its file is older than quorum-state. So records above it are not cut off,
    either."""
    earlier_release(directory)
    some_time_passes(directory)
    directory.kafka(ElectionState(epoch, 2), cut_at=7, append=append)
    assert not read_note(directory.disk, directory.folder).is_known
    assert directory.end() == 7 + append
    directory.lose_end(2)
    with pytest.raises(LostMetadata):
        directory.open()


def test_the_note_of_an_earlier_release_counts_after_an_upgrade_that_was_cut_short(directory: Directory) -> None:
    """This release sets the mark before it writes the note anew."""
    earlier_release(directory)
    some_time_passes(directory)
    flushed_note.set_mark(directory.disk, directory.folder)
    directory.lose_end(1)
    with pytest.raises(LostMetadata):
        directory.open()


def test_an_upgrade_opens_and_the_note_needs_the_mark_from_then_on(directory: Directory) -> None:
    earlier_release(directory)
    assert directory.end() == 10
    note = read_note(directory.disk, directory.folder)
    assert (note.offset, note.needs_mark) == (10, True)
    directory.kafka(cut_at=7)
    assert directory.end() == 7


def test_an_earlier_release_takes_no_line_for_its_own(directory: Directory) -> None:
    """It reads pieces of 30 bytes, each 20 digits and a checksum, and writes a damaged note again."""
    data = directory.note()
    assert not any(data[start : start + 20].isdigit() for start in range(0, len(data), 30))


@pytest.mark.slow
@pytest.mark.parametrize("was", ["another owner's", "an earlier release's"])
def test_power_that_fails_while_the_mark_is_set_again_leaves_no_note_of_the_past(was: str) -> None:
    """The note that does not count must be gone before the mark in quorum-state would make it count."""
    disk = MemoryDisk()
    disk.make_dirs("data")
    disk.fsync_dir(".")
    directory = Directory(disk, "data")
    if was == "another owner's":
        directory.kafka(cut_at=7)
    else:
        earlier_release(directory)
    begun = len(disk.calls)
    end = directory.end()

    def check(crash: Crash) -> None:
        if crash.calls < begun:
            return
        note = read_note(crash.disk, directory.folder)
        if was == "another owner's":
            # A note that is back must cover all records that were found.
            assert not note.is_known or note.offset == end == 7, crash.what
        else:
            assert note.offset == 10, crash.what
        directory.disk = crash.disk
        assert directory.end() == end, crash.what

    def start(disk: MemoryDisk, calls: int) -> None:
        if calls >= begun:
            MetadataStorage.open(disk, "data", StorageConfig(), NOW).log_view()

    for seed in range(10):
        examine(disk.calls, start, check, random.Random(seed), every_mode=True)
