"""The metadata partition loses power at every prefix of its calls: votes, snapshots and flushed records are there.

A workload of one replica: it appends, fsyncs, votes, writes snapshots and deletes what they replace, is truncated by a
new leader, takes a leader's snapshot, restarts. Apache Kafka may have its directory in between. The other workload is
formatting: a directory is formatted completely or not at all.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest

from pykbroker.config.load import load
from pykbroker.storage.format import StorageFormatError, bootstrap_records, format_directories, read_format
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_raft import checkpoint
from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.log_view import OffsetAndEpoch
from pykbroker_raft.metadata_storage import DIRECTORY, MetadataStorage, StorageConfig
from pykbroker_raft.ready import SnapshotChunk
from pykbroker_raft.voters import ReplicaKey
from pykbroker_wire.records.batch import build_batch, iter_batches
from pykbroker_wire.records.record import iter_records
from testkit.logs.prefixes import Crash, copy_of, examine, lose_power, tears
from tests.raft.another_owner import stay_of_another_owner

NOW = 1_700_000_000_000
CONFIG = StorageConfig(segment_bytes=1200, max_retention_bytes=3000)


@dataclass
class Moment:
    begun: int
    done: int
    #: the values of all records since the log last began again, also of those that a snapshot has replaced: a start
    #: finds them all until the last record of a segment is replaced
    values: dict[int, bytes]
    start: int
    end: int
    flushed: int
    vote: ElectionState | None
    snapshot: OffsetAndEpoch | None
    #: older states cannot come back
    forget: bool = False


@dataclass
class Replica:
    seed: int
    #: another program has the directory now and then
    is_lent: bool = False
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    values: dict[int, bytes] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)
    vote: ElectionState | None = None
    snapshot: OffsetAndEpoch | None = None
    flushed: int = 0
    epoch: int = 1

    def run(self, steps: int) -> None:
        self.rng = random.Random(self.seed)
        self.disk.make_dirs("data")
        self.disk.fsync_dir(".")
        self.open()
        self.moment(0)
        for _ in range(steps):
            begun = len(self.disk.calls)
            (step,) = self.rng.choices(
                [
                    self.append,
                    self.flush,
                    self.elect,
                    self.take_snapshot,
                    self.fetch_snapshot,
                    self.truncate,
                    self.open,
                    self.lend,
                ],
                [30, 12, 6, 6, 2, 3, 3, 5 if self.is_lent else 0],
            )
            self.moment(begun, forget=bool(step()))

    def moment(self, begun: int, forget: bool = False) -> None:
        log = self.storage.log
        facts = dict(self.values), log.log_start_offset, log.log_end_offset, self.flushed, self.vote, self.snapshot
        self.moments.append(Moment(begun, len(self.disk.calls), *facts, forget))

    @property
    def config(self) -> StorageConfig:
        # One segment: if no note counts, segments after one that a half-done truncation removed stop the start.
        return replace(CONFIG, segment_bytes=1 << 30) if self.is_lent else CONFIG

    def open(self) -> None:
        self.storage = MetadataStorage.open(self.disk, "data", self.config, NOW)
        assert self.storage.log_view().end_offset == max(self.values, default=self.first_offset - 1) + 1
        self.flushed = self.storage.log.log_end_offset

    @property
    def first_offset(self) -> int:
        return self.snapshot.offset if self.snapshot is not None else 0

    @property
    def end(self) -> int:
        return self.storage.log.log_end_offset

    def make_batch(self, offset: int) -> bytes:
        """Build a batch of two records, which count as appended."""
        made = [b"%d.%d " % (offset, self.rng.randrange(1 << 30)) + b"x" * self.rng.randrange(80) for _ in range(2)]
        records = [(None, value, (), NOW) for value in made]
        self.values.update({offset + i: value for i, value in enumerate(made)})
        return build_batch(records, base_offset=offset, leader_epoch=self.epoch)

    def append(self) -> None:
        self.storage.append(self.make_batch(self.end), self.epoch, NOW)

    def flush(self) -> None:
        self.flushed = self.storage.flush()
        self.storage.note_flushed(self.flushed)
        self.storage.set_high_watermark(self.flushed)

    def elect(self) -> None:
        self.storage.write_election_state(self.hear_of_epoch(self.epoch + 1))

    def hear_of_epoch(self, epoch: int) -> ElectionState:
        self.epoch = epoch
        voted = self.rng.choice([None, ReplicaKey(self.rng.randrange(3), bytes(16))])
        self.vote = ElectionState(self.epoch, None if voted else 1, voted, (1, 2, 3), 0)
        return self.vote

    def take_snapshot(self) -> None:
        storage = self.storage
        offset = storage.log.high_watermark
        if offset <= (self.snapshot.offset if self.snapshot else 0):
            return
        batch_end = max(o for o in (offset, *self.values) if o <= offset)
        made = OffsetAndEpoch(batch_end, storage.log.epochs.of_offset(batch_end - 1))
        storage.note_snapshot(made, storage.write_snapshot(made, self.content(made), **HEAD))  # type: ignore[arg-type]
        self.snapshot = made
        storage.clean(NOW)

    @staticmethod
    def content(snapshot: OffsetAndEpoch) -> list[bytes]:
        return [b"all before %d in %d" % (snapshot.offset, snapshot.epoch), b"y" * 50]

    def fetch_snapshot(self) -> bool:
        """Replace the log by the leader's snapshot, because this replica lacks much of the log."""
        self.elect()
        fetched = OffsetAndEpoch(self.end + self.rng.randrange(1, 20), self.epoch)
        data = b"".join(checkpoint.encode(self.content(fetched), epoch=fetched.epoch, now_ms=NOW))
        *pieces, last = (
            SnapshotChunk(fetched, position, data[position : position + 100], len(data))
            for position in range(0, len(data), 100)
        )
        for piece in pieces:
            self.storage.append_chunk(piece)
        self.snapshot, self.values, self.flushed = fetched, {}, fetched.offset
        self.storage.install_snapshot(last)
        return True

    def truncate(self) -> bool:
        """Cut off uncommitted records, as for another leader's records."""
        low = max(self.storage.log.high_watermark, self.first_offset)
        self.elect()
        self.storage.truncate(self.rng.randrange(low, self.end + 1))
        self.values = {offset: value for offset, value in self.values.items() if offset < self.end}
        self.flushed = min(self.flushed, self.end)
        return True

    def lend(self) -> bool:
        """Stop the node, and let Apache Kafka have the directory for a while, in the same epoch or in the next."""
        low = max(self.storage.log.high_watermark, self.first_offset)
        self.storage.close()
        cut_at = self.rng.randrange(low, self.end + 1)
        state = self.hear_of_epoch(self.epoch + self.rng.randrange(2))

        def append(end: int) -> list[bytes]:
            self.values = {offset: value for offset, value in self.values.items() if offset < end}
            return [self.make_batch(end + 2 * number) for number in range(self.rng.randrange(4))]

        stay_of_another_owner(self.disk, f"data/{DIRECTORY}", state, cut_at=cut_at, append=append, now_ms=NOW)
        self.open()
        return True


