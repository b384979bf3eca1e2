"""The transaction coordinator around its shards: cases that no transcript shows in one line."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykbroker.coordinator.transaction.shard import Producer
from pykbroker.coordinator.transaction.states import (
    COMPLETE_COMMIT,
    EMPTY,
    PREPARE_COMMIT,
    IllegalTransition,
    TransactionState,
    check_transition,
)
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import EMPTY_IMAGE
from pykbroker.metadata.topic_names import TRANSACTION_STATE_TOPIC
from pykbroker_wire.errors import ErrorCode
from tests.coordinator.transaction.transaction_bench import TransactionBench


def state(bench: TransactionBench) -> TransactionState:
    return bench.shard.transactions["x"].state


def test_a_topic_that_the_old_image_does_not_have_yet_is_not_deleted() -> None:
    """A broker that restarts leads by an old image, and its transaction log is ahead of it. tests/simulation found
    it."""
    bench = TransactionBench()
    bench.leader(("t", 0), 2)
    identity = bench.init("x")
    producer = Producer("x", identity.producer_id, identity.producer_epoch)
    bench.add(producer, ("t", 0))
    bench.end(producer, True)
    assert state(bench) is PREPARE_COMMIT
    del bench.cluster.leaders["t", 0]
    bench = bench.restart(start=False)
    bench.service.sender.leaders_changed()
    assert state(bench) is PREPARE_COMMIT
    bench.cluster.leaders["t", 0] = 1
    bench.service.start()
    assert [partition for partition, _ in bench.written] == [("t", 0)]
    assert state(bench) is COMPLETE_COMMIT


def test_transactional_ids_keep_their_coordinators_when_their_topic_grows() -> None:
    bench = TransactionBench()
    ids = [f"id {number}" for number in range(20)]
    bench.cluster.by_name[TRANSACTION_STATE_TOPIC] = SimpleNamespace(id=b"i" * 16, partitions=range(50))
    bench.service.start()
    before = [bench.service.partition_of(each) for each in ids]
    bench.cluster.by_name[TRANSACTION_STATE_TOPIC] = SimpleNamespace(id=b"i" * 16, partitions=range(75))
    bench.service.publish(MetadataDelta(EMPTY_IMAGE), EMPTY_IMAGE, cast(Any, bench.cluster))
    assert [bench.service.partition_of(each) for each in ids] == before


def test_a_transition_that_is_not_in_the_table_raises() -> None:
    with pytest.raises(IllegalTransition, match="COMPLETE_COMMIT is not followed by PREPARE_COMMIT"):
        check_transition(COMPLETE_COMMIT, PREPARE_COMMIT)


def test_nobody_answers_for_a_partition_that_is_led_elsewhere() -> None:
    bench = TransactionBench()
    bench.init("x")
    bench.replicas.lose()
    producer = Producer("x", 1000, 0)
    assert bench.init("x").error is ErrorCode.NOT_COORDINATOR
    assert bench.add(producer, ("t", 0)) is ErrorCode.NOT_COORDINATOR
    assert bench.end(producer, True).error is ErrorCode.NOT_COORDINATOR
    assert bench.service.verify_partitions(producer, [("t", 0)]) == {("t", 0): ErrorCode.NOT_COORDINATOR}
    assert bench.service.describe("x") == (ErrorCode.NOT_COORDINATOR, None)
    # Each broker answers a listing with the transactions that it coordinates, and no others.
    assert bench.service.list_transactions(None, (), -1) == (ErrorCode.NONE, [])


def test_ids_that_could_not_be_written_leave_nothing_behind() -> None:
    """Each refused id left its decision in memory, until the memory was full."""
    bench = TransactionBench()
    bench.partition.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    for number in range(3):
        assert bench.init(f"x{number}").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    left = [value for value in vars(bench.shard).values() if isinstance(value, dict)]
    assert left
    assert not any(left)
    bench.partition.refuse = None
    assert bench.init("x0").error is ErrorCode.NONE
    assert bench.shard.transactions["x0"].state is EMPTY


def test_an_id_of_a_restored_cluster_gets_another_producer_id_before_it_gets_another_epoch() -> None:
    """The next epochs of its producer id may have been handed out before the cluster was put back."""
    bench = TransactionBench()
    first = bench.init("x")
    bench.ids.next = 5_000
    bench = bench.restart(producer_ids_from=5_000)
    bench.leader(("t", 0), 1)
    second = bench.init("x")
    assert first.producer_id < 5_000 <= second.producer_id
    assert second.producer_epoch == 0
    third = bench.init("x")
    assert (third.producer_id, third.producer_epoch) == (second.producer_id, 1)


def test_the_end_of_a_transaction_that_a_restored_cluster_has_open_changes_the_producer_id() -> None:
    bench = TransactionBench()
    bench.leader(("t", 0), 1)
    identity = bench.init("x")
    producer = Producer("x", identity.producer_id, identity.producer_epoch)
    bench.add(producer, ("t", 0))
    bench.ids.next = 5_000
    bench = bench.restart(producer_ids_from=5_000)
    bench.leader(("t", 0), 1)
    bench.end(producer, True)
    assert state(bench) is COMPLETE_COMMIT
    assert bench.shard.transactions["x"].producer_id >= 5_000
