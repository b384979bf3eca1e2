"""A member of a share group: it joins, fetches the partitions of its assignment from their leaders, and acknowledges.

Each record that it gets has a fate that chance decides: it is accepted, released or rejected; its lock is renewed
first, or nothing is sent about it until its lock has ended. A member closes its sessions now and then and opens others.

It records what it was given and what it acknowledged. The checks of that are in history/deliveries.py, and those of
the brokers in invariants/share_groups.py.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from pykbroker_wire.messages.share_fetch import AcknowledgementBatch as FetchAcknowledgement
from pykbroker_wire.messages.share_fetch import FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest
from pykbroker_wire.messages.share_group_describe import ShareGroupDescribeRequest
from pykbroker_wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.record import iter_records
from pykbroker_worlds.history.events import Acknowledged, Delivered, History, Place
from pykbroker_worlds.simulated.sim_cluster import SimCluster
from tests.simulation.clients.base import GROUP, MOVED, NO_COORDINATOR, QUIET, Peer, Trouble

GAP, ACCEPT, RELEASE, REJECT, RENEW = 0, 1, 2, 3, 4
_CLOSE: Final = -1

#: The errors of a request after which its session is no longer used.
_NO_SESSION: Final = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
#: The errors of one partition. While its state is not initialised, it is UNKNOWN_SERVER_ERROR.
_NOT_NOW: Final = MOVED | NO_COORDINATOR | {ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.UNKNOWN_SERVER_ERROR}
#: The errors of acknowledgements. INVALID_REQUEST is for offsets after all that a new leader has in flight.
_NOT_ACKNOWLEDGED: Final = _NOT_NOW | {ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST}
_OUT: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})


class Acks(NamedTuple):
    """The acknowledgements of a request: for each partition, the type of each offset."""

    by_place: dict[Place, dict[int, int]]

    @property
    def is_renewal(self) -> bool:
        return any(kind == RENEW for types in self.by_place.values() for kind in types.values())


@dataclass(slots=True)
class _Session:
    """A share session with one broker. `held` are the records that it may have to acknowledge."""

    epoch: int = 0
    places: set[Place] = field(default_factory=set)
    held: dict[Place, dict[int, int]] = field(default_factory=dict)


class ShareMember(Peer):
    """One member. `is_calm` members accept everything."""

    def __init__(
        self,
        cluster: SimCluster,
        history: History,
        name: str,
        group: str,
        topic: str,
        *,
        trouble: Trouble = QUIET,
        pause: float = 0.3,
    ) -> None:
        super().__init__(cluster, history, name, trouble)
        self.group = group
        self.topic = topic
        self.longest_pause = pause
        #: at most the 500 ms that it waits for records by itself
        self.longest_wait_ms = 500
        self.is_calm = False
        self.member = self._new_id()
        self.member_epoch = 0
        self.assigned: frozenset[Place] = frozenset()
        self._sessions: dict[int, _Session] = {}
        self._beat_at = 0.0

    def _new_id(self) -> str:
        return str(uuid.UUID(bytes=self.random.randbytes(16), version=4))

    def hang_up(self, broker: int) -> None:
        # A session ends with its connection.
        self._sessions.pop(broker, None)
        super().hang_up(broker)

    # -- its life -----------------------------------------------------------------------------------------------------

    async def forever(self) -> None:
        while True:
            if self.world.loop.time() >= self._beat_at:
                await self._beat()
            await self._turns()
            if not self.is_calm and self.random.random() < 0.06:
                # The application works for longer than locks last.
                await self.pause(1.0, 2.5)

    async def leave(self) -> None:
        """Close all sessions, and leave the group."""
        for broker in sorted(self._sessions):
            await self._close(broker)
        await self._leave_group()
        self.member_epoch = 0
        self.assigned = frozenset()

    async def linger(self) -> None:
        """Leave the group, and go on with the sessions as if it had an assignment."""
        await self._leave_group()
        while True:
            await self._turns()

    async def _leave_group(self) -> None:
        await self.ask_coordinator(GROUP, self.group, self._heartbeat(-1))

    def die(self) -> None:
        """End all connections, without a word. The task of `forever` was cancelled before."""
        for broker in sorted(self._connections):
            self.hang_up(broker)

    async def _turns(self) -> None:
        for broker in sorted(await self._assigned_leaders() | set(self._sessions)):
            await self._turn(broker)
        await self.pause(0.0, self.longest_pause)

    async def _assigned_leaders(self) -> set[int]:
        found = {await self.leader(place) for place in sorted(self.assigned)}
        return {broker for broker in found if broker in self.cluster.brokers}

    # -- the group ----------------------------------------------------------------------------------------------------

    def _heartbeat(self, epoch: int) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member,
            member_epoch=epoch,
            subscribed_topic_names=[self.topic] if epoch == 0 else None,
        )

    async def _beat(self) -> None:
        self._beat_at = self.world.loop.time() + self.random.uniform(0.2, 0.6)
        answer = await self.ask_coordinator(GROUP, self.group, self._heartbeat(self.member_epoch))
        if answer is None:
            return
        code = answer.error_code
        if code == ErrorCode.NONE:
            self.member_epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = frozenset(
                    [
                        (await self.name_of(part.topic_id), index)
                        for part in answer.assignment.topic_partitions
                        for index in part.partitions
                    ]
                )
        elif code in NO_COORDINATOR:
            await self.moved(GROUP, self.group)
        else:
            assert code in _OUT, ErrorCode(code)
            self.member_epoch = 0
            self._beat_at = 0.0
        self.note("beat", code, self.member_epoch, sorted(self.assigned))

    async def describe(self) -> None:
        """Ask for a description of the group."""
        answer = await self.ask_coordinator(GROUP, self.group, ShareGroupDescribeRequest(group_ids=[self.group]))
        if answer is not None:
            code = answer.groups[0].error_code
            assert code in NO_COORDINATOR or code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND), ErrorCode(code)

    # -- sessions -----------------------------------------------------------------------------------------------------

    async def _turn(self, broker: int) -> None:
        """Do one thing with one broker: fetch, acknowledge, close, or describe the group."""
        session = self._sessions.get(broker)
        chance = self.random.random()
        if session is not None and session.epoch and not self.is_calm and chance < 0.06:
            await self._close(broker)
        elif session is not None and session.epoch and session.held and chance < 0.5:
            await self._acknowledge(broker, session)
        elif chance < 0.97:
            await self._fetch(broker)
        else:
            await self.describe()

    def _choose(self, session: _Session) -> Acks:
        """Choose what to acknowledge of what the session holds, and forget the records whose locks are to run out."""
        chosen: dict[Place, dict[int, int]] = {}
        for place, held in sorted(session.held.items()):
            types: dict[int, int] = {}
            for offset, wanted in sorted(held.items()):
                if wanted == GAP or self.is_calm:
                    types[offset] = GAP if wanted == GAP else ACCEPT
                    del held[offset]
                    continue
                fate = self.random.random()
                if fate < 0.08:
                    types[offset] = RENEW
                    continue
                if fate < 0.9:
                    types[offset] = self.random.choices([ACCEPT, RELEASE, REJECT], [8, 2, 1])[0]
                    del held[offset]
                elif fate < 0.95:
                    del held[offset]
            if types:
                chosen[place] = types
        session.held = {place: held for place, held in session.held.items() if held}
        return Acks(chosen)

    async def _acknowledge(self, broker: int, session: _Session) -> None:
        acks = self._choose(session)
        if acks.by_place:
            await self._send_acknowledge(broker, session, acks, session.epoch)

    async def _close(self, broker: int) -> None:
        """Close a session with ShareAcknowledge or with ShareFetch, with the last acknowledgements or without."""
        session = self._sessions.get(broker)
        if session is None or not session.epoch:
            return
        acks = self._choose(session) if self.random.random() < 0.5 else Acks({})
        if acks.is_renewal:
            acks = Acks({})
        if self.random.random() < 0.5:
            await self._send_acknowledge(broker, session, acks, _CLOSE)
        else:
            await self._send_fetch(broker, session, acks, set(), _CLOSE)
        self._sessions.pop(broker, None)

    async def _send_acknowledge(self, broker: int, session: _Session, acks: Acks, epoch: int) -> None:
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=epoch,
            is_renew_ack=acks.is_renewal,
            topics=[
                AcknowledgeTopic(
                    topic_id=await self.topic_id(self.topic),
                    partitions=[
                        AcknowledgePartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                                for first, last, types in _ranges(found)
                            ],
                        )
                        for (_, index), found in sorted(acks.by_place.items())
                    ],
                )
            ]
            if acks.by_place
            else [],
        )
        events = self._begin(broker, acks)
        answer = await self.once(broker, request)
        if answer is None:
            self._end(events, {})
            return
        if answer.error_code:
            self._refused(broker, answer.error_code)
            self._end(events, dict.fromkeys(acks.by_place, answer.error_code))
            return
        found = {
            (self.topic, each.partition_index): each.error_code
            for topic in answer.responses
            for each in topic.partitions
        }
        assert all(code in _NOT_ACKNOWLEDGED for code in found.values() if code), found
        self._end(events, found)
        session.epoch = epoch + 1

    async def _fetch(self, broker: int) -> None:
        session = self._sessions.setdefault(broker, _Session())
        wanted = {place for place in sorted(self.assigned) if await self.leader(place) == broker}
        if not session.epoch:
            if not wanted:
                self._sessions.pop(broker, None)
                return
            session.held.clear()
            session.places.clear()
        acks = self._choose(session) if session.epoch and self.random.random() < 0.7 else Acks({})
        if acks.is_renewal:
            await self._send_acknowledge(broker, session, acks, session.epoch)
            return
        await self._send_fetch(broker, session, acks, wanted, session.epoch)

    async def _send_fetch(self, broker: int, session: _Session, acks: Acks, wanted: set[Place], epoch: int) -> None:
        topic_id = await self.topic_id(self.topic)
        named = sorted((wanted - session.places) | acks.by_place.keys()) if epoch != _CLOSE else sorted(acks.by_place)
        forgotten = sorted(session.places - wanted) if epoch > 0 else []
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=epoch,
            max_wait_ms=0 if epoch == _CLOSE else min(self.random.choice([0, 200, 500]), self.longest_wait_ms),
            min_bytes=0 if epoch == _CLOSE else 1,
            max_bytes=0 if epoch == _CLOSE else self.random.choice([200, 1 << 20]),
            max_records=0 if epoch == _CLOSE else self.random.choice([1, 4, 500]),
            batch_size=self.random.choice([1, 500]),
            share_acquire_mode=int(self.random.random() < 0.3),
            topics=[
                FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        FetchPartition(
                            partition_index=place[1],
                            acknowledgement_batches=[
                                FetchAcknowledgement(first_offset=first, last_offset=last, acknowledge_types=types)
                                for first, last, types in _ranges(acks.by_place.get(place, {}))
                            ],
                        )
                        for place in named
                    ],
                )
            ]
            if named
            else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=topic_id, partitions=[index for _, index in forgotten])]
            if forgotten
            else [],
        )
        started = self.history.now()
        events = self._begin(broker, acks)
        answer = await self.once(broker, request)
        if answer is None:
            # The broker may be dead, and another one leads.
            for place in wanted:
                self.lost_leader(place)
            self._end(events, {})
            return
        if answer.error_code:
            self._refused(broker, answer.error_code)
            self._end(events, dict.fromkeys(acks.by_place, answer.error_code))
            return
        parts = [each for topic in answer.responses for each in topic.partitions]
        self._end(events, {(self.topic, each.partition_index): each.acknowledge_error_code for each in parts})
        for part in parts:
            assert not part.acknowledge_error_code or part.acknowledge_error_code in _NOT_ACKNOWLEDGED, part
            place = self.topic, part.partition_index
            if part.error_code:
                assert part.error_code in _NOT_NOW, ErrorCode(part.error_code)
                self.lost_leader(place)
            elif part.acquired_records:
                self._take(broker, session, place, part, started)
        if epoch != _CLOSE:
            session.places = wanted if epoch == 0 else (session.places | wanted) - set(forgotten)
            session.epoch = epoch + 1

    def _refused(self, broker: int, code: int) -> None:
        assert code in _NO_SESSION, ErrorCode(code)
        self.note("no session", broker, code)
        # As real clients, it opens another session on the same connection.
        self._sessions.pop(broker, None)

    def _take(self, broker: int, session: _Session, place: Place, part: Any, started: int) -> None:
        values: dict[int, bytes] = {}
        for at, header in iter_batches(part.records):
            if not header.is_control:
                values |= {
                    record.offset: bytes(record.value or b"") for record in iter_records(part.records, at, header)
                }
        ranges = tuple((each.first_offset, each.last_offset, each.delivery_count) for each in part.acquired_records)
        offsets = [offset for first, last, _ in ranges for offset in range(first, last + 1)]
        self.history.record(
            Delivered(
                started=started,
                code=0,
                client=self.name,
                group=self.group,
                member=self.member,
                place=place,
                ranges=ranges,
                records=tuple((offset, values[offset]) for offset in offsets if offset in values),
            )
        )
        self.note("delivered", broker, place, ranges)
        session.held.setdefault(place, {}).update({offset: ACCEPT if offset in values else GAP for offset in offsets})

    # -- the history --------------------------------------------------------------------------------------------------

    def _begin(self, broker: int, acks: Acks) -> list[Acknowledged]:
        return [
            Acknowledged(
                started=self.history.now(),
                code=None,
                client=self.name,
                group=self.group,
                member=self.member,
                place=place,
                types=tuple(sorted(types.items())),
            )
            for place, types in sorted(acks.by_place.items())
        ]

    def _end(self, events: list[Acknowledged], codes: dict[Place, int]) -> None:
        for event in events:
            event.code = codes.get(event.place)
            self.history.record(event)
            self.note("acknowledged", event.place, event.types, event.code)


def _ranges(types: dict[int, int]) -> list[tuple[int, int, list[int]]]:
    """Return the acknowledgements of a partition as ranges, each with one type, or with a type for each offset."""
    found: list[tuple[int, int, list[int]]] = []
    for offset, kind in sorted(types.items()):
        if found and found[-1][1] == offset - 1:
            first, _, kinds = found[-1]
            found[-1] = (first, offset, [*kinds, kind])
        else:
            found.append((offset, offset, [kind]))
    return [(first, last, kinds[:1] if len(set(kinds)) == 1 else kinds) for first, last, kinds in found]
