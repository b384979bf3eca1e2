"""Every prefix of a workload with compactions loses power. The newest flushed record of each key is there, no record
that was cut off comes back, and the log works on.

The workload appends with keys, tombstones and transactions, rolls, flushes, truncates and compacts. It also does all of
that between the steps of a compaction.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from pykbroker_log import names
from pykbroker_log.compaction import CleanerMemory
from pykbroker_log.disk import write_new
from pykbroker_log.log_config import AppendOrigin, LogConfig
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_log.offset_index import OffsetIndex
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.records.control import end_txn_marker
from pykbroker_wire.records.dedupe import SLOT_SIZE
from testkit.logs.helpers import NOW, check_compacted, open_log
from testkit.logs.prefixes import Crash, examine
from testkit.logs.recording import RecordedLog
from tests.log.compacting import KeyValue, compact, contents, keyed

CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=700,
    index_interval_bytes=150,
    file_delete_delay_ms=10,
    delete_retention_ms=1 << 50,
)
MEMORY = CleanerMemory(map_bytes=6 * SLOT_SIZE, load_factor=0.9, io_buffer_bytes=300)


@dataclass(frozen=True)
class Written:
    pair: KeyValue
    decided: int = -1
    """Offset of the commit marker; -1 without a transaction."""
    aborted: bool = False


@dataclass
class Workload(RecordedLog[Written]):
    cleaned: int = 0
    compactions: int = 0

    def run(self, steps: int) -> None:
        self.log = open_log(self.disk, config=CONFIG)
        self.moment(0)
        for _ in range(steps):
            self.now += 1
            (step,) = self.rng.choices(
                [self.append, self.transaction, self.roll, self.flush, self.truncate, self.purge, self.compact],
                [30, 8, 5, 4, 2, 3, 8],
            )
            step()

    def pairs(self) -> list[KeyValue]:
        return [
            (b"k%d" % self.rng.randrange(8), self.rng.choice([None, b"%d" % self.rng.randrange(10**6)]))
            for _ in range(self.rng.randrange(1, 4))
        ]

    def write(self, data: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> int:
        info = self.log.append_as_leader(data, leader_epoch=0, now_ms=self.now, origin=origin)
        self.log.set_high_watermark(self.log.log_end_offset)
        return info.first_offset

    def append(self) -> None:
        begun = len(self.disk.calls)
        pairs = self.pairs()
        first = self.write(keyed(*pairs, timestamp=self.now, codec=self.rng.choice([0, 0, 4])))
        self.records.update({first + n: Written(pair) for n, pair in enumerate(pairs)})
        self.moment(begun)

    def transaction(self) -> None:
        begun = len(self.disk.calls)
        pid = self.rng.randrange(3)
        pairs = self.pairs()
        sequence = self.sequences.get(pid, 0)
        first = self.write(keyed(*pairs, timestamp=self.now, pid=pid, epoch=0, seq=sequence, txn=True))
        self.sequences[pid] = sequence + len(pairs)
        commit = self.rng.random() < 0.6
        marker = end_txn_marker(
            commit=commit, producer_id=pid, producer_epoch=0, coordinator_epoch=0, timestamp=self.now
        )
        decided = self.write(bytearray(marker), AppendOrigin.COORDINATOR)
        self.records.update({first + n: Written(pair, decided, not commit) for n, pair in enumerate(pairs)})
        self.moment(begun)

    def purge(self) -> None:
        begun = len(self.disk.calls)
        for path in self.log.purge(self.now):
            if self.disk.exists(path):
                self.disk.unlink(path)
        self.moment(begun)

    def truncate(self) -> None:
        log = self.log
        begun = len(self.disk.calls)
        target = self.rng.randrange(log.log_end_offset + 1)
        # No transaction is cut in half, because its coordinator would end it again.
        while any(offset < target <= written.decided for offset, written in self.records.items()):
            target -= 1
        self.promised = min(self.promised, target)
        log.truncate_to(target)
        end = log.log_end_offset
        self.promised = min(self.promised, end)
        self.cleaned = min(self.cleaned, end)
        # Records that were removed because of a record that is now cut off do not come back.
        left = contents(log)
        self.records = {offset: written for offset, written in self.records.items() if offset in left}
        self.forget_sequences()
        self.moment(begun, forget=True)

    def compact(self) -> None:
        begun = len(self.disk.calls)

        def between() -> None:
            nonlocal begun
            self.promised = max(self.promised, self.log.recovery_point)
            self.moment(begun)
            if self.rng.random() < 0.25:
                self.rng.choice([self.append, self.roll, self.truncate, self.flush, self.purge])()
            begun = len(self.disk.calls)

        cleaned = compact(self.log, self.cleaned, now_ms=self.now, memory=MEMORY, between=between)
        if cleaned is not None:
            self.compactions += 1
            self.cleaned = min(cleaned.end_offset, self.log.log_end_offset)
        self.moment(begun)


def is_compaction_of(
    history: dict[int, Written], found: dict[int, KeyValue], promised: int, kept: dict[int, Written] | None = None
) -> str:
    """Return what is wrong with `found`, or "". All its records must have existed, and for each key the newest promised
    one, or a newer one, must be there. `kept` is what a truncation that is under way leaves."""
    for offset, pair in found.items():
        if offset not in history or history[offset].pair != pair:
            return f"{pair} at {offset} was never there"
    newest: dict[bytes | None, int] = {}
    for offset, written in sorted((history if kept is None else kept).items()):
        if not written.aborted and offset < promised and written.decided < promised:
            newest[written.pair[0]] = offset
    for key, offset in newest.items():
        if not any(pair[0] == key and at >= offset and not history[at].aborted for at, pair in found.items()):
            return f"{history[offset]} at {offset} is gone"
    return ""


def start_again(workload: Workload, disk: MemoryDisk, calls: int) -> PartitionLog:
    # Promised records were flushed, so their end may also be the recovery point: nothing before it is scanned then.
    return open_log(disk, config=CONFIG, recovery_point=workload.promised_at(calls) if calls % 2 else 0)


def check(workload: Workload, crash: Crash) -> None:
    calls, after, what = crash
    what = f"seed {workload.seed}: {what}"
    if not after.exists("data"):
        return
    under_way = workload.under_way(calls)
    promised = workload.promised_at(calls)
    log = start_again(workload, after, calls)
    assert log.log_end_offset >= promised, f"{what}: ends at {log.log_end_offset}, promised was {promised}"
    assert not [name for name in after.list(log.path) if name.endswith((".cleaned", ".swap", ".deleted"))], what
    check_compacted(log)
    found = contents(log)
    kept = under_way[0].records if under_way and under_way[0].forget else None
    verdicts = [
        is_compaction_of(moment.records, found, promised, kept)
        for moment in workload.possible(calls)
        if moment.end >= log.log_end_offset
    ]
    assert "" in verdicts, f"{what}: {verdicts[-1:]}"
    # The log works from here on, also with compaction.
    put = keyed((b"after", b"after"))
    log.append_as_leader(put, leader_epoch=99, now_ms=NOW)
    log.set_high_watermark(log.log_end_offset)
    log.roll(NOW)
    compact(log, 0, now_ms=NOW)
    end = log.log_end_offset
    now = contents(log)
    assert is_compaction_of({offset: Written(pair) for offset, pair in now.items()}, now, end) == "", what
    assert (b"after", b"after") in now.values()
    assert open_log(after.power_loss(Survive.EVERYTHING), config=CONFIG).log_end_offset == end


def lose_power_everywhere(seed: int) -> Workload:
    workload = Workload(seed)
    workload.run(40)

    def start(disk: MemoryDisk, calls: int) -> None:
        if disk.exists("data"):
            start_again(workload, disk, calls)

    rng = random.Random(seed)
    examined = examine(
        workload.disk.calls,
        start,
        lambda crash: check(workload, crash),
        rng,
        moment=lambda calls: (workload.mark(calls), calls % 2),
        every_mode=seed % 3 == 0,
        again=0.3,
    )
    print(f"seed {seed}: {workload.compactions} compactions, {examined}")
    return workload


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 19])
def test_every_prefix(seed: int) -> None:
    assert lose_power_everywhere(seed).compactions > 0, "a workload without compaction shows nothing"


@pytest.mark.long(amount="118 workloads, power lost after each call")
@pytest.mark.timeout(1800)
def test_every_prefix_of_many_workloads() -> None:
    for seed in range(2, 120):
        lose_power_everywhere(seed)


def test_an_index_of_a_replacement_that_was_called_off_is_not_taken() -> None:
    """The power loss kept the removal of its `.log.swap` and undid that of `.index.swap`, which would point to other
    bytes."""
    disk = MemoryDisk()
    log = open_log(disk, config=CONFIG)
    for number in range(12):
        log.append_as_leader(keyed((b"k%d" % number, b"v" * 40)), leader_epoch=0, now_ms=NOW)
    log.flush()
    end = log.log_end_offset
    before = contents(log)
    base = names.segment_file(0, names.OFFSET_INDEX)
    write_new(disk, f"data/t-0/{base}{names.SWAP}", OffsetIndex.ENTRY.pack(3, 77))
    log = open_log(disk, config=CONFIG, recovery_point=end)
    assert not [name for name in disk.list("data/t-0") if name.endswith(names.SWAP)]
    assert contents(log) == before
    check_compacted(log)
