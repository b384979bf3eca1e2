"""Share sessions: the partitions that a member of a share group reads on this broker, between its requests (KIP-932).

Responsible for epochs, for the partitions of a session, for the choice of partitions in an answer, and for what is
released when a session ends. Not responsible for reading, nor for the locks themselves. A session is not a membership:
any member id may open one.

The session epoch of a request is 0 to open a session, and -1 to close it. Otherwise it counts 1, 2, … 2^31-1 and then
from 1 again, over ShareFetch and ShareAcknowledge together. A session belongs to the connection that opened it, and
ends with it. The number of sessions is bounded by group.share.max.share.sessions; no session is evicted for another.

Two things are better than in Apache Kafka 4.3. Partitions that a session has forgotten are released at its end like all
others. A connection may have several sessions, so a second member on it displaces none, and all end with it. As there,
a session that was opened anew on another connection outlives the end of the first connection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from functools import partial
from typing import Final, NamedTuple

from pykbroker_wire.errors import ErrorCode, KafkaError

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
LAST_EPOCH: Final = 2**31 - 1
#: The most partitions that all sessions remember together. Apache Kafka has no such limit; clients may name any.
MOST_REMEMBERED: Final = 500_000
#: the most that one session remembers
MOST_OF_SESSION: Final = MOST_REMEMBERED // 10

#: topic id and partition index
SessionPartitionId = tuple[bytes, int]


def following_epoch(epoch: int) -> int:
    """Return the epoch of the next request."""
    return 1 if epoch >= LAST_EPOCH else epoch + 1


class SessionMember(NamedTuple):
    """The key of a session."""

    group: str
    member: str


class EndedSession(NamedTuple):
    """A session that is over. The locks that its member holds in these partitions have to be released, ascending in the
    order in which they came."""

    key: SessionMember
    partitions: tuple[SessionPartitionId, ...]


class ShareSession:
    """One session. `partitions` are those that it reads, in the order of their turns. A value is True if the next
    answer has to contain the partition, whatever it has."""

    __slots__ = ("_touched", "connection", "epoch", "key", "partitions", "topic_names")

    def __init__(self, key: SessionMember, connection: Hashable, partitions: Iterable[SessionPartitionId]) -> None:
        self.key = key
        self.connection = connection
        #: the epoch of the request to come
        self.epoch = 1
        # The answer that opens a session has all partitions. After it only news have to be sent.
        self.partitions: dict[SessionPartitionId, bool] = dict.fromkeys(partitions, False)
        #: topic id -> the name of a topic that existed when a request of this session came
        self.topic_names: dict[bytes, str] = {}
        #: partitions that the member may hold locks of, beside those that it reads
        self._touched: dict[SessionPartitionId, None] = {}

    @property
    def remembered(self) -> int:
        """The number of partitions, the forgotten ones included."""
        return len(self.partitions) + len(self._touched)

    def all_partitions(self) -> tuple[SessionPartitionId, ...]:
        """Return the partitions in which the member may hold locks: those that are read, and those that were."""
        return (*self.partitions, *self._touched)

    def new_among(self, wanted: Iterable[SessionPartitionId]) -> int:
        """Return how many of these partitions the session does not remember."""
        return sum(each not in self.partitions and each not in self._touched for each in wanted)

    def update(
        self,
        wanted: Iterable[SessionPartitionId],
        forgotten: Iterable[SessionPartitionId],
        may_hold: Callable[[SessionPartitionId], bool],
    ) -> None:
        """Add partitions, and then forget others. A partition that is new, or comes again, is in the next answer.
        `may_hold` returns True if the member may hold locks of a partition; such a one is remembered."""
        for partition in wanted:
            if partition not in self.partitions:
                self.partitions[partition] = True
                self._touched.pop(partition, None)
        for partition in forgotten:
            if self.partitions.pop(partition, None) is not None and may_hold(partition):
                self._touched[partition] = None

    def belongs_in_answer(self, partition: SessionPartitionId, error: ErrorCode, *, has_records: bool) -> bool:
        """Return True if an incremental answer has to contain the partition, and note that it does. One with records
        goes to the end of the order. After an error it is also in the next answer, so that the end of the error shows.

        An acknowledgement result is a matter of the caller: such a partition is in the answer in any case.
        """
        is_due = self.partitions.get(partition)
        if is_due is None:
            return has_records or error != ErrorCode.NONE
        if has_records:
            del self.partitions[partition]
        self.partitions[partition] = error != ErrorCode.NONE
        return is_due or has_records or error != ErrorCode.NONE


class ShareSessions:
    """The share sessions of one broker."""

    def __init__(self, most: int, has_leader: Callable[[str, SessionPartitionId], bool]) -> None:
        """`most` is group.share.max.share.sessions. `has_leader` returns True if a group has a leader of a partition
        here: without one no member holds locks there, and a partition that is forgotten needs no release."""
        self._most = most
        self._has_leader = has_leader
        self._sessions: dict[SessionMember, ShareSession] = {}
        self._by_connection: dict[Hashable, dict[SessionMember, None]] = {}
        self._sizes: dict[SessionMember, int] = {}
        self._remembered = 0
        self._per_group: dict[str, int] = {}
        #: sessions that ended with their connection (ShareSessionEvictionsPerSec)
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """The number of partitions that all sessions read (SharePartitionsCount)."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def has_group(self, group: str) -> bool:
        """Return True if a member of the group has a session here. The share partitions of a group that has none can be
        dropped."""
        return group in self._per_group

    def peek(self, key: SessionMember) -> ShareSession | None:
        """Return a session, without a request."""
        return self._sessions.get(key)

    # -- requests -----------------------------------------------------------------------------------------------------

    def open(
        self,
        key: SessionMember,
        connection: Hashable,
        partitions: Collection[SessionPartitionId],
        *,
        has_acknowledgements: bool,
    ) -> tuple[ShareSession, EndedSession | None]:
        """Open a session for a ShareFetch with epoch 0.

        Return it, and the session of the same member that it replaces, or None. The partitions of the replaced one that
        the new one does not read have to be released. In the others the member keeps its locks, as in Apache Kafka, and
        may acknowledge them in the new session.

        Raises:
            KafkaError: INVALID_REQUEST if the request acknowledges records. SHARE_SESSION_LIMIT_REACHED if there is no
                room: nothing has changed then, and the caller answers after the max wait of the request.
        """
        if has_acknowledgements:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        before = self._sessions.get(key)
        frees = self._sizes.get(key, 0)
        if before is None and len(self._sessions) >= self._most:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        if len(partitions) > MOST_OF_SESSION or self._remembered - frees + len(partitions) > MOST_REMEMBERED:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = ShareSession(key, connection, partitions)
        ended = None
        if before is not None:
            self._remove(before)
            left = tuple(each for each in before.all_partitions() if each not in session.partitions)
            ended = EndedSession(key, left)
        self._sessions[key] = session
        self._by_connection.setdefault(connection, {})[key] = None
        self._per_group[key.group] = self._per_group.get(key.group, 0) + 1
        self._measure(session)
        return session, ended

    def fetch(
        self,
        key: SessionMember,
        epoch: int,
        wanted: Collection[SessionPartitionId],
        forgotten: Iterable[SessionPartitionId],
    ) -> ShareSession:
        """Return the session of a ShareFetch with an epoch from 1 on, updated, and with its epoch advanced. `wanted`
        are the partitions that the request names, also those that it only acknowledges.

        Raises:
            KafkaError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, or SHARE_SESSION_LIMIT_REACHED if the
                session would remember too many partitions. Then nothing has changed.
        """
        session = self._find(key, epoch)
        new = session.new_among(wanted)
        if session.remembered + new > MOST_OF_SESSION or self._remembered + new > MOST_REMEMBERED:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session.update(wanted, forgotten, partial(self._has_leader, key.group))
        session.epoch = following_epoch(epoch)
        self._measure(session)
        return session

    def acknowledge(self, key: SessionMember, epoch: int) -> ShareSession:
        """Return the session of a ShareAcknowledge with an epoch from 1 on, with its epoch advanced. With FINAL_EPOCH
        the session is returned as it is: `close` ends it after the acknowledgements.

        Raises:
            KafkaError: INVALID_SHARE_SESSION_EPOCH for epoch 0 and for another one than the session expects,
                SHARE_SESSION_NOT_FOUND.
        """
        if epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        if epoch == FINAL_EPOCH:
            return self._closing(key)
        session = self._find(key, epoch)
        session.epoch = following_epoch(epoch)
        return session

    def final(self, key: SessionMember) -> ShareSession:
        """Return the session that a request with FINAL_EPOCH is about to close.

        Raises:
            KafkaError: SHARE_SESSION_NOT_FOUND.
        """
        return self._closing(key)

    def close(self, key: SessionMember) -> EndedSession | None:
        """End a session, after the acknowledgements of the request have been begun. Return what is to be released, or
        None if there is no session any longer."""
        session = self._sessions.get(key)
        return None if session is None else self._end(session)

    # -- connections --------------------------------------------------------------------------------------------------

    def disconnected(self, connection: Hashable) -> list[EndedSession]:
        """End the sessions that belong to a connection that has ended. Return what is to be released."""
        ended = []
        for key in list(self._by_connection.get(connection, ())):
            ended.append(self._end(self._sessions[key]))
            self.evicted += 1
        return ended

    def end_all(self) -> list[EndedSession]:
        """End all sessions: share groups are switched off, or the broker shuts down. Return what is to be released."""
        return [self._end(session) for session in list(self._sessions.values())]

    def refuse_new(self) -> None:
        """From now on open no session that does not replace another, because the broker shuts down."""
        self._most = 0

    # -- within -------------------------------------------------------------------------------------------------------

    def _closing(self, key: SessionMember) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def _find(self, key: SessionMember, epoch: int) -> ShareSession:
        session = self._closing(key)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        return session

    def _measure(self, session: ShareSession) -> None:
        self._remembered += session.remembered - self._sizes.get(session.key, 0)
        self._sizes[session.key] = session.remembered

    def _end(self, session: ShareSession) -> EndedSession:
        self._remove(session)
        return EndedSession(session.key, session.all_partitions())

    def _remove(self, session: ShareSession) -> None:
        key = session.key
        del self._sessions[key]
        self._remembered -= self._sizes.pop(key)
        of_connection = self._by_connection[session.connection]
        del of_connection[key]
        if not of_connection:
            del self._by_connection[session.connection]
        self._per_group[key.group] -= 1
        if not self._per_group[key.group]:
            del self._per_group[key.group]
