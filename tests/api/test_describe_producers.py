"""DescribeProducers: the known producers, and the refusal of a topic or a partition."""

from __future__ import annotations

from typing import Any

from pykbroker.api import describe_producers
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tests.api.broker_half import Denied, Half
from tests.replica.world import NOW_MS, batch


def ask(half: Half, name: str, *indexes: int) -> list[Any]:
    request = DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=list(indexes))])
    partitions: list[Any] = half.ask(describe_producers, request).topics[0].partitions
    return partitions


def test_producers_and_their_open_transactions() -> None:
    half = Half()
    partition = half.world.create("t", 2)
    made = batch(b"a", b"b", producer_id=17, producer_epoch=0, base_sequence=0)
    partition.append(made, required_acks=1, now_ms=NOW_MS)
    guard = partition.start_verification(1, 4, 0, supports_epoch_bump=True)
    made = batch(b"c", producer_id=1, producer_epoch=4, base_sequence=0, transactional=True)
    partition.append(made, required_acks=1, now_ms=NOW_MS, verification=guard)
    found, empty = ask(half, "t", 0, 1)
    assert (empty.error_code, empty.active_producers) == (0, [])
    # In the order of a Java hash map, where 1 and 17 share a bucket.
    assert [
        (
            one.producer_id,
            one.producer_epoch,
            one.last_sequence,
            one.last_timestamp,
            one.coordinator_epoch,
            one.current_txn_start_offset,
        )
        for one in found.active_producers
    ] == [(17, 0, 1, NOW_MS, -1, -1), (1, 4, 0, NOW_MS, -1, 2)]


def test_refusals() -> None:
    half = Half()
    half.world.create("t")
    (found,) = ask(half, "a b", 0)
    assert found.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert found.error_message.startswith("Topic name is invalid: 'a b' contains")
    (found,) = ask(half, "other", 3)
    assert (found.partition_index, found.error_code) == (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert found.error_message == "This server does not host this topic-partition."
    (found,) = ask(half, "t", 1)
    assert (found.error_code, found.error_message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    half.services.authorizer = Denied((Operation.READ, Resource.TOPIC, "t"))
    (found,) = ask(half, "t", 0)
    assert found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
