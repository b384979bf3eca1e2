"""TxnOffsetCommit on the whole machine: verified, undecided until the marker, decided with it, and after a restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pykbroker.coordinator.group import records
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.group.shard import GroupShard
from pykbroker.coordinator.group.transactional import TransactionalOffsets
from pykbroker.coordinator.machine import CoordinatorRuntime
from pykbroker.runtime.later import Later
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from pykbroker_wire.messages.offset_fetch import OffsetFetchRequestTopics
from pykbroker_wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pykbroker_wire.primitives import uuid_from_str
from pykbroker_wire.records.batch import BatchHeader, build_batch
from pykbroker_wire.records.control import ControlType, end_txn_marker, parse_control
from pykbroker_wire.records.record import iter_records
from tests.coordinator.counter import done
from tests.coordinator.fakes import TOPIC, FakePartition, Log, Replicas, World, as_loop, as_replicas, as_runtime
from tests.coordinator.group.harness import classic_groups

OLD_TOPIC_ID = uuid_from_str("AAAAAAAAAAAAAAAAAAAAEA")
RETENTION_MS = GroupSettings().offsets_retention_ms
CHECK_MS = GroupSettings().offsets_retention_check_interval_ms


class FakeVerifier:
    """Returns `verdict`, at once or later."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.enabled = True
        self.verdict = ErrorCode.NONE
        self.later: asyncio.Future[dict[tuple[str, int], ErrorCode]] | None = None
        self.asked: list[tuple[str, int, int, bool]] = []

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[tuple[str, int]],
        *,
        add: bool,
        before_again: Callable[[], object],
    ) -> Later[dict[tuple[str, int], ErrorCode]]:
        assert partitions == [(TOPIC, 0)]
        self.asked.append((transactional_id, producer_id, producer_epoch, add))
        return self.later if self.later is not None else {(TOPIC, 0): self.verdict}


class Machine:
    def __init__(self) -> None:
        self.world = World()
        self.replicas = Replicas()
        self.settings = GroupSettings()
        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            TOPIC,
            as_runtime(self.world),
            as_replicas(self.replicas),
            self._make_shard,
            records,
            commit_timeout_ms=5_000,
        )
        self.verifier = FakeVerifier(self.world)
        self.service = TransactionalOffsets(TOPIC, self.runtime, as_replicas(self.replicas))

    def _make_shard(self, index: int) -> GroupShard:
        self.shard = GroupShard(index, self.settings)
        return self.shard

    def lead(self) -> FakePartition:
        partition = self.replicas.lead()
        self.world.loop.settle()
        return partition

    def restart(self) -> FakePartition:
        self.replicas.lose()
        return self.lead()

    def commit(
        self, offsets: dict[tuple[str, int], int], producer: int = 7, version: int = 5, group: str = "g", **fields: Any
    ) -> Any:
        """Return the error codes, or a future of them if they come later."""
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, index), offset in offsets.items():
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="m")
            )
        asked = [TxnOffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()]
        request = TxnOffsetCommitRequest(
            transactional_id="t", group_id=group, producer_id=producer, producer_epoch=1, topics=asked, **fields
        )
        answer = self.service.commit(0, request, asked, version, self.verifier)
        return answer if isinstance(answer, asyncio.Future) else self.codes(answer)

    @staticmethod
    def codes(answer: Any) -> set[int]:
        return {part.error_code for topic in done(answer).topics for part in topic.partitions}

    def commit_plainly(self, topic: str, index: int, offset: int, topic_id: bytes = bytes(16)) -> None:
        asked = [
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=topic_id,
                partitions=[OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)],
            )
        ]
        request = OffsetCommitRequest(group_id="g", topics=asked)
        assert self.codes(self.run(lambda shard, token, now: shard.commit_offsets(request, asked, 9, token, now))) == {
            0
        }

    def run(self, operation: Any) -> Any:
        return self.runtime.submit(0, operation, lambda code: code)

    def end(self, producer: int = 7, *, commit: bool = True) -> Any:
        return self.runtime.end_transaction(
            0,
            producer_id=producer,
            producer_epoch=1,
            commit=commit,
            coordinator_epoch=0,
            transaction_version=2,
            refusal=lambda code: code,
        )

    def fetch(self, topic: str, *indexes: int, stable: bool = False, group: str = "g") -> list[int]:
        """Return the offsets, with UNSTABLE_OFFSET_COMMIT as its negative."""
        asked = [OffsetFetchRequestTopics(name=topic, partition_indexes=list(indexes))]
        answer = self.run(lambda shard, token, now: shard.fetch_offsets(group, asked, stable, token, now))
        return [-part.error_code or part.committed_offset for part in done(answer).topics[0].partitions]


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.lead()
    return machine


