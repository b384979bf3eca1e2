"""Leaders, group coordinators, restarts, deletions of redundant records and refused appends in any order, compared with
a model that keeps one state for each offset.

The model knows nothing of batches and records. Bugs are planted in the shard, and the same run has to find each one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pykbroker.coordinator.result import CoordinatorRecord, Result
from pykbroker.coordinator.share import share_state
from pykbroker.coordinator.share.shard import ShareStateShard, StateOutcome, StateWrite
from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.coordinator.share.share_state import KeptState, ShareState
from pykbroker.coordinator.share.state_batches import PersistedBatch
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.stored.share.share_snapshot import ShareSnapshotKey
from pykbroker_wire.stored.share.share_update import ShareUpdateKey
from testkit import bug_search
from tests.coordinator.share.share_bench import COLD_MS, PRUNE_MS, ShareBench, now

pytestmark = pytest.mark.slow

LIMIT = 3
GROUP = "a:group"
ONE, OTHER = b"\1" * 16, b"\2" * 16
#: the topics with their partitions
TOPICS = {ONE: 2, OTHER: 1}
KEYS = [SharePartitionKey(GROUP, topic, index) for topic, count in TOPICS.items() for index in range(count)]
MOST_OFFSET = 12
STEP_MS = 20_000
#: The errors of a request whose records were not committed in time, or before the end of a leadership.
NOT_COMMITTED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)

some_key = st.sampled_from([KEYS[0], KEYS[0], *KEYS])
#: Most requests are not fenced.
epochs = st.sampled_from([-1, 0, 1, 2, 3, 4, 4, 4, 4])
starts = st.sampled_from([-1, -1, 0, 2, 5, 9])
some_batches = st.lists(
    st.builds(
        PersistedBatch,
        st.integers(0, MOST_OFFSET),
        st.integers(0, MOST_OFFSET),
        st.sampled_from([0, 2, 4]),
        st.integers(1, 3),
    ),
    max_size=4,
)
some_write = st.builds(StateWrite, epochs, epochs, starts, st.integers(0, 5), some_batches)


class Expected:
    """One share partition, as Kafka's rules want it."""

    def __init__(self) -> None:
        self.snapshot_epoch = self.state_epoch = self.leader_epoch = 0
        self.start = -1
        self.complete = -1
        self.offsets: dict[int, tuple[int, int]] = {}
        self.created = self.written = 0
        #: each record since the last tombstone: its offset, its epochs (no state epoch in an update), and if it is a
        #: snapshot
        self.history: list[tuple[int, int, int | None, bool]] = []

    def updates(self) -> int:
        count = 0
        for _, _, _, is_snapshot in self.history:
            if not is_snapshot:
                count += 1
            elif count >= LIMIT:
                count = 0
        return count

    def newest_leader(self) -> int:
        return max(leader for _, leader, _, _ in self.history)

    def newest_state(self) -> int:
        return max(state for _, _, state, _ in self.history if state is not None)

    def matches(self, state: ShareState) -> bool:
        found = {
            offset: (batch.delivery_count, batch.delivery_state)
            for batch in state.batches
            for offset in range(batch.first, batch.last + 1)
        }
        return found == self.offsets and state._replace(batches=()) == ShareState(
            self.snapshot_epoch,
            self.state_epoch,
            self.leader_epoch,
            self.start,
            self.complete,
            (),
            self.created,
            self.written,
        )


