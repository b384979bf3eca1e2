"""A broker half with leaders of share partitions over a memory disk, and a share coordinator that the test controls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pykbroker.api import share_acknowledge, share_fetch
from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.metadata.features import SHARE_VERSION
from pykbroker.net.promise import Promise
from pykbroker.replica.partition import Partition
from pykbroker.share_leaders.dead_letters import NoDeadLetters
from pykbroker.share_leaders.leader_configs import ShareLeaderConfig
from pykbroker.share_leaders.leader_table import ShareLeaders
from pykbroker.share_persister.state_operations import ShareStateAnswer
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.read_share_group_state import StateBatch
from pykbroker_wire.messages.share_acknowledge import ShareAcknowledgeRequest
from pykbroker_wire.messages.share_fetch import ShareFetchRequest
from testkit.share_requests import forgotten, share_acknowledges, share_fetches
from tests.api.broker_half import Half, through_bytes
from tests.replica.world import NOW_MS, batch, topic_id

#: requests about topic t
fetches = partial(share_fetches, topic_id("t"))
acknowledges = partial(share_acknowledges, topic_id("t"))
forgets = partial(forgotten, topic_id("t"))


class Keeper:
    """A share coordinator that answers at once, or, while `waits`, when the test calls `answer`."""

    def __init__(self) -> None:
        self.waits = False
        self.error = ErrorCode.NONE
        #: the start offset of each share partition
        self.start = 0
        #: the state batches of each share partition
        self.stored: list[StateBatch] = []
        #: the batches of each write: first and last offset, state, delivery count
        self.writes: list[list[tuple[int, int, int, int]]] = []
        self._waiting: list[Callable[[], None]] = []

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Promise:
        return self._answered(
            lambda: ShareStateAnswer(self.error, None, 1, start_offset=self.start, batches=self.stored)
        )

    def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[Any],
    ) -> Promise:
        self.writes.append(
            [(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in batches]
        )
        return self._answered(lambda: ShareStateAnswer(self.error))

    def _answered(self, answer: Callable[[], ShareStateAnswer]) -> Promise:
        promise = Promise()
        if self.waits:
            self._waiting.append(lambda: promise.set_result(answer()))
        else:
            promise.set_result(answer())
        return promise

    def answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each()


class ShareHalf(Half):
    """Node 1 with share.version 1. `fetch` and `acknowledge` return the answer, or a promise of it."""

    def __init__(self, most_sessions: int = 10) -> None:
        super().__init__()
        self.keeper = Keeper()
        self.group_config = ShareLeaderConfig()
        self.leaders = ShareLeaders(
            self.world.runtime.client_clock,
            self.keeper,
            lambda group: self.group_config,
            self._log_start,
            NoDeadLetters(),
            most_sessions,
        )
        self.services.share_leaders = self.leaders
        self.replicas.on_leadership(self.leaders.on_leadership)
        self.share_version(1)

    def share_version(self, level: int) -> None:
        image = self.world.image
        self.world.image = replace(image, features=replace(image.features, finalized={SHARE_VERSION: level}))

    @staticmethod
    def _log_start(partition: Partition, reset: str) -> Promise:
        promise = Promise()
        promise.set_result(partition.log.log_start_offset)
        return promise

    def create(self, name: str = "t", partitions: int = 1, **fields: Any) -> Partition:
        return self.world.create(name, partitions, **fields)

    def write(self, partition: Partition, *records_of_batches: int) -> None:
        """Append batches with these numbers of records."""
        for count in records_of_batches:
            partition.append(batch(*[b"x" * 100] * count), required_acks=1, now_ms=NOW_MS)
        self.loop.settle()

    def fetch(self, request: ShareFetchRequest, version: int | None = None, connection: int = 1) -> Any:
        self.connection_number = connection
        return self._asked(share_fetch, request, version)

    def acknowledge(self, request: ShareAcknowledgeRequest, version: int | None = None) -> Any:
        return self._asked(share_acknowledge, request, version)

    def _asked(self, handler: Any, request: Any, version: int | None) -> Any:
        answer = self.ask(handler, request, version)
        self.loop.settle()
        if isinstance(answer, Promise) and answer.done():
            return came(answer, version)
        return answer


def came(answer: Promise, version: int | None = None) -> Any:
    """Return the answer that a promise has, after it was encoded and decoded."""
    assert answer.done()
    result = answer.result()
    return through_bytes(result, type(result).MAX_VERSION if version is None else version)