UNSTABLE = -ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_undecided_offsets_are_invisible_until_the_marker(machine: Machine, commits: bool, restarts: bool) -> None:
    machine.commit_plainly("t", 0, 5)
    assert machine.commit({("t", 0): 10, ("t", 1): 11}) == {0}
    if restarts:
        machine.restart()
    assert machine.fetch("t", 0, 1, 2) == [5, -1, -1]
    assert machine.fetch("t", 0, 1, 2, stable=True) == [UNSTABLE, UNSTABLE, -1]
    assert machine.end(commit=commits) is ErrorCode.NONE
    for _ in range(2):
        assert machine.fetch("t", 0, 1, stable=True) == ([10, 11] if commits else [5, -1])
        machine.restart()


def test_what_a_marker_decided_is_not_shown_before_it_is_committed(machine: Machine) -> None:
    machine.commit({("t", 0): 10})
    partition = machine.replicas.partitions[0]
    partition.hold = True
    ending = machine.end()
    reading = machine.run(
        lambda shard, token, now: shard.fetch_offsets(
            "g", [OffsetFetchRequestTopics(name="t", partition_indexes=[0])], True, token, now
        )
    )
    assert not ending.done()
    assert not reading.done()
    partition.commit()
    assert done(ending) is ErrorCode.NONE
    assert done(reading).topics[0].partitions[0].committed_offset == 10


def test_the_batch_is_the_producers_and_brings_the_guard(machine: Machine) -> None:
    partition = machine.replicas.partitions[0]
    partition.guard = object()
    assert machine.commit({("t", 0): 10}, version=4) == {0}
    assert machine.commit({("t", 0): 11}, version=5) == {0}
    assert machine.verifier.asked == [("t", 7, 1, False), ("t", 7, 1, True)]
    assert partition.verifications == [partition.guard] * 2
    partition.guard = None
    assert machine.commit({("t", 0): 12}) == {0}
    assert len(machine.verifier.asked) == 2
    header = partition.log.headers()[-1]
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 0)
    assert header.is_transactional


def test_verification_that_comes_later(machine: Machine) -> None:
    partition = machine.replicas.partitions[0]
    partition.guard = object()
    machine.verifier.later = asyncio.Future(loop=as_loop(machine.world.loop))
    answer = machine.commit({("t", 0): 10})
    assert not answer.done()
    assert partition.log.batches == []
    machine.verifier.later.set_result({(TOPIC, 0): ErrorCode.NONE})
    machine.world.loop.settle()
    assert machine.codes(answer) == {0}
    assert machine.fetch("t", 0, stable=True) == [UNSTABLE]
    # The coordinator lost the partition while the transaction's coordinator was asked.
    machine.verifier.later = asyncio.Future(loop=as_loop(machine.world.loop))
    answer = machine.commit({("t", 0): 10})
    machine.replicas.lose()
    machine.verifier.later.set_result({(TOPIC, 0): ErrorCode.NONE})
    machine.world.loop.settle()
    assert machine.codes(answer) == {ErrorCode.NOT_COORDINATOR}
    assert machine.commit({("t", 0): 10}) == {ErrorCode.NOT_COORDINATOR}


def test_a_guard_that_a_marker_took_away_is_taken_anew(machine: Machine) -> None:
    """The answer was about the transaction that the marker has ended."""
    partition = machine.replicas.partitions[0]
    partition.guard = object()
    first = machine.verifier.later = asyncio.Future(loop=as_loop(machine.world.loop))
    answer = machine.commit({("t", 0): 10})
    partition.guard = fresh = object()
    second = machine.verifier.later = asyncio.Future(loop=as_loop(machine.world.loop))
    first.set_result({(TOPIC, 0): ErrorCode.NONE})
    machine.world.loop.settle()
    assert not answer.done()
    assert partition.verifications == []
    second.set_result({(TOPIC, 0): ErrorCode.NONE})
    machine.world.loop.settle()
    assert machine.codes(answer) == {0}
    assert partition.verifications == [fresh]


