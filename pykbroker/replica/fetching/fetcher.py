"""One fetcher: chooses the next request to the leader, and decides the effect of an answer on each partition; pure.

Responsible for fetches, for the requests for a leader's first and last offset, and for truncation by diverging epochs
(as in KIP-595, which Apache Kafka's followers use since 2.7). It also handles errors and delays. It leaves out
throttled partitions that are not in sync while their quota is exceeded (quota.py). Not responsible for the fields of
a request (follower_requests.py), for sending, for carrying out the effects on a log (runner.py, which reports how they
ended), nor for the choice of partitions (manager.py).

Requests come one after the other: `next_request`, then `answered` or `unanswered`. An effect occupies its partition
until `done`, `refused` or `fail` reports its end.

An error of one partition is handled as in Apache Kafka:

* After OFFSET_OUT_OF_RANGE the fetcher asks for the end of the leader's log. Records of this log after that end are cut
  off. If there are none, it asks for the start of the leader's log. If that is after this log's end, this log starts
  over at the leader's start.
* FENCED_LEADER_EPOCH means that there is a newer leader epoch. Until this node's metadata has it, the partition counts
  as failed.
* UNKNOWN_LEADER_EPOCH and NOT_LEADER_OR_FOLLOWER most likely mean that the leader has not received its leadership yet.
  The pauses begin short and double, up to replica.fetch.backoff.ms. Apache Kafka pauses for replica.fetch.backoff.ms
  from the first error on.
* After any other error the fetcher pauses for replica.fetch.backoff.ms.

Unlike Apache Kafka, it also pauses after an answer if the same request would follow.

Invariants:

* At most one request is under way, and only the answer to it is handled.
* An answer changes nothing about a partition that has changed since the request.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass

from pykbroker.replica.fetching.delays import Delays
from pykbroker.replica.fetching.divergence import truncation_offset
from pykbroker.replica.fetching.follower_requests import (
    FetcherRequest,
    FetchSettings,
    fetch_request,
    list_offsets_request,
)
from pykbroker.replica.fetching.partition_fetch import PartitionFetch, Phase
from pykbroker.replica.fetching.session import FollowerSession, PartitionKey
from pykbroker.replica.quota import ReplicationQuota
from pykbroker_wire.errors import ErrorCode, KafkaError, error_name
from pykbroker_wire.messages.fetch import FetchResponse, PartitionData
from pykbroker_wire.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsResponse

logger = logging.getLogger(__name__)

_NOT_YET = (ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
_FIRST_PAUSE_SECONDS = 0.02
_SESSION_ERRORS = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
#: A leader answers with these errors for a short time while the topic is being created or deleted. If there are more
#: than _EXPECTED_UNKNOWN such answers in a row, each is logged as a warning; Apache Kafka warns from the first.
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)
_EXPECTED_UNKNOWN = 4

FetcherResponse = FetchResponse | ListOffsetsResponse


@dataclass(slots=True, frozen=True)
class AppendRecords:
    """Append the leader's records, and take over its high watermark and log start."""

    fetch: PartitionFetch
    records: memoryview
    high_watermark: int
    log_start_offset: int


@dataclass(slots=True, frozen=True)
class TruncateTo:
    """Cut off all records from the offset on."""

    fetch: PartitionFetch
    offset: int


@dataclass(slots=True, frozen=True)
class StartOver:
    """Delete all records. The log is then empty, and starts at the offset."""

    fetch: PartitionFetch
    offset: int


@dataclass(slots=True, frozen=True)
class Fail:
    """Do not fetch the partition again in this leader epoch. The fetcher has already removed it."""

    fetch: PartitionFetch
    reason: str
    #: True if a change of the leader normally causes it
    is_expected: bool = False


Effect = AppendRecords | TruncateTo | StartOver | Fail


