"""The share states that the group coordinator asks for, by the persister (`ShareStateKeeper` of the group coordinator).

Responsible for one answer to many share partitions of a group. Not responsible for anything that the persister does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from pykbroker.coordinator.group.share.share_states import ShareStart, ShareSummary, TopicIdPartition
from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.net.promise import Promise
from pykbroker.runtime.later import Later
from pykbroker.share_persister.persister import SharePersister
from pykbroker.share_persister.state_operations import ShareStateAnswer
from pykbroker_wire.errors import ErrorCode

T = TypeVar("T")


class GroupShareStates:
    """A `ShareStateKeeper`. A share partition without an answer after `timeout_ms` has REQUEST_TIMED_OUT; None waits as
    long as the persister tries."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, persister: SharePersister, timeout_ms: int | None = None
    ) -> None:
        self._loop = loop
        self._persister = persister
        self._timeout_ms = timeout_ms

    def initialize(self, group_id: str, starts: Sequence[ShareStart]) -> Later[list[ErrorCode]]:
        """Replace the state of these share partitions by an empty one."""
        return self._all(
            [
                self._persister.initialize(
                    SharePartitionKey(group_id, start.topic_id, start.partition),
                    start.state_epoch,
                    start.start_offset,
                    timeout_ms=self._timeout_ms,
                )
                for start in starts
            ],
            _error,
        )

    def delete(self, group_id: str, partitions: Sequence[TopicIdPartition]) -> Later[list[ErrorCode]]:
        """Delete the state of these share partitions."""
        keys = [SharePartitionKey(group_id, *partition) for partition in partitions]
        return self._all([self._persister.delete(key, timeout_ms=self._timeout_ms) for key in keys], _error)

    def read_summaries(self, group_id: str, partitions: Sequence[TopicIdPartition]) -> Later[list[ShareSummary]]:
        """Return the summaries of these share partitions."""
        keys = [SharePartitionKey(group_id, *partition) for partition in partitions]
        return self._all([self._persister.summarize(key, timeout_ms=self._timeout_ms) for key in keys], _summary)

    def _all(self, promises: Sequence[Promise], read: Callable[[ShareStateAnswer], T]) -> Later[list[T]]:
        """Return all answers in order. If the future is cancelled, the operations that are left are given up."""
        if not promises:
            return []
        future: asyncio.Future[list[T]] = self._loop.create_future()
        missing = dict.fromkeys(promises)

        def answered(promise: Promise) -> None:
            del missing[promise]
            if not missing and not future.done():
                future.set_result([read(each.result()) for each in promises])

        for promise in promises:
            promise.add_done_callback(answered)
        future.add_done_callback(partial(_give_up, missing))
        return future


def _give_up(missing: dict[Promise, None], future: asyncio.Future[list[T]]) -> None:
    if future.cancelled():
        for promise in missing:
            promise.cancel()


def _error(answer: ShareStateAnswer) -> ErrorCode:
    return answer.error


def _summary(answer: ShareStateAnswer) -> ShareSummary:
    if answer.error is not ErrorCode.NONE:
        return ShareSummary(answer.error)
    return ShareSummary(
        start_offset=answer.start_offset,
        leader_epoch=answer.leader_epoch,
        delivery_complete_count=answer.delivery_complete_count,
    )