def test_without_verification_nobody_is_asked_but_for_clients_that_add(machine: Machine) -> None:
    machine.replicas.partitions[0].guard = object()
    machine.verifier.enabled = False
    assert machine.commit({("t", 0): 10}, version=4) == {0}
    assert machine.verifier.asked == []
    assert machine.commit({("t", 0): 10}, version=5) == {0}
    assert len(machine.verifier.asked) == 1


@pytest.mark.parametrize(
    ("verdict", "version", "code"),
    [
        (ErrorCode.PRODUCER_FENCED, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.NETWORK_EXCEPTION, 5, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 5, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 5, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_what_is_not_verified_is_not_written(
    machine: Machine, verdict: ErrorCode, version: int, code: ErrorCode
) -> None:
    partition = machine.replicas.partitions[0]
    partition.guard = object()
    machine.verifier.verdict = verdict
    assert machine.commit({("t", 0): 10}, version=version) == {code}
    partition.unverifiable = verdict
    assert machine.commit({("t", 0): 10}, version=version) == {code}
    assert partition.log.batches == []


def test_generations_of_groups_without_members(machine: Machine) -> None:
    assert machine.commit({("t", 0): 1}, version=6, generation_id_or_member_epoch=7) == {ErrorCode.GROUP_ID_NOT_FOUND}
    assert machine.commit({("t", 0): 1}, generation_id_or_member_epoch=7) == {ErrorCode.ILLEGAL_GENERATION}
    assert machine.commit({("t", 0): 1}, member_id="ghost") == {0}
    assert machine.commit({("t", 0): 1}, generation_id_or_member_epoch=7, member_id="ghost") == {
        ErrorCode.UNKNOWN_MEMBER_ID
    }
    assert machine.commit({("t", 0): 1}, group_instance_id="i") == {0}


def test_a_later_plain_commit_wins_whenever_the_transaction_ends(machine: Machine) -> None:
    machine.commit({("t", 0): 10, ("t", 1): 11})
    machine.commit_plainly("t", 0, 3)
    machine.commit({("t", 1): 21}, producer=8)
    assert machine.end(8) is ErrorCode.NONE
    assert machine.fetch("t", 0, 1, stable=True) == [UNSTABLE, UNSTABLE]
    assert machine.end() is ErrorCode.NONE
    for _ in range(2):
        assert machine.fetch("t", 0, 1, stable=True) == [3, 21]
        machine.restart()


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_deleted_while_undecided_stays_deleted(machine: Machine, restarts: bool) -> None:
    machine.commit({("t", 0): 10, ("t", 1): 11})
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)]),
        ],
    )
    machine.run(lambda shard, token, now: shard.delete_offsets(request, token, now))
    if restarts:
        machine.restart()
    assert machine.fetch("t", 0, 1, stable=True) == [-1, UNSTABLE]
    machine.run(lambda shard, token, now: shard.delete_groups(["g"], token, now))
    assert machine.fetch("t", 0, 1, stable=True) == [-1, -1]
    assert machine.end() is ErrorCode.NONE
    assert machine.fetch("t", 0, 1, stable=True) == [-1, -1]
    machine.restart()
    assert machine.fetch("t", 0, 1, stable=True) == [-1, -1]


def test_offsets_of_a_deleted_topic_go_undecided_or_not(machine: Machine) -> None:
    machine.commit_plainly("t", 0, 5, OLD_TOPIC_ID)
    machine.commit({("t", 1): 11, ("u", 0): 12})
    machine.runtime.input_all(lambda shard, now: shard.topics_deleted([("t", OLD_TOPIC_ID)], now))
    assert machine.fetch("t", 0, 1, stable=True) == [-1, -1]
    assert machine.end() is ErrorCode.NONE
    assert machine.fetch("t", 0, 1) == [-1, -1]
    assert machine.fetch("u", 0) == [12]


