"""Data that is not in memory makes a request wait, and does not change its response in any other way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker.api import fetch, list_offsets
from pykbroker.replica.partition import Partition
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.fetch import FetchRequest, ReplicaState
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.records.batch import build_batch
from tests.api.broker_half import Half, through_bytes
from tests.api.test_fetch import asks, codes, request, sizes
from tests.replica.world import NOW_MS, batch, topic_id

PARTITIONS = 3


def fill(half: Half, batches: int = 30) -> list[Partition]:
    """Return partitions of several segments, with transactions that were aborted."""
    choice = random.Random(batches)
    half.world.create("t", partitions=PARTITIONS)
    partitions = [half.replicas.get("t", index) for index in range(PARTITIONS)]
    for number in range(batches):
        for partition in partitions:
            if choice.random() < 0.2:
                partition.log.roll(NOW_MS)
            if choice.random() < 0.3:
                records = build_batch(
                    [(None, b"t" * 50, (), number * 10)],
                    producer_id=number,
                    producer_epoch=0,
                    base_sequence=0,
                    transactional=True,
                )
                guard = partition.start_verification(number, 0, 0, supports_epoch_bump=True)
                partition.append(bytearray(records), required_acks=1, now_ms=NOW_MS, verification=guard)
                partition.append_marker(
                    producer_id=number,
                    producer_epoch=1,
                    commit=choice.random() < 0.5,
                    coordinator_epoch=0,
                    transaction_version=2,
                    now_ms=NOW_MS,
                )
            else:
                partition.append(batch(b"x" * choice.randrange(200)), required_acks=1, now_ms=NOW_MS)
    return partitions


def settle(half: Half, answer: Any) -> Any:
    if isinstance(answer, asyncio.Future):
        half.loop.settle()
        return through_bytes(answer.result(), FetchRequest.MAX_VERSION)
    return answer


def test_a_cold_fetch_answers_when_it_is_loaded() -> None:
    half = Half()
    partitions = fill(half)
    asked = request((topic_id("t"), [asks(index) for index in range(PARTITIONS)]), max_wait_ms=0)
    warm = half.ask(fetch, asked)
    assert min(sizes(warm).values()) > 100
    half.world.disk.make_cold()
    answer = half.ask(fetch, asked)
    assert isinstance(answer, asyncio.Future)
    assert not answer.done()
    assert settle(half, answer) == warm
    assert half.replicas.purgatory.count == 0
    assert not any(partition.fetch_waiters for partition in partitions)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.floats(0, 1),
    st.lists(
        st.tuples(st.integers(0, 34), st.sampled_from([1, 300, 2_500, 1_000_000]), st.booleans(), st.booleans()),
        min_size=1,
        max_size=6,
    ),
)
def test_any_pattern_of_cold_and_warm_gives_the_answers_of_a_warm_disk(
    seed: int, chance: float, fetches: list[tuple[int, int, bool, bool]]
) -> None:
    half = Half()
    fill(half)
    choice = random.Random(seed)
    for offset, max_bytes, committed, as_follower in fetches:
        asked = request(
            (topic_id("t"), [asks(index, offset, partition_max_bytes=max_bytes) for index in range(PARTITIONS)]),
            isolation_level=int(committed),
            replica_state=ReplicaState(replica_id=1 if as_follower else -1, replica_epoch=-1),
        )
        half.world.disk.evict = None
        half.world.disk._cold.clear()
        warm = settle(half, half.ask(fetch, asked))
        half.world.disk.evict = lambda: choice.random() < chance
        assert settle(half, half.ask(fetch, asked)) == warm


def test_memory_that_keeps_nothing_delays_and_ends() -> None:
    half = Half()
    fill(half)
    asked = request((topic_id("t"), [asks(index) for index in range(PARTITIONS)]))
    warm = half.ask(fetch, asked)
    half.world.disk.evict = lambda: True
    assert settle(half, half.ask(fetch, asked)) == warm


class Threads:
    """Calls that run when a test allows it."""

    def __init__(self, half: Half) -> None:
        self._half = half
        self.calls: list[tuple[Callable[..., Any], tuple[object, ...], asyncio.Future[Any]]] = []
        half.world.runtime.run_blocking = self.run_blocking  # type: ignore[method-assign]

    def run_blocking(self, function: Callable[..., Any], *args: object) -> asyncio.Future[Any]:
        self.calls.append((function, args, self._half.world.runtime.loop.create_future()))
        return self.calls[-1][2]

    def run(self) -> None:
        function, args, future = self.calls.pop(0)
        try:
            future.set_result(function(*args))
        except OSError as error:
            future.set_exception(error)
        self._half.loop.settle()

    def run_all(self) -> None:
        while self.calls:
            self.run()


def test_a_deadline_that_passes_meanwhile_ends_the_fetch_when_it_is_loaded() -> None:
    half = Half()
    fill(half, 1)
    threads = Threads(half)
    half.world.disk.make_cold()
    asked = request((topic_id("t"), [asks(0)]), max_wait_ms=100, min_bytes=100_000)
    answer = half.ask(fetch, asked)
    half.loop.advance(5)
    assert not answer.done()
    threads.run_all()
    assert sizes(through_bytes(answer.result(), FetchRequest.MAX_VERSION))[0] > 0


def test_what_arrives_while_it_is_loaded_is_in_the_answer() -> None:
    half = Half()
    partition = fill(half, 1)[0]
    threads = Threads(half)
    half.world.disk.make_cold()
    asked = request((topic_id("t"), [asks(0)]), max_wait_ms=60_000, min_bytes=5_000)
    answer = half.ask(fetch, asked)
    partition.append(batch(b"y" * 6_000), required_acks=1, now_ms=NOW_MS)
    threads.run_all()
    assert answer.done()


def test_a_cold_fetch_waits_for_bytes_like_any_other() -> None:
    half = Half()
    partition = fill(half, 1)[0]
    half.world.disk.make_cold()
    asked = request((topic_id("t"), [asks(0)]), max_wait_ms=60_000, min_bytes=5_000)
    answer = half.ask(fetch, asked)
    half.loop.settle()
    assert not answer.done()
    assert half.replicas.purgatory.count == 1
    partition.append(batch(b"y" * 6_000), required_acks=1, now_ms=NOW_MS)
    half.loop.settle()
    assert answer.done()


def test_a_connection_that_is_lost_leaves_nothing_behind() -> None:
    half = Half()
    fill(half, 5)
    threads = Threads(half)
    half.world.disk.make_cold()
    answers = [half.ask(fetch, request((topic_id("t"), [asks(0)]))) for _ in range(9)]
    assert len(threads.calls) == 4  # pykbroker.max.cold.reads
    for answer in answers:
        answer.cancel()
    half.loop.settle()
    threads.run_all()
    assert half.replicas.purgatory.count == 0


def test_a_disk_that_fails_is_the_answer() -> None:
    half = Half()
    fill(half, 5)
    half.world.disk.make_cold()
    answer = half.ask(fetch, request((topic_id("t"), [asks(0)])))
    half.world.disk.fail_next("pread", count=None)
    half.loop.settle()
    assert codes(answer.result()) == [ErrorCode.KAFKA_STORAGE_ERROR]


@pytest.mark.parametrize("timestamp", [0, 55, 10_000, -1, -2, -3])
def test_offsets_by_time(timestamp: int) -> None:
    half = Half()
    fill(half)
    asked = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name="t",
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=-1)
                    for index in range(PARTITIONS)
                ],
            )
        ],
    )
    warm = half.ask(list_offsets, asked)
    for evict in (None, lambda: True):
        # The results of earlier look-ups are kept, so open the logs again.
        half.world.disk.make_cold()
        half.world.disk.evict = evict
        answer = half.ask(list_offsets, asked)
        if isinstance(answer, asyncio.Future):
            half.loop.settle()
            answer = through_bytes(answer.result(), ListOffsetsRequest.MAX_VERSION)
        assert answer == warm
