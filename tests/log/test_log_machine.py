"""A log in its directory against a dictionary, driven by hypothesis: the cases that test_model.py does not have.

Several producers that repeat themselves, and batches of a leader in every codec and of a follower. The log continues
after a clean stop, after a kill, and after a power loss, which may remove only what was not flushed.
"""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from pykbroker_log.log_config import LogConfig
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_wire.errors import KafkaError
from pykbroker_wire.records.batch import build_batch, iter_batches
from testkit.logs.helpers import NOW, TOPIC_ID, check_consistent, values

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=100, retention_bytes=2500, file_delete_delay_ms=0)
PRODUCERS = st.integers(0, 2)
BODIES = st.lists(st.binary(max_size=60), min_size=1, max_size=4)


class LogMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.disk = MemoryDisk()
        self.disk.make_dirs("data")
        self.disk.fsync_dir(".")
        self.records: dict[int, tuple[int, bytes]] = {}
        # Producer -> (sequence, first offset, values) of its latest batches.
        self.sent: dict[int, list[tuple[int, int, list[bytes]]]] = {}
        self.flushed = self.epoch = 0
        self.now = NOW
        self.open()

    def open(self) -> None:
        self.dir = LogDir.open(self.disk, "data", bytes(16), self.now)
        self.log = self.dir.open_log("t", 0, TOPIC_ID, CONFIG, self.now)
        self.log.set_high_watermark(self.log.log_end_offset)

    def batch(self, made: list[bytes], **fields: Any) -> bytearray:
        self.now += 1
        return bytearray(build_batch([(None, value, (), self.now) for value in made], **fields))

    def put(self, made: list[bytes]) -> None:
        end = self.log.log_end_offset - len(made)
        self.records.update({end + i: (self.now, value) for i, value in enumerate(made)})
        self.log.set_high_watermark(self.log.log_end_offset)

    # -- writing

    @rule(made=BODIES, codec=st.integers(0, 4))
    def append(self, made: list[bytes], codec: int) -> None:
        end = self.log.log_end_offset
        info = self.log.append_as_leader(self.batch(made, codec=codec), leader_epoch=self.epoch, now_ms=self.now)
        assert (info.first_offset, info.last_offset) == (end, end + len(made) - 1)
        self.put(made)

    @rule(made=BODIES)
    def append_as_follower(self, made: list[bytes]) -> None:
        end = self.log.log_end_offset
        self.log.append_as_follower(self.batch(made, base_offset=end, leader_epoch=self.epoch))
        self.put(made)

    @rule(producer=PRODUCERS, made=BODIES)
    def append_in_sequence(self, producer: int, made: list[bytes]) -> None:
        end = self.log.log_end_offset
        before = self.sent.setdefault(producer, [])
        sequence = before[-1][0] + len(before[-1][2]) if before else 0
        self.send(producer, sequence, made)
        assert self.log.log_end_offset == end + len(made)
        before.append((sequence, end, made))
        self.put(made)

    def send(self, producer: int, sequence: int, made: list[bytes]) -> tuple[int, bool]:
        data = self.batch(made, producer_id=producer, producer_epoch=0, base_sequence=sequence)
        info = self.log.append_as_leader(data, leader_epoch=self.epoch, now_ms=self.now)
        return info.first_offset, info.duplicate

    @rule(producer=PRODUCERS, which=st.integers(1, 5))
    def repeat(self, producer: int, which: int) -> None:
        before = self.sent.get(producer, [])
        if len(before) >= which and before[-which][1] >= self.log.log_start_offset:
            sequence, offset, made = before[-which]
            assert self.send(producer, sequence, made) == (offset, True)

    # -- the life of a log

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now)

    @rule()
    def next_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.log.log_end_offset

    @rule()
    def checkpoint(self) -> None:
        self.dir.checkpoints.write_all()

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        start = self.log.log_start_offset
        self.log.delete_records_before(start + int(share * (self.log.high_watermark - start)))

    @rule()
    def retire(self) -> None:
        self.log.retire(self.now)
        self.dir.checkpoints.write_all()
        for path in self.log.purge(self.now):
            self.disk.unlink(path)

    @rule(back=st.integers(0, 8))
    def truncate(self, back: int) -> None:
        self.log.truncate_to(max(self.log.log_start_offset, self.log.log_end_offset - back))
        self.cut()

    def cut(self) -> None:
        """Remove from the model what the log is allowed to lose."""
        end = self.log.log_end_offset
        self.records = {offset: record for offset, record in self.records.items() if offset < end}
        self.flushed = min(self.flushed, end)
        for producer, before in self.sent.items():
            self.sent[producer] = [sent for sent in before if sent[1] + len(sent[2]) <= end]

    @rule()
    def stop_and_start(self) -> None:
        end = self.log.log_end_offset
        self.dir.close(clean=True)
        self.disk = self.disk.power_loss()
        self.open()
        assert self.log.recovery is None
        assert self.log.log_end_offset == end
        self.flushed = end

    @rule()
    def kill(self) -> None:
        end = self.log.log_end_offset
        self.disk = self.disk.power_loss(Survive.EVERYTHING)
        self.open()
        assert self.log.log_end_offset == end

    @rule(chance=st.randoms(use_true_random=False))
    def lose_power(self, chance: Any) -> None:
        start = self.log.log_start_offset
        self.disk = self.disk.power_loss(Survive.CHOSEN, choose=chance.randrange)
        self.open()
        assert self.log.log_end_offset >= self.flushed
        # Without any flush the first file's name may be lost and the second's kept: then the log begins later.
        assert self.log.log_start_offset <= start or self.flushed <= start
        self.cut()

    # -- invariants

    @invariant()
    def has_what_the_model_has(self) -> None:
        start = self.log.log_start_offset
        live = {offset: value for offset, (_, value) in self.records.items() if offset >= start}
        assert values(self.log) == live

    @rule(share=st.floats(0, 1), limit=st.integers(0, 2000))
    def read(self, share: float, limit: int) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        offset = start + int(share * (end - start))
        if offset == end:
            assert self.log.read(offset, limit, end).size == 0
            with pytest.raises(KafkaError):
                self.log.read(end + 1, limit, end)
            return
        result = self.log.read(offset, limit, end)
        found = [header for _, header in iter_batches(result.joined())]
        assert found[0].base_offset <= offset <= found[0].last_offset
        assert result.size <= limit or len(found) == 1

    @rule(back=st.integers(-3, 60))
    def by_time(self, back: int) -> None:
        start = self.log.log_start_offset
        live = sorted((offset, when) for offset, (when, _) in self.records.items() if offset >= start)
        expected = next((offset for offset, when in live if when >= self.now - back), None)
        found = self.log.offset_for_timestamp(self.now - back)
        assert (found[0] if found else None) == expected

    def teardown(self) -> None:
        if hasattr(self, "log"):
            check_consistent(self.log)


def settings(examples: int) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )


@pytest.mark.slow
def test_a_log_and_its_model() -> None:
    run_state_machine_as_test(LogMachine, settings=settings(40))


@pytest.mark.long(amount="3,000 lives")
@pytest.mark.timeout(3600)
def test_a_log_and_its_model_for_longer() -> None:
    run_state_machine_as_test(LogMachine, settings=settings(3000))
