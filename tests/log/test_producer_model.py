"""Idempotent producers against a simple model: all their batches in a list. Whatever happens to the log, its state is
that of the list's end, and the response to a batch follows from it."""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from pykbroker_log.deletion import delete_files
from pykbroker_log.log_config import LogConfig
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_log.producers import KEPT_BATCHES, decode_snapshot
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.batch import MAX_INT32, build_batch
from testkit.logs.helpers import NOW, batch, open_log

EXPIRATION_MS = 1000
PIDS = st.integers(1, 3)


@dataclass(frozen=True)
class Sent:
    epoch: int
    first: int
    last: int
    first_offset: int
    last_offset: int
    at_ms: int


def after(sequence: int, count: int) -> int:
    """Add to a sequence number, which wraps around."""
    return (sequence + count) & MAX_INT32


class Producers(RuleBasedStateMachine):
    @initialize(segment_bytes=st.sampled_from([200, 600, 1 << 20]))
    def start(self, segment_bytes: int) -> None:
        self.config = LogConfig(segment_bytes=segment_bytes, retention_ms=-1, file_delete_delay_ms=0)
        self.disk = MemoryDisk(record=False)
        self.now = NOW
        #: all batches of each producer that were not cut off since
        self.sent: dict[int, list[Sent]] = {}
        #: the producers that the log knows
        self.known: set[int] = set()
        #: the number of latest batches for which a repetition must be recognized
        self.remembered: dict[int, int] = {}
        self.log = open_log(self.disk, config=self.config)
        self.log.producers.expiration_ms = EXPIRATION_MS

    # -- verdicts of the model

    def verdict(self, pid: int, epoch: int, first: int, last: int) -> set[ErrorCode | int]:
        """The correct answers: an error, the offset of the batch that it repeats, or -1 for a new one."""
        if pid not in self.known:
            return {-1}
        sent = self.sent[pid]
        newest = sent[-1]
        if epoch < newest.epoch:
            return {ErrorCode.INVALID_PRODUCER_EPOCH}
        if epoch > newest.epoch:
            return {-1} if first == 0 else {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
        if first == after(newest.last, 1):
            return {-1}
        own = [old for old in reversed(sent) if old.epoch == epoch][:KEPT_BATCHES]
        same = [(age, old.first_offset) for age, old in enumerate(own, 1) if (old.first, old.last) == (first, last)]
        if same and same[0][0] <= self.remembered[pid]:
            return {same[0][1]}
        return {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, *(offset for _, offset in same)}

    def offer(self, pid: int, epoch: int, first: int, count: int) -> None:
        last = after(first, count - 1)
        expected = self.verdict(pid, epoch, first, last)
        end = self.log.log_end_offset
        data = batch(*[b"v"] * count, timestamp=self.now, pid=pid, epoch=epoch, seq=first)
        found: ErrorCode | int
        try:
            info = self.log.append_as_leader(data, leader_epoch=0, now_ms=self.now)
        except KafkaError as error:
            found = error.code
        else:
            found = info.first_offset if info.duplicate else -1
            if info.duplicate:
                assert info.last_offset == info.first_offset + count - 1
        assert found in expected
        if found == -1:
            self.wrote(pid, Sent(epoch, first, last, end, end + count - 1, self.now))
        else:
            assert self.log.log_end_offset == end

    def wrote(self, pid: int, new: Sent) -> None:
        if pid not in self.known:
            # The batches from before the producer expired are in the log, but in no state.
            self.sent.setdefault(pid, [])
            self.remembered[pid] = 0
            self.known.add(pid)
        self.sent[pid].append(new)
        self.remembered[pid] += 1
        self.log.set_high_watermark(self.log.log_end_offset)
        assert self.log.log_end_offset == new.last_offset + 1

    def agree(self, *, exact: bool) -> None:
        """Check the state after the log was opened or cut: it is right, and it lacks only what may have been forgotten.

        With `exact`, only expired producers may have been forgotten."""
        for pid, sent in self.sent.items():
            entry = self.log.producers.entries.get(pid)
            if entry is None:
                if pid in self.known and sent:
                    may_go = self.now - sent[-1].at_ms >= EXPIRATION_MS
                    assert may_go or (not exact and sent[-1].last_offset < self.log.log_start_offset), (pid, sent)
                self.known.discard(pid)
            else:
                assert sent, "nothing that it wrote is left"
                self.known.add(pid)
                self.remembered[pid] = 1
        for pid in self.log.producers.entries:
            assert pid in self.known
        self.log.producers.expiration_ms = EXPIRATION_MS

    # -- operations

    @rule(pid=PIDS, count=st.integers(1, 3), begin=st.sampled_from([0, 7, MAX_INT32 - 2]), wait=st.integers(0, 300))
    def send(self, pid: int, count: int, begin: int, wait: int) -> None:
        self.now += wait
        if pid in self.known:
            newest = self.sent[pid][-1]
            self.offer(pid, newest.epoch, after(newest.last, 1), count)
        else:
            self.offer(pid, 0, begin, count)

    @rule(pid=PIDS, age=st.integers(1, 7), shorter=st.booleans())
    def repeat(self, pid: int, age: int, shorter: bool) -> None:
        if pid in self.known and len(self.sent[pid]) >= age:
            old = self.sent[pid][-age]
            count = (old.last - old.first & MAX_INT32) + 1
            self.offer(pid, old.epoch, old.first, max(1, count - shorter))

    @rule(pid=PIDS, ahead=st.integers(2, 9))
    def leave_out(self, pid: int, ahead: int) -> None:
        if pid in self.known:
            newest = self.sent[pid][-1]
            self.offer(pid, newest.epoch, after(newest.last, ahead), 1)

    @rule(pid=PIDS, step=st.sampled_from([-1, 1, 3]), first=st.sampled_from([0, 1]))
    def another_epoch(self, pid: int, step: int, first: int) -> None:
        if pid in self.known and self.sent[pid][-1].epoch + step >= 0:
            self.offer(pid, self.sent[pid][-1].epoch + step, first, 1)

    @rule(pid=PIDS, gap=st.integers(0, 5))
    def follow_a_compacted_log(self, pid: int, gap: int) -> None:
        """Append a batch that follows a gap in offsets and sequence numbers, as compaction leaves it."""
        epoch, first = 0, 0
        if pid in self.known:
            newest = self.sent[pid][-1]
            epoch, first = newest.epoch, after(newest.last, 1 + gap)
        base = self.log.log_end_offset + gap
        made = build_batch(
            [(None, b"v", (), self.now)],
            base_offset=base,
            leader_epoch=0,
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=first,
        )
        self.log.append_as_follower(made, now_ms=self.now)
        self.wrote(pid, Sent(epoch, first, first, base, base, self.now))

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now)
        base = self.log.files.active.base_offset
        if base > self.log.log_start_offset:
            # A new segment comes with a snapshot of the state at its beginning.
            path = f"data/t-0/{base:020d}.snapshot"
            assert self.disk.exists(path)

    @rule(part=st.integers(0, 10))
    def delete(self, part: int) -> None:
        start, end = self.log.log_start_offset, self.log.high_watermark
        self.log.delete_records_before(start + (end - start) * part // 10)
        self.log.retire(self.now)
        delete_files(self.disk, self.log.purge(self.now))

    @rule(back=st.integers(1, 8))
    def truncate(self, back: int) -> None:
        target = max(self.log.log_start_offset, self.log.log_end_offset - back)
        self.log.truncate_to(target)
        end = self.log.log_end_offset
        for pid in self.sent:
            self.sent[pid] = [old for old in self.sent[pid] if old.last_offset < end]
        self.agree(exact=False)

    @rule(wait=st.integers(0, 700))
    def expire(self, wait: int) -> None:
        self.now += wait
        self.log.producers.remove_expired(self.now)
        self.known = {pid for pid in self.known if self.now - self.sent[pid][-1].at_ms < EXPIRATION_MS}

    @rule(clean=st.booleans(), damage=st.sampled_from(["", "", "newest", "all"]), flush=st.booleans())
    def restart(self, clean: bool, damage: str, flush: bool) -> None:
        if flush and not clean:
            self.log.flush()
        point = self.log.log_end_offset if clean else self.log.recovery_point
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.log.close(clean=clean)
        self.disk = self.disk.power_loss(Survive.EVERYTHING)
        snapshots = sorted(name for name in self.disk.list("data/t-0") if name.endswith(".snapshot"))
        for name in snapshots[-1:] if damage == "newest" else snapshots if damage else []:
            self.disk.open(f"data/t-0/{name}").pwritev((b"\xff",), 8)
        self.log = open_log(
            self.disk,
            config=self.config,
            clean=clean,
            recovery_point=point,
            log_start_offset=start,
            high_watermark=end,
            now_ms=self.now,
            producer_id_expiration_ms=EXPIRATION_MS,
        )
        assert (self.log.log_start_offset, self.log.log_end_offset) == (start, end)
        self.agree(exact=not damage and end > start)

    @invariant()
    def the_state_is_that_of_the_newest_batches(self) -> None:
        if not hasattr(self, "log"):
            return
        entries = self.log.producers.entries
        assert entries.keys() == self.known
        for pid, entry in entries.items():
            newest = self.sent[pid][-1]
            assert (entry.epoch, entry.last_sequence, entry.last_offset) == (
                newest.epoch,
                newest.last,
                newest.last_offset,
            )
            assert entry.last_timestamp == newest.at_ms
        # The bytes of a snapshot are the state, with the last batch of each producer.
        again = list(decode_snapshot(self.log.producers.encode()))
        assert {entry.producer_id: entry.batches for entry in again} == {
            pid: entry.batches[-1:] for pid, entry in entries.items()
        }

    @invariant()
    def no_file_is_left_over(self) -> None:
        if hasattr(self, "log"):
            files = [int(name[:20]) for name in self.disk.list("data/t-0") if name.endswith(".snapshot")]
            assert sorted(files) == sorted(self.log.files.side.snapshots)
            assert max(files, default=0) <= self.log.log_end_offset
            assert not [name for name in self.disk.list("data/t-0") if name.endswith(".deleted")]


def play(examples: int, steps: int) -> None:
    settings = hypothesis.settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    run_state_machine_as_test(Producers, settings=settings)


@pytest.mark.slow
def test_producers_against_the_model() -> None:
    play(40, 30)


@pytest.mark.long(amount="2,000 lives of 60 steps")
@pytest.mark.timeout(1800)
def test_producers_against_the_model_for_long() -> None:
    play(2000, 60)
