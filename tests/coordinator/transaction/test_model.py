"""Producers, zombies, brokers that fail and coordinators that restart, in any order, compared with rules that must
hold.

These are the invariants:

* each transaction ends (liveness, at the end of each run);
* its partitions get one decision (T4);
* one epoch of a transactional id is alive (T5);
* markers carry rising coordinator epochs (T6);
* a marker is written only when the decision is committed (T8);
* a restart of the coordinator changes nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pykbroker.coordinator.transaction import records
from pykbroker.coordinator.transaction.records import Transaction, transaction_of
from pykbroker.coordinator.transaction.shard import Identity, Producer
from pykbroker.coordinator.transaction.states import IDLE, PREPARED
from pykbroker.metadata.features import TRANSACTION_VERSION
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.record import iter_records
from tests.coordinator.transaction.transaction_bench import TransactionBench

pytestmark = pytest.mark.slow

IDS = ("x", "y")
PARTITIONS = (("t", 0), ("t", 1), ("u", 0))
BROKERS = (1, 2, 3)
PASSES = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT]
TIMEOUT_MS = 20_000

some_id = st.sampled_from(IDS)
some_partition = st.sampled_from(PARTITIONS)
some_broker = st.sampled_from(BROKERS)
#: Most producers ask with their newest identity, zombies with an older one.
backwards = st.sampled_from([0, 0, 0, 0, 1, 2])
versions = st.sampled_from([2, 2, 2, 0])


class Life(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.bench = TransactionBench()
        self.bench.cluster.finalized[TRANSACTION_VERSION] = 2
        for partition, broker in zip(PARTITIONS, BROKERS, strict=True):
            self.bench.cluster.leaders[partition] = broker
        for name in IDS:
            self.bench.init(name, TIMEOUT_MS)
        #: identities that were given out, the newest last
        self.given: dict[str, list[tuple[int, int]]] = {name: [] for name in IDS}
        #: the decisions in markers, by producer id and epoch of the decision
        self.decisions: dict[tuple[int, int, int], bool] = {}
        self.coordinators: dict[tuple[Any, int], int] = {}
        self.markers_seen = 0
        #: ends that were answered, which markers must confirm
        self.answered: dict[tuple[int, int], bool] = {}
        self.waiting: list[tuple[Any, Any]] = []

    # -- answers ------------------------------------------------------------------------------------------------------

    def when(self, value: Any, judge: Any) -> None:
        if isinstance(value, asyncio.Future):
            if not value.done():
                self.waiting.append((value, judge))
                return
            value = value.result()
        judge(value)

    def settle(self) -> None:
        self.bench.loop.settle()
        waiting, self.waiting = self.waiting, []
        for value, judge in waiting:
            self.when(value, judge)

    def give(self, name: str, answer: Identity) -> None:
        if answer.error is ErrorCode.NONE and answer.producer_id >= 0:
            identity = (answer.producer_id, answer.producer_epoch)
            if identity not in self.given[name]:
                self.given[name].append(identity)

    # -- producers ----------------------------------------------------------------------------------------------------

    @rule(name=some_id, go_on=st.booleans())
    def init(self, name: str, go_on: bool) -> None:
        expected = self.given[name][-1] if go_on and self.given[name] else None
        self.when(self.bench.init(name, TIMEOUT_MS, expected), lambda answer: self.give(name, answer))
        self.settle()

    @rule(name=some_id, partition=some_partition, back=backwards, version=versions)
    def add(self, name: str, partition: Any, back: int, version: int) -> None:
        if len(self.given[name]) <= back:
            return
        identity = self.given[name][-1 - back]
        answer = self.bench.add(Producer(name, *identity), partition, version=version)
        present = self.bench.shard.transactions.get(name)
        if answer is ErrorCode.NONE:
            # T5: only the newest producer begins or continues a transaction.
            assert present is not None
            assert identity == (present.producer_id, present.epoch)
            assert partition in present.partitions
        self.settle()

    @rule(name=some_id, back=backwards, commit=st.booleans(), version=versions)
    def end(self, name: str, back: int, commit: bool, version: int) -> None:
        if len(self.given[name]) <= back:
            return
        identity = self.given[name][-1 - back]

        def judge(answer: Identity) -> None:
            self.give(name, answer)
            if answer.error is ErrorCode.NONE and version == 2:
                # If the same end is answered twice, both answers are the same decision.
                assert self.answered.setdefault(identity, commit) is commit

        self.when(self.bench.end(Producer(name, *identity), commit, version), judge)
        self.settle()

    @rule(name=some_id, partitions=st.sets(some_partition, min_size=1), commit=st.booleans(), version=versions)
    def transact(self, name: str, partitions: set[Any], commit: bool, version: int) -> None:
        """Do a usual transaction of a producer."""
        if not self.given[name]:
            self.init(name, False)
        for partition in sorted(partitions):
            self.add(name, partition, 0, version)
        self.end(name, 0, commit, version)

    # -- the world ----------------------------------------------------------------------------------------------------

    @rule(partition=some_partition, broker=st.sampled_from([*BROKERS, -1]))
    def move(self, partition: Any, broker: int) -> None:
        self.bench.leader(partition, broker)

    @rule(broker=some_broker, code=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, *PASSES]))
    def answer(self, broker: int, code: ErrorCode) -> None:
        if any(to == broker for to, _, _ in self.bench.requests):
            self.bench.answer(broker, dict.fromkeys(PARTITIONS, code))
        self.settle()

    @rule(broker=some_broker)
    def disconnect(self, broker: int) -> None:
        if any(to == broker for to, _, _ in self.bench.requests):
            self.bench.disconnect(broker)
        self.settle()

    @rule(partition=some_partition, codes=st.lists(st.sampled_from(PASSES), max_size=2))
    def refuse_markers_here(self, partition: Any, codes: list[ErrorCode]) -> None:
        self.bench.verdicts[partition] = codes

    @rule(milliseconds=st.sampled_from([10, 60, 1_000, 15_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.bench.advance(milliseconds)
        self.settle()

    @rule(code=st.sampled_from([None, None, None, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR]))
    def the_log_refuses(self, code: ErrorCode | None) -> None:
        self.bench.partition.refuse = code

    @rule(hold=st.booleans())
    def commits_wait(self, hold: bool) -> None:
        self.bench.partition.hold = hold
        if not hold:
            self.bench.partition.commit()
        self.settle()

    @rule(version=st.sampled_from([1, 2, 2]))
    def upgrade(self, version: int) -> None:
        self.bench.cluster.finalized[TRANSACTION_VERSION] = version

    @rule()
    def restart(self) -> None:
        before = {name: forgetful(transaction) for name, transaction in self.bench.shard.transactions.items()}
        self.look_at_markers()
        self.bench.partition.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
        self.bench = self.bench.restart(start=False)
        self.bench.loop.settle()
        after = {name: forgetful(transaction) for name, transaction in self.bench.shard.transactions.items()}
        for name, transaction in before.items():
            if transaction.state in PREPARED and not transaction.partitions:
                # The transaction has no partitions to wait for, so the next coordinator completes it while it loads.
                assert after.pop(name).state in IDLE
            else:
                assert after.pop(name) == transaction
        assert not after
        self.markers_seen = 0
        self.bench.service.start()
        self.settle()

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def look_at_markers(self) -> None:
        new, self.markers_seen = self.bench.written[self.markers_seen :], len(self.bench.written)
        if not new:
            return
        decided = committed_decisions(self.bench)
        for partition, marker in new:
            identity = (marker.producer_id, marker.producer_epoch)
            assert marker.commit in decided.get(identity, ()), "T8"
            newest = self.coordinators.get((partition, marker.producer_id), 0)
            assert marker.coordinator_epoch >= newest, "T6"
            self.coordinators[partition, marker.producer_id] = marker.coordinator_epoch
            if marker.transaction_version == 2:
                assert self.decisions.setdefault((*identity, 2), marker.commit) is marker.commit, "T4"
                answered = self.answered.get((marker.producer_id, marker.producer_epoch - 1))
                assert answered is None or answered is marker.commit, "T4"

    @invariant()
    def epochs_never_fall(self) -> None:
        newest: dict[str, tuple[int, int]] = {}
        for name, transaction in written(self.bench):
            identity = (transaction.producer_id, transaction.epoch)
            assert newest.get(name, (-1, -1)) <= identity, "T5"
            newest[name] = identity

    def teardown(self) -> None:
        """Repair everything, and check that each transaction ends."""
        if not hasattr(self, "bench"):
            return
        bench = self.bench
        bench.partition.refuse = None
        bench.partition.hold = False
        bench.partition.commit()
        bench.verdicts.clear()
        for partition in PARTITIONS:
            bench.leader(partition, 1)
        for _ in range(6):
            while bench.requests:
                bench.answer(bench.requests[0][0])
            bench.advance(15_000)
        self.settle()
        assert not bench.service.sender.queue.jobs
        for name, transaction in bench.shard.transactions.items():
            assert transaction.state in IDLE, f"{name}: {transaction}"
        assert not self.waiting
        self.look_at_markers()
        bench.service.close()


def forgetful(transaction: Transaction) -> Transaction:
    """Return the transaction as it is after a failover."""
    return transaction._replace(last_epoch=-1)


def written(bench: TransactionBench) -> list[tuple[str, Transaction]]:
    found = []
    for key, value in bench.log():
        record = records.decode(key, value)
        assert record is not None
        assert isinstance(record.value, bytes)
        found.append((record.key.transactional_id, transaction_of(record.value)))  # type: ignore[attr-defined]
    return found


def committed_decisions(bench: TransactionBench) -> dict[tuple[int, int], set[bool]]:
    """Return the decisions below the high watermark by producer id and epoch."""
    found: dict[tuple[int, int], set[bool]] = {}
    for batch in bench.partition.log.batches:
        for position, header in iter_batches(batch):
            if header.last_offset >= bench.partition.high_watermark:
                return found
            for record in iter_records(batch, position, header):
                transaction = transaction_of(bytes(record.value or b""))
                if transaction.state in PREPARED:
                    identity = (transaction.producer_id, transaction.epoch)
                    found.setdefault(identity, set()).add(transaction.state.name == "PREPARE_COMMIT")
    return found


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=150, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
