"""Requests of members of share groups, and what their answers say."""

from __future__ import annotations

from typing import Any

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from pykbroker_wire.messages.share_fetch import AcknowledgementBatch as FetchAcknowledgement
from pykbroker_wire.messages.share_fetch import FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest
from pykbroker_wire.records.batch import iter_batches

GROUP = "g"
MEMBER = "m"
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4

#: first offset, last offset and type
Ack = tuple[int, int, int]
#: first offset, last offset and delivery count
Acquired = tuple[int, int, int]


def share_fetches(
    topic_id: bytes, *indexes: int, epoch: int = 0, acks: dict[int, list[Ack]] | None = None, **fields: Any
) -> ShareFetchRequest:
    """Return a ShareFetch of partitions of a topic. `acks` has the acknowledgements of each partition."""
    given = acks or {}
    partitions = [
        FetchPartition(
            partition_index=index,
            acknowledgement_batches=[
                FetchAcknowledgement(first_offset=first, last_offset=last, acknowledge_types=[kind])
                for first, last, kind in given.get(index, ())
            ],
        )
        for index in dict.fromkeys((*indexes, *given))
    ]
    defaults: dict[str, Any] = {
        "group_id": GROUP,
        "member_id": MEMBER,
        "share_session_epoch": epoch,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1_000_000,
        "max_records": 500,
        "batch_size": 500,
        "topics": [FetchTopic(topic_id=topic_id, partitions=partitions)] if partitions else [],
    }
    return ShareFetchRequest(**{**defaults, **fields})


def forgotten(topic_id: bytes, *indexes: int) -> list[ForgottenTopic]:
    return [ForgottenTopic(topic_id=topic_id, partitions=list(indexes))]


def share_acknowledges(
    topic_id: bytes, acks: dict[int, list[Ack]], epoch: int = 1, **fields: Any
) -> ShareAcknowledgeRequest:
    partitions = [
        AcknowledgePartition(
            partition_index=index,
            acknowledgement_batches=[
                AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
                for first, last, kind in ranges
            ],
        )
        for index, ranges in acks.items()
    ]
    defaults: dict[str, Any] = {
        "group_id": GROUP,
        "member_id": MEMBER,
        "share_session_epoch": epoch,
        "topics": [AcknowledgeTopic(topic_id=topic_id, partitions=partitions)] if partitions else [],
    }
    return ShareAcknowledgeRequest(**{**defaults, **fields})


def acquired(answer: Any) -> dict[int, list[Acquired]]:
    """Return what each partition of an answer has acquired, after a check that its records are there."""
    assert answer.error_code == ErrorCode.NONE
    found = {}
    for each in (each for topic in answer.responses for each in topic.partitions):
        ranges = [(one.first_offset, one.last_offset, one.delivery_count) for one in each.acquired_records]
        sent = [(header.base_offset, header.last_offset) for _, header in iter_batches(each.records)]
        if ranges:
            assert sent[0][0] <= ranges[0][0] <= sent[0][1]
            assert sent[-1][0] <= ranges[-1][1] <= sent[-1][1]
        else:
            assert not sent
        found[each.partition_index] = ranges
    return found


def codes(answer: Any) -> dict[int, tuple[ErrorCode, ErrorCode]]:
    """Return the error of each partition of a ShareFetch, and the error of its acknowledgements."""
    assert answer.error_code == ErrorCode.NONE
    return {
        each.partition_index: (ErrorCode(each.error_code), ErrorCode(each.acknowledge_error_code))
        for topic in answer.responses
        for each in topic.partitions
    }


def outcomes(answer: Any) -> dict[int, ErrorCode]:
    """Return the error of each partition of a ShareAcknowledge."""
    assert answer.error_code == ErrorCode.NONE
    return {each.partition_index: ErrorCode(each.error_code) for topic in answer.responses for each in topic.partitions}