def test_a_group_with_an_open_transaction_does_not_expire(machine: Machine) -> None:
    machine.commit_plainly("t", 0, 5)
    machine.commit({("t", 0): 10, ("t", 1): 11})
    machine.world.loop.advance((RETENTION_MS + 2 * CHECK_MS) / 1000)
    assert "g" in classic_groups(machine.shard)
    assert machine.fetch("t", 0) == [5]
    machine.end(commit=False)
    machine.world.loop.advance(CHECK_MS / 1000)
    assert machine.fetch("t", 0) == [-1]
    assert "g" not in classic_groups(machine.shard)


def test_a_group_of_undecided_offsets_is_there_after_a_restart(machine: Machine) -> None:
    machine.commit({("t", 0): 10})
    machine.restart()
    assert list(classic_groups(machine.shard)) == ["g"]


def test_a_group_of_aborted_offsets_is_there_until_it_expires(machine: Machine) -> None:
    machine.commit({("t", 0): 10})
    machine.end(commit=False)
    assert list(classic_groups(machine.shard)) == ["g"]
    machine.restart()
    assert list(classic_groups(machine.shard)) == ["g"]
    machine.world.loop.advance(CHECK_MS / 1000)
    assert list(classic_groups(machine.shard)) == []


def test_metadata_that_is_too_large_leaves_the_others(machine: Machine) -> None:
    machine.settings = GroupSettings(offset_metadata_max_bytes=0)
    machine.restart()
    assert machine.commit({("t", 0): 10}) == {ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert machine.replicas.partitions[0].log.batches == []


GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "transactional_offsets.json").read_text())["batches"]


def test_batches_are_those_of_apache_kafka() -> None:
    """Plain batches, transactional ones, and markers have the same bytes, except for the topic's id, which also a
    commit by name has."""
    for text in GOLDEN:
        batch = bytes.fromhex(text)
        header = BatchHeader.parse(batch, 0)
        found = list(iter_records(batch, 0, header))
        if header.is_control:
            marker = parse_control(found[0])
            built = end_txn_marker(
                commit=marker.type is ControlType.COMMIT,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                timestamp=header.base_timestamp,
                base_offset=header.base_offset,
                leader_epoch=header.partition_leader_epoch,
            )
        else:
            rows = []
            for record in found:
                read = records.decode(record.key, record.value)
                assert read is not None
                rows.append((*records.encode(read), (), record.timestamp))
            built = build_batch(
                rows,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=0,
                base_offset=header.base_offset,
                leader_epoch=header.partition_leader_epoch,
                transactional=header.is_transactional,
            )
        assert built == batch


def test_what_apache_kafka_wrote_is_what_this_node_would_have_written() -> None:
    """The same commits at the same time. Its batch is a moment later than the commits in it, and this node's is not."""
    machine = Machine()
    partition = machine.lead()
    theirs = [bytes.fromhex(text) for text in GOLDEN]
    header = BatchHeader.parse(theirs[1], 0)
    found = list(iter_records(theirs[1], 0, header))
    assert found[0].value is not None
    commit_ms = records.decode_offset(found[0].value).commit_timestamp
    machine.world.loop.now = (commit_ms - 1_000_000) / 1000
    asked = [
        TxnOffsetCommitRequestTopic(
            name="t",
            partitions=[
                TxnOffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=10 + index,
                    committed_leader_epoch=3,
                    committed_metadata="txn",
                )
                for index in (0, 1)
            ],
        )
    ]
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        topics=asked,
    )
    assert machine.codes(machine.service.commit(0, request, asked, 5, machine.verifier)) == {0}
    ours = partition.log.batches[0]
    own = BatchHeader.parse(ours, 0)
    assert [(one.key, one.value) for one in iter_records(ours, 0, own)] == [(one.key, one.value) for one in found]
    for field in ("attributes", "producer_id", "producer_epoch", "base_sequence", "record_count", "batch_length"):
        assert getattr(own, field) == getattr(header, field)


def test_a_log_of_apache_kafka_is_loaded(machine: Machine) -> None:
    log = Log()
    for text in GOLDEN:
        log.append(bytes.fromhex(text))
    machine.replicas.lose()
    machine.replicas.stored[0] = log
    machine.lead()
    assert machine.fetch("t", 0, 1, stable=True) == [10, 11]
