"""ListOffsets and related APIs: the meaning of each special timestamp, and the offsets that a consumer may see."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from pykbroker.api import list_offsets, offset_for_leader_epoch
from pykbroker.replica.partition import Partition
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pykbroker_wire.records.batch import build_batch
from tests.api.broker_half import Half
from tests.replica.world import NOW_MS

NONE = (-1, -1, -1)


@pytest.fixture
def half() -> Half:
    return Half()


def write(partition: Partition, *ages_ms: int) -> None:
    for age_ms in ages_ms:
        records = build_batch([(None, b"x", (), NOW_MS - age_ms)])
        partition.append(bytearray(records), required_acks=1, now_ms=NOW_MS)


def ask(
    half: Half, timestamp: int, version: int = 11, replica_id: int = -1, isolation_level: int = 0, **fields: Any
) -> Any:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp, **{"current_leader_epoch": -1, **fields})
    topics = [ListOffsetsTopic(name="t", partitions=[asked])]
    request = ListOffsetsRequest(replica_id=replica_id, topics=topics, isolation_level=isolation_level)
    return half.ask(list_offsets, request, version).topics[0].partitions[0]


def found(half: Half, timestamp: int, **fields: Any) -> tuple[int, int, int]:
    """Return offset, timestamp, leader epoch."""
    answer = ask(half, timestamp, **fields)
    assert answer.error_code == ErrorCode.NONE
    return answer.offset, answer.timestamp, answer.leader_epoch


def test_what_each_timestamp_means(half: Half) -> None:
    partition = half.world.create("t")
    write(partition, 300, 100)
    half.world.change(partition, leader=1)
    write(partition, 200)
    assert found(half, -1) == (3, -1, 1)
    assert found(half, -2) == found(half, -4) == (0, -1, 0)
    assert found(half, -3) == (1, NOW_MS - 100, 0)
    assert found(half, -5) == found(half, -6) == NONE
    assert found(half, NOW_MS - 300) == (0, NOW_MS - 300, 0)
    assert found(half, NOW_MS - 250) == (1, NOW_MS - 100, 0)
    assert found(half, NOW_MS) == NONE


def test_an_empty_log(half: Half) -> None:
    half.world.create("t")
    assert found(half, -1)[0] == found(half, -2)[0] == 0
    assert found(half, -3) == found(half, 0) == NONE


def test_a_consumer_sees_what_is_committed_and_a_follower_all(half: Half) -> None:
    partition = half.world.create("t", replicas=(1, 2))
    write(partition, 300, 200)
    partition.note_fetched(2, 1)
    assert found(half, -1)[0] == 1
    assert found(half, NOW_MS - 250) == found(half, -3) == NONE
    assert found(half, -1, replica_id=2)[0] == 2
    assert found(half, NOW_MS - 250, replica_id=2)[0] == 1


def test_an_open_transaction_is_the_end_for_read_committed(half: Half) -> None:
    partition = half.world.create("t")
    partition.log.producers.verify = False
    write(partition, 300)
    begun = build_batch(
        [(None, b"x", (), NOW_MS - 200)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    partition.append(bytearray(begun), required_acks=1, now_ms=NOW_MS)
    assert found(half, -1)[0] == 2
    assert found(half, -1, isolation_level=1)[0] == 1
    assert found(half, NOW_MS - 250)[0] == 1
    assert found(half, NOW_MS - 250, isolation_level=1) == NONE
    partition.append_marker(producer_id=7, producer_epoch=0, commit=True, coordinator_epoch=0, now_ms=NOW_MS)
    assert found(half, -1, isolation_level=1)[0] == 3
    assert found(half, NOW_MS - 250, isolation_level=1)[0] == 1


def test_what_is_refused(half: Half) -> None:
    partition = half.world.create("t")
    assert ask(half, -99).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert ask(half, -3, version=6).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert ask(half, -1, current_leader_epoch=5).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert ask(half, -1, isolation_level=2).error_code == ErrorCode.INVALID_REQUEST
    half.world.change(partition, leader=2)
    assert ask(half, -1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_disk_that_cannot_be_read_is_an_answer(half: Half) -> None:
    """Formerly it was an internal error, the connection was closed and the directory stayed online."""
    partition = half.world.create("t")
    write(partition, 300, 200)
    half.world.disk.fail_next("pread", errno.EIO)
    assert ask(half, NOW_MS - 250).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.offline


@pytest.mark.parametrize(
    ("version", "code"), [(11, ErrorCode.OFFSET_NOT_AVAILABLE), (4, ErrorCode.LEADER_NOT_AVAILABLE)]
)
def test_a_new_leader_does_not_say_where_the_end_is_before_it_knows(half: Half, version: int, code: ErrorCode) -> None:
    """Records that a former leader had committed may lie after its high watermark (KIP-207)."""
    partition = half.world.create("t", replicas=(1, 2))
    write(partition, 300, 200)
    half.world.change(partition, leader=1)
    assert ask(half, -1, version).error_code == code
    assert ask(half, NOW_MS - 250, version).error_code == code
    assert ask(half, -2, version).error_code == ErrorCode.NONE
    # A follower asks for the end of the log, not of the committed records.
    assert found(half, -1, version=version, replica_id=2)[0] == 2
    partition.note_fetched(2, 2)
    assert found(half, -1, version=version)[0] == 2
    assert found(half, NOW_MS - 250, version=version)[0] == 1


def test_where_an_epoch_ends(half: Half) -> None:
    partition = half.world.create("t")
    write(partition, 3, 2)
    half.world.change(partition, leader=1)
    half.world.change(partition, leader=1)
    write(partition, 1)

    def end(epoch: int) -> tuple[int, int]:
        asked = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=-1)
        topics = [OffsetForLeaderTopic(topic="t", partitions=[asked])]
        answer = half.ask(offset_for_leader_epoch, OffsetForLeaderEpochRequest(replica_id=-1, topics=topics))
        one = answer.topics[0].partitions[0]
        return one.leader_epoch, one.end_offset

    assert [end(epoch) for epoch in (0, 1, 2, 3)] == [(0, 2), (0, 2), (2, 3), (-1, -1)]