class Fetcher:
    """The fetcher of one leader. `now` is in seconds of the loop's clock."""

    __slots__ = (
        "_asked",
        "_asking",
        "_delays",
        "_fetches",
        "_held",
        "_held_until",
        "_node_id",
        "_quota",
        "_session",
        "_settings",
        "_was_refused",
        "is_waiting",
    )

    def __init__(self, node_id: int, settings: FetchSettings, quota: ReplicationQuota) -> None:
        self._node_id = node_id
        self._settings = settings
        self._quota = quota
        self._session = FollowerSession()
        self._fetches: dict[PartitionKey, PartitionFetch] = {}
        self._delays = Delays()
        # Throttled partitions that are left out because the quota is exceeded. They are checked again before each
        # request, and at `_held_until`.
        self._held: dict[PartitionFetch, None] = {}
        self._held_until = 0.0
        # Partitions in the phases ASKING_END and ASKING_START.
        self._asking: dict[PartitionFetch, None] = {}
        # The partitions of a ListOffsets under way, by topic name and index. None if it is a Fetch.
        self._asked: dict[tuple[str, int], PartitionFetch] | None = None
        #: True while a request is under way
        self.is_waiting = False
        # True if the last Fetch was refused as a whole.
        self._was_refused = False

    def __len__(self) -> int:
        return len(self._fetches)

    def __contains__(self, fetch: PartitionFetch) -> bool:
        return self._fetches.get(fetch.key) is fetch

    def __iter__(self) -> Iterator[PartitionFetch]:
        return iter(self._fetches.values())

    # -- partitions ---------------------------------------------------------------------------------------------------

    def find(self, key: PartitionKey) -> PartitionFetch | None:
        """Return the partition, if it is fetched."""
        return self._fetches.get(key)

    def add(self, fetch: PartitionFetch) -> Effect | None:
        """Fetch a partition from the next request on. If an effect is returned, the caller must carry it out first. All
        delays end, because the metadata has changed. Raises KafkaError if the log cannot be used."""
        assert fetch.key not in self._fetches, fetch
        high_watermark = fetch.replica.high_watermark
        self._fetches[fetch.key] = fetch
        self.end_delays()
        if fetch.last_fetched_epoch < 0 and high_watermark < fetch.fetch_offset:
            # Without epochs the leader cannot find where the logs diverge, so records that may be uncommitted are cut
            # off.
            fetch.enter(Phase.WORKING)
            return TruncateTo(fetch, high_watermark)
        self._place(fetch)
        return None

    def remove(self, fetch: PartitionFetch) -> None:
        """Stop fetching the partition. Work under way for it has no effect."""
        if fetch not in self:
            return
        del self._fetches[fetch.key]
        self._delays.forget(fetch)
        self._held.pop(fetch, None)
        self._asking.pop(fetch, None)
        self._session.drop(fetch.key)
        fetch.enter(Phase.ENDED)

    def end_delays(self) -> None:
        """End all delays, because something has changed."""
        self._was_refused = False
        for fetch in self._delays.end_all():
            self._place(fetch)

    # -- requests -----------------------------------------------------------------------------------------------------

    def next_request(self, now: float, broker_epoch: int) -> FetcherRequest | None:
        """Return the next request, or None if there is nothing to ask before `wakes_at`."""
        assert not self.is_waiting
        for fetch in self._delays.end_due(now):
            self._place(fetch)
        if self._held or self._quota.is_used:
            self._hold(now)
        request: FetcherRequest | None = None
        if self._asking:
            self._asked = {(fetch.topic, fetch.index): fetch for fetch in self._asking}
            request = list_offsets_request(self._node_id, self._asking)
        elif (content := self._session.build()) is not None:
            request = fetch_request(self._node_id, broker_epoch, content, self._settings)
        self.is_waiting = request is not None
        return request

    @property
    def wakes_at(self) -> float | None:
        """The time at which the next delay ends, or at which throttled partitions are checked again. None if there is
        neither."""
        until = self._delays.next_end
        if self._held and (until is None or self._held_until < until):
            return self._held_until
        return until

    def _hold(self, now: float) -> None:
        """If the quota is exceeded, leave out exactly the throttled partitions that are not in sync. As in Apache
        Kafka, each partition is checked, but here only if any is throttled."""
        quota = self._quota
        is_exceeded = quota.is_exceeded()
        for fetch in self._fetches.values() if is_exceeded else list(self._held):
            holds = is_exceeded and not fetch.is_in_sync and quota.is_throttled(fetch.topic, fetch.index)
            if holds == fetch.is_held:
                continue
            fetch.is_held = holds
            if holds:
                self._held[fetch] = None
            else:
                del self._held[fetch]
            self._place(fetch)
        self._held_until = now + self._settings.backoff_seconds

    # -- answers ------------------------------------------------------------------------------------------------------

    def unanswered(self, now: float) -> None:
        """Note that the request has got no answer. The next request comes after a pause."""
        asked = self._end_request()
        if asked is None:
            self._session.lost()
        self._delay_all(now)

    def answered(self, response: FetcherResponse, now: float) -> list[Effect]:
        """Return the effects of the answer, in its order."""
        asked = self._end_request()
        if isinstance(response, ListOffsetsResponse):
            assert asked is not None
            return self._took_offsets(asked, response, now)
        assert asked is None
        return self._took_records(response, now)

    def _end_request(self) -> dict[tuple[str, int], PartitionFetch] | None:
        assert self.is_waiting
        self.is_waiting = False
        asked, self._asked = self._asked, None
        return asked

    def _took_records(self, response: FetchResponse, now: float) -> list[Effect]:
        code = response.error_code
        if code != ErrorCode.NONE:
            self._session.refused(code)
            self._refused(f"refused the fetch: {error_name(code)}", now, again=code in _SESSION_ERRORS)
            return []
        answers = {
            (topic.topic_id, partition.partition_index): partition
            for topic in response.responses
            for partition in topic.partitions
        }
        problem = self._session.answered(response.session_id, answers)
        if problem is not None:
            self._refused(f"sent an answer that does not fit the fetch session: {problem}", now, again=True)
            return []
        self._was_refused = False
        effects: list[Effect] = []
        for key, data in answers.items():
            fetch = self._fetches.get(key)
            # The partition may have been removed, or added in another leader epoch, while the request was under way.
            if fetch is None or not fetch.is_ready or not self._session.is_current(key):
                continue
            try:
                effect = self._take(fetch, data, now)
            except KafkaError as error:
                effect = self.fail(fetch, str(error))
            if effect is not None:
                effects.append(effect)
        return effects

    def _refused(self, what: str, now: float, *, again: bool) -> None:
        """Handle an answer without results of partitions. `again`: a full fetch may help, so try one before a pause."""
        logger.info("Node %d: the leader %s", self._node_id, what)
        if self._was_refused or not again:
            self._delay_all(now)
        self._was_refused = True

    def _take(self, fetch: PartitionFetch, data: PartitionData, now: float) -> Effect | None:
        """Take the answer for one partition. Raises KafkaError if the log cannot be used."""
        code = data.error_code
        if code == ErrorCode.NONE:
            fetch.not_yet = fetch.unknown = 0
            diverging = data.diverging_epoch
            if diverging.epoch >= 0:
                if diverging.end_offset < 0:
                    logger.error(
                        "Partition %s: the leader answered epoch %d without the offset at which it ends",
                        fetch,
                        diverging.epoch,
                    )
                    self._delay(fetch, now)
                    return None
                # High watermark and log start are taken over from a later answer, when this log agrees with the
                # leader's.
                offset = truncation_offset(fetch.replica, diverging.epoch, diverging.end_offset)
                logger.info(
                    "Partition %s: the leader's epoch %d ends at offset %d: truncating to offset %d",
                    fetch,
                    diverging.epoch,
                    diverging.end_offset,
                    offset,
                )
                self._work(fetch)
                return TruncateTo(fetch, offset)
            fetch.leader_high_watermark = data.high_watermark
            self._work(fetch)
            # `records` is a view of the frame. The frame contains only this answer, so the records are not copied.
            records = data.records if isinstance(data.records, (bytes, bytearray, memoryview)) else b""
            return AppendRecords(fetch, memoryview(records), data.high_watermark, data.log_start_offset)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            fetch.enter(Phase.ASKING_END)
            self._asking[fetch] = None
            self._place(fetch)
            return None
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            return self._fenced(fetch)
        level = _level_of(code, fetch)
        name = error_name(code)
        logger.log(
            level, "Partition %s: the leader answered %s to the fetch at offset %d", fetch, name, fetch.fetch_offset
        )
        if code in _NOT_YET:
            self._delay(fetch, now, _FIRST_PAUSE_SECONDS * 2 ** min(fetch.not_yet, 20))
            fetch.not_yet += 1
        else:
            self._delay(fetch, now)
        return None

    def _took_offsets(
        self, asked: dict[tuple[str, int], PartitionFetch], response: ListOffsetsResponse, now: float
    ) -> list[Effect]:
        effects: list[Effect] = []
        for topic in response.topics:
            for answer in topic.partitions:
                fetch = asked.pop((topic.name, answer.partition_index), None)
                if fetch is None or fetch not in self:
                    continue
                try:
                    effect = self._take_offset(fetch, answer, now)
                except KafkaError as error:
                    effect = self.fail(fetch, str(error))
                if effect is not None:
                    effects.append(effect)
        for fetch in asked.values():
            if fetch in self:
                self._stop_asking(fetch, now)
        return effects

    def _take_offset(self, fetch: PartitionFetch, answer: ListOffsetsPartitionResponse, now: float) -> Effect | None:
        """Take the leader's offset for one partition. Raises KafkaError if the log cannot be used."""
        code, offset = answer.error_code, answer.offset
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            return self._fenced(fetch)
        if code != ErrorCode.NONE or offset < 0:
            logger.info(
                "Partition %s: the leader did not return the offset that was asked for: %s", fetch, error_name(code)
            )
            self._stop_asking(fetch, now)
            return None
        own_end = fetch.replica.log_end_offset
        if fetch.phase is Phase.ASKING_END:
            if offset >= own_end:
                fetch.enter(Phase.ASKING_START)
                return None
            # An unclean election has made a replica without these records the leader.
            logger.warning(
                "Partition %s: its log ends at offset %d and the leader's at %d: the records that the leader lacks are "
                "truncated",
                fetch,
                own_end,
                offset,
            )
            self._work(fetch)
            return TruncateTo(fetch, offset)
        if offset <= own_end:
            logger.info("Partition %s: fetching again from the end of its log, offset %d", fetch, own_end)
            self._stop_asking(fetch, now)
            return None
        logger.warning(
            "Partition %s: its log ends at offset %d and the leader's begins at %d: it is emptied and begins at that "
            "offset",
            fetch,
            own_end,
            offset,
        )
        self._work(fetch)
        return StartOver(fetch, offset)

    def _stop_asking(self, fetch: PartitionFetch, now: float) -> None:
        self._asking.pop(fetch, None)
        fetch.enter(Phase.FETCHING)
        self._delay(fetch, now)

    # -- what became of an effect -------------------------------------------------------------------------------------

    def done(self, fetch: PartitionFetch, now: float, *, expects_progress: bool) -> Fail | None:
        """Note that the effect is done, so the next request continues from the log's new end. `expects_progress`: delay
        the partition if its next fetch would be the same again."""
        if fetch not in self:
            return None
        has_moved = self._look_again(fetch)
        if isinstance(has_moved, Fail):
            return has_moved
        if expects_progress and not has_moved:
            logger.warning(
                "Partition %s: the fetch at offset %d changed nothing, so the next one waits", fetch, fetch.fetch_offset
            )
            self._delay(fetch, now)
        else:
            self._place(fetch)
        return None

    def refused(self, fetch: PartitionFetch, now: float) -> Fail | None:
        """Note that the effect was not done, or only in part: the log may have the first pieces of an answer. The
        partition is fetched again after a pause."""
        if fetch not in self:
            return None
        found = self._look_again(fetch)
        if isinstance(found, Fail):
            return found
        self._delay(fetch, now)
        return None

    def _look_again(self, fetch: PartitionFetch) -> bool | Fail:
        """Read the log's end after an effect. Return True if the next fetch will differ from the last."""
        fetch.enter(Phase.FETCHING)
        try:
            return fetch.look()
        except KafkaError as error:
            return self.fail(fetch, str(error))

    def fail(self, fetch: PartitionFetch, reason: str) -> Fail:
        """Remove a partition that cannot be fetched in this leader epoch."""
        self.remove(fetch)
        return Fail(fetch, reason)

    def _fenced(self, fetch: PartitionFetch) -> Fail:
        self.remove(fetch)
        reason = (
            f"leader epoch {fetch.leader_epoch} is over, and the metadata of this node does not have the new one yet"
        )
        return Fail(fetch, reason, is_expected=True)

    # -- where a partition stands -------------------------------------------------------------------------------------

    def _work(self, fetch: PartitionFetch) -> None:
        self._asking.pop(fetch, None)
        fetch.enter(Phase.WORKING)
        self._place(fetch)

    def _place(self, fetch: PartitionFetch) -> None:
        if fetch.is_ready:
            self._session.want(fetch.key, fetch.position)
        else:
            self._session.drop(fetch.key)

    def _delay(self, fetch: PartitionFetch, now: float, seconds: float = math.inf) -> None:
        if self._delays.begin(fetch, now + min(seconds, self._settings.backoff_seconds)):
            self._place(fetch)

    def _delay_all(self, now: float) -> None:
        for fetch in list(self._asking):
            self._stop_asking(fetch, now)
        for fetch in self._fetches.values():
            if fetch.phase is Phase.FETCHING:
                self._delay(fetch, now)


def _level_of(code: int, fetch: PartitionFetch) -> int:
    """Return the log level for an error of a partition, and count the error."""
    if code in _NOT_YET:
        # Each change of a leader causes these errors.
        return logging.DEBUG
    if code not in _UNKNOWN:
        return logging.ERROR
    fetch.unknown += 1
    return logging.INFO if fetch.unknown <= _EXPECTED_UNKNOWN else logging.WARNING
