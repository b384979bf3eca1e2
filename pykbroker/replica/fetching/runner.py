"""Runs a fetcher: its connection, its timer, and the effects of its answers on the logs.

Sends one request after the other to one leader, carries out the effects in the order of the answer, and limits the work
in one turn of the loop. It reports to the fetcher how each effect ended. Not responsible for the content of requests
and the meaning of answers (fetcher.py), for the connection (leader_end_point.py), nor for the choice of partitions
(manager.py).

Invariants:
* A request is sent only when all effects of the last answer are done, as in Apache Kafka, whose fetcher is one thread.
  So the fetch offset is the end of the log, and a flush that the topic promises is done before the fetch.
* Late results have no effect on a partition that this fetcher no longer has.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from pykbroker.replica.fetching.append_steps import AppendSteps, FollowerLog
from pykbroker.replica.fetching.fetcher import AppendRecords, Effect, Fail, Fetcher, StartOver, TruncateTo
from pykbroker.replica.fetching.leader_end_point import FetcherWorld, LeaderEndPoint
from pykbroker.replica.fetching.partition_fetch import PartitionFetch
from pykbroker.replica.fetching.pieces import MOST_COST
from pykbroker.replica.fetching.rate import Rate
from pykbroker.runtime.later import OnOutcome
from pykbroker_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pykbroker.replica.follower import PartitionFollower

logger = logging.getLogger(__name__)

#: After these errors a partition is fetched again, as in Apache Kafka. Any other error of a log ends the fetches of its
#: partition in this leader epoch.
_MAY_PASS = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.NOT_LEADER_OR_FOLLOWER)


class FetcherRunner:
    """One fetcher of one leader."""

    def __init__(self, world: FetcherWorld, leader: int, number: int) -> None:
        self._world = world
        self.leader = leader
        self.number = number
        self.name = f"ReplicaFetcherThread-{number}-{leader}"
        self.end_point = LeaderEndPoint(world, leader, number)
        self.bytes = Rate(world.runtime.loop.time)
        self._fetcher = Fetcher(world.node_id, world.settings, world.quota)
        self._followers: dict[PartitionFetch, FollowerLog] = {}
        # The effects to carry out, and the partitions whose effect has begun and has not ended.
        self._effects: deque[Effect | AppendSteps] = deque()
        self._at_work: set[PartitionFetch] = set()
        self._turn: asyncio.Handle | None = None
        self._is_in_turn = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        #: True after a bug in the fetcher itself, which then sends no more requests
        self.is_dead = False
        # True if the leader did not answer the last request. One line is logged for all failures until it answers.
        self._is_silent = False

    def __repr__(self) -> str:
        return f"Fetcher {self.number} of broker {self.leader}"

    def __len__(self) -> int:
        return len(self._fetcher)

    def __iter__(self) -> Iterator[PartitionFetch]:
        return iter(self._fetcher)

    # -- partitions ---------------------------------------------------------------------------------------------------

    def add(self, fetch: PartitionFetch, follower: FollowerLog) -> None:
        """Fetch the partition from now on. All delays and the pause of the connection end, because the metadata has
        changed. Raises KafkaError if the log cannot be used."""
        effect = self._fetcher.add(fetch)
        self._followers[fetch] = follower
        self.end_point.end_pause()
        if effect is not None:
            self._effects.append(effect)
        self._go_on()

    def find(self, follower: PartitionFollower) -> PartitionFetch | None:
        """Return the partition of this role, if it is fetched."""
        fetch = self._fetcher.find((follower.handle.topic_id, follower.handle.index))
        return fetch if fetch is not None and fetch.replica is follower else None

    def remove(self, fetch: PartitionFetch) -> None:
        """Stop fetching the partition."""
        self._fetcher.remove(fetch)
        self._followers.pop(fetch, None)
        self._at_work.discard(fetch)
        self._go_on()

    def close(self) -> None:
        self._is_closed = True
        for handle in (self._turn, self._timer):
            if handle is not None:
                handle.cancel()
        self._effects.clear()
        self.end_point.close()

    # -- turns --------------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Schedule `_take_turn` for the next turn of the loop. Several calls cause only one turn."""
        if self._turn is None and not self._is_in_turn and not self._is_closed:
            self._turn = self._world.runtime.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        self._is_in_turn = True
        try:
            cost = 0
            while self._effects and cost < MOST_COST:
                cost += self._try_to_do(self._effects.popleft())
            if not self._effects and not self._at_work and not self._fetcher.is_waiting:
                self._ask()
        except Exception as error:  # noqa: BLE001  # like a thread of Apache Kafka that dies
            self._die(error)
        finally:
            self._is_in_turn = False
        if self._effects:
            self._go_on()

    def _die(self, error: Exception) -> None:
        logger.error("%r: failed and has ended, so its partitions are no longer fetched", self, exc_info=error)
        self.is_dead = True
        self.close()

    def _ask(self) -> None:
        world = self._world
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        request = self._fetcher.next_request(world.runtime.loop.time(), world.broker_epoch())
        if request is None:
            self._sleep()
            return
        sent = self.end_point.send(request)
        if sent is None:
            self._unanswered("the metadata has no address of that broker")
            self._sleep()
        else:
            sent.add_done_callback(self._answered)

    def _sleep(self) -> None:
        """Set a timer for the end of the next delay, or for the next check of throttled partitions, if there is one."""
        wakes_at = self._fetcher.wakes_at
        if wakes_at is not None:
            self._timer = self._world.runtime.loop.call_at(wakes_at, self._go_on)

    def _answered(self, sent: asyncio.Future[Any]) -> None:
        if sent.cancelled():
            error: BaseException | None = asyncio.CancelledError()
        else:
            # The exception is read even if it is not used, because the loop reports exceptions that are never read.
            error = sent.exception()
        if self._is_closed:
            return
        if error is not None:
            self._unanswered(str(error))
            return
        self._is_silent = False
        try:
            self._effects.extend(self._fetcher.answered(sent.result(), self._world.runtime.loop.time()))
        except Exception as failure:  # noqa: BLE001  # see _take_turn
            self._die(failure)
            return
        self._take_turn()

    def _unanswered(self, why: str) -> None:
        if not self._is_silent:
            logger.warning("%r: no answer, trying again: %s", self, why)
        self._is_silent = True
        self._fetcher.unanswered(self._world.runtime.loop.time())
        self._go_on()

    # -- effects ------------------------------------------------------------------------------------------------------

    def _try_to_do(self, effect: Effect | AppendSteps) -> int:
        """Carry out a step of the effect. Return its cost (pieces.py)."""
        try:
            return self._do(effect)
        except Exception as error:
            fetch = effect.fetch
            if fetch not in self._fetcher:
                raise
            # This is a bug, which may affect only this one log.
            logger.error("Partition %s: the records from its leader could not be appended", fetch, exc_info=error)
            self._fail(self._fetcher.fail(fetch, f"unexpected {type(error).__name__}: {error}"))
            return 1

    def _do(self, effect: Effect | AppendSteps) -> int:
        if isinstance(effect, AppendSteps):
            return self._step(effect)
        fetch = effect.fetch
        if isinstance(effect, Fail):
            self._fail(effect)
            return 1
        follower = self._followers.get(fetch)
        if follower is None:
            # The partition was removed after the answer came.
            return 0
        self._at_work.add(fetch)
        if isinstance(effect, AppendRecords):
            self.bytes.mark(len(effect.records))
            if self._world.quota.is_throttled(fetch.topic, fetch.index):
                self._world.quota.record(len(effect.records))
            ended = partial(self._ended, fetch, expects_progress=bool(effect.records))
            return self._step(
                AppendSteps(effect, follower, self._world.runtime.now_ms, ended, partial(self._resume, fetch)), first=1
            )
        try:
            self._cut(effect, follower, partial(self._cut_ended, fetch))
        except KafkaError as error:
            self._ended(fetch, error, expects_progress=True)
        return 1

    def _cut(self, effect: TruncateTo | StartOver, follower: FollowerLog, then: OnOutcome) -> None:
        """Begin a truncation, or the deletion of all records. Raises KafkaError."""
        if isinstance(effect, StartOver):
            follower.start_over(effect.offset, then)
            return
        if effect.offset < follower.high_watermark:
            logger.warning(
                "Partition %s: truncating to offset %d, below the high watermark %d",
                effect.fetch,
                effect.offset,
                follower.high_watermark,
            )
        follower.truncate_to(effect.offset, then)

    def _cut_ended(self, fetch: PartitionFetch, code: ErrorCode) -> None:
        error = None if code == ErrorCode.NONE else KafkaError(code, "the log could not be truncated")
        self._ended(fetch, error, expects_progress=True)

    def _step(self, appending: AppendSteps, first: int = 0) -> int:
        cost = appending.step()
        if cost:
            self._effects.appendleft(appending)
        return first + cost

    def _resume(self, fetch: PartitionFetch, appending: AppendSteps) -> None:
        if fetch in self._at_work:
            self._effects.append(appending)
            self._go_on()

    def _ended(self, fetch: PartitionFetch, error: KafkaError | None, *, expects_progress: bool) -> None:
        """Handle the end of an effect, with success or not."""
        self._at_work.discard(fetch)
        self._go_on()
        if fetch not in self._fetcher:
            return
        now = self._world.runtime.loop.time()
        fail: Fail | None
        if error is None:
            fail = self._fetcher.done(fetch, now, expects_progress=expects_progress)
        elif error.code in _MAY_PASS or (error.code == ErrorCode.KAFKA_STORAGE_ERROR and _works(fetch)):
            # For a full disk, storage/space.py logs one line of its own.
            level = logging.DEBUG if error.code == ErrorCode.KAFKA_STORAGE_ERROR else logging.ERROR
            text = "Partition %s: the fetch at offset %d cannot be used: %s"
            logger.log(level, text, fetch, fetch.fetch_offset, error)
            fail = self._fetcher.refused(fetch, now)
        else:
            fail = self._fetcher.fail(fetch, str(error))
        if fail is not None:
            self._fail(fail)

    def _fail(self, fail: Fail) -> None:
        self._followers.pop(fail.fetch, None)
        self._at_work.discard(fail.fetch)
        self._world.failed(fail)


def _works(fetch: PartitionFetch) -> bool:
    """Return True if the log of the partition can still be used. The error then only means that the disk was full."""
    try:
        return fetch.replica.log_end_offset >= 0
    except KafkaError:
        return False
