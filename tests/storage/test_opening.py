"""Logs that were not used since the start: requests that name many of them, and the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest

from pykbroker.api import (
    delete_records,
    describe_producers,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
    write_txn_markers,
)
from pykbroker.coordinator.transaction.marker_writer import MarkerWriter
from pykbroker.net.connection import CloseConnection
from pykbroker.net.promise import Promise
from pykbroker.storage import opening
from pykbroker.storage.opening import OPENED_PER_TURN
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pykbroker_wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.api.broker_half import Half, through_bytes
from tests.api.test_fetch import asks
from tests.api.test_fetch import request as fetch_request
from tests.replica.world import NOW_MS, World, batch, topic, topic_id

PARTITIONS = 5 * OPENED_PER_TURN
#: The numbers of open logs, turn by turn.
TURNS = list(range(0, PARTITIONS + 1, OPENED_PER_TURN))
ALL = range(PARTITIONS)


def stopped() -> MemoryDisk:
    """Return the disk of a node with a record in each partition, after a clean stop."""
    world = World()
    world.create("t", PARTITIONS)
    for partition in world.replicas:
        partition.append(batch(b"%d" % partition.index), required_acks=1, now_ms=NOW_MS)
    world.log_dirs[0].close(clean=True)
    return world.disk


def started(world: World) -> World:
    world.publish(*topic("t", PARTITIONS, (1,)))
    world.replicas.start()
    world.loop.settle()
    return world


def open_in(world: World) -> int:
    return sum(partition.log_if_open is not None for partition in world.replicas)


@pytest.fixture
def world() -> World:
    return started(World(disk=stopped()))


@pytest.fixture
def half() -> Half:
    half = Half(World(disk=stopped()))
    started(half.world)
    return half


def turns(world: World) -> Iterator[int]:
    """Yield the number of open logs after each turn, until it stays the same."""
    before = -1
    while (count := open_in(world)) != before:
        yield count
        before = count
        world.loop.turn()


def test_who_asks_many_logs_has_them_opened_some_a_turn(world: World) -> None:
    opened = world.replicas.logs.opener.when_open(world.replicas.logs)
    assert opened is not None
    assert list(turns(world)) == TURNS
    assert opened.done()
    assert world.replicas.logs.opener.when_open(world.replicas.logs) is None


def test_who_asks_few_opens_them_himself(world: World) -> None:
    assert world.replicas.logs.opener.when_open(list(world.replicas.logs)[:OPENED_PER_TURN]) is None
    assert open_in(world) == 0


def test_many_who_ask_have_no_more_opened_in_a_turn_than_one(world: World) -> None:
    waiting = [world.replicas.logs.opener.when_open(reversed(list(world.replicas.logs))) for _ in range(5)]
    assert list(turns(world)) == TURNS
    world.loop.settle()
    assert all(opened is not None and opened.done() for opened in waiting)


def test_the_rest_is_opened_when_clients_are_served_and_whoever_asks_comes_first(world: World) -> None:
    world.loop.advance(1)
    assert open_in(world) == 0
    world.replicas.logs.opener.serve()
    world.loop.turn()
    assert open_in(world) == 1
    last = list(world.replicas.logs)[-OPENED_PER_TURN - 1 :]
    opened = world.replicas.logs.opener.when_open(last)
    assert opened is not None
    while not opened.done():
        world.loop.advance(opening.PAUSE_SECONDS)
    assert all(handle.log for handle in last)
    assert open_in(world) < PARTITIONS
    world.loop.advance(1)
    assert open_in(world) == PARTITIONS


def test_a_partition_that_was_just_made_is_opened_before_it_is_used(world: World) -> None:
    partition = world.create("new")
    world.loop.settle()
    assert partition.log_if_open is not None
    assert open_in(world) == 1


def test_a_deleted_topic_is_not_opened_any_more(world: World) -> None:
    held = list(world.replicas.logs)
    opened = world.replicas.logs.opener.when_open(held)
    assert opened is not None
    world.delete("t")
    world.loop.settle()
    assert opened.done()
    assert not any(handle.log for handle in held)


def test_a_node_that_stops_opens_nothing_and_lets_nobody_wait(world: World) -> None:
    world.replicas.logs.opener.serve()
    opened = world.replicas.logs.opener.when_open(world.replicas.logs)
    assert opened is not None
    world.replicas.stop()
    world.loop.advance(1)
    assert opened.cancelled()
    assert open_in(world) == 0


def test_what_is_not_in_memory_is_read_by_a_thread_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    cold_reads = []
    blocking = world.runtime.run_blocking

    def run_blocking(function: Any, *args: Any) -> asyncio.Future[Any]:
        cold_reads.append(args[1])
        return blocking(function, *args)

    monkeypatch.setattr(world.runtime, "run_blocking", run_blocking)
    world.disk.make_cold()
    assert world.replicas.logs.opener.when_open(world.replicas.logs) is not None
    world.loop.settle()
    assert [len(folders) for folders in cold_reads] == [OPENED_PER_TURN] * 5
    assert open_in(world) == PARTITIONS
    # Nothing was left for the loop to read.
    with world.disk.without_waiting():
        assert [partition.log.log_end_offset for partition in world.replicas] == [1] * PARTITIONS


# -- requests ---------------------------------------------------------------------------------------------------------


def produce_request(acks: int = -1) -> ProduceRequest:
    records = [PartitionProduceData(index=index, records=batch(b"x")) for index in ALL]
    data = TopicProduceData(topic_id=topic_id("t"), partition_data=records)
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=1_000, topic_data=[data])


REQUESTS: list[tuple[Any, Any]] = [
    (produce, produce_request()),
    (fetch, fetch_request((topic_id("t"), [asks(index) for index in ALL]), max_bytes=1 << 20)),
    (
        list_offsets,
        ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name="t",
                    partitions=[
                        ListOffsetsPartition(partition_index=index, timestamp=-1, current_leader_epoch=-1)
                        for index in ALL
                    ],
                )
            ],
        ),
    ),
    (
        delete_records,
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name="t", partitions=[DeleteRecordsPartition(partition_index=index, offset=1) for index in ALL]
                )
            ]
        ),
    ),
    (
        offset_for_leader_epoch,
        OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    topic="t",
                    partitions=[
                        OffsetForLeaderPartition(partition=index, current_leader_epoch=-1, leader_epoch=0)
                        for index in ALL
                    ],
                )
            ]
        ),
    ),
    (describe_producers, DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=list(ALL))])),
    (
        write_txn_markers,
        WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=7,
                    topics=[WritableTxnMarkerTopic(name="t", partition_indexes=list(ALL))],
                )
            ]
        ),
    ),
]


def codes(answer: Any) -> list[int]:
    """Return the error codes of all partitions, wherever they are in the answer."""
    if isinstance(answer, list):
        return [code for one in answer for code in codes(one)]
    fields = {name: getattr(answer, name) for name in getattr(answer, "__slots__", ())}
    inner = [code for value in fields.values() if isinstance(value, list) for code in codes(value)]
    is_partition = any(name in fields for name in ("partition_index", "partition", "index"))
    return [fields["error_code"], *inner] if is_partition and "error_code" in fields else inner


@pytest.mark.parametrize(
    ("handler", "asked"), REQUESTS, ids=[handler.__name__.rpartition(".")[2] for handler, _ in REQUESTS]
)
def test_a_request_that_names_many_logs_waits_until_they_are_open(half: Half, handler: Any, asked: Any) -> None:
    if handler is write_txn_markers:
        markers = MarkerWriter(half.services.runtime, half.replicas, cast(Any, None), 1_000)
        object.__setattr__(half.services, "markers", markers)
    answer = half.ask(handler, asked)
    assert isinstance(answer, asyncio.Future | Promise)
    assert list(turns(half.world))[: len(TURNS)] == TURNS
    half.loop.settle()
    assert codes(through_bytes(answer.result(), asked.MAX_VERSION)) == [ErrorCode.NONE] * PARTITIONS
    again = half.ask(handler, asked)
    assert not isinstance(again, asyncio.Future | Promise)


def test_a_client_that_has_gone_is_not_answered(half: Half) -> None:
    handler, asked = REQUESTS[2]
    answer = half.ask(handler, asked)
    answer.cancel()
    half.loop.settle()
    assert open_in(half.world) == PARTITIONS


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_records_that_wait_for_logs_are_kept_and_appended_whatever_becomes_of_the_client(half: Half, acks: int) -> None:
    asked = produce_request(acks)
    received = [cast(bytearray, one.records) for one in asked.topic_data[0].partition_data]
    answer = half.ask(produce, asked)
    for frame in received:
        frame[:] = b"\xa5" * len(frame)
    answer.cancel()
    half.loop.settle()
    assert [partition.log.log_end_offset for partition in half.replicas] == [2] * PARTITIONS


def test_a_failed_produce_without_acks_closes_the_connection_also_when_it_had_to_wait(half: Half) -> None:
    asked = produce_request(0)
    asked.topic_data[0].partition_data.append(PartitionProduceData(index=PARTITIONS, records=batch(b"x")))
    answer = half.ask(produce, asked)
    half.loop.settle()
    with pytest.raises(CloseConnection):
        answer.result()
