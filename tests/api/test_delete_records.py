"""DeleteRecords waits until no replica on a live broker has the deleted records."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykbroker.api import delete_records
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.api.broker_half import Half, through_bytes
from tests.replica.world import NOW_MS, batch


@pytest.fixture
def half() -> Half:
    made = Half()
    made.world.register(1, 2, 3)
    for name, replicas in (("t", (1, 2, 3)), ("alone", (1,))):
        partition = made.world.create(name, replicas=replicas)
        for _ in range(5):
            partition.append(batch(b"x"), required_acks=1, now_ms=NOW_MS)
    fetched(made, 2, 0)
    fetched(made, 3, 0)
    return made


def fetched(half: Half, replica: int, log_start_offset: int) -> None:
    half.replicas.get("t", 0).note_fetched(replica, 5, log_start_offset=log_start_offset, broker_epoch=7)


def ask(half: Half, **offsets: int) -> Any:
    topics = [
        DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
        for name, offset in offsets.items()
    ]
    return half.ask(delete_records, DeleteRecordsRequest(topics=topics, timeout_ms=1_000))


def told(answer: Any) -> dict[str, tuple[ErrorCode, int]]:
    if isinstance(answer, asyncio.Future):
        answer = through_bytes(answer.result(), DeleteRecordsRequest.MAX_VERSION)
    return {
        topic.name: (ErrorCode(one.error_code), one.low_watermark)
        for topic in answer.topics
        for one in topic.partitions
    }


def test_alone_it_is_answered_at_once(half: Half) -> None:
    assert told(ask(half, alone=3)) == {"alone": (ErrorCode.NONE, 3)}
    assert told(ask(half, alone=9)) == {"alone": (ErrorCode.OFFSET_OUT_OF_RANGE, -1)}


def test_it_waits_for_every_follower(half: Half) -> None:
    answer = ask(half, t=3, alone=2)
    fetched(half, 2, 3)
    half.loop.settle()
    assert not answer.done()
    fetched(half, 3, 4)
    assert told(answer) == {"t": (ErrorCode.NONE, 3), "alone": (ErrorCode.NONE, 2)}
    half.loop.settle()
    assert not half.loop.sleeping()
    # Every replica has deleted the records, so nothing is left to wait for.
    assert told(ask(half, t=3)) == {"t": (ErrorCode.NONE, 3)}


def test_it_does_not_wait_for_a_broker_that_is_fenced(half: Half) -> None:
    answer = ask(half, t=3)
    fetched(half, 2, 3)
    assert not answer.done()
    half.world.broker_changes(3, fenced=1)
    assert told(answer) == {"t": (ErrorCode.NONE, 3)}


def test_when_its_time_is_up_it_says_how_far_the_replicas_had_come(half: Half) -> None:
    answer = ask(half, t=3, alone=2)
    half.loop.advance(1.1)
    assert told(answer) == {"t": (ErrorCode.REQUEST_TIMED_OUT, 0), "alone": (ErrorCode.NONE, 2)}
    # None of its callbacks is called later.
    fetched(half, 2, 3)
    fetched(half, 3, 3)


@pytest.mark.parametrize(
    ("what", "code"), [("moves", ErrorCode.NOT_LEADER_OR_FOLLOWER), ("offline", ErrorCode.KAFKA_STORAGE_ERROR)]
)
def test_what_happens_to_the_partition_meanwhile_is_told(half: Half, what: str, code: ErrorCode) -> None:
    answer = ask(half, t=3)
    partition = half.replicas.get("t", 0)
    if what == "moves":
        half.world.change(partition, leader=2)
    else:
        partition.handle.take_offline()
    assert told(answer) == {"t": (code, -1)}


def test_a_client_that_goes_leaves_nothing_behind(half: Half) -> None:
    ask(half, t=3).cancel()
    half.loop.settle()
    assert not half.loop.sleeping()
    fetched(half, 2, 3)
    fetched(half, 3, 3)


@pytest.mark.parametrize("event", ["fetched", "led by another"])
def test_a_client_that_goes_in_the_same_turn_disturbs_nothing(
    half: Half, event: str, caplog: pytest.LogCaptureFixture
) -> None:
    ask(half, t=3).cancel()
    if event == "fetched":
        fetched(half, 2, 3)
        fetched(half, 3, 3)
    else:
        partition = half.replicas.get("t", 0)
        half.world.change(partition, leader=2)
        assert partition.follower is not None
    assert not caplog.records
    half.loop.settle()
    assert not half.loop.sleeping()
