"""Reads records as a member of a share group (KIP-932), over the node's own wire messages.

kafka-python has no share consumer, so this one is small and does what a command needs: it joins, sends heartbeats
between its fetches, acknowledges the records that its caller has printed, and leaves. Responsible for the membership,
for the leaders of partitions, for records and for the end. Not responsible for the fields of fetches and
acknowledgements (share_member_session.py), nor for output.

Invariants: A record is acknowledged only after the caller has asked for the next batch, or has closed the reader with
`printed_all`. All other records that were acquired are released when the session closes. A record whose lock was
renewed is in the next batch again, without a fetch.
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias
from uuid import uuid4

from pykbroker.tools.cluster import topics
from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
from pykbroker.tools.cluster.delivered_records import Allowance, DeliveredRecord, delivered_records
from pykbroker.tools.cluster.failure import AskFailed, check, failed, timed_out
from pykbroker.tools.cluster.share_member_session import (
    MOST_BYTES,
    RENEW,
    WITH_RENEWALS,
    MemberSession,
    SharedPlace,
    acknowledgements,
)
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.share_acknowledge import ShareAcknowledgeResponse
from pykbroker_wire.messages.share_fetch import AcquiredRecords, ShareFetchResponse
from pykbroker_wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

#: A signal and the next heartbeat wait for at most this long.
_WAIT_MS: Final = 200
_JOIN_SECONDS: Final = 60.0
#: how long brokers may take for the end of a read that was stopped, where an end of its own has more time
_STOP_SECONDS: Final = 1.0
#: between heartbeats until the group has assigned a partition
_JOINING_MS: Final = 500
_NOTHING_FOR_SECONDS: Final = 3.0
#: how long partitions may be without a leader that answers, before a read that does not follow fails
_TROUBLE_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.1
_JOIN, _LEAVE = 0, -1
#: ShareFetch has modes of acquisition from this version on (KIP-1206).
_WITH_MODES: Final = 2
_SESSION_LOST: Final = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
        ErrorCode.NETWORK_EXCEPTION,
        # The broker has left the cluster, and its sessions with it.
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
_JOIN_AGAIN: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


@dataclass(slots=True, frozen=True)
class WantedShare:
    """The records to read, and what becomes of them."""

    group: str
    topics: Sequence[str]
    #: the type with which each record is acknowledged, as share_member_session.py has them
    acknowledgement: int
    #: None for no limit
    count: int | None = None
    #: wait for further records, where the read else ends when nothing has come for a while
    follows: bool = False
    #: Yield an empty batch whenever nothing has come for a moment, so that the caller can look at the time. Also wait
    #: without an end for the first partition, and for brokers that do not answer.
    shows_pauses: bool = False
    #: End a wait for a broker that long after the last batch, so that the caller can end; None for no such end.
    silence_ms: int | None = None
    #: max.poll.records and fetch.max.bytes
    records_at_once: int = 500
    bytes_at_once: int = MOST_BYTES


#: called with a partition, the offsets of the records whose acknowledgements were answered, and None if they are done;
#: records with an error come again
OnAcknowledged: TypeAlias = Callable[[PartitionName, Sequence[int], AskFailed | None], None]


@dataclass(slots=True, frozen=True)
class _DeliveredPart:
    """The acknowledgements that one partition gets."""

    acquired: Sequence[AcquiredRecords]
    #: the type of each record that the caller has got, by offset
    kinds: dict[int, int]
    #: the offset after which nothing is acknowledged, or None
    last: int | None


@dataclass(slots=True, frozen=True)
class _Delivered:
    """The last batch, which one broker has sent."""

    node: int
    parts: Mapping[SharedPlace, _DeliveredPart]
    records: Sequence[DeliveredRecord]


class ShareGroupReader:
    """`for batch in ShareGroupReader(cluster, wanted).batches(): ...`, then `close()`. Raises AskFailed."""

    def __init__(self, cluster: AskedCluster, wanted: WantedShare, on_acknowledged: OnAcknowledged) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._on_acknowledged = on_acknowledged
        self._member = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        self._epoch = _JOIN
        self._beat_at = 0.0
        self._left = wanted.count
        self._is_stopped = False
        self._assigned: set[SharedPlace] = set()
        #: topic id -> name
        self._names: dict[bytes, str] = {}
        self._leaders: dict[SharedPlace, int] = {}
        self._sessions: dict[int, MemberSession] = {}
        self._delivered: _Delivered | None = None
        #: the part of the last batch whose locks were renewed
        self._renewed: _Delivered | None = None
        #: the last failure of the current pass over the brokers
        self._trouble: AskFailed | None = None

    def stop(self) -> None:
        """End before the next batch; a signal handler may call it."""
        self._is_stopped = True
        self._cluster.give_up(_STOP_SECONDS)

    def batches(self) -> Iterator[list[DeliveredRecord]]:
        """Yield batches of records, each of one broker. A batch is acknowledged before the next one is requested."""
        try:
            yield from self._batches()
        except Exception as error:
            # The caller has not got what was delivered before the failure.
            self._delivered = None
            if not (self._is_stopped and isinstance(error, AskFailed)):
                raise

    def _batches(self) -> Iterator[list[DeliveredRecord]]:
        #: since when the member has no partition
        waits_since = time.monotonic()
        #: the end of the last pass that brought records or failed, and of the last pass that did not fail
        heard_at = well_at = 0.0
        self._note_life()
        while not self._has_ended():
            if not self._is_member():
                time.sleep(_PAUSE_SECONDS)
                yield []
                continue
            if not self._assigned:
                waits_since = waits_since or time.monotonic()
                if not self._wanted.shows_pauses and time.monotonic() - waits_since >= _JOIN_SECONDS:
                    raise timed_out(f"Group {self._wanted.group} gave no partition within {_JOIN_SECONDS:g} s.")
                time.sleep(_PAUSE_SECONDS)
                if self._wanted.shows_pauses:
                    yield []
                continue
            waits_since = 0.0
            if not well_at:
                heard_at = well_at = time.monotonic()
            self._trouble = None
            nodes = self._nodes()
            for node in nodes:
                # Brokers are asked in turn, so each may keep its request only for a part of the time.
                batch = self._fetched(node, _WAIT_MS // len(nodes))
                while batch:
                    yield batch
                    self._note_life()
                    self.acknowledge()
                    heard_at = well_at = time.monotonic()
                    batch = self._again()
                if self._has_ended():
                    return
            if self._wanted.shows_pauses:
                yield []
            now = time.monotonic()
            if self._trouble is None:
                well_at = now
                if not self._wanted.follows and now - heard_at >= _NOTHING_FOR_SECONDS:
                    return
                continue
            # Records may wait in a partition that could not be read, so this is not the end of the queue.
            heard_at = now
            if not self._wanted.follows and now - well_at >= _TROUBLE_SECONDS:
                raise self._trouble

    def close(self, *, printed_all: bool = True) -> None:
        """Close the sessions and leave the group. `printed_all`: False if the last batch was not printed, so that its
        records are released and come again. A KeyboardInterrupt ends this at once."""
        self._cluster.give_up()
        try:
            if printed_all:
                self.acknowledge()
        except Exception:
            # The caller may be unable to print the result of the acknowledgement.
            self._leave()
            raise
        else:
            self._leave()

    def _leave(self) -> None:
        # The end of a connection does the same as these requests, so a broker that does not answer is no failure.
        for node in list(self._sessions):
            with suppress(AskFailed):
                self._close_session(node)
        if self._epoch != _JOIN:
            with suppress(AskFailed):
                self._ask_coordinator(_LEAVE)

    def _note_life(self) -> None:
        """Let the caller's time limit begin now."""
        if self._wanted.silence_ms is not None:
            self._cluster.wait_until(time.monotonic() + self._wanted.silence_ms / 1000)

    def _has_ended(self) -> bool:
        return self._is_stopped or self._left == 0

    # -- the membership -----------------------------------------------------------------------------------------------

    def _waits_out(self, error: AskFailed) -> bool:
        """Note an error that a member which shows pauses waits out. Returns False for every other error."""
        if self._is_stopped or not self._wanted.shows_pauses or not error.passes:
            return False
        self._trouble = error
        return True

    def _is_member(self) -> bool:
        """Send a heartbeat if it is due. Returns False if it failed, and is to be sent again. Raises AskFailed."""
        try:
            self._beat_if_due()
        except AskFailed as error:
            if not self._waits_out(error):
                raise
            return False
        return True

    def _beat_if_due(self) -> None:
        if time.monotonic() < self._beat_at:
            return
        answer = self._cluster.settled(self._beat)
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._assigned = {
                (topic.topic_id, number) for topic in answer.assignment.topic_partitions for number in topic.partitions
            }
            self._find_leaders()
        # A group coordinator of Apache Kafka assigns partitions with the second heartbeat.
        pause_ms = answer.heartbeat_interval_ms if self._assigned else min(_JOINING_MS, answer.heartbeat_interval_ms)
        self._beat_at = time.monotonic() + pause_ms / 1000

    def _beat(self) -> ShareGroupHeartbeatResponse:
        answer = self._ask_coordinator(self._epoch)
        if answer.error_code in _JOIN_AGAIN and self._epoch != _JOIN:
            self._epoch = _JOIN
            self._assigned = set()
            answer = self._ask_coordinator(_JOIN)
        check(answer.error_code, answer.error_message)
        return answer

    def _ask_coordinator(self, epoch: int) -> ShareGroupHeartbeatResponse:
        group = self._wanted.group
        request = ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=self._member,
            member_epoch=epoch,
            subscribed_topic_names=list(self._wanted.topics) if epoch == _JOIN else None,
        )
        node = self._cluster.coordinators([group])[group]
        return self._cluster.ask(request, ShareGroupHeartbeatResponse, node=node)

    def _find_leaders(self) -> None:
        """Ask for the leaders of the topics. A partition without a leader is not fetched until there is one."""
        try:
            self._ask_for_leaders()
        except AskFailed as error:
            if not self._waits_out(error):
                raise

    def _ask_for_leaders(self) -> None:
        self._cluster.settled(self._cluster.refresh)
        self._names = self._cluster.settled(lambda: topics.names_by_id(self._cluster, self._wanted.topics))
        ids = {name: topic_id for topic_id, name in self._names.items()}
        self._leaders = {
            (ids[name], number): leader
            for (name, number), leader in topics.leaders(self._cluster, self._wanted.topics).items()
            if name in ids
        }

    # -- records ------------------------------------------------------------------------------------------------------

    def _nodes(self) -> list[int]:
        """Return the brokers that lead an assigned partition, or have a session."""
        leaders = {self._leaders.get(place, -1) for place in self._assigned}
        if -1 in leaders:
            time.sleep(_PAUSE_SECONDS)
            self._find_leaders()
            leaders = {self._leaders.get(place, -1) for place in self._assigned}
            if -1 in leaders:
                self._trouble = failed(ErrorCode.LEADER_NOT_AVAILABLE)
        return sorted({*leaders, *self._sessions} - {-1})

    def _fetched(self, node: int, max_wait_ms: int) -> list[DeliveredRecord]:
        """Return the records that a broker has for this member, or none if it has none for a while."""
        places = [place for place in self._assigned if self._leaders.get(place) == node]
        if not places:
            with suppress(AskFailed):
                self._close_session(node)
            return []
        session = self._sessions.setdefault(node, MemberSession(self._wanted.group, self._member))
        most = self._wanted.records_at_once if self._left is None else min(self._wanted.records_at_once, self._left)
        try:
            newest = self._cluster.versions(node).get(ApiKey.SHARE_FETCH, (0, 0))[1]
            exactly = self._left is not None and newest >= _WITH_MODES
            request = session.fetch(
                places,
                max_records=most,
                exactly=exactly,
                max_wait_ms=max_wait_ms,
                max_bytes=self._wanted.bytes_at_once,
            )
            answer = self._cluster.ask(request, ShareFetchResponse, node=node)
            check(answer.error_code, answer.error_message)
        except AskFailed as error:
            session.lost()
            self._begin_again(error)
            return []
        session.answered()
        return self._taken(node, answer)

    def _begin_again(self, error: AskFailed) -> None:
        """Pause before the next request, or raise an error that does not pass."""
        if error.code not in _SESSION_LOST and not error.retriable and not self._waits_out(error):
            raise error
        self._trouble = error
        time.sleep(_PAUSE_SECONDS)
        self._find_leaders()

    def _taken(self, node: int, answer: ShareFetchResponse) -> list[DeliveredRecord]:
        """Return the records of an answer, as many as are left to read, and note their acknowledgements."""
        found: list[DeliveredRecord] = []
        allowance = Allowance()
        parts: dict[SharedPlace, _DeliveredPart] = {}
        trouble: AskFailed | None = None
        for topic in answer.responses:
            for one in topic.partitions:
                if one.error_code:
                    error = failed(one.error_code, one.error_message)
                    if not error.retriable:
                        raise error
                    trouble = error
                    continue
                place = (topic.topic_id, one.partition_index)
                left = None if self._left is None else self._left - len(found)
                records = delivered_records(self._names.get(place[0], ""), one, allowance)[:left]
                # Records after the last one to read stay unacknowledged, and are released at the end.
                last = records[-1].offset if left is not None and len(records) == left and records else None
                if left != 0 and one.acquired_records:
                    kinds = dict.fromkeys((record.offset for record in records), self._wanted.acknowledgement)
                    parts[place] = _DeliveredPart(one.acquired_records, kinds, last)
                found += records
        if self._left is not None:
            self._left -= len(found)
        if parts:
            self._delivered = _Delivered(node, parts, found)
        if not found:
            # Only gaps were acquired, so there is nothing that the caller could print before.
            self.acknowledge()
        if trouble is not None:
            self._trouble = trouble
            time.sleep(_PAUSE_SECONDS)
            self._find_leaders()
        return found

    # -- acknowledgements ---------------------------------------------------------------------------------------------

    def acknowledge_as(self, record: DeliveredRecord, kind: int) -> None:
        """Give a record of the last batch another type of acknowledgement. The batch must not be acknowledged yet. A
        record with the type RENEW comes again with the next batch."""
        assert self._delivered is not None, "the batch of the record was acknowledged"
        for (topic, number), part in self._delivered.parts.items():
            if (self._names.get(topic, ""), number) == (record.topic, record.partition):
                part.kinds[record.offset] = kind

    def _again(self) -> list[DeliveredRecord]:
        """Return the records whose locks were renewed as the next batch. There are none after `stop`."""
        renewed, self._renewed = self._renewed, None
        if renewed is None or self._is_stopped:
            return []
        self._delivered = renewed
        return list(renewed.records)

    def _note_renewals(self, delivered: _Delivered, errors: Mapping[SharedPlace, AskFailed]) -> None:
        """Keep the records of a batch whose locks were renewed."""
        parts: dict[SharedPlace, _DeliveredPart] = {}
        for place, part in delivered.parts.items():
            offsets = [offset for offset, kind in part.kinds.items() if kind == RENEW]
            if offsets and place not in errors:
                ranges = [AcquiredRecords(first_offset=offset, last_offset=offset) for offset in offsets]
                parts[place] = _DeliveredPart(ranges, dict.fromkeys(offsets, self._wanted.acknowledgement), None)
        kept = {(self._names.get(topic, ""), number): parts[topic, number].kinds for topic, number in parts}
        records = [one for one in delivered.records if one.offset in kept.get((one.topic, one.partition), ())]
        if records:
            self._renewed = _Delivered(delivered.node, parts, records)

    def acknowledge(self) -> None:
        """Acknowledge the last batch now. A refused acknowledgement is no failure of the read, because its records come
        again."""
        delivered, self._delivered = self._delivered, None
        if delivered is None:
            return
        session = self._sessions[delivered.node]
        errors: dict[SharedPlace, AskFailed] = {}
        try:
            request = session.acknowledge(
                {
                    place: acknowledgements(part.acquired, part.kinds, part.last)
                    for place, part in delivered.parts.items()
                }
            )
            least = WITH_RENEWALS if request.is_renew_ack else 0
            answer = self._cluster.ask(request, ShareAcknowledgeResponse, node=delivered.node, least=least)
            check(answer.error_code, answer.error_message)
        except AskFailed as error:
            session.lost()
            errors = dict.fromkeys(delivered.parts, error)
        else:
            session.answered()
            for topic in answer.responses:
                for one in topic.partitions:
                    if one.error_code:
                        errors[topic.topic_id, one.partition_index] = failed(one.error_code, one.error_message)
        self._note_renewals(delivered, errors)
        for place, part in delivered.parts.items():
            name = (self._names.get(place[0], ""), place[1])
            self._on_acknowledged(name, list(part.kinds), errors.get(place))

    def _close_session(self, node: int) -> None:
        session = self._sessions.pop(node)
        if session.is_open:
            self._cluster.ask(session.acknowledge({}, closes=True), ShareAcknowledgeResponse, node=node)
