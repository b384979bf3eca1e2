"""Asks the leaders of partitions for their ends, from which the lag of share groups follows (KIP-1226).

Responsible for one ListOffsets per leader, and for an error for each partition whose leader does not answer. Not
responsible for the lag itself (share_service.py). Unlike in Apache Kafka, a request that fails is not repeated, because
the tool that asked for the lag may be run again. This node is asked like any other leader, because the log of a
partition may have to be opened first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from pykbroker.runtime.later import Later, gather, then
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

logger = logging.getLogger(__name__)

#: The timestamp that stands for the end of a partition.
_LATEST: Final = -1
_CONSUMER: Final = -1

#: (topic, partition)
PartitionByName = tuple[str, int]
#: An error, or the end.
PartitionEnd = tuple[ErrorCode, int]


class EndsOfLeaders:
    """An `EndOffsets` (share_service.py) over the channels between brokers."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        leader_of: Callable[[PartitionByName], int | None],
        send: Callable[[int, Any, int], asyncio.Future[Any]],
        request_timeout_ms: int,
    ) -> None:
        """`leader_of` returns the leader by this node's metadata, None if there is none. `send` takes a broker's id, a
        request and its timeout in ms."""
        self._loop = loop
        self._leader_of = leader_of
        self._send = send
        self._request_timeout_ms = request_timeout_ms

    def latest(self, partitions: Sequence[PartitionByName]) -> Later[list[PartitionEnd]]:
        found: dict[PartitionByName, PartitionEnd] = {}
        by_leader: dict[int, list[PartitionByName]] = {}
        for partition in partitions:
            leader = self._leader_of(partition)
            if leader is None:
                found[partition] = (ErrorCode.LEADER_NOT_AVAILABLE, -1)
            else:
                by_leader.setdefault(leader, []).append(partition)
        asked = [self._ask(leader, members) for leader, members in by_leader.items()]

        def join(answers: list[dict[PartitionByName, PartitionEnd]]) -> list[PartitionEnd]:
            for answer in answers:
                found.update(answer)
            return [found[partition] for partition in partitions]

        return then(gather(asked), join)

    def _ask(self, leader: int, partitions: list[PartitionByName]) -> Later[dict[PartitionByName, PartitionEnd]]:
        topics: dict[str, ListOffsetsTopic] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, ListOffsetsTopic(name=topic)).partitions.append(
                ListOffsetsPartition(partition_index=partition, timestamp=_LATEST)
            )
        request = ListOffsetsRequest(replica_id=_CONSUMER, topics=list(topics.values()))
        outcome: asyncio.Future[dict[PartitionByName, PartitionEnd]] = self._loop.create_future()

        def answered(sent: asyncio.Future[ListOffsetsResponse]) -> None:
            error = asyncio.CancelledError() if sent.cancelled() else sent.exception()
            ends = _ends(partitions, sent.result()) if error is None else _failed(leader, partitions, error)
            if not outcome.done():
                outcome.set_result(ends)

        self._send(leader, request, self._request_timeout_ms).add_done_callback(answered)
        return outcome


def _failed(
    leader: int, partitions: list[PartitionByName], error: BaseException
) -> dict[PartitionByName, PartitionEnd]:
    code = ErrorCode.NETWORK_EXCEPTION
    if isinstance(error, TimeoutError):
        code = ErrorCode.REQUEST_TIMED_OUT
    elif not isinstance(error, ConnectionError | asyncio.CancelledError):
        logger.error("The ends of partitions could not be read from broker %d", leader, exc_info=error)
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    return dict.fromkeys(partitions, (code, -1))


def _ends(partitions: list[PartitionByName], response: ListOffsetsResponse) -> dict[PartitionByName, PartitionEnd]:
    """Return the end of each partition. A partition that the answer leaves out has an error."""
    answered = {
        (topic.name, one.partition_index): (ErrorCode.received(one.error_code), one.offset)
        for topic in response.topics
        for one in topic.partitions
    }
    return {partition: answered.get(partition, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)) for partition in partitions}