HEAD = {"now_ms": NOW, "last_timestamp_ms": NOW, "kraft_version": 0, "voters": None}


def found_in(storage: MetadataStorage) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = storage.log.log_start_offset
    while offset < storage.log.log_end_offset:
        data = storage.read(offset, 1 << 20, storage.log.log_end_offset)
        assert data, f"nothing at {offset} of {storage.log}"
        for position, header in iter_batches(data):
            for record in iter_records(data, position, header):
                if record.offset >= storage.log.log_start_offset:
                    found[record.offset] = bytes(record.value or b"")
            offset = header.next_offset
    return found


def check(replica: Replica, crash: Crash) -> None:
    what = f"seed {replica.seed}: {crash.what}"
    past = [moment for moment in replica.moments if moment.done <= crash.calls]
    under_way = [moment for moment in replica.moments if moment.begun <= crash.calls < moment.done]
    if not crash.disk.exists("data"):
        assert not past, what
        return
    storage = MetadataStorage.open(crash.disk, "data", CONFIG, NOW)
    view = storage.log_view()
    found = found_in(storage)
    possible = past[-1:] + under_way
    assert storage.read_election_state() in [moment.vote for moment in possible] or not past, what
    latest = storage.latest_snapshot
    assert latest in [moment.snapshot for moment in possible] or not past, f"{what}: {latest}"
    if latest is not None:
        assert [value for batch in storage.load_snapshot(latest).values for value in batch] == Replica.content(latest)
        assert storage.log.log_end_offset >= latest.offset >= storage.log.log_start_offset, what
    else:
        assert storage.log.log_start_offset == 0, what
    assert list(found) == list(range(storage.log.log_start_offset, view.end_offset)), what
    assert storage.log.log_start_offset <= max([moment.start for moment in possible], default=0), what
    if past:
        # Flushed records stay, unless a truncation or a snapshot that is under way has removed them.
        for offset, value in past[-1].values.items():
            is_kept = not any(moment.forget and moment.values.get(offset) != value for moment in under_way)
            if is_kept and storage.log.log_start_offset <= offset < past[-1].flushed:
                assert found.get(offset) == value, f"{what}: {offset} is gone"
    since = max([index for index, moment in enumerate(past) if moment.forget], default=0)
    assert not found or any(
        all(moment.values.get(offset) == value for offset, value in found.items()) and view.end_offset <= moment.end
        for moment in past[since:] + under_way
    ), f"{what}: {found}"
    # The replica works on: what is flushed now, and its vote, is there after the next power loss.
    end = storage.log.log_end_offset
    storage.write_election_state(ElectionState(99, 1, None, (1,), 0))
    storage.append(build_batch([(None, b"after", (), NOW)], base_offset=end, leader_epoch=99), 99, NOW)
    storage.note_flushed(storage.flush())
    after = MetadataStorage.open(crash.disk.power_loss(), "data", CONFIG, NOW)
    assert found_in(after) == {**found, end: b"after"}, what
    assert after.read_election_state() == ElectionState(99, 1, None, (1,), 0)