class Life(RuleBasedStateMachine):
    make_shard: ClassVar[Callable[..., ShareStateShard]] = ShareStateShard

    @initialize()
    def begin(self) -> None:
        self.bench = ShareBench(
            {"share.coordinator.snapshot.update.records.per.snapshot": str(LIMIT)}, type(self).make_shard
        )
        for topic, count in TOPICS.items():
            self.bench.create(topic, count)
        self.topics = dict(TOPICS)
        self.expected: dict[SharePartitionKey, Expected] = {}
        #: the offset of the next record
        self.end = 0
        self.started_ms = self.bench.world.now_ms()
        self.waiting: list[tuple[Any, Callable[[Any], None]]] = []

    # -- the model ----------------------------------------------------------------------------------------------------

    def snapshot(self, key: SharePartitionKey, expected: Expected) -> None:
        self.expected[key] = expected
        expected.history.append((self.end, expected.leader_epoch, expected.state_epoch, True))
        self.end += 1

    def expect_initialize(self, key: SharePartitionKey, state_epoch: int, start: int) -> ErrorCode:
        before = self.expected.get(key)
        if state_epoch < 0:
            return ErrorCode.INVALID_REQUEST
        if before is not None and state_epoch < before.newest_state():
            return ErrorCode.FENCED_STATE_EPOCH
        if key.partition >= self.topics.get(key.topic_id, 0):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        after = Expected()
        if before is not None:
            after.history = before.history
            after.snapshot_epoch = before.snapshot_epoch + 1
        after.state_epoch = state_epoch
        after.start = start
        after.complete = -1 if start == -1 else 0
        after.created = after.written = self.bench.world.now_ms()
        self.snapshot(key, after)
        return ErrorCode.NONE

    def refusal(self, key: SharePartitionKey, leader_epoch: int, state_epoch: int | None) -> ErrorCode:
        expected = self.expected.get(key)
        if expected is None or leader_epoch < 0 or (state_epoch is not None and state_epoch < 0):
            return ErrorCode.INVALID_REQUEST
        if leader_epoch < expected.newest_leader():
            return ErrorCode.FENCED_LEADER_EPOCH
        if state_epoch is not None and state_epoch < expected.newest_state():
            return ErrorCode.FENCED_STATE_EPOCH
        if key.partition >= self.topics.get(key.topic_id, 0):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def apply(self, key: SharePartitionKey, wanted: StateWrite, leader_epoch: int) -> None:
        expected = self.expected[key]
        expected.leader_epoch = leader_epoch
        if wanted.start_offset > expected.start:
            expected.start, expected.complete = wanted.start_offset, wanted.delivery_complete_count
        elif wanted.start_offset == expected.start:
            expected.complete = max(expected.complete, wanted.delivery_complete_count)
        for batch in wanted.batches:
            for offset in range(batch.first, batch.last + 1):
                at = (batch.delivery_count, batch.delivery_state)
                expected.offsets[offset] = max(at, expected.offsets.get(offset, at))
        expected.offsets = {
            offset: at for offset, at in expected.offsets.items() if expected.start == -1 or offset >= expected.start
        }
        if expected.updates() >= LIMIT:
            expected.snapshot_epoch += 1
            expected.created = expected.written = self.bench.world.now_ms()
            self.snapshot(key, expected)
        else:
            expected.history.append((self.end, leader_epoch, None, False))
            self.end += 1

    # -- answers ------------------------------------------------------------------------------------------------------

    def codes(self, found: Any) -> list[ErrorCode]:
        return [answer.code for partitions in found.values() for answer in partitions.values()]

    def when(self, value: Any, judge: Callable[[Any], None]) -> None:
        value = now(value)
        if isinstance(value, asyncio.Future):
            self.waiting.append((value, judge))
        elif not set(self.codes(value)) & set(NOT_COMMITTED):
            judge(value)

    def settle(self) -> None:
        self.bench.loop.settle()
        waiting, self.waiting = self.waiting, []
        for value, judge in waiting:
            self.when(value, judge)

    def ends(self, value: Any, codes: dict[SharePartitionKey, ErrorCode]) -> None:
        """The answer of a request has these codes."""

        def judge(found: Any) -> None:
            assert {key: found[key.topic_id][key.partition].code for key in codes} == codes
            assert len(self.codes(found)) == len(codes)

        self.when(value, judge)

    # -- requests -----------------------------------------------------------------------------------------------------

    @rule(key=some_key, state_epoch=epochs, start=starts, turn=st.booleans())
    def initialize_state(self, key: SharePartitionKey, state_epoch: int, start: int, turn: bool) -> None:
        code = self.expect_initialize(key, state_epoch, start)
        answer = self.bench.service.initialize(GROUP, [(key.topic_id, key.partition, (state_epoch, start))])
        self.ends(answer, {key: code})
        if turn:
            self.settle()

    @rule(wanted=st.lists(st.tuples(some_key, some_write), min_size=1, max_size=3), turn=st.booleans())
    def write(self, wanted: list[tuple[SharePartitionKey, StateWrite]], turn: bool) -> None:
        """A request may have a share partition twice. A share partition's later entries are decided after all first
        ones, and the answer shows its last one."""
        codes: dict[SharePartitionKey, ErrorCode] = {}
        for key, each in in_rounds(wanted):
            codes[key] = self.refusal(key, each.leader_epoch, each.state_epoch)
            if not codes[key]:
                self.apply(key, each, self.expected[key].leader_epoch)
        answer = self.bench.service.write(GROUP, [(key.topic_id, key.partition, each) for key, each in wanted])
        self.ends(answer, codes)
        if turn:
            self.settle()

    @rule(key=some_key, leader_epoch=epochs, turn=st.booleans())
    def read(self, key: SharePartitionKey, leader_epoch: int, turn: bool) -> None:
        code = self.refusal(key, leader_epoch, None)
        shown: ShareState | None = None

        def judge(found: Any) -> None:
            answer = found[key.topic_id][key.partition]
            assert answer.code == code
            assert (answer.state is None) == (code != ErrorCode.NONE)
            # The state of the answer is that before the record of the read.
            assert answer.state is None or answer.state._replace(batches=()) == shown

        if not code:
            expected = self.expected[key]
            shown = ShareState(
                expected.snapshot_epoch,
                expected.state_epoch,
                expected.leader_epoch,
                expected.start,
                expected.complete,
                (),
                expected.created,
                expected.written,
            )
            if leader_epoch != expected.newest_leader():
                self.apply(key, StateWrite(-1, leader_epoch, expected.start, expected.complete, []), leader_epoch)
        self.when(self.bench.service.read(GROUP, [(key.topic_id, key.partition, leader_epoch)]), judge)
        if turn:
            self.settle()

    @rule(key=some_key, wanted=some_write)
    def an_older_leader_writes(self, key: SharePartitionKey, wanted: StateWrite) -> None:
        if key in self.expected:
            self.write([(key, wanted._replace(leader_epoch=max(0, self.expected[key].newest_leader() - 1)))], True)

    @rule(key=some_key)
    def summary(self, key: SharePartitionKey) -> None:
        self.settle()
        exists = key.partition < self.topics.get(key.topic_id, 0)
        expected = self.expected.get(key)

        def judge(found: Any) -> None:
            answer = found[key.topic_id][key.partition]
            assert answer.code == (ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            assert (answer.state is not None) == (exists and expected is not None)

        self.when(self.bench.service.read_summary(GROUP, [(key.topic_id, key.partition, -1)]), judge)

    @rule(key=some_key, turn=st.booleans())
    def delete_state(self, key: SharePartitionKey, turn: bool) -> None:
        exists = key.partition < self.topics.get(key.topic_id, 0)
        if exists and self.expected.pop(key, None) is not None:
            self.end += 1
        answer = self.bench.service.delete(GROUP, [(key.topic_id, key.partition, None)])
        self.ends(answer, {key: ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
        if turn:
            self.settle()

    # -- the world ----------------------------------------------------------------------------------------------------

    @rule(key=some_key, wanted=some_write)
    def a_refused_append_changes_nothing(self, key: SharePartitionKey, wanted: StateWrite) -> None:
        self.settle()
        self.bench.partition.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
        code = self.refusal(key, wanted.leader_epoch, wanted.state_epoch) or ErrorCode.COORDINATOR_NOT_AVAILABLE
        answer = self.bench.service.write(GROUP, [(key.topic_id, key.partition, wanted)])
        self.settle()
        found = now(answer)
        # Behind records that are not committed a refusal waits too.
        if not isinstance(found, asyncio.Future):
            assert self.codes(found) == [code]
        self.bench.partition.refuse = None

    @rule(hold=st.booleans())
    def commits_wait(self, hold: bool) -> None:
        self.settle()
        self.bench.partition.hold = hold
        if not hold:
            self.bench.partition.commit()
        self.settle()

    @rule(steps=st.integers(1, 6))
    def time_passes(self, steps: int) -> None:
        self.settle()
        for _ in range(steps):
            time = self.bench.world.now_ms() + STEP_MS - self.started_ms
            if time % PRUNE_MS == 0 and time % COLD_MS and not self.bench.partition.hold:
                self.prunes()
            else:
                self.bench.loop.advance(STEP_MS / 1000)
            if time % COLD_MS == 0:
                self.expect_cold()
        self.settle()

    def prunes(self) -> None:
        """Let time pass until a pruning. It deletes the records that no share partition needs, and no others."""
        start = self.bench.partition.log.log_start_offset
        needed = self.needed()
        self.bench.loop.advance(STEP_MS / 1000)
        assert self.bench.partition.log.log_start_offset == max(start, needed)

    def needed(self) -> int:
        """Return the offset of the first record that a fresh coordinator needs."""
        last: dict[tuple[str, bytes, int], int] = {}
        tombstone = 0
        for offset, key, value in self.bench.log():
            if isinstance(key, ShareUpdateKey):
                continue
            assert isinstance(key, ShareSnapshotKey)
            last[key.group_id, key.topic_id, key.partition] = offset
            if value is None:
                del last[key.group_id, key.topic_id, key.partition]
                tombstone = offset
        return min(last.values(), default=tombstone)

    def expect_cold(self) -> None:
        time = self.bench.world.now_ms()
        if any(each.created == each.written for each in self.expected.values()):
            for key, each in self.expected.items():
                if time - each.written >= COLD_MS:
                    each.snapshot_epoch += 1
                    each.written = time
                    self.snapshot(key, each)

    @rule()
    def a_topic_goes_and_comes(self) -> None:
        self.settle()
        if OTHER in self.topics:
            del self.topics[OTHER]
            for key in [key for key in self.expected if key.topic_id == OTHER]:
                del self.expected[key]
                self.end += 1
            self.bench.delete(OTHER)
        else:
            self.topics[OTHER] = TOPICS[OTHER]
            self.bench.create(OTHER, TOPICS[OTHER])
        self.settle()

    @rule()
    def restart(self) -> None:
        self.settle()
        start = self.bench.partition.log.log_start_offset
        if self.bench.partition.log.batches:
            # A load reads whole batches.
            start = min(start, next(iter(self.bench.log()))[0])
        self.bench = self.bench.restart()
        self.started_ms = self.bench.world.now_ms()
        self.settle()
        for expected in self.expected.values():
            expected.history = [entry for entry in expected.history if entry[0] >= start]

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def the_state_is_as_expected(self) -> None:
        if not hasattr(self, "bench") or self.bench.service.coordinator._hosts[0].batch:
            return
        assert self.bench.partition.log.log_end_offset == self.end
        found = self.bench.shard.states
        assert found.keys() == self.expected.keys()
        for key, expected in self.expected.items():
            assert expected.matches(found[key].state), (key, found[key].state)

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.commits_wait(False)
        assert not self.waiting
        self.restart()
        self.the_state_is_as_expected()
        self.bench.service.close()


def in_rounds(
    wanted: Iterable[tuple[SharePartitionKey, StateWrite]],
) -> Iterable[tuple[SharePartitionKey, StateWrite]]:
    rounds: list[list[tuple[SharePartitionKey, StateWrite]]] = [[], [], []]
    seen: dict[SharePartitionKey, int] = {}
    for key, each in wanted:
        rounds[seen.setdefault(key, 0)].append((key, each))
        seen[key] += 1
    return [entry for each in rounds for entry in each]


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=80, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)


# -- bugs that the run finds ------------------------------------------------------------------------------------------


class WriteRaisesTheLeaderEpoch(ShareStateShard):
    def write(self, key: SharePartitionKey, wanted: StateWrite, now_ms: int, result: Result) -> StateOutcome:
        answer = super().write(key, wanted, now_ms, result)
        if not answer.code and wanted.leader_epoch > 0:
            result.records[-1].value.leader_epoch = wanted.leader_epoch  # type: ignore[union-attr]
        return answer


class AWriteMovesTheStartBack(ShareStateShard):
    def write(self, key: SharePartitionKey, wanted: StateWrite, now_ms: int, result: Result) -> StateOutcome:
        answer = super().write(key, wanted, now_ms, result)
        if not answer.code and wanted.start_offset >= 0:
            result.records[-1].value.start_offset = wanted.start_offset  # type: ignore[union-attr]
        return answer


class ReadFencesNoLeader(ShareStateShard):
    def read(self, key: SharePartitionKey, leader_epoch: int, now_ms: int, result: Result) -> StateOutcome:
        return super().read(key, leader_epoch, now_ms, Result())


class EachSnapshotBeginsTheCount(ShareStateShard):
    def _replay_snapshot(self, key: SharePartitionKey, state: ShareState, at: int) -> None:
        super()._replay_snapshot(key, state, at)
        self.states[key].updates = 0


class SnapshotForgetsTheEpochs(ShareStateShard):
    def _replay_snapshot(self, key: SharePartitionKey, state: ShareState, at: int) -> None:
        super()._replay_snapshot(key, state, at)
        self.states[key].leader_epoch = state.leader_epoch


class InitialisationKeepsTheBatches(ShareStateShard):
    def _replay_snapshot(self, key: SharePartitionKey, state: ShareState, at: int) -> None:
        before = self.states.get(key)
        batches = state.batches or (before.state.batches if before else ())
        super()._replay_snapshot(key, state._replace(batches=batches), at)


class TombstonesAreNotReplayed(ShareStateShard):
    def replay(self, record: CoordinatorRecord, at: int, producer_id: int = -1) -> None:
        if record.value is not None:
            super().replay(record, at, producer_id)


class DeletesWhatAColdOneNeeds(ShareStateShard):
    def redundant_before(self) -> int | None:
        return max((kept.snapshot_at or 0 for kept in self.states.values()), default=None)


class DeletesNothing(ShareStateShard):
    def redundant_before(self) -> int | None:
        return None


class NoSnapshotOfColdOnes(ShareStateShard):
    def snapshot_cold(self, interval_ms: int, now_ms: int) -> Result:
        return Result()


class CollectedRecordsAreNotSeen(ShareStateShard):
    def must_see(self, keys: Any) -> bool:
        return False


class DecidesInPlace(ShareStateShard):
    def write(self, key: SharePartitionKey, wanted: StateWrite, now_ms: int, result: Result) -> StateOutcome:
        answer = super().write(key, wanted, now_ms, result)
        if not answer.code:
            kept = self.states[key]
            kept.state = kept.state._replace(delivery_complete_count=wanted.delivery_complete_count)
        return answer


class UnknownStateIsWritten(ShareStateShard):
    def write(self, key: SharePartitionKey, wanted: StateWrite, now_ms: int, result: Result) -> StateOutcome:
        if key not in self.states:
            initial = share_state.initial_state(0, -1, 0, now_ms)
            self._write(key, KeptState(initial), 0, wanted, now_ms, result)
            return StateOutcome(ErrorCode.NONE)
        return super().write(key, wanted, now_ms, result)


class StateOfDeletedTopicsStays(ShareStateShard):
    def topics_deleted(self, topic_ids: Any) -> Result:
        return Result()


def the_newest_batch_holds(so_far: Any, new: Any, start: int) -> tuple[PersistedBatch, ...]:
    """A merge in which a later batch replaces an earlier one of a higher state."""
    offsets = {offset: batch for batch in (*so_far, *new) for offset in range(max(batch.first, start), batch.last + 1)}
    return tuple(batch._replace(first=at, last=at) for at, batch in sorted(offsets.items()))


BUGS: list[type[ShareStateShard]] = [
    WriteRaisesTheLeaderEpoch,
    AWriteMovesTheStartBack,
    ReadFencesNoLeader,
    EachSnapshotBeginsTheCount,
    SnapshotForgetsTheEpochs,
    InitialisationKeepsTheBatches,
    TombstonesAreNotReplayed,
    DeletesWhatAColdOneNeeds,
    DeletesNothing,
    NoSnapshotOfColdOnes,
    CollectedRecordsAreNotSeen,
    DecidesInPlace,
    UnknownStateIsWritten,
    StateOfDeletedTopicsStays,
]


#: Where the search for a bug begins, if it finds nothing with the first seed.
SEEDS: Final[dict[type[ShareStateShard], int]] = {
    WriteRaisesTheLeaderEpoch: 4,
    EachSnapshotBeginsTheCount: 1,
    # The shard is right, and merges batches in the wrong order.
    ShareStateShard: 5,
    TombstonesAreNotReplayed: 3,
    DeletesWhatAColdOneNeeds: 2,
    DeletesNothing: 3,
    DecidesInPlace: 5,
}


def search(shard: type[ShareStateShard]) -> None:
    class WithBug(Life):
        make_shard = shard

    bug_search.search(WithBug, seed=SEEDS.get(shard, 0), steps=40)


@pytest.mark.parametrize("shard", BUGS, ids=lambda shard: shard.__name__)
def test_a_planted_bug_is_found(shard: type[ShareStateShard]) -> None:
    with pytest.raises((AssertionError, KeyError, AttributeError)):
        search(shard)


def test_a_merge_in_the_wrong_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_state, "merged", the_newest_batch_holds)
    with pytest.raises(AssertionError):
        search(ShareStateShard)
