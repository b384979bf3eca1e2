"""ListOffsets by time searches batches up to a budget in a turn of the loop, and continues elsewhere or in later turns.
The responses are the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pykbroker.api import list_offsets
from pykbroker_log import time_search
from pykbroker_log.time_search import BatchSearch, TimeSearch, TooMuchToSearch, TurnIsOver
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.records.batch import CorruptBatch, build_batch
from pykbroker_wire.records.compression import Codec
from tests.api.broker_half import Half, through_bytes
from tests.api.test_large_batches import CODECS, Threads
from tests.replica.world import NOW_MS

MIB = 1 << 20


def filled(half: Half, partitions: int, size: int, codec: Codec) -> None:
    """Each partition has one batch of two records, the second one later, after `size` bytes."""
    half.world.create("t", partitions)
    for index in range(partitions):
        log = half.replicas.get("t", index).log
        records = [(None, bytes(size), (), NOW_MS), (None, b"v", (), NOW_MS + 5)]
        log.append_as_leader(bytearray(build_batch(records, codec=codec)), leader_epoch=0, now_ms=NOW_MS)
        log.set_high_watermark(log.log_end_offset)


def asked(half: Half, partitions: int, timestamp: int = NOW_MS + 1) -> Any:
    parts = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in range(partitions)]
    return half.ask(
        list_offsets, ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=parts)])
    )


def found(answer: asyncio.Future[Any]) -> list[tuple[int, int]]:
    response = through_bytes(answer.result(), ListOffsetsRequest.MAX_VERSION)
    return [(one.offset, one.timestamp) for one in response.topics[0].partitions]


@pytest.fixture
def half() -> Half:
    return Half()


@pytest.fixture
def threads(half: Half, monkeypatch: pytest.MonkeyPatch) -> Threads:
    return Threads(half, monkeypatch)


@pytest.mark.parametrize("timestamp", [NOW_MS + 1, list_offsets.MAX_TIMESTAMP], ids=["a time", "the newest"])
@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())
def test_a_batch_of_more_than_a_turn_is_searched_on_a_thread(
    half: Half, threads: Threads, codec: Codec, timestamp: int
) -> None:
    filled(half, 2, MIB, codec)
    answer = asked(half, 2, timestamp)
    for _ in range(2):
        half.loop.settle()
        assert not answer.done()
        assert len(threads.waiting) == 1
        threads.run()
    assert found(answer) == [(1, NOW_MS + 5)] * 2


def test_many_batches_are_searched_in_several_turns(half: Half, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(half, 12, MIB // 4, Codec.NONE)
    turns: list[int] = []
    begin = TimeSearch.begin_turn

    def counted(search: TimeSearch) -> None:
        turns.append(1)
        begin(search)

    monkeypatch.setattr(TimeSearch, "begin_turn", counted)
    monkeypatch.setattr(time_search, "_PLAIN_FOR_ONE", 1)
    answer = asked(half, 12)
    assert not answer.done()
    half.loop.settle()
    assert found(answer) == [(1, NOW_MS + 5)] * 12
    # Three batches, with their headers, fit into a turn.
    assert len(turns) == 3


def test_a_client_that_leaves_has_nothing_searched(half: Half, threads: Threads) -> None:
    filled(half, 1, MIB, Codec.ZSTD)
    first, second = asked(half, 1), asked(half, 1)
    half.loop.settle()
    second.cancel()
    threads.run()
    assert found(first) == [(1, NOW_MS + 5)]
    assert not threads.waiting


def test_a_batch_that_left_the_log_while_it_waited_is_not_looked_for(half: Half, threads: Threads) -> None:
    filled(half, 2, MIB, Codec.ZSTD)
    answer = asked(half, 2)
    log = half.replicas.get("t", 1).log
    log.delete_records_before(2)
    threads.run()
    half.loop.settle()
    threads.run()
    assert found(answer) == [(1, NOW_MS + 5), (-1, -1)]


def test_a_batch_that_cannot_be_read_is_searched_twice_at_most(
    half: Half, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is searched once more, because it may have left the log. Each search of 128 MiB takes a second."""
    filled(half, 1, MIB, Codec.ZSTD)

    def broken(search: BatchSearch) -> None:
        raise CorruptBatch("damaged")

    monkeypatch.setattr(BatchSearch, "run", broken)
    answer = asked(half, 1)
    for _ in range(2):
        half.loop.settle()
        assert len(threads.waiting) == 1
        threads.run()
    half.loop.settle()
    assert not threads.waiting
    with pytest.raises(CorruptBatch):
        answer.result()


def test_what_was_looked_at_counts_for_the_turn() -> None:
    def read(size: int, codec: Codec = Codec.NONE) -> Callable[[], BatchSearch]:
        batch = build_batch([(None, bytes(size), (), NOW_MS)], codec=codec)
        return lambda: BatchSearch(codec, batch[61:], 1, NOW_MS, NOW_MS, 0)

    search = TimeSearch()
    assert search.look((0, 0, 0, 0), read(MIB, Codec.NONE)) == (0, NOW_MS)
    with pytest.raises(TurnIsOver):
        search.look((1, 0, 0, 0), read(4 * MIB - 100, Codec.NONE))
    with pytest.raises(TurnIsOver):
        search.look((1, 0, 0, 0), read(MIB - 100, Codec.ZSTD))
    search.begin_turn()
    assert search.look((1, 0, 0, 0), read(MIB - 100, Codec.ZSTD)) == (0, NOW_MS)
    search.begin_turn()
    with pytest.raises(TooMuchToSearch) as much:
        search.look((2, 0, 0, 0), read(MIB, Codec.ZSTD))
    search.found[much.value.key] = much.value.read().run()
    assert search.look((2, 0, 0, 0), read(MIB, Codec.ZSTD)) == (0, NOW_MS)