def start(disk: MemoryDisk, _calls: int) -> None:
    if disk.exists("data"):
        MetadataStorage.open(disk, "data", CONFIG, NOW).log_view()


def lose_power_everywhere(seed: int, *, every_mode: bool, is_lent: bool = False) -> None:
    replica = Replica(seed, is_lent)
    replica.run(60)
    moments = replica.moments

    def moment(count: int) -> tuple[int, int]:
        return sum(one.done <= count for one in moments), sum(one.begun <= count for one in moments)

    rng = random.Random(seed)
    calls = replica.disk.calls
    print(seed, examine(calls, start, lambda crash: check(replica, crash), rng, moment=moment, every_mode=every_mode))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(3), 6, 52])
def test_every_prefix(seed: int) -> None:
    lose_power_everywhere(seed, every_mode=seed == 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_every_prefix_where_apache_kafka_has_the_log_now_and_then(seed: int) -> None:
    lose_power_everywhere(seed, every_mode=False, is_lent=True)


@pytest.mark.long(amount="196 lives, power lost after each call")
@pytest.mark.timeout(1800)
def test_every_prefix_of_many_lives() -> None:
    for seed in range(4, 200):
        lose_power_everywhere(seed, every_mode=seed % 3 == 0, is_lent=seed % 4 == 0)


@pytest.mark.parametrize("mode", ["everything", *["chosen"] * 5])
def test_a_log_that_is_truncated_to_its_beginning_begins_there_wherever_that_ends(mode: str) -> None:
    """No record was committed, and a new leader has none of them. One segment may go before the other, but not the
    first one: no snapshot covers the records before the second, and the node would not start again."""
    replica = Replica(1)
    replica.run(0)
    while len(replica.storage.log.files.segments) < 3:
        replica.append()
    replica.storage.flush()
    before = len(replica.disk.calls)
    replica.storage.truncate(0)
    rng = random.Random(2)
    for end in range(before, len(replica.disk.calls) + 1):
        left = MetadataStorage.open(
            lose_power(MemoryDisk.replay(replica.disk.calls[:end]), mode, rng), "data", CONFIG, NOW
        )
        assert left.log.log_start_offset == 0
    assert left.log.log_end_offset == 0


# -- formatting

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "log.dirs": "var/data,other/data",
}


@pytest.mark.slow
def test_a_directory_is_formatted_or_it_is_not() -> None:
    """At every prefix, and at every byte of each write: the next attempt completes it, and nothing is half done."""
    config = load(SETTINGS)
    disk = MemoryDisk()
    format_directories(disk, config, "cluster", random.Random(1), now_ms=NOW)
    rng = random.Random(2)

    def attempt(found: MemoryDisk, _calls: int = 0) -> None:
        format_directories(found, config, "cluster", rng, now_ms=NOW, ignore_formatted=True)

    def judge(crash: Crash) -> None:
        done = crash.calls == len(disk.calls)
        try:
            read_format(crash.disk, config, rng, now_ms=NOW)
        except StorageFormatError:
            assert not done, crash.what
        attempt(crash.disk)
        # After any crash, a directory that is formatted now stays formatted.
        after = crash.disk.power_loss()
        assert len(read_format(after, config, rng, now_ms=NOW).directory_ids) == 2, crash.what
        assert bootstrap_records(after, config), crash.what
        storage = MetadataStorage.open(after, config.metadata_log_dir, CONFIG, NOW)
        assert storage.latest_snapshot == OffsetAndEpoch(0, 0), crash.what
        storage.load_snapshot(OffsetAndEpoch(0, 0))

    print(examine(disk.calls, attempt, judge, rng, every_mode=True, again=0.3))
    for crash in tears(disk.calls, last_writes=3):
        judge(Crash(crash.calls, copy_of(crash.disk), crash.what))
